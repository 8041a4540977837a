"""Rules about the watching itself."""

from pulsetrain.rules.expression import Foreign, Threshold, data_age, signal
from pulsetrain.rules.rule import Rule

RULES = (
    Rule(
        name="PulsetrainDown",
        topic="watching",
        severity="warning",
        when=Foreign('up{job=~".*pulsetrain.*"}').equals(0),
        hold="5m",
        summary="{instance} cannot be scraped",
        description="pulsetrain does not run there, or its port cannot be reached: nothing is known of that machine.",
        advice="systemctl status pulsetrain on the machine; then firewall, address and port.",
    ),
    Rule(
        name="PulsetrainSourceDown",
        topic="watching",
        severity="warning",
        when=signal("host", "source_up").equals(0),
        hold="5m",
        summary="{source} cannot be read on {host}",
        description="Its metrics are missing meanwhile; the others continue.",
        advice="pulsetrain doctor on that machine says what is wrong.",
    ),
    Rule(
        name="PulsetrainPartDown",
        topic="watching",
        severity="warning",
        when=signal("host", "part_up").equals(0),
        hold="5m",
        summary="The {part} of pulsetrain on {host} is down",
        description="It hangs, or fails again and again: what it should write, send or show is missing meanwhile.",
        advice="/healthz of that machine and pulsetrain doctor on it say why: a full or hanging disk, a server away.",
    ),
    Rule(
        name="PulsetrainDataOld",
        topic="watching",
        severity="warning",
        when=data_age("machine") > Threshold("data_age_seconds"),
        hold="2m",
        summary="The newest reading of {host} is {value:duration} old",
        description="pulsetrain answers there, but has read nothing for more than {data_age_seconds} s.",
        advice="A suspended machine, a hanging driver, a remote run that is no longer synced: pulsetrain doctor there.",
    ),
)
