"""A run in view has the verdict of its report: at once, while it is in progress, and at its end."""

import json
from collections.abc import Callable

import msgspec
import pytest
from tests.insight.compared import write_training
from tests.waiting import eventually

from pulsetrain.insight.report import make_report
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Host, Run, RunFolder
from pulsetrain.views.live.judging import RunVerdict
from pulsetrain.views.live.machines import machines_of
from pulsetrain.views.live.progress import RunProgress
from pulsetrain.views.live.reading import RunReader
from pulsetrain.views.terminal.frame import frame
from pulsetrain.views.terminal.lines import plain
from pulsetrain.views.terminal.once import print_json
from pulsetrain.views.terminal.state import Scene, ViewState

MakeRun = Callable[..., RunFolder]


def test_the_verdict_of_a_run_in_view_is_that_of_its_report(make_run: MakeRun) -> None:
    run = write_training(make_run, "slow", wait=81.0)
    judging = RunVerdict(run, DEFAULTS)
    judging.start()
    assert eventually(judging.read_once.is_set)
    assert judging.verdict is not None and judging.verdict == make_report(run).verdict
    assert judging.verdict.main is not None and judging.verdict.main.rule == "InputBound"


def test_it_is_one_line_in_the_color_of_its_severity_and_in_json(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine,) = machines = machines_of(write_training(make_run, "slow", wait=81.0), DEFAULTS)
    drawn: list[str] = []
    machine.changed = lambda: drawn.append(machine.verdict.headline if machine.verdict else "")
    machine.start()
    try:
        assert eventually(lambda: machine.verdict and machine.snapshots and drawn[-1]), "a new verdict is drawn"
        for width in (160, 60):
            lines = frame(Scene(machines, ViewState(view="run")), width, 40)
            (line,) = [line for line in lines if plain(line).startswith("  verdict ")]
            label, words = (span for span in line if span.text.strip())
            assert label.text == "verdict " and len(plain(line)) == width
            assert words.style == "warn" and words.text.startswith("InputBound: 90 % of each step waits for data")
        assert machine.now is not None and RunProgress(machines, machine.now).verdict is None
        print_json(machines)
    finally:
        machine.stop()
    (shown,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert shown["verdict"] == json.loads(msgspec.json.encode(machine.verdict))


def test_thresholds_of_the_user_judge_a_run_in_view(make_run: MakeRun) -> None:
    (machine,) = machines_of(write_training(make_run, "slow", wait=81.0), Thresholds(off=frozenset({"InputBound"})))
    machine.start()
    try:
        assert eventually(lambda: machine.verdict)
        assert machine.verdict is not None and machine.verdict.main is None
    finally:
        machine.stop()


class _CountedReader(RunReader):
    readings = 0

    def _read(self, run: Run, database: Database) -> None:
        self.readings += 1


def test_what_is_dear_to_read_waits_for_its_share_unless_the_run_has_ended(make_run: MakeRun) -> None:
    run = make_run(training=[{"step": 1}], host_name="gpu01", status="running", hosts={"gpu01": Host(pid=1)})
    (machine,) = machines_of(run)
    reader = _CountedReader(run, period_seconds=0.0, share=1e-9)
    machine.readers.append(reader)
    reader.start()
    assert eventually(reader.read_once.is_set) and reader.readings == 1
    about = run.load()
    about.status = "finished"
    run.save(about)
    machine.reload_run()
    assert eventually(lambda: reader.readings == 2)
