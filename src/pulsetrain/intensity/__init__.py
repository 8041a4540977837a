"""Carbon intensity of electricity: where figures come from, one file each; this is the registry."""
