"""`python -m pulsetrain.monitoring.gpu_dashboard --gpu 0 --interval 0.5`: `pulsetrain top`."""

from pulsetrain.cli.older import gpu_dashboard

if __name__ == "__main__":
    gpu_dashboard()
