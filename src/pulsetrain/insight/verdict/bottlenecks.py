"""Where the time went: judged by the time ledger and the parts of the steady steps."""

from collections.abc import Iterator
from dataclasses import replace

from pulsetrain.insight.verdict.case import Case, Judged, seen
from pulsetrain.rules.finding import Evidence

ONE_CORE = (0.85, 1.3)
"""Cores of a process that keeps one busy all the time."""
LONE_PROCESS_CORES = 1.5
"""A job with fewer has one process that works, and helpers."""
MOST_OF_A_STEP = 0.5
"""On a crowded machine, a smaller share may as well be the CPU's."""
BUSY_WORKER_CORES = 0.7
"""A loading process that keeps more of a core busy is bound by the CPU."""
COLD_CACHE_RATIO = 3.0
"""Reads in the first third of a run, by those in the last, of a cache that was cold."""
READING_BYTES_PER_SECOND = 5e6
"""Less than this is no sign of a cache that fills."""


def input_bound(case: Case) -> Iterator[Judged]:
    steps, limit = case.steps, case.limits.data_wait_ratio
    share = steps.share("data_wait") if steps else None
    # Loading processes that start together bring their batches together: only one step in so many waits.
    window = max(1, case.facts.devices.loading.workers)
    if steps is None or share is None or min(share, case.lasting_share("data_wait", window)) <= limit:
        return
    cause, advice, evidence = _why_data_is_late(case)
    yield Judged(
        (seen("data_wait_share", share, "ratio", threshold=limit), *evidence),
        ledger_class="data_wait",
        seconds=share * case.training_seconds,
        confidence="low" if case.crowded else case.step_confidence,
        words={"cause": f"{cause}, and other programs take the CPUs" if case.crowded else cause},
        advice=advice,
        saved_share=_of_run(case, share),
    )


_Cause = tuple[str, str, tuple[Evidence, ...]]
"""In words, what to do about it, and what shows it."""


def _why_data_is_late(case: Case) -> _Cause:
    machine, workers, limit = case.facts.machine, case.facts.devices.loading.workers, case.limits.time_share_ratio
    count = seen("loader_workers", workers, "processes")
    if machine.iowait_share is not None and machine.iowait_share > limit:
        cause, advice, evidence = _slow_disks(case)
    elif workers:
        cause, advice, evidence = _slow_workers(case)
    else:
        more = max(2, round(machine.cpu_cores or 4) - 1)
        cause, evidence = "it is loaded by the training process itself", ()
        advice = f"Load in separate processes: num_workers={more}, persistent_workers=True."
    return cause, advice, (count, *evidence)


def _slow_disks(case: Case) -> _Cause:
    loading, limit = case.facts.devices.loading, case.limits.time_share_ratio
    waiting = seen("cpu_iowait_share", case.facts.machine.iowait_share or 0.0, "ratio", threshold=limit)
    if not _cold(case):
        advice = "Use a local SSD, fewer and larger files, a cache near the machine, or more prefetching."
        return "the loading processes wait for the disks", advice, (waiting,)
    cooled = seen("first_third_read_ratio", loading.cooled_ratio or 0.0, "ratio", threshold=COLD_CACHE_RATIO)
    advice = "Copy the data to a local disk or into memory first, or keep it cached between runs."
    return "the page cache was cold, and the disks are slow", advice, (waiting, cooled)


def _slow_workers(case: Case) -> _Cause:
    machine, loading, limit = case.facts.machine, case.facts.devices.loading, case.limits.cpu_saturated_ratio
    cores, workers, busy = machine.cpu_cores, loading.workers, loading.worker_cores
    more = f"num_workers={_more_workers(workers, cores)}"
    if machine.cpu_share is not None and machine.cpu_share > limit and cores:
        advice = f"Make transforms cheaper, do them once or on the GPU, or use a machine with more than {cores:.0f} "
        "cores."
        return (
            f"all {cores:.0f} cores are busy",
            advice,
            (seen("cpu_share", machine.cpu_share, "ratio", threshold=limit),),
        )
    if busy is not None and busy > BUSY_WORKER_CORES:
        who = "the one loading process is" if workers == 1 else f"the {workers} loading processes are"
        advice = f"Use more workers ({more}), cheaper transforms, or decoding on the GPU."
        shown = (seen("worker_cpu_cores", busy, "cores", threshold=BUSY_WORKER_CORES),)
        return f"{who} bound by the CPU", advice, shown
    if workers == 1:
        return "there is only one loading process", f"Use more workers: {more}.", ()
    advice = "More workers and prefetching hide a slow source; a local copy or a cache removes it."
    return f"its {workers} loading processes wait for something else, such as a network", advice, ()


def _cold(case: Case) -> bool:
    loading = case.facts.devices.loading
    return (loading.read_bytes_per_second or 0.0) > READING_BYTES_PER_SECOND and (
        loading.cooled_ratio or 0.0
    ) > COLD_CACHE_RATIO


