"""What a program or a notebook calls: init, config, log, monitor, phase, set_training, finish; which run `show` shows.

Under `pulsetrain run` everything is there already, and `init` only records its `config`. Elsewhere `init` starts a
watching process beside this one, which ends with it. Calls before `init` and after `finish` record nothing, and warn
once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Callable, NamedTuple

import pulsetrain
from pulsetrain.training import process
from pulsetrain.training.encoder import RESERVED_FIELDS
from pulsetrain.training.logged_steps import LoggedSteps
from pulsetrain.training.notebooks import is_notebook, notebook_name
from pulsetrain.training.warn import warn


class CurrentRun(NamedTuple):
    """The run that this process reports to."""

    id: str
    folder: str


_watcher: Any = None
"""The process that `init` started."""
_waits: list[Callable[[], None]] = []
"""What shows the current run, and is waited for when it has ended."""
_steps = LoggedSteps(since=pulsetrain.imported_at)
_warned: set[str] = set()


def init(
    name: str | None = None,
    *,
    project: str | None = None,
    config: Any = None,
    tags: Mapping[str, Any] | None = None,
    interval: float = 1.0,
    gpus: str | None = None,
    simulate: str | None = None,
    directory: str | None = None,
    to: str | None = None,
    prometheus_port: int | None = None,
    carbon_region: str | None = None,
    price: str | None = None,
    instrument: bool = True,
    quiet: bool = False,
) -> CurrentRun | None:
    """Start watching this process and its machine, and instrument its training loop as `pulsetrain run` does.

    `config` is a dict, or an object such as argparse's Namespace: the settings of this training, recorded in run.json.
    `to` is where the run is sent while it is recorded, so that `pulsetrain fetch` elsewhere has it: a folder,
    `drive:MyDrive/pulsetrain`, `gs://`, `s3://`, `ssh://` or `https://`; docs/transfer.md. Or a tracker: `mlflow:URI`,
    `wandb:PROJECT`, `tensorboard:FOLDER`, `trackio:PROJECT`; docs/trackers.md.
    `prometheus_port`, `carbon_region` and `price` are what `pulsetrain run` has as options.
    Call it before a Trainer of Transformers or Lightning is made. With `instrument=False` only what the program logs is
    recorded. `quiet` prints neither the folder now nor the summary in `finish`. A second call changes nothing; returns
    None when watching could not start.
    """
    global _steps, _watcher
    from pulsetrain.training import colab
    from pulsetrain.training.config import plain_config, record  # here, because `log` needs none of these
    from pulsetrain.training.watcher import Watcher, WatcherFailed

    if _watcher is None:
        process.leave_ended_run()
    outer = current_run()
    try:
        settings = plain_config(config)
    except TypeError:
        _warn_once("pulsetrain.init: config is neither a dict nor an object with attributes; it is not recorded", 3)
        settings = {}
    if outer is not None:
        record(settings, "pulsetrain.init", explicit=True)
        return outer
    if name is None and is_notebook():
        name = notebook_name()
    options = {"--name": name, "--project": project, "--interval": repr(interval), "--gpus": gpus}
    options.update({"--simulate": simulate, "--dir": directory, "--to": colab.place_of(to) if to else to})
    options.update({"--carbon-region": carbon_region, "--price": price})
    options["--prometheus-port"] = None if prometheus_port is None else str(prometheus_port)
    words = [word for option, value in options.items() if value is not None for word in (option, value)]
    words += [word for key, value in (tags or {}).items() for word in ("--tag", "%s=%s" % (key, value))]
    quiet = quiet or os.environ.get("PULSETRAIN_QUIET", "").lower() in ("1", "true", "yes", "on")
    try:
        _watcher = Watcher(words, "none" if quiet else "html" if is_notebook() else "text", settings)
    except WatcherFailed as error:
        _warn_once("pulsetrain.init: the watching process %s: nothing is recorded" % error, 3)
        return None
    if _watcher.about.get("private"):
        os.environ[process.PRIVATE] = "1"
    process.record_into(*(_watcher.about[key] for key in ("training_folder", "stamp", "started")))
    if instrument:
        from pulsetrain.training.autoload.sitecustomize import watch_frameworks

        watch_frameworks()
    _steps = LoggedSteps(since=time.monotonic())
    run = _run_of(_watcher)
    if not quiet:
        tell("pulsetrain: recording to %s (live: pulsetrain top %s)" % (run.folder, run.id))
    return run


def config(values: Any = None, /, **settings: Any) -> None:
    """Record settings of this training: config(lr=0.1, depth=12), or config({"model": {"depth": 12}}), or config(args).

    They are part of the run: `runs`, `compare`, `report` and `query` show, filter and sort by them. Call it as often as
    you like: values of a later call replace those of the same name. Of several ranks, the first records them.
    """
    if process.active is not None or _recorder("config") is not None:
        from pulsetrain.training.config import record

        for one in (values, settings):
            try:
                record(one, "pulsetrain.config", explicit=True)
            except TypeError:
                _warn_once("pulsetrain.config: neither a dict nor an object with attributes; it is not recorded", 3)
            except Exception as error:  # of the program's own objects, such as a config with a value missing
                _warn_once("pulsetrain.config: not recorded: %s: %s" % (type(error).__name__, error), 3)


def log(metrics: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
    """Record figures of this moment: log(step=i, loss=loss, accuracy=accuracy), or log({"loss": loss}, step=i).

    A call with a new `step` is a step of the training, which took the time since the step before. Without any `step`,
    calls with a `loss` are the steps 1, 2, 3. Where hooks or callbacks measure the steps, theirs count.
    """
    recorder = process.active or _recorder("log")
    if recorder is not None:
        if metrics:
            fields = {**{str(name): value for name, value in metrics.items()}, **fields}
        if not RESERVED_FIELDS.isdisjoint(fields):
            fields = {_allowed(name): value for name, value in fields.items()}
        _steps.take(fields)
        recorder.add(fields)


def last_logged_step() -> int | float | None:
    """The number of the last step that the program logged, where nothing else measures steps."""
    return _steps.last


def monitor(name: str, value: Any) -> None:
    """Record one figure under any name, any time."""
    recorder = process.active or _recorder("monitor")
    if recorder is not None:
        recorder.add({_allowed(str(name)): value})


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark a stretch of the program, such as validation; its time is not counted as training."""
    from pulsetrain.training import loop as loops

    recorder = process.active or _recorder("phase")
    loop = loops.current() if recorder is not None else None
    if loop is not None and _steps.last is not None:
        loop.handle(
            loop.updates.at_step, int(_steps.last)
        )  # the line of the phase has the number of the step before it
    begin = time.monotonic()
    if recorder is not None:
        recorder.note("phase_begin", "%s begins" % name, phase=name)
    if loop is not None:
        loop.handle(loop.phases.begin, name)
    try:
        yield
    finally:
        if loop is not None:
            loop.handle(loop.phases.end)
        if recorder is not None:
            seconds = round(time.monotonic() - begin, 6)
            recorder.note("phase_end", "%s took %.1f s" % (name, seconds), phase=name, seconds=seconds)


