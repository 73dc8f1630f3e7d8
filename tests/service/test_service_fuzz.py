"""The API against its own schema: whatever is sent is answered as described, and never by a fault of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from service_process import ServiceProcess

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

ROUTES = [
    "POST /v1/tasks",
    "POST /v1/tasks/batch",
    "GET /v1/tasks",
    "GET /v1/tasks/{task_id}",
    "DELETE /v1/tasks/{task_id}",
    "POST /v1/results",
    "GET /v1/overview",
    "POST /evaluate",
    "POST /evaluate/batch",
    "POST /workflow/submit",
    "GET /workflow/results/{task_id}",
    "GET /status/{task_id}",
    "GET /results/{task_id}",
    "DELETE /tasks/{task_id}",
    "GET /workers/status",
    "GET /queue/status",
    "GET /health",
    "GET /metrics",
    "POST /reset",
    "POST /step",
    "GET /state",
    "GET /schema",
    "GET /metadata",
]
"""Every route but `GET /v1/events`, whose stream has no end."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("fuzz")) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in "".join(process.lines)


@pytest.fixture(scope="module")
def schema(service: ServiceProcess) -> Any:
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json")


def test_every_route_is_fuzzed(schema: Any) -> None:
    described = {f"{found.ok().method.upper()} {found.ok().path}" for found in schema.get_all_operations()}
    assert described == {*ROUTES, "GET /v1/events"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_request_is_answered_as_described(schema: Any, route: str, mode: GenerationMode) -> None:
    method, _, path = route.partition(" ")
    operation = schema[path][method]

    @given(st.data())
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    def one(data: st.DataObject) -> None:
        case: Case = data.draw(operation.as_strategy(generation_mode=mode))
        if isinstance(case.query, dict):
            case.query.pop("wait", None)
        case.call_and_validate(checks=CHECKS)

    try:
        one()
    except Exception as error:
        # Some routes have nothing that could be made wrong.
        if mode is GenerationMode.NEGATIVE and type(error).__name__ in ("Unsatisfiable", "SkipTest"):
            return
        raise


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"null", b'{"job": NaN}', b"\xff\xfe", b'{"id": "\\ud800"}']
)
@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/batch", "/v1/results", "/evaluate", "/workflow/submit"])
def test_what_is_not_json_or_not_the_thing_is_one_line(service: ServiceProcess, path: str, body: bytes) -> None:
    import httpx

    answer = httpx.post(service.url + path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert len(answer.json()["detail"].splitlines()) == 1 and len(answer.json()["detail"]) <= 1000
