"""What a run was, as the watching process finds out: code, machine, place; and what follows for price and carbon.

Everything here is asked in a thread of its own, after the command may have started, and gives up soon.
"""
