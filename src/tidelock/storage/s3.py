"""S3 and compatible servers: the REST API, signed here, each request sent once.

A version is the ETag, verbatim. Conditional writes need a server that supports them;
`tidelock.storage.probe` checks this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from tidelock.core.errors import DataCorrupt, NotFound, PermissionDenied, TidelockError
from tidelock.core.outcome import Landed
from tidelock.storage import config
from tidelock.storage.aws import (
    AWS_REGION_DEFAULT,
    BucketEndpoint,
    Signer,
    aws_address,
    canonical_query,
    credential_source,
    payload_hash,
    server_address,
)
from tidelock.storage.cloud import CloudPartWriter, CloudStore, UnsignedRequest, UploadTarget
from tidelock.storage.contract import (
    Busy,
    Create,
    Match,
    ObjectMeta,
    PutMode,
    PutReply,
    Refused,
    Unclear,
)
from tidelock.storage.http import (
    Contended,
    HttpReply,
    HttpRequest,
    Transport,
    condition_headers,
    document_text,
    error_code,
    error_for_reply,
    parse_xml,
    text_of,
)


class S3PartWriter(CloudPartWriter):
    """Sends the parts of an S3 multipart upload."""

    def __init__(self, target: UploadTarget) -> None:
        """Create the writer; sends no request."""
        super().__init__(target)
        self._upload_id = ""
        self._etags: list[str] = []

    def send(self, body: bytes) -> None:
        """Send the next part; the first one requests the upload id."""
        subject = self._target.subject
        if not self._upload_id:
            reply = self._checked("POST", {"uploads": ""})
            self._upload_id = text_of(parse_xml(reply.body, subject=subject), "UploadId")
            if not self._upload_id:
                raise DataCorrupt(f"{subject}: the store started an upload without an id")
        number = str(len(self._etags) + 1)
        reply = self._checked("PUT", {"partNumber": number, "uploadId": self._upload_id}, body)
        etag = reply.headers.get("etag", "")
        if not etag:
            raise DataCorrupt(f"{subject}: the store accepted part {number} without an ETag")
        self._etags.append(etag)

    def complete(self, last: bytes) -> PutReply:
        """Send the last part, and create the object from all parts."""
        self.send(last)
        request = UnsignedRequest(
            "POST",
            self._target.path,
            {"uploadId": self._upload_id},
            {"content-type": "application/xml", **condition_headers(Create())},
            _manifest(self._etags),
        )
        reply = self._target.create(request, self._classify)
        if isinstance(reply, Refused | Busy):
            # Nothing was created, and the parts would only be billed.
            self.abort()
        return reply

    def abort(self) -> None:
        """Abort the multipart upload, which deletes its parts."""
        if self._upload_id:
            query = {"uploadId": self._upload_id}
            self._target.send("delete", UnsignedRequest("DELETE", self._target.path, query))

    def _checked(
        self, method: str, query: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply:
        request = UnsignedRequest(method, self._target.path, query, body=body)
        reply = self._target.send("put", request)
        if reply.status != 200:
            raise self._target.error(reply)
        return reply

    def _classify(self, reply: HttpReply) -> PutReply:
        code = error_code(reply.body)
        match reply.status:
            case 200 if code:
                # S3 sends the status 200 before it knows whether joining the parts succeeds.
                return Refused() if code == "PreconditionFailed" else Unclear(f"200 {code}")
            case 200:
                version = document_text(reply.body, "ETag")
                return Landed(version) if version else Unclear("the reply has no ETag")
            case 412:
                return Refused()
            case 409:
                # Unlike a put, this cannot be sent again: S3 requires a new upload.
                return Busy(cause=f"409 {code or 'Conflict'}")
            case 404 if code == "NoSuchUpload":
                # A proxy that sent the request twice gets this after its own success.
                return Unclear("404 NoSuchUpload")
            case _:
                raise self._target.error(reply)


def _manifest(etags: list[str]) -> bytes:
    root = ET.Element("CompleteMultipartUpload", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
    for number, etag in enumerate(etags, start=1):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = etag
    document: bytes = ET.tostring(root, encoding="utf-8")
    return document


_HINTS = {
    "AccessDenied": "check the permissions of these credentials; without s3:ListBucket S3 answers"
    " this for a key that does not exist",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "ExpiredToken": "renew the session these credentials belong to",
    "InvalidAccessKeyId": "check the access key",
    "SignatureDoesNotMatch": "check the secret key, and that no proxy changes headers",
    "KeyTooLongError": "use a shorter key",
}
_CREDENTIAL_CODES = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})


class S3Store(CloudStore):
    """Objects below `prefix` in `bucket`."""

    _scheme = "s3"
    _page_parameter = "continuation-token"

    def _transport(self, settings: Mapping[str, object]) -> Transport:
        self._keys = credential_source(settings)
        self._signer = Signer()
        self._on_aws, self._address = self._located(settings)
        return Transport(self._clock, ca_file=os.environ.get("AWS_CA_BUNDLE"))

    @property
    def _server(self) -> str:
        return self._address.origin

    def _located(self, settings: Mapping[str, object]) -> tuple[bool, BucketEndpoint]:
        environ = os.environ
        endpoint = (
            config.S3_ENDPOINT.value(settings)
            or environ.get("AWS_ENDPOINT_URL_S3")
            or environ.get("AWS_ENDPOINT_URL")
        )
        region = (
            config.S3_REGION.value(settings)
            or environ.get("AWS_REGION")
            or environ.get("AWS_DEFAULT_REGION")
            or self._keys.region()
            or AWS_REGION_DEFAULT
        )
        if endpoint is None:
            return True, aws_address(self._bucket, region)
        path_style = config.S3_PATH_STYLE.value(settings)
        address = server_address(
            endpoint, self._bucket, region, path_style=path_style is None or path_style
        )
        return False, address

    def _moved(self, reply: HttpReply) -> bool:
        """Switch to the bucket's region if a reply, from another region, redirects to it."""
        if not self._on_aws or reply.status not in (301, 307, 400):
            return False
        region = _named_region(reply)
        if region in ("", self._address.region):
            return False
        self._address = aws_address(self._bucket, region)
        return True

    def _authorized(self, request: UnsignedRequest) -> HttpRequest:
        address = self._address
        path = address.base + request.path
        query = canonical_query(request.query)
        signed = self._signer.sign(
            request.method,
            path,
            query,
            {**request.headers, "host": address.host},
            keys=self._keys.keys(),
            region=address.region,
            payload=payload_hash(request.body, encrypted=address.origin.startswith("https:")),
            now_epoch_ms=self._clock.now().wall_epoch_ms,
        )
        signed["user-agent"] = "tidelock"
        target = f"{path}?{query}" if query else path
        return HttpRequest(request.method, address.origin, target, signed, request.body)

    def _put_request(self, key: str, body: bytes, mode: PutMode) -> UnsignedRequest:
        headers = condition_headers(mode)
        return UnsignedRequest("PUT", self._path(key), headers=headers, body=body)

    def _parts(self, target: UploadTarget) -> S3PartWriter:
        return S3PartWriter(target)

    def _classify_put(self, reply: HttpReply, key: str, mode: PutMode) -> PutReply | Contended:
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
                # The object to be replaced was deleted.
                return Refused()
            case 400 if code == "RequestTimeout":
                return Busy(cause="400 RequestTimeout: the body did not arrive in time")
            case _:
                raise self._error(reply, key)

    def _list_query(self, prefix: str, start_after: str) -> dict[str, str]:
        query = {
            "list-type": "2",
            "encoding-type": "url",
            "max-keys": str(self._page_size),
            "prefix": prefix,
        }
        if start_after:
            query["start-after"] = self._prefix + start_after
        return query

    def _parse_page(self, reply: HttpReply) -> tuple[Iterable[ObjectMeta], str]:
        page = parse_xml(reply.body, subject=self.uri)
        truncated = text_of(page, "IsTruncated") == "true"
        token = text_of(page, "NextContinuationToken") if truncated else ""
        return map(self._listed, page.iterfind("{*}Contents")), token

    def _listed(self, entry: ET.Element) -> ObjectMeta:
        key = unquote_plus(text_of(entry, "Key")).removeprefix(self._prefix)
        version = text_of(entry, "ETag")
        try:
            modified = datetime.fromisoformat(text_of(entry, "LastModified"))
            size_bytes = int(text_of(entry, "Size"))
        except ValueError as error:
            raise self._malformed(key, "a listing without a valid size or time") from error
        return ObjectMeta(key, size_bytes, version, int(modified.timestamp() * 1000))

    def _bucket_path(self) -> str:
        # A path-style bucket is addressed without a slash after its name.
        return "" if self._address.base else "/"

    def _check_bucket(self, reply: HttpReply, key: str, *, is_head: bool = False) -> None:
        if error_code(reply.body) == "NoSuchBucket":
            raise self._error(reply, key)
        if not is_head or self._bucket_seen:
            return
        # A reply to HEAD has no body that says what is missing.
        found = self._send("head", UnsignedRequest("HEAD", self._bucket_path()))
        if found.status == 404:
            raise self._no_bucket()
        self._bucket_seen = True

    def _no_bucket(self) -> NotFound:
        return NotFound(
            f"the bucket {self._bucket} does not exist at {self._address.host}",
            hint="create it, or check the name, the endpoint and the region",
        )

    def _error(self, reply: HttpReply, key: str) -> TidelockError:
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
            hint = f"the bucket is in {region}: set {config.S3_REGION.key}"
        return error_for_reply(reply, code, subject=subject, hint=hint)


def _named_region(reply: HttpReply) -> str:
    """Return the region that a reply says the bucket is in, or nothing."""
    named = reply.headers.get("x-amz-bucket-region", "")
    if not named and b"<Region>" in reply.body:
        named = text_of(parse_xml(reply.body, subject="error"), "Region")
    return named if re.fullmatch(r"[a-z0-9-]{1,40}", named) else ""
