"""The same objects as files for Kustomize: `kubectl apply --server-side -k overlays/plain`.

docs/generate.py writes them. Dashboards and rules are not there twice: the folders of stack/ that hold them are bases.
"""

from collections.abc import Iterator

from pulsetrain.deploy.kubernetes.monitoring import RULES_FILE, dashboards
from pulsetrain.deploy.kubernetes.objects import Object, as_yaml, labels
from pulsetrain.deploy.kubernetes.overlays import BASE, OVERLAYS, made, namespace
from pulsetrain.deploy.kubernetes.settings import NAMESPACE, KubernetesSettings

_HEAD = "# Written by docs/generate.py from src/pulsetrain/deploy/kubernetes: edit that.\n"
_FILE = "kustomization.yaml"


def kustomize_files() -> Iterator[tuple[str, str]]:
    """Every file, by its path below deploy/."""
    settings = KubernetesSettings()
    maps = {f"{name}.json": name for name in dashboards()}
    yield f"stack/grafana/{_FILE}", _from_files(maps, {"grafana_dashboard": "1"})
    yield f"stack/prometheus/{_FILE}", _from_files({RULES_FILE: "pulsetrain-rules"}, {})
    base = "kubernetes/base"
    yield f"{base}/namespace.yaml", _file([namespace(settings)])
    own = [part for part in BASE if part != "monitoring"]
    for part in own:
        yield f"{base}/{part}.yaml", _file(made(BASE[part], settings))
    files = ["namespace.yaml", *(f"{part}.yaml" for part in own), "../../stack/grafana", "../../stack/prometheus"]
    yield f"{base}/{_FILE}", _kustomization(files)
    for name, overlay in OVERLAYS.items():
        folder = f"kubernetes/overlays/{name}"
        for part, make in overlay.adds.items():
            yield f"{folder}/{part}.yaml", _file(made(make, settings))
        yield f"{folder}/{_FILE}", _kustomization(["../../base", *(f"{part}.yaml" for part in overlay.adds)])


def _kustomization(files: list[str]) -> str:
    return _file([{**_KIND, "resources": files}])


def _from_files(maps: dict[str, str], more: dict[str, str]) -> str:
    """Config maps made of files beside it, by their name."""
    options = {"disableNameSuffixHash": True, "labels": labels("monitoring", **more)}
    maker = [{"name": name, "files": [file]} for file, name in maps.items()]
    return _file([{**_KIND, "namespace": NAMESPACE, "generatorOptions": options, "configMapGenerator": maker}])


_KIND = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def _file(objects: list[Object]) -> str:
    return _HEAD + as_yaml(objects)
