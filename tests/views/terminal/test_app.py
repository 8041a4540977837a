"""The dashboard: pictures of it, keys, mouse, sizes."""

import asyncio
import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.views.live.simulation import Simulation, simulated_machine
from tests.waiting import PATIENCE_SECONDS
from textual.pilot import Pilot
from textual.widgets import Input

from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.folder import Home, Run, RunFolder
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject
from pulsetrain.views.terminal import palette
from pulsetrain.views.terminal.app import Dashboard, DashboardScreen
from pulsetrain.views.terminal.frame import frame
from pulsetrain.views.terminal.lines import plain, width
from pulsetrain.views.terminal.once import paint_first
from pulsetrain.views.terminal.state import Scene, View, ViewState

DEFAULT_ANSI = -1
"""Textual's number for the color that the terminal has by itself."""

Scenario = Callable[[Pilot[None], DashboardScreen], Awaitable[None]]


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def dashboard(scene: Scene, home: Home, colors: str = "terminal") -> Dashboard:
    return Dashboard(scene, home, palette.PALETTES[colors])


def drive(app: Dashboard, scenario: Scenario, size: tuple[int, int] = (120, 40)) -> None:
    """Run the app without a terminal, and act on it."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await scenario(pilot, app.board)

    asyncio.run(run())


def screen(board: DashboardScreen) -> str:
    """What is on the screen, as text."""
    return "\n".join(board.text)


def rows_with(board: DashboardScreen, word: str) -> list[str]:
    return [line for line in board.text if word in line]


def gpu_rows(lines: list[str]) -> list[str]:
    """The indices of the GPUs that have a row."""
    return [found[1] for line in lines if (found := re.match(r" +(\d+)  [█▉▊▋▌▍▎▏·]", line))]


# Pictures


@pytest.mark.parametrize(
    ("view", "gpus", "size"),
    [
        ("machine", "1xL4", (80, 24)),
        ("machine", "4xRTX 4090", (120, 40)),
        ("machine", "8xH100", (60, 20)),
        ("machine", "8xH100", (120, 40)),
        ("machine", "16xH100", (200, 60)),
        ("machine", "16xH100", (300, 100)),
        ("run", "8xH100", (80, 24)),
        ("run", "8xH100", (120, 40)),
    ],
)
def test_a_view_looks_as_it_did(
    snap_compare: Callable[..., bool], home: Home, view: View, gpus: str, size: tuple[int, int]
) -> None:
    machine = simulated_machine(Simulation(gpus, training=True))
    assert snap_compare(dashboard(Scene([machine], ViewState(view=view)), home), terminal_size=size)


def test_a_lost_gpu_and_a_banner_look_as_they_did(snap_compare: Callable[..., bool], home: Home) -> None:
    feed = Simulation()
    machine = simulated_machine(feed)
    feed.lost = {3}
    feed.advance(20, [Event("gpu_lost", "GPU 3 (NVIDIA H100 80GB HBM3) no longer answers", "critical")])
    assert snap_compare(dashboard(Scene([machine]), home), terminal_size=(120, 40))


@pytest.mark.parametrize("colors", ["okabe-ito", "cividis", "plain"])
def test_a_palette_looks_as_it_did(snap_compare: Callable[..., bool], home: Home, colors: str) -> None:
    hot = Thresholds(gpu_hot_celsius=61.5, gpu_too_hot_celsius=64.5)
    app = dashboard(Scene([simulated_machine(Simulation())], thresholds=hot), home, colors)
    assert snap_compare(app, terminal_size=(100, 30))


@pytest.mark.parametrize(("name", "keys"), [("help", ["?"]), ("signal", ["4", "down", "k"]), ("tree", ["4", "4", "t"])])
def test_what_comes_up_looks_as_it_did(
    snap_compare: Callable[..., bool], home: Home, name: str, keys: list[str]
) -> None:
    assert snap_compare(dashboard(Scene([simulated_machine(Simulation())]), home), press=keys, terminal_size=(100, 36))


def test_the_background_is_the_terminals_own_everywhere(home: Home) -> None:
    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        found = [board, *board.walk_children()]
        for key in ("question_mark", "slash"):
            await pilot.press(key)
            found += pilot.app.screen.walk_children()
            await pilot.press("escape")
        assert {type(widget).__name__ for widget in found} >= {"DashboardScreen", "Canvas", "Static", "Input"}
        assert {widget.styles.background.ansi for widget in found} == {DEFAULT_ANSI}

    drive(dashboard(Scene([simulated_machine(Simulation(), seconds=5)]), home), scenario)


# Sizes


@pytest.mark.parametrize("gpus", [1, 4, 8, 16])
@pytest.mark.parametrize("view", ["machine", "run", "runs"])
def test_a_frame_fills_a_screen_of_any_size(view: View, gpus: int) -> None:
    machine = simulated_machine(Simulation(f"{gpus}xA100", training=True), seconds=20)
    scene = Scene([machine], ViewState(view=view))
    for columns in (1, 7, 20, 40, 60, 80, 100, 119, 120, 160, 200, 300):
        for lines in (1, 2, 3, 5, 10, 20, 24, 40, 60, 100):
            drawn = frame(scene, columns, lines, [])
            assert len(drawn) == lines
            assert {width(line) for line in drawn} == {columns}


def test_resizing_keeps_the_dashboard_alive(home: Home) -> None:
    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        for size in ((60, 20), (300, 100), (1, 1), (20, 5), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "GPUs" in screen(board)

    drive(dashboard(Scene([simulated_machine(Simulation())]), home), scenario)


def test_more_than_eight_gpus_have_one_line_each(home: Home) -> None:
    machine = simulated_machine(Simulation("16xH100", processes=0), seconds=5)
    lines = [plain(line) for line in frame(Scene([machine]), 120, 60)]
    first = next(number for number, line in enumerate(lines) if line.startswith("     0  "))
    assert [line.split()[0] for line in lines[first : first + 16]] == [str(index) for index in range(16)]


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
@pytest.mark.parametrize(("gpus", "models"), [("1xL4", "L4"), ("8xH100", "8 x H100 80GB HBM3"), ("1xL4,2xA100", "L4")])
def test_the_model_and_the_driver_of_the_gpus_are_named_at_every_width(gpus: str, models: str, columns: int) -> None:
    machine = simulated_machine(Simulation(gpus), seconds=5)
    heading = next(line for line in map(plain, frame(Scene([machine]), columns, 24)) if "1 GPUs" in line)
    assert f"1 GPUs  {models}" in heading.replace("1 x L4", "L4")
    assert "driver 580.95.05" in heading


def test_gpus_of_several_models_are_distinguished_in_their_rows() -> None:
    machine = simulated_machine(Simulation("1xL4,2xA100", processes=0), seconds=5)
    lines = [plain(line) for line in frame(Scene([machine]), 80, 24)]
    named = [found[1] for line in lines if (found := re.match(r" +\d  (\S+) +[█▉▊▋▌▍▎▏·]", line))]
    assert named == ["L4", "A100-SXM4-80GB", "A100-SXM4-80GB"]


@pytest.mark.parametrize(("gpus", "said"), [(8, ""), (16, "8 of 16")])
def test_when_not_all_gpus_fit_it_says_how_many_do(gpus: int, said: str) -> None:
    machine = simulated_machine(Simulation(f"{gpus}xH100"), seconds=5)
    lines = [plain(line) for line in frame(Scene([machine]), 80, 24)]
    heading = next(line for line in lines if "1 GPUs" in line)
    assert ("  8 of 16  " in heading) == bool(said)
    assert gpu_rows(lines) == [str(index) for index in range(8)]


@pytest.mark.parametrize("view", ["machine", "run", "runs"])
def test_the_keys_that_lead_on_are_named_on_a_narrow_screen(view: View) -> None:
    machine = simulated_machine(Simulation(), seconds=5)
    footer = plain(frame(Scene([machine], ViewState(view=view)), 80, 24, [])[-1])
    assert footer.startswith("? help  tab view  q quit  ")


def test_cpu_memory_and_running_time_of_processes_are_there_on_a_narrow_screen() -> None:
    machine = simulated_machine(Simulation(processes=2), seconds=5)
    lines = [plain(line) for line in frame(Scene([machine]), 80, 24)]
    place = next(number for number, line in enumerate(lines) if "pid" in line)
    assert lines[place].split() == ["GPU", "pid", "user", "memory▾", "SM", "CPU", "RAM", "time", "command"]
    row = " ".join(lines[place + 1].split())
    assert row.startswith("1 4201 ada 1.5 GiB 2 % 110 % 2.8 GiB 16:45 python")


# Keys


def test_a_pane_gets_the_whole_screen_and_gives_it_back(home: Home) -> None:
    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("4", "4")
        assert "History" not in screen(board)
        assert len(rows_with(board, "train.py")) == 20
        await pilot.press("escape")
        assert "History" in screen(board)

    drive(dashboard(Scene([simulated_machine(Simulation())]), home), scenario)


def test_plus_and_minus_change_the_window(home: Home) -> None:
    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        assert rows_with(board, "-5 min")
        await pilot.press("plus")
        assert rows_with(board, "-10 min")  # there is not more
        await pilot.press("minus", "minus")
        assert rows_with(board, "-1 min")

    drive(dashboard(Scene([simulated_machine(Simulation(), seconds=500)]), home), scenario)


def test_space_holds_the_screen_and_arrows_go_back_in_time(home: Home) -> None:
    feed = Simulation()
    machine = simulated_machine(feed, seconds=60)

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        assert "12:01:00" in screen(board)
        await pilot.press("space")
        feed.advance(10)
        await pilot.pause(0.2)
        assert "12:01:00" in screen(board)
        assert "paused" in screen(board)
        await pilot.press(*["left"] * 20)
        assert "12:00:01" in screen(board)
        assert rows_with(board, "     0  ")[0].split()[2:4] == ["0", "%"]  # its training had not begun
        await pilot.press("space")
        assert "12:01:10" in screen(board)

    drive(dashboard(Scene([machine]), home), scenario)


def test_a_filter_shows_what_it_is_about_and_escape_clears_it(home: Home) -> None:
    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("4", "4", "slash", *"grace")
        await pilot.pause()
        assert pilot.app.screen.query_one(Input).region == (0, 39, 120, 1)  # the last line, and no more
        assert len(rows_with(board, "train.py")) == 7
        await pilot.press("enter")
        assert len(rows_with(board, "train.py")) == 7
        await pilot.press("escape", "escape", "4")
        assert len(rows_with(board, "train.py")) == 20

    drive(dashboard(Scene([simulated_machine(Simulation())]), home), scenario)


def test_processes_are_sorted_by_key_and_by_a_click_on_a_title(home: Home) -> None:
    def pids(board: DashboardScreen) -> list[int]:
        return [int(line.split()[1]) for line in rows_with(board, "train.py")]

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("4", "4")
        assert pids(board) == sorted(pids(board), reverse=True)  # the one with the most memory first
        y = next(y for y, line in enumerate(board.text) if " pid " in line)
        await pilot.click(offset=(board.text[y].index("pid"), y))
        assert pids(board) == sorted(pids(board))
        await pilot.press("O")
        assert pids(board) == sorted(pids(board), reverse=True)
        await pilot.press("o")
        assert rows_with(board, "user▴")

    drive(dashboard(Scene([simulated_machine(Simulation())]), home), scenario)


def test_a_click_chooses_a_gpu_and_the_history_follows(home: Home) -> None:
    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        y = next(y for y, line in enumerate(board.text) if line.startswith("     3  "))
        await pilot.click(offset=(10, y))
        assert rows_with(board, "History  GPU 3,")
        await pilot.press("down")
        assert rows_with(board, "History  GPU 4,")
        await pilot.press("escape")
        assert rows_with(board, "History  all 8 GPUs")

    drive(dashboard(Scene([simulated_machine(Simulation())]), home), scenario)


def test_children_stand_below_their_parents_in_the_tree(home: Home) -> None:
    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("4", "4", "t")
        rows = rows_with(board, "train.py")
        assert [row.split()[1] for row in rows[:4]] == ["4216", "4217", "4218", "4219"]
        assert "└─ python train.py --rank 17" in rows[1]

    drive(dashboard(Scene([simulated_machine(Simulation())]), home), scenario)


def test_a_signal_is_sent_after_confirmation_and_not_before(home: Home) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    feed = Simulation(processes=1, start=time.time())
    feed.pids = [child.pid]
    machine = simulated_machine(feed, seconds=5)

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("4", "down", "k", "n")
        assert child.poll() is None
        await pilot.press("k", "right", "y")
        await pilot.pause()
        assert rows_with(board, f"sent SIGINT to {child.pid}")

    try:
        drive(dashboard(Scene([machine]), home), scenario)
        assert child.wait() == -signal.SIGINT
    finally:
        child.kill()
        child.wait()


def test_no_signal_goes_to_a_process_of_another_machine(home: Home) -> None:
    feed = Simulation(processes=1)
    feed.pids = [os.getpid()]
    machine = simulated_machine(feed, seconds=5)
    machine.local = False

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("4", "down", "k")
        assert rows_with(board, "gpu01 is not this machine")

    drive(dashboard(Scene([machine]), home), scenario)


def test_what_is_shown_is_saved_to_a_file_that_is_named(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("s")
        assert rows_with(board, "saved ")

    drive(dashboard(Scene([simulated_machine(Simulation())]), home), scenario)
    (file,) = tmp_path.glob("pulsetrain-20261116-120500.json")
    (machine,) = json.loads(file.read_text())["machines"]
    assert [gpu["gpu_index"] for gpu in machine["gpu"]] == list(range(8))
    (power,) = (
        curve for curve in machine["curves"] if curve["field"] == "power_draw_watts" and curve["gpu_index"] == 0
    )
    assert max(value for value in power["values"] if value is not None) > 500


def test_reset_forgets_the_history_but_not_the_present(home: Home) -> None:
    feed = Simulation(processes=0)
    machine = simulated_machine(feed)

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("r")
        feed.advance(1)
        await _until(pilot, lambda: bool(rows_with(board, "-1 min")))
        assert rows_with(board, "     7  ")

    drive(dashboard(Scene([machine]), home), scenario)


def test_a_gpu_lost_while_watching_shows_as_lost(home: Home) -> None:
    feed = Simulation(processes=0)
    machine = simulated_machine(feed)

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        feed.lost = {5}
        feed.advance(1, [Event("gpu_lost", "GPU 5 (NVIDIA H100 80GB HBM3) no longer answers", "critical")])
        await _until(pilot, lambda: " GPU 5 lost" in board.text[1])
        assert rows_with(board, "     5  ")[0].split()[:2] == ["5", "lost"]
        assert rows_with(board, "12:05:01  GPU 5 (NVIDIA H100 80GB HBM3) no longer answers")

    drive(dashboard(Scene([machine]), home), scenario)


def test_the_dashboard_stops_its_feeds_when_it_ends(home: Home) -> None:
    feed = Simulation()

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("q")

    drive(dashboard(Scene([simulated_machine(feed, seconds=5)]), home), scenario)
    assert feed.stopped


# Runs


def test_all_runs_are_listed_and_enter_opens_one(home: Home, make_run: Callable[..., RunFolder]) -> None:
    gpu = {"gpu_index": 0, "uuid": "GPU-0", "name": "NVIDIA L4", "up": 1, "utilization_percent": 42.0}
    make_run("20261116-110000-first-aaaa", name="first", gpu=[gpu] * 30, status="failed", exit_code=1)
    make_run(
        "20261116-120000-second-bbbb",
        name="second",
        gpu=[gpu] * 30,
        training=[
            {"rank": 0, "step": step, "loss": 2.5, **({"val_loss": step / 8} if step % 5 == 1 else {})}
            for step in range(30)
        ],
    )

    async def scenario(pilot: Pilot[None], board: DashboardScreen) -> None:
        await pilot.press("shift+tab")
        await _until(pilot, lambda: bool(rows_with(board, "second")))
        assert [line.split()[:2] for line in board.text[3:5]] == [["second", "finished"], ["first", "failed"]]
        assert "42 %" in board.text[3]
        await pilot.press("enter")
        await _until(pilot, lambda: bool(rows_with(board, "loss 2.5")))
        assert rows_with(board, "1 Run  second  finished")
        assert rows_with(board, "val_loss 3.25")  # what the program logs under names of its own is drawn too
        await pilot.press("escape")
        assert rows_with(board, "1 Runs")

    drive(dashboard(Scene([simulated_machine(Simulation(), seconds=5)]), home), scenario)


async def _until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        await pilot.pause(0.05)


def test_a_run_reports_progress_what_is_left_and_what_it_used(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run(status="finished")
    machine = simulated_machine(Simulation(training=True), folder=folder)
    machine.run = Run(id="x", name="resnet", start=folder.load().start, status="running")
    shown = "\n".join(plain(line) for line in frame(Scene([machine], ViewState(view="run")), 160, 40))
    assert "resnet  running  5 min 00 s" in shown
    assert "step 3,000 of 10,000" in shown
    assert "11 min 40 s to go, until 12:16" in shown
    assert "energy 358 Wh   carbon 30.0 g   cost 0.300 EUR   projected 1.19 kWh, 100 g, 2.00 EUR" in shown
    assert "data wait 20 %" in shown


def test_alerts_have_their_place_while_they_fire() -> None:
    feed = Simulation(training=True)
    scene = Scene([simulated_machine(feed)], ViewState(view="run"))

    def shown() -> list[str]:
        return [plain(line) for line in frame(scene, 120, 40)]

    about = {"rule": "LossNotDecreasing", "alert": "LossNotDecreasing/info/"}
    firing = Event("alert_firing", "the loss has not fallen for 2 hours", "info", about)
    assert "Alerts" not in "\n".join(shown())
    feed.advance(1, [firing])
    (place,) = (number for number, line in enumerate(shown()) if "3 Alerts" in line)
    assert "LossNotDecreasing  the loss has not fallen for 2 hours" in shown()[place + 1]
    fired_at = scene.now
    feed.advance(5, [firing._replace(kind="alert_resolved", message="Resolved: it falls")])
    assert "3 Alerts" not in "\n".join(shown())
    assert "Resolved: it falls" in "\n".join(shown())
    scene.state = replace(scene.state, moment=fired_at)
    assert "3 Alerts" in "\n".join(shown())


# Several machines, thresholds, colors, memory


def test_several_machines_stand_below_each_other() -> None:
    machines = [simulated_machine(Simulation("2xL4", title=title, processes=2), seconds=5) for title in ("a", "b")]
    lines = [plain(line) for line in frame(Scene(machines), 120, 50)]
    assert [line.strip() for line in lines if line.strip() in ("a", "b")][:2] == ["a", "b"]
    assert sum("python train.py" in line for line in lines) == 4


def test_a_machine_without_a_gpu_says_why_and_shows_the_rest() -> None:
    feed = Simulation("1xL4", processes=0)
    machine = simulated_machine(feed, seconds=5)
    scene = Scene([machine], gpus=frozenset({"none"}), missing=lambda: "no GPU: no NVIDIA driver")
    shown = "\n".join(plain(line) for line in frame(scene, 100, 30))
    assert "no GPU: no NVIDIA driver" in shown
    assert "History" not in shown
    assert "network" in shown


def test_chosen_gpus_alone_are_shown() -> None:
    machine = simulated_machine(Simulation("4xL4", processes=4), seconds=5)
    lines = [plain(line) for line in frame(Scene([machine], gpus=frozenset({"1"})), 120, 50)]
    assert gpu_rows(lines) == ["1"]
    assert sum("python train.py" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("limits", "style", "banner"), [((80.0, 90.0), "", False), ((20.0, 99.0), "warn", False), ((1.0, 2.0), "bad", True)]
)
def test_thresholds_color_values_and_raise_a_banner(limits: tuple[float, float], style: str, banner: bool) -> None:
    machine = simulated_machine(Simulation("1xL4", processes=0), seconds=30)
    drawn = frame(
        Scene([machine], thresholds=Thresholds(gpu_hot_celsius=limits[0], gpu_too_hot_celsius=limits[1])), 120, 30
    )
    (span,) = (span for line in drawn[:6] for span in line if span.text.endswith("°C") and span.style != "banner")
    assert span.style == style
    assert any(span.style == "banner" for span in drawn[1]) is banner


def test_a_part_of_pulsetrain_that_is_down_is_in_the_banner() -> None:
    machine = simulated_machine(Simulation("1xL4", processes=0), seconds=30)
    assert not any(span.style == "banner" for span in frame(Scene([machine]), 120, 30)[1])
    trouble = Sample(Subject("host", ""), {"part_up": {"writer": 0, "push-vm": 1}})
    machine._take(Snapshot((Scene([machine]).now or 0.0) + 1, 31.0, (trouble,)))
    (banner,) = (span.text.strip() for span in frame(Scene([machine]), 120, 30)[1] if span.style == "banner")
    assert banner == "pulsetrain's writer is down"


def test_no_color_in_the_environment_means_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    painted = io.StringIO()
    paint_first(Scene([simulated_machine(Simulation(), seconds=30)]), palette.chosen("okabe-ito"), painted)
    codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", painted.getvalue()) for code in found.split(";")}
    assert codes <= {"0", "1", "2", "4", "7"}


def test_without_braille_everything_is_ascii_but_units(home: Home) -> None:
    scene = Scene([simulated_machine(Simulation(training=True), seconds=90)], braille=False)
    shown = "".join(plain(line) for line in frame(scene, 120, 40))
    assert {character for character in shown if not character.isascii()} <= {"°", "…"}


@pytest.mark.timeout(900)  # half a minute of work, on a machine that may have much else to do
def test_an_hour_of_watching_leaves_nothing_behind() -> None:
    feed = Simulation("2xL4", processes=4)
    scene = Scene([simulated_machine(feed, seconds=1)])

    def watch(seconds: int) -> int:
        """Bytes that are held after so many seconds more."""
        for _ in range(seconds // 30):
            feed.advance(30)
            frame(scene, 120, 40)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        after_half, after_hour = watch(1800), watch(1800)
    finally:
        tracemalloc.stop()
    assert after_hour < 1.5 * after_half + 200_000
