"""Settings that a program parses from its command line: argparse, and Hydra.

Imported by every Python of a command that imports argparse, so it imports next to nothing itself.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

_parsing = False
_latest: dict[str, Any] = {}


def install(module: Any) -> None:
    """Watch the parsers of `argparse`, or, for `hydra.core.utils`, the config of a job."""
    if module.__name__ == "argparse":
        _watch_argparse(module)
    else:
        _watch_hydra(module)


def _watch_argparse(argparse: Any) -> None:
    original = argparse.ArgumentParser.parse_known_args
    if hasattr(original, "pulsetrain_watches"):
        return

    @functools.wraps(original)
    def parse_known_args(self: Any, args: Any = None, namespace: Any = None, *more: Any, **named: Any) -> Any:
        global _parsing
        outermost, _parsing = not _parsing, True  # a parser calls those of its subcommands
        try:
            result = original(self, args, namespace, *more, **named)
        finally:
            if outermost:
                _parsing = False
        if outermost:
            _parsed(args, result)
        return result

    parse_known_args.pulsetrain_watches = True  # type: ignore[attr-defined]
    argparse.ArgumentParser.parse_known_args = parse_known_args


def _parsed(args: Any, result: Any) -> None:
    """Keep the options of the program itself. The last ones count: a first parser may only look for a file of them."""
    try:
        own = args is None or list(args) == sys.argv[1:]
        options = {name: value for name, value in vars(result[0]).items() if not callable(value)}
        if not own or not options or "hydra_help" in options:  # Hydra's own, which come with the config of the job
            return
        from pulsetrain.training import provenance

        waits = bool(_latest)
        _latest.clear()
        _latest.update(options)
        if not waits:
            provenance.note("config", "argparse", _options)
    except Exception:  # noqa: S110 - options of some other form: there is nothing to say about them
        pass


def _options() -> dict[str, Any]:
    """In the background, as soon as this process is seen to train."""
    from pulsetrain.training.config import plain_config
    from pulsetrain.training.process import is_private

    found = {} if is_private() else plain_config(dict(_latest))
    _latest.clear()
    return found


def _watch_hydra(utils: Any) -> None:
    from pulsetrain.training.guard import guarded

    original = utils.run_job
    if hasattr(original, "pulsetrain_watches"):
        return

    @guarded
    def begins(config: Any) -> None:
        from importlib import import_module

        from pulsetrain.training.config import record

        settings = import_module("omegaconf").OmegaConf.to_container(config, resolve=False)
        record({name: value for name, value in settings.items() if name != "hydra"}, "Hydra")

    @functools.wraps(original)
    def run_job(task_function: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        begins(config)
        return original(task_function, config, *args, **kwargs)

    run_job.pulsetrain_watches = True  # type: ignore[attr-defined]
    utils.run_job = run_job
