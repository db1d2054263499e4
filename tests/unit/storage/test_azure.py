"""Azure replies, and how the store interprets them."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.unit.storage.raw_server import raw_server
from tests.unit.storage.scripted_wire import Wire, error, reply
from tidelock.core.errors import DataCorrupt, NotFound, PermissionDenied, StoreUnreachable
from tidelock.core.outcome import Landed
from tidelock.storage.azure import AzureStore
from tidelock.storage.contract import Busy, Create, Match, Overwrite, PutReply, Refused, Unclear
from tidelock.storage.http import Answer

KEY = "c2VjcmV0LWtleQ=="
CONNECTION = (
    f"DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={KEY};"
    "BlobEndpoint=http://host:10000/acct;"
)
SETTINGS = {"hoodie.write.lock.azure.connection.string": CONNECTION}


def store() -> AzureStore:
    return AzureStore("acct.dfs.core.windows.net", "lake", "table", SETTINGS)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(201, etag='"0x1"'), Landed('"0x1"')),
        (reply(201), Unclear("the reply has no ETag")),
        (error(409, "BlobAlreadyExists"), Refused()),
        (error(412, "ConditionNotMet"), Refused()),
        (error(404, "BlobNotFound"), Refused()),
        (error(409, "PendingCopyOperation"), Busy(cause="409 PendingCopyOperation")),
        (reply(429), Busy(None, "429 too many requests")),
        (error(503, "ServerBusy", retry_after="2"), Unclear("the store answered 503", 2_000)),
        (error(500, "OperationTimedOut"), Unclear("the store answered 500")),
    ],
)
def test_conditional_write_is_sent_once_and_its_reply_classified(
    wire: Wire, answer: Answer, expected: PutReply
) -> None:
    wire.will_answer(answer)
    assert store().put("key", b"x", Match('"0x0"')) == expected
    assert len(wire.requests) == 1


def test_mode_becomes_a_condition_on_a_block_blob(wire: Wire) -> None:
    for mode in (Create(), Match('"0x1"'), Overwrite()):
        wire.will_answer(reply(201, etag='"0x2"'))
        store().put("a b", b"x", mode)
    create, match, overwrite = (request.headers for request in wire.requests)
    assert (create["if-none-match"], match["if-match"]) == ("*", '"0x1"')
    assert "if-match" not in overwrite
    assert overwrite["x-ms-blob-type"] == "BlockBlob"
    assert wire.last.target == "/acct/lake/table/a%20b"


def test_leased_blob_is_not_a_lost_race(wire: Wire) -> None:
    wire.will_answer(error(412, "LeaseIdMissing"))
    with pytest.raises(PermissionDenied, match="lease"):
        store().put("key", b"x", Create())


@pytest.mark.parametrize("answer", [error(404, "BlobNotFound"), reply(404)])
def test_create_answered_with_404_is_an_error(wire: Wire, answer: Answer) -> None:
    wire.will_answer(answer)
    with pytest.raises(NotFound):
        store().put("key", b"x", Create())


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
@pytest.mark.parametrize("status", [404, 409])
def test_missing_container_is_reported(
    wire: Wire, verb: Callable[[AzureStore], object], status: int
) -> None:
    code = "ContainerNotFound" if status == 404 else "ContainerBeingDeleted"
    wire.will_answer(reply(status, x_ms_error_code=code))
    with pytest.raises(NotFound, match="the container lake does not exist"):
        verb(store())


def blob(name: str, *, encoded: str = "", extra: str = "", size: str = "1") -> str:
    return (
        f"<Blob><Name{encoded}>{name}</Name><Properties>"
        "<Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified>"
        f"<Etag>0x1</Etag><Content-Length>{size}</Content-Length>{extra}</Properties></Blob>"
    )


def listing(*blobs: str, marker: str = "") -> bytes:
    return (
        f"<EnumerationResults><Blobs>{''.join(blobs)}</Blobs>"
        f"<NextMarker>{marker}</NextMarker></EnumerationResults>"
    ).encode()


def test_listing_follows_its_markers_and_omits_folders(wire: Wire) -> None:
    folder = "<ResourceType>directory</ResourceType>"
    wire.will_answer(
        reply(200, listing(blob("table/a"), blob("table/b", extra=folder), marker="2!92!")),
        reply(
            200,
            listing(
                blob("table/b/c"),
                blob("table/%EF%BF%BEd", encoded=' Encoded="true"'),
                blob("table/%41"),
            ),
        ),
    )
    listed = list(store().list(""))
    assert [meta.key for meta in listed] == ["a", "b/c", "\ufffed", "%41"]
    assert listed[0].version == '"0x1"'
    assert listed[0].modified_epoch_ms == 1_767_323_045_000
    assert "marker=2%2192%21" in wire.last.target


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", listing("<Blob><Name>table/a</Name></Blob>"), listing(blob("table/a", size="x"))],
)
def test_invalid_listing_is_corrupt(wire: Wire, body: bytes) -> None:
    wire.will_answer(reply(200, body))
    with pytest.raises(DataCorrupt):
        list(store().list(""))


def test_refusal_shows_code_and_hint_but_no_key(wire: Wire) -> None:
    wire.will_answer(reply(403, b"<Message>sig</Message>", x_ms_error_code="AuthenticationFailed"))
    opened = store()
    with pytest.raises(PermissionDenied, match="AuthenticationFailed") as caught:
        opened.get("key")
    shown = f"{caught.value}{caught.value!r}{opened.uri}{opened!r}{opened._account!r}"
    assert "clock" in caught.value.hint
    assert KEY not in shown
    assert "abfss://lake@acct.dfs.core.windows.net/table/key" in shown


def test_query_signature_is_sent_to_the_server_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    busy = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
    with raw_server([busy] * 4) as server:
        settings = {
            "hoodie.write.lock.azure.sas.token": "?sv=1&sig=hidden",
            "tidelock.azure.endpoint": server.origin,
        }
        opened = AzureStore("acct.blob.core.windows.net", "lake", "", settings)
        with pytest.raises(StoreUnreachable) as caught:
            opened.get("key")
        opened.close()
    assert server.received[0].startswith(b"GET /lake/key?sv=1&sig=hidden HTTP/1.1")
    assert b"authorization" not in server.received[0].lower()
    shown = f"{caught.value}{opened.uri}{opened!r}{opened._account!r}{caplog.text}"
    assert "hidden" not in shown
