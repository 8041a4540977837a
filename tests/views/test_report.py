"""The report of a run as text and as Markdown, and the summary at its end."""

import re
from collections.abc import Callable

import msgspec
import pytest

from pulsetrain.insight.energy.figures import DeviceEnergy, Portion
from pulsetrain.insight.report import Report
from pulsetrain.rules.finding import Evidence, Finding
from pulsetrain.views import text
from pulsetrain.views.report import report_lines, report_markdown
from pulsetrain.views.summary import summary_lines
from pulsetrain.views.text import PLAIN, Style
from pulsetrain.views.verdict_phrases import evidence_text

Golden = Callable[[str], str]


def plain(report: Report) -> str:
    return "\n".join(report_lines(report, PLAIN)) + "\n"


def test_a_report_has_all_that_is_known(full_report: Report, golden: Golden) -> None:
    assert plain(full_report) == golden("report.txt")


def test_markdown_says_the_same(full_report: Report, golden: Golden) -> None:
    assert report_markdown(full_report) == golden("report.md")


def test_the_end_of_a_run_shows_the_same_figures_in_a_few_lines(full_report: Report, golden: Golden) -> None:
    assert "\n".join(summary_lines(full_report, PLAIN)) + "\n" == golden("summary.txt")


def test_of_what_is_not_known_only_carbon_is_named(bare_report: Report) -> None:
    assert plain(bare_report).splitlines() == [
        "pulsetrain  true finished after 1.0 s",
        "started  2026-11-16 01:30:54 UTC",
        "folder   /data/runs/20261116-013054-true-3f9c",
        "",
        "Carbon and cost",
        "carbon   not computed: set a region with --carbon-region DE",
    ]


def test_the_end_of_a_run_does_not_speak_of_what_nobody_asked_for(bare_report: Report) -> None:
    bare_report.carbon_missing, bare_report.cost_missing = "no region is named", "no price is named"
    assert [line.split()[0] for line in summary_lines(bare_report, PLAIN)] == ["pulsetrain", "run"]


def test_why_a_region_or_price_that_was_named_gave_nothing_is_said(bare_report: Report) -> None:
    bare_report.account.carbon_region = bare_report.account.price = "DE"
    bare_report.carbon_missing, bare_report.cost_missing = "the energy is not known", "so is the price"
    said = "\n".join(summary_lines(bare_report, PLAIN))
    assert "carbon  not computed: the energy is not known" in said
    assert "cost    not computed: so is the price" in said


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_facts_and_the_gpu_table_fit_a_narrow_terminal(
    full_report: Report, terminal: Callable[[int], Style], columns: int
) -> None:
    full_report.summary.gpus[1].lost_samples = 0
    full_report.summary.gpus[1].throttled_share = 0
    full_report.events = []
    full_report.path = "/runs/x"
    lines = "\n".join(report_lines(full_report, terminal(columns))).splitlines()
    assert max(text.len_visible(line) for line in lines) <= columns


def test_a_wide_terminal_shows_every_column(full_report: Report, terminal: Callable[[int], Style]) -> None:
    wide, narrow = ("\n".join(report_lines(full_report, terminal(columns))) for columns in (140, 60))
    assert "memory peak     free" in text.visible(wide)
    assert "free" not in text.visible(narrow)


def test_what_is_amiss_has_a_color_and_no_color_is_respected(
    full_report: Report, terminal: Callable[[int], Style], monkeypatch: pytest.MonkeyPatch
) -> None:
    colored = "\n".join(report_lines(full_report, terminal(140)))
    assert "\x1b[31mlost for 40 of 7200 readings\x1b[0m" in colored
    assert "\x1b[33mwarning\x1b[0m" in colored
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "\n".join(report_lines(full_report, terminal(140)))


@pytest.mark.parametrize(("ratio", "said"), [(0.019, ""), (0.021, "2.1 % above"), (-0.05, "5.0 % below"), (None, "")])
def test_counter_and_power_that_disagree_by_more_than_two_percent_are_reported(
    full_report: Report, ratio: float | None, said: str
) -> None:
    for device in full_report.energy.devices:
        device.disagreement_ratio = ratio if device.gpu_index == 0 else None
    found = re.search(r"GPU 0: integrated power is (.*?) the counter; the counter is used\.", plain(full_report))
    assert (found[1] if found else "") == said


def test_a_gpu_that_is_not_charged_says_so_and_is_not_in_the_sum(full_report: Report) -> None:
    full_report.energy.devices[1].charged = False
    shown = plain(full_report)
    assert "not used by the run, not charged" in shown
    assert re.search(r"all 2 .* 100 Wh ± 0.3 %", shown)


