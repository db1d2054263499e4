"""Multipart uploads during network failures: parts are retried, the final request is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.proxy import Fault, ReplyLost, ReplyReset, Request, RequestLost, Status
from tests.integration.test_store_faults import LONG_MS, OPENERS, Lane, lane_of, named
from tidelock.core.limits import UPLOAD_PART_BYTES
from tidelock.core.outcome import Landed
from tidelock.storage.contract import PutReply, Refused, Unclear

pytestmark = pytest.mark.servers

BODY = bytes(range(256)) * (UPLOAD_PART_BYTES // 128 + 1)
"""Two full parts and a partial one."""


@pytest.fixture(params=sorted(OPENERS))
def lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Return a lane of each kind of store, with time for large bodies."""
    yield from lane_of(request, request.param, timeout_ms=LONG_MS)


@pytest.fixture(params=["azure", "s3"])
def resuming_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Return a lane whose server can resume; fake-gcs takes the status query for the last part."""
    yield from lane_of(request, request.param, timeout_ms=LONG_MS)


def makes_the_object(request: Request) -> bool:
    """Return whether a request completes the upload."""
    sent = request.header("content-range") or ""
    return (
        (request.method == "POST" and "uploadId=" in request.query)
        or (sent != "" and not sent.endswith("/*"))
        or "comp=blocklist" in request.query
    )


def sends_a_part(request: Request) -> bool:
    """Return whether a request carries a part that is not the last of a session."""
    return request.method == "PUT" and len(request.body) == UPLOAD_PART_BYTES


def uploaded(lane: Lane) -> PutReply:
    """Upload the body."""
    with lane.store.upload("data") as upload:
        upload.write(BODY)
        return upload.finish()


@pytest.mark.parametrize("fault", [ReplyLost(), ReplyReset()], ids=named)
def test_completion_with_a_lost_reply_is_unclear_and_landed(lane: Lane, fault: Fault) -> None:
    lane.proxy.inject(fault, when=makes_the_object, times=1)
    assert isinstance(uploaded(lane), Unclear)
    assert lane.body("data") == BODY
    assert len(lane.proxy.records(when=makes_the_object)) == 1


def test_completion_with_a_lost_request_is_unclear_and_not_landed(lane: Lane) -> None:
    lane.proxy.inject(RequestLost(), when=makes_the_object, times=1)
    assert isinstance(uploaded(lane), Unclear)
    assert lane.direct.head("data") is None
    assert isinstance(uploaded(lane), Landed)
    assert lane.body("data") == BODY


@pytest.mark.parametrize("fault", [RequestLost(), ReplyLost(), Status(503)], ids=named)
def test_failed_part_is_retried(resuming_lane: Lane, fault: Fault) -> None:
    resuming_lane.proxy.inject(fault, when=sends_a_part, times=1)
    assert isinstance(uploaded(resuming_lane), Landed)
    assert resuming_lane.body("data") == BODY


def test_upload_after_an_unacknowledged_one_is_refused(lane: Lane) -> None:
    lane.proxy.inject(ReplyLost(), when=makes_the_object, times=1)
    uploaded(lane)
    assert uploaded(lane) == Refused()
