"""What a run was, in words: code, versions, what was seen of the training, where it ran, the files it wrote."""

from collections.abc import Iterator

from pulsetrain.insight.report import Report
from pulsetrain.runs.description import NotedFile, Place
from pulsetrain.runs.folder import Run
from pulsetrain.views.text import bytes_text

MOST_FILES = 5
_FIRST = ("python", "torch", "jax", "tensorflow", "keras", "transformers", "lightning", "cuda", "cudnn", "nccl")
_CLOUDS = {"gcp": "Google Cloud", "aws": "AWS", "azure": "Azure"}


def facts(run: Run) -> list[tuple[str, str]]:
    """A name and a text each; empty ones say nothing."""
    return [
        ("code", code(run)),
        ("versions", versions(run)),
        ("training", ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in run.training.items())),
        *(("place", f"{name}: {text}") for name, text in places(run)),
        *(("file", text) for text in files(run)),
    ]


def code(run: Run) -> str:
    found = run.code
    if found is None:
        return "not recorded (--private)" if run.private else ""
    at = found.commit[:12] or "no commit yet"
    branch = f" on {found.branch}" if found.branch else ""
    changes = ", with changes" if found.dirty else ""
    kept = f" ({found.diff}{', cut' if found.diff_cut else ''})" if found.diff else ""
    return f"{at}{branch}{changes}{kept}{f', {found.remote}' if found.remote else ''}"


def versions(run: Run) -> str:
    names = [*(name for name in _FIRST if name in run.versions), *(name for name in run.versions if name not in _FIRST)]
    listed = f" ({run.packages})" if run.packages else ""
    return ", ".join(f"{name} {run.versions[name]}" for name in names) + listed


def places(run: Run) -> Iterator[tuple[str, str]]:
    """Each host's, where something is known."""
    for name, host in run.hosts.items():
        if host.place and (text := _place(host.place)):
            yield name, text


def files(run: Run) -> list[str]:
    """The newest few, with how many there are."""
    shown = [_file(file) for file in run.files[-MOST_FILES:]]
    left = len(run.files) - len(shown)
    return [*([f"{left} more in run.json"] if left else []), *shown]


def account_source(report: Report, name: str) -> str:
    """`, from Google Cloud's metadata server` where nobody named the price or the region."""
    source = report.run.account_sources.get(name)
    ours = getattr(report.account, name) == getattr(report.run.account, name)
    return f", from {source}" if source and ours else ""


def _place(place: Place) -> str:
    spot = {True: ", spot", False: "", None: ""}[place.spot]
    cloud = " ".join(filter(None, (_CLOUDS.get(place.cloud, place.cloud), place.machine_type)))
    region = place.zone if place.zone.startswith(place.region) else f"{place.region} {place.zone}".strip()
    parts = [
        f"{cloud}{f' in {region}' if region else ''}{spot}" if cloud else "",
        f"container {place.container}" if place.container else "",
        *(
            " ".join([platform, *(f"{key}={value}" for key, value in details.items())])
            for platform, details in place.platforms.items()
        ),
    ]
    return "; ".join(filter(None, parts))


def _file(file: NotedFile) -> str:
    parts = [
        file.kind if file.kind != "file" else "",
        "" if file.step is None else f"step {file.step}",
        "" if file.bytes is None else bytes_text(file.bytes),
        f"sha256 {file.sha256[:12]}" if file.sha256 else "",
    ]
    return f"{file.path} ({', '.join(filter(None, parts))})" if any(parts) else file.path


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {member}" for name, member in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
