"""A suite file: several benchmarks, run in turn so that heat and other slow changes meet all of them alike.

repeat = 5
warm-up = 1

[benchmarks.small]
command = ["python", "train.py", "--size", "small"]

[benchmarks.large]
image = "synthetic_regression"
timeout = 600
"""

import shlex
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from pulsetrain.bench.declaration import Benchmark, checked
from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import slug

Order = Literal["interleaved", "sequential"]
FOR_ALL = ("repeat", "warm-up", "timeout")
"""What may be said once, for all benchmarks of a suite."""


class Turn(NamedTuple):
    """One run of one benchmark, in the order in which they come."""

    benchmark: Benchmark
    number: int
    """From 1, among the warm-up runs or among those that count."""
    warm_up: bool

    @property
    def folder(self) -> str:
        return f"{'warm-up' if self.warm_up else 'repeat'}-{self.number}"


class _Suite(msgspec.Struct, forbid_unknown_fields=True):
    benchmarks: dict[str, dict[str, Any]]
    order: Order = "interleaved"


def read_suite(path: Path) -> tuple[list[Benchmark], Order]:
    """The benchmarks of a file, and in which order their runs come."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from None
    for_all = {name: document.pop(name) for name in FOR_ALL if name in document}
    try:
        suite = msgspec.convert(document, _Suite)
        found = [_benchmark(name, {**for_all, **given}) for name, given in suite.benchmarks.items()]
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}.", hint=f"Fields of a benchmark: {', '.join(_fields())}.") from None
    if not found:
        raise UsageError(f"{path} has no benchmarks.", hint='Add one: [benchmarks.NAME], command = ["python", "x.py"]')
    if len({slug(benchmark.name) for benchmark in found}) < len(found):
        raise UsageError(f"{path}: two benchmarks have names that map to the same folder.")
    return found, suite.order


def turns(benchmarks: Sequence[Benchmark], order: Order = "interleaved") -> Iterator[Turn]:
    """A B A B: warm-ups first; or all of A before all of B."""
    if order == "sequential":
        for benchmark in benchmarks:
            yield from turns([benchmark])
        return
    for warm_up in (True, False):
        counts = {b.name: b.warm_up if warm_up else b.repeat for b in benchmarks}
        for number in range(1, max(counts.values()) + 1):
            yield from (Turn(b, number, warm_up) for b in benchmarks if number <= counts[b.name])


def _benchmark(name: str, given: dict[str, Any]) -> Benchmark:
    if isinstance(command := given.get("command"), str):
        given = {**given, "command": shlex.split(command)}
    return checked(msgspec.convert({**given, "name": name}, Benchmark))


def _fields() -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(Benchmark) if field.name != "name"]
