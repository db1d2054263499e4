"""GCS replies, and how the store interprets them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import google.auth
import google.auth.exceptions
import pytest

from tests.unit.storage.scripted_wire import Wire, reply
from tidelock.core.errors import (
    ConfigInvalid,
    DataCorrupt,
    InvalidInput,
    MissingExtra,
    NotFound,
    PermissionDenied,
    StoreUnreachable,
)
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Busy, Create, Match, Overwrite, PutReply, Refused, Unclear
from tidelock.storage.gcs import GcsStore
from tidelock.storage.http import Answer

failures: Any = google.auth.exceptions

EMULATED = {"tidelock.gcs.endpoint": "http://host:4443"}
ABSENT = reply(404, b"No such object: bucket/table/key")
NO_BUCKET = reply(404, b'{"error":{"message":"The specified bucket does not exist."}}')


def store() -> GcsStore:
    return GcsStore("bucket", "table", EMULATED)


@dataclass
class FakeCredentials:
    """The part of google-auth's credentials that the store uses."""

    valid: bool = False
    refreshed: int = 0
    fails: Exception | None = None

    def refresh(self, request: object) -> None:
        if self.fails is not None:
            raise self.fails
        self.valid = True
        self.refreshed += 1

    def apply(self, headers: dict[str, str]) -> None:
        headers["authorization"] = f"Bearer token-{self.refreshed}"


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> FakeCredentials:
    """Replace the application default credentials."""
    fake = FakeCredentials()
    monkeypatch.setattr(google.auth, "default", lambda **_: (fake, "project"))
    return fake


# Endpoints and credentials


def test_requests_to_google_have_a_token_that_is_refreshed_on_expiry(
    wire: Wire, credentials: FakeCredentials
) -> None:
    opened = GcsStore("bucket", "table")
    wire.will_answer(ABSENT, ABSENT, ABSENT)
    opened.get("key")
    opened.get("key")
    credentials.valid = False
    opened.get("key")
    assert wire.last.origin == "https://storage.googleapis.com"
    assert [request.headers["authorization"] for request in wire.requests] == [
        "Bearer token-1",
        "Bearer token-1",
        "Bearer token-2",
    ]


@pytest.mark.parametrize("address", ["host:4443", "http://host:4443", "http://host:4443/"])
def test_requests_to_an_emulator_have_no_token(
    wire: Wire, credentials: FakeCredentials, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    wire.will_answer(ABSENT)
    GcsStore("bucket", "table").get("key")
    assert wire.last.origin == "http://host:4443"
    assert "authorization" not in wire.last.headers
    assert credentials.refreshed == 0


def test_endpoint_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        GcsStore("bucket", "", {"tidelock.gcs.endpoint": "http://me:hidden@host"})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (failures.RefreshError("no"), PermissionDenied),
        (failures.TransportError("no"), StoreUnreachable),
    ],
)
def test_unavailable_token_is_an_error(
    credentials: FakeCredentials, failure: Exception, kind: type[Exception]
) -> None:
    credentials.fails = failure
    with pytest.raises(kind):
        GcsStore("bucket", "table").get("key")


def test_missing_credentials_are_denied_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(**_: object) -> None:
        raise failures.DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", nobody)
    with pytest.raises(PermissionDenied, match="gcloud auth"):
        GcsStore("bucket", "table").get("key")


def test_missing_google_auth_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tidelock\[gcs\]'"):
        GcsStore("bucket", "table")


# Verbs


def test_key_is_one_path_segment_and_one_query_value(wire: Wire) -> None:
    opened = store()
    wire.will_answer(ABSENT, reply(200, b'{"generation":"7"}'))
    opened.get("a b/c?d&e+f")
    opened.put("a b/c?d&e+f", b"x", Create())
    get, put = wire.requests
    assert get.target == "/storage/v1/b/bucket/o/table%2Fa%20b%2Fc%3Fd%26e%2Bf?alt=media"
    assert "name=table%2Fa%20b%2Fc%3Fd%26e%2Bf" in put.target
    assert put.method == "POST"


@pytest.mark.parametrize("version", ["1&x=y", "", "-1", "\u0664"])
def test_version_that_is_not_a_generation_is_refused(wire: Wire, version: str) -> None:
    with pytest.raises(InvalidInput, match="is not a generation"):
        store().put("key", b"x", Match(version))


