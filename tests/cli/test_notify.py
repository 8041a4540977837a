"""Messages of real runs, and wrong settings."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.alerts.services import Web, serving
from tests.cli.conftest import Pulsetrain

LOGS_NAN = "import pulsetrain, time; pulsetrain.log(step=1, loss=float('nan')); time.sleep(300)"


@pytest.fixture
def web() -> Iterator[Web]:
    service = Web()
    with serving(service.server):
        yield service


def test_a_run_that_goes_nan_is_stopped_and_reported_to_people(pulsetrain: Pulsetrain, web: Web, home: Path) -> None:
    url = f"json://{web.place}/hook/my-secret"
    options = ("--simulate", "1xL4", "--name", "nan", "--on-alert", "NonFinite=stop")
    done = pulsetrain("run", *options, "--", sys.executable, "-c", LOGS_NAN, PULSETRAIN_NOTIFY_URL=url)
    assert done.returncode == 143
    titles = [post.body["title"] for post in web.posts]
    assert titles[0].startswith("NonFinite (nan on ")
    assert titles[-1] == "Run nan interrupted with exit code 143"
    written = [path.read_text(errors="replace") for path in home.rglob("*") if path.is_file()]
    assert not [text for text in written if "my-secret" in text]
    assert "my-secret" not in done.stderr
    events = [json.loads(line) for file in home.rglob("events.jsonl") for line in file.read_text().splitlines()]
    assert "NonFinite: the command was asked to stop (SIGTERM)" in [event["message"] for event in events]


def test_a_test_message_says_what_became_of_it(pulsetrain: Pulsetrain, web: Web) -> None:
    urls = f"ntfy://{web.place}/topic ntfy://127.0.0.1:1/gone nonsense://x"
    tried = pulsetrain("notify", "test", PULSETRAIN_NOTIFY_URL=urls)
    assert tried.returncode == 1
    assert tried.stdout.splitlines() == [
        "URL 1  ntfy: sent",
        "URL 2  ntfy: it cannot be reached",
        "URL 3  unknown: Apprise does not understand the URL",
    ]
    assert "2 of 3 messages could not be sent" in tried.stderr
    assert web.posts[0].body["message"] == "This is a test. Alerts for your runs will arrive here."
    assert "no notification URL is set" in pulsetrain("notify", "test").stderr


def test_a_working_folder_neither_sends_nor_runs_anything(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    settings = tmp_path / "pulsetrain.toml"
    settings.write_text(f"on_alert = ['GpuHot=run:touch {tmp_path}/ran']\n[notify]\nurl_file = '/tmp/urls'\n")
    refused = pulsetrain("run", "--simulate", "1xL4", "--", "true")
    assert refused.returncode == 0
    assert ": `notify` is ignored" in refused.stderr
    assert ": `on_alert` is ignored" in refused.stderr


def test_what_is_wrong_is_said_before_the_command_starts(pulsetrain: Pulsetrain, home: Path) -> None:
    malformed = pulsetrain("run", "--", "echo", "ran", PULSETRAIN_NOTIFY_URL="my-secret")
    assert (malformed.returncode, malformed.stdout) == (2, "")
    assert "PULSETRAIN_NOTIFY_URL contains something that is not a URL" in malformed.stderr
    assert "my-secret" not in malformed.stderr
    unknown = pulsetrain("run", "--on-alert", "NonFinit=stop", "--", "echo", "ran")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert (
        "unknown rule: 'NonFinit'.\n  hint: Did you mean NonFinite? All rules: docs/alerts.md. Use RULE=stop"
        in unknown.stderr
    )


def test_without_apprise_the_error_says_what_to_install(environment: dict[str, str], tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['apprise'] = None; from pulsetrain.cli.main import main; main(['notify', 'test'])"
    )
    tried = subprocess.run(
        [sys.executable, "-c", program % ["notify", "test"]],
        env={**environment, "PULSETRAIN_NOTIFY_URL": "ntfy://127.0.0.1:1/topic"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert tried.returncode == 1
    assert tried.stderr == (
        "error: notifications need Apprise, which is not installed.\n  hint: pip install 'pulsetrain[notify]'\n"
    )
