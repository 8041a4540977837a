"""A container as a benchmark: attached before it starts, always drained, and nothing of it is left behind."""

import contextlib
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import pulsetrain
from pulsetrain.bench import engine
from pulsetrain.bench.declaration import Benchmark, parse_mount, parse_size
from pulsetrain.bench.engine import EngineError
from pulsetrain.bench.output import OutputLog
from pulsetrain.bench.workload import WorkloadExit, signal_reason
from pulsetrain.catalog import HOST
from pulsetrain.snapshot import Sample
from pulsetrain.sources.cgroup import CgroupUse
from pulsetrain.sources.job import Job
from pulsetrain.training import process
from pulsetrain.units import GIB
from pulsetrain.watching.recording import RunRecording

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.images import Image

LOOK_SECONDS = 0.1
"""How often to look at its cgroup, which is gone with it."""
DRAIN_SECONDS = 10.0
"""Output that is still to come after its end is waited for as long as some comes within so much time."""
MOST_KEPT_BYTES = 4 * GIB
"""What it leaves is kept up to so much."""
NVIDIA_SOURCES = ("nvidia", "nvidia_smi")
PACKAGE = "/pulsetrain/lib/pulsetrain"
RUN_FOLDER = "/pulsetrain/run"
"""Where the recorder and the run's folder are, in a container that is instrumented."""
ROOT_USERS = ("", "0", "root", "0:0", "root:root")


class ContainerUse:
    """The source of what a container uses: its processes as those of a command, with the sums of its cgroup."""

    name = "job"
    period = 1.0

    def __init__(self) -> None:
        self._job = Job()
        self._cgroup: CgroupUse | None = None

    def watch(self, pid: int, container: str) -> bool:
        """The container has started; False when nothing of it can be seen from here."""
        try:
            cgroup = CgroupUse(pid, container)
        except OSError:
            return False
        if cgroup.found:
            self._cgroup = cgroup
            self._job.watch(pid)
        return cgroup.found

    def look(self) -> None:
        """Take what the cgroup says now."""
        if self._cgroup:
            self._cgroup.read()

    def end(self) -> None:
        """The container has ended, and holds no memory any more."""
        if self._cgroup:
            self._cgroup.values.pop("job_memory_bytes", None)

    def read(self) -> Iterator[Sample]:
        if self._cgroup is None:
            return
        for sample in self._job.read():
            yield Sample(HOST, {**sample.values, **self._cgroup.values}) if sample.subject == HOST else sample

    def close(self) -> None:
        pass


class Containers:
    """The engine, for all runs: connected once, with its images found once."""

    def __init__(self, *, gpus: str | None, with_gpus: bool, instrumented: bool, told: Callable[[str], None]) -> None:
        """`told` gets a line about what takes long, or was found and put right."""
        self.client = engine.connect()
        self._gpus = gpus
        self._with_gpus = with_gpus
        self._instrumented = instrumented
        self._told = told
        self._images: dict[str, Image] = {}
        for name in engine.remove_leftovers(self.client):
            told(f"removed the container {name}, which an earlier benchmark left behind")

    def open(self, benchmark: Benchmark, output: OutputLog) -> "ContainerWorkload":
        image, seconds = self._image(benchmark.image)
        return ContainerWorkload(
            self.client,
            image,
            benchmark,
            output,
            gpus=self._gpus,
            with_gpus=self._with_gpus,
            instrumented=self._instrumented,
            pull_seconds=seconds,
        )

    def close(self) -> None:
        self.client.close()

    def _image(self, name: str) -> "tuple[Image, float | None]":
        """The image, and how long it took to pull it, where that was now."""
        if name in self._images:
            return self._images[name], None
        begun = time.monotonic()
        image, pulled = engine.find_image(self.client, name, lambda: self._told(f"pulling {name}"))
        self._images[name] = image
        return image, time.monotonic() - begun if pulled else None