@pytest.mark.parametrize(
    ("used", "charged", "others", "said"),
    [
        (True, True, ["alice (python a.py)"], "shared with alice (python a.py)"),
        (False, False, ["alice (a)", "bob (b)", "eve (c)"], "used by alice (a), bob (b) and 1 more, not charged"),
        (False, True, ["alice (python a.py)"], "used by alice (python a.py)"),
    ],
)
def test_a_gpu_that_others_used_too_says_whose_the_load_was(
    full_report: Report, used: bool, charged: bool, others: list[str], said: str
) -> None:
    gpu = full_report.energy.devices[1]
    gpu.used, gpu.charged, gpu.others = used, charged, others
    (row,) = [line for line in plain(full_report).splitlines() if "alice" in line]
    assert row.rstrip().endswith(said)


def test_energy_of_the_gpus_alone_is_called_that(full_report: Report) -> None:
    full_report.energy.devices = full_report.energy.devices[:2]
    assert "total       225 Wh ± 2.3 %, GPUs only, measured by the GPUs' own counters" in plain(full_report)


def test_simulated_gpus_are_never_called_measured_without_saying_so(full_report: Report) -> None:
    full_report.run.simulated = True
    shown = plain(full_report)
    assert "The GPUs are simulated: nothing about them is a measurement." in shown
    assert "measured by counters of simulated GPUs" in shown
    assert "the GPUs' own counters" not in shown


def test_gpus_without_energy_and_power_leave_the_total_unknown(full_report: Report) -> None:
    full_report.energy = msgspec.structs.replace(full_report.energy, total=None, devices=[], phases=[], epochs=[])
    assert "total       unknown: the GPUs report neither energy nor power" in plain(full_report)


def test_pue_is_named_where_it_is_counted_and_where_it_is_not(full_report: Report) -> None:
    full_report.energy.pue = 1.25
    shown = plain(full_report)
    assert "225 Wh ± 2.3 %, times PUE 1.25" in shown
    assert shown.count("Energy of the devices alone, without PUE.") == 2


def test_of_many_epochs_ten_are_shown(full_report: Report) -> None:
    full_report.energy.epochs = [Portion(name=f"epoch {n}", start_seconds=n, seconds=1, joules=5) for n in range(1, 91)]
    shown = re.findall(r"^epoch (\d+)", plain(full_report), re.MULTILINE)
    assert shown == ["1", "2", "3", "4", "5", "86", "87", "88", "89", "90"]
    assert "The first and the last 5 of 90 epochs" in plain(full_report)


def test_of_many_events_the_first_are_shown_and_the_rest_counted(full_report: Report) -> None:
    full_report.events = [full_report.events[1]] * 50 + [full_report.events[0]] * 50
    shown = plain(full_report)
    assert shown.count("host: 3 ticks missed") == 20
    assert "And 30 more, in events.jsonl." in shown
    assert "now training" not in shown


def test_when_no_start_is_greener_now_is_good(full_report: Report) -> None:
    assert full_report.carbon and full_report.carbon.greener
    full_report.carbon.greener.grams = full_report.carbon.greener.grams_now
    assert "now is as good a time as any in the forecast" in plain(full_report)


def test_gpus_of_several_hosts_carry_their_host(full_report: Report) -> None:
    full_report.summary.gpus[1].host = full_report.energy.devices[1].host = "node2"
    full_report.energy.devices.append(DeviceEnergy(device="dram", host="node2", total=None, notes=["not known."]))
    shown = plain(full_report)
    assert "node1:0 L4" in shown and "node2:1 L4" in shown
    assert "GPU node2:1: integrated power" in shown and "Memory of node2: not known." in shown


def test_markdown_keeps_text_of_users_as_text(full_report: Report) -> None:
    full_report.run.name = "a|b <script>*x*</script>\n# no heading"
    shown = report_markdown(full_report)
    assert shown.startswith("# a\\|b \\<script>\\*x\\*\\</script> \\# no heading\n")


def test_every_row_of_a_markdown_table_has_as_many_cells_as_its_head(full_report: Report) -> None:
    full_report.run.tags["odd"] = "a|b"
    for block in report_markdown(full_report).split("\n\n"):
        if block.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1


def test_evidence_is_said_in_words_and_units_that_people_read() -> None:
    evidence = (
        Evidence(signal="slower_seconds", value=0.00585, unit="seconds", start_seconds=22.6, end_seconds=30.7),
        Evidence(signal="data_wait_share", value=0.42, unit="ratio", threshold=0.2, where={"rank": 1}),
        Evidence(signal="others_cores", value=1.5, unit="cores"),
        Evidence(signal="silent_seconds", value=90.0, unit="seconds"),
    )
    finding = Finding(rule="SlowedDown", severity="warning", confidence="high", summary="", evidence=evidence)
    assert evidence_text(finding) == (
        "slower 5.85 ms, from 22.6 s to 30.7 s; data wait 42 % (limit 20 %), rank 1; others 1.5 cores; and 1 more"
    )
