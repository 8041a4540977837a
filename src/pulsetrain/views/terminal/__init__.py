"""The dashboard in a terminal: feeds bring snapshots, the history keeps them, the screens draw both."""
