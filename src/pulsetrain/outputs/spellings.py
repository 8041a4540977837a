"""The names that other exporters give to the same values, for dashboards and rules made for them.

Names, labels and units are theirs: dcgm-exporter's counters of energy are in millijoules and its clocks in MHz,
nvidia_gpu_exporter's shares are ratios and its memory is in bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pulsetrain.catalog.labels import label_text
from pulsetrain.catalog.xids import xid_label
from pulsetrain.live import Live, SubjectState
from pulsetrain.outputs.gpu_pods import pods_of_gpus
from pulsetrain.outputs.points import Family, Kind, Labels, Point, make_labels, with_label
from pulsetrain.units import MIB


class Spelling(NamedTuple):
    """Another name of a value."""

    name: str
    help: str
    value: Callable[[SubjectState], float | None]
    kind: Literal["gauge", "counter"] = "gauge"


def _field(field: str, scale: float = 1.0) -> Callable[[SubjectState], float | None]:
    def value(state: SubjectState) -> float | None:
        number = state.number(field)
        return None if number is None else number * scale

    return value


def _is_held(*reasons: str) -> Callable[[SubjectState], float | None]:
    """1 while one of these holds the clocks down; nothing where a GPU does not tell."""

    def value(state: SubjectState) -> float | None:
        held = state.values.get("throttle_reasons")
        return float(any(reason in held for reason in reasons)) if isinstance(held, list) else None

    return value


def _reserved(state: SubjectState) -> float | None:
    """What the driver keeps for itself: neither used nor free."""
    total, used, free = (state.number(f"memory_{part}_mb") for part in ("total", "used", "free"))
    return None if total is None or used is None or free is None else max(0.0, total - used - free)


def _rate(*fields: str, scale: float = 1.0) -> Callable[[SubjectState], float | None]:
    def value(state: SubjectState) -> float | None:
        rates = [state.rates[field] for field in fields if field in state.rates]
        return sum(rates) * scale if len(rates) == len(fields) else None

    return value


DCGM = (
    Spelling("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", _field("clock_sm_hertz", 1e-6)),
    Spelling("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", _field("clock_memory_hertz", 1e-6)),
    Spelling("DCGM_FI_DEV_VIDEO_CLOCK", "Video encoder/decoder clock (in MHz).", _field("clock_video_hertz", 1e-6)),
    Spelling("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", _field("memory_temperature_celsius")),
    Spelling("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", _field("temperature_celsius")),
    Spelling("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", _field("power_draw_watts")),
    Spelling(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption (in mJ).",
        _field("energy_joules", 1e3),
        "counter",
    ),
    Spelling("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", _field("pcie_replays"), "counter"),
    Spelling("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", _field("utilization_percent")),
    Spelling("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", _field("memory_controller_ratio", 100)),
    Spelling("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", _field("encoder_ratio", 100)),
    Spelling("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", _field("decoder_ratio", 100)),
    Spelling("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", _field("memory_free_mb")),
    Spelling("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", _field("memory_used_mb")),
    Spelling("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", _reserved),
    Spelling("DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory installed (in MiB).", _field("memory_total_mb")),
    Spelling(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "NVLink traffic of all lanes (in MB/s).",
        _rate("nvlink_received_bytes", "nvlink_sent_bytes", scale=1e-6),
    ),
    Spelling(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors.",
        _field("remapped_rows_uncorrected"),
        "counter",
    ),
    Spelling(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors.",
        _field("remapped_rows_corrected"),
        "counter",
    ),
    Spelling(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Total number of single-bit volatile ECC errors.",
        _field("ecc_volatile_corrected_errors"),
        "counter",
    ),
    Spelling(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "Total number of double-bit volatile ECC errors.",
        _field("ecc_volatile_uncorrected_errors"),
        "counter",
    ),
    Spelling(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "Total number of single-bit persistent ECC errors.",
        _field("ecc_corrected_errors"),
        "counter",
    ),
    Spelling(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "Total number of double-bit persistent ECC errors.",
        _field("ecc_uncorrected_errors"),
        "counter",
    ),
    Spelling("DCGM_FI_DEV_COMPUTE_MODE", "Compute mode.", _field("compute_mode")),
    Spelling("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "Recovery action for the GPU.", _field("recovery_action")),
    Spelling("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", _field("remapped_rows_failed")),
    Spelling(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active: here NVML's utilization.",
        _field("utilization_percent", 0.01),
    ),
    Spelling("DCGM_FI_PROF_SM_ACTIVE", "Ratio of cycles an SM has a warp assigned.", _field("sm_active_ratio")),
    Spelling("DCGM_FI_PROF_SM_OCCUPANCY", "Ratio of warps resident on an SM.", _field("sm_occupancy_ratio")),
    Spelling(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        _field("tensor_active_ratio"),
    ),
    Spelling(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active.",
        _field("dram_active_ratio"),
    ),
    Spelling("DCGM_FI_PROF_PCIE_TX_BYTES", "PCIe traffic sent (in B/s).", _field("pcie_sent_bytes_per_second")),
    Spelling("DCGM_FI_PROF_PCIE_RX_BYTES", "PCIe traffic received (in B/s).", _field("pcie_received_bytes_per_second")),
    Spelling("DCGM_FI_PROF_NVLINK_TX_BYTES", "NVLink traffic sent (in B/s).", _rate("nvlink_sent_bytes")),
    Spelling("DCGM_FI_PROF_NVLINK_RX_BYTES", "NVLink traffic received (in B/s).", _rate("nvlink_received_bytes")),
)
NVIDIA_SMI = (
    Spelling("nvidia_smi_utilization_gpu_ratio", "utilization.gpu [%]", _field("utilization_percent", 0.01)),
    Spelling("nvidia_smi_utilization_memory_ratio", "utilization.memory [%]", _field("memory_controller_ratio")),
    Spelling("nvidia_smi_utilization_encoder_ratio", "utilization.encoder [%]", _field("encoder_ratio")),
    Spelling("nvidia_smi_utilization_decoder_ratio", "utilization.decoder [%]", _field("decoder_ratio")),
    Spelling("nvidia_smi_memory_total_bytes", "memory.total [MiB]", _field("memory_total_mb", MIB)),
    Spelling("nvidia_smi_memory_used_bytes", "memory.used [MiB]", _field("memory_used_mb", MIB)),
    Spelling("nvidia_smi_memory_free_bytes", "memory.free [MiB]", _field("memory_free_mb", MIB)),
    Spelling("nvidia_smi_temperature_gpu", "temperature.gpu", _field("temperature_celsius")),
    Spelling("nvidia_smi_temperature_memory", "temperature.memory", _field("memory_temperature_celsius")),
    Spelling("nvidia_smi_power_draw_watts", "power.draw [W]", _field("power_draw_watts")),
    Spelling("nvidia_smi_enforced_power_limit_watts", "enforced.power.limit [W]", _field("power_limit_watts")),
    Spelling("nvidia_smi_fan_speed_ratio", "fan.speed [%]", _field("fan_speed_percent", 0.01)),
    Spelling("nvidia_smi_clocks_current_sm_clock_hz", "clocks.current.sm [MHz]", _field("clock_sm_hertz")),
    Spelling("nvidia_smi_clocks_current_memory_clock_hz", "clocks.current.memory [MHz]", _field("clock_memory_hertz")),
    Spelling("nvidia_smi_clocks_current_video_clock_hz", "clocks.current.video [MHz]", _field("clock_video_hertz")),
    Spelling("nvidia_smi_clocks_max_sm_clock_hz", "clocks.max.sm [MHz]", _field("clock_sm_max_hertz")),
    Spelling("nvidia_smi_clocks_max_memory_clock_hz", "clocks.max.memory [MHz]", _field("clock_memory_max_hertz")),
    Spelling("nvidia_smi_pstate", "pstate", _field("performance_state")),
    # NVML's own numbers, which nvidia_gpu_exporter gives back to nvidia-smi's words.
    Spelling("nvidia_smi_compute_mode", "compute_mode", _field("compute_mode")),
    Spelling("nvidia_smi_gpu_recovery_action", "gpu_recovery_action", _field("recovery_action")),
    Spelling("nvidia_smi_fabric_state", "fabric.state", _field("fabric_state")),
    Spelling("nvidia_smi_pcie_link_gen_current", "pcie.link.gen.current", _field("pcie_generation")),
    Spelling("nvidia_smi_pcie_link_gen_max", "pcie.link.gen.max", _field("pcie_max_generation")),
    Spelling("nvidia_smi_pcie_link_width_current", "pcie.link.width.current", _field("pcie_width")),
    Spelling("nvidia_smi_pcie_link_width_max", "pcie.link.width.max", _field("pcie_max_width")),
    Spelling("nvidia_smi_power_limit_watts", "power.limit [W]", _field("power_limit_watts")),
    Spelling("nvidia_smi_power_max_limit_watts", "power.max_limit [W]", _field("power_limit_max_watts")),
    # Graphics and multiprocessors share a clock on all boards that train.
    Spelling("nvidia_smi_clocks_current_graphics_clock_hz", "clocks.current.graphics [MHz]", _field("clock_sm_hertz")),
    Spelling("nvidia_smi_clocks_max_graphics_clock_hz", "clocks.max.graphics [MHz]", _field("clock_sm_max_hertz")),
    *(
        Spelling(f"nvidia_smi_clocks_event_reasons_{name}", f"clocks_event_reasons.{name}", _is_held(reason))
        for name, reason in {
            "gpu_idle": "idle",
            "applications_clocks_setting": "applications_clocks",
            "sw_power_cap": "sw_power_cap",
            "hw_slowdown": "hw_slowdown",
            "hw_thermal_slowdown": "hw_thermal",
            "hw_power_brake_slowdown": "hw_power_brake",
            "sw_thermal_slowdown": "sw_thermal",
            "sync_boost": "sync_boost",
        }.items()
    ),
    Spelling(
        "nvidia_smi_ecc_errors_corrected_volatile_total",
        "ecc.errors.corrected.volatile.total",
        _field("ecc_volatile_corrected_errors"),
    ),
    Spelling(
        "nvidia_smi_ecc_errors_uncorrected_volatile_total",
        "ecc.errors.uncorrected.volatile.total",
        _field("ecc_volatile_uncorrected_errors"),
    ),
    Spelling(
        "nvidia_smi_ecc_errors_corrected_aggregate_total",
        "ecc.errors.corrected.aggregate.total",
        _field("ecc_corrected_errors"),
    ),
    Spelling(
        "nvidia_smi_ecc_errors_uncorrected_aggregate_total",
        "ecc.errors.uncorrected.aggregate.total",
        _field("ecc_uncorrected_errors"),
    ),
    Spelling("nvidia_smi_remapped_rows_correctable", "remapped_rows.correctable", _field("remapped_rows_corrected")),
    Spelling(
        "nvidia_smi_remapped_rows_uncorrectable", "remapped_rows.uncorrectable", _field("remapped_rows_uncorrected")
    ),
    Spelling("nvidia_smi_remapped_rows_pending", "remapped_rows.pending", _field("remapped_rows_pending")),
    Spelling("nvidia_smi_remapped_rows_failure", "remapped_rows.failure", _field("remapped_rows_failed")),
    Spelling(
        "nvidia_smi_energy_joules_total", "Energy since the driver was loaded.", _field("energy_joules"), "counter"
    ),
    Spelling(
        "nvidia_smi_pcie_throughput_rx_bytes_per_second",
        "PCIe traffic to the GPU.",
        _field("pcie_received_bytes_per_second"),
    ),
    Spelling(
        "nvidia_smi_pcie_throughput_tx_bytes_per_second",
        "PCIe traffic from the GPU.",
        _field("pcie_sent_bytes_per_second"),
    ),
)
NVIDIA_SMI_MIG = (
    Spelling("nvidia_smi_mig_memory_used_bytes", "Memory in use.", _field("memory_used_mb", MIB)),
    Spelling("nvidia_smi_mig_memory_total_bytes", "Memory of the instance.", _field("memory_total_mb", MIB)),
    Spelling("nvidia_smi_mig_sm_activity_ratio", "Multiprocessor activity.", _field("sm_active_ratio")),
    Spelling("nvidia_smi_mig_tensor_activity_ratio", "Tensor core activity.", _field("tensor_active_ratio")),
)


def dcgm(live: Live, scope: Mapping[str, str]) -> Iterator[Family]:
    """As dcgm-exporter spells it. A MIG instance has the labels of its GPU, and its own number and profile."""
    host = {"Hostname": scope.get("host", ""), "DCGM_FI_DRIVER_VERSION": _driver_version(live)}
    addresses = {state.subject.labels["uuid"]: _pci_bus_id(state) for state in live.table("gpu")}
    pods = pods_of_gpus(live)
    states = [
        (
            state,
            make_labels(
                _dcgm_labels(state, addresses.get(state.subject.labels["uuid"], "")),
                host,
                pods.get(state.subject.key, {}),
            ),
        )
        for state in (*live.table("gpu"), *live.table("mig"))
    ]
    yield from _families(DCGM, states)
    # The number of the last XID error, not how many there were; 0 as long as there was none.
    xids = [
        Point(labels, live.xids[state.subject.key].number if state.subject.key in live.xids else 0)
        for state, labels in states
        if "xid_errors" in state.values
    ]
    if xids:
        yield Family("DCGM_FI_DEV_XID_ERRORS", "gauge", "", "Value of the last XID error encountered.", xids)


def nvidia_smi(live: Live, scope: Mapping[str, str]) -> Iterator[Family]:
    """As nvidia_gpu_exporter spells it: its series carry the UUID without its prefix, and nothing else."""
    states = [(state, make_labels({"uuid": _bare_uuid(state)})) for state in live.table("gpu")]
    yield from _families(NVIDIA_SMI, states)
    if not states:
        return
    up = [(state, labels) for state, labels in states if state.values.get("up") != 0]
    index = [Point(labels, float(str(state.subject.labels["gpu_index"]))) for state, labels in up]
    driver = _driver_version(live)
    info = [Point(make_labels(_smi_info(state), {"driver_version": driver}), 1) for state, _ in up]
    yield from _known("nvidia_smi_index", "gauge", "index", index)
    yield from _known("nvidia_smi_gpu_info", "info", "A metric with a constant 1 that identifies the GPU.", info)
    yield from _smi_xids(live, states)
    yield from _smi_processes(live)
    yield from _smi_mig(live)
    failed = sum(count for (kind, _), count in live.events.items() if kind == "source_down")
    help = "Number of times a source became unreadable."
    yield Family("nvidia_smi_failed_scrapes_total", "counter", "", help, [Point((), failed)])


def _known(name: str, kind: Kind, help: str, points: list[Point]) -> Iterator[Family]:
    if points:
        yield Family(name, kind, "", help, points)


def _smi_xids(live: Live, states: Sequence[tuple[SubjectState, Labels]]) -> Iterator[Family]:
    counts = [
        Point(with_label(labels, "xid", xid), count)
        for state, labels in states
        if isinstance(of := state.values.get("xid_code_errors"), dict)
        for xid, count in of.items()
    ]
    last = [
        Point(with_label(labels, "xid", xid_label(xid.number)), xid.time)
        for state, labels in states
        if (xid := live.xids.get(state.subject.key))
    ]
    yield from _known("nvidia_smi_xid_errors_total", "counter", "XID errors since pulsetrain started.", counts)
    yield from _known("nvidia_smi_xid_last_timestamp_seconds", "gauge", "When the last XID error occurred.", last)


def _smi_processes(live: Live) -> Iterator[Family]:
    """Programs on GPUs."""
    info, memory = [], []
    for state in live.table("process"):
        if "gpu_index" not in state.subject.labels:
            continue
        pid, command = (label_text(state.subject.labels.get(name)) for name in ("pid", "command"))
        labels = make_labels({"uuid": _bare_uuid(state), "pid": pid, "process_name": command})
        info.append(Point(labels, 1))
        if (held := state.number("gpu_memory_mb")) is not None:
            memory.append(Point(labels, held * MIB))
    yield from _known("nvidia_smi_compute_app_info", "info", "A program on a GPU.", info)
    yield from _known("nvidia_smi_compute_app_used_memory_bytes", "gauge", "GPU memory that the program holds.", memory)
    yield Family(
        "nvidia_smi_compute_apps_last_collect_success", "gauge", "", "1 while processes can be read.", [Point((), 1)]
    )


def _smi_mig(live: Live) -> Iterator[Family]:
    states = []
    for state in live.table("mig"):
        instance = label_text(state.subject.labels.get("gpu_instance"))
        states.append((state, make_labels({"uuid": _bare_uuid(state), "gpu_instance_id": instance})))
    info = [
        Point(with_label(labels, "profile", label_text(state.subject.labels["name"]).partition(" MIG ")[2]), 1)
        for state, labels in states
    ]
    yield from _known("nvidia_smi_mig_info", "info", "A MIG instance.", info)
    yield from _families(NVIDIA_SMI_MIG, states)


def _driver_version(live: Live) -> str:
    versions = live.host.values.get("gpu_driver_versions")
    return next(iter(versions), "") if isinstance(versions, dict) else ""


SPELLINGS: dict[str, Callable[[Live, Mapping[str, str]], Iterator[Family]]] = {"dcgm": dcgm, "nvidia_smi": nvidia_smi}
"""By what `--names` calls them."""


def _families(spellings: Iterable[Spelling], states: Sequence[tuple[SubjectState, Labels]]) -> Iterator[Family]:
    for spelling in spellings:
        values = ((labels, spelling.value(state)) for state, labels in states)
        points = [Point(labels, value) for labels, value in values if value is not None]
        if points:
            yield Family(spelling.name, spelling.kind, "", spelling.help, points)


def _pci_bus_id(state: SubjectState) -> str:
    addresses = state.values.get("pci_bus_ids")
    return next(iter(addresses), "") if isinstance(addresses, dict) else ""


def _dcgm_labels(state: SubjectState, pci_bus_id: str) -> dict[str, str]:
    labels = {name: label_text(label) for name, label in state.subject.labels.items()}
    model, _, profile = labels["name"].partition(" MIG ")
    return {
        "gpu": labels["gpu_index"],
        "UUID": labels["uuid"],
        "pci_bus_id": pci_bus_id,
        "device": f"nvidia{labels['gpu_index']}",
        "modelName": model,
        "GPU_I_ID": labels.get("gpu_instance", ""),
        "GPU_I_PROFILE": profile,
    }


def _smi_info(state: SubjectState) -> dict[str, str]:
    labels = state.subject.labels
    return {
        "uuid": _bare_uuid(state),
        "name": label_text(labels["name"]),
        "index": label_text(labels["gpu_index"]),
        "pci_bus_id": _pci_bus_id(state),
    }


def _bare_uuid(state: SubjectState) -> str:
    return label_text(state.subject.labels["uuid"]).lower().removeprefix("gpu-")
