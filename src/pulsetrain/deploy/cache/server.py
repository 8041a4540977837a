"""nginx as a child of ours, its configuration in a folder of its own, and what it does as metrics."""

import os
import shutil
import signal
import socket
import subprocess
from http import HTTPStatus
from pathlib import Path

from pulsetrain import catalog
from pulsetrain.deploy.cache.access_log import AccessLog
from pulsetrain.deploy.cache.nginx import ACCESS_LOG, configuration, worker
from pulsetrain.deploy.cache.settings import CacheSettings
from pulsetrain.errors import PulsetrainError, Unavailable, UsageError
from pulsetrain.outputs import exposition
from pulsetrain.outputs.points import Family, Kind, Point, make_labels
from pulsetrain.serving.server import HttpRequest, HttpResponse, HttpServer, plain
from pulsetrain.snapshot import Metric
from pulsetrain.supervise import Supervisor, Worker

END_SECONDS = 20.0
"""For nginx to finish what it is sending."""
LOOK_SECONDS = 1.0
MOST_LOG_BYTES = 64 << 20
"""A log of this size is replaced by a new one."""
DISK_ROUNDS = 15
"""The disk is looked at once for this many looks at the log."""


class CacheServer:
    """Runs nginx until `close`, and counts what it does."""

    def __init__(self, settings: CacheSettings, host: str) -> None:
        """Writes the folder. Nothing listens yet."""
        self._nginx = _find_nginx()
        self._settings = settings
        self._host = host
        self._log = AccessLog(settings.folder / ACCESS_LOG)
        self._disk_bytes = 0
        self._rounds = 0
        self._supervisor = Supervisor()
        self._child: subprocess.Popen[bytes] | None = None
        self._metrics: HttpServer | None = None
        self._worker = Worker(
            self._supervisor.part("cache-log"), self._look, every_seconds=LOOK_SECONDS, what="a look at the log"
        )
        _prepare(settings)

    @property
    def url(self) -> str:
        address = self._settings.address
        return f"http://{f'[{address}]' if ':' in address else address}:{self._settings.port}"

    def serve_metrics(self, address: str, port: int) -> str:
        """Answer Prometheus too; says where."""
        self._metrics = HttpServer(address, port, self._answer)
        return self._metrics.url

    def start(self) -> None:
        _check_port(self._settings)
        command = [self._nginx, "-e", "stderr", "-p", str(self._settings.folder), "-c", _config_file(self._settings)]
        checked = subprocess.run([*command, "-t", "-q"], capture_output=True, text=True, check=False)
        if checked.returncode:
            raise PulsetrainError(
                f"nginx rejects the configuration: {_first_line(checked.stderr)}",
                hint=f"It is in {_config_file(self._settings)}. This machine must resolve the shard server's name.",
            )
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._worker.start()
        if self._metrics:
            self._metrics.start()

    def ended(self) -> int | None:
        """nginx' exit code, if it has ended by itself."""
        return self._child.poll() if self._child else None

    def close(self) -> None:
        """What is being sent is finished."""
        if self._child and self._child.poll() is None:
            self._child.send_signal(signal.SIGQUIT)
            try:
                self._child.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.terminate()
                self._child.wait()
        self._worker.stop(END_SECONDS)
        if self._metrics:
            self._metrics.close()

    # What the threads do

    def _look(self) -> None:
        self._log.read()
        if self._rounds % DISK_ROUNDS == 0:
            self._disk_bytes = _bytes_below(self._settings.folder / "shards")
        self._rounds += 1
        file = self._settings.folder / ACCESS_LOG
        old = file.with_suffix(".old")
        if old.exists() and file.exists():  # nginx has opened the new one since the last look
            old.unlink()
            self._log.start_over(file)
        elif self._log.size > MOST_LOG_BYTES and self._child and not old.exists():
            file.rename(old)
            self._log.renamed(old)
            self._child.send_signal(signal.SIGUSR1)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/metrics":
            form = exposition.negotiate(request.headers.get("accept", ""))
            body = exposition.render(self.families(), form)
            return HttpResponse(HTTPStatus.OK, body, exposition.CONTENT_TYPES[form])
        if request.path in ("/", "/healthz"):
            well = self.ended() is None and not self._supervisor.troubled()
            return plain(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE)
        return plain(HTTPStatus.NOT_FOUND)

    def families(self) -> list[Family]:
        """The cache as Prometheus sees it."""
        host = {"host": self._host}

        def family(metric: Metric, value: float) -> Family:
            kind: Kind = "counter" if metric.kind == "counter" else "gauge"
            return Family(metric.name, kind, metric.unit, metric.help, [Point(make_labels(host), value)])

        def each(metric: Metric, counts: dict[str, int]) -> Family:
            points = [Point(make_labels(host, {metric.by or "": key}), count) for key, count in sorted(counts.items())]
            return family(metric, 0)._replace(points=points)

        log = self._log
        return [
            family(catalog.CACHE_UP, int(self.ended() is None)),
            each(catalog.CACHE_LOOKUPS, {"hit": 0, "miss": 0} | dict(log.lookups)),
            each(catalog.CACHE_REQUESTS, {"2xx": 0} | dict(log.requests)),
            family(catalog.CACHE_SENT, log.sent_bytes),
            family(catalog.CACHE_FETCHED, log.fetched_bytes),
            family(catalog.CACHE_DISK, self._disk_bytes),
            family(catalog.CACHE_DISK_LIMIT, self._settings.gigabytes * 1e9),
        ]


def _find_nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Unavailable("nginx is not installed.", hint="Debian and Ubuntu: apt install nginx-light")
    return found


def _config_file(settings: CacheSettings) -> str:
    return str(settings.folder / "nginx.conf")


def _prepare(settings: CacheSettings) -> None:
    """The folder with its configuration, in which nginx' workers can write their parts."""
    folder = settings.folder
    user = worker()
    try:
        for one in (folder, folder / "tmp", folder / "shards"):
            one.mkdir(parents=True, exist_ok=True)
            if user is not None:
                os.chown(one, user.pw_uid, user.pw_gid)
        (folder / "nginx.conf").write_text(configuration(settings))
        for log in (folder / ACCESS_LOG, (folder / ACCESS_LOG).with_suffix(".old")):
            log.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder} cannot be written: {error.strerror}.",
            hint="Choose another place: --cache-dir FOLDER.",
        ) from None
    if user is not None and user.pw_uid:
        closed = [parent for parent in folder.resolve().parents if not parent.stat().st_mode & 0o001]
        if closed:
            raise UsageError(
                f"{closed[-1]} is closed to other users, and nginx's workers run as {user.pw_name}.",
                hint="Choose another place: --cache-dir /var/cache/pulsetrain.",
            )


def _check_port(settings: CacheSettings) -> None:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.address, settings.port))
        except OSError as error:
            raise PulsetrainError(
                f"cannot listen on {settings.address}, port {settings.port}: {error.strerror}.",
                hint="Choose another port: --port N.",
            ) from None


def _bytes_below(folder: Path) -> int:
    """What the files of the cache take; one that is thrown out meanwhile is not there any more."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(f"{where}/{name}").st_size  # noqa: PTH116 - a Path for each of many files costs
            except FileNotFoundError:
                continue
    return total


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].removeprefix("nginx: ") if lines else "no reason given."
