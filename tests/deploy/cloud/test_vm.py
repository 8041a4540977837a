"""GPU machines, by the real gcloud: what Google is asked for, and what a user reads when it refuses."""

import json
from pathlib import Path

import pytest
from tests.deploy.cloud.conftest import Cloud
from tests.deploy.cloud.google import PROJECT, QUOTA, STOCK_OUT, Google, refusal

from pulsetrain.deploy.cloud.gcloud import error_of
from pulsetrain.deploy.cloud.machines import find_machine, price_words
from pulsetrain.deploy.cloud.vm import check_duration, newest_family
from pulsetrain.errors import PulsetrainError, UsageError

MAKE = "POST zones/us-central1-a/instances"
OPEN = "POST global/firewalls"
MINE = ("--project", PROJECT)
"""gcloud takes seconds for each question: what need not be asked is said."""
KNOWN = (*MINE, "--image-family", "common-cu129-ubuntu-2204-nvidia-580")
FAMILIES = ["common-cu113-debian-11", "common-cu128-ubuntu-2204-nvidia-570", "common-cu129-ubuntu-2204-nvidia-580"]


def test_a_machine_is_planned_created_listed_installed_and_deleted(
    cloud: Cloud, google: Google, environment: dict[str, str], tmp_path: Path
) -> None:
    planned = cloud("vm", "create", "trainer", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert google.requests == []
    for text in (
        "g2-standard-4, 1 x L4, on demand",
        "0.707 USD an hour, as of 2026",
        "the 150 GB disk",
        "stops by itself after 24h",
        "413 g CO2 per kWh",
        "none opened; see its pages",
        "nothing was changed, and nothing costs money",
    ):
        assert text in planned.stdout

    ports = ("--http", "--port", "8080", "--source-ranges", "203.0.113.7/32")
    made = cloud(
        "vm", "create", "trainer", "--gpu", "t4", "--spot", "--max-run-duration", "8h", *ports, "--yes", *KNOWN
    )
    assert made.returncode == 0, made.stderr
    assert google.changes() == [MAKE, OPEN]
    machine = google.body(MAKE)
    compute = f"{google.url}/compute/v1/projects"
    assert machine["name"] == "trainer"
    assert machine["machineType"] == f"{compute}/{PROJECT}/zones/us-central1-a/machineTypes/n1-standard-4"
    (gpu,) = machine["guestAccelerators"]
    assert (gpu["acceleratorCount"], gpu["acceleratorType"].rpartition("/")[2]) == (1, "nvidia-tesla-t4")
    assert machine["scheduling"] == {
        "automaticRestart": False,
        "instanceTerminationAction": "STOP",
        "maxRunDuration": {"seconds": "28800"},
        "onHostMaintenance": "TERMINATE",
        "preemptible": True,
        "provisioningModel": "SPOT",
    }
    (disk,) = machine["disks"]
    assert disk["autoDelete"] is True
    image = f"{compute}/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580"
    assert disk["initializeParams"]["sourceImage"] == image
    assert disk["initializeParams"]["diskSizeGb"] == "150"
    assert machine["labels"] == {"pulsetrain": "vm"}
    assert machine["metadata"]["items"] == [{"key": "install-nvidia-driver", "value": "True"}]
    rule = google.body(OPEN)
    assert rule["name"] == "pulsetrain-trainer" and rule["targetTags"] == machine["tags"]["items"]
    assert rule["sourceRanges"] == ["203.0.113.7/32"]
    assert [one["ports"] for one in rule["allowed"]] == [["80"], ["8080"]]

    again = cloud("vm", "create", "trainer", "--yes", *KNOWN)
    assert again.returncode == 1 and google.requests.pop()[:2] == ("POST", "zones/us-central1-a/instances")
    assert "a machine named trainer already exists" in again.stderr and "It was not touched." in again.stderr

    google.instances["stranger"] = google.instances["trainer"] | {"name": "stranger", "labels": {}}
    google.firewalls["pulsetrain-other"] = rule | {"name": "pulsetrain-other", "description": "written by hand"}
    (listed,) = json.loads(cloud("vm", "list", "--json", *MINE).stdout)["machines"]
    assert (listed["name"], listed["spot"], listed["open_ports"]) == ("trainer", True, ["80", "8080"])
    assert listed["per_hour"] is None  # no spot price is known; and the machine of somebody else is not listed

    ssh = tmp_path / "bin/ssh"  # as gcloud calls it, which first tries the connection with a command of its own
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\necho "$(wc -c) $*" >> "$PULSETRAIN_HOME.log"\n')
    ssh.chmod(0o755)
    environment |= {"PATH": f"{ssh.parent}:{environment['PATH']}", "HOME": str(tmp_path)}
    installed = cloud("vm", "install", "trainer", "--zone", "us-central1-a", *MINE)
    assert installed.returncode == 0, installed.stderr
    called = (tmp_path / "home.log").read_text().splitlines()
    assert int(called[-1].split()[0]) > 100_000 and "203.0.113.7 -- d=$(mktemp -d)" in called[-1]
    assert all(line.startswith("0 ") for line in called[:-1])  # nothing else took what was meant for it
    assert (tmp_path / ".ssh/google_compute_engine").exists()

    google.requests.clear()
    deleted = cloud("vm", "delete", "trainer", "--yes", *MINE)
    assert deleted.returncode == 0, deleted.stderr
    assert google.changes() == [
        "DELETE zones/us-central1-a/instances/trainer",
        "DELETE global/firewalls/pulsetrain-trainer",
    ]
    assert list(google.instances) == ["stranger"] and list(google.firewalls) == ["pulsetrain-other"]


def test_a_zone_that_is_out_of_stock_leaves_nothing_and_names_the_zones_to_try(cloud: Cloud, google: Google) -> None:
    google.fail["instances"] = STOCK_OUT
    done = cloud("vm", "create", "trainer", "--http", "--source-ranges", "203.0.113.7/32", "--yes", *KNOWN)
    assert done.returncode == 1
    assert google.changes() == [MAKE]  # and no firewall rule for a machine that is not there
    assert "the machine was not created: " in done.stderr and "does not have enough resources" in done.stderr
    assert "Nothing was left behind, and nothing costs money." in done.stderr
    near, clean = done.stderr.index("us-central1-b (413 g/kWh)"), done.stderr.index("europe-west6-b (15 g/kWh)")
    assert near < clean < done.stderr.index("europe-west4-a (209 g/kWh)")
    assert "us-central1-a (413" not in done.stderr and "Traceback" not in done.stderr


def test_a_machine_whose_ports_were_refused_is_reported_as_there(cloud: Cloud, google: Google) -> None:
    google.refuse["firewalls"] = refusal(403, "Required 'compute.firewalls.create' permission for 'projects/x/y'")
    done = cloud("vm", "create", "trainer", "--https", "--source-ranges", "203.0.113.7/32", "--yes", *KNOWN)
    assert done.returncode == 1
    assert "the machine was created, but its ports were not opened" in done.stderr
    assert "trainer exists in us-central1-a (running) and costs money." in done.stderr
    assert "Ask an owner of demo-project for compute.firewalls.create" in done.stderr
    assert "To remove it: pulsetrain cloud vm delete trainer" in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("create", "Trainer"), "lowercase letters"),
        (("create", "t", "--gpu", "A1000"), "Did you mean A100"),
        (("create", "t", "--gpu", "T4", "--gpus", "8"), "Numbers offered: 1, 2, 4."),
        (("create", "t", "--gpu", "A100", "--machine-type", "g2-standard-4"), "a2-highgpu-1g"),
        (("create", "t", "--http"), "YOUR_IP/32"),
        (("create", "t", "--source-ranges", "203.0.113.7/32"), "no port is opened"),
        (("create", "t", "--http", "--source-ranges", "home"), "203.0.113.7/32"),
        (("create", "t", "--max-run-duration", "soon"), "8h, 90m or 2d"),
        (("create", "t"), "Add --yes"),
    ],
)
def test_wrong_usage_is_a_clear_error_before_anything_is_made(
    cloud: Cloud, google: Google, words: tuple[str, ...], text: str
) -> None:
    done = cloud("vm", *words, *KNOWN)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr
    assert google.requests == []


