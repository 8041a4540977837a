"""The Grafana dashboards that the package ships: fresh, valid, and with data in every panel.

There is no Grafana here. What it would draw is asked of a real Prometheus instead.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from grafana_foundation_sdk.models import units
from tests.servers import Prometheus, free_port, get, program
from tests.waiting import eventually

from pulsetrain import catalog
from pulsetrain.alerts.promql import promql
from pulsetrain.outputs import Origin
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.rules.recording import RECORDING_RULES
from pulsetrain.runs.folder import Run
from pulsetrain.snapshot import Label, Sample, Snapshot, Subject

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
UIDS = ["pulsetrain-cluster", "pulsetrain-fleet", "pulsetrain-host", "pulsetrain-remote", "pulsetrain-run"]
COLUMNS = 24

Board = dict[str, Any]


def shipped() -> dict[str, Board]:
    """The dashboards as users get them, by their uid."""
    folder = resources.files("pulsetrain.deploy.stack") / "grafana"
    found = [json.loads(file.read_text()) for file in folder.iterdir() if file.name.endswith(".json")]
    return {board["uid"]: board for board in sorted(found, key=lambda board: str(board["uid"]))}


BOARDS = shipped()


def panels(board: Board) -> Iterator[Any]:
    """All panels that draw something, also those within a folded row."""
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", ())


def expressions(board: Board) -> Iterator[tuple[str, str]]:
    """Every query, with the place where it stands."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield f"{board['title']}: {panel['title']} {target['refId']}", target["expr"]
    for annotation in board["annotations"]["list"]:
        yield f"{board['title']}: {annotation['name']}", annotation["target"]["expr"]


def substituted(expression: str, values: dict[str, str]) -> str:
    """A query as Grafana would send it, with a scrape every second."""
    known = {"__rate_interval": "10s", "__range": "5m", "__interval": "2s", **values}
    return re.sub(r"\$([a-z_]\w*)", lambda name: known[name[1]], expression)


def test_there_is_a_dashboard_for_runs_fleet_hosts_remote_machines_and_clusters() -> None:
    assert list(BOARDS) == UIDS


def test_the_shipped_files_are_what_the_code_builds(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "dashboards", tmp_path], cwd=ROOT, check=True)
    built = {file.name: file.read_text() for file in tmp_path.iterdir()}
    folder = ROOT / "src/pulsetrain/deploy/stack/grafana"
    assert built == {file.name: file.read_text() for file in folder.glob("*.json")}, "run: python -m dashboards"


@pytest.mark.parametrize("uid", UIDS)
def test_a_dashboard_is_what_grafanas_own_types_allow(uid: str) -> None:
    schema = json.loads((HERE / "grafana_schema/dashboard.schema.json").read_text())
    errors = jsonschema.Draft7Validator(schema).iter_errors(BOARDS[uid])
    assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []


def test_the_schema_refuses_an_option_that_a_panel_does_not_have() -> None:
    schema = json.loads((HERE / "grafana_schema/dashboard.schema.json").read_text())
    board = json.loads(json.dumps(BOARDS["pulsetrain-fleet"]))
    board["panels"][0]["options"]["colourMode"] = "value"
    assert not jsonschema.Draft7Validator(schema).is_valid(board)


@pytest.mark.parametrize("uid", UIDS)
def test_panels_fill_their_lines_and_do_not_overlap(uid: str) -> None:
    places = [panel["gridPos"] for panel in BOARDS[uid]["panels"]]
    places += [panel["gridPos"] for row in BOARDS[uid]["panels"] for panel in row.get("panels", ())]
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)
    for line in {place["y"] for place in places}:
        assert sum(place["w"] for place in places if place["y"] == line) == COLUMNS, line


@pytest.mark.parametrize("uid", UIDS)
def test_every_panel_has_a_number_of_its_own_and_says_what_it_shows(uid: str) -> None:
    found = list(panels(BOARDS[uid]))
    numbers = [panel["id"] for panel in [*BOARDS[uid]["panels"], *found]]
    assert len({*numbers}) == len(BOARDS[uid]["panels"]) + sum(
        len(panel.get("panels", ())) for panel in BOARDS[uid]["panels"]
    )
    assert [panel["title"] for panel in found if not panel["description"]] == []
    charts = [panel for panel in found if panel["type"] in ("timeseries", "stat", "state-timeline")]
    assert [panel["title"] for panel in charts if not panel["fieldConfig"]["defaults"].get("noValue")] == []


