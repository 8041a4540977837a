"""What seldom changes (limits, maxima, error counts, the PCIe link) and what is slow to ask (link throughput)."""

from collections.abc import Iterable
from ctypes import byref
from typing import Any

import pynvml

from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources.nvidia.library import Gpu, NvmlSource

WHOLE_GPU = 0
"""The scope of a field that is about the board."""
ALL_LINKS = 0xFFFFFFFF
"""The scope that asks for the sum over a board's NVLinks."""


class NvidiaHealth(NvmlSource):
    """Power limits, highest clocks, ECC and row remapping, what the driver asks for, PCIe address and link."""

    name = "nvidia_health"
    period = 10.0

    def collect(self) -> Iterable[Sample | Event]:
        for gpu in self._library.gpus:
            if not gpu.lost:
                yield Sample(gpu.subject, _present(_health(gpu)))


def _health(gpu: Gpu) -> dict[str, Value]:
    limits = gpu.ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
    rows = gpu.ask(pynvml.nvmlDeviceGetRemappedRows) or (None, None, None, None)
    errors, address = pynvml.nvmlDeviceGetTotalEccErrors, gpu.ask(_pci_bus_id)
    corrected, uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return {
        "power_limit_watts": _scaled(gpu.ask(pynvml.nvmlDeviceGetEnforcedPowerLimit), 1e-3),
        "power_limit_max_watts": _scaled(limits[1] if limits else None, 1e-3),
        "clock_video_hertz": _scaled(gpu.ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_VIDEO), 1e6),
        "clock_sm_max_hertz": _scaled(gpu.ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM), 1e6),
        "clock_memory_max_hertz": _scaled(gpu.ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_MEM), 1e6),
        "ecc_corrected_errors": gpu.ask(errors, corrected, pynvml.NVML_AGGREGATE_ECC),
        "ecc_uncorrected_errors": gpu.ask(errors, uncorrected, pynvml.NVML_AGGREGATE_ECC),
        "ecc_volatile_corrected_errors": gpu.ask(errors, corrected, pynvml.NVML_VOLATILE_ECC),
        "ecc_volatile_uncorrected_errors": gpu.ask(errors, uncorrected, pynvml.NVML_VOLATILE_ECC),
        "remapped_rows_corrected": rows[0],
        "remapped_rows_uncorrected": rows[1],
        "remapped_rows_pending": rows[2],
        "remapped_rows_failed": rows[3],
        "recovery_action": gpu.ask(_field, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, WHOLE_GPU),
        "compute_mode": gpu.ask(pynvml.nvmlDeviceGetComputeMode),
        "fabric_state": gpu.ask(_fabric_state),
        "pci_bus_ids": {address: 1} if address else None,
        "pcie_generation": gpu.ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        "pcie_width": gpu.ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        "pcie_max_generation": gpu.ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "pcie_max_width": gpu.ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        "pcie_replays": gpu.ask(pynvml.nvmlDeviceGetPcieReplayCounter),
    }


class NvidiaLinks(NvmlSource):
    """PCIe and NVLink traffic. A PCIe question blocks for 20 ms, two of them for each board: never on a tick."""

    name = "nvidia_links"
    period = 10.0

    def collect(self) -> Iterable[Sample | Event]:
        for gpu in self._library.gpus:
            if gpu.lost:
                continue
            values: dict[str, Value] = {
                "pcie_sent_bytes_per_second": _scaled(
                    gpu.ask(pynvml.nvmlDeviceGetPcieThroughput, pynvml.NVML_PCIE_UTIL_TX_BYTES), 1000
                ),
                "pcie_received_bytes_per_second": _scaled(
                    gpu.ask(pynvml.nvmlDeviceGetPcieThroughput, pynvml.NVML_PCIE_UTIL_RX_BYTES), 1000
                ),
                "nvlink_sent_bytes": _nvlink(gpu, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX),
                "nvlink_received_bytes": _nvlink(gpu, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
            }
            yield Sample(gpu.subject, _present(values))


def _nvlink(gpu: Gpu, field: int) -> float | None:
    """Bytes sent or received over all links since the driver was loaded, which NVML counts in KiB."""
    return _scaled(gpu.ask(_field, field, ALL_LINKS), 1024)


def _field(handle: Any, field: int, scope: int) -> int:
    (answer,) = pynvml.nvmlDeviceGetFieldValues(handle, [(field, scope)])
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    is_short = answer.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return int(answer.value.uiVal if is_short else answer.value.ullVal)


def _pci_bus_id(handle: Any) -> str:
    """As nvidia-smi writes it: 00000000:3B:00.0."""
    bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)


def _fabric_state(handle: Any) -> int | None:
    """How far the board has joined the fabric; None where it has none to join."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    return None if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED else int(info.state)


def _present(values: dict[str, Value]) -> dict[str, Value]:
    return {field: value for field, value in values.items() if value is not None}


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
