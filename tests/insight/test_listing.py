"""Runs in a list: the figures by which one finds a run again, and conditions on them."""

from collections.abc import Callable

import pytest

from pulsetrain.errors import UsageError
from pulsetrain.insight.listing import ListedRun, condition, list_runs, sort_key
from pulsetrain.runs.description import Code
from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.seal import seal_all

MakeRun = Callable[..., RunFolder]


@pytest.fixture
def listed(make_run: MakeRun) -> list[ListedRun]:
    lines = [{"rank": 0, "step": n, "step_seconds": 0.5, "loss": 1 / n, "val_loss": 2 / n} for n in (1, 2, 3, 4)]
    runs = [
        make_run(id="20261116-120000-a-0000", name="a", training=lines, tags={"lr": "0.1"}),
        make_run(id="20261116-120001-b-0000", name="b", training=lines[:2], tags={"lr": "0.01"}, status="failed"),
        make_run(
            id="20261116-120002-c-0000",
            name="c",
            config={"model": {"depth": 12}},
            versions={"torch": "2.13.0"},
            code=Code(commit="3f9c", branch="main", dirty=True),
            training={"parameters": 9, "seeds": {"torch": 5}},
        ),
    ]
    return list_runs([(folder, folder.load()) for folder in runs])


def test_a_run_is_listed_with_its_last_loss_its_speed_and_what_it_logged(listed: list[ListedRun]) -> None:
    assert [(run.digest.loss, run.digest.step_seconds, run.digest.steps) for run in listed] == [
        (0.25, 0.5, 4),
        (0.5, 0.5, 2),
        (None, None, 0),
    ]
    assert [run.digest.logged for run in listed] == [{"val_loss": 0.5}, {"val_loss": 1.0}, {}]


def test_a_damaged_run_costs_no_other_its_figures(make_run: MakeRun) -> None:
    lines = [{"step": n, "step_seconds": 0.5, "loss": 0.5} for n in range(1, 200)]
    runs = [make_run(id=f"20261116-12000{n}-x-0000", training=lines) for n in range(3)]
    seal_all(runs[1])
    (sealed,) = runs[1].path.rglob("training*.parquet")
    content = sealed.read_bytes()
    sealed.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    assert [run.digest.steps for run in list_runs([(folder, folder.load()) for folder in runs])] == [199, 0, 199]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("loss<0.3", "a"),
        ("model.depth>=12", "c"),
        ("torch=2.13.0", "c"),
        ("branch=main", "c"),
        ("dirty=no", ""),
        ("parameters>5", "c"),
        ("seeds.torch=5", "c"),
        ("loss >= 0.25", "ab"),
        ("status=failed", "b"),
        ("status!=failed", "ac"),
        ("lr=0.10", "a"),
        ("lr<0.05", "b"),
        ("val_loss>0", "ab"),
        ("unheard_of=1", ""),
    ],
)
def test_conditions_hold_for_figures_tags_settings_versions_and_logged_names(
    listed: list[ListedRun], text: str, names: str
) -> None:
    meets = condition(text)
    assert [run.run.name for run in listed if meets(run)] == list(names)


def test_what_is_not_a_condition_is_refused() -> None:
    with pytest.raises(UsageError, match="not a condition"):
        condition("loss")


def test_runs_without_the_figure_come_after_those_with_it(listed: list[ListedRun]) -> None:
    assert [run.run.name for run in sorted(listed, key=sort_key("lr"))] == ["b", "a", "c"]
    assert [run.run.name for run in sorted(listed, key=sort_key("loss"))] == ["a", "b", "c"]
    for field in ("model.depth", "torch", "commit"):
        assert [run.run.name for run in sorted(listed, key=sort_key(field))] == ["c", "a", "b"]


def test_no_runs_are_an_empty_list() -> None:
    assert list_runs([]) == []
