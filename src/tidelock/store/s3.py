"""S3 and what speaks like it: the REST API, signed here, sent once.

A version is the ETag, verbatim. Conditions need a server that honours them; `tidelock.store.probe`
finds out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from urllib.parse import quote, unquote_plus
from xml.etree import ElementTree as ET

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import DataCorrupt, NotFound, PermissionDenied, TidelockError
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.outcome import Landed
from tidelock.store import options
from tidelock.store.aws_address import AWS_REGION_DEFAULT, Address, aws_address, server_address
from tidelock.store.aws_credentials import key_source
from tidelock.store.aws_signing import Signer, canonical_query, payload_hash
from tidelock.store.contract import (
    Busy,
    Create,
    Match,
    ObjectMeta,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
    Upload,
)
from tidelock.store.exchange import Contended, Exchange, condition_headers, modified_ms, refusal
from tidelock.store.http import Reply, Request, Transport
from tidelock.store.parts import PartedUpload
from tidelock.store.ranges import Range, cut, nothing_of
from tidelock.store.s3_upload import MultipartParts
from tidelock.store.uri import checked_key, checked_prefix
from tidelock.store.xmltext import error_code, parse_xml, text_of

_HINTS = {
    "AccessDenied": "check the rights of these credentials; without s3:ListBucket S3 answers so"
    " for a key that does not exist",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "ExpiredToken": "renew the session these credentials belong to",
    "InvalidAccessKeyId": "check the access key",
    "SignatureDoesNotMatch": "check the secret key, and that no proxy changes headers",
    "KeyTooLongError": "use a shorter key",
}
_CREDENTIAL_CODES = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})


class S3Store:
    """Objects below `prefix` in `bucket`.

    `observe` hears the verb of each request sent. `page_size` is how many keys a listing asks
    for at a time.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        settings: Mapping[str, object] = {},
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        observe: Callable[[str], None] | None = None,
        page_size: int = 1000,
    ) -> None:
        """Resolve settings and environment; no request is sent yet."""
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._clock = clock or SystemClock()
        self._page_size = page_size
        self._keys = key_source(settings)
        self._signer = Signer()
        self._on_aws, self._address = self._located(settings)
        self._bucket_seen = False
        self._exchange = Exchange(
            Transport(self._clock, ca_file=os.environ.get("AWS_CA_BUNDLE")),
            timeout_ms=options.REQUEST_TIMEOUT.required(settings),
            clock=self._clock,
            ids=ids or SystemIds(),
            observe=observe,
            moved=self._moved,
        )

    @property
    def uri(self) -> str:
        """The place this store stands for, for messages."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def identity(self) -> str:
        """The URI and the server behind it."""
        return f"{self.uri} at {self._address.origin}"

    def __repr__(self) -> str:
        """Show the place, never the credentials."""
        return f"S3Store({self.uri!r})"

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or bytes `start` to `end` (exclusive) of it; None if absent."""
        wanted = Range(start, end)
        if wanted.is_empty:
            return nothing_of(self, key, wanted)
        reply = self._settle("get", "GET", key, headers=wanted.header())
        match reply.status:
            case 200 | 206:
                body = cut(reply.body, wanted, partial=reply.status == 206)
                return StoredObject(body, self._version(reply, key), modified_ms(reply))
            case 416:
                return nothing_of(self, key, wanted)
            case 404 if error_code(reply.body) != "NoSuchBucket":
                return None
            case _:
                raise self._refusal(reply, key)

    def head(self, key: str) -> ObjectMeta | None:
        """Return size, version and age of the object without its bytes; None if absent."""
        reply = self._settle("head", "HEAD", key)
        match reply.status:
            case 200:
                size_bytes = int(reply.headers.get("content-length", "0"))
                return ObjectMeta(key, size_bytes, self._version(reply, key), modified_ms(reply))
            case 404:
                self._require_bucket()
                return None
            case _:
                raise self._refusal(reply, key)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object under the condition of `mode`, and say first-hand what came of it."""
        path = self._path(key)
        headers = condition_headers(mode)

        def judge(reply: Reply) -> PutReply | Contended:
            return self._judged(reply, key, mode)

        return self._exchange.put(
            lambda: self._signed("PUT", path, headers=headers, body=body),
            judge,
            mode,
            subject=self._subject(key),
        )

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is no error."""
        reply = self._settle("delete", "DELETE", key)
        gone = reply.status == 404 and error_code(reply.body) != "NoSuchBucket"
        if not gone and reply.status not in (200, 204):
            raise self._refusal(reply, key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects whose key starts with `prefix`, in key order, after `start_after`."""
        query = {
            "list-type": "2",
            "encoding-type": "url",
            "max-keys": str(self._page_size),
            "prefix": self._prefix + checked_prefix(prefix),
        }
        if start_after:
            query["start-after"] = self._prefix + start_after
        while True:
            page = self._page(query)
            for entry in page.iterfind("{*}Contents"):
                meta = self._listed(entry)
                if meta is not None and meta.key > start_after:
                    yield meta
            token = text_of(page, "NextContinuationToken")
            if text_of(page, "IsTruncated") != "true" or not token:
                return
            query["continuation-token"] = token

    def upload(self, key: str) -> Upload:
        """Return an upload in parts; a small object goes in one request."""
        parts = MultipartParts(
            self._exchange,
            self._signed,
            self._path(key),
            subject=self._subject(key),
            whole=lambda body: self.put(key, body, Create()),
            refusal=lambda reply: self._refusal(reply, key),
        )
        return PartedUpload(parts)

    def local_path(self, key: str) -> str | None:
        """Objects behind a server have no path."""
        del key
        return None

    def close(self) -> None:
        """Give back connections; closing twice is no error."""
        self._exchange.close()

    def _located(self, settings: Mapping[str, object]) -> tuple[bool, Address]:
        environ = os.environ
        endpoint = (
            options.S3_ENDPOINT.value(settings)
            or environ.get("AWS_ENDPOINT_URL_S3")
            or environ.get("AWS_ENDPOINT_URL")
        )
        region = (
            options.S3_REGION.value(settings)
            or environ.get("AWS_REGION")
            or environ.get("AWS_DEFAULT_REGION")
            or self._keys.region()
            or AWS_REGION_DEFAULT
        )
        if endpoint is None:
            return True, aws_address(self._bucket, region)
        path_style = options.S3_PATH_STYLE.value(settings)
        address = server_address(
            endpoint, self._bucket, region, path_style=path_style is None or path_style
        )
        return False, address

    def _moved(self, reply: Reply) -> bool:
        """Take the bucket's region from a reply of another region, which has done nothing."""
        if not self._on_aws or reply.status not in (301, 307, 400):
            return False
        region = _named_region(reply)
        if region in ("", self._address.region):
            return False
        self._address = aws_address(self._bucket, region)
        return True

    def _path(self, key: str) -> str:
        return "/" + quote(self._prefix + checked_key(key), safe="/")

    def _settle(
        self, verb: str, method: str, key: str, *, headers: Mapping[str, str] = {}
    ) -> Reply:
        path = self._path(key)
        reply = self._exchange.settle(
            verb,
            lambda: self._signed(method, path, headers=headers),
            subject=self._subject(key),
        )
        self._bucket_seen = self._bucket_seen or 200 <= reply.status < 300
        return reply

    def _signed(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Request:
        address = self._address
        path = address.base + path
        signed = self._signer.sign(
            method,
            path,
            query,
            {**headers, "host": address.host},
            keys=self._keys.keys(),
            region=address.region,
            payload=payload_hash(body, encrypted=address.origin.startswith("https:")),
            now_epoch_ms=self._clock.now().wall_epoch_ms,
        )
        signed["user-agent"] = "tidelock"
        target = f"{path}?{query}" if query else path
        return Request(method, address.origin, target, signed, body)

    def _judged(self, reply: Reply, key: str, mode: PutMode) -> PutReply | Contended:
        code = error_code(reply.body)
        match reply.status:
            case 200 | 201 | 204:
                version = reply.headers.get("etag", "")
                return Landed(version) if version else Unclear("the reply has no ETag")
            case 412 | 304:
                return Refused()
            case 409:
                return Contended(f"409 {code or 'Conflict'}")
            case 404 if isinstance(mode, Match) and code != "NoSuchBucket":
                # The object that was to be replaced is gone.
                return Refused()
            case 400 if code == "RequestTimeout":
                return Busy(cause="400 RequestTimeout: the body did not arrive in time")
            case _:
                raise self._refusal(reply, key)

    def _page(self, query: Mapping[str, str]) -> ET.Element:
        encoded = canonical_query(dict(query))
        # A path-style bucket is addressed without a slash behind its name.
        path = "" if self._address.base else "/"
        reply = self._exchange.settle(
            "list", lambda: self._signed("GET", path, query=encoded), subject=self.uri
        )
        if reply.status != 200:
            raise self._refusal(reply, "")
        self._bucket_seen = True
        return parse_xml(reply.body, subject=self.uri)

    def _listed(self, entry: ET.Element) -> ObjectMeta | None:
        key = unquote_plus(text_of(entry, "Key")).removeprefix(self._prefix)
        if not key or key.endswith("/"):
            # Consoles and Hadoop leave empty objects that stand for directories.
            return None
        try:
            modified = datetime.fromisoformat(text_of(entry, "LastModified"))
            size_bytes = int(text_of(entry, "Size"))
        except ValueError as error:
            raise DataCorrupt(f"{self._subject(key)}: the store lists it wrongly") from error
        version = text_of(entry, "ETag")
        return ObjectMeta(key, size_bytes, version, int(modified.timestamp() * 1000))

    def _require_bucket(self) -> None:
        """Raise `NotFound` if the bucket is missing: a reply to HEAD has no room to say so."""
        if self._bucket_seen:
            return
        path = "" if self._address.base else "/"
        reply = self._exchange.settle("head", lambda: self._signed("HEAD", path), subject=self.uri)
        if reply.status == 404:
            raise self._no_bucket()
        self._bucket_seen = True

    def _version(self, reply: Reply, key: str) -> str:
        version = reply.headers.get("etag")
        if not version:
            raise DataCorrupt(
                f"{self._subject(key)}: the store answered without an ETag",
                hint="is this the end point of an S3 server?",
            )
        return version

    def _subject(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    def _no_bucket(self) -> NotFound:
        return NotFound(
            f"the bucket {self._bucket} does not exist at {self._address.host}",
            hint="create it, or check the name, the end point and the region",
        )

    def _refusal(self, reply: Reply, key: str) -> TidelockError:
        code = error_code(reply.body)
        subject, hint = self._subject(key), _HINTS.get(code, "")
        if code == "NoSuchBucket":
            return self._no_bucket()
        if code in _CREDENTIAL_CODES:
            return PermissionDenied(f"{subject}: the store answered {code}", hint=hint)
        if reply.status == 403 and not code:
            hint = _HINTS["AccessDenied"]
        region = _named_region(reply)
        if region and region != self._address.region:
            hint = f"the bucket is in {region}: set {options.S3_REGION.key}"
        return refusal(reply, code, subject=subject, hint=hint)


def _named_region(reply: Reply) -> str:
    """Return the region that a reply says the bucket is in, or nothing."""
    named = reply.headers.get("x-amz-bucket-region", "")
    if not named and b"<Region>" in reply.body:
        named = text_of(parse_xml(reply.body, subject="error"), "Region")
    return named if re.fullmatch(r"[a-z0-9-]{1,40}", named) else ""
