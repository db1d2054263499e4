"""What the clouds say to an upload in parts, and what the upload makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.unit.store.wire import Wire, error, reply
from tidelock.base.errors import DataCorrupt, NotFound, StoreUnreachable, TidelockError
from tidelock.base.limits import RESEND_TRIES
from tidelock.base.outcome import Landed
from tidelock.store.azure import AzureStore
from tidelock.store.azure_upload import BlockParts
from tidelock.store.contract import Busy, ObjectStore, PutReply, Refused, Unclear
from tidelock.store.gcs import GcsStore
from tidelock.store.gcs_upload import ResumableParts
from tidelock.store.http import Answer, NoReply, NotSent
from tidelock.store.s3 import S3Store
from tidelock.store.s3_upload import MultipartParts

CONNECTION = (
    "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=c2VjcmV0LWtleQ==;"
    "BlobEndpoint=http://host:10000/acct;"
)
BODY = b"abcdefghij"


@pytest.fixture(autouse=True)
def _parts_of_four_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (MultipartParts, ResumableParts, BlockParts):
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


def asked(wire: Wire) -> list[str]:
    """Return method and query of each request."""
    return [f"{sent.method} {sent.target.partition('?')[2]}" for sent in wire.requests]


# S3

BEGUN = reply(200, b"<Initiated><UploadId>u1</UploadId></Initiated>")
PARTS = [reply(200, etag=f'"p{number}"') for number in (1, 2, 3)]
MADE = reply(200, b'<Completed><ETag>"whole-3"</ETag></Completed>')


def test_s3_joins_parts_under_the_condition(wire: Wire) -> None:
    wire.will_answer(BEGUN, *PARTS, MADE)
    assert uploaded(s3()) == Landed('"whole-3"')
    assert asked(wire) == [
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
def test_s3_removes_the_parts_of_an_upload_that_was_refused(
    wire: Wire, answer: Answer, expected: PutReply
) -> None:
    wire.will_answer(BEGUN, *PARTS, answer, reply(204))
    assert uploaded(s3()) == expected
    assert asked(wire)[-1] == "DELETE uploadId=u1"


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
def test_s3_leaves_everything_when_the_answer_is_unclear(
    wire: Wire, answer: Answer, cause: str
) -> None:
    wire.will_answer(BEGUN, *PARTS, answer)
    assert uploaded(s3()) == Unclear(cause)


def test_s3_removes_the_parts_when_one_cannot_be_sent(wire: Wire) -> None:
    wire.will_answer(BEGUN, PARTS[0], *[NotSent("no connection")] * RESEND_TRIES, reply(204))
    with pytest.raises(StoreUnreachable, match="no connection"):
        uploaded(s3())
    assert asked(wire)[-1] == "DELETE uploadId=u1"


def test_s3_sends_a_part_again_whose_answer_got_lost(wire: Wire) -> None:
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
def test_s3_gives_up_on_an_answer_it_cannot_go_on_with(
    wire: Wire, answers: list[Answer], kind: type[TidelockError]
) -> None:
    wire.will_answer(*answers)
    with pytest.raises(kind):
        uploaded(s3())


def test_a_small_body_is_one_conditional_put(wire: Wire) -> None:
    wire.will_answer(reply(200, etag='"e"'))
    with s3().upload("key") as upload:
        upload.write(b"abcd")
        assert upload.finish() == Landed('"e"')
    assert (wire.last.method, wire.last.body) == ("PUT", b"abcd")
    assert wire.last.headers["if-none-match"] == "*"


# Google

SESSION = reply(200, location="http://elsewhere/upload/x?upload_id=s1")


def kept(size: int) -> Answer:
    """Return the reply of a session that has the first bytes."""
    return reply(308, range=f"bytes=0-{size - 1}") if size else reply(308)


def made(generation: int = 7) -> Answer:
    """Return the reply to the last piece."""
    return reply(200, json.dumps({"generation": str(generation)}).encode())


def test_google_takes_pieces_into_a_session(wire: Wire) -> None:
    wire.will_answer(SESSION, kept(4), kept(8), made())
    assert uploaded(gcs()) == Landed("7")
    assert "uploadType=resumable" in wire.requests[0].target
    assert "ifGenerationMatch=0" in wire.requests[0].target
    assert {sent.target for sent in wire.requests[1:]} == {"/upload/x?upload_id=s1"}
    ranges = [sent.headers["content-range"] for sent in wire.requests[1:]]
    assert ranges == ["bytes 0-3/*", "bytes 4-7/*", "bytes 8-9/10"]


def test_google_is_sent_again_what_a_session_did_not_keep(wire: Wire) -> None:
    wire.will_answer(SESSION, kept(2), kept(4), kept(8), made())
    assert uploaded(gcs()) == Landed("7")
    assert [sent.body for sent in wire.requests[1:3]] == [b"abcd", b"cd"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([SESSION, kept(4), kept(8), reply(412)], Refused()),
        ([SESSION, kept(4), kept(8), reply(503)], Unclear("the store answered 503")),
        ([SESSION, kept(4), reply(412)], Refused()),
        ([reply(412)], Refused()),
        (
            [SESSION, kept(4), kept(8), kept(9)],
            Unclear("the store waits for more of an upload that is complete"),
        ),
    ],
    ids=["at the end", "unclear", "on the way", "at once", "incomplete"],
)
def test_google_may_refuse_at_any_time(
    wire: Wire, answers: list[Answer], expected: PutReply
) -> None:
    wire.will_answer(*answers)
    assert uploaded(gcs()) == expected


def test_google_ends_the_session_of_an_upload_given_up(wire: Wire) -> None:
    wire.will_answer(SESSION, kept(4), kept(8), reply(499))
    with gcs().upload("key") as upload:
        upload.write(BODY)
    assert (wire.last.method, wire.last.target) == ("DELETE", "/upload/x?upload_id=s1")


def test_google_is_asked_what_it_kept_of_a_piece_without_an_answer(wire: Wire) -> None:
    wire.will_answer(SESSION, NoReply("reset"), kept(4), reply(503), kept(6), kept(8), made())
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


def test_google_is_not_asked_for_ever(wire: Wire) -> None:
    wire.will_answer(SESSION, *[NoReply("reset"), kept(0)] * RESEND_TRIES, reply(499))
    with pytest.raises(StoreUnreachable, match="got no answer"):
        uploaded(gcs())


def test_google_must_not_make_an_object_of_a_part(wire: Wire) -> None:
    wire.will_answer(SESSION, NoReply("reset"), made(), reply(404))
    with pytest.raises(DataCorrupt, match="not finished"):
        uploaded(gcs())


def test_google_cannot_have_more_than_was_sent(wire: Wire) -> None:
    wire.will_answer(SESSION, kept(9), reply(499))
    with pytest.raises(DataCorrupt, match="cannot have more than 4"):
        uploaded(gcs())


def test_google_must_name_the_session(wire: Wire) -> None:
    wire.will_answer(reply(200))
    with pytest.raises(DataCorrupt, match="without a session"):
        uploaded(gcs())


# Azure

STAGED = [reply(201)] * 3


def test_azure_lists_the_blocks_under_the_condition(wire: Wire) -> None:
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
def test_azure_is_judged_by_its_last_answer(wire: Wire, answer: Answer, expected: PutReply) -> None:
    wire.will_answer(*STAGED, answer)
    assert uploaded(azure()) == expected


def test_azure_blocks_of_two_uploads_do_not_mix(wire: Wire) -> None:
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
def test_an_upload_that_wrote_less_than_a_part_asks_nobody_when_given_up(
    wire: Wire, store: Callable[[], ObjectStore]
) -> None:
    with store().upload("key") as upload:
        upload.write(b"abc")
    assert wire.requests == []
