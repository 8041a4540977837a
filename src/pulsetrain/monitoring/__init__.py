"""The modules of an older tool, which people start as `python -m pulsetrain.monitoring.gpu_monitor`."""
