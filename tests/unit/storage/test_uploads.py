"""Replies of cloud stores to multipart uploads, and how uploads interpret them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.unit.storage.scripted_wire import Wire, error, reply
from tidelock.core.errors import DataCorrupt, NotFound, StoreUnreachable, TidelockError
from tidelock.core.limits import RESEND_TRIES
from tidelock.core.outcome import Landed
from tidelock.storage.azure import AzurePartWriter, AzureStore
from tidelock.storage.contract import Busy, ObjectStore, PutReply, Refused, Unclear
from tidelock.storage.gcs import GcsPartWriter, GcsStore
from tidelock.storage.http import Answer, NoReply, NotSent
from tidelock.storage.s3 import S3PartWriter, S3Store

CONNECTION = (
    "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=c2VjcmV0LWtleQ==;"
    "BlobEndpoint=http://host:10000/acct;"
)
BODY = b"abcdefghij"


@pytest.fixture(autouse=True)
def _parts_of_four_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (S3PartWriter, GcsPartWriter, AzurePartWriter):
        monkeypatch.setattr(kind, "part_bytes", 4)


def s3() -> S3Store:
    keys = {"hoodie.aws.access.key": "AKID", "hoodie.aws.secret.key": "secret"}
    return S3Store("bucket", "table", {**keys, "tidelock.s3.endpoint": "http://host:9000"})


def gcs() -> GcsStore:
    return GcsStore("bucket", "table", {"tidelock.gcs.endpoint": "http://host:4443"})


def azure() -> AzureStore:
    settings = {"hoodie.write.lock.azure.connection.string": CONNECTION}
    return AzureStore("acct.dfs.core.windows.net", "lake", "table", settings)


def uploaded(store: ObjectStore) -> PutReply:
    """Upload the body, in three parts."""
    with store.upload("key") as upload:
        upload.write(BODY)
        return upload.finish()


def requests(wire: Wire) -> list[str]:
    """Return method and query of each request."""
    return [f"{sent.method} {sent.target.partition('?')[2]}" for sent in wire.requests]


# S3

BEGUN = reply(200, b"<Initiated><UploadId>u1</UploadId></Initiated>")
PARTS = [reply(200, etag=f'"p{number}"') for number in (1, 2, 3)]
MADE = reply(200, b'<Completed><ETag>"whole-3"</ETag></Completed>')


def test_s3_completes_parts_under_the_condition(wire: Wire) -> None:
    wire.will_answer(BEGUN, *PARTS, MADE)
    assert uploaded(s3()) == Landed('"whole-3"')
    assert requests(wire) == [
        "POST uploads=",
        "PUT partNumber=1&uploadId=u1",
        "PUT partNumber=2&uploadId=u1",
        "PUT partNumber=3&uploadId=u1",
        "POST uploadId=u1",
    ]
    assert [sent.body for sent in wire.requests[1:4]] == [b"abcd", b"efgh", b"ij"]
    assert wire.last.headers["if-none-match"] == "*"
    assert wire.last.body is not None
    assert b'<PartNumber>3</PartNumber><ETag>"p3"</ETag>' in wire.last.body


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(412, "PreconditionFailed"), Refused()),
        (error(200, "PreconditionFailed"), Refused()),
        (error(409, "ConditionalRequestConflict"), Busy(cause="409 ConditionalRequestConflict")),
    ],
)
def test_s3_aborts_a_refused_upload(wire: Wire, answer: Answer, expected: PutReply) -> None:
    wire.will_answer(BEGUN, *PARTS, answer, reply(204))
    assert uploaded(s3()) == expected
    assert requests(wire)[-1] == "DELETE uploadId=u1"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (NoReply("the connection broke"), "the connection broke"),
        (reply(500), "the store answered 500"),
        (error(200, "InternalError"), "200 InternalError"),
        (error(404, "NoSuchUpload"), "404 NoSuchUpload"),
        (reply(200, b"not XML"), "the reply has no ETag"),
    ],
)
def test_s3_leaves_the_parts_when_the_reply_is_unclear(
    wire: Wire, answer: Answer, cause: str
) -> None:
    wire.will_answer(BEGUN, *PARTS, answer)
    assert uploaded(s3()) == Unclear(cause)


def test_s3_aborts_when_a_part_cannot_be_sent(wire: Wire) -> None:
    wire.will_answer(BEGUN, PARTS[0], *[NotSent("no connection")] * RESEND_TRIES, reply(204))
    with pytest.raises(StoreUnreachable, match="no connection"):
        uploaded(s3())
    assert requests(wire)[-1] == "DELETE uploadId=u1"


def test_s3_resends_a_part_with_a_lost_reply(wire: Wire) -> None:
    wire.will_answer(BEGUN, NoReply("reset"), *PARTS, MADE)
    assert uploaded(s3()) == Landed('"whole-3"')


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([error(404, "NoSuchBucket")], NotFound),
        ([reply(200, b"<X></X>")], DataCorrupt),
        ([BEGUN, reply(200), reply(204)], DataCorrupt),
    ],
    ids=["no bucket", "no id", "no etag"],
)
def test_s3_gives_up_on_an_unusable_reply(
    wire: Wire, answers: list[Answer], kind: type[TidelockError]
) -> None:
    wire.will_answer(*answers)
    with pytest.raises(kind):
        uploaded(s3())


def test_small_body_is_one_conditional_put(wire: Wire) -> None:
    wire.will_answer(reply(200, etag='"e"'))
    with s3().upload("key") as upload:
        upload.write(b"abcd")
        assert upload.finish() == Landed('"e"')
    assert (wire.last.method, wire.last.body) == ("PUT", b"abcd")
    assert wire.last.headers["if-none-match"] == "*"


# GCS

SESSION = reply(200, location="http://elsewhere/upload/x?upload_id=s1")


def session_reply(size: int) -> Answer:
    """Return the reply of a session that has the first bytes."""
    return reply(308, range=f"bytes=0-{size - 1}") if size else reply(308)


def object_reply(generation: int = 7) -> Answer:
    """Return the reply to the last part."""
    return reply(200, json.dumps({"generation": str(generation)}).encode())


def test_gcs_sends_parts_to_a_session(wire: Wire) -> None:
    wire.will_answer(SESSION, session_reply(4), session_reply(8), object_reply())
    assert uploaded(gcs()) == Landed("7")
    assert "uploadType=resumable" in wire.requests[0].target
    assert "ifGenerationMatch=0" in wire.requests[0].target
    assert {sent.target for sent in wire.requests[1:]} == {"/upload/x?upload_id=s1"}
    ranges = [sent.headers["content-range"] for sent in wire.requests[1:]]
    assert ranges == ["bytes 0-3/*", "bytes 4-7/*", "bytes 8-9/10"]


def test_gcs_resends_bytes_that_a_session_did_not_keep(wire: Wire) -> None:
    wire.will_answer(SESSION, session_reply(2), session_reply(4), session_reply(8), object_reply())
    assert uploaded(gcs()) == Landed("7")
    assert [sent.body for sent in wire.requests[1:3]] == [b"abcd", b"cd"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([SESSION, session_reply(4), session_reply(8), reply(412)], Refused()),
        (
            [SESSION, session_reply(4), session_reply(8), reply(503)],
            Unclear("the store answered 503"),
        ),
        ([SESSION, session_reply(4), reply(412)], Refused()),
        ([reply(412)], Refused()),
        (
            [SESSION, session_reply(4), session_reply(8), session_reply(9)],
            Unclear("the store expects more bytes after the last part"),
        ),
    ],
    ids=["at the end", "unclear", "on the way", "at once", "incomplete"],
)
def test_gcs_can_refuse_at_any_time(wire: Wire, answers: list[Answer], expected: PutReply) -> None:
    wire.will_answer(*answers)
    assert uploaded(gcs()) == expected


def test_gcs_ends_the_session_of_an_abandoned_upload(wire: Wire) -> None:
    wire.will_answer(SESSION, session_reply(4), session_reply(8), reply(499))
    with gcs().upload("key") as upload:
        upload.write(BODY)
    assert (wire.last.method, wire.last.target) == ("DELETE", "/upload/x?upload_id=s1")


def test_gcs_session_is_queried_after_a_lost_reply(wire: Wire) -> None:
    wire.will_answer(
        SESSION,
        NoReply("reset"),
        session_reply(4),
        reply(503),
        session_reply(6),
        session_reply(8),
        object_reply(),
    )
    assert uploaded(gcs()) == Landed("7")
    ranges = [sent.headers["content-range"] for sent in wire.requests[1:]]
    assert ranges == [
        "bytes 0-3/*",
        "bytes */*",
        "bytes 4-7/*",
        "bytes */*",
        "bytes 6-7/*",
        "bytes 8-9/10",
    ]


def test_gcs_session_queries_are_bounded(wire: Wire) -> None:
    wire.will_answer(SESSION, *[NoReply("reset"), session_reply(0)] * RESEND_TRIES, reply(499))
    with pytest.raises(StoreUnreachable, match="got no answer"):
        uploaded(gcs())


def test_gcs_object_created_from_a_partial_upload_is_an_error(wire: Wire) -> None:
    wire.will_answer(SESSION, NoReply("reset"), object_reply(), reply(404))
    with pytest.raises(DataCorrupt, match="not finished"):
        uploaded(gcs())


def test_gcs_cannot_have_more_bytes_than_were_sent(wire: Wire) -> None:
    wire.will_answer(SESSION, session_reply(9), reply(499))
    with pytest.raises(DataCorrupt, match="expected the upload to have"):
        uploaded(gcs())


def test_gcs_must_return_a_session_uri(wire: Wire) -> None:
    wire.will_answer(reply(200))
    with pytest.raises(DataCorrupt, match="without a session"):
        uploaded(gcs())


# Azure

STAGED = [reply(201)] * 3


def test_azure_commits_the_block_list_under_the_condition(wire: Wire) -> None:
    wire.will_answer(*STAGED, reply(201, etag='"0x1"'))
    assert uploaded(azure()) == Landed('"0x1"')
    assert [sent.body for sent in wire.requests[:3]] == [b"abcd", b"efgh", b"ij"]
    assert all("comp=block&blockid=" in sent.target for sent in wire.requests[:3])
    assert "comp=blocklist" in wire.last.target
    assert wire.last.headers["if-none-match"] == "*"
    assert wire.last.body is not None
    assert wire.last.body.count(b"<Latest>") == 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(409, "BlobAlreadyExists"), Refused()),
        (error(412, "ConditionNotMet"), Refused()),
        (error(400, "InvalidBlockList"), Refused()),
        (reply(500), Unclear("the store answered 500")),
        (NoReply("reset"), Unclear("reset")),
    ],
)
def test_azure_outcome_is_that_of_the_last_reply(
    wire: Wire, answer: Answer, expected: PutReply
) -> None:
    wire.will_answer(*STAGED, answer)
    assert uploaded(azure()) == expected


def test_azure_blocks_of_two_uploads_are_separate(wire: Wire) -> None:
    wire.will_answer(*STAGED, reply(201, etag='"1"'), *STAGED, reply(201, etag='"2"'))
    uploaded(azure())
    uploaded(azure())
    blocks = [sent.target for sent in wire.requests if "blockid" in sent.target]
    assert len(set(blocks)) == 6
    assert len({len(block) for block in blocks}) == 1


def test_azure_gives_up_on_a_missing_container(wire: Wire) -> None:
    wire.will_answer(error(404, "ContainerNotFound"))
    with pytest.raises(NotFound, match="lake"):
        uploaded(azure())


@pytest.mark.parametrize("store", [s3, gcs, azure])
def test_abandoned_upload_below_one_part_sends_nothing(
    wire: Wire, store: Callable[[], ObjectStore]
) -> None:
    with store().upload("key") as upload:
        upload.write(b"abc")
    assert wire.requests == []
