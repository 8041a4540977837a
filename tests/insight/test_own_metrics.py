"""What a program logs under names of its own: last and best values, their order, and where they are shown."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.insight.compared import write_training

from pulsetrain.insight.compare.figures import figures
from pulsetrain.insight.compare.sides import load_sides
from pulsetrain.insight.metric_names import better
from pulsetrain.insight.own_metrics import own_names, read_own_metrics
from pulsetrain.insight.report import make_report, study
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.charts import run_charts
from pulsetrain.views.compare.panels import compare_png, compare_svgs
from pulsetrain.views.report.html import report_html
from pulsetrain.views.report.text import report_lines
from pulsetrain.views.summary import summary_lines
from pulsetrain.views.text import PLAIN

MakeRun = Callable[..., RunFolder]


def logged(make_run: MakeRun, id: str = "20261116-120000-test-0000", **names: Any) -> RunFolder:
    """A run that logged each name's values, one in a line."""
    lines: list[dict[str, Any]] = []
    for name, values in names.items():
        lines += [{"rank": 0, name.replace("__", "/"): value} for value in values]
    return make_run(id=id, training=lines)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("val_loss", "lower"),
        ("eval/perplexity", "lower"),
        ("word_error", "lower"),
        ("accuracy", "higher"),
        ("val/acc", "higher"),
        ("f1", "higher"),
        ("rougeL_score", "higher"),
        ("temperature", ""),
        ("replay_size", ""),
    ],
)
def test_the_name_says_which_values_are_better(name: str, expected: str) -> None:
    assert better(name) == expected


def test_last_best_and_range_are_those_of_all_values(make_run: MakeRun) -> None:
    with closing(Database([logged(make_run, val_loss=[3, 1, 2], accuracy=[0.1, 0.9, 0.8], size=[5, 7])])) as database:
        found = {metric.name: metric for metric in read_own_metrics(database)}
    assert (found["val_loss"].last, found["val_loss"].best) == (2, 1)
    assert (found["accuracy"].last, found["accuracy"].best) == (0.8, 0.9)
    assert (found["size"].best, found["size"].lowest, found["size"].highest) == (None, 5, 7)
    assert found["val_loss"].shape == [3, 1, 2]


def test_what_says_how_good_the_model_is_comes_first_and_single_layers_last(make_run: MakeRun) -> None:
    names: dict[str, Any] = {"gradient_norm__layer": [1.0], "aaa": [1.0], "val_loss": [1.0]}
    with closing(Database([logged(make_run, **names)])) as database:
        assert own_names(database) == ["val_loss", "aaa", "gradient_norm/layer"]


def test_the_end_of_a_run_shows_eight_names_and_counts_the_others(make_run: MakeRun) -> None:
    others: dict[str, Any] = {f"m{n:02}": [1.0] for n in range(19)}
    report = make_report(logged(make_run, val_loss=[3, 1, 2], **others))
    lines = summary_lines(report, PLAIN)
    assert any(line.startswith("logged  val_loss  2 (best 1)") for line in lines)
    assert sum("        m" in line for line in lines) == 7
    assert "        and 12 more" in lines
    assert any(line.startswith("val_loss") for line in report_lines(report, PLAIN))


def test_a_name_of_the_programs_own_has_a_chart(make_run: MakeRun) -> None:
    folder = logged(make_run, val_loss=[3, 1, 2], once=[1])
    with closing(Database([folder])) as database:
        titles = [chart.title for chart in run_charts(study(database, folder), database)]
    assert "val_loss" in titles and "once" not in titles


def test_runs_are_compared_by_what_both_logged_and_their_curves_lie_over_each_other(make_run: MakeRun) -> None:
    runs = [logged(make_run, f"20261116-12000{n}-test-0000", val_loss=[3, 1, 2 + n]) for n in range(2)]
    sides = load_sides(runs)
    found = {figure.name: figure for figure in figures(sides)}
    assert found["val_loss"].values == [2, 3] and found["val_loss"].better == "lower"
    assert found["val_loss, best"].values == [1, 1]
    assert "val_loss" in compare_svgs(sides)


def test_the_loss_of_trainings_is_drawn_in_one_chart(make_run: MakeRun) -> None:
    sides = load_sides([write_training(make_run, "a", steps=30), write_training(make_run, "b", steps=30)])
    assert "loss" in compare_svgs(sides)


def test_a_hostile_name_is_text_in_every_drawing(make_run: MakeRun) -> None:
    name = 'acc"><script>alert(1)</script>$x'
    folder = make_run(training=[{"rank": 0, name: value} for value in (1.0, 2.0)])
    sides = load_sides([folder])
    assert "<script" not in compare_svgs(sides)[name]
    assert compare_png(sides).startswith(b"\x89PNG")
    with closing(Database([folder])) as database:
        found = study(database, folder)
        page = report_html(found.report, run_charts(found, database))
    assert "alert(1)" in page and "<script>alert" not in page
