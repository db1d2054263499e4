"""Uploads in parts when the network fails: parts are sent again, the last request never is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.test_store_faults import LONG_MS, OPENERS, Lane, lane_of, named
from tidelock.base.limits import UPLOAD_PART_BYTES
from tidelock.base.outcome import Landed
from tidelock.store.contract import PutReply, Refused, Unclear
from tidelock.testing.proxy import Fault, ReplyLost, ReplyReset, Request, RequestLost, Status

pytestmark = pytest.mark.servers

BODY = bytes(range(256)) * (UPLOAD_PART_BYTES // 128 + 1)
"""Two whole parts and a piece."""


@pytest.fixture(params=sorted(OPENERS))
def lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Return a lane of each kind of store, with time for large bodies."""
    yield from lane_of(request, request.param, timeout_ms=LONG_MS)


@pytest.fixture(params=["azure", "s3"])
def resuming_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Return a lane whose server can resume: fake-gcs takes the question for the last piece."""
    yield from lane_of(request, request.param, timeout_ms=LONG_MS)


def makes_the_object(request: Request) -> bool:
    """Tell whether a request is the one that creates the object of the parts."""
    sent = request.header("content-range") or ""
    return (
        (request.method == "POST" and "uploadId=" in request.query)
        or (sent != "" and not sent.endswith("/*"))
        or "comp=blocklist" in request.query
    )


def sends_a_part(request: Request) -> bool:
    """Tell whether a request carries a part that is not the last of a session."""
    return request.method == "PUT" and len(request.body) == UPLOAD_PART_BYTES


def uploaded(lane: Lane) -> PutReply:
    """Upload the body."""
    with lane.store.upload("data") as upload:
        upload.write(BODY)
        return upload.finish()


@pytest.mark.parametrize("fault", [ReplyLost(), ReplyReset()], ids=named)
def test_an_object_whose_reply_is_lost_is_unclear_and_there(lane: Lane, fault: Fault) -> None:
    lane.proxy.inject(fault, when=makes_the_object, times=1)
    assert isinstance(uploaded(lane), Unclear)
    assert lane.body("data") == BODY
    assert len(lane.proxy.records(when=makes_the_object)) == 1


def test_an_object_whose_request_is_lost_is_unclear_and_not_there(lane: Lane) -> None:
    lane.proxy.inject(RequestLost(), when=makes_the_object, times=1)
    assert isinstance(uploaded(lane), Unclear)
    assert lane.direct.head("data") is None
    assert isinstance(uploaded(lane), Landed)
    assert lane.body("data") == BODY


@pytest.mark.parametrize("fault", [RequestLost(), ReplyLost(), Status(503)], ids=named)
def test_a_part_that_fails_once_is_sent_again(resuming_lane: Lane, fault: Fault) -> None:
    resuming_lane.proxy.inject(fault, when=sends_a_part, times=1)
    assert isinstance(uploaded(resuming_lane), Landed)
    assert resuming_lane.body("data") == BODY


def test_an_upload_after_one_that_landed_unheard_is_refused(lane: Lane) -> None:
    lane.proxy.inject(ReplyLost(), when=makes_the_object, times=1)
    uploaded(lane)
    assert uploaded(lane) == Refused()
