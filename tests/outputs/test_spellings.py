"""The names of other exporters: their labels, their units."""

from pulsetrain.live import Live
from pulsetrain.outputs.families import families
from pulsetrain.snapshot import Event, Label, Sample, Snapshot, Subject, Value

UUID = "GPU-265C9814-6156-355b-e589-ff2064894f16"
GPU = Subject("gpu", UUID, {"gpu_index": 3, "uuid": UUID, "name": "NVIDIA H100"})


def spelled(name: str, *snapshots: dict[str, Value], events: tuple[Event, ...] = ()) -> dict[str, float]:
    live = Live()
    for elapsed, values in enumerate(snapshots):
        live(Snapshot(1.8e9 + elapsed, elapsed, (Sample(GPU, {"up": 1, **values}),), events))
    found = families(live, {"host": "gpu01", "run": "r1"}, (name,))
    return {family.name: family.points[0].value for family in found}


def labels(name: str, subject: Subject, **values: Value) -> dict[str, dict[str, str]]:
    live = Live()
    live(Snapshot(1.8e9, 0.0, (Sample(subject, values),)))
    found = families(live, {"host": "gpu01", "run": "r1"}, (name,))
    return {family.name: dict(family.points[0].labels) for family in found}


def test_dcgm_has_its_own_units() -> None:
    found = spelled(
        "dcgm",
        {
            "clock_sm_hertz": 1_980_000_000,
            "energy_joules": 12.5,
            "memory_controller_ratio": 0.5,
            "memory_total_mb": 81559.0,
            "memory_used_mb": 1000.0,
            "memory_free_mb": 80000.0,
            "utilization_percent": 97.0,
            "tensor_active_ratio": 0.25,
        },
    )
    assert found["DCGM_FI_DEV_SM_CLOCK"] == 1980
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == 12500
    assert found["DCGM_FI_DEV_MEM_COPY_UTIL"] == 50
    assert found["DCGM_FI_DEV_FB_USED"] == 1000
    assert found["DCGM_FI_DEV_FB_RESERVED"] == 559
    assert found["DCGM_FI_DEV_GPU_UTIL"] == 97
    assert found["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"] == 0.25
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in found


def test_dcgm_labels_are_those_of_dcgm_exporter() -> None:
    assert labels("dcgm", GPU, up=1, utilization_percent=1.0)["DCGM_FI_DEV_GPU_UTIL"] == {
        "gpu": "3",
        "UUID": UUID,
        "device": "nvidia3",
        "modelName": "NVIDIA H100",
        "Hostname": "gpu01",
    }


def test_both_tell_the_address_on_the_pci_bus_also_of_a_mig_instance() -> None:
    about: dict[str, Label] = {"gpu_index": 3, "uuid": UUID, "name": "NVIDIA H100 MIG 1g.10gb", "gpu_instance": 9}
    address: dict[str, Value] = {"up": 1, "temperature_celsius": 61.0, "pci_bus_ids": {"00000000:3B:00.0": 1}}
    instance = Sample(Subject("mig", "MIG-1", about), {"memory_used_mb": 10.0})
    live = Live()
    live(Snapshot(1.8e9, 0.0, (Sample(GPU, address), instance)))
    found = {family.name: family for family in families(live, {"host": "gpu01"}, ("dcgm", "nvidia_smi"))}
    for name in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "nvidia_smi_gpu_info"):
        (point,) = found[name].points
        assert dict(point.labels)["pci_bus_id"] == "00000000:3B:00.0"


def test_volatile_ecc_errors_are_apart_from_those_of_all_time_and_absent_where_there_are_none() -> None:
    ecc: dict[str, Value] = {"ecc_uncorrected_errors": 7, "ecc_volatile_uncorrected_errors": 1}
    found = spelled("dcgm", ecc) | spelled("nvidia_smi", ecc)
    assert (found["DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"], found["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"]) == (7, 1)
    assert found["nvidia_smi_ecc_errors_uncorrected_volatile_total"] == 1
    absent = ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "nvidia_smi_fabric_state", "nvidia_smi_gpu_recovery_action")
    assert found.keys().isdisjoint(absent)


def test_dcgm_reports_the_profile_and_number_of_a_mig_instance() -> None:
    about: dict[str, Label] = {"gpu_index": 3, "uuid": UUID, "name": "NVIDIA H100 MIG 1g.10gb", "gpu_instance": 9}
    found = labels("dcgm", Subject("mig", "MIG-1", about), memory_used_mb=10.0)
    told = found["DCGM_FI_DEV_FB_USED"]
    assert (told["modelName"], told["GPU_I_PROFILE"], told["GPU_I_ID"]) == ("NVIDIA H100", "1g.10gb", "9")


def test_dcgm_reports_the_number_of_the_last_xid_error() -> None:
    assert spelled("dcgm", {"xid_errors": 0})["DCGM_FI_DEV_XID_ERRORS"] == 0
    lost = Event("xid", "fallen off the bus", "critical", {"uuid": UUID, "xid": 79})
    assert spelled("dcgm", {"xid_errors": 1}, events=(lost,))["DCGM_FI_DEV_XID_ERRORS"] == 79


def test_dcgm_nvlink_traffic_is_a_rate() -> None:
    found = spelled(
        "dcgm",
        {"nvlink_received_bytes": 0, "nvlink_sent_bytes": 0},
        {"nvlink_received_bytes": 3_000_000, "nvlink_sent_bytes": 1_000_000},
    )
    assert found["DCGM_FI_PROF_NVLINK_RX_BYTES"] == 3_000_000
    assert found["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] == 4


def test_nvidia_smi_has_ratios_and_bytes() -> None:
    found = spelled("nvidia_smi", {"utilization_percent": 50.0, "memory_used_mb": 2.0, "fan_speed_percent": 25.0})
    assert found["nvidia_smi_utilization_gpu_ratio"] == 0.5
    assert found["nvidia_smi_memory_used_bytes"] == 2 * 2**20
    assert found["nvidia_smi_fan_speed_ratio"] == 0.25


def test_nvidia_smi_names_a_gpu_by_its_bare_uuid() -> None:
    found = labels("nvidia_smi", GPU, up=1, temperature_celsius=60.0)
    bare = "265c9814-6156-355b-e589-ff2064894f16"
    assert found["nvidia_smi_temperature_gpu"] == {"uuid": bare}
    assert found["nvidia_smi_gpu_info"] == {"uuid": bare, "name": "NVIDIA H100", "index": "3"}


def test_only_the_spellings_that_are_asked_for_are_given() -> None:
    names = spelled("dcgm", {"utilization_percent": 1.0, "memory_used_mb": 2.0})
    assert all(name.startswith("DCGM_FI_") for name in names)
