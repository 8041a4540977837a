"""Sources, sampler, outputs and a run folder, put together around a command, a process or the machine alone.

Nothing here prints: what happened comes back as values, and what goes wrong meanwhile is logged.
"""
