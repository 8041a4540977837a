"""What a program or a notebook calls: init, log, monitor, phase, set_training, finish.

Under `pulsetrain run` everything is there already and `init` does nothing. Elsewhere `init` starts a watching process
beside this one, which ends with it. Calls before `init` and after `finish` record nothing, and say so once.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from pulsetrain.training import process

START_SECONDS = 15.0
STOP_SECONDS = 10.0


class Run(NamedTuple):
    """The run that this process reports to."""

    id: str
    folder: str


class _Watcher(NamedTuple):
    process: Any
    run: Run
    pid: int
    """Ours: a forked child must not stop its parent's watcher."""


_watcher: _Watcher | None = None
_told: set[str] = set()


def init(
    name: str | None = None,
    interval: float = 1.0,
    gpus: str | None = None,
    simulate: str | None = None,
    directory: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Run | None:
    """Start watching this process and its machine. A second call changes nothing; None when it could not start."""
    global _watcher
    import json  # here, because what is only logged needs none of these
    import subprocess

    recorder = process.current()
    if recorder is not None and not recorder.closed:
        return _watcher.run if _watcher else _outer_run()
    options = {"--name": name, "--interval": repr(interval), "--gpus": gpus, "--simulate": simulate, "--dir": directory}
    command = [sys.executable, "-m", "pulsetrain", "attach", str(os.getpid()), "--quiet", "--json"]
    command += [word for option, value in options.items() if value is not None for word in (option, value)]
    command += [word for key, value in (tags or {}).items() for word in ("--tag", "%s=%s" % (key, value))]
    try:
        watcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        _tell_once("pulsetrain.init: the watching process could not be started: %s" % error)
        return None
    assert watcher.stdout is not None
    with watcher.stdout as output:
        line = output.readline()
    if not line:
        watcher.wait(START_SECONDS)
        _tell_once("pulsetrain.init: the watching process ended with code %s: nothing is recorded" % watcher.returncode)
        return None
    started = json.loads(line)
    _watcher = _Watcher(watcher, Run(started["id"], started["folder"]), os.getpid())
    process.record_into(started["training_folder"], started["stamp"], started["started"])
    return _watcher.run


def log(**fields: Any) -> None:
    """Record figures of this moment: log(step=i, loss=loss, learning_rate=lr, accuracy=accuracy)."""
    recorder = process.active or _recorder("log")
    if recorder is not None:
        recorder.add(fields)


def monitor(name: str, value: Any) -> None:
    """Record one figure under any name, any time."""
    recorder = process.active or _recorder("monitor")
    if recorder is not None:
        recorder.add({name: value})


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark a stretch of the program, such as validation; its time is not counted as training."""
    from pulsetrain.training import loop

    recorder = process.active or _recorder("phase")
    steps = loop.current() if recorder is not None else None
    begin = time.monotonic()
    if recorder is not None:
        recorder.note("phase_begin", "%s begins" % name, phase=name)
    if steps is not None:
        steps.begin_phase(name)
    try:
        yield
    finally:
        if steps is not None:
            steps.end_phase()
        if recorder is not None:
            seconds = round(time.monotonic() - begin, 6)
            recorder.note("phase_end", "%s took %.1f s" % (name, seconds), phase=name, seconds=seconds)


def set_training(name: str) -> None:
    """Give what follows a name of its own, as a notebook that trains several models does."""
    from pulsetrain.training import loop

    recorder = process.active or _recorder("set_training")
    if recorder is not None:
        steps = loop.current()
        if steps is not None:
            steps.catch_up()  # what was noted before belongs to the name before
        recorder.note("set_training", "now training %s" % name, training=str(name))


def finish() -> None:
    """Write everything and stop the watching process that `init` started. The end of the program does the same."""
    global _watcher
    if process.current() is not None:
        from pulsetrain.training import loop

        loop.finish()
        process.close()
    watcher, _watcher = _watcher, None
    if watcher is not None and watcher.pid == os.getpid():
        import subprocess

        watcher.process.terminate()
        try:
            watcher.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            watcher.process.kill()
            watcher.process.wait()


def _recorder(caller: str) -> Any:
    """The recorder, looked for where no call has found it yet; what is missing is said once."""
    recorder = process.current()
    if recorder is None:
        _tell_once("pulsetrain.%s: nothing is recorded before pulsetrain.init(), or `pulsetrain run`." % caller)
    elif recorder.closed:
        _tell_once("pulsetrain.%s: nothing is recorded after pulsetrain.finish()." % caller)
        return None
    return recorder


def _outer_run() -> Run:
    folder = os.environ.get(process.FOLDER, "")
    return Run(os.environ.get("PULSETRAIN_RUN_ID", ""), os.path.dirname(folder))


def _tell_once(message: str) -> None:
    if message not in _told:
        _told.add(message)
        warnings.warn(message, stacklevel=4)
