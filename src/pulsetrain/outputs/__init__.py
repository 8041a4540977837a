"""Where samples go beside the run folder, one file each."""
