"""S3 replies, and how the store interprets them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.storage.scripted_wire import Wire, error, reply
from tidelock.core.errors import (
    ConfigInvalid,
    DataCorrupt,
    InvalidInput,
    NotFound,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
    Unsupported,
)
from tidelock.core.limits import RESEND_TRIES
from tidelock.core.outcome import Landed
from tidelock.storage.contract import (
    Busy,
    Create,
    Match,
    ObjectStore,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    Unclear,
)
from tidelock.storage.http import Answer, NoReply, NotSent
from tidelock.storage.s3 import S3Store

SECRET = "the-secret-key"
KEYS: dict[str, object] = {
    "hoodie.aws.access.key": "AKID",
    "hoodie.aws.secret.key": SECRET,
    "hoodie.aws.session.token": "the-session-token",
}
MODES: list[PutMode] = [Create(), Match('"v"'), Overwrite()]


def store(**settings: object) -> S3Store:
    named = {f"tidelock.s3.{name.replace('_', '.')}": value for name, value in settings.items()}
    return S3Store("bucket", "table", {**KEYS, **named})


# Endpoints


@pytest.mark.parametrize(
    ("settings", "bucket", "origin", "target"),
    [
        ({}, "lake", "https://lake.s3.us-east-1.amazonaws.com", "/table/key"),
        ({"region": "eu-west-1"}, "lake", "https://lake.s3.eu-west-1.amazonaws.com", "/table/key"),
        ({"region": "cn-north-1"}, "l", "https://l.s3.cn-north-1.amazonaws.com.cn", "/table/key"),
        ({}, "my.lake", "https://s3.us-east-1.amazonaws.com", "/my.lake/table/key"),
        ({"endpoint": "http://host:9000"}, "lake", "http://host:9000", "/lake/table/key"),
        ({"endpoint": "http://host/s3/"}, "lake", "http://host", "/s3/lake/table/key"),
        ({"endpoint": "host:9000"}, "lake", "https://host:9000", "/lake/table/key"),
        (
            {"endpoint": "https://host", "path.style": "false"},
            "lake",
            "https://lake.host",
            "/table/key",
        ),
    ],
)
def test_bucket_is_addressed_as_configured(
    wire: Wire, settings: dict[str, object], bucket: str, origin: str, target: str
) -> None:
    wire.will_answer(reply(200, b"", etag='"v"'))
    named = {f"tidelock.s3.{name}": value for name, value in settings.items()}
    S3Store(bucket, "table", {**KEYS, **named}).get("key")
    assert (wire.last.origin, wire.last.target) == (origin, target)
    assert wire.last.headers["host"] == origin.partition("//")[2]


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_endpoint_of_the_environment_is_used(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://host:9000")
    wire.will_answer(error(404, "NoSuchKey"))
    store().get("key")
    assert wire.last.origin == "http://host:9000"


def test_default_port_is_omitted_from_the_signed_host(wire: Wire) -> None:
    wire.will_answer(error(404, "NoSuchKey"))
    store(endpoint="https://host:443").get("key")
    assert wire.last.headers["host"] == "host"


@pytest.mark.parametrize(
    ("settings", "region"), [({}, "eu-central-1"), ({"region": "ap-south-1"}, "ap-south-1")]
)
def test_region_of_the_settings_wins_over_that_of_the_environment(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], region: str
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    wire.will_answer(error(404, "NoSuchKey"))
    store(**settings).get("key")
    assert f"/{region}/s3/aws4_request" in wire.last.headers["authorization"]


@pytest.mark.parametrize(
    "endpoint", ["ftp://host", "http://", "http://user:word@host", "http://h?q"]
)
def test_invalid_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        store(endpoint=endpoint)
    assert "word" not in str(caught.value)


def test_directory_bucket_is_refused() -> None:
    with pytest.raises(Unsupported):
        S3Store("lake--use1-az4--x-s3", "", KEYS)


def test_bucket_in_another_region_is_found_and_remembered(wire: Wire) -> None:
    wire.will_answer(
        error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-3"),
        reply(200, etag='"v"'),
        reply(200, etag='"w"'),
    )
    found = store()
    assert found.put("key", b"x", Create()) == Landed('"v"')
    assert found.put("key", b"x", Match('"v"')) == Landed('"w"')
    assert [request.origin for request in wire.requests] == [
        "https://bucket.s3.us-east-1.amazonaws.com",
        "https://bucket.s3.eu-west-3.amazonaws.com",
        "https://bucket.s3.eu-west-3.amazonaws.com",
    ]
    assert "/eu-west-3/" in wire.last.headers["authorization"]


def test_region_in_the_error_document_is_used(wire: Wire) -> None:
    document = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>"
    wire.will_answer(reply(400, document), error(404, "NoSuchKey"))
    assert store().get("key") is None
    assert wire.last.origin == "https://bucket.s3.eu-west-3.amazonaws.com"


def test_endless_region_redirect_is_an_error_with_the_region(wire: Wire) -> None:
    wire.will_answer(
        error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-3"),
        error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1"),
    )
    with pytest.raises(ConfigInvalid, match="eu-west-1"):
        store().get("key")


def test_custom_server_cannot_redirect_to_aws(wire: Wire) -> None:
    wire.will_answer(error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-3"))
    with pytest.raises(ConfigInvalid):
        store(endpoint="http://host:9000").get("key")


# Outcomes of writes


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(200, etag='"v"'), Landed('"v"')),
        (reply(200, etag="unquoted"), Landed("unquoted")),
        (reply(200), Unclear("the reply has no ETag")),
        (error(412, "PreconditionFailed"), Refused()),
        (reply(304), Refused()),
        (reply(429), Busy(None, "429 too many requests")),
        (error(503, "SlowDown"), Unclear("the store answered 503")),
        (reply(408), Unclear("the store answered 408")),
        (NoReply("broken"), Unclear("broken")),
        (
            error(400, "RequestTimeout"),
            Busy(cause="400 RequestTimeout: the body did not arrive in time"),
        ),
    ],
)
def test_conditional_write_is_sent_once_and_its_reply_classified(
    wire: Wire, answer: Answer, expected: PutReply
) -> None:
    wire.will_answer(answer)
    assert store().put("key", b"x", Create()) == expected
    assert len(wire.requests) == 1


def test_overwrite_that_may_have_landed_stays_unclear_when_then_refused(
    wire: Wire,
) -> None:
    wire.will_answer(NoReply("broken"), error(403, "AccessDenied"))
    assert store().put("key", b"x", Overwrite()) == Unclear("broken")


def test_overwrite_that_was_never_sent_raises(wire: Wire) -> None:
    wire.will_answer(*[NotSent("no connection")] * RESEND_TRIES)
    with pytest.raises(StoreUnreachable):
        store().put("key", b"x", Overwrite())


def test_overwrite_that_succeeds_on_retry_has_landed(wire: Wire) -> None:
    wire.will_answer(NotSent("no connection"), reply(200, etag='"v"'))
    assert store().put("key", b"x", Overwrite()) == Landed('"v"')


@pytest.mark.parametrize("version", ["a\r\nx: y", "\0", "é"])
def test_impossible_version_is_refused(wire: Wire, version: str) -> None:
    with pytest.raises(InvalidInput, match="is not a version"):
        store().put("key", b"x", Match(version))


def test_mode_becomes_a_condition(wire: Wire) -> None:
    for mode in MODES:
        wire.will_answer(reply(200, etag='"w"'))
        store().put("key", b"x", mode)
    create, match, overwrite = (request.headers for request in wire.requests)
    assert (create["if-none-match"], match["if-match"]) == ("*", '"v"')
    assert "if-match" not in overwrite
    assert "if-none-match" not in overwrite


def test_match_of_a_missing_object_is_refused(wire: Wire) -> None:
    wire.will_answer(error(404, "NoSuchKey"))
    assert store().put("key", b"x", Match('"v"')) == Refused()


@pytest.mark.parametrize("mode", MODES)
def test_write_to_a_missing_bucket_reports_it(wire: Wire, mode: PutMode) -> None:
    wire.will_answer(error(404, "NoSuchBucket"))
    with pytest.raises(NotFound, match="the bucket bucket does not exist"):
        store().put("key", b"x", mode)


def test_write_that_was_not_sent_raises(wire: Wire) -> None:
    wire.will_answer(NotSent("no connection"))
    with pytest.raises(StoreUnreachable, match="s3://bucket/table/key: no connection"):
        store().put("key", b"x", Create())


@pytest.mark.parametrize(
    ("answer", "kind", "hint"),
    [
        (error(403, "AccessDenied"), PermissionDenied, "s3:ListBucket"),
        (reply(403), PermissionDenied, "s3:ListBucket"),
        (error(403, "RequestTimeTooSkewed"), PermissionDenied, "clock"),
        (error(403, "SignatureDoesNotMatch"), PermissionDenied, "secret key"),
        (error(400, "ExpiredToken"), PermissionDenied, "session"),
        (error(501, "NotImplemented"), Unsupported, "conditional writes"),
        (error(405, "MethodNotAllowed"), Unsupported, "conditional writes"),
        (error(400, "EntityTooLarge"), InvalidInput, "settings"),
        (error(400, "KeyTooLongError"), InvalidInput, "shorter"),
    ],
)
def test_refusal_becomes_an_error_with_a_hint(
    wire: Wire, answer: Answer, kind: type[TidelockError], hint: str
) -> None:
    wire.will_answer(answer, answer)
    with pytest.raises(kind) as caught:
        store().get("key")
    assert "s3://bucket/table/key" in caught.value.message
    assert hint in caught.value.hint
    with pytest.raises(kind):
        store().put("key", b"x", Create())


def test_only_a_valid_error_code_is_shown(wire: Wire) -> None:
    wire.will_answer(error(403, "Not a code; but a whole story"))
    with pytest.raises(PermissionDenied) as caught:
        store().get("key")
    assert "story" not in str(caught.value)


# Reading


def test_range_ignored_by_the_server_is_applied_locally(wire: Wire) -> None:
    wire.will_answer(reply(200, b"0123456789", etag='"v"'))
    stored = store().get("key", start=2, end=4)
    assert stored is not None
    assert stored.body == b"23"
    assert wire.last.headers["range"] == "bytes=2-3"


def test_range_beyond_a_growing_object_is_read_again(wire: Wire) -> None:
    wire.will_answer(
        error(416, "InvalidRange"),
        reply(200, content_length="8", etag='"w"'),
        reply(206, b"67", etag='"w"'),
    )
    stored = store().get("key", start=6)
    assert stored is not None
    assert (stored.body, stored.version) == (b"67", '"w"')


@pytest.mark.parametrize(("start", "end"), [(-1, None), (0, -1), (5, 4)])
def test_invalid_range_is_refused(wire: Wire, start: int, end: int) -> None:
    with pytest.raises(InvalidInput):
        store().get("key", start=start, end=end)


def test_reply_without_an_etag_is_refused(wire: Wire) -> None:
    wire.will_answer(reply(200, b"x"))
    with pytest.raises(DataCorrupt):
        store().get("key")


def test_head_checks_the_bucket_once_when_it_finds_nothing(wire: Wire) -> None:
    opened = store()
    wire.will_answer(reply(404), reply(200), reply(404))
    assert opened.head("key") is None
    assert opened.head("key") is None
    assert [request.target for request in wire.requests] == ["/table/key", "/", "/table/key"]


def listing(*entries: str, more: str = "") -> bytes:
    truncated = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}" if more else ""
    closing = "</NextContinuationToken>" if more else ""
    space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    body = "".join(entries) + truncated + closing
    return f"<ListBucketResult {space}>{body}</ListBucketResult>".encode()


def entry(key: str, *, size: str = "1") -> str:
    return (
        f"<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>"
        f"<ETag>&quot;v&quot;</ETag><Size>{size}</Size></Contents>"
    )


def test_listing_follows_its_tokens_and_omits_folders(wire: Wire) -> None:
    wire.will_answer(
        reply(200, listing(entry("table/"), entry("table/a+b%2Bc"), more="next/page=")),
        reply(200, listing(entry("table/d/", size="0"), entry("table/d/e"))),
    )
    listed = list(store().list(""))
    assert [meta.key for meta in listed] == ["a b+c", "d/e"]
    assert listed[0].version == '"v"'
    assert listed[0].modified_epoch_ms == 1_767_323_045_678
    assert "continuation-token=next%2Fpage%3D" in wire.last.target


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not xml",
        b"\xff\xfe<",
        b'<!DOCTYPE x [<!ENTITY a "aaaa">]><ListBucketResult>&a;</ListBucketResult>',
        listing(entry("table/a", size="many")),
        listing(entry("table/a").replace("2026", "x")),
    ],
)
def test_invalid_listing_is_corrupt(wire: Wire, body: bytes) -> None:
    wire.will_answer(reply(200, body))
    with pytest.raises(DataCorrupt):
        list(store().list(""))


# Secrets


def test_uri_repr_and_errors_show_no_secret(wire: Wire) -> None:
    opened: ObjectStore = store(endpoint="http://host:9000")
    verbs: list[Callable[[], object]] = [
        lambda: opened.get("key"),
        lambda: opened.put("key", b"x", Create()),
        lambda: list(opened.list("")),
    ]
    shown = opened.uri + repr(opened)
    for verb in verbs:
        wire.will_answer(error(403, "SignatureDoesNotMatch"))
        with pytest.raises(PermissionDenied) as caught:
            verb()
        shown += str(caught.value) + repr(caught.value)
    assert SECRET not in shown
    assert "the-session-token" not in shown
    assert wire.last.headers["x-amz-security-token"] == "the-session-token"
