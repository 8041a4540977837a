"""A training as a Job, or as a JobSet on several nodes, with `pulsetrain run` before its command."""

from pulsetrain.deploy.kubernetes.cache import CACHE, CACHE_PORT
from pulsetrain.deploy.kubernetes.collector import collector_url
from pulsetrain.deploy.kubernetes.objects import (
    COMPONENT,
    METRICS_PORT,
    PART_OF,
    Object,
    container_security,
    field_variable,
    make_object,
    pod_security,
    secret_variable,
    variables,
)
from pulsetrain.deploy.kubernetes.settings import TrainerJobSpec

CONTAINER = "trainer"
JOB = "pulsetrain.dev/job"
"""The label of all objects and pods of one training."""
MASTER_PORT = 29500
_NODE = "node"
"""The name of the job in a JobSet: its pods are NAME-node-0-INDEX-..."""
_HOME = "/var/lib/pulsetrain"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_GPU = "nvidia.com/gpu"


def trainer_job(spec: TrainerJobSpec) -> list[Object]:
    """The objects of a training: one, which owns all the others."""
    labels = {JOB: spec.name}
    if spec.queue is not None:
        labels["kueue.x-k8s.io/queue-name"] = spec.queue
    several = spec.nodes > 1
    return [
        make_object(
            "JobSet" if several else "Job",
            spec.name,
            "trainer",
            api="jobset.x-k8s.io/v1alpha2" if several else "batch/v1",
            namespace=spec.namespace,
            more_labels=labels,
            spec=_job_set(spec) if several else _job(spec),
        )
    ]


def _job(spec: TrainerJobSpec) -> Object:
    job: Object = {
        "backoffLimit": spec.backoff_limit,
        "completions": 1,
        "parallelism": 1,
        # A spot machine that is taken away, or a node that is drained, is not a failed try.
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "ttlSecondsAfterFinished": spec.keep_seconds,
        "template": _pod_template(spec),
    }
    if spec.deadline_seconds is not None:
        job["activeDeadlineSeconds"] = spec.deadline_seconds
    return job


def _job_set(spec: TrainerJobSpec) -> Object:
    """All nodes begin together, find each other by name, and when one fails all begin again."""
    job: Object = {
        "backoffLimit": 0,
        "completions": spec.nodes,
        "parallelism": spec.nodes,
        "completionMode": "Indexed",
        "template": _pod_template(spec),
    }
    if spec.deadline_seconds is not None:
        job["activeDeadlineSeconds"] = spec.deadline_seconds
    return {
        "network": {"enableDNSHostnames": True, "subdomain": spec.name, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": spec.backoff_limit},
        "ttlSecondsAfterFinished": spec.keep_seconds,
        "replicatedJobs": [{"name": _NODE, "replicas": 1, "template": {"spec": job}}],
    }


def _pod_template(spec: TrainerJobSpec) -> Object:
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    labels = {PART_OF: "pulsetrain", "app.kubernetes.io/name": spec.name, COMPONENT: "trainer", JOB: spec.name}
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": spec.service_account is not None,
        "enableServiceLinks": False,
        "securityContext": pod_security(spec.user),
        "terminationGracePeriodSeconds": 60,
        "containers": [_container(spec)],
        "volumes": _volumes(spec),
    }
    selector: dict[str, str] = {}
    tolerations: list[Object] = []
    if spec.gpus:
        tolerations.append({"key": _GPU, "operator": "Exists", "effect": "NoSchedule"})
        if spec.gpu_type is not None:
            selector[spec.gpu_label] = spec.gpu_type
    if spec.spot:
        spot = "cloud.google.com/gke-spot"
        selector[spot] = "true"
        tolerations.append({"key": spot, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    apart: Object = {}
    if spec.nodes > 1:  # a node is a machine: two pods on one would share its network, and its name
        term = {"labelSelector": {"matchLabels": {JOB: spec.name}}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    optional = {
        "affinity": apart,
        "nodeSelector": selector,
        "tolerations": tolerations,
        "serviceAccountName": spec.service_account,
    }
    pod |= {key: value for key, value in optional.items() if value}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}


def _container(spec: TrainerJobSpec) -> Object:
    given: dict[str, str] = {"cpu": spec.cpu, "memory": spec.memory, "ephemeral-storage": spec.disk}
    if spec.gpus:
        given[_GPU] = str(spec.gpus)
    mounts = [
        {"name": "runs", "mountPath": _HOME},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    if spec.checkpoints_claim is not None:
        mounts.append({"name": "checkpoints", "mountPath": "/checkpoints"})
    return {
        "name": CONTAINER,
        "image": spec.image,
        "command": ["pulsetrain", "run", *_run_options(spec), "--", *spec.command],
        "env": _environment(spec),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "securityContext": container_security(read_only=False),
        "resources": {"requests": given, "limits": given},
        "volumeMounts": mounts,
    }


def _run_options(spec: TrainerJobSpec) -> list[str]:
    address = "0.0.0.0"  # noqa: S104 - that of the pod
    options = ["--name", spec.name, "--prometheus-address", address, "--prometheus-port", str(METRICS_PORT)]
    send_to = collector_url(spec.namespace) if spec.send_to is None else spec.send_to
    return [*options, *(("--to", send_to) if send_to else ()), *spec.run_options]


def _environment(spec: TrainerJobSpec) -> list[Object]:
    """What the job says of itself comes last: a variable of the user's with the same name counts."""
    ours = {
        "PULSETRAIN_HOME": _HOME,
        "PULSETRAIN_CACHE_URL": f"http://{CACHE}.{spec.namespace}.svc:{CACHE_PORT}",
        "HOME": "/tmp",
        "PYTHONUNBUFFERED": "1",
        # What torchrun takes its options from, so that the same command works on any number of nodes.
        "PET_NNODES": str(spec.nodes),
        "PET_NPROC_PER_NODE": str(max(1, spec.gpus)),
    }
    found = [
        field_variable("PULSETRAIN_HOST", "spec.nodeName"),
        secret_variable("PULSETRAIN_COLLECTOR_TOKEN", "collector"),
    ]
    if spec.nodes > 1:
        ours |= {
            "PET_RDZV_ID": spec.name,
            "PET_MASTER_ADDR": f"{spec.name}-{_NODE}-0-0.{spec.name}",
            "PET_MASTER_PORT": str(MASTER_PORT),
        }
        found.append(field_variable("PET_NODE_RANK", _INDEX))
    found = [one for one in found if one["name"] not in spec.environment]
    return [*found, *variables(ours | dict(spec.environment))]


def _volumes(spec: TrainerJobSpec) -> list[Object]:
    """Shared memory is counted as memory of the pod: no more than half of it."""

    def claim(name: str) -> Object:
        return {"persistentVolumeClaim": {"claimName": name}}

    runs = claim(spec.runs_claim) if spec.runs_claim is not None else {"emptyDir": {"sizeLimit": spec.disk}}
    found: list[Object] = [
        {"name": "runs", **runs},
        {"name": "tmp", "emptyDir": {"sizeLimit": spec.disk}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _half(spec.memory)}},
    ]
    if spec.checkpoints_claim is not None:
        found.append({"name": "checkpoints", **claim(spec.checkpoints_claim)})
    return found


def _half(quantity: str) -> str:
    number = quantity.rstrip("mkKMGTi")
    unit = quantity[len(number) :]
    in_thousandths = round(float(number) * 500)
    return f"{in_thousandths // 1000}{unit}" if in_thousandths % 1000 == 0 else f"{in_thousandths / 1000:g}{unit}"
