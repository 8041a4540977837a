"""The web page: a server, a JSON API, and the page itself in static/. It reads runs and snapshots, never hardware."""
