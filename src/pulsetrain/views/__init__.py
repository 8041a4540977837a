"""What people look at. Views read snapshots and run folders, never hardware."""
