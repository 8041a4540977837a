"""`pulsetrain export --to`: a recorded run arrives as if it had been pushed, and what does not arrive is told."""

import json
import math
import re
import threading
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import msgspec
import pytest
import yaml
from tests.cli.conftest import Pulsetrain
from tests.servers import Prometheus, VictoriaMetrics

from pulsetrain.outputs.backfill import columns as columns_module
from pulsetrain.outputs.backfill.check import query_url
from pulsetrain.outputs.backfill.columns import HostSeries
from pulsetrain.outputs.families import families, run_info_of
from pulsetrain.outputs.points import make_labels
from pulsetrain.outputs.push import remote_write
from pulsetrain.outputs.push.latest_readings import LatestReadings
from pulsetrain.outputs.push.series import PushSeries
from pulsetrain.outputs.push.target import parse_target
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Host, RunFolder
from pulsetrain.runs.replay import Replay
from pulsetrain.runs.seal import seal_all

MakeRun = Callable[..., RunFolder]
Series = dict[tuple[str, tuple[tuple[str, str], ...]], dict[int, float]]
"""Values by milliseconds since the epoch, of each name and its labels."""

HOST = "gpu07"
SECONDS = 40
LOST, BACK = 10, 30
"""Seconds between which the second GPU does not answer."""
USER, PASSWORD = "ada", "s3cret"
LOGIN = {"PULSETRAIN_PUSH_USER": USER, "PULSETRAIN_PUSH_PASSWORD": PASSWORD}


def gpu_line(second: int, gpu: int) -> dict[str, Any]:
    labels = {"gpu_index": gpu, "uuid": f"GPU-{gpu}", "name": "NVIDIA H100", "simulated": True}
    if gpu == 1 and LOST <= second < BACK:
        return {**labels, "power_draw_watts": None, "up": 0}
    slow = {"power_limit_watts": 700.0, "ecc_corrected_errors": second} if second % 10 == 5 else {}
    throttled = ["sw_power_cap", "hw_thermal"] if 3 <= second < 6 else ["sw_power_cap"] if second % 4 else []
    return {
        **labels,
        "power_draw_watts": 500 + second / 8,
        "energy_joules": 1e6 + 500 * second,
        "throttle_reasons": throttled,
        "up": 1,
        **slow,
    }


def host_line(second: int) -> dict[str, Any]:
    disks = {"sda": second * 4096, "sdb": 7} if second < 20 else {"sda": second * 4096}
    return {"cpu_ratio": second / 100, "disk_device_read_bytes": disks, "source_up": {"nvidia": 1}}


def process_lines(second: int) -> list[dict[str, Any]]:
    ours = {"pid": 41, "user": "ada", "command": "python train.py", "container": "pod:f00/3f9c"}
    line = {**ours, "cpu_seconds": second / 2, "memory_bytes": 2**30}
    on_gpu = [
        {"pid": pid, "user": "ada", "command": "python", "gpu_index": 0, "uuid": "GPU-0", "gpu_memory_mb": 100.0 + pid}
        for pid in (41, 99)
    ]
    return [line, *on_gpu] if second < 15 else []


def report_lines(second: int) -> list[dict[str, Any]]:
    """Four steps a second on each of two ranks, none for a while, and none after the last reading."""
    if 15 <= second < 22 or second == SECONDS - 1:
        return []
    steps = [4 * second + part for part in range(4)]
    return [
        {
            "elapsed_seconds": step / 4 + 0.01,
            "rank": rank,
            "step": step,
            "step_seconds": 0.001 * (step % 37 + 1),
            "samples": 64,
            **({"loss": 3 / (step + 1)} if step % 3 else {}),
            **({"phase_seconds": 0.5} if step == 50 else {}),
        }
        for step in steps
        for rank in (0, 1)
    ]


EVENTS = [
    {"elapsed_seconds": float(LOST), "kind": "gpu_lost", "severity": "critical", "message": "GPU 1 is lost"},
    {"elapsed_seconds": 12.0, "kind": "gap", "severity": "info", "message": "2 ticks"},
    {"elapsed_seconds": 33.0, "kind": "gap", "severity": "info", "message": "1 tick"},
]


