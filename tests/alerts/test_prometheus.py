"""The files for Prometheus and Alertmanager: valid, fresh, with one's own values, and their way to a webhook."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.servers import Alertmanager, Prometheus, free_port, get, program
from tests.waiting import eventually

from pulsetrain.alerts.engine import AlertEngine
from pulsetrain.alerts.prometheus import TEMPLATES, render_alertmanager, render_rules
from pulsetrain.errors import UsageError
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.recording import RECORDING_RULES
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.settings import load_thresholds
from pulsetrain.snapshot import Sample, Snapshot, Subject

SHIPPED = files("pulsetrain") / "deploy/stack/prometheus"
TRAINING = Path(__file__).parents[1] / "deploy/stack/training.py"
"""Reports all that a training can tell, until it is stopped."""


def run(*command: str) -> str:
    done = subprocess.run([program(command[0]), *command[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alert_rules(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Alerts by name and severity."""
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    return {(rule["alert"], rule["labels"]["severity"]): rule for rule in rules if "alert" in rule}


@pytest.fixture
def configuration(tmp_path: Path) -> Callable[..., str]:
    """Write Alertmanager's configuration and the texts beside it; its path."""

    def write(**receivers: str) -> str:
        (tmp_path / TEMPLATES).write_text((SHIPPED / TEMPLATES).read_text())
        (tmp_path / "alertmanager.yml").write_text(render_alertmanager(**receivers))
        return str(tmp_path / "alertmanager.yml")

    return write


# Rules


