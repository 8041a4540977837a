"""Benchmarks for people: the live screen, tables of results and gates, and the files beside them."""
