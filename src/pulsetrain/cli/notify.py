"""`pulsetrain notify`: messages to phones, chats and mailboxes."""

import click

from pulsetrain.errors import PulsetrainError, UsageError


@click.group(short_help="Test notifications to phones, chats and mailboxes.")
def notify() -> None:
    """Test the Apprise URLs that alerts and end-of-run messages are sent to (docs/notify.md).

    The URLs come from $PULSETRAIN_NOTIFY_URL, or from the file that `url_file` in section [notify] of your own settings
    names; never from the command line, where others could read them.
    """


@notify.command()
def test() -> None:
    """Send a test message to every URL and show whether it was delivered."""
    from pulsetrain import settings
    from pulsetrain.alerts.delivery import Delivery, Message, deliver
    from pulsetrain.alerts.notify_urls import EXAMPLES, VARIABLE, notify_urls
    from pulsetrain.runs.folder import host_name

    urls = notify_urls(settings.in_force().config.notify)
    if not urls:
        raise UsageError(
            "no notification URL is set.",
            hint=f"Set {VARIABLE}, or url_file in the section [notify] of your own settings: {EXAMPLES}",
        )
    message = Message(f"pulsetrain on {host_name()}", "This is a test. Alerts for your runs will arrive here.")
    outcomes = deliver(Delivery(message, urls))
    for number, outcome in enumerate(outcomes, 1):
        click.echo(f"URL {number}  {outcome.service or 'unknown'}: {outcome.reason or 'sent'}")
    failed = sum(not outcome.delivered for outcome in outcomes)
    if failed:
        raise PulsetrainError(f"{failed} of {len(outcomes)} messages could not be sent.")
