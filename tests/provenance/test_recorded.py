"""What run.json says of a run that is recorded for real: code, place, price; nothing secret, nothing if so asked."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.provenance.metadata_server import GOOGLE, MetadataServer, serving
from tests.provenance.test_git import command

SECRET = "sesame-sesame-sesame"
SCRIPT = f"""
import argparse, time
import pulsetrain
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--api-key")
parser.add_argument("--url")
args = parser.parse_args()
pulsetrain.config(vars(args), hub={{"token": "{SECRET}"}})
for step in range(4):
    pulsetrain.log(step=step, loss=1.0)
    time.sleep(0.4)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    command(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("pass\n")
    command(folder, "add", ".")
    command(folder, "commit", "-qm", "first")
    command(folder, "remote", "add", "origin", f"https://me:{SECRET}@github.com/me/it.git")
    (folder / "train.py").write_text(SCRIPT)
    return folder


def run(
    project: Path, server: MetadataServer | None, *options: str, **variables: str
) -> tuple[Path, dict[str, Any], str]:
    home = project.parent / "home"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
    secrets = {"HF_TOKEN": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "NCCL_DEBUG": "WARN"}
    cloud = {"GCE_METADATA_HOST": server.address} if server else {}
    words = ["--lr", "0.1", "--api-key", SECRET, "--url", f"https://me:{SECRET}@host/"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pulsetrain",
            "run",
            "--simulate",
            "1xL4",
            *options,
            "--",
            sys.executable,
            "train.py",
            *words,
        ],
        env={**kept, "PULSETRAIN_HOME": str(home), **secrets, **cloud, **variables},
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    folder = max((home / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    return folder, json.loads((folder / "run.json").read_text()), done.stderr


def assert_no_secret(folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 5
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


def test_a_run_knows_its_code_its_place_and_what_they_cost_and_no_secret_reaches_the_disk(project: Path) -> None:
    with serving(GOOGLE) as server:
        server.pages["/computeMetadata/v1/instance/preempted"] = "TRUE"
        folder, about, err = run(project, server)
    assert about["code"]["commit"] == command(project, "rev-parse", "HEAD")
    assert (about["code"]["branch"], about["code"]["remote"]) == ("main", "https://github.com/me/it.git")
    assert about["code"]["dirty"] and "+parser.add_argument" in (folder / about["code"]["diff"]).read_text()
    assert about["environment"]["NCCL_DEBUG"] == "WARN" and "HF_TOKEN" not in about["environment"]
    assert about["config"]["lr"] == 0.1
    (host,) = about["hosts"].values()
    assert host["place"]["machine_type"] == "g2-standard-4" and host["cpu_model"]
    assert about["account"] == {"carbon_region": "gcp:europe-west4", "price": "gcp:g2-standard-4@europe-west4"}
    assert "0.743 USD/h (on demand, 2026-08-21), from Google Cloud's metadata server" in err
    assert "carbon  " in err and err.count("from Google Cloud's metadata server") == 2
    events = [json.loads(line) for file in folder.glob("*/events*.jsonl") for line in file.read_text().splitlines()]
    assert {event["kind"] for event in events} >= {"spot_notice", "alert_firing"}
    assert "MachineEndAnnounced" in str(events)
    assert_no_secret(folder)


def test_what_the_user_says_about_price_and_region_wins_over_the_cloud(project: Path) -> None:
    with serving(GOOGLE) as server:
        _, about, err = run(project, server, "--price", "1 EUR/h", PULSETRAIN_CARBON_REGION="FR")
    assert about["account"] == {"carbon_region": "FR", "price": "1 EUR/h"}
    assert about["account_sources"] == {} and "metadata" not in err


def test_a_private_run_has_no_command_line_and_no_code(project: Path) -> None:
    folder, about, _ = run(project, None, "--private")
    assert (about["private"], about["name"], about["command"], about["directory"]) == (True, "run", [], "")
    assert about["code"] is None and about["environment"] == {} and not (folder / "code.diff").exists()
    assert about["config"]["lr"] == 0.1  # the program says so itself
    texts = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert [file for file, text in texts.items() if b"train.py" in text or b"--lr" in text] == []
    assert_no_secret(folder)
