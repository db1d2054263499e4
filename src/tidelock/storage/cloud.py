"""The common part of the stores behind HTTP: S3, Google Cloud Storage and Azure.

`CloudStore` implements the verbs of `ObjectStore` once. A store adds what differs: how a request
is addressed and signed, how a listing is paged, how a reply to a write is classified, and how an
object is uploaded in parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypedDict
from urllib.parse import quote, urlencode

from tidelock.core.clock import Clock
from tidelock.core.errors import DataCorrupt, InvalidInput, TidelockError
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemClock, SystemIds
from tidelock.storage import config
from tidelock.storage.contract import Create, ObjectMeta, PutMode, PutReply, StoredObject, Upload
from tidelock.storage.http import (
    Classify,
    Contended,
    Exchange,
    HttpReply,
    HttpRequest,
    Transport,
    modified_ms,
)
from tidelock.storage.uploads import BufferedUpload, PartWriter
from tidelock.storage.uri import checked_key, checked_prefix


@dataclass(frozen=True, slots=True)
class UnsignedRequest:
    """A request before it is authorised: `path` is percent-encoded, header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def target(self) -> str:
        """Path and query, percent-encoded."""
        if not self.query:
            return self.path
        return f"{self.path}?{urlencode(self.query, quote_via=quote, safe='')}"


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """What a part writer needs to know about the object that it uploads.

    `create` sends a request with the condition that the key is free, at most once. `classify`
    reads the reply to the request that creates the object. `error` returns the error for a reply
    after which the upload cannot continue.
    """

    key: str
    path: str
    subject: str
    send: Callable[[str, UnsignedRequest], HttpReply]
    create: Callable[[UnsignedRequest, Classify], PutReply]
    classify: Classify
    error: Callable[[HttpReply], TidelockError]


class CloudPartWriter(PartWriter):
    """Sends the parts of one object to a cloud store."""

    def __init__(self, target: UploadTarget) -> None:
        """Create the writer; sends no request."""
        self._target = target


class CloudOptions(TypedDict, total=False):
    """The options of a cloud store."""

    clock: Clock | None
    ids: IdSource | None
    observe: Callable[[str], None] | None
    page_size: int


