"""What a run was: its code, where it ran, the files it wrote. Parts of run.json."""

import msgspec


class Code(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The state of the git repository that the command was started in."""

    commit: str = ""
    """Empty before the first commit."""
    branch: str = ""
    """Empty when no branch is checked out."""
    remote: str = ""
    """Without user and password."""
    dirty: bool = False
    """Whether tracked files differ from the commit."""
    untracked: int = 0
    """Files and folders that git does not know."""
    diff: str = ""
    """The file in the run folder that holds the difference to the commit."""
    diff_cut: bool = False
    """Whether the difference is longer than what was kept of it."""


class Place(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a host is: what started its processes, its container, its cloud. Empty where it is not known."""

    platforms: dict[str, dict[str, str]] = {}
    """`{"slurm": {"job_id": "12", "partition": "gpu"}}`."""
    container: str = ""
    """The image, or what else is known of the container."""
    cloud: str = ""
    """gcp, aws or azure."""
    machine_type: str = ""
    region: str = ""
    zone: str = ""
    spot: bool | None = None
    """Whether the cloud may take the machine away at any time."""
    image: str = ""
    """Of the machine."""
    told_by: str = ""
    """Who says where it is: `Google Cloud's metadata server`."""


class NotedFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A file that the training wrote. It stays where it is."""

    path: str
    kind: str = "file"
    """file, or checkpoint."""
    bytes: int | None = None
    sha256: str = ""
    """Empty for a folder, and for a file that was too large or too short-lived to be read."""
    step: int | None = None
