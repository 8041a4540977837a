"""How long a client may take, and how much it may ask for."""

REQUEST_SECONDS = 10.0
"""For a new connection to say what it wants, and for any to take its answer."""
IDLE_SECONDS = 330.0
"""How long a connection is kept for another request. Prometheus lets go after 300 seconds, and should be the first."""
MOST_CONNECTIONS = 400
"""Beyond that, the one that has been idle for longest is closed: nobody can take all places and keep them.

Well below the usual limit of 1024 open files, which the rest of the process needs too.
"""
MOST_REQUEST_BYTES = 16 * 1024
"""Of a request's head."""
BACKLOG = 512
"""Connections that may wait to be accepted."""
