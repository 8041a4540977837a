"""pulsetrain on Kubernetes: agent, monitoring, dataset cache and collector for each kind of cluster, and training jobs.

Objects are made here, in Python; base/ and overlays/ hold them as files for Kustomize, which docs/generate.py writes.
"""

from pulsetrain.deploy.kubernetes.objects import as_yaml
from pulsetrain.deploy.kubernetes.overlays import OVERLAYS, render
from pulsetrain.deploy.kubernetes.settings import PARTS, KubernetesSettings, TrainerJobSpec
from pulsetrain.deploy.kubernetes.trainer import trainer_job

__all__ = ["OVERLAYS", "PARTS", "KubernetesSettings", "TrainerJobSpec", "as_yaml", "render", "trainer_job"]
