"""What pulsetrain costs and how exact it is, beside its peers, as ratios of one run."""
