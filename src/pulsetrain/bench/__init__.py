"""Benchmarks: a command or a container, run several times, watched, compared and gated. Nothing here prints.

declaration.py says what to run, suite.py reads it from a file; command.py and container.py run it, repeat.py watches
one run of it, series.py all of them; results.py is what is kept, statistics.py and gate.py what it means.
"""
