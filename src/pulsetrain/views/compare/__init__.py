"""Runs side by side: as text, as one HTML file, and as a figure for a paper."""
