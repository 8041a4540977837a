"""The notice that a cloud gives before it takes a machine away, from its metadata server."""

from collections.abc import Iterator

from pulsetrain.provenance.metadata import Cloud, MetadataError
from pulsetrain.snapshot import Event, Sample, Subject
from pulsetrain.training.masking import storable

PERIOD_SECONDS = 5.0
"""Google Cloud gives a notice of 30 seconds, AWS of two minutes, Azure of 30 seconds or more."""


class SpotNotice:
    """A source: 0 while all is well, 1 once the end of this machine is announced, and an event when it first is."""

    name = "spot_notice"

    def __init__(self, cloud: Cloud, period: float = PERIOD_SECONDS) -> None:
        self.period = period
        self._cloud = cloud
        self._host = Subject("host", "")
        self._told = False

    def read(self) -> Iterator[Sample | Event]:
        try:
            reason = self._cloud.announced_end()
        except PermissionError as error:
            raise MetadataError(f"{self._cloud.name}'s metadata server refuses to answer: {error}.") from None
        yield Sample(self._host, {"end_announced": 1.0 if reason else 0.0})
        if reason and not self._told:
            self._told = True
            message = f"This machine is about to be taken away: {storable(reason)[:200]}."
            yield Event("spot_notice", message, "critical")

    def close(self) -> None:
        pass
