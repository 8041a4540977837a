"""The run folder: its layout, its writer and its readers."""
