"""How many panels of the other exporters' own dashboards `--names` serves, by the metrics and labels they ask for."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.servers import Prometheus, free_port
from tests.waiting import eventually

from pulsetrain import catalog
from pulsetrain.outputs import Origin
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.snapshot import Event, Sample, Snapshot, Value

PEERS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "peer_dashboards.yml").read_text())
UUID = "GPU-265c9814-6156-355b-e589-ff2064894f16"
GPU = catalog.subject("gpu", {"gpu_index": 0, "uuid": UUID, "name": "NVIDIA H100"})
MIG = catalog.subject(
    "mig",
    {
        "gpu_index": 0,
        "uuid": UUID,
        "name": "NVIDIA H100 MIG 1g.10gb",
        "mig_uuid": "MIG-1",
        "gpu_instance": 1,
        "compute_instance": 0,
    },
)
PROCESS = catalog.subject("process", {"pid": 7, "user": "ada", "command": "python", "gpu_index": 0, "uuid": UUID})


def everything(table: str) -> dict[str, Value]:
    """A value in every field that a board can have."""
    values: dict[str, Value] = {
        metric.field: 1.0
        for metric in catalog.metrics_of(table)
        if metric.kind in ("gauge", "counter") and metric.by is None
    }
    return values


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Prometheus that scrapes a machine under the names of both exporters."""
    exporter = Exporter("127.0.0.1", free_port(), names=("dcgm", "nvidia_smi"))
    exporter.start(Origin("gpu01"))
    gpu: dict[str, Value] = {
        **everything("gpu"),
        "throttle_reasons": ["sw_power_cap"],
        "xid_code_errors": {"79": 1},
        "pci_bus_ids": {"00000000:3B:00.0": 1},
    }
    xid = Event("xid", "XID 79", "critical", {"uuid": UUID, "xid": 79})
    samples = (
        Sample(GPU, gpu),
        Sample(MIG, everything("mig")),
        Sample(PROCESS, everything("process")),
        Sample(catalog.HOST, {"gpu_driver_versions": {"580.95.05": 1}}),
    )
    exporter(Snapshot(1.8e9, 0.0, samples, (xid,)))
    try:
        address = exporter.url.removeprefix("http://").removesuffix("/")
        with Prometheus(tmp_path_factory.mktemp("peers"), targets=[address]) as prometheus:
            assert eventually(lambda: prometheus.query("nvidia_smi_gpu_info"))
            yield prometheus
    finally:
        exporter.close()


@pytest.mark.parametrize("dashboard", PEERS)
def test_every_panel_that_nvml_can_serve_has_its_metrics_and_labels(
    server: Prometheus, dashboard: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: dict[str, set[str]] = {}
    for series in server.query('{__name__=~"nvidia_smi_.+|DCGM_.+"}'):
        name = series["metric"].pop("__name__")
        shown.setdefault(name, set()).update(series["metric"])
    panels = PEERS[dashboard]["panels"]
    missing = [panel["title"] for panel in panels if not _served(panel, shown)]
    with capsys.disabled():
        print(f"\n{dashboard}: {len(panels) - len(missing)} of {len(panels)} panels")
    assert {*PEERS[dashboard]["variables"]} <= shown.keys()
    assert missing == []


def test_every_series_of_a_gpu_has_the_labels_that_dcgm_exporter_gives_it(server: Prometheus) -> None:
    wanted = {*PEERS["dcgm-exporter"]["every_series"]}
    without = [
        (series["metric"]["__name__"], missing)
        for series in server.query('{__name__=~"DCGM_.+"}')
        if (missing := wanted - series["metric"].keys())  # Prometheus has no empty labels
    ]
    assert without == []


def _served(panel: Any, shown: dict[str, set[str]]) -> bool:
    alternatives = [[name for name in one.split("|") if name in shown] for one in panel["metrics"]]
    labels: set[str] = set().union(*(shown[name] for names in alternatives for name in names))
    return all(alternatives) and {*panel["labels"]} <= labels
