"""The dashboard in a terminal: it draws what `views/live` knows."""
