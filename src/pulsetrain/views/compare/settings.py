"""What the runs of a comparison were started with, where it differs: their config, tags and command lines."""

from collections.abc import Mapping, Sequence

import msgspec

from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.listing import flat_settings
from pulsetrain.runs.folder import Run
from pulsetrain.views.phrases import setting

SETTINGS = "settings that differ"


class DifferentSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not the same in all runs."""

    name: str
    """`model.depth` of the config, `seed` of the tags, `--lr` of the command line."""
    values: list[str]
    """As text, in the order of the runs; empty where a run does not have it."""


def different_settings(sides: Sequence[Side]) -> list[DifferentSetting]:
    """The config, then tags that are not in it, options of the command lines, code, versions and what was seen."""
    runs = [side.report.run for side in sides]
    configs = [{name: setting(value) for name, value in flat_settings(run.config).items()} for run in runs]
    named = [run.tags | config for run, config in zip(runs, configs, strict=True)]
    said = [_options(run.command) for run in runs]
    return [*_different(named), *_different(said), *_different([_was(run) for run in runs])]


def _was(run: Run) -> dict[str, str]:
    """What else a run was: its code, its versions, what was seen of its training."""
    code = {} if run.code is None else {"commit": run.code.commit[:10], "branch": run.code.branch}
    if run.code and run.code.dirty:
        code["commit"] += " with changes"
    seen = {name: setting(value) for name, value in flat_settings(run.training).items()}
    return {**code, **run.versions, **{name.replace("_", " "): value for name, value in seen.items()}}


def _different(found: Sequence[Mapping[str, str]]) -> list[DifferentSetting]:
    names = dict.fromkeys(name for settings in found for name in settings)
    rows = [DifferentSetting(name=name, values=[settings.get(name, "") for settings in found]) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _options(command: Sequence[str]) -> dict[str, str]:
    """The options of a command line: `--lr 0.1` and `--lr=0.1` are the same."""
    found: dict[str, str] = {}
    name = ""
    for word in command:
        if word.startswith("-"):
            option, sign, value = word.partition("=")
            found[option] = value if sign else "yes"
            name = "" if sign else option
        elif name:
            found[name] = word
            name = ""
        elif "=" in word:
            key, _, value = word.partition("=")
            found[key] = value
    return found
