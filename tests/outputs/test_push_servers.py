"""A simulated run pushed to real servers arrives complete and equal, also when they were away for a while."""

import base64
import json
import math
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.servers import Prometheus, Pushgateway, VictoriaMetrics, get
from tests.waiting import eventually

from pulsetrain.catalog import METRICS
from pulsetrain.live import Live
from pulsetrain.outputs.families import families
from pulsetrain.outputs.points import Family, Point
from pulsetrain.outputs.push import backoff, pusher, remote_write
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.outlet import PushLink
from pulsetrain.outputs.push.pusher import Pusher
from pulsetrain.outputs.push.series import PushSeries
from pulsetrain.outputs.push.spool import Spool
from pulsetrain.outputs.push.target import PushTarget, parse_targets
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Home, RunFolder
from pulsetrain.runs.replay import Replay
from pulsetrain.snapshot import Snapshot
from pulsetrain.supervise import Supervisor

USER, PASSWORD = "lab", "p@ss/word"
Samples = dict[tuple[str, str], dict[int, float]]
"""By name and UUID of a GPU: values by time in milliseconds. What is not of a GPU has an empty UUID."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setattr(pusher, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(backoff, "LONGEST_WAIT_SECONDS", 0.5)


def environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
    return {**kept, "PULSETRAIN_HOME": str(home), "NO_PROXY": "127.0.0.1,localhost"}


def run(home: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A training on simulated GPUs, until some ticks of it are recorded."""
    train = (sys.executable, "-m", "pulsetrain.demo.train", "--seconds", "1")
    recorded = '[ "$(cat "$PULSETRAIN_HOME"/runs/*/*/host_metrics_* | wc -l)" -ge 12 ]'
    until = f'"$@"; until {recorded}; do sleep 0.1; done'
    command = (sys.executable, "-m", "pulsetrain", "run", "--simulate", "8xH100", "--interval", "0.2", *options)
    return subprocess.run(
        [*command, "--", "sh", "-c", until, "sh", *train],
        env=environment(home) | variables,
        cwd=home.parent,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    home = tmp_path_factory.mktemp("recorded") / "home"
    done = run(home)
    assert done.returncode == 0, done.stderr
    return Home(home / "runs").resolve("last")


@pytest.fixture(scope="module")
def snapshots(recorded: RunFolder) -> list[Snapshot]:
    database = Database([recorded])
    (host,) = recorded.load().hosts
    found = list(Replay(database, host))
    database.close()
    return found


def lines(folder: RunFolder) -> Samples:
    """What the files of a run say of GPUs and host, as it should arrive."""
    names = {(metric.table, metric.field): metric.name for metric in METRICS if metric.by is None}
    database = Database([folder])
    found: Samples = {}
    for table in ("gpu", "host"):
        for row in database.rows(f"SELECT *, epoch_ms(timestamp) AS ms FROM {table}"):
            for field, value in row.items():
                name = names.get((table, field))
                if name and isinstance(value, int | float):
                    found.setdefault((name, row.get("uuid") or ""), {})[row["ms"]] = value
    database.close()
    return found


def same(expected: dict[int, float], found: dict[int, float]) -> bool:
    """Equal as far as VictoriaMetrics keeps digits: it rounds at the twelfth, Prometheus never does."""
    close = (math.isclose(value, found.get(time, math.nan), rel_tol=1e-11) for time, value in expected.items())
    return expected.keys() == found.keys() and all(close)


class Stored:
    """What a server has of a run."""

    def __init__(self, server: Prometheus | VictoriaMetrics) -> None:
        self._server = server

    def samples(self, run: str) -> Samples:
        found: Samples = {}
        for labels, times, values in self._series(run):
            if labels.keys() <= {"__name__", "host", "run", "gpu", "uuid"}:
                pairs = zip(times, values, strict=True)
                found[labels["__name__"], labels.get("uuid", "")] = {t: v for t, v in pairs if v is not None}
        return found

    def has(self, run: str, expected: Samples) -> bool:
        """Whether it has these samples of these series, and no others of them."""
        found = self.samples(run)
        return all(same(values, found.get(key, {})) for key, values in expected.items())

    def times(self, run: str) -> dict[frozenset[tuple[str, str]], list[int]]:
        """When each series has values."""
        return {
            frozenset(labels.items()): [t for t, value in zip(times, values, strict=True) if value is not None]
            for labels, times, values in self._series(run)
        }

    def ended(self, run: str) -> bool:
        """Whether no series has a value any more."""
        if isinstance(self._server, Prometheus):
            return not self._server.query(f'{{run="{run}"}}')
        last = [values[-1] for _, _, values in self._series(run)]
        return bool(last) and set(last) == {None}

    def _series(self, run: str) -> Iterator[tuple[dict[str, str], list[int], list[float | None]]]:
        if isinstance(self._server, Prometheus):
            for one in self._server.query(f'{{run="{run}"}}[1h]'):
                pairs = one["values"]
                yield one["metric"], [round(1000 * t) for t, _ in pairs], [float(value) for _, value in pairs]
            return
        query = urllib.parse.urlencode({"match[]": f'{{run="{run}"}}'})
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(
            f"{self._server.url}/api/v1/export?{query}", headers={"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(request) as response:
            for line in response:
                imported: dict[str, Any] = json.loads(line)
                yield imported["metric"], imported["timestamps"], imported["values"]


@pytest.fixture(params=["remote-write", "victoriametrics"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Prometheus | VictoriaMetrics]:
    started: Prometheus | VictoriaMetrics
    if request.param == "remote-write":
        started = Prometheus(tmp_path / "server")
    else:
        started = VictoriaMetrics(tmp_path / "server", USER, PASSWORD)
    with started:
        yield started


def spec_of(server: Prometheus | VictoriaMetrics) -> str:
    kind = "remote-write" if isinstance(server, Prometheus) else "victoriametrics"
    return f"{kind}:{server.url}"


def target_of(server: Prometheus | VictoriaMetrics) -> PushTarget:
    login = f"//{USER}:{urllib.parse.quote(PASSWORD, safe='')}@"
    return parse_targets([spec_of(server).replace("//", login)], {})[0]


def read_spool(file: Path) -> list[PushSeries]:
    return msgspec.msgpack.decode(zlib.decompress(file.read_bytes()), type=list[PushSeries])


def pusher_to(target: PushTarget, run: str, folder: Path) -> Pusher:
    scope = {"host": "vm", "run": run}
    return Pusher(target, Client(target), scope, lambda live: families(live, scope), folder, batch_seconds=0.0)


def test_a_run_arrives_complete_and_equal_and_its_series_end(
    server: Prometheus | VictoriaMetrics, tmp_path: Path
) -> None:
    login = {"PULSETRAIN_PUSH_USER": USER, "PULSETRAIN_PUSH_PASSWORD": PASSWORD}
    done = run(tmp_path / "home", "--push", spec_of(server), **login)
    assert done.returncode == 0 and "push" not in done.stderr, done.stderr
    folder = Home(tmp_path / "home/runs").resolve("last")
    expected = lines(folder)
    assert len(expected) > 8 * 40 and sum(map(len, expected.values())) > 3000
    stored = Stored(server)
    assert eventually(lambda: stored.has(folder.path.name, expected))
    assert eventually(lambda: stored.ended(folder.path.name))


def test_a_run_arrives_complete_and_equal_though_the_server_was_away_in_the_middle(
    server: Prometheus | VictoriaMetrics, recorded: RunFolder, snapshots: list[Snapshot], tmp_path: Path
) -> None:
    third = len(snapshots) // 3
    stored = Stored(server)
    pushing = pusher_to(target_of(server), "r1", tmp_path / "spool")
    for snapshot in snapshots[:third]:
        pushing(snapshot)
    assert eventually(lambda: stored.samples("r1"))
    server.stop()
    for snapshot in snapshots[third : 2 * third]:
        pushing(snapshot)
    assert eventually(lambda: list((tmp_path / "spool").glob("*.spool")))
    server.start()
    for snapshot in snapshots[2 * third :]:
        pushing(snapshot)
    pushing.end()
    assert pushing.wait() is None
    expected = lines(recorded)
    assert eventually(lambda: stored.has("r1", expected))
    assert eventually(lambda: stored.ended("r1"))
    assert list((tmp_path / "spool").iterdir()) == []


def test_both_ways_bring_the_same_series_at_the_same_times(snapshots: list[Snapshot], tmp_path: Path) -> None:
    with (
        Prometheus(tmp_path / "p") as prometheus,
        VictoriaMetrics(tmp_path / "v", USER, PASSWORD) as victoria,
    ):
        for server in (prometheus, victoria):
            pushing = pusher_to(target_of(server), "r1", tmp_path / "spool")
            for snapshot in snapshots:
                pushing(snapshot)
            pushing.end()
            assert pushing.wait() is None
        times = Stored(prometheus).times("r1")
        assert eventually(lambda: Stored(victoria).times("r1") == times)
    names = {dict(labels)["__name__"] for labels in times}
    assert {"training_step_duration_seconds_bucket", "training_samples_total", "host_cpu_core_ratio"} <= names


def test_a_wrong_password_is_reported_and_all_readings_stay_to_be_sent(tmp_path: Path) -> None:
    with VictoriaMetrics(tmp_path / "server", USER, PASSWORD) as server:
        login = {"PULSETRAIN_PUSH_USER": USER, "PULSETRAIN_PUSH_PASSWORD": "0ther"}
        done = run(tmp_path / "home", "--push", spec_of(server), **login)
    folder = Home(tmp_path / "home/runs").resolve("last")
    assert done.returncode == 0
    assert f"push to victoriametrics: {server.url.removeprefix('http://')} answered 401 Unauthorized" in done.stderr
    assert "hint: Check username, password or token" in done.stderr
    assert f"pulsetrain export {folder.path.name} --to {spec_of(server)}" in done.stderr
    assert PASSWORD not in done.stderr and "0ther" not in done.stderr
    (host,) = folder.load().hosts
    kept: dict[tuple[str, str], dict[int, float | None]] = {}
    for file in sorted((folder.host_folder(host) / "push").glob("victoriametrics-*.spool")):
        for one in read_spool(file):
            if "uuid" in dict(one.labels) or len(one.labels) == 2:
                key = (one.name, dict(one.labels).get("uuid", ""))
                kept.setdefault(key, {}).update(zip(one.times, one.values, strict=True))
    for key, values in lines(folder).items():
        assert values.items() <= kept[key].items()


def test_a_refused_sample_is_reported_in_the_servers_words_and_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def state(seconds: float, **values: float) -> tuple[float, list[Family]]:
        labels = (("host", "vm"), ("run", "r1"))
        return seconds, [Family(name, "gauge", "", "", [Point(labels, value)]) for name, value in values.items()]

    now = time.time() - 60
    with Prometheus(tmp_path / "server") as server:
        target = target_of(server)
        client = Client(target)
        for states in ([state(now, a=1.0)], [state(now, a=2.0, b=1.0, c=1.0, d=1.0), state(now + 1, a=3.0, b=2.0)]):
            spool = Spool(tmp_path / "spool", "p")
            link = PushLink(target, client, {}, spool, Supervisor().part("push"), batch_seconds=0.0)
            sender = remote_write.open_outlet(link)
            for seconds, found in states:
                sender.add(seconds, found)
            sender.flush()
        client.close()
        stored = {one["metric"]["__name__"]: one["values"] for one in server.query('{run="r1"}[1h]')}
    assert {name: [float(value) for _, value in values] for name, values in stored.items()} == {
        "a": [1.0, 3.0],
        "b": [1.0, 2.0],
        "c": [1.0],
        "d": [1.0],
    }
    assert sender.left == "1 were refused"
    (warning,) = caplog.records
    assert "1 of 6 samples are refused" in warning.getMessage()
    assert "duplicate sample for timestamp" in warning.getMessage()


def test_a_pushgateway_has_the_state_of_the_run_and_loses_it_at_the_end(
    snapshots: list[Snapshot], tmp_path: Path
) -> None:
    with Pushgateway(tmp_path / "server") as server:
        (target,) = parse_targets([f"pushgateway:{server.url}"], {})
        pushing = pusher_to(target, "r/1", tmp_path / "spool")
        pushing(snapshots[-1])
        expected = state_of(snapshots[-1:])
        assert eventually(lambda: in_gateway(server) == expected)
        server.stop()
        server.start()  # it has forgotten everything
        pushing(snapshots[-1]._replace(elapsed=snapshots[-1].elapsed + 15))
        assert eventually(lambda: in_gateway(server) == expected)
        pushing.end()
        assert pushing.wait() is None
        assert in_gateway(server) == {}


def test_a_pushgateway_keeps_the_last_state_when_asked_to(snapshots: list[Snapshot], tmp_path: Path) -> None:
    with Pushgateway(tmp_path / "server") as server:
        (target,) = parse_targets([f"pushgateway:{server.url}"], {})
        pushing = pusher_to(replace(target, keep_group=True), "r/1", tmp_path / "spool")
        for snapshot in snapshots[:-1]:
            pushing(snapshot)
        pushing(snapshots[-1]._replace(last=True))
        pushing.end()
        assert pushing.wait() is None
        assert in_gateway(server) == state_of(snapshots)


NOTEBOOK = """
import sys, time, pulsetrain
pulsetrain.init("notebook", simulate="1xL4", quiet=True, interval=0.2)
for name in ("first", "two/three"):
    pulsetrain.set_training(name)
    pulsetrain.monitor("some_stat", 0.125)
    sys.stdin.readline()
pulsetrain.finish()
"""


def test_the_name_of_a_training_is_the_exported_job_and_the_run_that_prometheus_scrapes_from_a_pushgateway(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with (
        Pushgateway(tmp_path / "gateway") as gateway,
        Prometheus(tmp_path / "prometheus", [gateway.url.removeprefix("http://")]) as prometheus,
    ):
        (home / "pulsetrain.toml").write_text(f'[push.lab]\nurl = "pushgateway:{gateway.url}"\ninterval = 0.5\n')
        program = [sys.executable, "-c", NOTEBOOK]
        with subprocess.Popen(program, env=environment(home), stdin=subprocess.PIPE, text=True) as notebook:
            assert notebook.stdin

            def is_the_only_training(name: str) -> bool:
                found = prometheus.query('training_value{name="some_stat"} == 0.125')
                return {(one["metric"]["exported_job"], one["metric"]["run"]) for one in found} == {(name, name)}

            for name in ("first", "two/three"):
                assert eventually(partial(is_the_only_training, name))
                (power,) = prometheus.query("gpu_power_draw_watts")
                assert power["metric"]["exported_job"] == power["metric"]["run"] == name
                notebook.stdin.write("\n")
                notebook.stdin.flush()
        assert notebook.returncode == 0
        assert get(f"{gateway.url}/api/v1/metrics")["data"] == []


def state_of(snapshots: list[Snapshot]) -> dict[tuple[tuple[str, str], ...], float]:
    """The power of each GPU and the training's figures, as of the last of these."""
    live = Live()
    for snapshot in snapshots:
        live(snapshot)
    return {
        (("__name__", family.name), *point.labels): point.value
        for family in families(live, {"host": "vm", "run": "r/1"})
        for point in family.points
        if family.name in IN_GATEWAY
    }


IN_GATEWAY = ("gpu_power_draw_watts", "gpu_energy_joules_total", "training_loss", "training_steps_total")


def in_gateway(server: Pushgateway) -> dict[tuple[tuple[str, str], ...], float]:
    found = {}
    for group in get(f"{server.url}/api/v1/metrics")["data"]:
        assert {name: group["labels"][name] for name in ("job", "run", "host")} == {
            "job": "pulsetrain",
            "run": "r/1",
            "host": "vm",
        }
        for name in IN_GATEWAY:
            for metric in group.get(name, {"metrics": []})["metrics"]:
                labels = sorted(
                    (key, value) for key, value in metric["labels"].items() if key not in ("job", "instance")
                )
                found[(("__name__", name), *labels)] = float(metric["value"])
    return found
