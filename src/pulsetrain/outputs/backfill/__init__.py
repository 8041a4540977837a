"""Sending a recorded run to a server afterwards, as if it had been pushed while it went on."""