def test_without_gcloud_a_user_learns_how_to_get_it(
    cloud: Cloud, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment["PATH"] = str(tmp_path_factory.mktemp("empty"))
    done = cloud("vm", "list")
    assert done.returncode == 1
    assert done.stderr.startswith("error: gcloud is not installed.\n  hint: Install the Google Cloud CLI")


@pytest.mark.parametrize(
    ("said", "reason", "hint"),
    [
        (f"ERROR: (gcloud.x) Could not fetch resource:\n - {QUOTA['message']}", "quota", "NVIDIA_L4_GPUS"),
        (
            'ERROR: (gcloud.x) ResponseError: code=403, message=Insufficient regional quota to satisfy request: "CPUS"',
            "quota",
            "iam-admin/quotas?project=mine",
        ),
        ("ERROR: (gcloud.x) You do not currently have an active account selected.", "sign-in", "gcloud auth login"),
        ("ERROR: (gcloud.x) API [compute.googleapis.com] not enabled on project [mine].", "api", "services enable"),
        ("ERROR: (gcloud.x) PERMISSION_DENIED: This API method requires billing to be enabled.", "billing", "billing"),
        ("ERROR: gcloud crashed (TransportError): Unable to find the server at x", "network", "connection"),
        ("", "other", None),
    ],
)
def test_each_reason_to_refuse_has_a_way_out(said: str, reason: str, hint: str | None) -> None:
    error = error_of(said, "mine")
    assert error.reason == reason
    assert (hint in (error.hint or "")) if hint else error.hint is None
    assert error.message and not error.message.startswith("ERROR")


def test_machines_fit_their_gpus_and_prices_are_known_or_said_to_be_unknown() -> None:
    assert find_machine().type == "g2-standard-4"
    assert find_machine("h100", 8).type == "a3-highgpu-8g"
    assert find_machine(machine_type="g2-standard-96").gpus == 8
    assert find_machine("v100").accelerator == "type=nvidia-tesla-v100,count=1"
    assert find_machine("L4").accelerator is None
    with pytest.raises(UsageError, match="comes without a GPU"):
        find_machine(machine_type="n1-standard-8")
    with pytest.raises(UsageError, match="has 4 x L4, not 2"):
        find_machine("L4", 2, "g2-standard-48")
    assert price_words("n1-standard-8+V100", "us-central1-a", False).startswith("2.860 USD an hour")
    assert price_words("g2-standard-4", "us-central1-a", True).startswith("unknown for spot; at most 0.707 USD")
    assert price_words("g2-standard-96", "us-central1-a", False).startswith("unknown")


def test_the_image_is_the_newest_whose_driver_knows_the_gpu() -> None:
    families = [*FAMILIES, "common-cu131-ubuntu-2404-nvidia-595", "pytorch-2-9-cu129-ubuntu-2204-nvidia-580"]
    assert newest_family(families, find_machine("L4")) == "common-cu131-ubuntu-2404-nvidia-595"
    assert newest_family(families, find_machine("P100")) == "common-cu129-ubuntu-2204-nvidia-580"
    assert newest_family(FAMILIES[:1], find_machine("L4")) == "common-cu113-debian-11"
    with pytest.raises(PulsetrainError, match="no known image for a L4"):
        newest_family([], find_machine("L4"))


@pytest.mark.parametrize("text", ["8h", "90m", "1d12h"])
def test_durations_are_passed_on_as_they_were_said(text: str) -> None:
    assert check_duration(text) == text
