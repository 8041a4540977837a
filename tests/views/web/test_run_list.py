"""The figures of the list of runs."""

from collections.abc import Callable

from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.web.run_list import ListFigures


def test_a_column_has_one_unit(make_run: Callable[..., RunFolder]) -> None:
    quick, slow = (
        make_run(
            f"20261116-120000-{name}-0000", training=[{"step": step, "step_seconds": seconds} for step in (1, 2, 3)]
        )
        for name, seconds in (("quick", 0.02), ("slow", 1.5))
    )
    read = ListFigures().read([quick, slow])
    assert [read[run.path.name]["step_seconds"]["text"] for run in (quick, slow)] == ["20.0 ms", "1500 ms"]
