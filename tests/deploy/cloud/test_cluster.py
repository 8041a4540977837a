"""A cluster, by the real gcloud and kubectl: what is asked for, what is left after a refusal, and how it continues."""

from pathlib import Path

import pytest
from tests.deploy.cloud.conftest import Cloud
from tests.deploy.cloud.google import PROJECT, Google, refusal
from tests.deploy.cloud.kube_api import KubeApi

from pulsetrain.deploy.cloud.cluster import check_state, cost_words, differences, hourly_cost, state_of
from pulsetrain.deploy.cloud.cluster_file import read_cluster_file
from pulsetrain.errors import PulsetrainError, UsageError

FILE = f"""
name = "training"
project = "{PROJECT}"
zone = "us-central1-a"
[gpu]
type = "L4"
max_nodes = 4
spot = true
[pulsetrain]
image = "registry.example/pulsetrain:1"
cache_image = "registry.example/cache:1"
"""
CLUSTERS = "locations/us-central1-a/clusters"
NO_QUOTA = refusal(
    403,
    "Insufficient regional quota to satisfy request: resource \"PREEMPTIBLE_NVIDIA_L4_GPUS\": request requires '1.0' "
    "and is short '1.0'.",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.toml"
    file.write_text(FILE)
    return file


def test_an_init_that_was_refused_halfway_continues_where_it_stopped(
    cloud: Cloud, google: Google, kube: KubeApi, file: Path
) -> None:
    google.refuse["nodePools"] = NO_QUOTA
    refused = cloud("cluster", "init", file, "--yes")
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "Ask Google for more PREEMPTIBLE_NVIDIA_L4_GPUS" in refused.stderr
    assert "The cluster training exists, without GPU nodes, and costs money." in refused.stderr
    assert "`pulsetrain cloud cluster init` continues from here" in refused.stderr
    assert google.changes() == [f"POST {CLUSTERS}", f"POST {CLUSTERS}/training/nodePools"]
    cluster = google.body(f"POST {CLUSTERS}")["cluster"]
    assert cluster["resourceLabels"] == {"pulsetrain": "cluster"}
    assert cluster["nodePools"][0]["config"]["machineType"] == "e2-standard-4"
    assert cluster["monitoringConfig"]["managedPrometheusConfig"] == {"enabled": True}
    assert "DCGM" in cluster["monitoringConfig"]["componentConfig"]["enableComponents"]
    assert kube.requests == []

    google.refuse.clear()
    google.requests.clear()
    done = cloud("cluster", "init", file, "--yes")
    assert done.returncode == 0, done.stderr
    assert "the cluster (running), no GPU pool yet" in done.stdout
    assert google.changes() == [f"POST {CLUSTERS}/training/nodePools"]  # the cluster was there
    pool = google.body(f"POST {CLUSTERS}/training/nodePools")["nodePool"]
    assert pool["autoscaling"] == {"enabled": True, "maxNodeCount": 4, "minNodeCount": 0}
    assert pool["initialNodeCount"] == 0 and pool["config"]["spot"] is True
    assert pool["config"]["accelerators"] == [
        {
            "acceleratorCount": "1",
            "acceleratorType": "nvidia-l4",
            "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
        }
    ]
    applied = {path.rpartition("/")[2] for method, path in kube.requests if method == "PATCH"}
    assert {"pulsetrain-agent", "pulsetrain-cache", "pulsetrain-collector", "pulsetrain-tokens"} <= applied
    config = file.parent / f"home/clusters/{PROJECT}_us-central1-a_training.yaml"
    assert config.exists() and not (file.parent / "kubeconfig").exists()  # the user's own was not touched

    tokens = kube.objects["/api/v1/namespaces/pulsetrain/secrets/pulsetrain-tokens"]
    google.requests.clear()
    again = cloud("cluster", "init", file, "--yes")
    assert again.returncode == 0, again.stderr
    assert google.changes() == []
    assert kube.objects["/api/v1/namespaces/pulsetrain/secrets/pulsetrain-tokens"] == tokens

    node = {"node.kubernetes.io/instance-type": "g2-standard-4", "cloud.google.com/gke-accelerator": "nvidia-l4"}
    labels = node | {"cloud.google.com/gke-spot": "true"}
    kube.objects["/api/v1/nodes/a"] = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a", "labels": labels}}
    shown = cloud("cluster", "status", file)
    assert shown.returncode == 1  # no pod is ready
    assert "cluster    training in us-central1-a: running" in shown.stdout
    assert "node pool  gpu: running, 0 to 4 nodes of g2-standard-4, 1 x nvidia-l4, spot" in shown.stdout
    assert "daemonset  pulsetrain-agent: 0 of 1 ready" in shown.stdout
    assert "cost now   0.707 USD an hour, spot counted at the on-demand price; GKE's fee" in shown.stdout

    google.requests.clear()
    deleted = cloud("cluster", "delete", file, "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert google.changes() == [f"DELETE {CLUSTERS}/training"]
    assert ("DELETE", "/api/v1/namespaces/pulsetrain") in kube.requests  # first, for the sake of its disks
    assert not config.exists() and google.clusters == {}


def test_a_dry_run_says_what_will_cost_money_and_changes_nothing(cloud: Cloud, google: Google, file: Path) -> None:
    done = cloud("cluster", "init", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    for text in (
        "1 x e2-standard-4, always on",
        "0 to 4, as needed; each g2-standard-4, 1 x L4, spot",
        "full cost     2.828 USD an hour, spot counted at the on-demand price; and 1 x e2-standard-4, whose price",
        "GKE's cluster fee",
        "exists now    nothing",
        "gcloud container clusters create training",
        "gcloud container node-pools create gpu",
        "DaemonSet pulsetrain-agent",
        "nothing costs money",
    ):
        assert text in done.stdout
    assert google.requests == []


def test_a_cluster_of_somebody_else_is_left_alone(cloud: Cloud, google: Google, file: Path) -> None:
    google.clusters["training"] = {"name": "training", "status": "RUNNING", "location": "us-central1-a"}
    done = cloud("cluster", "delete", file, "--yes")
    assert done.returncode == 1 and "was not created by `cluster init`" in done.stderr
    assert google.requests == []
    with pytest.raises(PulsetrainError, match="did not create it"):
        check_state(read_cluster_file(file), state_of(google.clusters["training"]))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('type = "L4"', 'type = "T4"\nper_node = 8', "no machine with 8 x T4"),
        ('type = "L4"', 'type = "H100"\nper_node = 3', "per_node is 3"),
        ('type = "L4"', 'type = "A100"\nmachine_type = "n1-standard-4"', "cannot have a A100"),
        ("max_nodes = 4", "max_nodes = 0", "never be a GPU node"),
        ("max_nodes = 4", "max_nodes = 4\nmin_nodes = 5", "min_nodes is above max_nodes"),
        ("spot = true", "spott = true", "spott"),
        ('name = "training"', 'name = "Training"', "lowercase"),
        ('image = "registry.example/pulsetrain:1"', "", "image"),
    ],
)
def test_what_cannot_be_is_refused_before_google_is_asked(file: Path, old: str, new: str, text: str) -> None:
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(UsageError, match=text):
        read_cluster_file(file)


def test_every_gpu_from_k80_to_h100_has_a_pool(file: Path) -> None:
    for gpu, count in (("K80", 8), ("P100", 4), ("V100", 8), ("T4", 4), ("L4", 8), ("A100", 8), ("H100", 8)):
        file.write_text(FILE.replace('type = "L4"', f'type = "{gpu}"\nper_node = {count}'))
        assert read_cluster_file(file).gpu.machine.gpus == count


def test_a_pool_that_differs_from_the_file_is_named_and_not_changed(file: Path) -> None:
    config = {
        "machineType": "g2-standard-24",
        "accelerators": [{"acceleratorCount": "2", "acceleratorType": "nvidia-l4"}],
    }
    pool = {"name": "gpu", "status": "RUNNING", "config": config, "autoscaling": {"enabled": True, "maxNodeCount": 4}}
    there = state_of({"name": "training", "status": "RUNNING", "nodePools": [pool]})
    assert list(differences(read_cluster_file(file), there)) == [
        "machine type: it has g2-standard-24, the file says g2-standard-4",
        "GPUs per node: it has 2, the file says 1",
        "spot: it has False, the file says True",
    ]


def test_costs_add_up_and_what_is_unknown_is_named() -> None:
    zone = "us-central1-a"
    assert cost_words(hourly_cost(zone, [("g2-standard-4", False, 2)])) == "1.414 USD an hour"
    assert cost_words(hourly_cost(zone, [("g2-standard-96", False, 1)])) == "1 x g2-standard-96, whose price is unknown"
