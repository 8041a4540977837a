"""The tables of outputs and push kinds: what a new one needs, and what follows from them."""

import socket
import subprocess
import sys
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from tests.servers import free_port
from tests.waiting import eventually

from pulsetrain.errors import UsageError
from pulsetrain.outputs import OUTPUTS, Origin, OutputOptions, open_outputs
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push import KINDS, PushKind, pusher
from pulsetrain.outputs.push.outlet import PushLink
from pulsetrain.outputs.push.target import parse_targets
from pulsetrain.snapshot import Sample, Snapshot, Subject

READING = Snapshot(1.0, 0.0, (Sample(Subject("gpu", "GPU-1", {"uuid": "GPU-1"}), {"power_draw_watts": 300.0}),))


class Pigeon:
    """The outlet of a kind of server that only this test knows."""

    left = None

    def __init__(self, link: PushLink) -> None:
        self.host = link.target.host
        self.carried: list[str] = []

    def start(self) -> None:
        self.carried.append("hello")

    def add(self, seconds: float, families: Collection[Family], *, late: bool) -> None:
        self.carried += [family.name for family in families if family.name == "gpu_power_draw_watts"]

    def flush(self) -> None:
        pass

    def finish(self, seconds: float) -> None:
        self.carried.append("bye")


def test_a_push_kind_is_a_module_and_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    flown: list[Pigeon] = []

    def open_outlet(link: PushLink) -> Pigeon:
        flown.append(Pigeon(link))
        return flown[-1]

    module = ModuleType("pulsetrain.outputs.push.carrier_pigeon")
    vars(module)["open_outlet"] = open_outlet
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(KINDS, "carrier-pigeon", PushKind("http://loft"))
    monkeypatch.setattr(pusher, "LOOK_SECONDS", 0.01)
    (output,) = open_outputs(OutputOptions(push=parse_targets(["carrier-pigeon:http://loft:1"], {})), 1.0)
    output.start(Origin("gpu01"))
    output(READING)
    assert eventually(lambda: flown[0].carried == ["hello", "gpu_power_draw_watts"])
    output.close()
    assert (flown[0].host, flown[0].carried[-1]) == ("loft:1", "bye")


@pytest.mark.parametrize("kind", KINDS)
def test_every_push_kind_has_a_module_and_is_named_where_users_look(kind: str) -> None:
    assert callable(import_module(f"pulsetrain.outputs.push.{kind.replace('-', '_')}").open_outlet)
    with pytest.raises(UsageError) as error:
        parse_targets(["nowhere"], {})
    assert f"{kind}:{KINDS[kind].example_url}" in (error.value.hint or "")
    shown = subprocess.run([sys.executable, "-m", "pulsetrain", "watch", "--help"], capture_output=True, text=True)
    assert f"{kind}:URL" in shown.stdout


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_output_has_a_module_that_opens_it(name: str) -> None:
    assert callable(import_module(f"pulsetrain.outputs.{name}").open_output)


def test_what_nobody_asked_for_is_not_imported() -> None:
    code = """
import sys
from pulsetrain.outputs import OutputOptions, open_outputs
assert open_outputs(OutputOptions(), 1.0) == []
print({"httpx", "asyncio", "numpy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_when_one_output_cannot_be_opened_the_others_are_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    port = free_port()
    options = OutputOptions(prometheus_port=port, push=parse_targets(["otlp:http://127.0.0.1:9"], {}))
    with pytest.raises(UsageError, match="TLS or a proxy"):
        open_outputs(options, 1.0)
    socket.create_server(("127.0.0.1", port)).close()
