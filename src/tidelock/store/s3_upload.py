"""S3's multipart upload: parts under an upload id, then one request that makes the object.

The condition stands on that last request. Parts that are neither completed nor aborted stay, unseen
and paid for, until a lifecycle rule of the bucket removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from xml.etree import ElementTree as ET

from tidelock.base.errors import DataCorrupt, TidelockError
from tidelock.base.limits import UPLOAD_PART_BYTES
from tidelock.base.outcome import Landed
from tidelock.store.aws_signing import canonical_query
from tidelock.store.contract import Busy, Create, PutReply, Refused, Unclear
from tidelock.store.exchange import Exchange, condition_headers
from tidelock.store.http import Reply, Request
from tidelock.store.xmltext import error_code, parse_xml, text_of


class Sign(Protocol):
    """Makes a signed request for the object."""

    def __call__(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Request:
        """Return the request."""
        ...


class MultipartParts:
    """The parts of one object. `refusal` makes an error of a reply that none can go on after."""

    part_bytes = UPLOAD_PART_BYTES

    def __init__(
        self,
        exchange: Exchange,
        sign: Sign,
        path: str,
        *,
        subject: str,
        whole: Callable[[bytes], PutReply],
        refusal: Callable[[Reply], TidelockError],
    ) -> None:
        """Send nothing yet."""
        self._exchange = exchange
        self._sign = sign
        self._path = path
        self._subject = subject
        self.whole = whole
        self._refusal = refusal
        self._upload_id = ""
        self._etags: list[str] = []

    def send(self, body: bytes) -> None:
        """Send the next part, under an id that the first one asks for."""
        if not self._upload_id:
            reply = self._settle("POST", {"uploads": ""})
            self._upload_id = text_of(parse_xml(reply.body, subject=self._subject), "UploadId")
            if not self._upload_id:
                raise DataCorrupt(f"{self._subject}: the store began an upload without an id")
        number = str(len(self._etags) + 1)
        reply = self._settle("PUT", {"partNumber": number, "uploadId": self._upload_id}, body)
        etag = reply.headers.get("etag", "")
        if not etag:
            raise DataCorrupt(f"{self._subject}: the store took part {number} without an ETag")
        self._etags.append(etag)

    def complete(self, last: bytes) -> PutReply:
        """Send the last part, and have the object made of all of them."""
        self.send(last)
        query = canonical_query({"uploadId": self._upload_id})
        body = _manifest(self._etags)
        headers = {"content-type": "application/xml", **condition_headers(Create())}
        reply = self._exchange.put(
            lambda: self._sign("POST", self._path, query=query, headers=headers, body=body),
            self._judged,
            Create(),
            subject=self._subject,
        )
        if isinstance(reply, Refused | Busy):
            # Nothing landed, and what was sent would only be paid for.
            self.abort()
        return reply

    def abort(self) -> None:
        """Have the parts removed."""
        if self._upload_id:
            query = canonical_query({"uploadId": self._upload_id})
            self._exchange.settle(
                "delete",
                lambda: self._sign("DELETE", self._path, query=query),
                subject=self._subject,
            )

    def _settle(self, method: str, query: Mapping[str, str], body: bytes | None = None) -> Reply:
        encoded = canonical_query(dict(query))
        reply = self._exchange.settle(
            "put",
            lambda: self._sign(method, self._path, query=encoded, body=body),
            subject=self._subject,
        )
        if reply.status != 200:
            raise self._refusal(reply)
        return reply

    def _judged(self, reply: Reply) -> PutReply:
        code = error_code(reply.body)
        match reply.status:
            case 200 if code:
                # S3 answers 200 before it knows how joining the parts ends.
                return Refused() if code == "PreconditionFailed" else Unclear(f"200 {code}")
            case 200:
                version = _etag(reply.body)
                return Landed(version) if version else Unclear("the reply has no ETag")
            case 412:
                return Refused()
            case 409:
                # Unlike a put, this cannot be sent again: S3 wants the upload begun anew.
                return Busy(cause=f"409 {code or 'Conflict'}")
            case 404 if code == "NoSuchUpload":
                # A hop that sent the request twice hears this after its own success.
                return Unclear("404 NoSuchUpload")
            case _:
                raise self._refusal(reply)


def _etag(body: bytes) -> str:
    try:
        return text_of(parse_xml(body, subject="reply"), "ETag")
    except DataCorrupt:
        return ""


def _manifest(etags: list[str]) -> bytes:
    root = ET.Element("CompleteMultipartUpload", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
    for number, etag in enumerate(etags, start=1):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = etag
    document: bytes = ET.tostring(root, encoding="utf-8")
    return document
