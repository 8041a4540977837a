"""Every metric, declared once. Files, exporters, tables, charts and docs are derived from this list.

Names: the mission's own spellings stay as they are; every further metric uses base units and the usual suffixes.
A field is unique within its table. Shares are ratios from 0 to 1 unless the name says percent.
"""

from typing import Literal

from pulsetrain.snapshot import Metric

Kind = Literal["gauge", "counter", "amount", "text", "words"]


def _gpu(field: str, unit: str, help: str, kind: Kind = "gauge", by: str | None = None, name: str = "") -> Metric:
    return Metric("gpu", field, name or _name("gpu", field, kind), kind, unit, help, by)


def _host(field: str, unit: str, help: str, kind: Kind = "gauge", by: str | None = None, name: str = "") -> Metric:
    return Metric("host", field, name or _name("host", field, kind), kind, unit, help, by)


def _process(field: str, unit: str, help: str, kind: Kind = "gauge") -> Metric:
    return Metric("process", field, _name("process", field, kind), kind, unit, help)


def _mig(field: str, unit: str, help: str) -> Metric:
    return Metric("mig", field, f"gpu_mig_{field}", "gauge", unit, help)


def _training(field: str, unit: str, help: str, kind: Kind = "gauge", name: str = "") -> Metric:
    return Metric("training", field, name or _name("training", field, kind), kind, unit, help)


def _account(field: str, unit: str, help: str, kind: Kind = "gauge", by: str | None = None) -> Metric:
    return Metric("account", field, _name("run", field, kind), kind, unit, help, by)


def _name(prefix: str, field: str, kind: Kind) -> str:
    return f"{prefix}_{field}_total" if kind in ("counter", "amount") else f"{prefix}_{field}"


