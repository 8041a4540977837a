"""What all that answers over HTTP has in common: how it listens, what protects it, and how much a client may ask for.

There is one such path and two engines. `/metrics` of `run`, `watch` and `attach` is answered by the small server in
server.py, because uvicorn and Starlette would double its memory and its start. A web page, with streams and an API,
runs on those; it takes its socket from `listen`, TLS and logins from `WebConfig`, and its bounds from limits.py.
"""
