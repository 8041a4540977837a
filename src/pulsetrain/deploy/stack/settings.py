"""The options of a stack, kept in its folder, so that `up`, `down` and `status` need not be given them again."""

import hashlib
import re
import shutil
from pathlib import Path

import msgspec

from pulsetrain.deploy.stack.services import GPU_EXPORTERS, SERVICES, Service
from pulsetrain.errors import UsageError

LOOPBACK = "127.0.0.1"
EXPORTER_PORT = 9400
"""Where `pulsetrain watch --prometheus-port 9400` answers."""
STATE_FILE = "stack.json"
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - compared with, not bound to
"""Addresses that stand for all of this machine, and one at which it is found then."""
_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?")


class StackSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What the user asked a stack to be."""

    native: bool = False
    """Servers installed on this machine, without Docker."""
    address: str = LOOPBACK
    """Where the servers that people ask listen."""
    ports: dict[str, int] = {}
    """For servers that are not to have their usual port."""
    gpu: bool | None = None
    """Whether to run NVIDIA's exporters; None looks for a GPU."""
    victoriametrics: bool = False
    local: bool = True
    """Whether the exporter of this machine is a target."""
    targets: tuple[str, ...] = ()
    targets_file: str | None = None
    kubernetes: bool = False
    kubeconfig: str | None = None
    external_url: str | None = None
    """Where people find Grafana; None where they find it by the name of this machine."""
    webhook: str | None = None
    """Where Alertmanager sends alerts; so does the next."""
    slack: str | None = None
    thresholds: str | None = None
    """A file of thresholds for the alerts."""

    @property
    def asked_for(self) -> list[Service]:
        """The servers that this stack is to have. NVIDIA's exporters come in containers alone."""
        left_out: set[str] = set()
        if self.native or not (nvidia_gpu() if self.gpu is None else self.gpu):
            left_out.update(GPU_EXPORTERS)
        if not self.victoriametrics:
            left_out.add("victoriametrics")
        return [service for name, service in SERVICES.items() if name not in left_out]

    @property
    def services(self) -> list[Service]:
        """Those that it has: without containers, what is installed."""
        return [service for service in self.asked_for if not self.native or shutil.which(service.program)]

    def port(self, name: str) -> int:
        return self.ports.get(name, SERVICES[name].port)

    def address_of(self, name: str) -> str:
        return self.address if SERVICES[name].asked_by_people else LOOPBACK

    @property
    def open_to_all(self) -> bool:
        return self.address in _EVERYWHERE

    def listen(self, name: str) -> str:
        """The address and port that a server listens on."""
        return _joined(self.address_of(name), self.port(name))

    def reach(self, name: str) -> str:
        """The address and port at which it is found from this machine."""
        address = self.address_of(name)
        return _joined(_EVERYWHERE.get(address, address), self.port(name))

    def url(self, name: str) -> str:
        return f"http://{self.reach(name)}"


class StackState(msgspec.Struct, forbid_unknown_fields=True):
    """stack.json."""

    project: str
    """The name of the Compose project, and with it of the volumes."""
    settings: StackSettings
    files: dict[str, str] = {}
    """What was last written to each file, as SHA-256: one that differs was edited by the user."""
    folder: str = ""
    """Where it was last written, to tell a copied folder from a moved one."""

    def save(self, folder: Path) -> None:
        """For its owner alone: the address of a webhook can be a secret. A file that says the same is not touched."""
        file = folder / STATE_FILE
        content = msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
        if not file.exists() or file.read_bytes() != content:
            file.touch(mode=0o600)
            file.write_bytes(content)


def new_state(folder: Path) -> StackState:
    return StackState(project_name(folder), StackSettings())


def project_name(folder: Path) -> str:
    """Of its own for each folder, also where two have the same last name."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")
    path = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()
    return f"pulsetrain-{name}-{path[:8]}"


def find_state(folder: Path) -> StackState | None:
    """The stack of a folder, if it has one. A copy of another stack's folder is a project of its own."""
    state = _read_state(folder)
    if state and _is_copy(folder, state):
        state.project = project_name(folder)
    return state


def _is_copy(folder: Path, state: StackState) -> bool:
    """Whether the folder in which this state was written still has it: then the folder was not moved."""
    written_in = Path(state.folder)
    if not state.folder or written_in == folder.resolve():
        return False
    try:
        original = _read_state(written_in)
    except UsageError:
        return True
    return original is not None and original.project == state.project


def _read_state(folder: Path) -> StackState | None:
    file = folder / STATE_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=StackState)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{file} is damaged: {error}.", hint="Remove it and give the options again: pulsetrain stack config."
        ) from None


def load_state(folder: Path) -> StackState:
    state = find_state(folder)
    if state is None:
        raise UsageError(f"there is no stack in {folder}.", hint=f"Create one: pulsetrain stack up {folder}")
    return state


def parse_target(text: str) -> str:
    """`host:port` of an exporter; the port may be left out."""
    found = _TARGET.fullmatch(text)
    if not found or not 0 < int(found[2] or EXPORTER_PORT) < 65536:
        raise UsageError(f"{text!r} is not a target such as gpu01:{EXPORTER_PORT}.")
    return f"{found[1]}:{found[2] or EXPORTER_PORT}"


def nvidia_gpu() -> bool:
    """Whether this machine has an NVIDIA driver."""
    return shutil.which("nvidia-smi") is not None or Path("/dev/nvidiactl").exists()


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
