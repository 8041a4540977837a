"""What seldom changes (limits, maxima, error counts, the PCIe link) and what is slow to ask (link throughput)."""

from collections.abc import Iterable
from typing import Any

import pynvml

from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources.nvidia.library import Gpu, NvmlSource

ALL_LINKS = 0xFFFFFFFF
"""The scope that asks for the sum over a board's NVLinks."""


class Health(NvmlSource):
    """Power limits, highest clocks, ECC and row remapping, PCIe link."""

    name = "nvidia_health"
    period = 10.0

    def collect(self) -> Iterable[Sample | Event]:
        for gpu in self._library.gpus:
            if not gpu.lost:
                yield Sample(gpu.subject, _present(_health(gpu)))


def _health(gpu: Gpu) -> dict[str, Value]:
    limits = gpu.ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
    rows = gpu.ask(pynvml.nvmlDeviceGetRemappedRows) or (None, None, None, None)
    total_errors = pynvml.nvmlDeviceGetTotalEccErrors
    return {
        "power_limit_watts": _scaled(gpu.ask(pynvml.nvmlDeviceGetEnforcedPowerLimit), 1e-3),
        "power_limit_max_watts": _scaled(limits[1] if limits else None, 1e-3),
        "clock_sm_max_hertz": _scaled(gpu.ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM), 1e6),
        "clock_memory_max_hertz": _scaled(gpu.ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_MEM), 1e6),
        "ecc_corrected_errors": gpu.ask(
            total_errors, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_AGGREGATE_ECC
        ),
        "ecc_uncorrected_errors": gpu.ask(
            total_errors, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC
        ),
        "remapped_rows_corrected": rows[0],
        "remapped_rows_uncorrected": rows[1],
        "remapped_rows_pending": rows[2],
        "remapped_rows_failed": rows[3],
        "pcie_generation": gpu.ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        "pcie_width": gpu.ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        "pcie_max_generation": gpu.ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "pcie_max_width": gpu.ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        "pcie_replays": gpu.ask(pynvml.nvmlDeviceGetPcieReplayCounter),
    }


class Links(NvmlSource):
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
                "nvlink_sent_bytes": _scaled(gpu.ask(_nvlink, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX), 1024),
                "nvlink_received_bytes": _scaled(gpu.ask(_nvlink, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX), 1024),
            }
            yield Sample(gpu.subject, _present(values))


def _nvlink(handle: Any, field: int) -> int:
    """KiB sent or received over all links since the driver was loaded."""
    (answer,) = pynvml.nvmlDeviceGetFieldValues(handle, [(field, ALL_LINKS)])
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.ullVal)


def _present(values: dict[str, Value]) -> dict[str, Value]:
    return {field: value for field, value in values.items() if value is not None}


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
