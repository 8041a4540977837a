"""What the dashboards answer when something is wrong: asked of real servers, as Grafana asks."""

import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.deploy.stack.test_dashboards import BOARDS, panels, substituted
from tests.servers import Prometheus, VictoriaMetrics, get
from tests.waiting import eventually

from pulsetrain import catalog
from pulsetrain.alerts.prometheus import render_rules
from pulsetrain.deploy.stack import services
from pulsetrain.insight.running_account import RunningAccount
from pulsetrain.live import Live
from pulsetrain.outputs.families import families
from pulsetrain.outputs.points import make_labels
from pulsetrain.outputs.push import remote_write
from pulsetrain.outputs.push.series import PushSeries
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.reports import merge, subject
from pulsetrain.snapshot import Sample, Snapshot, Value

ALL = {"host": ".+", "gpu": ".+", "run": ".+"}
RUN = "20261116-120000-resnet50-3f9c"


def push(url: str, series: list[PushSeries]) -> None:
    answer = httpx.post(url + remote_write.PATH, content=remote_write.packed(series), headers=remote_write.HEADERS)
    assert answer.is_success, answer.text


def of(name: str, labels: dict[str, str], times: list[float], values: list[float]) -> PushSeries:
    return PushSeries(name, "gauge", make_labels(labels), [round(1000 * one) for one in times], [*values])


def numbers(uid: str, server: Prometheus, at: float) -> dict[str, list[float]]:
    """What the numbers of a dashboard show at a time, by their title."""
    found = {}
    for panel in panels(BOARDS[uid]):
        if panel["type"] == "stat":
            (target,) = panel["targets"]
            assert target.get("instant"), f"{panel['title']} shows a last value of whatever is gone"
            result = server.query(with_records(substituted(target["expr"], ALL | {"__range": "1h"})), at)
            found[panel["title"]] = [float(one["value"][1]) for one in result]
    return found


def table_column(uid: str, table: str, column: str) -> str:
    """The query of a column of a table."""
    (panel,) = (panel for panel in panels(BOARDS[uid]) if panel["title"] == table and panel["type"] == "table")
    names = panel["transformations"][1]["options"]["renameByName"]
    (ref,) = (name.removeprefix("Value #") for name, title in names.items() if title == column)
    return str(next(target["expr"] for target in panel["targets"] if target["refId"] == ref))


def test_a_fleet_that_is_gone_is_shown_as_gone(tmp_path: Path) -> None:
    now = time.time()
    times = [now - 3600 + 15 * tick for tick in range(196)]  # all of it ends 11 minutes ago
    series = []
    for number in range(30):
        host = {"host": f"gpu{number:02}"}
        series.append(of("pulsetrain_build_info", host, times, [1] * len(times)))
        for gpu in range(8):
            labels = {**host, "gpu": str(gpu), "uuid": f"GPU-{number}-{gpu}"}
            series.append(of("gpu_up", labels, times, [1] * len(times)))
            series.append(of("gpu_utilization_percent", labels, times, [90] * len(times)))
    with Prometheus(tmp_path) as server:
        push(server.url, series)
        then, after = (numbers("pulsetrain-fleet", server, at) for at in (times[-1], now))
        shown = ("Hosts", "Hosts not seen", "GPUs", "Lost GPUs", "GPUs not seen", "Utilization")
        assert [then[title] for title in shown] == [[30], [0], [240], [0], [0], [90]]
        assert [after[title] for title in shown] == [[0], [30], [0], [], [240], []]
        cluster = numbers("pulsetrain-cluster", server, now)
        assert (cluster["Nodes"], cluster["Nodes missing"], cluster["GPUs missing"]) == ([0], [30], [240])
        for uid, table, column, rows in (
            ("pulsetrain-fleet", "Hosts", "State", 30),
            ("pulsetrain-fleet", "GPUs", "State", 240),
        ):
            asked = substituted(table_column(uid, table, column), ALL | {"__range": "1h"})
            assert [float(one["value"][1]) for one in server.query(asked, now)] == [0] * rows


