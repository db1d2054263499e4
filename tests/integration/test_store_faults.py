"""Cloud stores during network failures: the result of each verb, and the requests it sent.

An HTTP proxy runs in front of a real server of each kind, so a write can succeed while its reply is
lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from testkit.proxy import (
    Fault,
    FaultProxy,
    ReplyLost,
    ReplyReset,
    Request,
    RequestLost,
    RequestReset,
    Stall,
    Status,
    Truncate,
)
from tests.contract.stores import BUCKET, azure_settings, s3_settings
from tidelock.core.errors import StoreUnreachable, Throttled
from tidelock.core.limits import CONFLICT_RETRIES, RESEND_TRIES
from tidelock.core.outcome import Landed, NotLanded, Unknown
from tidelock.core.system import SystemClock, SystemIds
from tidelock.storage.azure import AzureStore
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Busy, Create, Match, ObjectStore, Overwrite, Refused, Unclear
from tidelock.storage.gcs import GcsStore
from tidelock.storage.s3 import S3Store

pytestmark = pytest.mark.servers

TIMEOUT_MS = 5_000
"""For requests that must time out."""
LONG_MS = 20_000
"""For all others: a loaded machine must not let a request time out that is not meant to."""
STALL_MS = 60_000
FOREVER = 1_000
CONFLICT = Status(409, body=b"<Error><Code>ConditionalRequestConflict</Code></Error>")

LOST_REQUESTS = [RequestLost(), RequestReset()]
LOST_REPLIES = [ReplyLost(), ReplyReset(), Stall(STALL_MS, forward_first=True)]
UNCLEAR_STATUS = [Status(500), Status(502), Status(503), Status(504)]


class HastyClock(SystemClock):
    """The system clock that does not sleep, but records the requested sleeps."""

    def __init__(self) -> None:
        self.slept_ms: list[float] = []

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)


@dataclass(frozen=True, slots=True)
class Lane:
    """A store behind a proxy, and the same location without one."""

    proxy: FaultProxy
    store: ObjectStore
    direct: ObjectStore
    clock: HastyClock
    verbs: list[str] = field(default_factory=list)

    def fail_writes(self, fault: Fault, *, times: int = 1) -> None:
        self.proxy.inject(fault, when=is_write, times=times)

    def fail_reads(self, fault: Fault, *, times: int = 1) -> None:
        self.proxy.inject(fault, when=lambda request: not is_write(request), times=times)

    def writes(self) -> int:
        return len(self.proxy.records(when=is_write))

    def body(self, key: str = "lock") -> bytes | None:
        stored = self.direct.get(key)
        return None if stored is None else stored.body

    def policy(self) -> ReadbackPolicy:
        return ReadbackPolicy(clock=self.clock, ids=SystemIds())


def is_write(request: Request) -> bool:
    return request.method in ("PUT", "POST")


class Open(Protocol):
    """Opens a client of one location: behind a proxy with a timeout, or directly."""

    def __call__(self, options: dict[str, Any], *, endpoint: str, timeout_ms: int) -> ObjectStore:
        """Return a store; `options` are keyword arguments of its class."""
        ...


def s3_opener(request: pytest.FixtureRequest) -> tuple[str, Open]:
    server = request.getfixturevalue("seaweedfs_server")
    server.create_bucket(BUCKET)
    prefix = uuid.uuid4().hex

    def opened(options: dict[str, Any], *, endpoint: str, timeout_ms: int) -> ObjectStore:
        settings = s3_settings(server, endpoint=endpoint)
        settings["tidelock.store.request.timeout.ms"] = timeout_ms
        return S3Store(BUCKET, prefix, settings, **options)

    return server.endpoint, opened


def gcs_opener(request: pytest.FixtureRequest) -> tuple[str, Open]:
    server = request.getfixturevalue("fake_gcs_server")
    server.create_bucket(BUCKET)
    prefix = uuid.uuid4().hex

    def opened(options: dict[str, Any], *, endpoint: str, timeout_ms: int) -> ObjectStore:
        settings: dict[str, object] = {"tidelock.gcs.endpoint": endpoint}
        settings["tidelock.store.request.timeout.ms"] = timeout_ms
        return GcsStore(BUCKET, prefix, settings, **options)

    return server.endpoint, opened


def azure_opener(request: pytest.FixtureRequest) -> tuple[str, Open]:
    server = request.getfixturevalue("azurite_server")
    server.create_container(BUCKET)
    prefix = uuid.uuid4().hex

    def opened(options: dict[str, Any], *, endpoint: str, timeout_ms: int) -> ObjectStore:
        settings = azure_settings(server, endpoint=endpoint)
        settings["tidelock.store.request.timeout.ms"] = timeout_ms
        return AzureStore(server.account, BUCKET, prefix, settings, **options)

    return server.endpoint, opened


OPENERS = {"s3": s3_opener, "gcs": gcs_opener, "azure": azure_opener}


def lane_of(
    request: pytest.FixtureRequest, kind: str, *, timeout_ms: int = LONG_MS
) -> Iterator[Lane]:
    upstream, opened = OPENERS[kind](request)
    clock, verbs = HastyClock(), list[str]()
    with FaultProxy(upstream) as proxy:
        options = {"clock": clock, "observe": verbs.append}
        store = opened(options, endpoint=proxy.endpoint, timeout_ms=timeout_ms)
        direct = opened({}, endpoint=upstream, timeout_ms=LONG_MS)
        direct.put("warm", b"warm", Overwrite())
        yield Lane(proxy, store, direct, clock, verbs)
        store.close()
        direct.close()


@pytest.fixture(params=sorted(OPENERS))
def lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Return a lane of each kind of store, with a short timeout if a request is to stall."""
    stalls = isinstance(request.node.callspec.params.get("fault"), Stall)
    yield from lane_of(request, request.param, timeout_ms=TIMEOUT_MS if stalls else LONG_MS)


