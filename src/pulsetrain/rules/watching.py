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
        description="pulsetrain is not running there, or its port cannot be reached: that machine is not monitored.",
        advice="Run systemctl status pulsetrain on the machine; then check firewall, address and port.",
    ),
    Rule(
        name="PulsetrainSourceDown",
        topic="watching",
        severity="warning",
        when=signal("host", "source_up").equals(0),
        hold="5m",
        summary="{source} cannot be read on {host}",
        description="Its metrics are missing; all others continue.",
        advice="Run pulsetrain doctor on that machine to see what is wrong.",
    ),
    Rule(
        name="PulsetrainPartDown",
        topic="watching",
        severity="warning",
        when=signal("host", "part_up").equals(0),
        hold="5m",
        summary="The {part} of pulsetrain on {host} is down",
        description="It hangs or keeps failing: what it should write, send or show is missing.",
        advice="Check /healthz on that machine and run pulsetrain doctor there: is a disk full or hung, or a server "
        "down?",
    ),
    Rule(
        name="PulsetrainDataOld",
        topic="watching",
        severity="warning",
        when=data_age("machine") > Threshold("data_age_seconds"),
        hold="2m",
        summary="The newest reading of {host} is {value:duration} old",
        description="pulsetrain answers there, but has read nothing for more than {data_age_seconds} s.",
        advice="Is the machine suspended, its driver hung, or a remote run no longer synced? Run pulsetrain doctor "
        "there.",
    ),
)