def test_agent_and_run_on_one_machine_do_not_overstate_what_fluctuates(tmp_path: Path) -> None:
    now, seconds = float(int(time.time())), 400

    def watts(moment: float, gpu: int) -> float:
        return 300 + 200 * math.sin(moment * 2.1 + gpu) + 80 * math.sin(moment * 5.3 + 2 * gpu)

    series = []
    for gpu in range(8):
        labels = {"host": "a", "gpu": str(gpu), "uuid": f"GPU-{gpu}"}
        joules, counted = 0.0, []
        for step in range(seconds * 20):
            joules += watts(now - seconds + (step + 0.5) / 20, gpu) / 20
            counted.append(joules)
        for offset, exporter in ((0.0, {}), (0.45, {"run": RUN})):  # they read the same GPU at different moments
            times = [now - seconds + tick + offset for tick in range(seconds)]
            power = [watts(moment, gpu) for moment in times]
            energy = [counted[max(0, int(20 * (moment - now + seconds)) - 1)] for moment in times]
            series.append(of("gpu_power_draw_watts", labels | exporter, times, power))
            series.append(of("gpu_energy_joules_total", labels | exporter, times, energy))
            series.append(of("gpu_up", labels | exporter, times, [1.0] * seconds))
    end = now - 1
    with Prometheus(tmp_path) as server:
        push(server.url, series)

        def mean(expression: str) -> float:
            (one,) = server.query(f"avg_over_time(({expression})[300s:1s])", end)
            return float(one["value"][1])

        (counter,) = server.query('sum(rate(gpu_energy_joules_total{run=""}[300s]))', end)
        true_watts = float(counter["value"][1])
        assert mean("sum(max by (host, gpu) (gpu_power_draw_watts))") > 1.1 * true_watts  # the mistake that it was
        for uid, title in (
            ("pulsetrain-fleet", "Power"),
            ("pulsetrain-cluster", "GPU power"),
            ("pulsetrain-host", "GPU power"),
        ):
            (panel,) = (one for one in panels(BOARDS[uid]) if one["title"] == title and one["type"] == "stat")
            shown = with_records(substituted(panel["targets"][0]["expr"], ALL | {"host": "a"}))
            assert mean(shown) == pytest.approx(true_watts, rel=0.01), uid
        for record in (
            "host:gpu_power_draw_watts:sum",
            "fleet:gpu_power_draw_watts:sum",
            "run:gpu_power_draw_watts:sum",
        ):
            assert mean(inlined(record)) == pytest.approx(true_watts, rel=0.01), record


def test_no_alert_begins_after_its_run_has_ended(tmp_path: Path) -> None:
    """The windows of its rule still hold readings of the run then."""
    ended = float(int(time.time())) - 60
    times = [ended - 15 * tick for tick in range(80, -1, -1)]
    rank = {"host": "a", "run": RUN, "rank": "0"}
    gpu = {"host": "a", "run": RUN, "gpu": "0", "uuid": "GPU-0"}
    series = [
        of("pulsetrain_data_age_seconds", {"host": "a", "run": RUN, "data": "training"}, times, [0.0] * 81),
        of("training_data_wait_seconds_total", rank, times, [0.5 * (at - times[0]) for at in times]),
        of("training_step_duration_seconds_sum", rank, times, [at - times[0] for at in times]),
        of("gpu_up", gpu, times, [1.0] * 81),
        of("gpu_throttle_reasons", gpu | {"reason": "sw_power_cap"}, times, [1.0] * 81),
        of("gpu_throttle_reasons", gpu | {"reason": "hw_thermal"}, times, [1.0] * 81),
    ]
    over = round(1000 * (ended + 1))
    stale = [one._replace(times=[*one.times, over], values=[*one.values, None]) for one in series]
    with Prometheus(tmp_path) as server:
        push(server.url, stale)
        for name in ("InputBound", "PowerCap", "ThermalThrottle"):
            expression = with_records(rule_expressions("alert")[name])
            assert len(server.query(expression, ended)) == 1, name
            assert server.query(expression, ended + 30) == [], name


def rule_expressions(key: str) -> dict[str, str]:
    """The expressions of the rules for Prometheus: of `record`, or of `alert`."""
    groups = yaml.safe_load(render_rules(Thresholds()))["groups"]
    return {rule[key]: rule["expr"] for group in groups for rule in group["rules"] if key in rule}


def inlined(record: str) -> str:
    """A recording rule, with those that it uses written out."""
    return with_records(rule_expressions("record")[record])


def with_records(expression: str) -> str:
    """An expression, with the recording rules that it uses written out, for all hosts and without the past of them."""

    def written_out(found: re.Match[str]) -> str:
        window = f"[{found[2]}:15s]" if found[2] else ""
        return f"({inlined(found[1])}){window}"

    return re.sub(r"(\w+:\w+:\w+)(?:\{[^}]*\})?(?:\[(\w+)\])?", written_out, expression)


