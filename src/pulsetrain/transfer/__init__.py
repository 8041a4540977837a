"""Runs from elsewhere: a run folder cut into segments, sent through a store, and put together again at home."""
