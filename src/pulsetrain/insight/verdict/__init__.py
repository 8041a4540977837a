"""What held a run back: every rule judged on its record, the findings in order, and one sentence about them.

Judges are pure functions of a `Case`, one for each rule of `rules/` that can be judged on a record. One whose signal is
missing finds nothing; it never guesses.
"""

from collections.abc import Iterator
from dataclasses import replace

from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.verdict import bottlenecks, devices, learning, nodes, pace
from pulsetrain.insight.verdict.case import Case, Judge, Judged
from pulsetrain.insight.verdict.gains import expected_gain, finding_cost, matters
from pulsetrain.insight.verdict.sizing import sizing
from pulsetrain.rules.declared import RECORD_RULES
from pulsetrain.rules.finding import Finding, Verdict
from pulsetrain.rules.rule import DeclaredRule, RecordTest
from pulsetrain.rules.text import finding_text, share_text
from pulsetrain.snapshot import Severity

JUDGES: dict[str, Judge] = {
    "InputBound": bottlenecks.input_bound,
    "HostToDeviceBound": bottlenecks.host_to_device_bound,
    "LaunchBound": bottlenecks.launch_bound,
    "CommunicationBound": bottlenecks.communication_bound,
    "CheckpointHeavy": bottlenecks.checkpoint_heavy,
    "EvaluationHeavy": bottlenecks.evaluation_heavy,
    "LoggingHeavy": bottlenecks.logging_heavy,
    "StartupHeavy": bottlenecks.startup_heavy,
    "ComputeBound": bottlenecks.compute_bound,
    "LowGpuUtilization": devices.low_gpu_utilization,
    "CpuBottleneck": devices.cpu_bottleneck,
    "IoBottleneck": devices.io_bottleneck,
    "BatchTooSmall": devices.batch_too_small,
    "NoTensorCores": devices.no_tensor_cores,
    "MemoryGrowth": devices.memory_growth,
    "MemoryPressure": devices.memory_pressure,
    "Straggler": pace.straggler,
    "LoadImbalance": pace.load_imbalance,
    "SlowedDown": pace.slowed_down,
    "StepOutliers": pace.step_outliers,
    "Stalled": pace.stalled,
    "ThermalThrottle": devices.thermal_throttle,
    "PowerCap": devices.power_cap,
    "GpuLost": devices.gpu_lost,
    "NodeVanished": nodes.node_vanished,
    "IdleGpu": devices.idle_gpu,
    "NonFinite": learning.non_finite,
    "LossSpike": learning.loss_spike,
    "LossNotDecreasing": learning.loss_not_decreasing,
    "GradientExplosion": learning.gradient_explosion,
    "VanishingGradient": learning.vanishing_gradient,
    "Overfit": learning.overfit,
    "PaddingWaste": learning.padding_waste,
}
"""By the name of the rule. Of two that weigh the same, the first comes first."""
GOOD = "ComputeBound"
"""The finding that nothing is wrong."""
_GRAVITY: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}


def judge(case: Case) -> Verdict:
    """The verdict about a run."""
    found = {name: judged for name in JUDGES if (judged := _judged(case, name))}
    found = _effects_after_causes(found)
    if any(_severity(RECORD_RULES[name], judged) != "info" for name, judged in found.items()):
        found.pop(GOOD, None)
    findings = [_finding(case, RECORD_RULES[name], judged) for name, judged in found.items()]
    findings.sort(key=lambda finding: (_GRAVITY[finding.severity], -(finding.cost.seconds or 0.0)))
    main = next((finding for finding in findings if finding.severity != "info"), None)
    return Verdict(
        headline=_headline(case, main, findings), main=main, findings=tuple(findings), sizing=tuple(sizing(case))
    )


def _judged(case: Case, name: str) -> Judged | None:
    if name in case.limits.off:
        return None
    judged = next(JUDGES[name](case), None)
    return _weighed(case, RECORD_RULES[name], judged) if judged else None


def _weighed(case: Case, rule: DeclaredRule, judged: Judged) -> Judged:
    """What holds a run back is `info` where too few steps show it, or where it costs too little to matter."""
    if not _test(rule).holds_back or (case.enough_steps and matters(case, judged)):
        return judged
    return replace(judged, severity="info")


def _effects_after_causes(found: dict[str, Judged]) -> dict[str, Judged]:
    """A finding that another one explains is not a cause of its own: it stays, as `info`."""
    explained = {
        effect
        for name, judged in found.items()
        if _severity(RECORD_RULES[name], judged) != "info"
        for effect in _test(RECORD_RULES[name]).explains
    }
    return {name: replace(judged, severity="info") if name in explained else judged for name, judged in found.items()}


def _finding(case: Case, rule: DeclaredRule, judged: Judged) -> Finding:
    values = {evidence.signal: evidence.value for evidence in reversed(judged.evidence)}
    severity = _severity(rule, judged)
    advice = judged.advice or rule.advice
    gain = expected_gain(case, judged) if severity != "info" else ""
    return Finding(
        rule=rule.name,
        severity=severity,
        confidence=judged.confidence,
        summary=finding_text(_test(rule).summary, {**values, **judged.words}, case.limits),
        evidence=judged.evidence,
        cost=finding_cost(case, judged),
        advice=f"{advice} {gain}".strip(),
    )


def _headline(case: Case, main: Finding | None, findings: list[Finding]) -> str:
    if main is not None:
        return f"{main.summary}."
    if reason := _cannot_tell(case):
        return f"Cannot tell what holds it back: {reason}"
    good = next((finding for finding in findings if finding.rule == GOOD), None)
    if good is not None:
        return f"Nothing holds it back: {good.summary[0].lower()}{good.summary[1:]}."
    return f"Nothing stands out{_largest(case)}."


def _cannot_tell(case: Case) -> str:
    """Why the loop cannot be judged; empty where it can."""
    if case.steps is None:
        return next(iter(case.missing), "no training step was recorded.")
    if all(mean is None for mean in case.steps.parts.values()) and case.gpu_busy_share is None:
        gpus = "the GPUs are simulated" if case.facts.devices.gpus else "there is no GPU"
        return f"only whole steps were reported, and {gpus}."
    return ""


def _largest(case: Case) -> str:
    """What most of the time went into, where it is known."""
    shares = dict(_step_shares(case))
    if not shares:
        return ""
    part = max(shares, key=lambda part: shares[part])
    return f": {share_text(shares[part])} of a step is {part}"


def _step_shares(case: Case) -> Iterator[tuple[str, float]]:
    for part, words in STEP_PARTS.items():
        share = case.steps.share(part) if case.steps else None
        if share is not None:
            yield words, share


def _severity(rule: DeclaredRule, judged: Judged) -> Severity:
    return judged.severity or _test(rule).severity or rule.severity


def _test(rule: DeclaredRule) -> RecordTest:
    assert rule.on_record is not None, rule.name
    return rule.on_record