def set_training(name: str) -> None:
    """Give what follows a name of its own, as a notebook that trains several models does."""
    from pulsetrain.training import loop as loops

    recorder = process.active or _recorder("set_training")
    if recorder is not None:
        loop = loops.current()
        if loop is not None:
            loop.catch_up()  # what was noted before belongs to the name before
        recorder.note("set_training", "now training %s" % name, training=str(name))


def finish(exit_code: int = 0) -> None:
    """Write everything, stop the watching process that `init` started, and show the summary of the run.

    The run is finished; with another exit code it failed, and with 130, that of Ctrl-C, it was interrupted. The end of
    the program does the same, without the summary.
    """
    global _watcher
    if process.current() is not None:
        from pulsetrain.training import loop

        loop.finish()
        process.close()
    watcher, _watcher = _watcher, None
    summary = watcher.stop(exit_code) if watcher is not None else ""
    while _waits:
        with suppress(Exception):  # what is shown of a run is never worth an error of the program
            _waits.pop()()
    if summary:
        _show(summary)


def current_run() -> CurrentRun | None:
    """The run that this process reports to now."""
    recorder = process.current()
    if recorder is None or recorder.closed:
        return None
    return _run_of(_watcher) if _watcher else _outer_run()


def wait_at_finish(wait: Callable[[], None]) -> None:
    """Have `finish` call this when the run has ended, before it shows the summary."""
    _waits.append(wait)


def _show(summary: str) -> None:
    """Text, or HTML where this is a notebook."""
    if is_notebook():
        from importlib import import_module

        display = import_module("IPython.display")
        display.display(display.HTML(summary))
    else:
        tell(summary)


def tell(text: str) -> None:
    """To standard error, because standard output is the program's own. A notebook shows that in red."""
    stream = sys.stdout if is_notebook() else sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):  # full, gone or closed
            stream.write(text + "\n")
            stream.flush()


def _allowed(name: str) -> str:
    """The name under which a figure of the program is recorded."""
    if name not in RESERVED_FIELDS:
        return name
    _warn_once("pulsetrain: %r is a reserved field; yours is recorded as 'logged_%s'." % (name, name))
    return "logged_" + name


def _recorder(caller: str) -> Any:
    """The recorder, looked for where no call has found it yet; a missing one is reported once."""
    recorder = process.current()
    if recorder is None:
        _warn_once("pulsetrain.%s: nothing is recorded before pulsetrain.init(), or `pulsetrain run`." % caller)
    elif recorder.closed:
        _warn_once("pulsetrain.%s: nothing is recorded after pulsetrain.finish()." % caller)
        return None
    return recorder


def _run_of(watcher: Any) -> CurrentRun:
    return CurrentRun(watcher.about["id"], watcher.about["folder"])


def _outer_run() -> CurrentRun:
    folder = os.environ.get(process.FOLDER, "")
    return CurrentRun(os.environ.get(process.RUN_ID, ""), os.path.dirname(folder))


def _warn_once(message: str, stacklevel: int = 4) -> None:
    if message not in _warned:
        _warned.add(message)
        warn(message, stacklevel)