METRICS: tuple[Metric, ...] = (
    # GPUs
    _gpu("up", "bool", "1 while the GPU answers, 0 while it is lost."),
    _gpu("utilization_percent", "percent", "Share of the last sensor window (1/6 to 1 s) in which any kernel ran."),
    _gpu("memory_used_mb", "MiB", "GPU memory in use."),
    _gpu("memory_free_mb", "MiB", "GPU memory free."),
    _gpu("memory_total_mb", "MiB", "GPU memory installed."),
    _gpu("memory_percent", "percent", "Share of GPU memory in use."),
    _gpu("temperature_celsius", "celsius", "GPU core temperature."),
    _gpu("power_draw_watts", "watts", "Power draw: the instant value where the device has one, else its average."),
    _gpu("fan_speed_percent", "percent", "Intended fan speed, as a share of its maximum."),
    _gpu(
        "memory_controller_ratio", "ratio", "Share of the last sensor window in which GPU memory was read or written."
    ),
    _gpu("memory_temperature_celsius", "celsius", "GPU memory temperature."),
    _gpu("power_instant_watts", "watts", "Power draw now, over the sensor's own short window."),
    _gpu("power_average_watts", "watts", "Power draw as a mean over the last second."),
    _gpu("power_limit_watts", "watts", "Power limit in force."),
    _gpu("power_limit_max_watts", "watts", "Highest power limit that can be set."),
    _gpu(
        "energy_joules", "joules", "Energy used since the driver was loaded, from the device's own counter.", "counter"
    ),
    _gpu(
        "energy_interpolated_joules",
        "joules",
        "That counter interpolated between two of its updates, at the first and last readings.",
        "counter",
    ),
    _gpu("energy_interpolation_error_joules", "joules", "How far that interpolation may be off, up or down."),
    _gpu("energy_interpolation_watts", "watts", "Power at that moment, from the counter update around it."),
    _gpu(
        "energy_interpolated_monotonic_seconds",
        "seconds",
        "That moment on the machine's monotonic clock; `started` in run.json is second 0 of the run on that clock.",
    ),
    _gpu(
        "polled_energy_joules",
        "joules",
        "Energy since pulsetrain started, from power polled 40 times a second, where the counter does not work.",
        "counter",
    ),
    _gpu(
        "polled_energy_variance_joules2",
        "joules²",
        "Sampling variance of that energy.",
        "counter",
    ),
    _gpu(
        "polled_energy_unseen_joules",
        "joules",
        "Error bound for the time in which the sensor itself does not measure.",
        "counter",
    ),
    _gpu(
        "polled_energy_gap_seconds",
        "seconds",
        "Time in which power could not be read; its energy is missing.",
        "counter",
    ),
    _gpu(
        "polled_energy_edge_joules",
        "joules",
        "Error bound at any one moment, because the sensor lags.",
    ),
    _gpu("clock_sm_hertz", "hertz", "Streaming multiprocessor clock."),
    _gpu("clock_memory_hertz", "hertz", "Memory clock."),
    _gpu("clock_video_hertz", "hertz", "Clock of the video encoder and decoder, every 10 seconds."),
    _gpu("clock_sm_max_hertz", "hertz", "Highest streaming multiprocessor clock."),
    _gpu("clock_memory_max_hertz", "hertz", "Highest memory clock."),
    _gpu("throttle_reasons", "", "What limits the clocks, in words.", "words"),
    _gpu("performance_state", "", "Performance state, 0 (fastest) to 15."),
    _gpu("encoder_ratio", "ratio", "Video encoder utilization."),
    _gpu("decoder_ratio", "ratio", "Video decoder utilization."),
    _gpu("sm_active_ratio", "ratio", "Share of time in which a multiprocessor had work, mean over all of them."),
    _gpu("sm_occupancy_ratio", "ratio", "Resident warps, as a share of the most that fit."),
    _gpu("tensor_active_ratio", "ratio", "Share of cycles in which the tensor cores were active."),
    _gpu("dram_active_ratio", "ratio", "Share of cycles in which GPU memory moved data."),
    _gpu("ecc_corrected_errors", "errors", "Memory errors corrected by ECC over the device's life.", "counter"),
    _gpu("ecc_uncorrected_errors", "errors", "Memory errors ECC could not correct over the device's life.", "counter"),
    _gpu(
        "ecc_volatile_corrected_errors",
        "errors",
        "Memory errors corrected by ECC since the driver was loaded or the GPU was reset.",
        "counter",
    ),
    _gpu(
        "ecc_volatile_uncorrected_errors",
        "errors",
        "Memory errors ECC could not correct since the driver was loaded or the GPU was reset.",
        "counter",
    ),
    _gpu("remapped_rows_corrected", "rows", "Memory rows remapped after corrected errors.", "counter"),
    _gpu("remapped_rows_uncorrected", "rows", "Memory rows remapped after uncorrected errors.", "counter"),
    _gpu("remapped_rows_pending", "bool", "1 when a row waits for a GPU reset to be remapped."),
    _gpu("remapped_rows_failed", "bool", "1 when a row could not be remapped: the board should be replaced."),
    _gpu("xid_errors", "errors", "XID errors reported by the driver since pulsetrain started.", "counter"),
    _gpu(
        "xid_code_errors",
        "errors",
        "XID errors by number, for those seen so far; `other` counts numbers without a name here.",
        "counter",
        by="xid",
    ),
    _gpu(
        "recovery_action",
        "",
        "What the driver asks for: 0 nothing, 1 a GPU reset, 2 a reboot, 3 draining traffic to other GPUs, "
        "4 draining and a reset; newer drivers have more.",
    ),
    _gpu("compute_mode", "", "Who may use the GPU: 0 everyone, 2 nobody, 3 one process at a time."),
    _gpu("fabric_state", "", "Joining the NVLink fabric: 1 not started, 2 in progress, 3 completed."),
    _gpu("pci_bus_ids", "", "Always 1: the GPU's PCI bus address is a label.", by="pci_bus_id", name="gpu_pci_info"),
    _gpu("pcie_generation", "", "PCIe generation of the link now."),
    _gpu("pcie_width", "lanes", "PCIe lanes in use now."),
    _gpu("pcie_max_generation", "", "Highest PCIe generation that board and slot support."),
    _gpu("pcie_max_width", "lanes", "Most PCIe lanes that board and slot support."),
    _gpu("pcie_replays", "packets", "PCIe packets retransmitted.", "counter"),
    _gpu("pcie_received_bytes_per_second", "bytes/s", "PCIe traffic to the GPU, over a 20 ms window."),
    _gpu("pcie_sent_bytes_per_second", "bytes/s", "PCIe traffic from the GPU, over a 20 ms window."),
    _gpu("nvlink_received_bytes", "bytes", "NVLink data received, all links.", "counter"),
    _gpu("nvlink_sent_bytes", "bytes", "NVLink data sent, all links.", "counter"),
    # MIG instances. Memory belongs to the GPU instance and is given with its first compute instance alone.
    _mig("memory_used_mb", "MiB", "Memory in use by the GPU instance."),
    _mig("memory_free_mb", "MiB", "Memory free in the GPU instance."),
    _mig("memory_total_mb", "MiB", "Memory of the GPU instance."),
    _mig("multiprocessors", "", "Streaming multiprocessors of the instance."),
    _mig("sm_active_ratio", "ratio", "Share of time in which a multiprocessor of the instance had work."),
    _mig("sm_occupancy_ratio", "ratio", "Resident warps in the instance, as a share of the most that fit."),
    _mig("tensor_active_ratio", "ratio", "Share of cycles in which the instance's tensor cores were active."),
    _mig("dram_active_ratio", "ratio", "Share of cycles in which the instance's memory moved data."),
    # The machine
    _host("cpu_ratio", "ratio", "CPU time not idle, over all cores since the last reading."),
    _host("cpu_core_ratio", "ratio", "CPU time not idle, for each core.", by="core"),
    _host("cpu_iowait_ratio", "ratio", "CPU time spent waiting for I/O, over all cores."),
    _host("cpu_cores", "cores", "Logical cores of the machine."),
    _host("load_1m", "", "Load average over 1 minute."),
    _host("load_5m", "", "Load average over 5 minutes."),
    _host("load_15m", "", "Load average over 15 minutes."),
    _host("memory_used_bytes", "bytes", "Memory in use that cannot be reclaimed."),
    _host("memory_available_bytes", "bytes", "Memory available without swapping."),
    _host("memory_total_bytes", "bytes", "Memory installed."),
    _host("swap_used_bytes", "bytes", "Swap in use."),
    _host("swap_total_bytes", "bytes", "Swap configured."),
    _host("disk_read_bytes", "bytes", "Read from all disks.", "counter"),
    _host("disk_written_bytes", "bytes", "Written to all disks.", "counter"),
    _host("disk_reads", "operations", "Read operations on all disks.", "counter"),
    _host("disk_writes", "operations", "Write operations on all disks.", "counter"),
    _host("filesystem_available_bytes", "bytes", "Free space on the disks that a run writes to.", by="path"),
    _host("filesystem_size_bytes", "bytes", "Size of the disks that a run writes to.", by="path"),
    _host("disk_device_read_bytes", "bytes", "Read from each disk.", "counter", by="device"),
    _host("disk_device_written_bytes", "bytes", "Written to each disk.", "counter", by="device"),
    _host("disk_device_reads", "operations", "Read operations on each disk.", "counter", by="device"),
    _host("disk_device_writes", "operations", "Write operations on each disk.", "counter", by="device"),
    _host(
        "network_received_bytes", "bytes", "Received on all network interfaces (in a container, on its own).", "counter"
    ),
    _host("network_sent_bytes", "bytes", "Sent on all network interfaces (in a container, on its own).", "counter"),
    _host("network_device_received_bytes", "bytes", "Received on each network interface.", "counter", by="device"),
    _host("network_device_sent_bytes", "bytes", "Sent on each network interface.", "counter", by="device"),
    # The container around us, from its cgroup
    _host("container_memory_used_bytes", "bytes", "Memory charged to this container, without reclaimable file cache."),
    _host("container_memory_limit_bytes", "bytes", "Memory limit of this container."),
    _host("container_cpu_seconds", "seconds", "CPU time used by this container.", "counter"),
    _host("container_cpu_limit_cores", "cores", "CPU limit of this container."),
    _host("container_cpu_throttled_seconds", "seconds", "Time this container was throttled by its limit.", "counter"),
    # The watched command and all that descends from it
    _host("job_processes", "processes", "Processes of the watched command.", name="job_processes"),
    _host("job_threads", "threads", "Threads of the watched command.", name="job_threads"),
    _host("job_cpu_seconds", "seconds", "CPU time of the watched command.", "counter", name="job_cpu_seconds_total"),
    _host("job_cpu_cores", "cores", "Cores used by the watched command, on average.", name="job_cpu_cores"),
    _host("job_memory_bytes", "bytes", "Resident memory of the watched command.", name="job_memory_bytes"),
    _host(
        "job_memory_peak_bytes",
        "bytes",
        "Peak resident memory of any one process of the watched command, from the kernel; known at its end.",
        name="job_memory_peak_bytes",
    ),
    _host(
        "job_read_bytes", "bytes", "Read from storage by the watched command.", "counter", name="job_read_bytes_total"
    ),
    _host(
        "job_written_bytes",
        "bytes",
        "Written to storage by the watched command.",
        "counter",
        name="job_written_bytes_total",
    ),
    _host(
        "job_network_received_bytes",
        "bytes",
        "Received by the container of a benchmark that has its own network.",
        "counter",
        name="job_network_received_bytes_total",
    ),
    _host(
        "job_network_sent_bytes",
        "bytes",
        "Sent by the container of a benchmark that has its own network.",
        "counter",
        name="job_network_sent_bytes_total",
    ),
    # The driver of the GPUs
    _host(
        "gpu_pods",
        "",
        "Always 1: the Kubernetes pod that holds a GPU; in recorded lines, `UUID/namespace/pod/container`.",
        by="pod",
        name="gpu_pod_info",
    ),
    _host(
        "gpu_driver_versions",
        "",
        "Always 1: the NVIDIA driver version is a label.",
        by="version",
        name="gpu_driver_info",
    ),
    _host(
        "cuda_versions", "", "Always 1: the newest CUDA the driver supports is a label.", by="version", name="cuda_info"
    ),
    # Energy of the CPU
    _host("cpu_energy_joules", "joules", "Energy of all CPU packages since pulsetrain started (RAPL).", "counter"),
    _host("cpu_package_energy_joules", "joules", "Energy of each CPU package.", "counter", by="package"),
    _host("dram_energy_joules", "joules", "Energy of all memory banks (RAPL).", "counter"),
    _host("dram_package_energy_joules", "joules", "Energy of each package's memory.", "counter", by="package"),
    _host("end_announced", "bool", "1 once the cloud has announced that it will reclaim this machine."),
    # pulsetrain itself
    _host("source_up", "bool", "1 while a source can be read.", by="source", name="pulsetrain_source_up"),
    _host(
        "source_read_seconds",
        "seconds",
        "Time the last reading of a source took.",
        by="source",
        name="pulsetrain_source_read_seconds",
    ),
    _host(
        "fetch_seconds",
        "seconds",
        "Time the last check for data from other machines took.",
        name="pulsetrain_fetch_seconds",
    ),
    _host(
        "part_up",
        "bool",
        "0 while a part of pulsetrain is stuck or fails; absent for parts that never had trouble.",
        by="part",
        name="pulsetrain_part_up",
    ),
    _host(
        "part_skipped_items",
        "items",
        "Items that a part of pulsetrain could not process and skipped; absent for parts that never had trouble.",
        "counter",
        by="part",
        name="pulsetrain_part_skipped_items_total",
    ),
    _host(
        "pulsetrain_cpu_seconds", "seconds", "CPU time of pulsetrain.", "counter", name="pulsetrain_cpu_seconds_total"
    ),
    # Processes: those on a GPU, and those of the watched command
    _process("gpu_memory_mb", "MiB", "GPU memory held by the process."),
    _process("sm_ratio", "ratio", "Multiprocessor share of the process."),
    _process("cpu_cores", "cores", "Cores used by the process, on average."),
    _process("cpu_seconds", "seconds", "CPU time of the process.", "counter"),
    _process("memory_bytes", "bytes", "Resident memory of the process."),
    _process("start_time_seconds", "seconds", "When the process started, in seconds since the epoch."),
    _process("threads", "threads", "Threads of the process."),
    _process("read_bytes", "bytes", "Read from storage by the process.", "counter"),
    _process("written_bytes", "bytes", "Written to storage by the process.", "counter"),
    # The training loop, as the recorder inside the training process reports it
    _training("step", "steps", "Steps done: updates of the weights.", "counter", name="training_steps_total"),
    _training("epoch", "epochs", "Passes over the training data."),
    _training("loss", "", "Training loss of the step; of the first optimizer, where several take turns."),
    _training("learning_rate", "", "Learning rate of the first parameter group.", name="learning_rate"),
    _training(
        "gradient_norm",
        "",
        "Norm of all gradients, where the program computes it, or from a sample.",
        name="gradient_norm",
    ),
    _training(
        "throughput_samples_per_sec",
        "samples/s",
        "Samples in the step, divided by its duration.",
        name="training_samples_per_second",
    ),
    _training(
        "throughput_tokens_per_sec",
        "tokens/s",
        "Tokens in the step, divided by its duration.",
        name="training_tokens_per_second",
    ),
    _training("memory_allocated_mb", "MiB", "GPU memory held by tensors.", name="memory_allocation_mb"),
    _training("memory_reserved_mb", "MiB", "GPU memory held by the allocator."),
    _training(
        "step_seconds",
        "seconds",
        "From the end of the last step to the end of this one.",
        "amount",
        name="training_step_duration_seconds",
    ),
    _training("data_wait_seconds", "seconds", "Waiting for the next batch.", "amount"),
    _training("forward_seconds", "seconds", "From a batch to its backward pass: copy, forward pass, loss.", "amount"),
    _training("backward_seconds", "seconds", "Backward pass, as the host sees it.", "amount"),
    _training("optimizer_seconds", "seconds", "Optimizer steps, as the host sees them.", "amount"),
    _training("copy_seconds", "seconds", "Copying batches to the device, as far as the host waits for it.", "amount"),
    _training("communication_seconds", "seconds", "Waiting in collective operations of torch.distributed.", "amount"),
    _training("logging_seconds", "seconds", "Calls to experiment trackers.", "amount"),
    _training("gc_seconds", "seconds", "Python's garbage collection.", "amount"),
    _training("other_seconds", "seconds", "The rest of the step: checkpoints, validation, unseen work.", "amount"),
    _training("samples", "samples", "Samples in the step.", "amount"),
    _training("tokens", "tokens", "Tokens in the step, without padding where the batches show it.", "amount"),
    _training("padding_tokens", "tokens", "Padding tokens in the step, where the batches show them.", "amount"),
    _training("accumulation", "passes", "Backward passes of the step."),
    _training("optimizers", "", "Optimizer steps that make up the step."),
    _training("skipped", "steps", "Steps whose update was skipped because of infinite gradients.", "amount"),
    _training("total_steps", "steps", "Planned steps."),
    _training("flops", "operations", "Floating point operations of the step, estimated.", "amount"),
    _training("mfu_ratio", "ratio", "Model FLOPs utilization: estimated share of the device's peak."),
    _training("phase_seconds", "seconds", "Length of a phase, reported at its end.", "amount"),
    _training("phase", "", "What the program reports doing when not training.", "text"),
    _training("training", "", "The name the program gave to this training.", "text"),
    # What a run has used so far on this host
    _account("energy_joules", "joules", "Energy so far, of GPUs, CPUs and memory, times PUE.", "counter", by="device"),
    _account("energy_projected_joules", "joules", "Energy at the end of the planned steps, times PUE."),
    _account("gpu_seconds", "seconds", "Time so far, of all GPUs together.", "counter"),
    _account("gpu_idle_seconds", "seconds", "Idle time so far, of all GPUs together.", "counter"),
    _account("carbon_grams", "grams", "Emissions so far, in CO2 equivalents.", "counter"),
    _account("carbon_projected_grams", "grams", "Emissions at the end of the planned steps, in CO2 equivalents."),
    _account("carbon_grams_per_kwh", "g/kWh", "Carbon intensity of the electricity now."),
    _account("cost", "", "Cost so far.", "counter", by="currency"),
    _account("cost_projected", "", "Cost at the end of the planned steps.", by="currency"),
    _account("progress_ratio", "ratio", "Share of the planned steps that are done."),
    _account("seconds", "seconds", "Time so far.", "counter"),
    _account("projected_seconds", "seconds", "Time the run will have taken at the end of the planned steps."),
    _account("remaining_seconds", "seconds", "Time to the end of the planned steps, at the current pace."),
)

