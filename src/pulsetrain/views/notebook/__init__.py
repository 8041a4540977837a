"""Runs in notebooks: `pulsetrain.show()` and `%%pulsetrain`. What reads and draws is in a process beside the kernel."""