@pytest.fixture(params=[Prometheus, VictoriaMetrics])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    kind: Callable[[Path], Any] = request.param
    with kind(tmp_path) as started:
        yield started


def test_a_loss_that_is_not_a_number_is_seen_on_every_server(server: Any) -> None:
    now = time.time()
    live, series = Live(), []
    for tick in range(40):
        values: dict[str, Value] = {}
        odd = {"loss": None, "nonfinite": {"loss": "nan"}} if tick > 30 else {"loss": 0.5}
        merge(values, {"step": tick, "step_seconds": 0.1, **odd})
        moment = now - 15 * (40 - tick)
        live(Snapshot(moment, 15.0 * tick, (Sample(subject(0), values),)))
        for family in families(live, {"host": "a", "run": RUN}, now=moment):
            series += [
                of(family.name + point.suffix, dict(point.labels), [moment], [point.value]) for point in family.points
            ]
    push(server.url, series)

    def asked(expression: str) -> list[float]:
        found = get(f"{server.url}/api/v1/query", query=expression, time=str(now), nocache="1")["data"]["result"]
        return [float(one["value"][1]) for one in found]

    assert eventually(lambda: asked(rule_expressions("alert")["NonFinite"]) == [1])  # one rank
    (panel,) = (
        one for one in panels(BOARDS["pulsetrain-run"]) if one["title"] == "NaN or infinite" and one["type"] == "stat"
    )
    shown = asked(substituted(panel["targets"][0]["expr"], ALL | {"__range": "1h"}))
    assert shown[0] == pytest.approx(9, rel=0.2)


class StackVictoriaMetrics(VictoriaMetrics):
    """As `pulsetrain stack` starts it."""

    def arguments(self) -> list[str]:
        listen = f"127.0.0.1:{self.port}"
        return [*services.arguments("victoriametrics", listen, "", f"{self.folder}/data"), "-search.latencyOffset=0s"]


def test_a_sample_that_was_sent_twice_counts_once_in_the_stack(tmp_path: Path) -> None:
    now = float(int(time.time()))
    series = [
        of("gpu_up", {"host": "a", "gpu": "0", "uuid": "GPU-0"}, [now - 30 + tick for tick in range(30)], [1] * 30)
    ]
    with StackVictoriaMetrics(tmp_path) as server:
        for _ in range(2):  # the reply to the first was lost
            push(server.url, series)
            assert httpx.get(f"{server.url}/internal/force_flush").is_success

        def counted() -> list[float]:
            asked = {"query": "count_over_time(gpu_up[1m])", "time": str(now), "nocache": "1"}
            found = get(f"{server.url}/api/v1/query", **asked)["data"]["result"]
            return [float(one["value"][1]) for one in found]

        assert eventually(lambda: counted() == [30])


def test_the_power_of_all_that_is_counted_agrees_with_the_counter_at_every_moment(tmp_path: Path) -> None:
    now, seconds, watts = time.time(), 400, 4090.0
    gpu = catalog.subject("gpu", {"gpu_index": 0, "uuid": "GPU-0"})
    account, live, series = RunningAccount(record=lambda: None), Live(), []
    for second in range(seconds):
        moment = now - seconds + second
        line = Sample(gpu, {"up": 1, "energy_joules": 5000 + watts * second, "utilization_percent": 90.0})
        live(account(Snapshot(moment, float(second), (line,))))
        if second % 10 == 4:  # scraped out of step with whole entries, which come every 15 seconds
            for family in families(live, {"host": "a", "run": RUN}, now=moment):
                series += [of(family.name, dict(one.labels), [moment], [one.value]) for one in family.points]
    (panel,) = (one for one in panels(BOARDS["pulsetrain-run"]) if one["title"] == "Power of everything counted")
    asked = substituted(panel["targets"][0]["expr"], ALL | {"__rate_interval": "1m"})
    with Prometheus(tmp_path) as server:
        push(server.url, series)
        window = {"start": str(now - 280), "end": str(now - 20), "step": "7"}
        (found,) = get(f"{server.url}/api/v1/query_range", query=asked, **window)["data"]["result"]
    assert [float(value) for _, value in found["values"]] == pytest.approx([watts] * len(found["values"]), rel=0.01)