@pytest.fixture
def s3_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Return an S3 lane, where 409 means that nothing was written."""
    yield from lane_of(request, "s3")


@pytest.fixture
def gcs_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Return a GCS lane, where the reply to a write has a body."""
    yield from lane_of(request, "gcs")


def named(fault: Fault) -> str:
    return f"{fault.code}" if isinstance(fault, Status) else type(fault).__name__


# Conditional writes: sent once


@pytest.mark.parametrize("fault", LOST_REPLIES, ids=named)
def test_create_with_a_lost_reply_is_unclear_and_sent_once(lane: Lane, fault: Fault) -> None:
    lane.fail_writes(fault)
    assert isinstance(lane.store.put("lock", b"one", Create()), Unclear)
    assert lane.writes() == 1
    assert lane.verbs == ["put"]
    assert lane.body() == b"one"


@pytest.mark.parametrize("fault", LOST_REPLIES, ids=named)
def test_match_with_a_lost_reply_is_unclear_and_sent_once(lane: Lane, fault: Fault) -> None:
    first = lane.direct.put("lock", b"one", Create())
    assert isinstance(first, Landed)
    lane.fail_writes(fault)
    assert isinstance(lane.store.put("lock", b"two", Match(first.version)), Unclear)
    assert lane.writes() == 1
    assert lane.body() == b"two"


@pytest.mark.parametrize("fault", LOST_REQUESTS, ids=named)
def test_create_with_a_lost_request_is_unclear_and_sent_once(lane: Lane, fault: Fault) -> None:
    lane.fail_writes(fault)
    assert isinstance(lane.store.put("lock", b"one", Create()), Unclear)
    assert lane.writes() == 1
    assert lane.body() is None


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fault", UNCLEAR_STATUS, ids=named)
def test_create_answered_by_a_server_error_is_unclear(
    lane: Lane, fault: Status, landed: bool
) -> None:
    lane.fail_writes(Status(fault.code, forward_first=landed))
    reply = lane.store.put("lock", b"one", Create())
    assert reply == Unclear(f"the store answered {fault.code}")
    assert lane.writes() == 1
    assert lane.body() == (b"one" if landed else None)


def test_unclear_reply_carries_the_retry_after_of_the_store(lane: Lane) -> None:
    lane.fail_writes(Status(503, headers={"Retry-After": "3"}))
    reply = lane.store.put("lock", b"one", Create())
    assert reply == Unclear("the store answered 503", retry_after_ms=3_000)


