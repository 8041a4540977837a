"""`pulsetrain stack`: the files it writes, checked by those who read them, and the servers it starts."""

import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import socketserver
import stat
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.servers import answering, free_port, get, program
from tests.waiting import eventually

from pulsetrain.deploy.stack import compose
from pulsetrain.deploy.stack.settings import StackSettings

Stack = Callable[..., subprocess.CompletedProcess[str]]

NATIVE = ("prometheus", "alertmanager", "pushgateway", "node-exporter", "victoriametrics")
VARIANTS = {
    "default": [],
    "all": ["--gpu", "--victoriametrics", "--webhook", "http://127.0.0.1:1/alerts"],
    "hosts": ["--target", "gpu01", "--target", "gpu02:9401", "--no-local"],
    "open": ["--address", "0.0.0.0", "--port", "grafana=3001"],
    "six": ["--address", "::1"],
    "native": ["--native", "--victoriametrics"],
}


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """`pulsetrain stack ...`, as a user calls it."""

    def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pulsetrain", "stack", *map(str, arguments)],
            env={**os.environ, "PULSETRAIN_HOME": str(tmp_path / "home"), **environment},
            capture_output=True,
            text=True,
        )

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stack"


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def good(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The files


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_prometheus_and_alertmanager_accept_their_files(stack: Stack, folder: Path, options: list[str]) -> None:
    good(stack("config", folder, *options))
    for command in (
        [program("promtool"), "check", "config", "prometheus/prometheus.yml"],
        [program("amtool"), "check-config", "alertmanager/alertmanager.yml"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_pods_are_found_by_their_annotations(stack: Stack, folder: Path) -> None:
    """Debian builds Prometheus without Kubernetes; VictoriaMetrics reads the same configuration."""
    kubeconfig = folder.with_name("kubeconfig")
    kubeconfig.write_text("{}")
    good(stack("config", folder, "--native", "--kubeconfig", kubeconfig))
    file = folder / "prometheus/prometheus.yml"
    checked = subprocess.run(
        [
            program("victoria-metrics"),
            f"-promscrape.config={file}",
            "-promscrape.config.dryRun",
            "-promscrape.config.strictParse=false",  # it has no rules of its own
        ],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    (job,) = [job for job in load(file)["scrape_configs"] if "kubernetes_sd_configs" in job]
    assert job["kubernetes_sd_configs"] == [{"role": "pod", "kubeconfig_file": str(kubeconfig)}]
    good(stack("config", folder, "--no-kubernetes"))
    assert "kubernetes" not in file.read_text()


def compose_command() -> list[str]:
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0:
        return [docker, "compose"]
    return [program("docker-compose")]


@pytest.mark.parametrize("variant", ["default", "all", "open", "six"])
def test_docker_compose_accepts_its_file(stack: Stack, folder: Path, variant: str) -> None:
    good(stack("config", folder, *VARIANTS[variant]))
    done = subprocess.run([*compose_command(), "config", "-q"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_in_alerts_lead_to_the_address_that_people_use(stack: Stack, folder: Path) -> None:
    good(stack("config", folder, "--external-url", "https://grafana.example.org/gpu"))
    rules = (folder / "prometheus/rules/pulsetrain.yml").read_text()
    assert "https://grafana.example.org/gpu/d/pulsetrain-" in rules and "127.0.0.1" not in rules


def test_containers_are_pinned_confined_and_remember(stack: Stack, folder: Path) -> None:
    good(stack("config", folder, *VARIANTS["all"]))
    document = load(folder / "compose.yml")
    services = document["services"]
    assert len(services) == 8
    for name, service in services.items():
        image, _, tag = service["image"].rpartition(":")
        assert image and any(character.isdigit() for character in tag)
        # DCGM's image is made for root with Docker's usual capabilities
        assert service["cap_drop"] == ([] if name == "dcgm-exporter" else ["ALL"]) and "privileged" not in service
        assert service["restart"] == "unless-stopped" and service["logging"]["options"]["max-size"]
        assert service.get("read_only") or name == "dcgm-exporter"
        assert "healthcheck" in service or name in ("dcgm-exporter", "nvidia-smi-exporter")
    remembering = {volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert document["volumes"].keys() <= remembering
    assert len(document["volumes"]) == 5
    assert yaml.safe_load(yaml.safe_dump(document)) == document


def listening(folder: Path) -> set[str]:
    """All addresses that servers in containers listen on."""
    services = load(folder / "compose.yml")["services"]
    words = " ".join(word for service in services.values() for word in service.get("command", []))
    found = re.findall(r"(?:listen-address|httpListenAddr)=(\S+):\d+", words)
    return {*found, services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"]}


def test_servers_listen_on_the_loopback_unless_set_otherwise_with_a_warning(stack: Stack, folder: Path) -> None:
    quiet = stack("config", folder)
    assert listening(folder) == {"127.0.0.1"} and not quiet.stderr
    opened = stack("config", folder, "--address", "0.0.0.0")
    assert listening(folder) == {"127.0.0.1", "0.0.0.0"}  # exporters stay where they are
    assert "no password" in opened.stderr
    assert "0.0.0.0" not in (folder / "prometheus/prometheus.yml").read_text()


def test_every_stack_has_a_password_of_its_own_that_only_its_user_can_read(stack: Stack, folder: Path) -> None:
    other = folder.with_name("other")
    for one in (folder, other):
        good(stack("config", one))
    file = folder / "grafana/admin-password"
    password = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(password) >= 20 and password != (other / "grafana/admin-password").read_text()
    assert not [path for path in folder.rglob("*") if path.is_file() and path != file and password in path.read_text()]
    good(stack("config", folder, "--force", "--victoriametrics"))
    assert file.read_text() == password


def test_grafana_gets_the_dashboards_and_the_sources_of_their_data(stack: Stack, folder: Path) -> None:
    good(stack("config", folder, "--victoriametrics", "--port", "prometheus=19090"))
    sources = load(folder / "grafana/provisioning/datasources/pulsetrain.yml")["datasources"]
    assert [source["url"] for source in sources] == ["http://127.0.0.1:19090", "http://127.0.0.1:8428"]
    uids = {json.loads(file.read_text())["uid"] for file in (folder / "grafana/dashboards").iterdir()}
    assert {"pulsetrain-run", "pulsetrain-fleet", "pulsetrain-host"} <= uids


def test_thresholds_of_the_user_stand_in_the_rules(stack: Stack, folder: Path) -> None:
    limits = folder.with_name("limits.toml")
    limits.write_text("gpu_hot_celsius = 71.5\n")
    good(stack("config", folder, "--thresholds", limits))
    assert "> 71.5" in (folder / "prometheus/rules/pulsetrain.yml").read_text()


# Targets


def test_targets_come_from_options_and_from_a_file_of_lines(stack: Stack, folder: Path) -> None:
    names = folder.with_name("hosts.txt")
    names.write_text("# the rack\ngpu03\n\ngpu04:9401  # odd one\n[fd00::7]:9400\n")
    good(stack("config", folder, "--target", "gpu01", "--target", "gpu02:9500", "--targets-file", names))
    local, given, listed = load(folder / "prometheus/targets/hosts.yml")
    assert local["targets"] == ["127.0.0.1:9400"] and local["labels"]["host"]
    assert given == {"targets": ["gpu01:9400", "gpu02:9500"]}
    assert listed == {"targets": ["gpu03:9400", "gpu04:9401", "[fd00::7]:9400"]}


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
def test_groups_of_targets_keep_their_labels(stack: Stack, folder: Path, dump: Callable[[object], str]) -> None:
    groups = [{"targets": ["gpu01:9400"], "labels": {"rack": "7"}}]
    file = folder.with_name("groups")
    file.write_text(dump(groups))
    good(stack("config", folder, "--no-local", "--targets-file", file))
    assert load(folder / "prometheus/targets/hosts.yml") == groups


# Writing again


def test_a_second_time_changes_nothing_and_options_are_remembered(stack: Stack, folder: Path) -> None:
    good(stack("config", folder, "--target", "gpu01", "--port", "grafana=3001", "--victoriametrics"))
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}
    assert "unchanged" in good(stack("config", folder))
    before.pop(folder / "stack.json")
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_a_file_that_the_user_edited_is_kept_until_force(stack: Stack, folder: Path) -> None:
    good(stack("config", folder))
    file = folder / "prometheus/prometheus.yml"
    ours = file.read_text()
    file.write_text("# mine\n" + ours)
    for _ in range(2):  # it does not become ours by being seen
        assert "prometheus/prometheus.yml" in good(stack("config", folder, "--victoriametrics"))
        assert file.read_text() == "# mine\n" + ours
    assert "kept" not in good(stack("config", folder, "--force"))
    assert "remote_write" in file.read_text()


def test_a_file_that_was_there_before_us_is_kept(stack: Stack, folder: Path) -> None:
    (folder / "alertmanager").mkdir(parents=True)
    (folder / "alertmanager/alertmanager.yml").write_text("route: {receiver: me}\nreceivers: [{name: me}]\n")
    assert "alertmanager/alertmanager.yml" in good(stack("config", folder))
    assert "receiver: me" in (folder / "alertmanager/alertmanager.yml").read_text()


def test_files_that_are_no_longer_needed_go_unless_edited(stack: Stack, folder: Path) -> None:
    good(stack("config", folder))
    (folder / ".env").write_text("COMPOSE_PROJECT_NAME=mine\n")
    good(stack("config", folder, "--native"))
    assert not (folder / "compose.yml").exists()
    assert (folder / ".env").exists()


# What a user may get wrong


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("config", "DIR", "--target", "http://gpu01:9400"), "gpu01:9400"),
        (("config", "DIR", "--target", "gpu01:99999"), "99999"),
        (("config", "DIR", "--port", "kibana=1"), "kibana"),
        (("config", "DIR", "--port", "grafana=high"), "grafana=PORT"),
        (("config", "DIR", "--port", "grafana=9090"), "same port"),
        (("up", "DIR", "--native", "--address", "192.0.2.1"), "192.0.2.1"),
        (("status", "DIR"), "no stack"),
        (("down", "DIR"), "no stack"),
    ],
)
def test_wrong_usage_is_a_clear_error_with_code_2(
    stack: Stack, folder: Path, arguments: tuple[str, ...], text: str
) -> None:
    done = stack(*(str(folder) if word == "DIR" else word for word in arguments))
    assert done.returncode == 2 and text in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists()


def test_a_file_of_targets_that_is_none_is_a_clear_error(stack: Stack, folder: Path) -> None:
    file = folder.with_name("targets.yml")
    file.write_text("- gpu01: 9400\n")
    done = stack("config", folder, "--targets-file", file)
    assert done.returncode == 2 and "not a group of targets" in done.stderr


def test_without_docker_the_alternatives_are_named(stack: Stack, folder: Path) -> None:
    done = stack("up", folder, PATH="/nonexistent")
    assert done.returncode == 1
    assert "Docker is not installed" in done.stderr and "--native" in done.stderr


def test_a_docker_that_does_not_run_is_a_clear_error(stack: Stack, folder: Path) -> None:
    program("docker")
    compose_command()
    done = stack("up", folder, DOCKER_HOST=f"unix://{folder}/docker.sock")
    assert done.returncode == 1
    assert "Docker is not running." in done.stderr
    assert not folder.exists()


@contextlib.contextmanager
def engine(place: Path, folder: Path, asked: list[str] | None = None) -> Iterator[str]:
    """The address of a Docker engine, of which the real `docker` asks what it needs here: a stack runs in `folder`.

    `asked` gets the paths of all requests.
    """
    labels = {"com.docker.compose.project.working_dir": str(folder), "com.docker.compose.service": "prometheus"}
    containers = [{"Id": "1", "Names": ["/one"], "Labels": labels}]
    answers = {"_ping": "OK", "version": {"ApiVersion": "1.41"}, "info": {"ID": "1"}, "json": containers}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None:
                asked.append(urllib.parse.unquote(self.path))
            body = json.dumps(answers.get(self.path.partition("?")[0].rpartition("/")[2], {})).encode()
            self.send_response(200)
            self.send_header("Api-Version", "1.45")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_HEAD = do_GET

        def address_string(self) -> str:
            return ""

        def log_message(self, format: str, *words: object) -> None:
            pass

    with socketserver.ThreadingUnixStreamServer(str(place), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"unix://{place}"
        server.shutdown()


def test_in_containers_too_servers_of_another_stack_are_not_taken_for_ready_ones(stack: Stack, tmp_path: Path) -> None:
    program("docker")
    compose_command()
    one, other = tmp_path / "one/stack", tmp_path / "other/stack"
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as place:
        for folder in (one, other):
            good(stack("config", folder, "--port", f"prometheus={place.rpartition(':')[2]}"))

        def state(folder: Path, host: str) -> tuple[bool, str]:
            done = json.loads(stack("status", folder, "--json", DOCKER_HOST=host).stdout)
            (found,) = (one for one in done["services"] if one["service"] == "prometheus")
            return found["ready"], found["detail"]

        with engine(tmp_path / "docker.sock", one) as host:
            assert state(one, host) == (True, "")
            assert state(other, host) == (False, "another program listens there")
        ready, why = state(one, f"unix://{tmp_path}/nowhere.sock")
        assert not ready and why.endswith("only Docker can tell. Docker is not running.")


def test_stacks_in_folders_of_one_name_are_different_projects_whatever_the_environment_says(
    stack: Stack, tmp_path: Path
) -> None:
    program("docker")
    compose_command()
    one, other, copied = (tmp_path / place / "stack" for place in ("one", "other", "copied"))
    for folder in (one, other):
        good(stack("config", folder))
    shutil.copytree(one, copied)
    projects = {}
    for folder in (one, other, copied):
        asked: list[str] = []
        with engine(tmp_path / "docker.sock", folder, asked) as host:
            stack("down", folder, DOCKER_HOST=host, COMPOSE_PROJECT_NAME="mine")
        (tmp_path / "docker.sock").unlink()
        projects[folder] = {name for path in asked for name in re.findall(r"compose\.project=([\w-]+)", path)}
    assert all(len(names) == 1 for names in projects.values()), projects
    assert len(set.union(*projects.values())) == 3
    moved = one.rename(tmp_path / "moved")
    good(stack("config", moved))
    (name,) = projects[one]
    assert (moved / ".env").read_text() == f"COMPOSE_PROJECT_NAME={name}\n"  # its volumes are found again


@pytest.mark.parametrize(("optional", "volume"), [("shared:1 ", "/:/host:ro,rslave"), ("", "/:/host:ro")])
def test_node_exporter_follows_later_mounts_where_the_machine_shares_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, optional: str, volume: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw,relatime {optional}- ext4 /dev/sda1 rw\n30 22 0:5 / /dev rw shared:2 - tmpfs d rw\n"
    )
    monkeypatch.setattr(compose, "_MOUNTS", mounts)
    assert compose.compose_file(StackSettings())["services"]["node-exporter"]["volumes"] == [volume]


# The servers of this machine, without Docker


@pytest.fixture
def ports() -> dict[str, int]:
    return {name: free_port() for name in (*NATIVE, "grafana")}


@pytest.fixture
def native(stack: Stack, folder: Path, ports: dict[str, int]) -> Iterator[Stack]:
    """A native stack on free ports, prepared and not started, and stopped after the test."""
    for name in ("prometheus", "prometheus-alertmanager", "prometheus-pushgateway", "prometheus-node-exporter"):
        program(name)
    program("victoria-metrics")
    given = [word for name, port in ports.items() for word in ("--port", f"{name}={port}")]
    good(stack("config", folder, "--native", "--victoriametrics", "--no-local", *given))
    yield stack
    stack("down", folder)


@pytest.fixture
def exporter() -> Iterator[str]:
    """An exporter that tells of a GPU in a machine of another name."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'gpu_temperature_celsius{host="gpu7",gpu="0"} 55\n')

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def processes(folder: Path) -> dict[str, int]:
    return {file.stem: json.loads(file.read_text())["pid"] for file in (folder / "native").glob("*.pid")}


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_native_servers_start_scrape_and_end(native: Stack, folder: Path, ports: dict[str, int], exporter: str) -> None:
    config = folder / "prometheus/prometheus.yml"
    # A user's edit, which is kept and read; and a test cannot wait so long.
    config.write_text(config.read_text().replace(": 15s", ": 1s").replace(": 10s", ": 1s"))
    good(native("up", folder, "--target", exporter))

    document = json.loads(good(native("status", folder, "--json")))
    assert {one["service"] for one in document["services"]} >= set(NATIVE)
    assert all(one["ready"] for one in document["services"])

    prometheus = f"http://127.0.0.1:{ports['prometheus']}/api/v1"

    def series(expression: str) -> Any:
        return get(f"{prometheus}/query", query=expression)["data"]["result"]

    (found,) = eventually(lambda: series("gpu_temperature_celsius"))
    assert found["metric"]["host"] == "gpu7"  # what the exporter says, not where it was found
    (up,) = eventually(lambda: series('up{job="pulsetrain"}'))
    assert up["metric"]["host"] == "127.0.0.1" and up["value"][1] == "1"
    archive = f"http://127.0.0.1:{ports['victoriametrics']}/api/v1/series"
    assert eventually(lambda: get(archive, **{"match[]": "gpu_temperature_celsius"})["data"])
    assert eventually(lambda: get(f"{prometheus}/alertmanagers")["data"]["activeAlertmanagers"])
    rules = get(f"{prometheus}/rules")["data"]["groups"]
    assert rules and not [rule for group in rules for rule in group["rules"] if rule["health"] == "err"]

    started = processes(folder)
    assert started.keys() == set(NATIVE)
    assert "stopped" in good(native("down", folder))
    assert [name for name, pid in started.items() if alive(pid)] == []
    assert "nothing was running" in good(native("down", folder))
    assert native("status", folder).returncode == 1


def test_servers_of_another_stack_are_not_taken_for_ready_ones(native: Stack, stack: Stack, folder: Path) -> None:
    good(native("up", folder))
    other = shutil.copytree(folder, folder.parent / "other", ignore=shutil.ignore_patterns("*.pid", "data"))
    done = stack("status", other, "--json")
    assert done.returncode == 1
    assert {one["detail"] for one in json.loads(done.stdout)["services"] if one["service"] in NATIVE} == {
        "another program listens there"
    }


def test_up_again_restarts_only_those_whose_files_changed(native: Stack, folder: Path) -> None:
    good(native("up", folder))
    before = processes(folder)
    good(native("up", folder))
    assert processes(folder) == before
    good(native("up", folder, "--webhook", "http://127.0.0.1:1/alerts", "--port", f"pushgateway={free_port()}"))
    after = processes(folder)
    changed = {name for name, pid in after.items() if pid != before[name]}
    assert changed == {"alertmanager", "pushgateway", "prometheus"}  # the last asks the second
    assert not any(alive(before[name]) for name in changed)


def test_down_with_volumes_forgets_and_without_does_not(native: Stack, folder: Path) -> None:
    good(native("up", folder))
    good(native("down", folder))
    assert (folder / "native/data/prometheus").is_dir()
    good(native("down", folder, "--volumes"))
    assert not (folder / "native/data").exists()


def test_a_port_in_use_is_said_before_anything_starts(native: Stack, folder: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = native("up", folder, "--port", f"alertmanager={port}")
    assert done.returncode == 1
    assert f"port {port} (alertmanager)" in done.stderr and "--port alertmanager=" in done.stderr
    assert processes(folder) == {}
    assert str(port) not in (folder / "stack.json").read_text()


def test_a_server_that_ends_at_once_is_named_with_its_reason(native: Stack, folder: Path) -> None:
    (folder / "prometheus/prometheus.yml").write_text("nonsense: true\n")
    done = native("up", folder)
    assert done.returncode == 1
    assert "prometheus exited" in done.stderr and "nonsense" in done.stderr
    assert "kept with your edits: prometheus/prometheus.yml" in done.stdout


def test_what_is_not_installed_is_left_out_and_said_with_its_package(
    native: Stack, folder: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "prometheus").symlink_to(program("prometheus"))
    told = good(native("up", folder, PATH=str(programs)))
    assert processes(folder).keys() == {"prometheus"}
    assert "apt install prometheus-alertmanager" in told and "grafana" in told
    jobs = {job["job_name"] for job in load(folder / "prometheus/prometheus.yml")["scrape_configs"]}
    assert jobs == {"pulsetrain", "prometheus"}


def test_a_process_that_has_our_number_by_chance_is_left_alone(native: Stack, folder: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        (folder / "native").mkdir(exist_ok=True)
        note = {"pid": other.pid, "started": psutil.Process(other.pid).create_time() - 100.0, "command": ["prometheus"]}
        (folder / "native/prometheus.pid").write_text(json.dumps(note))
        assert "nothing was running" in good(native("down", folder))
        assert other.poll() is None
        other.kill()