class CloudStore(ABC):
    """Objects below `prefix` in one bucket or container.

    `observe` is called with the verb of each request sent. `page_size` is the number of keys that
    a listing requests at a time.
    """

    _scheme: ClassVar[str]
    _deleted: ClassVar[frozenset[int]] = frozenset({200, 204})
    """The statuses of a successful delete."""
    _delete_headers: ClassVar[Mapping[str, str]] = {}
    _get_query: ClassVar[Mapping[str, str]] = {}
    _version_header: ClassVar[str] = "etag"
    _page_parameter: ClassVar[str]
    """The query parameter that asks for the next page of a listing."""

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
        self._uri = f"{self._scheme}://{bucket}/{self._prefix}".rstrip("/")
        self._page_size = page_size
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._bucket_seen = False
        timeout_ms = config.REQUEST_TIMEOUT.required(settings)
        self._exchange = Exchange(
            self._transport(settings),
            timeout_ms=timeout_ms,
            clock=self._clock,
            ids=self._ids,
            observe=observe,
            moved=self._moved,
        )

    @property
    def uri(self) -> str:
        """The URI of the root of this store, without secrets."""
        return self._uri

    @abstractmethod
    def _transport(self, settings: Mapping[str, object]) -> Transport:
        """Find the server and the credentials, and return connections to the server."""

    def _moved(self, reply: HttpReply) -> bool:
        """Switch to the address in a redirect; return whether the request must be sent again."""
        del reply
        return False

    @property
    @abstractmethod
    def _server(self) -> str:
        """The server that holds the objects."""

    @property
    def identity(self) -> str:
        """The URI and the server behind it."""
        return f"{self.uri} at {self._server}"

    def __repr__(self) -> str:
        """Return the class and the URI, without credentials."""
        return f"{type(self).__name__}({self.uri!r})"

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or bytes `start` to `end` (exclusive) of it; None if absent."""
        if start < 0 or (end is not None and end < start):
            # Stores interpret a range that counts from the end differently.
            raise InvalidInput(
                f"invalid byte range: start {start}, end {end}", hint="use 0 <= start <= end"
            )
        if start == end:
            return self._empty_read(key, start, end)
        whole = start == 0 and end is None
        span = f"bytes={start}-{'' if end is None else end - 1}"
        headers = {} if whole else {"range": span}
        request = UnsignedRequest("GET", self._path(key), self._get_query, headers)
        reply = self._send("get", request, key)
        match reply.status:
            case 200 | 206:
                body = reply.body if reply.status == 206 else reply.body[start:end]
                return StoredObject(body, self._version(reply, key), modified_ms(reply))
            case 416:
                return self._empty_read(key, start, end)
            case 404:
                self._check_bucket(reply, key)
                return None
            case _:
                raise self._error(reply, key)

    def _empty_read(self, key: str, start: int, end: int | None) -> StoredObject | None:
        """Return zero bytes of the object, with its version: the range is empty or past its end."""
        meta = self.head(key)
        if meta is None:
            return None
        if start != end and start < meta.size_bytes:
            # The object has grown since the store rejected the range.
            return self.get(key, start=start, end=end)
        return StoredObject(b"", meta.version, meta.modified_epoch_ms)

    def head(self, key: str) -> ObjectMeta | None:
        """Return size, version and age of the object without its bytes; None if absent."""
        reply = self._send("head", UnsignedRequest("HEAD", self._path(key)), key)
        match reply.status:
            case 200:
                size_bytes = int(reply.headers.get("content-length", "0"))
                return ObjectMeta(key, size_bytes, self._version(reply, key), modified_ms(reply))
            case 404:
                self._check_bucket(reply, key, is_head=True)
                return None
            case _:
                raise self._error(reply, key)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object under the condition of `mode`, and return the store's own answer."""
        request = self._put_request(key, body, mode)
        return self._put(key, request, lambda reply: self._classify_put(reply, key, mode), mode)

    def delete(self, key: str) -> None:
        """Delete the object; an absent one is not an error."""
        request = UnsignedRequest("DELETE", self._path(key), headers=self._delete_headers)
        reply = self._send("delete", request, key)
        if reply.status == 404:
            self._check_bucket(reply, key)
        elif reply.status not in self._deleted:
            raise self._error(reply, key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects whose key starts with `prefix`, in key order, after `start_after`."""
        query = self._list_query(self._prefix + checked_prefix(prefix), start_after)
        while True:
            found, token = self._list_page(query)
            for meta in found:
                # Consoles, Hadoop and accounts with a hierarchy list directories as objects.
                if meta.key > start_after and not meta.key.endswith("/"):
                    yield meta
            if not token:
                return
            query[self._page_parameter] = token

    def upload(self, key: str) -> Upload:
        """Return a multipart upload; a small object is sent in one request."""
        target = UploadTarget(
            key,
            self._path(key),
            self._subject(key),
            send=lambda verb, request: self._send(verb, request, key),
            create=lambda request, classify: self._put(key, request, classify, Create()),
            classify=lambda reply: self._classify_put(reply, key, Create()),
            error=lambda reply: self._error(reply, key),
        )
        return BufferedUpload(lambda body: self.put(key, body, Create()), self._parts(target))

    def local_path(self, key: str) -> str | None:
        """Return None: objects behind a server have no path."""
        del key
        return None

    def close(self) -> None:
        """Close the connections; closing twice is not an error."""
        self._exchange.close()

    @abstractmethod
    def _authorized(self, request: UnsignedRequest) -> HttpRequest:
        """Return an authorised request for a path of the bucket."""

    @abstractmethod
    def _put_request(self, key: str, body: bytes, mode: PutMode) -> UnsignedRequest:
        """Return the request that writes an object in one piece."""

    @abstractmethod
    def _classify_put(self, reply: HttpReply, key: str, mode: PutMode) -> PutReply | Contended:
        """Return what a reply to a write proves; an exception proves that nothing was written."""

    @abstractmethod
    def _list_query(self, prefix: str, start_after: str) -> dict[str, str]:
        """Return the query of the first page of a listing."""

    @abstractmethod
    def _bucket_path(self) -> str:
        """Return the path of a listing."""

    @abstractmethod
    def _parse_page(self, reply: HttpReply) -> tuple[Iterable[ObjectMeta], str]:
        """Return the objects of a page and the token of the next; "" after the last."""

    @abstractmethod
    def _parts(self, target: UploadTarget) -> PartWriter:
        """Return the writer of an upload's parts."""

    @abstractmethod
    def _check_bucket(self, reply: HttpReply, key: str, *, is_head: bool = False) -> None:
        """Raise if a 404 means that the bucket or container is missing, and not the object."""

    @abstractmethod
    def _error(self, reply: HttpReply, key: str) -> TidelockError:
        """Return the error for a final reply that is not a success."""

    def _send(self, verb: str, request: UnsignedRequest, key: str = "") -> HttpReply:
        """Send an idempotent request until the reply is definite."""
        subject = self._subject(key)
        reply = self._exchange.send(verb, lambda: self._authorized(request), subject=subject)
        self._bucket_seen = self._bucket_seen or 200 <= reply.status < 300
        return reply

    def _put(
        self, key: str, request: UnsignedRequest, classify: Classify, mode: PutMode
    ) -> PutReply:
        subject = self._subject(key)
        return self._exchange.put(
            lambda: self._authorized(request), classify, mode, subject=subject
        )

    def _list_page(self, query: Mapping[str, str]) -> tuple[Iterable[ObjectMeta], str]:
        reply = self._send("list", UnsignedRequest("GET", self._bucket_path(), query))
        if reply.status != 200:
            raise self._error(reply, "")
        return self._parse_page(reply)

    def _path(self, key: str) -> str:
        return "/" + quote(self._prefix + checked_key(key), safe="/")

    def _version(self, reply: HttpReply, key: str) -> str:
        version = reply.headers.get(self._version_header)
        if not version:
            raise self._malformed(key, f"no {self._version_header} header")
        return version

    def _malformed(self, key: str, found: str) -> DataCorrupt:
        return DataCorrupt(
            f"{self._subject(key)}: unexpected reply from the store: {found}",
            hint="check that the endpoint belongs to a store of this type",
        )

    def _subject(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri
