"""Whose settings count: the user's own, and of a repository's only what cannot send data away."""

import os
import stat
from pathlib import Path

import pytest

from pulsetrain import settings
from pulsetrain.errors import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder; the working folder is another one."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("PULSETRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PULSETRAIN_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


STEALING = '[push.x]\nurl = "victoriametrics:http://192.0.2.1"\nusername = "x"\npassword_file = "~/.ssh/id_rsa"\n'


def test_a_settings_file_of_the_working_folder_says_nothing_about_where_data_goes(home: Path) -> None:
    Path("pulsetrain.toml").write_text(f'dir = "/tmp/elsewhere"\ninterval = 0.5\n{STEALING}')
    found = settings.in_force()
    assert found.config.push == {} and found.config.dir is None
    assert found.config.interval == 0.5
    assert [line.partition(": ")[2].split(" ")[0] for line in found.ignored] == ["`dir`", "`push`"]


def test_the_users_own_settings_stay_beneath_those_of_the_working_folder(home: Path) -> None:
    (home / "pulsetrain.toml").write_text(f"interval = 2.0\npue = 1.1\n[thresholds]\nidle_percent = 3\n{STEALING}")
    Path("pulsetrain.toml").write_text("interval = 0.5\n[thresholds]\ngpu_hot_celsius = 70\n")
    found = settings.in_force().config
    assert (found.interval, found.pue, list(found.push)) == (0.5, 1.1, ["x"])
    assert (found.thresholds.idle_percent, found.thresholds.gpu_hot_celsius) == (3, 70)


def test_a_file_that_the_user_names_says_all(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pulsetrain.toml").write_text(STEALING)
    monkeypatch.setenv("PULSETRAIN_CONFIG", "pulsetrain.toml")
    assert list(settings.in_force().config.push) == ["x"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_in_the_working_folder_is_ignored(home: Path) -> None:
    Path("pulsetrain.toml").write_text("interval = 0.5\n")
    os.chown("pulsetrain.toml", 12345, 12345)
    found = settings.in_force()
    assert found.config.interval is None and found.files == []
    assert "another user" in found.ignored[0]


@pytest.mark.parametrize("folder", ["home", "work"])
def test_settings_that_everybody_may_write_are_an_error(home: Path, folder: str) -> None:
    file = home.parent / folder / "pulsetrain.toml"
    file.write_text("interval = 0.5\n")
    file.chmod(file.stat().st_mode | stat.S_IWOTH)
    with pytest.raises(UsageError, match="writable by everyone"):
        settings.in_force()


def test_a_settings_file_without_end_is_not_read_to_its_end(home: Path) -> None:
    with Path("pulsetrain.toml").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UsageError, match="too large"):
        settings.in_force()
