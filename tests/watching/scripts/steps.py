"""Takes steps until a file is there: python steps.py FILE."""

import pathlib
import sys
import time

import pulsetrain

step = 0
while not pathlib.Path(sys.argv[1]).exists():
    step += 1
    pulsetrain.log(step=step, loss=1 / step)
    time.sleep(0.05)
