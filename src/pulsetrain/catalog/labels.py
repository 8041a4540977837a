"""The labels of a subject's series, wherever they are shown: in Prometheus, in pushes and in rules."""

from collections.abc import Collection, Mapping

from pulsetrain.catalog.tables import SAMPLE_TABLES
from pulsetrain.snapshot import Label, Subject

# Asked for each of a thousand series at each scrape: prepared once.
_EXPORTED = {
    table.name: {label.name: label.exported for label in table.labels if label.exported} for table in SAMPLE_TABLES
}


def label_text(label: Label) -> str:
    """A label's value; empty for what is not known."""
    if label is None:
        return ""
    return str(label).lower() if isinstance(label, bool) else str(label)


def subject_labels(subject: Subject, scope: Mapping[str, str], job: Collection[str]) -> dict[str, str]:
    """The labels of a subject's series; an empty value is no label.

    `scope` are labels of every series, such as host and run. `job` are the process ids of the watched command, as text.
    """
    known = {name: label_text(subject.labels.get(label)) for label, name in _EXPORTED[subject.table].items()}
    if subject.table != "process":
        return {**scope, **known}
    known["container"], known["pod"] = _container(label_text(subject.labels.get("container")))
    # On a GPU there may be processes of others, which are none of the run's business.
    ours = known["pid"] in job
    known["run"] = label_text(subject.labels.get("run")) or (scope.get("run", "") if ours else "")
    return {**scope, **known}


def _container(text: str) -> tuple[str, str]:
    """Container and pod of `pod:UID/3f9c0a1b2c3d`; of another container it has no pod."""
    if not text.startswith("pod:"):
        return text, ""
    pod, _, container = text.removeprefix("pod:").partition("/")
    return container, pod
