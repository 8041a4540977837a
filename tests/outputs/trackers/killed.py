"""Sends a run to a tracker as `pulsetrain export` does, and dies right after the first rows have arrived there."""

import os
import sys

from pulsetrain.cli.main import main
from pulsetrain.outputs.trackers.sending import TrackerSending

SOME = 7


def die_before_it_is_noted(sending: TrackerSending) -> None:
    os._exit(SOME)


TrackerSending._sent = die_before_it_is_noted  # type: ignore[assignment]
main(["export", *sys.argv[1:]])
