"""What is done when an alert fires, if the user asked for it: stop the command, let it save, run another one.

Nothing is done by default, and nothing by a settings file of the working folder. Each action is recorded as an event.
"""

import os
import shlex
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from pulsetrain.errors import UsageError, did_you_mean
from pulsetrain.rules.alert import FIRING
from pulsetrain.snapshot import Event, Snapshot
from pulsetrain.supervise import Supervisor, Worker, reason_of

ACTED = "alert_action"
COMMAND_SECONDS = 60.0
"""A command that takes longer is ended."""
AGAIN_SECONDS = 60.0
"""An action of one rule is taken at most so often, however many GPUs it fires for."""
MOST_WAITING = 100
FORMS = "RULE=stop, RULE=checkpoint or RULE=run:COMMAND, such as NonFinite=stop."


class AlertAction(NamedTuple):
    """One rule, and what is done when it fires."""

    rule: str
    kind: Literal["stop", "checkpoint", "run"]
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.command[0]}" if self.command else self.kind


def parse_action(text: str) -> AlertAction:
    """`NonFinite=stop`, `Stalled=checkpoint`, `GpuHot=run:/home/me/cool.sh 250`."""
    rule, _, action = text.partition("=")
    from pulsetrain.rules.declared import RULES

    names = {known.name for known in RULES}
    if rule not in names:
        raise UsageError(
            f"unknown rule: {rule!r}.", hint=f"{did_you_mean(rule, names)}All rules: docs/alerts.md. Use {FORMS}"
        )
    if action in ("stop", "checkpoint"):
        return AlertAction(rule, action)  # type: ignore[arg-type]  # mypy does not narrow by `in`
    if action.startswith("run:"):
        try:
            words = tuple(shlex.split(action.removeprefix("run:")))
        except ValueError as error:
            raise UsageError(f"the command for {rule} cannot be parsed: {error}.", hint=FORMS) from None
        if words:
            return AlertAction(rule, "run", words)
    raise UsageError(f"{rule}: unknown action {action!r}.", hint=FORMS)


class Actions:
    """Takes actions when alerts fire, in a thread of its own, from `start` to `close`."""

    def __init__(self, actions: Sequence[AlertAction], supervisor: Supervisor, run: str | None) -> None:
        self.pid: int | None = None
        """Of the watched command, while it runs."""
        self._actions = actions
        self._run = run
        self._due: deque[tuple[AlertAction, Event]] = deque(maxlen=MOST_WAITING)
        self._done: deque[Event] = deque(maxlen=MOST_WAITING)
        self._taken: dict[AlertAction, float] = {}
        self._worker = Worker(supervisor.part("actions"), self._work, every_seconds=60.0, what="an action")

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop(0.0)

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Begin what the alerts of this snapshot call for; hand it on with what was done since the last one."""
        for event in snapshot.events:
            if event.kind == FIRING:
                self._due.extend((action, event) for action in self._actions if action.rule == event.details["rule"])
        if self._due:
            self._worker.wake()
        done = tuple(self._take_done())
        return snapshot._replace(events=(*snapshot.events, *done)) if done else snapshot

    def _take_done(self) -> Iterator[Event]:
        while self._done:
            yield self._done.popleft()

    def _work(self) -> None:
        while self._due:
            action, alert = self._due.popleft()
            now = time.monotonic()
            if now - self._taken.get(action, -AGAIN_SECONDS) < AGAIN_SECONDS:
                continue
            self._taken[action] = now
            try:
                what = self._act(action, alert)
            except (OSError, subprocess.SubprocessError, psutil.Error) as error:
                what = f"{action} failed: {reason_of(error)}"
            details = {"rule": action.rule, "action": action.kind, "alert": alert.details.get("alert")}
            self._done.append(Event(ACTED, f"{action.rule}: {what}", "warning", details))

    def _act(self, action: AlertAction, alert: Event) -> str:
        if action.kind == "run":
            return self._call(action, alert)
        pid = self.pid
        if pid is None:
            return f"{action.kind} was skipped: pulsetrain is not running a command"
        if action.kind == "stop":
            os.kill(pid, signal.SIGTERM)
            return "the command was asked to stop (SIGTERM)"
        return _ask_to_save(pid)

    def _call(self, action: AlertAction, alert: Event) -> str:
        about = {
            "PULSETRAIN_ALERT_RULE": action.rule,
            "PULSETRAIN_ALERT_SEVERITY": alert.severity,
            "PULSETRAIN_ALERT_MESSAGE": alert.message,
            "PULSETRAIN_ALERT_RUN": self._run or "",
            "PULSETRAIN_ALERT_PID": str(self.pid or ""),
        }
        done = subprocess.run(
            action.command,
            env={**os.environ, **about},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return f"{action.command[0]} ended with exit code {done.returncode}"


def _ask_to_save(pid: int) -> str:
    """SIGUSR1 to the processes of a command that wait for it: it would end all others."""
    process = psutil.Process(pid)
    listening = [one.pid for one in (process, *process.children(recursive=True)) if _handles_usr1(one.pid)]
    for one in listening:
        os.kill(one, signal.SIGUSR1)
    if not listening:
        return "no process of the command handles SIGUSR1, so it was not asked to save"
    return f"{len(listening)} process{'es' if len(listening) > 1 else ''} asked to save (SIGUSR1)"


def _handles_usr1(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)
