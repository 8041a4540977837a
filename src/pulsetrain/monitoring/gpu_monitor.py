"""`python -m pulsetrain.monitoring.gpu_monitor --gpu 0 --interval 1.0`: `pulsetrain watch --record`."""

from pulsetrain.cli.older import gpu_monitor

if __name__ == "__main__":
    gpu_monitor()
