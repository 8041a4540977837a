from collections.abc import Iterator

import pytest
from tests.alerts.services import Mail, Web, serving


@pytest.fixture
def web() -> Iterator[Web]:
    service = Web()
    with serving(service.server):
        yield service


@pytest.fixture
def mail() -> Iterator[Mail]:
    service = Mail()
    with serving(service.server):
        yield service