@pytest.mark.parametrize("uid", UIDS)
def test_queries_name_only_declared_metrics_and_the_dashboards_own_variables(uid: str) -> None:
    declared = {metric.name for metric in (*catalog.METRICS, *catalog.EXPORTED)} | {"ALERTS", "ALERTS_FOR_STATE"}
    variables = {variable["name"] for variable in BOARDS[uid]["templating"]["list"]}
    for place, expression in expressions(BOARDS[uid]):
        names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"([\w:]+)\{", expression)}
        assert names <= declared | {rule.name for rule in RECORDING_RULES}, place
        used = {*re.findall(r"\$([a-z_]\w*)", expression)} - {"__rate_interval", "__range", "__interval"}
        assert used <= variables, place


@pytest.mark.parametrize("uid", UIDS)
def test_units_are_grafanas_words(uid: str) -> None:
    known = {unit for unit in vars(units).values() if isinstance(unit, str)}
    for panel in panels(BOARDS[uid]):
        config = panel["fieldConfig"]
        values = [
            option["value"] for each in config["overrides"] for option in each["properties"] if option["id"] == "unit"
        ]
        for unit in [*values, config["defaults"].get("unit", "short")]:
            assert unit in known or unit.startswith(("si:", "suffix:")), panel["title"]


@pytest.mark.parametrize("uid", UIDS)
def test_links_lead_to_the_other_dashboards_and_keep_what_was_chosen(uid: str) -> None:
    (link,) = BOARDS[uid]["links"]
    assert link["type"] == "dashboards"
    assert link["includeVars"]
    assert link["keepTime"]
    assert all({*link["tags"]} <= {*board["tags"]} for board in BOARDS.values())
    for target, variable in re.findall(r"/d/([\w-]+)\?.*?var-(\w+)=\$\{__value", json.dumps(BOARDS[uid])):
        assert variable in {known["name"] for known in BOARDS[target]["templating"]["list"]}


def test_the_row_of_a_gpu_is_repeated_for_each_one_chosen() -> None:
    (row,) = (panel for panel in BOARDS["pulsetrain-host"]["panels"] if panel.get("repeat"))
    assert row["repeat"] == "gpu"
    assert all("$gpu" in target["expr"] for panel in row["panels"] for target in panel["targets"])


