"""What runs inside the training process: standard library only, Python 3.9 and newer.

Nothing here may raise into the user's program, wait for a GPU, or touch disk or network on the training thread.
"""
