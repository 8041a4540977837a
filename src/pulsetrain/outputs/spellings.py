"""The names that other exporters give to the same values, so that dashboards and rules made for them work unmodified.

Names, labels and units are theirs: dcgm-exporter's counters of energy are in millijoules and its clocks in MHz,
nvidia_gpu_exporter's shares are ratios and its memory is in bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pulsetrain.live import Live, State
from pulsetrain.outputs.points import Family, Labels, Point, label_text, make_labels

MIB = 2**20


class Spelling(NamedTuple):
    """Another name of a value."""

    name: str
    help: str
    value: Callable[[State], float | None]
    kind: Literal["gauge", "counter"] = "gauge"


def _field(field: str, scale: float = 1.0) -> Callable[[State], float | None]:
    def value(state: State) -> float | None:
        number = state.number(field)
        return None if number is None else number * scale

    return value


def _reserved(state: State) -> float | None:
    """What the driver keeps for itself: neither used nor free."""
    total, used, free = (state.number(f"memory_{part}_mb") for part in ("total", "used", "free"))
    return None if total is None or used is None or free is None else max(0.0, total - used - free)


def _rate(*fields: str, scale: float = 1.0) -> Callable[[State], float | None]:
    def value(state: State) -> float | None:
        rates = [state.rates[field] for field in fields if field in state.rates]
        return sum(rates) * scale if len(rates) == len(fields) else None

    return value


DCGM = (
    Spelling("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", _field("clock_sm_hertz", 1e-6)),
    Spelling("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", _field("clock_memory_hertz", 1e-6)),
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
    Spelling("nvidia_smi_clocks_max_sm_clock_hz", "clocks.max.sm [MHz]", _field("clock_sm_max_hertz")),
    Spelling("nvidia_smi_clocks_max_memory_clock_hz", "clocks.max.memory [MHz]", _field("clock_memory_max_hertz")),
    Spelling("nvidia_smi_pstate", "pstate", _field("performance_state")),
    Spelling("nvidia_smi_pcie_link_gen_current", "pcie.link.gen.current", _field("pcie_generation")),
    Spelling("nvidia_smi_pcie_link_gen_max", "pcie.link.gen.max", _field("pcie_max_generation")),
    Spelling("nvidia_smi_pcie_link_width_current", "pcie.link.width.current", _field("pcie_width")),
    Spelling("nvidia_smi_pcie_link_width_max", "pcie.link.width.max", _field("pcie_max_width")),
)


def dcgm(live: Live, scope: Mapping[str, str]) -> Iterator[Family]:
    """As dcgm-exporter spells it. A MIG instance has the labels of its GPU, and its own number and profile."""
    host = {"Hostname": scope.get("host", "")}
    states = [(state, make_labels(_dcgm_labels(state), host)) for state in (*live.table("gpu"), *live.table("mig"))]
    yield from _families(DCGM, states)
    # The number of the last XID error, not how many there were; 0 as long as there was none.
    xids = [
        Point(labels, live.xids.get(state.subject.key, 0)) for state, labels in states if "xid_errors" in state.values
    ]
    if xids:
        yield Family("DCGM_FI_DEV_XID_ERRORS", "gauge", "", "Value of the last XID error encountered.", xids)


def nvidia_smi(live: Live, scope: Mapping[str, str]) -> Iterator[Family]:
    """As nvidia_gpu_exporter spells it: its series carry the UUID without its prefix, and nothing else."""
    states = [(state, make_labels({"uuid": _bare_uuid(state)})) for state in live.table("gpu")]
    yield from _families(NVIDIA_SMI, states)
    if not states:
        return
    info = [Point(make_labels(_smi_info(state)), 1) for state, _ in states if state.values.get("up") != 0]
    if info:
        yield Family(
            "nvidia_smi_gpu_info", "info", "", "A metric with a constant 1 that tells which GPU this is.", info
        )
    failed = sum(count for (kind, _), count in live.events.items() if kind == "source_down")
    help = "Number of times that a source could not be read any more."
    yield Family("nvidia_smi_failed_scrapes_total", "counter", "", help, [Point((), failed)])


SPELLINGS: dict[str, Callable[[Live, Mapping[str, str]], Iterator[Family]]] = {"dcgm": dcgm, "nvidia_smi": nvidia_smi}
"""By what `--names` calls them."""


def _families(spellings: Iterable[Spelling], states: Sequence[tuple[State, Labels]]) -> Iterator[Family]:
    for spelling in spellings:
        values = ((labels, spelling.value(state)) for state, labels in states)
        points = [Point(labels, value) for labels, value in values if value is not None]
        if points:
            yield Family(spelling.name, spelling.kind, "", spelling.help, points)


def _dcgm_labels(state: State) -> dict[str, str]:
    labels = {name: label_text(label) for name, label in state.subject.labels.items()}
    model, _, profile = labels["name"].partition(" MIG ")
    return {
        "gpu": labels["gpu_index"],
        "UUID": labels["uuid"],
        "device": f"nvidia{labels['gpu_index']}",
        "modelName": model,
        "GPU_I_ID": labels.get("gpu_instance", ""),
        "GPU_I_PROFILE": profile,
    }


def _smi_info(state: State) -> dict[str, str]:
    labels = state.subject.labels
    return {"uuid": _bare_uuid(state), "name": label_text(labels["name"]), "index": label_text(labels["gpu_index"])}


def _bare_uuid(state: State) -> str:
    return label_text(state.subject.labels["uuid"]).lower().removeprefix("gpu-")
