"""What a training job on a cluster does, in words: waiting for a node, for its image, running, done, failed and why."""

import re
from typing import Any, Literal, NamedTuple

Stage = Literal["waiting", "stuck", "running", "done", "failed"]

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_EXITS = {
    "OOMKilled": "it used more memory than allowed: raise `memory`",
    "DeadlineExceeded": "it exceeded deadline_seconds",
    "Evicted": "the node evicted it: it used more disk than allowed, or the node ran out",
}


class JobState(NamedTuple):
    """Where a job is now."""

    stage: Stage
    words: str
    pod: str | None = None
    """The one to read logs of."""


def job_state(job: dict[str, Any] | None, pods: list[dict[str, Any]], events: list[dict[str, Any]]) -> JobState:
    """Read from what the cluster says of the job, of its pods and of what happened to these."""
    if job is None:
        return JobState("failed", "the job is gone: somebody deleted it")
    newest = sorted(pods, key=lambda pod: (_index(pod), str(pod["metadata"].get("creationTimestamp"))))
    first = [pod for pod in newest if _index(pod) == _index(newest[0])] if newest else []
    pod = first[-1] if first else None
    name = str(pod["metadata"]["name"]) if pod else None
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") in ("Complete", "Completed"):
            return JobState("done", "done", name)
        if condition.get("type") == "Failed":
            return JobState("failed", _why_failed(condition, pod), name)
    if pod is None:
        return JobState("waiting", "waiting for its pod")
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Running", "Succeeded", "Failed"):
        return JobState("running", str(phase).lower(), name)
    return _pending(pod, events)._replace(pod=name)


def _index(pod: dict[str, Any]) -> int:
    labels = pod["metadata"].get("labels") or {}
    return int(labels.get("batch.kubernetes.io/job-completion-index", 0))


def _why_failed(condition: dict[str, Any], pod: dict[str, Any] | None) -> str:
    reasons = [_EXITS.get(str(condition.get("reason")), "")]
    status = (pod.get("status") or {}) if pod else {}
    reasons.append(_EXITS.get(str(status.get("reason")), ""))
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        reasons.append(_EXITS.get(str(ended.get("reason")), ""))
        if ended.get("exitCode"):
            reasons.append(f"its command ended with exit code {ended['exitCode']}")
    return next(filter(None, reasons), "") or str(condition.get("message") or condition.get("reason") or "failed")


def _pending(pod: dict[str, Any], events: list[dict[str, Any]]) -> JobState:
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason")), str(waiting.get("message") or "")
        if reason in _IMAGE:
            return JobState("stuck", f"its image cannot be pulled: {message or container.get('image')}")
        if reason in _CONFIG:
            return JobState("stuck", f"its container cannot be created: {message}")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _unschedulable(str(condition.get("message") or ""), events)
    return JobState("waiting", "starting: the node is pulling the image")


def _unschedulable(message: str, events: list[dict[str, Any]]) -> JobState:
    """Why no node takes it. The autoscaler's events say whether one is being made."""
    said = {str(event.get("reason")): str(event.get("message") or "") for event in events}
    if failed := said.get("FailedScaleUp"):
        kind = "the quota is used up" if re.search("quota", failed, re.I) else "Google has no such machine available"
        return JobState("waiting", f"no GPU node can be added, {kind}: {failed}")
    if "TriggeredScaleUp" in said:
        return JobState("waiting", "a GPU node is being added, which takes a few minutes")
    if refused := said.get("NotTriggerScaleUp"):
        return JobState("stuck", f"no node fits it, and none that could be added would: {refused}")
    return JobState("waiting", f"no node has room for it: {message}")
