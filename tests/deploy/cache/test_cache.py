"""A real nginx with the generated configuration, between a training and the server of its shards."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Thread
from typing import Self

import pytest
from tests.servers import Prometheus, free_port, program
from tests.waiting import eventually

from pulsetrain.deploy.cache.access_log import AccessLog
from pulsetrain.deploy.cache.nginx import configuration
from pulsetrain.deploy.cache.settings import CacheSettings
from pulsetrain.errors import UsageError

ROOT = Path(__file__).parents[3]
TRAINER = ROOT / "examples/cluster_trainer"
TORCHRUN = ROOT / ".venv-user/bin/torchrun"
SHARDS, SAMPLES = 4, 60  # of 150 kB each: every shard has two slices
PATTERN = f"train-{{000000..{SHARDS - 1:06d}}}.tar"


class Upstream:
    """A server of files that knows ranges, and counts who asks for what."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, str | None, str | None]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                span = self.headers.get("Range")
                asked.append((self.path, span, self.headers.get("Authorization")))
                file = folder / self.path.lstrip("/")
                if not file.is_file():
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                data = file.read_bytes()
                found = re.fullmatch(r"bytes=(\d+)-(\d+)", span or "")
                first, last = (int(found[1]), min(int(found[2]), len(data) - 1)) if found else (0, len(data) - 1)
                self.send_response(206 if found else 200)
                if found:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
                self.send_header("Cache-Control", "no-store")
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()[:12]}"')
                self.send_header("Content-Length", str(last - first + 1))
                self.end_headers()
                self.wfile.write(data[first : last + 1])
                return None

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that nginx' workers reach, when root runs the tests: those of pytest are closed."""
    folder = Path(tempfile.mkdtemp(prefix="pulsetrain-cache-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class Cache:
    """`pulsetrain cache serve`, as a user starts it."""

    def __init__(self, upstream: str, folder: Path) -> None:
        program("nginx")
        port, metrics = free_port(), free_port()
        self.url, self.metrics = f"http://127.0.0.1:{port}", f"127.0.0.1:{metrics}"
        command = [*(sys.executable, "-m", "pulsetrain", "cache", "serve", upstream, "--cache-dir", str(folder)),
                   *("--port", str(port), "--prometheus-port", str(metrics), "--size", "0.2")]  # fmt: skip
        environment = {**os.environ, "PULSETRAIN_HOME": str(folder / "home"), "PULSETRAIN_HOST": "cache-vm"}
        self._process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert eventually(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._process.stderr.read() if self._process.stderr else ""
        try:
            return self.get("/healthz") == b"ok\n"
        except OSError:
            return False

    def get(self, path: str, **headers: str) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers)) as answer:
            content: bytes = answer.read()
            return content

    def series(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def lookups(self) -> dict[str, float]:
        return {
            re.findall(r'status="(\w+)"', name)[0]: value for name, value in self.series().items() if "lookups" in name
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.stop()

    def stop(self) -> str:
        self._process.send_signal(signal.SIGINT)
        _, said = self._process.communicate(timeout=30)
        return said


def train(cache: Cache, folder: Path, epochs: int) -> str:
    """The example, under `pulsetrain run`, with two processes."""
    if not TORCHRUN.exists():
        pytest.skip("needs .venv-user")
    command = [*(sys.executable, "-m", "pulsetrain", "run", "--quiet", "--name", "cluster", "--"),
               *(str(TORCHRUN), "--standalone", "--nproc-per-node", "2", str(TRAINER / "train.py")),
               *("--form", "imagenet", "--width", "4", "--batch-size", "16", "--epochs", str(epochs)),
               *("--shards", f"{cache.url}/data/{PATTERN}", "--checkpoints", str(folder / "checkpoints"))]  # fmt: skip
    environment = {**os.environ, "PULSETRAIN_HOME": str(folder / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_training_reads_its_second_epoch_from_the_cache_even_without_the_server_of_its_shards(
    tmp_path: Path, open_folder: Path
) -> None:
    shards = tmp_path / "upstream/data"
    make = [str(TRAINER / "make_shards.py"), str(shards), "--form", "imagenet"]
    subprocess.run([sys.executable, *make, "--shards", str(SHARDS), "--samples", str(SAMPLES)], check=True)
    upstream = Upstream(tmp_path / "upstream")
    (tmp_path / "prometheus").mkdir()
    with (
        Cache(upstream.url, open_folder / "cache") as cache,
        Prometheus(tmp_path / "prometheus", targets=[cache.metrics]) as prometheus,
    ):
        said = train(cache, tmp_path, epochs=1)
        assert "epoch 1: loss" in said and f"{SHARDS * SAMPLES} samples" in said  # each by one process, once
        assert eventually(lambda: sum(cache.lookups().values()) == 2 * SHARDS)
        assert cache.lookups() == {"hit": 0, "miss": 2 * SHARDS}
        upstream.stop()

        said = train(cache, tmp_path, epochs=2)
        assert "continuing after epoch 1" in said and "epoch 2: loss" in said
        assert eventually(lambda: sum(cache.lookups().values()) == 4 * SHARDS)
        after = cache.lookups()
        assert after["hit"] / (after["hit"] + after["miss"] - 2 * SHARDS) > 0.95

        for file in shards.iterdir():
            assert cache.get(f"/data/{file.name}") == file.read_bytes()
        assert (
            cache.get("/data/train-000000.tar", Range="bytes=8388000-8389000")
            == ((shards / "train-000000.tar").read_bytes()[8388000:8389001])
        )
        size = sum(file.stat().st_size for file in shards.iterdir())
        fetched = cache.series()['cache_fetched_bytes_total{host="cache-vm"}']
        assert size < fetched < 1.01 * size
        assert eventually(lambda: prometheus.query("cache_lookups_total") != [])
        assert {one["metric"]["host"] for one in prometheus.query('cache_lookups_total{status="hit"}')} == {"cache-vm"}
        assert eventually(lambda: float(prometheus.query("sum(cache_sent_bytes_total)")[0]["value"][1]) > 3 * size)
        board = json.loads((resources.files("pulsetrain.deploy.stack") / "grafana/pulsetrain-cluster.json").read_text())
        queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
        of_cache = [query.replace("$__rate_interval", "5m") for query in queries if "cache_" in query]
        assert len(of_cache) == 4
        assert [query for query in of_cache if not prometheus.query(query)] == []
        said = cache.stop()
    assert "Traceback" not in said and "stop with Ctrl-C" in said


def test_only_paths_reach_the_server_of_the_shards(tmp_path: Path, open_folder: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"x" * 1000)
    upstream = Upstream(tmp_path)
    with Cache(upstream.url, open_folder / "cache") as cache:
        assert cache.get("/a.tar", Authorization="Bearer secret") == b"x" * 1000
        assert [authorization for _, _, authorization in upstream.asked] == [None]
        for path, method, code in (("/a.tar?x=1", "GET", 400), ("/a.tar", "PUT", 403), ("/none.tar", "GET", 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(cache.url + path, method=method))
            assert refused.value.code == code
            refused.value.close()
    upstream.stop()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ftp://x"], "is not the address of a shard server"),
        (["http://127.0.0.1", "--allow", "10.0.0.0/40"], "is not a network"),
        (["http://127.0.0.1", "--host", "example"], "is not an IP address"),
        (["http://no-such-host.invalid"], "nginx rejects the configuration: "),
    ],
)
def test_what_cannot_work_is_said_without_a_traceback(arguments: list[str], said: str, open_folder: Path) -> None:
    program("nginx")
    command = [sys.executable, "-m", "pulsetrain", "cache", "serve", *arguments, "--cache-dir", str(open_folder / "c")]
    done = subprocess.run([*command, "--port", str(free_port())], capture_output=True, text=True)
    assert done.returncode in (1, 2) and said in done.stderr and "Traceback" not in done.stderr


def test_without_nginx_the_way_to_get_it_is_named(tmp_path: Path) -> None:
    script = "import os; os.environ['PATH'] = ''; import shutil; shutil.which = lambda *a, **k: None; "
    script += "from pulsetrain.cli.main import main; main(['cache', 'serve', 'http://127.0.0.1', '--cache-dir', 'c'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "error: nginx is not installed.")


def test_nobody_but_this_machine_may_ask_unless_named() -> None:
    text = configuration(CacheSettings(upstream="https://data.example/x", folder=Path("/c"), networks=("10.0.0.0/8",)))
    server = text.partition("server {")[2]
    before_health = server.partition("location")[0]
    assert re.findall(r"(allow|deny) (\S+);", before_health) == [
        ("allow", "127.0.0.0/8"), ("allow", "::1"), ("allow", "10.0.0.0/8"), ("deny", "all")
    ]  # fmt: skip
    assert "listen 127.0.0.1:8080;" in text and "proxy_ssl_server_name on;" in text
    assert "proxy_pass https://data.example/x/;" in text and "max_size=100000m" in text


def test_a_folder_that_would_break_the_configuration_is_refused() -> None:
    with pytest.raises(UsageError):
        CacheSettings(upstream="https://data.example", folder=Path("/c; include /etc/passwd"))


def test_a_log_that_is_replaced_counts_on(tmp_path: Path) -> None:
    line = '{"code":"200","cache":"HIT","sent":"10","fetched":"","asked":"80"}\n'
    file, old = tmp_path / "access.log", tmp_path / "access.old"
    file.write_text(line * 2 + line[:20])
    log = AccessLog(file)
    log.read()
    assert (log.lookups["hit"], log.sent_bytes) == (2, 20)
    file.rename(old)
    log.renamed(old)
    with old.open("a") as more:
        more.write(line[20:] + "not JSON\n")
    log.read()
    log.start_over(file)
    file.write_text('{"code":"502","cache":"MISS","sent":"5","fetched":"7, 3","asked":"9"}\n')
    log.read()
    assert dict(log.lookups) == {"hit": 3, "miss": 1} and dict(log.requests) == {"2xx": 3, "5xx": 1}
    assert (log.sent_bytes, log.fetched_bytes, log.unreadable_lines) == (35, 10, 1)