STEP_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 100.0),
)
"""Upper bounds in seconds of the histogram of step durations."""

STEP_COUNTS = Metric(
    "training",
    "step_counts",
    "training_step_duration_seconds",
    "amount",
    "seconds",
    "From the end of the last step to the end of this one.",
    by="le",
)
"""How many steps took no longer than each bound and longer than the one below; `+Inf` took longer than all."""
NONFINITE = Metric(
    "training",
    "nonfinite_counts",
    "training_nonfinite_total",
    "counter",
    "reports",
    "Reports in which this value was NaN or infinite; `other` counts values that the program named itself.",
    by="value",
)
"""Some servers drop NaN and charts leave it out: this count remains."""
TRAINING_TIME = Metric(
    "training",
    "time_seconds",
    "training_time_seconds_total",
    "counter",
    "seconds",
    "Time of the rank by what it was spent on, as far as its reports show.",
    by="class",
)
TRAINING_VALUE = Metric(
    "training",
    "value",
    "training_value",
    "gauge",
    "",
    "A value that the program logs under a name of its own.",
    by="name",
)
GPU_INFO = Metric("gpu", "info", "gpu_info", "gauge", "", "Which GPU this is: always 1, its model is a label.")
MIG_INFO = Metric("mig", "info", "gpu_mig_info", "gauge", "", "Which MIG instance this is: always 1.")
DEVICE_INFO = {metric.table: metric for metric in (GPU_INFO, MIG_INFO)}
"""By table: the series that describes a subject, with labels that its other series do not have."""
RUN_INFO = Metric("run", "info", "run_info", "gauge", "", "A run: always 1, its name and tags are labels.")
RUN_START = Metric(
    "run", "start", "run_start_time_seconds", "gauge", "seconds", "When the run began, in seconds since the epoch."
)
BUILD_INFO = Metric("host", "info", "pulsetrain_build_info", "gauge", "", "Which pulsetrain is watching: always 1.")
DATA_AGE = Metric(
    "host",
    "data_age_seconds",
    "pulsetrain_data_age_seconds",
    "gauge",
    "seconds",
    "Age of the newest reading of the machine, or of the newest training report.",
    by="data",
)
DATA_TABLES = {"machine": ("host", "gpu"), "training": ("training",)}
"""The tables whose newest line says how old the data are, for each value of the label `data`."""
EVENTS = Metric("events", "events", "pulsetrain_events_total", "counter", "events", "Events so far.", by="kind")
ALERT = Metric("events", "alert", "pulsetrain_alert", "gauge", "bool", "1 while an alert fires.", by="alertname")
WEB_RUNS = Metric("web", "runs", "pulsetrain_web_runs", "gauge", "runs", "Runs that `serve` shows.", by="status")
WEB_VIEWERS = Metric("web", "viewers", "pulsetrain_web_viewers", "gauge", "viewers", "Open pages with live updates.")
WEB_OPEN_BYTES = Metric(
    "web",
    "open_bytes",
    "pulsetrain_web_open_bytes",
    "gauge",
    "bytes",
    "Size of the readings that `serve` holds in memory.",
)
CACHE_UP = Metric("cache", "up", "cache_up", "gauge", "bool", "1 while the nginx of the dataset cache runs.")
CACHE_LOOKUPS = Metric(
    *("cache", "lookups", "cache_lookups_total", "counter", "slices"),
    "Shard slices requested, by cache result: hit, miss, stale, ...",
    by="status",
)
CACHE_REQUESTS = Metric(
    "cache", "requests", "cache_requests_total", "counter", "requests", "Requests answered by the cache.", by="code"
)
CACHE_SENT = Metric(
    "cache", "sent_bytes", "cache_sent_bytes_total", "counter", "bytes", "Data the cache sent to training processes."
)
CACHE_FETCHED = Metric(
    *("cache", "fetched_bytes", "cache_fetched_bytes_total", "counter", "bytes"),
    "Data the cache fetched from the shard server.",
)
CACHE_DISK = Metric("cache", "disk_bytes", "cache_disk_bytes", "gauge", "bytes", "Disk space taken by cached slices.")
CACHE_DISK_LIMIT = Metric(
    "cache", "disk_limit_bytes", "cache_disk_limit_bytes", "gauge", "bytes", "Disk space that cached slices may take."
)
EXPORTED = (
    *(STEP_COUNTS, NONFINITE, TRAINING_TIME, TRAINING_VALUE, GPU_INFO, MIG_INFO),
    *(RUN_INFO, RUN_START, BUILD_INFO, DATA_AGE, EVENTS, ALERT),
    *(WEB_RUNS, WEB_VIEWERS, WEB_OPEN_BYTES),
    *(CACHE_UP, CACHE_LOOKUPS, CACHE_REQUESTS, CACHE_SENT, CACHE_FETCHED, CACHE_DISK, CACHE_DISK_LIMIT),
)
"""What exporters make of lines, events and run.json. They stand in no line, so no file and no table has them."""
