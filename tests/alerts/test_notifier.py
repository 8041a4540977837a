"""Messages to people: gathered, limited in number, tried again, and never in the way."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.alerts.services import Mail, Web
from tests.waiting import eventually

from pulsetrain.alerts.actions import Actions, parse_action
from pulsetrain.alerts.delivery import Delivery, Message, Outcome
from pulsetrain.alerts.notifier import MOST_WAITING, AlertGroup, Notifier, Outbox, alert_message
from pulsetrain.alerts.notify_urls import notify_urls
from pulsetrain.alerts.run_end import EndFigures
from pulsetrain.errors import UsageError
from pulsetrain.settings import Notify
from pulsetrain.snapshot import Event, Sample, Severity, Snapshot, Subject
from pulsetrain.supervise import Supervisor


def alert(rule: str, severity: Severity = "critical", kind: str = "alert_firing", gpu: int = 0) -> Event:
    details: dict[str, str | float] = {"rule": rule, "alert": f"{rule}/{gpu}", "advice": "Do something.", "value": 1.0}
    return Event(kind, f"{rule} on GPU {gpu}", severity, details)


def rules(events: list[Event]) -> list[str]:
    return [str(event.details["rule"]) for event in events]


def test_alerts_that_come_together_are_one_message_and_the_next_one_waits() -> None:
    group = AlertGroup(Notify())
    group.add(alert("GpuHot", "warning"), 0.0)
    assert group.due(30.0) == []  # a warning waits a minute
    group.add(alert("NonFinite"), 45.0)
    assert rules(group.due(45.0)) == ["NonFinite", "GpuHot"]  # what is critical is sent at once, with all that waits
    group.add(alert("GpuLost"), 50.0)
    assert group.due(100.0) == []  # a minute lies between two messages
    assert rules(group.due(106.0)) == ["GpuLost"]
    assert group.due(1000.0) == []
    assert group.due(40.0 + 4 * 3600) == []
    assert rules(group.due(45.0 + 4 * 3600)) == ["NonFinite", "GpuLost"]  # still firing after four hours
    assert group.due(200.0 + 4 * 3600) == []


def test_a_message_about_less_does_not_hold_up_what_is_critical() -> None:
    group = AlertGroup(Notify())
    group.add(alert("GpuHot", "warning"), 0.0)
    assert rules(group.due(60.0)) == ["GpuHot"]
    group.add(alert("Straggler", "warning"), 61.0)
    assert group.due(130.0) == []  # five minutes lie between two messages about warnings
    group.add(alert("NonFinite"), 131.0)
    assert rules(group.due(131.0)) == ["NonFinite", "Straggler"]
    group.add(alert("InputBound", "warning"), 132.0)
    assert group.due(430.0) == []
    assert rules(group.due(431.0)) == ["InputBound"]


def test_what_is_below_the_wanted_severity_is_never_sent_nor_its_end() -> None:
    group = AlertGroup(Notify(severity="critical", resolved=False))
    group.add(alert("GpuHot", "warning"), 0.0)
    group.add(alert("GpuHot", "info", "alert_resolved"), 1.0)
    group.add(alert("NonFinite"), 2.0)
    group.add(alert("NonFinite", "info", "alert_resolved"), 3.0)
    assert group.take(1e6) == []


def test_a_message_names_the_run_the_numbers_and_what_to_do() -> None:
    message = alert_message([alert("NonFinite"), alert("GpuHot", "info", "alert_resolved")], "resnet50 on gpu01")
    assert message == Message(
        "NonFinite (resnet50 on gpu01)",
        "critical: NonFinite on GPU 0.\n    Do something.\nGpuHot on GPU 0.",
        "critical",
    )
    many = alert_message([alert("GpuHot", gpu=number) for number in range(64)], "a")
    assert many.body.endswith("And 54 more: pulsetrain alerts")


def test_a_service_that_is_away_is_tried_with_increasing_delay_and_the_others_get_theirs_once() -> None:
    sent: list[tuple[str, float]] = []
    clock = [0.0]
    away = {"b"}

    def send(delivery: Delivery, seconds: float) -> list[Outcome]:
        sent.extend((url, clock[0]) for url in delivery.urls)
        return [Outcome("ntfy", url not in away, "it answered 503" * (url in away)) for url in delivery.urls]

    trouble: list[str] = []
    outbox = Outbox(["a", "b"], send, trouble.append)
    outbox.put(Message("t", "b"))
    for second in range(60):
        clock[0] = float(second)
        outbox.deliver(clock[0])
    assert [url for url, _ in sent].count("a") == 1
    assert [at for url, at in sent if url == "b"] == [0.0, 5.0, 15.0, 35.0]
    for _ in range(2 * MOST_WAITING):
        outbox.put(Message("t", "b"))
    assert outbox.waiting == MOST_WAITING
    away.clear()
    outbox.deliver(1000.0)
    assert outbox.waiting == 0
    assert trouble[0] == "ntfy: it answered 503"
    assert trouble[-1] == ""


def test_messages_arrive_at_ntfy_a_webhook_and_a_mailbox(web: Web, mail: Mail) -> None:
    urls = [f"ntfy://{web.place}/topic", f"json://{web.place}/hook/secret", mail.url]
    notifier = Notifier(Notify(), urls, "resnet50 on gpu01", Supervisor())
    notifier.start()
    notifier(Snapshot(0.0, 0.0, (), (alert("NonFinite"), Event("gap", "not an alert"))))
    notifier.close(Message("Run resnet50 failed with exit code 1", "After 5 s.", "critical"))
    assert [post.body["title"] for post in web.posts if post.path == "/hook/secret"] == [
        "NonFinite (resnet50 on gpu01)",
        "Run resnet50 failed with exit code 1",
    ]
    assert [post.body["message"] for post in web.posts if post.body.get("topic") == "topic"] == [
        "critical: NonFinite on GPU 0.\n    Do something.",
        "After 5 s.",
    ]
    assert [message["subject"] for message in mail.messages] == [post.body["title"] for post in web.posts[1::2]]


def test_a_dead_service_is_a_part_that_is_down_and_the_end_does_not_wait_for_it(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    web.broken = True
    supervisor = Supervisor()
    notifier = Notifier(Notify(), [f"json://{web.place}/secret"], "a", supervisor)
    notifier.start()
    notifier.close(Message("t", "b"))
    (part,) = supervisor.troubled()
    assert str(part) == "notify: down: JSON: it answered 503"
    assert "notify: 1 message could not be sent." in caplog.text
    assert "secret" not in caplog.text


def test_the_end_of_a_run_is_reported_with_its_figures() -> None:
    figures = EndFigures()
    training = Sample(Subject("training", "rank 0"), {"step": 900, "total_steps": 1000, "loss": 0.12345})
    account = Sample(Subject("account", ""), {"energy_joules": {"gpu": 3.6e6, "cpu": 3.6e5}, "cost": {"EUR": 1.5}})
    figures(Snapshot(1.8e9, 3725.0, (training, account)))
    message = figures.message("resnet50", "gpu01", "failed", 1)
    assert message.title == "Run resnet50 failed with exit code 1"
    assert message.body == "After 1 h 2 min on gpu01.\nstep 900 of 1000, loss 0.1235, 1.1 kWh, 1.50 EUR."


def test_urls_come_from_the_environment_and_a_private_file_and_are_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_text("# phone\nntfy://secret-topic\n\njson://host/secret\n")
    file.chmod(0o600)
    notify = Notify(url_file=str(file))
    assert notify_urls(notify, {"PULSETRAIN_NOTIFY_URL": "ntfy://a json://host/secret"}) == [
        *("ntfy://a", "json://host/secret", "ntfy://secret-topic")
    ]
    with pytest.raises(UsageError, match="contains something that is not a URL") as malformed:
        notify_urls(Notify(), {"PULSETRAIN_NOTIFY_URL": "my-secret"})
    assert "my-secret" not in str(malformed.value)
    file.chmod(0o640)
    with pytest.raises(UsageError, match="other users can read it"):
        notify_urls(notify, {})
    with pytest.raises(UsageError, match="cannot be read"):
        notify_urls(Notify(url_file=str(tmp_path / "none")), {})


# Actions


@pytest.mark.parametrize("wrong", ["NonFinite", "NonFinite=explode", "Nonsense=stop", "NonFinite=run:", "GpuHot=run:'"])
def test_a_wrong_action_gets_a_clear_answer(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"unknown rule|unknown action|cannot be parsed"):
        parse_action(wrong)


@pytest.fixture
def act() -> Callable[..., str]:
    """What is recorded of an action on an alert."""

    def act(action: str, pid: int | None = None) -> str:
        actions = Actions([parse_action(action)], Supervisor(), "r1")
        actions.pid = pid
        actions.start()
        try:
            rule = action.partition("=")[0]
            found = actions(Snapshot(0.0, 0.0, (), (alert(rule), alert(rule, gpu=1)))).events[2:]
            done = eventually(lambda: [*found, *actions(Snapshot(0.0, 1.0, ())).events])
        finally:
            actions.stop()
        (event,) = done
        assert event.kind == "alert_action"
        return str(event.message)

    return act


def test_an_action_runs_a_command_that_knows_what_fired(act: Callable[..., str], tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text('#!/bin/sh\necho "$PULSETRAIN_ALERT_RULE $PULSETRAIN_ALERT_RUN $1" >> "$2"\nexit 3\n')
    script.chmod(0o700)
    assert act(f"GpuHot=run:{script} now {tmp_path}/out") == f"GpuHot: {script} ended with exit code 3"
    assert (tmp_path / "out").read_text() == "GpuHot r1 now\n"  # once, though two GPUs are hot
    assert act("GpuHot=run:/no/such/program").startswith("GpuHot: run /no/such/program failed: FileNotFoundError")
    assert act("NonFinite=stop") == "NonFinite: stop was skipped: pulsetrain is not running a command"


def test_a_training_is_asked_to_save_only_if_it_handles_the_signal(act: Callable[..., str]) -> None:
    waits = "import signal, time; print(flush=True); time.sleep(300)"
    saves = f"import signal; signal.signal(signal.SIGUSR1, lambda *_: exit(7)); {waits}"
    for program, answer, code in (
        (saves, "Stalled: 1 process asked to save (SIGUSR1)", 7),
        (waits, "Stalled: no process of the command handles SIGUSR1, so it was not asked to save", -signal.SIGTERM),
    ):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout
                process.stdout.readline()
                assert act("Stalled=checkpoint", process.pid) == answer
                if code != 7:
                    assert act("NonFinite=stop", process.pid) == "NonFinite: the command was asked to stop (SIGTERM)"
                assert process.wait(60) == code
            finally:
                process.kill()
