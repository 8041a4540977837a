"""What a run used and how it went: pure functions and accumulators over its samples."""