class ContainerWorkload:
    """One container of an image."""

    def __init__(
        self,
        client: "DockerClient",
        image: "Image",
        benchmark: Benchmark,
        output: OutputLog,
        *,
        gpus: str | None = None,
        with_gpus: bool = True,
        instrumented: bool = True,
        pull_seconds: float | None = None,
    ) -> None:
        self.source = self._use = ContainerUse()
        self.stages = {} if pull_seconds is None else {"pull": round(pull_seconds, 3)}
        self.notes: list[str] = []
        self.image_id = str(image.id)
        self.image_digest = next(iter(image.attrs.get("RepoDigests") or []), "")
        self._client = client
        self._image = image
        self._benchmark = benchmark
        self._output = output
        self._gpus = gpus
        self._with_gpus = with_gpus
        self._instrumented = instrumented
        self._container: Container | None = None
        self._stream: Any = None
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self._wait_error: Exception | None = None
        self._started_at = datetime.now(UTC)
        self._began = 0.0
        self._seconds = 0.0
        self._exit_code: int | None = None
        self._wants_gpu = False

    def prepare(self, recording: RunRecording) -> None:
        """Create the container, and attach to it: what it prints at once is not missed."""
        begun = time.monotonic()
        options = self._options(recording)
        with engine.explained(f"the container of {self._benchmark.image} could not be created"):
            self._container = self._client.containers.create(self._image, list(self._benchmark.command), **options)
            self._stream = self._client.api.attach(
                self._container.id, stdout=True, stderr=True, stream=True, logs=False
            )
        self.stages["create"] = round(time.monotonic() - begun, 3)

    def start(self) -> None:
        container = self._running
        begun = time.monotonic()
        self._start_thread(self._drain, "output")
        with engine.explained(f"the container of {self._benchmark.image} could not be started"):
            container.start()
            self._began, self._started_at = time.monotonic(), datetime.now(UTC)
            self._start_thread(self._await_end, "end")
            container.reload()
        self.stages["start"] = round(self._began - begun, 3)
        pid = int(container.attrs["State"].get("Pid") or 0)
        if pid and not self._use.watch(pid, str(container.id)):
            self.notes.append("the container's resource usage cannot be read from here")
        self._check_gpu()

    def wait(self, seconds: float) -> WorkloadExit | None:
        deadline = time.monotonic() + seconds
        while not self._over.wait(min(LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            self._use.look()
            if time.monotonic() >= deadline:
                return None
        self._finish_output()
        return self._exit()

    def ended(self) -> None:
        self._use.end()

    def stop(self) -> None:
        self._signal((self._image.attrs.get("Config") or {}).get("StopSignal") or "SIGTERM")

    def kill(self) -> None:
        self._signal("SIGKILL")

    def keep(self, folder: Path) -> None:
        """Copy what it left in the folder for results."""
        from docker.errors import NotFound

        if self._wait_error:
            return
        with engine.explained("its results could not be saved"), contextlib.suppress(NotFound):
            chunks, _ = self._running.get_archive(self._benchmark.results_path)
            _unpack(chunks, folder / "files", self.notes)

    def close(self) -> None:
        if self._container is not None:
            engine.remove(self._container)
        if self._stream is not None:
            with contextlib.suppress(OSError, AttributeError):  # the SDK's stream may be closed already
                self._stream.close()
        for thread in self._threads:
            thread.join(DRAIN_SECONDS)
        self._output.close()

    @property
    def _running(self) -> "Container":
        assert self._container is not None
        return self._container

    def _options(self, recording: RunRecording) -> dict[str, Any]:
        from docker.types import LogConfig, Mount

        benchmark = self._benchmark
        environment, mounts = dict(benchmark.env), [_mount(text) for text in benchmark.mounts]
        if self._instrumented and self._is_local():
            environment |= _instrumentation(recording, environment, _image_environment(self._image))
            mounts += [
                Mount(PACKAGE, str(Path(pulsetrain.__file__).parent), type="bind", read_only=True),
                Mount(RUN_FOLDER, str(recording.host_folder.resolve()), type="bind"),
            ]
            if (self._image.attrs.get("Config") or {}).get("User", "") not in ROOT_USERS:
                recording.host_folder.chmod(0o777)  # only whoever may enter the run's own folder comes here
        options: dict[str, Any] = {
            "environment": environment,
            "mounts": mounts,
            "labels": engine.labels(recording.host_folder.resolve()),
            # We keep the log. An engine that keeps it too takes it apart line by line, which holds up the container.
            "log_config": LogConfig(type="none"),
            "shm_size": parse_size(benchmark.shm_size),
            "nano_cpus": round(benchmark.cpus * 1e9) if benchmark.cpus else None,
            "mem_limit": parse_size(benchmark.memory),
            "network_mode": benchmark.network or None,
        }
        self._wants_gpu = self._with_gpus and any(name not in recording.host.unavailable for name in NVIDIA_SOURCES)
        if self._wants_gpu:
            with engine.explained("the engine cannot be queried"):
                options["device_requests"] = [engine.gpu_request(self._client, self._gpus)]
        return {name: value for name, value in options.items() if value is not None}

    def _is_local(self) -> bool:
        """Whether the engine can mount our folders."""
        local = str(self._client.api.base_url).startswith("http+docker")  # how the SDK calls a local socket
        if not local:
            self.notes.append("the engine is on another machine: the training loop in the container is not recorded")
        return local

    def _check_gpu(self) -> None:
        """A container that was to have a GPU and has none would give figures of something else."""
        if not self._wants_gpu:
            return
        seen = engine.sees_gpu(self._running)
        if seen is None and not self._over.is_set():
            self.notes.append("cannot check whether the container has GPUs: it has no shell")
        if seen is False:
            self.kill()
            raise EngineError(
                "the container started without a GPU, although this machine has one.",
                hint="Check the engine's NVIDIA runtime or CDI devices; or run it without GPUs: --no-gpus",
            )

    def _start_thread(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _drain(self) -> None:
        import requests

        with contextlib.suppress(OSError, ValueError, requests.RequestException):  # the engine or the stream has gone
            for data in self._stream:
                self._output.feed(data)

    def _await_end(self) -> None:
        import requests
        from docker.errors import DockerException

        try:
            answer = self._client.api.wait(self._running.id, timeout=None)
            self._exit_code = int(answer["StatusCode"])
        except (requests.RequestException, DockerException, OSError) as error:
            self._wait_error = error
        self._seconds = time.monotonic() - self._began
        self._over.set()

    def _finish_output(self) -> None:
        drain, before = self._threads[0], -1
        while drain.is_alive() and self._output.bytes != before:
            before = self._output.bytes
            drain.join(DRAIN_SECONDS)

    def _exit(self) -> WorkloadExit:
        """How it ended, by the engine's own times; by ours when the engine has gone."""
        state: Mapping[str, Any] = {}
        if not self._wait_error:
            try:
                with engine.explained("the container's exit status could not be read"):
                    self._running.reload()
                state = self._running.attrs["State"]
            except EngineError as error:
                self._wait_error = error
        start, end = _time(state.get("StartedAt")), _time(state.get("FinishedAt"))
        if start is None or end is None or end < start:
            start, end, seconds = self._started_at, datetime.now(UTC), self._seconds
        else:
            seconds = (end - start).total_seconds()
        if self._wait_error and self._exit_code is None:
            return WorkloadExit(125, start, end, seconds, "the container engine stopped responding")
        code = int(self._exit_code or 0)
        reason = "out of memory" if state.get("OOMKilled") else str(state.get("Error") or "") or signal_reason(code)
        return WorkloadExit(code, start, end, seconds, reason)

    def _signal(self, name: str) -> None:
        import requests
        from docker.errors import DockerException

        with contextlib.suppress(DockerException, requests.RequestException):  # it has ended, or the engine has gone
            self._running.kill(signal=name)


def _instrumentation(recording: RunRecording, said: Mapping[str, str], of_image: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a Python of the container records its training loop into the run."""
    found = process.environment(RUN_FOLDER, f"{recording.start:%Y%m%d_%H%M%S}", recording.started)
    before = said.get("PYTHONPATH") or of_image.get("PYTHONPATH")
    path = ":".join(filter(None, (f"{PACKAGE}/training/autoload", before)))
    return {**found, process.RUN_ID: recording.run.id, "PYTHONPATH": path}


def _image_environment(image: "Image") -> dict[str, str]:
    entries = (image.attrs.get("Config") or {}).get("Env") or []
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _mount(text: str) -> Any:
    from docker.types import Mount

    source, target, mode = parse_mount(text)
    is_folder = source.startswith(("/", ".", "~"))
    if is_folder:
        source = str(Path(source).expanduser().resolve())
    return Mount(target, source, type="bind" if is_folder else "volume", read_only=mode == "ro")


def _time(text: object) -> datetime | None:
    """When something happened, as an engine says it; None for `0001-01-01T00:00:00Z`, which is never."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.year > 1 and found.tzinfo else None


class _Chunks:
    """An iterator of bytes as a file that tarfile can read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (chunk := next(self._chunks, b"")):
            self._rest += chunk
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _unpack(chunks: Iterator[bytes], folder: Path, notes: list[str]) -> None:
    """The plain files of a container's archive, without its first folder: no links, no devices, and not too much."""
    left = MOST_KEPT_BYTES
    with tarfile.open(fileobj=cast(Any, _Chunks(iter(chunks))), mode="r|") as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts[1:]
            if not member.isfile() or not parts or ".." in parts:
                continue
            if member.size > left:
                notes.append(f"{'/'.join(parts)} and the files after it were not kept: they are too large")
                return
            left -= member.size
            path = folder.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content
            with path.open("wb") as file:
                while data := content.read(1 << 20):
                    file.write(data)