@pytest.fixture
def record(make_run: MakeRun, home: Path) -> Callable[..., RunFolder]:
    """A run that began so many seconds ago, with a bit of everything."""

    def record(ago: float = 3600.0, **more: Any) -> RunFolder:
        start = datetime.fromtimestamp(int(time.time() - ago), UTC)

        def timed(found: Sequence[dict[str, Any]], second: int) -> list[dict[str, Any]]:
            return [_timed(line, start, line.get("elapsed_seconds", float(second))) for line in found]

        ticks = range(SECONDS)
        account = [timed([{"gpu_seconds": 2.0 * s, "energy_joules": {"gpu": 9.5 * s}}], s)[0] for s in ticks[15::15]]
        tables: dict[str, Any] = {
            "gpu": [line for s in ticks for line in timed([gpu_line(s, 0), gpu_line(s, 1)], s)],
            "host": [line for s in ticks for line in timed([host_line(s)], s)],
            "process": [line for s in ticks[::5] for line in timed(process_lines(s), s)],
            "training": [line for s in ticks for line in timed(report_lines(s), s)],
            "events": timed(EVENTS, 0),
        } | more.pop("tables", {})
        about = {"hosts": {HOST: Host(pulsetrain="1.2.3")}, "tags": {"team": "vision"}, "start": start}
        id = f"{start:%Y%m%d-%H%M%S}-test-0000"
        run = make_run(id, HOST, home / "runs", **tables, **about, **more)
        with (run.host_folder(HOST) / "account_metrics_20261116_120000.jsonl").open("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in account)
        return run

    return record


def _timed(line: dict[str, Any], start: datetime, elapsed: float) -> dict[str, Any]:
    moment = (start + timedelta(seconds=elapsed)).isoformat(timespec="milliseconds")[:-6] + "Z"
    return {"timestamp": moment, "elapsed_seconds": elapsed} | line


def scope(run: RunFolder) -> dict[str, str]:
    return {"host": HOST, "run": run.path.name}


def pushed(run: RunFolder) -> Series:
    """What `--push` sends at each tick of the run."""
    about = msgspec.structs.replace(run.load(), status="running")
    live, found = LatestReadings(), defaultdict[Any, dict[int, float]](dict)
    for snapshot in Replay(Database([run]), HOST):
        live(snapshot)
        for family in families(live, scope(run), run_info=run_info_of(about)):
            for point in family.points:
                found[family.name + point.suffix, point.labels][round(1000 * snapshot.time)] = point.value
    return dict(found)


def columns(run: RunFolder) -> tuple[Series, dict[Any, list[int]]]:
    """What a back-fill sends: samples, and the times of stale markers before the end."""
    about = msgspec.structs.replace(run.load(), status="running")
    recorded = HostSeries(Database([run]), HOST, scope(run), run_info_of(about), about.hosts[HOST].pulsetrain)
    samples, ends = defaultdict[Any, dict[int, float]](dict), defaultdict[Any, list[int]](list)
    for window in recorded.windows:
        for column in recorded.columns(window):
            key = (column.name, column.labels)
            new = dict(zip(column.times.tolist(), column.values.tolist(), strict=True))
            assert len(new) == len(column.times) and not new.keys() & samples[key].keys(), key
            samples[key] |= new
            ends[key] += column.ends.tolist()
    return {key: values for key, values in samples.items() if values}, {
        key: times for key, times in ends.items() if times
    }


def differences(one: Series, other: Series) -> dict[Any, Any]:
    """Where two sets of series are not the same: empty when they are."""
    found: dict[Any, Any] = {}
    for key in one.keys() | other.keys():
        here, there = one.get(key, {}), other.get(key, {})
        times = here.keys() | there.keys()
        pairs = {at: (here.get(at), there.get(at)) for at in times}
        unequal = {at: (a, b) for at, (a, b) in pairs.items() if None in (a, b) or a != pytest.approx(b, rel=1e-12)}
        found |= {key: unequal} if unequal else {}
    return found


@pytest.mark.parametrize("window_lines", [40_000, 50])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_back_fill_is_what_was_pushed_at_each_tick(
    record: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch, sealed: bool, window_lines: int
) -> None:
    run = record()
    if sealed:
        seal_all(run)
    monkeypatch.setattr(columns_module, "WINDOW_LINES", window_lines)
    sent, live = columns(run)[0], pushed(run)
    # Who watched is known from run.json; `families` tells the version of itself.
    builds = [{key for key in found if key[0] == "pulsetrain_build_info"} for found in (sent, live)]
    assert [dict(labels)["version"] for ((_, labels),) in builds[:1]] == ["1.2.3"]
    for found, build in zip((sent, live), builds, strict=True):
        for key in build:
            del found[key]
    assert differences(sent, live) == {}
    assert len(sent) > 50


def test_reports_after_the_last_reading_stand_at_their_seconds(record: Callable[..., RunFolder]) -> None:
    run = record(tables={"gpu": [], "host": [], "process": [], "events": []})
    run.files("account")[0].unlink()
    samples, _ = columns(run)
    labels = tuple(sorted({"rank": "0", **scope(run)}.items()))
    assert list(samples["training_steps_total", labels].values()) == [
        4.0 * second + 3 for second in range(SECONDS - 1) if not 15 <= second < 22
    ]


def test_series_of_a_lost_gpu_end_when_it_is_lost_and_continue_when_it_is_back(
    record: Callable[..., RunFolder],
) -> None:
    run = record()
    samples, ends = columns(run)
    start = round(1000 * run.load().start.timestamp())
    own = {"gpu": "1", "uuid": "GPU-1", **scope(run)}
    power, limit, up = (
        (name, tuple(sorted(own.items()))) for name in ("gpu_power_draw_watts", "gpu_power_limit_watts", "gpu_up")
    )
    assert ends[power] == ends[limit] == [start + 1000 * LOST]
    assert [(at - start) // 1000 for at in samples[power]] == [*range(LOST), *range(BACK, SECONDS)]
    assert up not in ends and samples[up][start + 1000 * LOST] == 0
    healthy = tuple(sorted({"gpu": "0", "uuid": "GPU-0", **scope(run)}.items()))
    assert ("gpu_power_draw_watts", healthy) not in ends


def test_what_shows_nothing_new_ends_as_it_does_live(record: Callable[..., RunFolder]) -> None:
    run = record()
    _, ends = columns(run)
    start = round(1000 * run.load().start.timestamp())

    def of(name: str, **labels: str) -> list[float]:
        (found,) = [times for key, times in ends.items() if key[0] == name and labels.items() <= dict(key[1]).items()]
        return [(at - start) / 1000 for at in found]

    assert of("gpu_throttle_reasons", gpu="0", reason="hw_thermal") == [6.0]
    assert of("host_disk_device_read_bytes_total", device="sdb") == [32.0]  # last at 19, held for 12 s
    assert of("process_memory_bytes", pid="41") == [23.0]  # last at 10
    assert not [key for key in ends if key[0].startswith(("training_", "run_"))]


def test_values_that_are_no_numbers_and_values_of_the_program_are_sent(record: Callable[..., RunFolder]) -> None:
    reports: list[dict[str, Any]] = [
        {"elapsed_seconds": 0.5, "rank": 0, "step": 1, "loss": 1.5, "accuracy": 0.25},
        {"elapsed_seconds": 1.5, "rank": 0, "step": 2, "loss": None, "nonfinite": {"loss": "nan"}, "accuracy": 0.5},
        {"elapsed_seconds": 2.5, "rank": 0, "step": 3, "loss": None, "nonfinite": {"loss": "inf"}},
    ]
    run = record()
    start = run.load().start
    (file,) = run.files("training")
    file.write_text("".join(json.dumps(_timed(line, start, line["elapsed_seconds"])) + "\n" for line in reports))
    samples, _ = columns(run)
    labels = tuple(sorted({"rank": "0", **scope(run)}.items()))
    first, second, third = samples["training_loss", labels].values()
    assert first == 1.5 and math.isnan(second) and third == math.inf
    named = tuple(sorted({"rank": "0", "name": "accuracy", **scope(run)}.items()))
    assert list(samples["training_value", named].values()) == [0.25, 0.5]


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ("victoriametrics:http://vm:8428", "http://vm:8428/api/v1/query"),
        ("remote-write:http://prom:9090", "http://prom:9090/api/v1/query"),
        ("remote-write:https://prom/prefix/api/v1/write", "https://prom/prefix/api/v1/query"),
        ("remote-write:https://mimir/api/v1/push", "https://mimir/prometheus/api/v1/query"),
        ("remote-write:https://cloud/api/prom/push", "https://cloud/api/prom/api/v1/query"),
        ("remote-write:https://elsewhere/receive", None),
    ],
)
def test_servers_are_asked_where_they_answer(spec: str, asked: str | None) -> None:
    assert query_url(parse_target(spec, {})) == asked