@pytest.mark.parametrize(("retry_after", "pause_ms"), [(None, None), ("2", 2_000), ("soon", None)])
def test_throttled_create_is_busy_and_sent_once(
    lane: Lane, retry_after: str | None, pause_ms: int | None
) -> None:
    lane.fail_writes(Status(429, headers={"Retry-After": retry_after} if retry_after else {}))
    assert lane.store.put("lock", b"one", Create()) == Busy(pause_ms, "429 too many requests")
    assert lane.writes() == 1
    assert lane.body() is None


@pytest.mark.parametrize("fault", [Stall(STALL_MS, forward_first=False)], ids=named)
def test_create_delayed_beyond_the_timeout_is_unclear(lane: Lane, fault: Fault) -> None:
    lane.fail_writes(fault)
    reply = lane.store.put("lock", b"one", Create())
    assert isinstance(reply, Unclear)
    assert "ms" in reply.cause
    assert lane.writes() == 1


def test_create_with_a_truncated_reply_is_unclear(gcs_lane: Lane) -> None:
    gcs_lane.fail_writes(Truncate(5))
    assert isinstance(gcs_lane.store.put("lock", b"one", Create()), Unclear)
    assert gcs_lane.writes() == 1
    assert gcs_lane.body() == b"one"


def test_create_that_cannot_connect_raises(lane: Lane) -> None:
    lane.proxy.stop()
    with pytest.raises(StoreUnreachable):
        lane.store.put("lock", b"one", Create())
    assert lane.verbs == []


def test_conflict_is_retried_and_succeeds_with_two_requests(s3_lane: Lane) -> None:
    s3_lane.fail_writes(CONFLICT)
    assert isinstance(s3_lane.store.put("lock", b"one", Create()), Landed)
    assert s3_lane.writes() == 2
    assert s3_lane.verbs == ["put", "put"]
    assert len(s3_lane.clock.slept_ms) == 1
    assert s3_lane.body() == b"one"


def test_persistent_conflict_is_busy(s3_lane: Lane) -> None:
    s3_lane.fail_writes(CONFLICT, times=FOREVER)
    reply = s3_lane.store.put("lock", b"one", Create())
    assert reply == Busy(cause="409 ConditionalRequestConflict")
    assert s3_lane.writes() == CONFLICT_RETRIES + 1
    assert s3_lane.body() is None


def test_lost_reply_after_a_conflict_is_not_retried(s3_lane: Lane) -> None:
    s3_lane.fail_writes(CONFLICT)
    s3_lane.fail_writes(ReplyLost())
    assert isinstance(s3_lane.store.put("lock", b"one", Create()), Unclear)
    assert s3_lane.writes() == 2


# With read-back


@pytest.mark.parametrize("fault", [*LOST_REPLIES, Status(500, forward_first=True)], ids=named)
def test_lost_reply_is_resolved_as_landed_by_read_back(lane: Lane, fault: Fault) -> None:
    lane.fail_writes(fault)
    outcome = put_and_verify(lane.store, "lock", b"one", Create(), policy=lane.policy())
    stored = lane.direct.get("lock")
    assert stored is not None
    assert outcome == Landed(stored.version)
    assert lane.writes() == 1


@pytest.mark.parametrize("fault", [*LOST_REQUESTS, *UNCLEAR_STATUS, Status(429)], ids=named)
def test_lost_request_is_resent_after_read_back_and_lands(lane: Lane, fault: Fault) -> None:
    lane.fail_writes(fault)
    outcome = put_and_verify(lane.store, "lock", b"one", Create(), policy=lane.policy())
    assert isinstance(outcome, Landed)
    assert lane.writes() == 2
    assert lane.body() == b"one"


def test_refusal_of_a_duplicated_request_is_resolved_as_landed(lane: Lane) -> None:
    # RFC-91, update of November 2025: a hop sent it twice, and the second was refused.
    lane.fail_writes(Status(412, forward_first=True))
    outcome = put_and_verify(lane.store, "lock", b"one", Create(), policy=lane.policy())
    assert isinstance(outcome, Landed)
    assert lane.writes() == 1


def test_create_that_lost_the_race_is_refused_and_not_landed(lane: Lane) -> None:
    lane.direct.put("lock", b"theirs", Create())
    assert lane.store.put("lock", b"ours", Create()) == Refused()
    outcome = put_and_verify(lane.store, "lock", b"ours", Create(), policy=lane.policy())
    assert isinstance(outcome, NotLanded)
    assert lane.body() == b"theirs"


