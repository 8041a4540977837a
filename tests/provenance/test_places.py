"""Where a run is: what started it, its container, its cloud; price and carbon of that; and a spot machine's notice."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.provenance.metadata_server import AMAZON, AZURE, GOOGLE, serving

from pulsetrain.provenance.accounting import account_of
from pulsetrain.provenance.environment import allowed
from pulsetrain.provenance.metadata import Amazon, Azure, Google, MetadataError, this_cloud
from pulsetrain.provenance.places import cpu_model, place_of
from pulsetrain.provenance.spot import SpotNotice
from pulsetrain.runs.description import Place
from pulsetrain.snapshot import Event, Sample
from pulsetrain.sources import Source


def test_schedulers_and_platforms_are_recognized_by_their_variables(tmp_path: Path) -> None:
    environment = {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_PARTITION": "gpu",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "HOSTNAME": "train-0",
        "SKYPILOT_TASK_ID": "sky-1",
        "SKYPILOT_CLUSTER_INFO": json.dumps(
            {"cluster_name": "mine", "cloud": "GCP", "region": "us-west1", "zone": None}
        ),
        "DSTACK_RUN_NAME": "red-fox",
        "RAY_JOB_ID": "02",
        "KUBEFLOW_TRAINER_SERVER_URL": "https://me:sesame@server/",
        "COLAB_RELEASE_TAG": "release-1",
        "HF_TOKEN": "sesame",
    }
    namespace = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/namespace"
    namespace.parent.mkdir(parents=True)
    namespace.write_text("team-a")
    place = place_of(environment, tmp_path)
    assert place.platforms["slurm"] == {"job_id": "12", "partition": "gpu"}
    assert place.platforms["kubernetes"] == {"pod": "train-0", "namespace": "team-a"}
    assert place.platforms["skypilot"] == {"task": "sky-1", "cluster": "mine"}
    assert place.platforms.keys() >= {"dstack", "ray", "kubeflow", "colab"}
    assert (place.cloud, place.region, place.told_by) == ("gcp", "us-west1", "SkyPilot")
    assert account_of(place, []).carbon_region == "gcp:us-west1"
    assert "sesame" not in repr(place)
    assert allowed({**environment, "NCCL_DEBUG": "INFO"}) == {"NCCL_DEBUG": "INFO"}


def test_containers_and_the_processor_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "run/.containerenv").write_text('engine="podman-5.4"\nimage="quay.io/me/train:1"\n')
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name\t: AMD  EPYC 7763\n")
    assert place_of({}, tmp_path).container == "quay.io/me/train:1"
    assert place_of({"APPTAINER_CONTAINER": "/images/train.sif"}, tmp_path).container == "/images/train.sif"
    assert cpu_model(tmp_path) == "AMD EPYC 7763"
    assert place_of({}, tmp_path / "proc").container == cpu_model(tmp_path / "run") == ""


def test_only_the_cloud_that_the_firmware_names_is_asked(tmp_path: Path) -> None:
    dmi = tmp_path / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    assert this_cloud({}, tmp_path) is None
    (dmi / "sys_vendor").write_text("Microsoft Corporation\n")
    assert this_cloud({}, tmp_path) is None  # a machine at home may be one of Hyper-V's
    (dmi / "chassis_asset_tag").write_text("7783-7084-3265-9085-8269-3286-77\n")
    assert isinstance(this_cloud({}, tmp_path), Azure)
    (dmi / "sys_vendor").write_text("Amazon EC2\n")
    assert isinstance(this_cloud({}, tmp_path), Amazon)
    assert this_cloud({"AWS_EC2_METADATA_DISABLED": "true"}, tmp_path) is None
    (dmi / "sys_vendor").write_text("Google\n")
    assert isinstance(this_cloud({}, tmp_path), Google)


def test_each_clouds_machine_its_price_and_its_carbon_are_known_and_what_is_not_listed_is_not() -> None:
    with serving(GOOGLE) as server:
        google = this_cloud({"GCE_METADATA_HOST": server.address}, Path("/nowhere"))
        assert google
        place = google.place()
        assert (place.machine_type, place.zone, place.region) == ("g2-standard-4", "europe-west4-a", "europe-west4")
        assert (place.spot, place.image) == (False, "common-cu129-v1")
        account = account_of(place, ["NVIDIA L4"])
        assert (account.price, account.carbon_region) == ("gcp:g2-standard-4@europe-west4", "gcp:europe-west4")
        assert not any("attributes" in path for path in server.asked)  # users keep secrets there
    place.spot = True
    assert account_of(place, ["NVIDIA L4"]).price is None  # no spot price is listed
    n1 = Place(cloud="gcp", machine_type="n1-standard-4", region="us-central1")
    assert account_of(n1, ["Tesla T4"]).price == "gcp:n1-standard-4+T4@us-central1"
    assert account_of(n1, []).price is None
    with serving(AMAZON) as server:
        place = Amazon(server.url).place()
        assert (place.machine_type, place.region, place.zone, place.spot) == (
            "p4d.24xlarge",
            "eu-west-1",
            "eu-west-1b",
            True,
        )
        assert (account_of(place, []).price, account_of(place, []).carbon_region) == (None, "IE")
    with serving(AZURE) as server:
        place = Azure(server.url).place()
        assert (place.machine_type, place.region, place.spot) == ("Standard_NC24ads_A100_v4", "westeurope", True)
        assert account_of(place, []).carbon_region == "NL"


def test_a_metadata_server_that_is_away_or_talks_nonsense_is_an_error_of_ours() -> None:
    with serving(AZURE) as server:
        server.pages = dict.fromkeys(server.pages, "<html>")
        with pytest.raises(MetadataError, match="not JSON"):
            Azure(server.url).place()
    with pytest.raises(MetadataError, match="does not answer"):
        Google(server.url).place()


@pytest.mark.parametrize(
    ("cloud", "pages", "page", "notice", "words"),
    [
        (Google, GOOGLE, "/computeMetadata/v1/instance/preempted", "TRUE", "Google Cloud preempts it"),
        (
            Amazon,
            AMAZON,
            "/latest/meta-data/spot/instance-action",
            '{"action": "terminate", "time": "2026-11-18T08:22:00Z"}',
            "AWS will terminate it at 2026-11-18T08:22:00Z",
        ),
        (
            Azure,
            AZURE,
            "/metadata/scheduledevents?api-version=2020-07-01",
            '{"Events": [{"EventType": "Preempt", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}]}',
            "Azure will preempt it at Mon, 19 Sep 2016",
        ),
    ],
)
def test_the_notice_of_a_spot_machine_is_a_metric_and_one_event(
    cloud: type[Google | Amazon | Azure],
    pages: dict[str, str],
    page: str,
    notice: str,
    words: str,
    read: Callable[[Source], list[Sample]],
    events: Callable[[Source], list[Event]],
) -> None:
    with serving(pages) as server:
        source = SpotNotice(cloud(server.url))
        assert [sample.values for sample in read(source)] == [{"end_announced": 0.0}]
        server.pages[page] = notice
        (event,) = events(source)
        assert event.severity == "critical" and words in event.message
        assert [sample.values for sample in read(source)] == [{"end_announced": 1.0}]
        assert events(source) == []