def test_promtool_accepts_every_query(tmp_path: Path) -> None:
    every = dict.fromkeys(("host", "gpu", "run"), ".+")
    rules = [
        {"record": f"dashboards:query{number}", "expr": substituted(expression, every)}
        for number, expression in enumerate(text for board in BOARDS.values() for _, text in expressions(board))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    ended = subprocess.run([program("promtool"), "check", "rules", file], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


class Workstation:
    """A machine with what a simulated one does not have: RAPL, a container's limits, MIG, others' processes.

    An agent shows it, and so does a run on it.
    """

    def __init__(self) -> None:
        self._exporters = [Exporter("127.0.0.1", free_port()) for _ in range(2)]
        agent, run = self._exporters
        agent.start(Origin("workstation"))
        about = Run(id="20261116-120000-other-0000", name="other", start=datetime.now(UTC))
        run.start(Origin("workstation", about))
        self.targets = [exporter.url.removeprefix("http://").removesuffix("/") for exporter in self._exporters]
        self._started = time.monotonic()

    def tick(self) -> None:
        elapsed = time.monotonic() - self._started
        gpu: dict[str, Label] = {"gpu_index": 0, "uuid": "GPU-5a", "name": "NVIDIA A100"}
        mig: dict[str, Label] = {"mig_uuid": "MIG-9c", "gpu_instance": 1, "compute_instance": 0, **gpu}
        process: dict[str, Label] = {"pid": 4711, "user": "ada", "command": "python", "container": "pod:7f/3f9c", **gpu}
        samples = (
            Sample(
                Subject("host", ""),
                {
                    "cpu_energy_joules": 80 * elapsed,
                    "dram_energy_joules": 12 * elapsed,
                    "container_memory_used_bytes": 2**34,
                    "container_memory_limit_bytes": 2**35,
                    "container_cpu_seconds": 3 * elapsed,
                    "container_cpu_throttled_seconds": 0.1 * elapsed,
                    "container_cpu_limit_cores": 4,
                },
            ),
            Sample(
                Subject("gpu", "GPU-5a", gpu), {"up": 1, "tensor_active_ratio": 0.4, "memory_temperature_celsius": 70}
            ),
            Sample(Subject("mig", "MIG-9c", mig), {"sm_active_ratio": 0.3, "memory_used_mb": 9000}),
            Sample(Subject("process", "GPU-5a 4711", process), {"gpu_memory_mb": 30000, "sm_ratio": 0.6}),
        )
        for exporter in self._exporters:
            exporter(Snapshot(time.time(), elapsed, samples))

    def close(self) -> None:
        for exporter in self._exporters:
            exporter.close()


@pytest.fixture(scope="module")
def workstation() -> Iterator[Workstation]:
    machine = Workstation()
    yield machine
    machine.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, workstation: Workstation) -> Iterator[Prometheus]:
    """A Prometheus that scrapes a run on eight simulated GPUs, and a workstation beside it."""
    folder, port = tmp_path_factory.mktemp("dashboards"), free_port()
    always = {"alert": "Watched", "expr": catalog.BUILD_INFO.name, "labels": {"severity": "warning"}}
    rules = folder / "rules.yml"
    recording = [{"record": rule.name, "expr": promql(rule.expression)} for rule in RECORDING_RULES]
    groups = {"always": [always], "recording": recording}
    rules.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": each} for name, each in groups.items()]}))
    with Prometheus(folder, targets=[f"127.0.0.1:{port}", *workstation.targets], rules=[rules]) as server:
        watched = [sys.executable, str(HERE / "training.py")]
        options = ["--simulate", "8xH100", "--prometheus-port", str(port), "--dir", str(folder / "runs"), "--quiet"]
        account = ["--carbon-region", "DE", "--price", "2.50 USD/GPUh"]
        command = [sys.executable, "-m", "pulsetrain", "run", *options, *account, "--", *watched]
        process = subprocess.Popen(command)
        try:
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def chosen(server: Prometheus, board: Board) -> dict[str, str]:
    """All values of every variable, as Grafana puts them into a query. None may be empty."""
    values: dict[str, str] = {}
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
        found = get(f"{server.url}/api/v1/label/{label}/values", **{"match[]": substituted(series, values)})["data"]
        values[variable["name"]] = f"({'|'.join(map(escaped, found))})"
    return values


def escaped(value: str) -> str:
    """A value within a regular expression within a string of a query."""
    return re.sub(r"[.*+?^$|()\[\]{}]", r"\\\\\g<0>", value)


def without_data(server: Prometheus, board: Board) -> list[str]:
    """The queries of a dashboard that bring no number now."""
    values = chosen(server, board)
    missing = [f"${name}" for name, value in values.items() if value == "()"]
    for panel in panels(board):
        if panel["title"].startswith("Cache "):  # a test of the cache asks those, with a cache
            continue
        for target in panel["targets"]:
            result = server.query(substituted(target["expr"], values))
            if all(series["value"][1] == "NaN" for series in result):
                missing.append(f"{panel['title']}: {target['expr']}")
    return missing


@pytest.mark.parametrize("uid", UIDS)
def test_every_query_of_every_panel_finds_data(prometheus: Prometheus, workstation: Workstation, uid: str) -> None:
    missing = ["Prometheus did not answer"]

    def found_all() -> bool:
        workstation.tick()
        missing[:] = without_data(prometheus, BOARDS[uid])
        return not missing

    eventually(found_all)
    assert missing == []


@pytest.mark.parametrize("uid", UIDS)
def test_what_the_columns_of_a_table_tell_of_one_subject_is_in_one_row(
    prometheus: Prometheus, workstation: Workstation, uid: str
) -> None:
    """Grafana joins rows whose labels agree: a label that is not a key of the table gives a column its own rows."""
    workstation.tick()
    values = chosen(prometheus, BOARDS[uid])
    for panel in (panel for panel in panels(BOARDS[uid]) if panel["type"] == "table"):
        keys = panel["transformations"][1]["options"]["renameByName"].keys()
        for target in panel["targets"]:
            labels = {label for one in prometheus.query(substituted(target["expr"], values)) for label in one["metric"]}
            assert labels <= keys, f"{panel['title']}: {target['expr']}"


def test_a_gpu_that_both_an_agent_and_a_run_show_counts_once(prometheus: Prometheus, workstation: Workstation) -> None:
    board = BOARDS["pulsetrain-fleet"]
    (gpus,) = (
        panel["targets"][0]["expr"] for panel in panels(board) if (panel["title"], panel["type"]) == ("GPUs", "stat")
    )

    def counted() -> bool:
        workstation.tick()
        twice = prometheus.query('gpu_up{host="workstation"}')
        (count,) = prometheus.query(substituted(gpus, chosen(prometheus, board)))
        return len(twice) == 2 and float(count["value"][1]) == 9

    assert eventually(counted)


def test_events_are_marked_once_where_they_happened(prometheus: Prometheus, workstation: Workstation) -> None:
    board = BOARDS["pulsetrain-run"]
    _, annotation = board["annotations"]["list"]  # phases are for information
    now = time.time()
    assert eventually(lambda: prometheus.query(f'{catalog.EVENTS.name}{{kind="phase_end"}}'))
    expression = substituted(annotation["target"]["expr"], chosen(prometheus, board))
    window = {"start": str(now - 300), "end": str(time.time()), "step": "2"}
    found = get(f"{prometheus.url}/api/v1/query_range", query=expression, **window)["data"]["result"]
    marks = {series["metric"]["kind"]: len(series["values"]) for series in found}
    assert marks["phase_begin"] == marks["phase_end"] == 1
