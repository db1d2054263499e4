"""schemathesis against the OpenAPI page: no request, valid or not, causes a 5xx.

`pytest --hypothesis-profile=long` sends thousands of cases to each operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from testkit.lockserver import ServiceProcess
from tidelock.lock.server.openapi import openapi

pytestmark = [
    pytest.mark.xdist_group("lock-service-openapi"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SCHEMA = schemathesis.openapi.from_dict(openapi()).exclude(operation_id="events")
CASES = 15 if settings().max_examples <= 100 else 1_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    with ServiceProcess(str(folder / "store"), log=folder / "log") as running:
        yield running


@SCHEMA.parametrize()
@settings(max_examples=CASES, suppress_health_check=list(HealthCheck), deadline=None)
def test_no_case_is_a_server_error(case: Any, service: ServiceProcess) -> None:
    if case.operation.label.startswith("POST /v1.0-alpha2/lock"):
        # A case that waits for a lock, or holds a stream open, is valid and does not end.
        bounds = {"immediate": True, "stream": False}
        if isinstance(case.body, dict) or type(case.body).__name__ == "NotSet":
            case.body = {**(case.body if isinstance(case.body, dict) else {}), **bounds}
        case.headers = {**(case.headers or {}), "accept": "application/json"}
    response = case.call(base_url=service.url, timeout=120)
    assert response.status_code < 500, (case.as_curl_command(), response.text)
