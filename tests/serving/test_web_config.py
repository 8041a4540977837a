"""TLS and passwords of the exporter, from a web-config.yml, over real connections."""

import base64
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest
from tests.servers import program

from pulsetrain.errors import UsageError
from pulsetrain.outputs import Origin
from pulsetrain.outputs.prometheus import Exporter
from pulsetrain.serving import web_config

Start = Callable[[str], Exporter]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """An exporter with this web-config.yml."""
    started: list[Exporter] = []

    def start(text: str) -> Exporter:
        (tmp_path / "web-config.yml").write_text(text)
        exporter = Exporter("127.0.0.1", 0, protection=web_config.load(tmp_path / "web-config.yml"))
        exporter.start(Origin("gpu01"))
        started.append(exporter)
        return exporter

    yield start
    for exporter in started:
        exporter.close()


def certificate(folder: Path, name: str) -> None:
    """A certificate of its own authority, for 127.0.0.1."""
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -addext subjectAltName=IP:127.0.0.1"
    files = f"-keyout {name}.key -out {name}.crt -days 3 -subj /CN={name}"
    command = [program("openssl"), *options.split(), *files.split()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def status(exporter: Exporter, login: str | None = None, tls: ssl.SSLContext | None = None) -> int:
    request = urllib.request.Request(f"{exporter.url}/metrics")
    if login is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, context=tls) as response:
            code: int = response.status
            return code
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def test_only_who_knows_the_password_gets_in(start: Start) -> None:
    exporter = start(
        f"basic_auth_users:\n  prometheus: {hashed('geheim:ä')}\n  other: {hashed('x').replace('$2b', '$2y')}\n"
    )
    assert status(exporter) == 401
    assert status(exporter, "prometheus:wrong") == 401
    assert status(exporter, "nobody:geheim:ä") == 401
    assert status(exporter, "prometheus:geheim:ä") == 200
    assert status(exporter, "prometheus:geheim:ä") == 200  # from memory
    assert status(exporter, "other:x") == 200  # as htpasswd writes it


@pytest.mark.parametrize("header", ["Bearer abc", "Basic", "Basic !!!", "Basic bm9jb2xvbg=="])
def test_a_broken_login_is_refused(start: Start, header: str) -> None:
    exporter = start(f"basic_auth_users:\n  prometheus: {hashed('x')}\n")
    request = urllib.request.Request(f"{exporter.url}/metrics", headers={"Authorization": header})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 401
    assert refused.value.headers["WWW-Authenticate"].startswith("Basic ")
    refused.value.close()


def test_tls_is_spoken_with_the_certificate_of_the_file_beside(start: Start, tmp_path: Path) -> None:
    certificate(tmp_path, "server")
    exporter = start("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  min_version: TLS13\n")
    assert exporter.url.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    assert status(exporter, tls=trusting) == 200
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(urllib.error.URLError):
        status(exporter, tls=trusting)


def test_a_renewed_certificate_is_used_for_new_connections(start: Start, tmp_path: Path) -> None:
    certificate(tmp_path, "server")
    exporter = start("tls_server_config: {cert_file: server.crt, key_file: server.key}")
    (tmp_path / "server.crt").write_text("half written")
    certificate(tmp_path, "other")
    old = served(exporter)
    time.sleep(0.01)  # so that the file has another time
    for suffix in (".crt", ".key"):
        (tmp_path / "server").with_suffix(suffix).write_bytes((tmp_path / "other").with_suffix(suffix).read_bytes())
    new = served(exporter)
    assert old != new
    assert new == ssl.PEM_cert_to_DER_cert((tmp_path / "other.crt").read_text())


def served(exporter: Exporter) -> bytes:
    """The certificate that a client is shown."""
    host, _, port = exporter.url.removeprefix("https://").rpartition(":")
    careless = ssl._create_unverified_context()
    with (
        socket.create_connection((host, int(port))) as plain,
        careless.wrap_socket(plain, server_hostname=host) as client,
    ):
        shown = client.getpeercert(binary_form=True)
    assert shown
    return shown


def test_a_client_may_have_to_show_a_certificate(start: Start, tmp_path: Path) -> None:
    certificate(tmp_path, "server")
    certificate(tmp_path, "client")
    exporter = start(
        "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.crt\n"
    )
    nobody = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    with pytest.raises((urllib.error.URLError, OSError)):
        status(exporter, tls=nobody)
    somebody = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    somebody.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    assert status(exporter, tls=somebody) == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls_server_config: {cert_file: a.crt, key_file: a.key}", "the certificate cannot be used"),
        ("tls_server_config: {cert_file: a.crt}", "missing required field `key_file`"),
        ("tls_server_config: {cert_file: a, key_file: b, cipher_suites: [X]}", "unknown field `cipher_suites`"),
        ("tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}", "client_auth_type"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}", "Invalid enum value 'TLS10'"),
        ("http_server_config: {headers: {X-Frame-Options: deny}}", "unknown field `headers`"),
        ("basic_auth_users: {eva: plain}", "the password of 'eva' is not a bcrypt hash"),
        ("- a list", "Expected `object`"),
        ("{", "is not valid YAML"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "web-config.yml").write_text(text)
    with pytest.raises(UsageError) as refused:
        web_config.load(tmp_path / "web-config.yml")
    assert said in str(refused.value)


def test_an_empty_file_protects_nothing_and_a_missing_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.yml").write_text("http_server_config: {http2: false}\n")
    assert web_config.load(tmp_path / "empty.yml") == web_config.WebConfig()
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        web_config.load(tmp_path / "none.yml")