@pytest.mark.parametrize("thresholds", [Thresholds(), Thresholds(cost_limit=50, energy_limit_kwh=9, carbon_limit_kg=4)])
def test_promtool_finds_nothing_wrong_with_the_rules(thresholds: Thresholds, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(render_rules(thresholds, grafana="https://grafana.example"))
    run("promtool", "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))


def test_a_budget_alerts_only_when_a_limit_is_set() -> None:
    assert not [name for name, _ in alert_rules(render_rules()) if name.endswith("AboveLimit")]
    rules = alert_rules(render_rules(Thresholds(cost_limit=250.0)))
    assert rules["CostAboveLimit", "critical"]["expr"].endswith("> 250")
    assert ("EnergyAboveLimit", "warning") not in rules


def test_a_file_changes_thresholds_and_times_and_switches_alerts_off(tmp_path: Path) -> None:
    file = tmp_path / "thresholds.toml"
    file.write_text('gpu_hot_celsius = 75\noff = ["MemoryPressure"]\n[hold]\nGpuHot = "30s"\n')
    rules = alert_rules(render_rules(load_thresholds(file)))
    assert rules["GpuHot", "warning"]["expr"].startswith("(gpu_temperature_celsius > 75)\nor ")
    assert rules["GpuHot", "warning"]["for"] == rules["GpuHot", "critical"]["for"] == "30s"
    assert "Above 75 °C" in rules["GpuHot", "warning"]["annotations"]["description"]
    assert len(rules) == len(alert_rules(render_rules())) - 1


def test_prometheus_keeps_an_alert_within_its_margin_as_the_live_engine_does(tmp_path: Path) -> None:
    """At 78 °C, an alert that fires stays, and one that was resolved does not come back."""
    course = {10: 85, 30: 78, 40: 76, 60: 78}
    """Degrees, each up to a minute."""
    values = [next(degrees for until, degrees in course.items() if minute < until) for minute in range(60)]
    limits = Thresholds(hold={"GpuHot": "2m"})
    engine = AlertEngine(limits, {"host": "a", "run": "r"})
    board, firing, expected = Subject("gpu", "G", {"gpu_index": 0, "uuid": "G"}), False, []
    for minute, degrees in enumerate(values):
        sample = Sample(board, {"up": 1, "temperature_celsius": float(degrees)})
        for event in engine(Snapshot(1.8e9 + 60 * minute, 60.0 * minute, (sample,))).events:
            firing = event.kind == "alert_firing"
        expected.append(firing)
    assert expected == [False] * 2 + [True] * 28 + [False] * 30

    labels = '{gpu="0",host="a",run="r",uuid="G"}'
    alert = f'ALERTS{labels[:-1]},alertname="GpuHot",alertstate="firing",severity="warning",topic="machine"}}'
    questions = [
        {"expr": 'ALERTS{alertname="GpuHot", alertstate="firing"}', "eval_time": f"{minute}m",
         "exp_samples": [{"labels": alert, "value": 1}] if fires else []}
        for minute, fires in enumerate(expected)
        if minute not in (30, 31)  # Prometheus counts from when it is first false, the engine from when it is last true
    ]  # fmt: skip
    test = {
        "interval": "1m",
        "input_series": [{"series": f"gpu_temperature_celsius{labels}", "values": " ".join(map(str, values))}],
        "promql_expr_test": questions,
    }
    (tmp_path / "rules.yml").write_text(render_rules(limits))
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    run("promtool", "test", "rules", str(tmp_path / "test.yml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu_hot = 75", "gpu_hot_celsius"),
        ('gpu_hot_celsius = "warm"', "gpu_hot_celsius"),
        ('loss_window = "soon"', "loss_window"),
        ('off = ["GpuCold"]', "unknown rule: GpuCold"),
        ('[hold]\nGpuHot = "5 minutes"', "hold"),
        ("[", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_reported(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "thresholds.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_thresholds(tmp_path / "thresholds.toml")
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_thresholds(tmp_path / "thresholds.toml")


def test_alerts_of_one_name_differ_in_severity() -> None:
    assert len({(alert.name, alert.severity) for alert in RULES}) == len(RULES)


# Alertmanager


@pytest.mark.parametrize(
    "receivers",
    [{}, {"webhook": "http://127.0.0.1:5001/"}, {"slack": "https://hooks.example/x", "webhook": "https://example/"}],
)
def test_amtool_accepts_the_configuration(receivers: dict[str, str], configuration: Callable[..., str]) -> None:
    assert "1 templates" in run("amtool", "check-config", configuration(**receivers))


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=GpuLost severity=critical host=a", "critical"),
        ("alertname=GpuHot severity=warning host=a", "warning"),
        ("alertname=MemoryPressure severity=info", "info"),
        ("alertname=SomebodyElses", "warning"),
    ],
)
def test_an_alert_goes_to_the_receiver_of_its_severity(
    labels: str, receiver: str, configuration: Callable[..., str]
) -> None:
    config = f"--config.file={configuration()}"
    run("amtool", "config", "routes", "test", config, f"--verify.receivers={receiver}", *labels.split())


def test_a_message_says_since_when_what_to_do_and_where_to_look(configuration: Callable[..., str]) -> None:
    folder = Path(configuration()).parent
    alert = {
        "status": "firing",
        "labels": {"severity": "critical"},
        "annotations": {
            "summary": "GPU 3 on gpu01 is at 93 °C",
            "description": "Above 90 °C.",
            "help": "Lower the power limit.",
            "dashboard": "http://grafana:3000/d/pulsetrain-run?var-run=r1",
        },
        "startsAt": "2026-11-16T12:30:00+02:00",
    }
    ended = alert | {"status": "resolved", "endsAt": "2026-11-16T11:00:00Z"}
    data = {"status": "firing", "commonLabels": {"run": "r1", "host": "gpu01"}, "alerts": [alert, ended]}
    (folder / "data.json").write_text(json.dumps(data))
    message = run(
        "amtool",
        "template",
        "render",
        f"--template.glob={folder}/{TEMPLATES}",
        '--template.text={{ template "pulsetrain.title" . }}\n{{ template "pulsetrain.text" . }}',
        f"--template.data={folder}/data.json",
    )
    assert message.strip().splitlines() == [
        "1 firing, run r1, gpu01",
        "CRITICAL: GPU 3 on gpu01 is at 93 °C",
        "Above 90 °C.",
        "Since 2026-11-16 10:30 UTC",
        "What to do: Lower the power limit.",
        "http://grafana:3000/d/pulsetrain-run?var-run=r1",
        "",
        "RESOLVED: GPU 3 on gpu01 is at 93 °C",
        "Above 90 °C.",
        "Since 2026-11-16 10:30 UTC until 2026-11-16 11:00 UTC",
        "http://grafana:3000/d/pulsetrain-run?var-run=r1",
    ]


# From a hot GPU to a webhook, through the real servers


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A small server; its address."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def exporter(series: dict[str, float]) -> type[BaseHTTPRequestHandler]:
    """Shows these series, as they are at the moment of a scrape."""

    class Exporter(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("".join(f"{name} {value}\n" for name, value in series.items()).encode())

    return Exporter


def webhook(received: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Webhook(Quiet):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    return Webhook


def test_a_hot_gpu_and_a_lost_one_reach_a_webhook_once_and_with_what_to_do(tmp_path: Path) -> None:
    """The warning of the hot GPU stays quiet below its critical alert, and so do all others of the lost one."""
    labels = 'host="gpu01",run="r1"'
    series = {
        f'gpu_temperature_celsius{{gpu="0",uuid="GPU-0",{labels}}}': 95.0,
        f'gpu_temperature_celsius{{gpu="1",uuid="GPU-1",{labels}}}': 95.0,
        f'gpu_temperature_celsius{{gpu="2",uuid="GPU-2",{labels}}}': 60.0,
        f'gpu_up{{gpu="0",uuid="GPU-0",{labels}}}': 1,
        f'gpu_up{{gpu="1",uuid="GPU-1",{labels}}}': 0,
    }
    received: list[dict[str, Any]] = []
    thresholds = Thresholds(hold={"GpuHot": "1s", "GpuLost": "1s"})
    (tmp_path / "rules.yml").write_text(render_rules(thresholds, grafana="http://grafana:3000"))
    (tmp_path / TEMPLATES).write_text((SHIPPED / TEMPLATES).read_text())
    with (
        answering(exporter(series)) as target,
        answering(webhook(received)) as address,
        Alertmanager(tmp_path, render_alertmanager(webhook=f"http://{address}/")) as manager,
        Prometheus(tmp_path / "p", [target], [tmp_path / "rules.yml"], f"127.0.0.1:{manager.port}"),
    ):
        assert eventually(lambda: received, seconds=60)
        known = [(alert["labels"], alert["status"]["state"]) for alert in get(f"{manager.url}/api/v2/alerts")]
    quiet = {(about["alertname"], about["severity"], about["gpu"]) for about, state in known if state == "suppressed"}
    assert quiet == {("GpuHot", "warning", "0"), ("GpuHot", "warning", "1"), ("GpuHot", "critical", "1")}
    (message,) = received
    assert message["receiver"] == "critical"
    assert message["groupLabels"] == {"host": "gpu01", "run": "r1"}
    told = {(alert["labels"]["alertname"], alert["labels"]["gpu"]): alert for alert in message["alerts"]}
    assert told.keys() == {("GpuHot", "0"), ("GpuLost", "1")}
    notes = told["GpuHot", "0"]["annotations"]
    assert notes["summary"] == "GPU 0 on gpu01 is at 95 °C"
    assert notes["help"].startswith("Pause the run")
    assert notes["dashboard"] == "http://grafana:3000/d/pulsetrain-run?var-run=r1"


# What a run exports


def test_every_recording_rule_has_data_of_a_simulated_run_and_nothing_critical_is_found(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(render_rules())
    port = free_port()
    run = [sys.executable, "-m", "pulsetrain", "run", "--quiet", "--simulate", "8xH100", "--price", "2.50 USD/GPUh"]
    command = [*run, "--prometheus-port", str(port), "--", sys.executable, str(TRAINING)]
    environment = {**os.environ, "PULSETRAIN_HOME": str(tmp_path / "home")}
    with (
        subprocess.Popen(command, env=environment, cwd=tmp_path) as training,
        Prometheus(tmp_path / "p", [f"127.0.0.1:{port}"], [tmp_path / "rules.yml"]) as server,
    ):
        try:
            names = [recording.name for recording in RECORDING_RULES]
            eventually(lambda: all(map(server.query, names)), seconds=80)
            assert [name for name in names if not server.query(name)] == []
            assert server.query('ALERTS{severity="critical"}') == []
        finally:
            training.terminate()
