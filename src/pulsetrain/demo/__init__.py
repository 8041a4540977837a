"""What `pulsetrain demo` runs: a real, small training."""