def test_write_that_cannot_be_read_back_is_unknown(lane: Lane) -> None:
    lane.fail_writes(ReplyLost())
    lane.fail_reads(Status(503), times=FOREVER)
    outcome = put_and_verify(lane.store, "lock", b"one", Create(), policy=lane.policy())
    assert isinstance(outcome, Unknown)
    assert lane.writes() == 1


# Idempotent requests


RETRIED = [
    ReplyLost(),
    ReplyReset(),
    RequestLost(),
    Truncate(2),
    Stall(STALL_MS, forward_first=True),
    Status(429),
    *UNCLEAR_STATUS,
]


@pytest.mark.parametrize("fault", RETRIED, ids=named)
def test_failed_read_is_retried(lane: Lane, fault: Fault) -> None:
    lane.direct.put("lock", b"one and more", Create())
    lane.fail_reads(fault)
    stored = lane.store.get("lock")
    assert stored is not None
    assert stored.body == b"one and more"
    assert lane.verbs == ["get", "get"]


@pytest.mark.parametrize("fault", [ReplyLost(), Status(500)], ids=named)
def test_failed_head_list_and_delete_are_retried(lane: Lane, fault: Fault) -> None:
    lane.direct.put("lock", b"one", Create())
    lane.fail_reads(fault)
    assert lane.store.head("lock") is not None
    lane.fail_reads(fault)
    assert [meta.key for meta in lane.store.list("")] == ["lock", "warm"]
    lane.fail_reads(fault)
    lane.store.delete("lock")
    assert lane.verbs == ["head", "head", "list", "list", "delete", "delete"]
    assert lane.body() is None


@pytest.mark.parametrize(
    ("fault", "error"),
    [(ReplyLost(), StoreUnreachable), (Status(500), StoreUnreachable), (Status(429), Throttled)],
    ids=["ReplyLost", "500", "429"],
)
def test_permanently_failing_read_gives_up(
    lane: Lane, fault: Fault, error: type[Exception]
) -> None:
    lane.fail_reads(fault, times=FOREVER)
    with pytest.raises(error, match="lock"):
        lane.store.get("lock")
    assert lane.verbs == ["get"] * RESEND_TRIES


def test_read_waits_as_long_as_the_store_requests(s3_lane: Lane) -> None:
    s3_lane.fail_reads(Status(503, headers={"Retry-After": "2"}))
    assert s3_lane.store.get("lock") is None
    assert s3_lane.clock.slept_ms == [2_000]


def test_read_gives_up_at_once_when_the_wait_exceeds_its_deadline(lane: Lane) -> None:
    lane.fail_reads(Status(503, headers={"Retry-After": "30"}), times=FOREVER)
    with pytest.raises(Throttled) as caught:
        lane.store.get("lock")
    assert caught.value.retry_after_ms == 30_000
    assert lane.verbs == ["get"]
    assert lane.clock.slept_ms == []


@pytest.mark.parametrize("fault", [ReplyLost(), RequestReset(), Status(500)], ids=named)
def test_failed_overwrite_is_retried(lane: Lane, fault: Fault) -> None:
    lane.fail_writes(fault)
    assert isinstance(lane.store.put("lock", b"one", Overwrite()), Landed)
    assert lane.writes() == 2
    assert lane.body() == b"one"


def test_permanently_failing_overwrite_is_unclear(lane: Lane) -> None:
    lane.fail_writes(Status(500), times=FOREVER)
    assert lane.store.put("lock", b"one", Overwrite()) == Unclear("the store answered 500")
    assert lane.writes() == RESEND_TRIES


def test_overwrite_throttled_after_a_lost_reply_stays_unclear(lane: Lane) -> None:
    lane.fail_writes(ReplyLost())
    lane.fail_writes(Status(429), times=FOREVER)
    assert isinstance(lane.store.put("lock", b"one", Overwrite()), Unclear)


def test_permanently_throttled_overwrite_is_busy(lane: Lane) -> None:
    lane.fail_writes(Status(429), times=FOREVER)
    assert isinstance(lane.store.put("lock", b"one", Overwrite()), Busy)
    assert lane.writes() == RESEND_TRIES
    assert lane.body() is None
