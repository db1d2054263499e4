"""Azure Blob Storage: block blobs over the REST API, sent once.

A version is the ETag with its quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import DataCorrupt, NotFound, PermissionDenied, TidelockError
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.outcome import Landed
from tidelock.store import options
from tidelock.store.azure_account import account
from tidelock.store.azure_signing import Unsigned, date_header
from tidelock.store.azure_upload import BlockParts
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
from tidelock.store.exchange import (
    Contended,
    Exchange,
    condition_headers,
    http_date_ms,
    modified_ms,
    refusal,
)
from tidelock.store.http import Reply, Request, Transport
from tidelock.store.parts import PartedUpload
from tidelock.store.ranges import Range, cut, nothing_of
from tidelock.store.uri import checked_key, checked_prefix
from tidelock.store.xmltext import error_code, parse_xml, text_of

_API_VERSION = "2021-12-02"
_CONTAINER_CODES = frozenset({"ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"})
_HINTS = {
    "AuthenticationFailed": "check the key or signature, and the clock of this machine",
    "AuthorizationPermissionMismatch": "grant the role Storage Blob Data Contributor",
    "UnauthorizedBlobOverwrite": "the signature needs the right to write, not only to create",
}


class AzureStore:
    """Blobs below `prefix` in `container` of the account at `account_host`.

    `observe` hears the verb of each request sent. `page_size` is how many blobs a listing asks
    for at a time.
    """

    def __init__(
        self,
        account_host: str,
        container: str,
        prefix: str,
        settings: Mapping[str, object] = {},
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        observe: Callable[[str], None] | None = None,
        page_size: int = 1000,
    ) -> None:
        """Resolve settings and environment; no request is sent yet."""
        self._host = account_host
        self._container = container
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._page_size = page_size
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._account = account(account_host, settings, self._clock)
        self._exchange = Exchange(
            Transport(self._clock, secret_query=self._account.secret_query),
            timeout_ms=options.REQUEST_TIMEOUT.required(settings),
            clock=self._clock,
            ids=self._ids,
            observe=observe,
        )

    @property
    def uri(self) -> str:
        """The place this store stands for, for messages."""
        return f"abfss://{self._container}@{self._host}/{self._prefix}".rstrip("/")

    @property
    def identity(self) -> str:
        """The URI and the server behind it."""
        return f"{self.uri} at {self._account.origin}"

    def __repr__(self) -> str:
        """Show the place, never the credentials."""
        return f"AzureStore({self.uri!r})"

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
            case 404 if _code(reply) not in _CONTAINER_CODES:
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
            case 404 if _code(reply) not in _CONTAINER_CODES:
                return None
            case _:
                raise self._refusal(reply, key)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object under the condition of `mode`, and say first-hand what came of it."""
        path = self._path(key)
        headers = {
            "content-length": str(len(body)),
            "content-type": "application/octet-stream",
            "x-ms-blob-type": "BlockBlob",
            **condition_headers(mode),
        }

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
        reply = self._settle("delete", "DELETE", key, headers={"x-ms-delete-snapshots": "include"})
        gone = reply.status == 404 and _code(reply) not in _CONTAINER_CODES
        if not gone and reply.status != 202:
            raise self._refusal(reply, key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects whose key starts with `prefix`, in key order, after `start_after`.

        Azure cannot start in the middle: what lies before `start_after` is read and dropped.
        """
        query = {
            "comp": "list",
            "maxresults": str(self._page_size),
            "prefix": self._prefix + checked_prefix(prefix),
            "restype": "container",
        }
        while True:
            page = self._page(query)
            for blob in page.iterfind("{*}Blobs/{*}Blob"):
                meta = self._listed(blob)
                if meta is not None and meta.key > start_after:
                    yield meta
            marker = text_of(page, "NextMarker")
            if not marker:
                return
            query["marker"] = marker

    def upload(self, key: str) -> Upload:
        """Return an upload in blocks; a small blob goes in one request."""
        parts = BlockParts(
            self._exchange,
            self._signed,
            self._path(key),
            nonce=self._ids.uuid(),
            subject=self._subject(key),
            whole=lambda body: self.put(key, body, Create()),
            judge=lambda reply: self._judged(reply, key, Create()),
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

    def _path(self, key: str) -> str:
        return "/" + quote(self._prefix + checked_key(key), safe="/")

    def _settle(
        self, verb: str, method: str, key: str, *, headers: Mapping[str, str] = {}
    ) -> Reply:
        path = self._path(key)
        return self._exchange.settle(
            verb,
            lambda: self._signed(method, path, headers=headers),
            subject=self._subject(key),
        )

    def _signed(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Request:
        path = f"{self._account.base}/{quote(self._container, safe='')}{path}"
        sent = {
            **headers,
            "x-ms-date": date_header(self._clock),
            "x-ms-version": _API_VERSION,
        }
        sent.update(self._account.authorizer.headers(Unsigned(method, path, query, sent)))
        sent["user-agent"] = "tidelock"
        encoded = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        target = f"{path}?{encoded}" if encoded else path
        return Request(method, self._account.origin, target, sent, body)

    def _judged(self, reply: Reply, key: str, mode: PutMode) -> PutReply:
        code = _code(reply)
        match reply.status:
            case 201:
                version = reply.headers.get("etag", "")
                return Landed(version) if version else Unclear("the reply has no ETag")
            case 412 if code.startswith("LeaseId"):
                raise PermissionDenied(
                    f"{self._subject(key)}: somebody holds an Azure lease on this blob",
                    hint="break the lease: writes here are guarded by conditions alone",
                )
            case 412:
                return Refused()
            case 409 if code == "BlobAlreadyExists":
                return Refused()
            case 404 if isinstance(mode, Match) and code not in _CONTAINER_CODES:
                # The object that was to be replaced is gone.
                return Refused()
            case 409 if code not in _CONTAINER_CODES:
                return Busy(cause=f"409 {code or 'Conflict'}")
            case _:
                raise self._refusal(reply, key)

    def _page(self, query: Mapping[str, str]) -> ET.Element:
        reply = self._exchange.settle(
            "list", lambda: self._signed("GET", "", query=query), subject=self.uri
        )
        if reply.status != 200:
            raise self._refusal(reply, "")
        return parse_xml(reply.body, subject=self.uri)

    def _listed(self, blob: ET.Element) -> ObjectMeta | None:
        properties = blob.find("{*}Properties")
        name = blob.find("{*}Name")
        if properties is None or name is None:
            raise self._garbled("")
        # A name that XML cannot hold comes percent-encoded.
        encoded = name.get("Encoded") == "true"
        text = unquote(name.text or "") if encoded else name.text or ""
        key = text.removeprefix(self._prefix)
        if text_of(properties, "ResourceType") == "directory" or key.endswith("/") or not key:
            # Accounts with a hierarchy list their directories as if they were blobs.
            return None
        modified = http_date_ms(text_of(properties, "Last-Modified"))
        size = text_of(properties, "Content-Length")
        if modified is None or not size.isdecimal():
            raise self._garbled(key)
        # Listings leave out the quotes that headers have.
        version = text_of(properties, "Etag")
        version = version if version.startswith('"') else f'"{version}"'
        return ObjectMeta(key, int(size), version, modified)

    def _version(self, reply: Reply, key: str) -> str:
        version = reply.headers.get("etag")
        if not version:
            raise self._garbled(key)
        return version

    def _garbled(self, key: str) -> DataCorrupt:
        return DataCorrupt(
            f"{self._subject(key)}: the reply is not that of Azure Blob Storage",
            hint="is this the end point of a store?",
        )

    def _subject(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    def _refusal(self, reply: Reply, key: str) -> TidelockError:
        code = _code(reply)
        if code in _CONTAINER_CODES:
            return NotFound(
                f"the container {self._container} does not exist at {self._account.origin}: {code}",
                hint="create it, or check the name and the account",
            )
        return refusal(reply, code, subject=self._subject(key), hint=_HINTS.get(code, ""))


def _code(reply: Reply) -> str:
    return reply.headers.get("x-ms-error-code") or error_code(reply.body)
