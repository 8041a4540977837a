"""The commands of older tools, which accept their command lines as they were."""

import sys

from pulsetrain.cli.main import main


def iris_gpubench() -> None:
    """`iris-gpubench --benchmark_image NAME ...` is `pulsetrain bench run`."""
    main(["bench", "run", *sys.argv[1:]])


def gpu_monitor() -> None:
    """`gpu_monitor --gpu 0 --interval 1.0 --prometheus-port 9090` is `pulsetrain watch`, with what it sees recorded."""
    main(["watch", "--record", *sys.argv[1:]])


def gpu_dashboard() -> None:
    """`gpu_dashboard --gpu 0 --interval 0.5` is `pulsetrain top`."""
    main(["top", *sys.argv[1:]])