def test_mode_becomes_a_condition(wire: Wire) -> None:
    for mode in (Create(), Match("41"), Overwrite()):
        wire.will_answer(reply(200, b'{"generation":"42"}'))
        store().put("key", b"x", mode)
    create, match, overwrite = (request.target for request in wire.requests)
    assert create.endswith("&ifGenerationMatch=0")
    assert match.endswith("&ifGenerationMatch=41")
    assert "ifGenerationMatch" not in overwrite


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(200, b'{"generation":"42"}'), Landed("42")),
        (reply(200, b'{"generation":"forty"}'), Unclear("the reply has no generation")),
        (reply(200, b"{}"), Unclear("the reply has no generation")),
        (reply(200, b'{"gener'), Unclear("the reply has no generation")),
        (reply(412), Refused()),
        (reply(429, retry_after="1"), Busy(1_000, "429 too many requests")),
        (reply(503), Unclear("the store answered 503")),
    ],
)
def test_conditional_write_is_sent_once_and_its_reply_classified(
    wire: Wire, answer: Answer, expected: PutReply
) -> None:
    wire.will_answer(answer)
    assert store().put("key", b"x", Create()) == expected
    assert len(wire.requests) == 1


def test_match_of_a_missing_object_is_refused(wire: Wire) -> None:
    wire.will_answer(ABSENT)
    assert store().put("key", b"x", Match("41")) == Refused()


@pytest.mark.parametrize(
    "verb",
    [
        lambda opened: opened.get("key"),
        lambda opened: opened.head("key"),
        lambda opened: opened.delete("key"),
        lambda opened: opened.put("key", b"x", Create()),
        lambda opened: opened.put("key", b"x", Match("1")),
        lambda opened: list(opened.list("")),
    ],
)
def test_missing_bucket_is_reported_after_one_request(
    wire: Wire, verb: Callable[[GcsStore], object]
) -> None:
    wire.will_answer(NO_BUCKET)
    with pytest.raises(NotFound, match="the bucket bucket does not exist"):
        verb(store())


def test_absent_object_is_one_request(wire: Wire) -> None:
    wire.will_answer(ABSENT)
    assert store().get("key") is None


def test_ambiguous_404_is_resolved_by_one_bucket_request(wire: Wire) -> None:
    opened = store()
    wire.will_answer(reply(404), reply(200, b"{}"), reply(404))
    assert opened.get("key") is None
    assert opened.get("key") is None


@pytest.mark.parametrize(
    "answer", [reply(200, b"x"), reply(200, b"x", x_goog_generation="new")], ids=["none", "text"]
)
def test_reply_without_a_generation_is_refused(wire: Wire, answer: Answer) -> None:
    wire.will_answer(answer)
    with pytest.raises(DataCorrupt):
        store().get("key")


@pytest.mark.parametrize("body", [b"", b"[]", b"nothing", b'{"items":[{"name":"table/a"}]}'])
def test_invalid_listing_is_corrupt(wire: Wire, body: bytes) -> None:
    wire.will_answer(reply(200, body))
    with pytest.raises(DataCorrupt):
        list(store().list(""))


def test_listing_follows_its_tokens_and_starts_after_the_key(wire: Wire) -> None:
    def item(name: str) -> dict[str, str]:
        updated = "2026-01-02T03:04:05.678Z"
        return {"name": name, "size": "1", "generation": "9", "updated": updated}

    first = {"items": [item("table/a"), item("table/b")], "nextPageToken": "more/"}
    last = {"items": [item("table/c/"), item("table/d")]}
    wire.will_answer(reply(200, json.dumps(first).encode()), reply(200, json.dumps(last).encode()))
    listed = list(store().list("", start_after="a"))
    assert [meta.key for meta in listed] == ["b", "d"]
    assert (listed[0].version, listed[0].modified_epoch_ms) == ("9", 1_767_323_045_678)
    assert "startOffset=table%2Fa" in wire.requests[0].target
    assert "pageToken=more%2F" in wire.last.target


def test_refusal_shows_the_reason(wire: Wire) -> None:
    body = b'{"error":{"errors":[{"reason":"forbidden"}],"message":"me@example.org may not"}}'
    wire.will_answer(reply(403, body))
    with pytest.raises(PermissionDenied, match="403 forbidden") as caught:
        store().get("key")
    assert "example" not in str(caught.value)