@pytest.mark.parametrize("uid", ["pulsetrain-fleet", "pulsetrain-run"])
def test_alerts_of_prometheus_and_of_all_engines_are_listed_once_each_and_none_for_information(
    tmp_path: Path, uid: str
) -> None:
    now = float(int(time.time()))
    began = now - 300

    def alert(
        name: str, labels: dict[str, str], start: float = began, end: float = now, engine: bool = True
    ) -> list[PushSeries]:
        times = [start + 15 * tick for tick in range(int((end - start) / 15) + 1)]
        about = {"alertname": name, "severity": "warning", **labels}
        if engine and "host" in labels and "run" in labels:  # of the engine, which knows both
            return [of("pulsetrain_alert", about, times, [1.0] * len(times))]
        firing = of("ALERTS", about | {"alertstate": "firing"}, times, [1.0] * len(times))
        return [firing, of("ALERTS_FOR_STATE", about, times, [start] * len(times))]

    both, gpu = {"host": "a", "run": RUN}, {"gpu": "0", "uuid": "GPU-0"}
    series = [
        *alert("GpuHot", {"host": "a", **gpu}),
        *alert("GpuHot", both | gpu),  # the same
        *alert("InputBound", {"run": RUN}),
        *alert("InputBound", both),  # the same
        *alert("HostMemoryLow", both),
        *alert("GpuTooHot", both | gpu, engine=False),
        *alert("GpuTooHot", {"host": "a", **gpu}),  # the same: Prometheus scrapes the agent and the run
        *alert("Straggler", both | {"rank": "3"}, start=now - 15),
        of(
            "pulsetrain_alert",
            {"alertname": "Straggler", "severity": "warning", "host": "a", "rank": "3"},
            [now],
            [1.0],
        ),
        of("pulsetrain_alert", {"alertname": "PowerCap", "severity": "info", "host": "a", **gpu}, [now], [1.0]),
        *alert("GpuLost", both | gpu, start=now - 900, end=now - 400),  # it is over
    ]
    with Prometheus(tmp_path) as server:
        push(server.url, series)
        (panel,) = (panel for panel in panels(BOARDS[uid]) if panel["title"] == "Firing alerts")
        (target,) = panel["targets"]
        found = server.query(substituted(target["expr"], ALL | {"__range": "1h"}), now)
    told = {one["metric"]["alertname"]: now - float(one["value"][1]) / 1000 for one in found}
    assert sorted(told) == ["GpuHot", "GpuTooHot", "HostMemoryLow", "InputBound", "Straggler"] and len(found) == 5
    assert told["GpuHot"] == told["GpuTooHot"] == told["InputBound"] == 300
    assert 0 <= told["Straggler"] <= 15 and 240 <= told["HostMemoryLow"] <= 300