def exported(server: VictoriaMetrics) -> Series:
    """All samples that a VictoriaMetrics has of the host, without stale markers."""
    login = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    login.add_password(None, server.url, USER, PASSWORD)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(login))
    query = urllib.parse.quote(f'{{host="{HOST}"}}')
    found: Series = {}
    with opener.open(f"{server.url}/api/v1/export?match[]={query}&reduce_mem_usage=1") as answer:
        for line in (json.loads(re.sub(rb"(?<=[\[,])\+Inf", b"Infinity", text)) for text in answer):
            labels = {name: value for name, value in line["metric"].items() if name != "__name__"}
            values = dict(zip(line["timestamps"], line["values"], strict=True))
            key = (line["metric"]["__name__"], tuple(sorted(labels.items())))
            found[key] = {at: value for at, value in values.items() if value is not None}
    return found


def test_a_run_arrives_whole_in_victoriametrics_with_user_and_password(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    run = record()
    samples, _ = columns(run)
    count = sum(map(len, samples.values()))
    with VictoriaMetrics(tmp_path / "server", USER, PASSWORD) as server:
        done = pulsetrain("export", "last", "--to", f"victoriametrics:{server.url}", **LOGIN)
        assert (done.returncode, done.stderr) == (0, "")
        sent_to = server.url.removeprefix("http://")
        assert done.stdout == f"{count:,} samples of {len(samples):,} series sent to {sent_to}, all found\n"
        assert differences(exported(server), samples) == {}


def test_a_run_arrives_whole_in_prometheus_and_ends_there(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    run = record(ago=5 * 86_400)
    samples, _ = columns(run)
    start = run.load().start.timestamp()
    selector = f'{{run="{run.path.name}"}}'
    with Prometheus(tmp_path / "server") as server:
        done = pulsetrain("export", "last", "--to", f"remote-write:{server.url}/api/v1/write")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(", all found\n")
        answer = server.query(f'{{host="{HOST}"}}[1h]', at=start + SECONDS)
        found: Series = {}
        for one in answer:
            name = one["metric"].pop("__name__")
            values = {round(1000 * at): float(value) for at, value in one["values"]}
            found[name, tuple(sorted(one["metric"].items()))] = values
        assert differences(found, samples) == {}
        lost = server.query(f'count by (__name__) ({{run="{run.path.name}",gpu="1"}})', at=start + LOST + 1)
        assert [one["metric"]["__name__"] for one in lost] == ["gpu_up"]
        assert server.query(selector, at=start + SECONDS - 1)
        assert server.query(selector, at=start + SECONDS) == []


def test_a_run_in_progress_is_not_ended(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    run = record(status="running")
    with Prometheus(tmp_path / "server") as server:
        done = pulsetrain("export", "last", "--to", f"remote-write:{server.url}", "--table", "host")
        assert done.returncode == 0, done.stderr
        end = run.load().start.timestamp() + SECONDS
        assert server.query("host_cpu_ratio", at=end + 60)
        assert server.query(f'{{run="{run.path.name}",gpu="0"}}', at=end) == []


def test_wrong_credentials_are_reported_and_nothing_is_sent(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    record()
    with VictoriaMetrics(tmp_path / "server", USER, PASSWORD) as server:
        wrong = {**LOGIN, "PULSETRAIN_PUSH_PASSWORD": "wrong"}
        done = pulsetrain("export", "last", "--to", f"victoriametrics:{server.url}", **wrong)
        assert done.returncode == 1 and done.stdout == ""
        assert "401 Unauthorized" in done.stderr and "Nothing was sent." in done.stderr
        assert "wrong" not in done.stderr and "Traceback" not in done.stderr
        assert exported(server) == {}


def test_a_server_that_is_not_there_is_reported(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
) -> None:
    record()
    done = pulsetrain("export", "last", "--to", "victoriametrics:http://127.0.0.1:9")
    assert done.returncode == 1 and done.stdout == ""
    assert "127.0.0.1:9 cannot be reached" in done.stderr and "Nothing was sent." in done.stderr


class Troubled(BaseHTTPRequestHandler):
    """Takes the greeting, is in trouble twice, and then takes all. It cannot be asked for what it has."""

    posts: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.posts.append(503 if len(self.posts) in (1, 2) else 204)
        self.send_response(self.posts[-1])
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_request_that_fails_is_tried_again_and_what_cannot_be_checked_is_said(
    pulsetrain: Pulsetrain, record: Callable[..., RunFolder]
) -> None:
    record()
    with HTTPServer(("127.0.0.1", 0), Troubled) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = pulsetrain("export", "last", "--to", f"remote-write:http://127.0.0.1:{server.server_port}/receive")
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert Troubled.posts == [204, 503, 503, 204]
    asked = f"no query address is known for 127.0.0.1:{server.server_port}"
    assert done.stdout.endswith(f"not checked: {asked}\n")


class Forgetful(VictoriaMetrics):
    """Keeps a month."""

    def arguments(self) -> Sequence[str]:
        return [word.replace("=100y", "=1") for word in super().arguments()]


def test_what_victoriametrics_throws_away_silently_is_reported(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    run = record(ago=400 * 86_400)
    count = sum(map(len, columns(run)[0].values()))
    with Forgetful(tmp_path / "server") as server:
        done = pulsetrain("export", "last", "--to", f"victoriametrics:{server.url}")
    assert done.returncode == 1 and done.stdout == ""
    assert f"{count:,} of {count:,} samples" in done.stderr and "small_timestamp" in done.stderr
    assert "-retentionPeriod" in done.stderr


def test_samples_too_old_for_prometheus_are_reported_with_the_way_out(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    old, new = record(ago=5 * 86_400), record(ago=600)
    server = Prometheus(tmp_path / "server")
    file = tmp_path / "server/prometheus.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"storage": {}}))
    with server:
        target = f"remote-write:{server.url}/api/v1/write"
        assert pulsetrain("export", new.path.name, "--to", target).returncode == 0
        done = pulsetrain("export", old.path.name, "--to", target)
    assert done.returncode == 1 and done.stdout == ""
    assert "samples were refused" in done.stderr and "out_of_order_time_window" in done.stderr


def test_what_a_push_did_not_bring_is_sent_also_where_nothing_is_taken_out_of_order(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    run = record(ago=600)
    samples, _ = columns(run)
    middle = 1000 * (run.load().start.timestamp() + SECONDS / 2)
    arrived = [
        PushSeries(name, "gauge", labels, [at for at in of if at < middle], [v for at, v in of.items() if at < middle])
        for (name, labels), of in samples.items()
    ]
    server = Prometheus(tmp_path / "server")
    file = tmp_path / "server/prometheus.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"storage": {}}))
    with server:
        body = remote_write.packed([series for series in arrived if series.times])
        assert httpx.post(server.url + remote_write.PATH, content=body, headers=remote_write.HEADERS).is_success
        done = pulsetrain("export", run.path.name, "--to", f"remote-write:{server.url}/api/v1/write")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(", all found\n")
        answer = server.query(f'{{host="{HOST}"}}[1h]')
    found: Series = {}
    for one in answer:
        name = one["metric"].pop("__name__")
        found[name, make_labels(one["metric"])] = {round(1000 * at): float(value) for at, value in one["values"]}
    assert differences(found, samples) == {}


def test_nan_cannot_be_held_by_victoriametrics_and_that_is_said(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    tmp_path: Path,
) -> None:
    run = record()
    (file,) = run.files("training")
    start = run.load().start
    odd = {"rank": 0, "step": 400, "loss": None, "nonfinite": {"loss": "nan", "learning_rate": "inf"}}
    file.write_text(json.dumps(_timed(odd, start, 5.5)) + "\n")
    with VictoriaMetrics(tmp_path / "server", USER, PASSWORD) as server:
        done = pulsetrain("export", "last", "--to", f"victoriametrics:{server.url}", **LOGIN)
        assert done.returncode == 0 and done.stdout.endswith("all found\n"), done.stderr
        assert "1 values are NaN" in done.stderr
        rates = [list(values.values()) for (name, _), values in exported(server).items() if name == "learning_rate"]
        assert rates == [[math.inf]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "choose --format to write files, or --to"),
        (["--format", "csv", "--to", "victoriametrics:http://vm:8428"], "choose --format to write files, or --to"),
        (["--to", "victoriametrics:http://vm:8428", "--output", "x"], "--output is for files"),
        (["--to", "pushgateway:http://vm:9091"], "does not store samples with timestamps"),
        (["--to", "vm:8428"], "is not a push target"),
        (["--to", "comet:project"], "Or a tracker: mlflow:http://HOST:5000, wandb:PROJECT"),
    ],
)
def test_a_wrong_call_is_reported(
    pulsetrain: Pulsetrain,
    record: Callable[..., RunFolder],
    arguments: list[str],
    said: str,
) -> None:
    record()
    done = pulsetrain("export", "last", *arguments)
    assert done.returncode == 2 and said in done.stderr