def _more_workers(workers: int, cores: float | None) -> int:
    return max(workers + 1, min(4 * workers, round(cores or 4)))


def host_to_device_bound(case: Case) -> Iterator[Judged]:
    yield from _heavy(case, "copy", case.limits.copy_ratio)


def communication_bound(case: Case) -> Iterator[Judged]:
    yield from _heavy(case, "communication", case.limits.communication_ratio)


def checkpoint_heavy(case: Case) -> Iterator[Judged]:
    yield from _heavy(case, "checkpoint", case.limits.checkpoint_ratio)


def evaluation_heavy(case: Case) -> Iterator[Judged]:
    yield from _heavy(case, "evaluation", case.limits.evaluation_ratio)


def logging_heavy(case: Case) -> Iterator[Judged]:
    if case.training_share("logging"):
        for found in _heavy(case, "logging", case.limits.logging_ratio):
            yield replace(found, words={"work": "logging"})
        return
    steps, limit = case.steps, case.limits.residual_ratio
    share = steps.share("other") if steps else None
    limit = MOST_OF_A_STEP if case.crowded else limit
    if steps is None or share is None or steps.share("forward") is None:
        return
    if min(share, case.lasting_share("other")) > limit:
        yield Judged(
            (seen("logging_share", share, "ratio", threshold=limit),),
            seconds=share * case.training_seconds,
            confidence="low",
            words={"work": "other work between steps"},
            saved_share=_of_run(case, share),
        )


def _heavy(case: Case, name: str, limit: float) -> Iterator[Judged]:
    """A class of the ledger that takes more of the training time than it may."""
    share = case.training_share(name)
    if case.ledger is None or share is None or share <= limit:
        return
    origin = case.ledger.classes[name].obtained
    yield Judged(
        (seen(f"{name}_share", share, "ratio", threshold=limit),),
        ledger_class=name,
        confidence="high" if origin == "measured" else "medium",
        saved_share=case.ledger.share(name),
    )


def launch_bound(case: Case) -> Iterator[Judged]:
    """Python that cannot give the GPU work fast enough: one core is full, others are free, nobody waits for data."""
    machine, steps, limits, gpu_busy = case.facts.machine, case.steps, case.limits, case.gpu_busy_share
    busiest, job, cores = machine.busiest_process_cores, machine.job_cores, machine.cpu_cores
    if steps is None or gpu_busy is None or busiest is None or job is None or not cores or cores < 2:
        return
    least, most = ONE_CORE
    one_core = least < busiest < most and job < LONE_PROCESS_CORES
    waits = (steps.share("data_wait") or 0.0) >= limits.data_wait_ratio
    short = steps.mean_seconds < limits.short_step_seconds
    if one_core and short and not waits and gpu_busy < limits.busy_percent / 100:
        yield Judged(
            (
                seen("step_seconds", steps.mean_seconds, "seconds", threshold=limits.short_step_seconds),
                seen("gpu_busy_share", gpu_busy, "ratio", threshold=limits.busy_percent / 100),
                seen("busiest_process_cores", busiest, "cores"),
            ),
            seconds=(1 - gpu_busy) * case.training_seconds,
            confidence="medium",
            saved_share=_of_run(case, 1 - gpu_busy),
        )


def startup_heavy(case: Case) -> Iterator[Judged]:
    ledger, limits = case.ledger, case.limits
    if ledger is None or not ledger.ranks or case.steps is None:
        return
    share = ledger.share("startup") + ledger.share("compile")
    seconds = share * case.seconds
    if share > limits.startup_ratio and seconds > limits.startup_seconds:
        yield Judged(
            (
                seen("startup_share", share, "ratio", threshold=limits.startup_ratio),
                seen("startup_seconds", seconds, "seconds", threshold=limits.startup_seconds),
            ),
            seconds=seconds,
        )


def compute_bound(case: Case) -> Iterator[Judged]:
    steps, limit, gpu_busy = case.steps, case.limits.compute_ratio, case.gpu_busy_share
    if steps is None:
        return
    parts = [steps.share(part) for part in ("forward", "backward", "optimizer")]
    known = [part for part in parts if part is not None]
    if not known or (gpu_busy is not None and gpu_busy < limit) or sum(known) < limit:
        return
    evidence = [seen("compute_share", sum(known), "ratio", threshold=limit)]
    if gpu_busy is not None:
        evidence.append(seen("gpu_busy_share", gpu_busy, "ratio", threshold=limit))
    yield Judged(tuple(evidence), confidence=case.step_confidence)


def _of_run(case: Case, share: float) -> float | None:
    """A share of the steady steps as one of the whole run."""
    return share * case.training_seconds / case.seconds if case.seconds > 0 else None
