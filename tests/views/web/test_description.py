"""The server against its own OpenAPI description, with questions that schemathesis makes from it."""

from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from pulsetrain.views.web.server import WebServer

FIRST, SECOND = "20261116-120000-first-0001", "20261116-130000-second-0002"
EXAMPLES = 4
"""Of each operation: good ones, and as many that break the description."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
BOUNDED = settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
KNOWN: dict[str, list[Any]] = {"id": [FIRST], "chart": [["loss", "power"], "loss"], "run": [[FIRST, SECOND]]}
"""What exists: made-up names alone would only be told that they do not."""


def test_every_question_is_answered_as_described_and_none_makes_the_server_fail(server: WebServer) -> None:
    described = httpx.get(f"{server.url}/api/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(described)
    answered: dict[str, set[int]] = {}

    def check(cases: "st.SearchStrategy[Any]") -> None:
        @BOUNDED
        @given(case=cases, data=st.data())
        def ask(case: Any, data: st.DataObject) -> None:
            for parameters in (case.path_parameters, case.query):
                for name in sorted(KNOWN.keys() & (parameters or {})):
                    if data.draw(st.booleans()):
                        parameters[name] = data.draw(st.sampled_from(KNOWN[name]))
            response = case.call(base_url=server.url)
            case.validate_response(response, checks=CHECKS)
            answered.setdefault(case.operation.label, set()).add(response.status_code)

        ask()

    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # an error fails the test
        check(operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        if any(parameter.location == "query" for parameter in operation.iter_parameters()):
            check(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    assert len(answered) == sum(len(ways) for ways in described["paths"].values())
    assert answered["GET /api/v1/runs/{id}/series"] >= {200, 400}
