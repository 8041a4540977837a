"""What OpenShift needs to let a pod mount paths of its node: a security context constraint, for the agent alone."""

from collections.abc import Iterator

from pulsetrain.deploy.kubernetes.agent import AGENT
from pulsetrain.deploy.kubernetes.objects import Object, make_object
from pulsetrain.deploy.kubernetes.settings import KubernetesSettings


def host_mounts(settings: KubernetesSettings) -> Iterator[Object]:
    yield make_object(
        "SecurityContextConstraints",
        AGENT,
        "agent",
        api="security.openshift.io/v1",
        allowHostDirVolumePlugin=True,
        allowHostIPC=False,
        allowHostNetwork=False,
        allowHostPID=False,
        allowHostPorts=False,
        allowPrivilegeEscalation=False,
        allowPrivilegedContainer=False,
        allowedCapabilities=[],
        readOnlyRootFilesystem=True,
        requiredDropCapabilities=["ALL"],
        runAsUser={"type": "RunAsAny"},
        seLinuxContext={"type": "MustRunAs"},
        fsGroup={"type": "RunAsAny"},
        supplementalGroups={"type": "RunAsAny"},
        seccompProfiles=["runtime/default"],
        volumes=["emptyDir", "hostPath"],
        users=[f"system:serviceaccount:{settings.namespace}:{AGENT}"],
        groups=[],
    )
