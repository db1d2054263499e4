"""Google Cloud Storage: the JSON API, sent once.

A version is the generation, in decimal. Google allows about one write a second to one object and
answers 429 beyond that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, assert_never
from urllib.parse import quote, urlencode, urlsplit

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import ConfigInvalid, DataCorrupt, InvalidInput, NotFound, TidelockError
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.outcome import Landed
from tidelock.store import options
from tidelock.store.contract import (
    Create,
    Match,
    ObjectMeta,
    Overwrite,
    PutMode,
    PutReply,
    Refused,
    StoredObject,
    Unclear,
    Upload,
)
from tidelock.store.exchange import Contended, Exchange, modified_ms, refusal
from tidelock.store.gcs_upload import ResumableParts
from tidelock.store.google_credentials import GoogleTokens
from tidelock.store.http import Reply, Request, Transport
from tidelock.store.parts import PartedUpload
from tidelock.store.ranges import Range, cut, nothing_of
from tidelock.store.uri import checked_key, checked_prefix

_ORIGIN = "https://storage.googleapis.com"
_META_FIELDS = "name,size,generation,updated"


class GcsStore:
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
        self._page_size = page_size
        server = options.GCS_ENDPOINT.value(settings) or os.environ.get("STORAGE_EMULATOR_HOST")
        self._origin = _origin(server) if server else _ORIGIN
        # Credentials of Google are for Google alone.
        self._tokens = None if server else GoogleTokens()
        self._bucket_seen = False
        clock = clock or SystemClock()
        self._exchange = Exchange(
            Transport(clock),
            timeout_ms=options.REQUEST_TIMEOUT.required(settings),
            clock=clock,
            ids=ids or SystemIds(),
            observe=observe,
        )

    @property
    def uri(self) -> str:
        """The place this store stands for, for messages."""
        return f"gs://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def identity(self) -> str:
        """The URI and the server behind it."""
        return f"{self.uri} at {self._origin}"

    def __repr__(self) -> str:
        """Show the place, never the credentials."""
        return f"GcsStore({self.uri!r})"

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> StoredObject | None:
        """Return the object, or bytes `start` to `end` (exclusive) of it; None if absent."""
        wanted = Range(start, end)
        if wanted.is_empty:
            return nothing_of(self, key, wanted)
        reply = self._settle("get", "GET", key, {"alt": "media"}, headers=wanted.header())
        match reply.status:
            case 200 | 206:
                body = cut(reply.body, wanted, partial=reply.status == 206)
                version = reply.headers.get("x-goog-generation", "")
                if not version.isdecimal():
                    raise self._garbled(key)
                return StoredObject(body, version, modified_ms(reply))
            case 416:
                return nothing_of(self, key, wanted)
            case 404:
                self._require_bucket(reply)
                return None
            case _:
                raise self._refusal(reply, key)

    def head(self, key: str) -> ObjectMeta | None:
        """Return size, version and age of the object without its bytes; None if absent."""
        reply = self._settle("head", "GET", key, {"fields": _META_FIELDS})
        match reply.status:
            case 200:
                return self._meta(self._json(reply, key))
            case 404:
                self._require_bucket(reply)
                return None
            case _:
                raise self._refusal(reply, key)

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Write the object under the condition of `mode`, and say first-hand what came of it."""
        target = self._upload_target("media", key, mode)

        def judge(reply: Reply) -> PutReply | Contended:
            return self._judged(reply, key, mode)

        return self._exchange.put(
            lambda: self._request(
                "POST", target, headers={"content-type": "application/octet-stream"}, body=body
            ),
            judge,
            mode,
            subject=self._subject(key),
        )

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is no error."""
        reply = self._settle("delete", "DELETE", key, {})
        if reply.status == 404:
            self._require_bucket(reply)
        elif reply.status not in (200, 204):
            raise self._refusal(reply, key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield objects whose key starts with `prefix`, in key order, after `start_after`."""
        query = {
            "prefix": self._prefix + checked_prefix(prefix),
            "maxResults": str(self._page_size),
            "fields": f"nextPageToken,items({_META_FIELDS})",
        }
        if start_after:
            query["startOffset"] = self._prefix + start_after
        while True:
            page = self._page(query)
            for item in page.get("items", ()):
                meta = self._meta(item)
                # Google starts at the offset, the contract after it. A name that ends in a
                # slash stands for a directory.
                if meta.key > start_after and not meta.key.endswith("/"):
                    yield meta
            token = page.get("nextPageToken")
            if not token:
                return
            query["pageToken"] = str(token)

    def upload(self, key: str) -> Upload:
        """Return an upload in parts; a small object goes in one request."""
        parts = ResumableParts(
            self._exchange,
            self._request,
            self._upload_target("resumable", key, Create()),
            subject=self._subject(key),
            whole=lambda body: self.put(key, body, Create()),
            judge=lambda reply: self._judged(reply, key, Create()),
        )
        return PartedUpload(parts)

    def local_path(self, key: str) -> str | None:
        """Objects behind a server have no path."""
        del key
        return None

    def close(self) -> None:
        """Give back connections; closing twice is no error."""
        self._exchange.close()

    def _settle(
        self,
        verb: str,
        method: str,
        key: str,
        query: Mapping[str, str],
        *,
        headers: Mapping[str, str] = {},
    ) -> Reply:
        name = quote(self._prefix + checked_key(key), safe="")
        target = f"{self._objects()}/{name}"
        if query:
            target += f"?{_encoded(query)}"
        return self._exchange.settle(
            verb,
            lambda: self._request(method, target, headers=headers),
            subject=self._subject(key),
        )

    def _request(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Request:
        sent = {"user-agent": "tidelock", **headers}
        if self._tokens is not None:
            sent.update(self._tokens.headers())
        return Request(method, self._origin, target, sent, body)

    def _judged(self, reply: Reply, key: str, mode: PutMode) -> PutReply:
        match reply.status:
            case 200 | 201:
                try:
                    generation = str(self._json(reply, key).get("generation", ""))
                except DataCorrupt:
                    generation = ""
                if not generation.isdecimal():
                    return Unclear("the reply has no generation")
                return Landed(generation)
            case 412:
                return Refused()
            case 404 if isinstance(mode, Match):
                self._require_bucket(reply)
                # The object that was to be replaced is gone.
                return Refused()
            case 404:
                raise self._no_bucket()
            case _:
                raise self._refusal(reply, key)

    def _page(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        target = f"{self._objects()}?{_encoded(query)}"
        reply = self._exchange.settle(
            "list", lambda: self._request("GET", target), subject=self.uri
        )
        if reply.status == 404:
            raise self._no_bucket()
        if reply.status != 200:
            raise self._refusal(reply, "")
        self._bucket_seen = True
        return self._json(reply, "")

    def _meta(self, item: Mapping[str, Any]) -> ObjectMeta:
        try:
            modified = datetime.fromisoformat(item["updated"])
            return ObjectMeta(
                str(item["name"]).removeprefix(self._prefix),
                int(item["size"]),
                str(int(item["generation"])),
                int(modified.timestamp() * 1000),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled("") from error

    def _require_bucket(self, reply: Reply) -> None:
        """Raise `NotFound` if a 404 means the bucket: the reply has one reason for both."""
        if self._bucket_seen or b"No such object" in reply.body:
            return
        if b"bucket does not exist" in reply.body:
            raise self._no_bucket()
        self._page({"prefix": self._prefix, "maxResults": "1", "fields": "nextPageToken"})

    def _upload_target(self, kind: str, key: str, mode: PutMode) -> str:
        name = self._prefix + checked_key(key)
        query = {"uploadType": kind, "name": name, **_condition(mode)}
        return f"/upload/storage/v1/b/{quote(self._bucket, safe='')}/o?{_encoded(query)}"

    def _objects(self) -> str:
        return f"/storage/v1/b/{quote(self._bucket, safe='')}/o"

    def _json(self, reply: Reply, key: str) -> Mapping[str, Any]:
        try:
            parsed = json.loads(reply.body)
        except ValueError as error:
            raise self._garbled(key) from error
        if not isinstance(parsed, dict):
            raise self._garbled(key)
        return parsed

    def _garbled(self, key: str) -> DataCorrupt:
        return DataCorrupt(
            f"{self._subject(key)}: the store's reply is not that of the JSON API",
            hint="is this the end point of a store?",
        )

    def _subject(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    def _no_bucket(self) -> NotFound:
        return NotFound(
            f"the bucket {self._bucket} does not exist at {self._origin}",
            hint="create it, or check the name",
        )

    def _refusal(self, reply: Reply, key: str) -> TidelockError:
        return refusal(reply, _reason(reply), subject=self._subject(key))


def _origin(endpoint: str) -> str:
    url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc:
        raise ConfigInvalid(
            f"{options.GCS_ENDPOINT.key} is not an http or https URL of a host",
            hint="write it as http://host:port",
        )
    return f"{url.scheme}://{url.netloc}"


def _condition(mode: PutMode) -> dict[str, str]:
    match mode:
        case Create():
            return {"ifGenerationMatch": "0"}
        case Match(version):
            if not (version.isascii() and version.isdecimal()):
                raise InvalidInput(
                    f"{version!a} is not a generation", hint="give one that this store returned"
                )
            return {"ifGenerationMatch": version}
        case Overwrite():
            return {}
        case _:
            assert_never(mode)


def _encoded(query: Mapping[str, str]) -> str:
    return urlencode(query, quote_via=quote, safe="")


def _reason(reply: Reply) -> str:
    """Return the reason of an error document, or nothing if there is none to find."""
    try:
        return str(json.loads(reply.body)["error"]["errors"][0]["reason"])
    except (ValueError, KeyError, IndexError, TypeError):
        return ""
