"""What tests of live state share: feeds that are stopped with their test."""

import contextlib
from collections.abc import Iterator

import pytest
from tests.views.live.viewer import Show, Viewer

from pulsetrain.views.live.feeds import Feed


@pytest.fixture
def show() -> Iterator[Show]:
    """Start a feed; it is stopped with the test."""
    with contextlib.ExitStack() as started:

        def show(feed: Feed) -> Viewer:
            viewer = Viewer()
            feed.start(viewer)
            started.callback(feed.stop)
            return viewer

        yield show
