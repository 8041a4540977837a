"""The unit that is shipped for the agent of a node."""

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from tests.servers import program

from pulsetrain.cli.watch import watch

UNIT = Path(str(files("pulsetrain") / "deploy/systemd/pulsetrain.service"))


def settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_it_starts_an_agent_with_variables_that_the_command_knows() -> None:
    (command,) = settings("ExecStart")
    program_path, name, *options = command.split()
    assert (Path(program_path).name, name, options) == ("pulsetrain", "watch", ["--quiet"])
    given = {line.strip('"').split("=")[0] for line in settings("Environment")}
    assert given - {"PULSETRAIN_HOME"} <= {str(option.envvar) for option in watch.params if option.envvar}
    assert "PULSETRAIN_PROMETHEUS_PORT" in given


def test_it_hides_no_device_from_the_agent() -> None:
    hiding = ("PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow")  # all but the last few pseudo devices
    assert [name for name in hiding if settings(name)] == []


def test_systemd_finds_no_mistake_in_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/pulsetrain", sys.executable))
    checked = subprocess.run([program("systemd-analyze"), "verify", "--man=no", unit], capture_output=True, text=True)
    assert UNIT.name not in checked.stderr, checked.stderr