def chart_lines(uid: str, title: str, kind: str = "timeseries") -> list[str]:
    """The queries of a chart, as Grafana asks them with a point every minute."""
    (panel,) = (one for one in panels(BOARDS[uid]) if one["title"] == title and one["type"] == kind)
    interval = {"__interval": "60s", "__rate_interval": "60s", "__range": "1h"}
    return [substituted(target["expr"], ALL | interval) for target in panel["targets"]]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, float]]:
    """Ten minutes of two ranks with hooks, the second of which is slow, and of one that only logs; then their end."""
    now = float(int(time.time()) // 60 * 60)
    times = [now - 600 + 15 * tick for tick in range(41)]
    series = []

    def counter(name: str, labels: dict[str, str], per_second: float) -> None:
        series.append(of(name, labels, times, [per_second * (at - times[0]) for at in times]))

    for rank, own_seconds in (("0", 0.05), ("1", 0.09)):
        labels = {"host": f"node{rank}", "run": RUN, "rank": rank}
        for name, seconds in (
            ("training_data_wait_seconds_total", 0.01),
            ("training_forward_seconds_total", own_seconds - 0.01),
            ("training_step_duration_seconds_sum", 0.2),
            ("training_step_duration_seconds_count", 1),
        ):
            counter(name, labels, 5 * seconds)
        for name, share in (("forward", 0.3), ("backward", 0.6), ("checkpoint", 0.1 if rank == "0" else 0)):
            if share:
                counter("training_time_seconds_total", labels | {"class": name}, share)
    logging = {"host": "colab", "run": "20261116-130000-notes-77ab", "rank": "0"}
    counter("training_steps_total", logging, 4)
    counter("training_time_seconds_total", logging | {"class": "evaluation"}, 0.25)
    board = {"host": "node1", "gpu": "1", "uuid": "GPU-1", "run": RUN}
    held = of("gpu_throttle_reasons", board | {"reason": "hw_slowdown"}, [now - 340, now - 325], [1.0])
    series.append(held._replace(values=[1.0, None]))  # a single sample, gone with the next scrape
    series.append(of("gpu_up", board, [now - 600 + 15 * tick for tick in range(41)], [1.0] * 41))
    with Prometheus(tmp_path_factory.mktemp("two_runs")) as server:
        push(server.url, series)
        yield server, now


def values(server: Prometheus, expression: str, at: float, *labels: str) -> dict[tuple[str, ...], float]:
    found = server.query(expression, at)
    return {tuple(one["metric"].get(label, "") for label in labels): float(one["value"][1]) for one in found}


def test_the_time_ledger_leaves_open_what_no_report_tells(two_runs: tuple[Prometheus, float]) -> None:
    server, now = two_runs
    shares, untold = chart_lines("pulsetrain-run", "Time ledger")
    hooks, notes = ({'run=~".+"': f'run=~"{name}"'} for name in (RUN, ".+notes.+"))

    def asked(query: str, run: dict[str, str]) -> dict[tuple[str, ...], float]:
        (before, after), *_ = run.items()
        return values(server, query.replace(before, after), now, "class")

    assert asked(shares, hooks) == pytest.approx({("forward",): 0.3, ("backward",): 0.6, ("checkpoint",): 0.05})
    assert asked(untold, hooks) == pytest.approx({("",): 0.05})
    assert asked(shares, notes) == pytest.approx({("evaluation",): 0.25})
    assert asked(untold, notes) == pytest.approx({("",): 0.75})


def test_the_time_ledger_of_each_run_adds_up_to_what_it_reported(two_runs: tuple[Prometheus, float]) -> None:
    server, now = two_runs

    def shares(column: str) -> dict[tuple[str, ...], float]:
        asked = table_column("pulsetrain-cluster", "Time ledger of each run", column)
        return values(server, substituted(asked, ALL | {"__range": "5m"}), now, "run")

    notes = "20261116-130000-notes-77ab"
    assert shares("Compute") == pytest.approx({(RUN,): 0.9 / 0.95, (notes,): 0.0})
    assert shares("Checkpoints") == pytest.approx({(RUN,): 0.05 / 0.95, (notes,): 0.0})
    assert shares("Evaluation") == pytest.approx({(RUN,): 0.0, (notes,): 1.0})
    assert shares("Other") == {(RUN,): 0.0, (notes,): 0.0}


def test_a_rank_that_the_others_wait_for_is_named_though_steps_take_equally_long(
    two_runs: tuple[Prometheus, float],
) -> None:
    server, now = two_runs
    (bars,) = chart_lines("pulsetrain-cluster", "Ranks that the others wait for", "bargauge")
    behind = values(server, bars, now, "host", "rank")
    assert max(behind, key=lambda rank: behind[rank]) == ("node1", "1")
    assert behind["node1", "1"] - behind["node0", "0"] == pytest.approx(0.04)


def test_a_program_that_logs_no_durations_has_step_charts(two_runs: tuple[Prometheus, float]) -> None:
    server, now = two_runs
    mean, *_ = chart_lines("pulsetrain-run", "Step time")
    assert values(server, mean, now, "run") == pytest.approx({(RUN,): 0.2, ("20261116-130000-notes-77ab",): 0.25})


def test_a_clock_held_down_for_a_single_sample_is_drawn_between_two_points_a_minute_apart(
    two_runs: tuple[Prometheus, float],
) -> None:
    server, now = two_runs
    (line,) = chart_lines("pulsetrain-run", "Throttled by", "state-timeline")
    window = {"start": str(now - 600), "end": str(now), "step": "60"}
    assert get(f"{server.url}/api/v1/query_range", query="gpu_throttle_reasons", **window)["data"]["result"] == []
    found = get(f"{server.url}/api/v1/query_range", query=line, **window)["data"]["result"]
    shown = {(one["metric"]["gpu"], one["metric"]["reason"]): {value for _, value in one["values"]} for one in found}
    assert shown == {("1", "hw_slowdown"): {"1"}, ("all", "not throttled"): {"0"}}
    assert server.query("gpu_up", now + 120) and not server.query(line, now + 120)  # of what is gone, nothing is known
