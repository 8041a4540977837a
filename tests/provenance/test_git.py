"""What git says of the folder that a command was started in, without running anything of a stranger's repository."""

import subprocess
from pathlib import Path

import pytest

from pulsetrain.provenance import git
from pulsetrain.provenance.git import LEFT_OUT, repository_at, without_credentials


def command(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    done = subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    command(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("lr = 0.1\n")
    command(folder, "add", ".")
    command(folder, "commit", "-qm", "first")
    command(folder, "remote", "add", "origin", "https://me:ghp_abcdefghijklmnopqrstuvwxyz@github.com/me/it.git")
    return folder


def test_commit_branch_remote_and_the_difference_to_the_commit_are_known(project: Path) -> None:
    clean = repository_at(project)
    assert clean and not clean.code.dirty and clean.diff == b""
    (project / "train.py").write_text('lr = 0.2\napi_key = "sesame-sesame"\nclient.login(token="open-sesame")\n')
    (project / ".env").write_text("SOMETHING=old-sesame\n")
    command(project, "add", "-N", ".env")
    (project / "new.py").write_text("")
    found = repository_at(project / ".")
    assert found
    code, diff = found.code, found.diff.decode()
    assert (code.commit, code.branch) == (command(project, "rev-parse", "HEAD"), "main")
    assert code.remote == "https://github.com/me/it.git"
    assert (code.dirty, code.untracked, code.diff_cut) == (True, 1, False)
    assert "+lr = 0.2" in diff and '+api_key = "***"' in diff and 'token="***"' in diff and LEFT_OUT in diff
    assert "sesame" not in diff


def test_a_folder_without_a_repository_and_one_without_a_commit_are_no_errors(tmp_path: Path) -> None:
    assert repository_at(tmp_path) is None
    assert repository_at(tmp_path / "missing") is None
    command(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text("")
    found = repository_at(tmp_path)
    assert found and (found.code.commit, found.code.branch, found.code.untracked) == ("", "main", 1)


def test_nothing_that_a_strangers_repository_names_is_run_and_its_index_stays_as_it_is(project: Path) -> None:
    evil = project.parent / "evil.sh"
    ran = project.parent / "ran"
    evil.write_text(f"#!/bin/sh\necho $0 >> {ran}\ncat\n")
    evil.chmod(0o755)
    (project / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    settings = ("core.fsmonitor", "filter.evil.clean", "filter.evil.process", "diff.evil.textconv", "diff.external")
    for name in (*settings, "diff.evil.command", "core.pager", "core.sshCommand"):
        command(project, "config", name, str(evil))
    (project / ".git/hooks/post-index-change").write_text(f"#!/bin/sh\n{evil}\n")
    (project / ".git/hooks/post-index-change").chmod(0o755)
    (project / "train.py").write_text("lr = 0.3\n")
    ran.unlink(missing_ok=True)
    before = (project / ".git/index").read_bytes()
    found = repository_at(project)
    assert found and found.code.dirty and b"+lr = 0.3" in found.diff
    assert not ran.exists()
    assert (project / ".git/index").read_bytes() == before


def test_a_difference_without_end_is_cut_and_a_git_that_hangs_is_ended(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "train.py").write_text("x = 1\n" * 500_000)
    found = repository_at(project)
    assert found and found.code.diff_cut and len(found.diff) <= git.MOST_DIFF_BYTES
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(git, "SECONDS", 0.2)
    assert repository_at(project) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("git@github.com:me/it.git", "git@github.com:me/it.git"),
        ("ssh://git@host/it.git", "ssh://git@host/it.git"),
        ("https://oauth2:abc@gitlab.com/me/it", "https://gitlab.com/me/it"),
        ("https://sometoken@host/me/it", "https://host/me/it"),
        ("/srv/it.git", "/srv/it.git"),
    ],
)
def test_a_remote_has_no_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
