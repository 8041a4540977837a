"""Which source a figure came from first: a framework and a tracker, or two trackers, may log the same one."""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict

FRAMEWORK = "framework"
"""The callbacks of Transformers, Lightning and Keras."""
MOST_KNOWN = 20_000

_PREFIXES = (("train/", ""), ("eval/", "eval_"), ("test/", "test_"))
"""How the Trainer of Transformers writes its names for a tracker."""


class MetricSources:
    """The first source of a name and step wins. The same source may log both again, as mlflow does at step 0."""

    def __init__(self) -> None:
        self._first: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def counts(self, source: str, name: str, step: int) -> bool:
        """Whether what this source logs counts; it then is the first source."""
        name = _plain_name(name)
        with self._lock:
            if any(self._first.get((name, near), source) != source for near in self._near(source, name, step)):
                return False
            self._first[name, step] = source
            if len(self._first) > MOST_KNOWN:
                self._first.popitem(last=False)
            return True

    def _near(self, source: str, name: str, step: int) -> tuple[int, ...]:
        """A framework counts steps from 1, and gives them to its trackers counted from 0."""
        around = (step - 1, step + 1)
        if source == FRAMEWORK:
            return (step, *around)
        return (step, *(near for near in around if self._first.get((name, near)) == FRAMEWORK))


def _plain_name(name: str) -> str:
    name = name[len("logged_") :] if name.startswith("logged_") else name
    if "transformers.trainer" in sys.modules:
        for prefix, plain in _PREFIXES:
            if name.startswith(prefix):
                name = plain + name[len(prefix) :]
                break
    return "gradient_norm" if name == "grad_norm" else name


sources = MetricSources()
"""Of this process."""


def _after_fork() -> None:
    global sources
    sources = MetricSources()


os.register_at_fork(after_in_child=_after_fork)
