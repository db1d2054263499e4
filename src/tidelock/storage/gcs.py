"""Google Cloud Storage: the JSON API, each request sent once.

A version is the generation, in decimal. Google allows about one write per second to an object and
answers 429 beyond that.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, assert_never
from urllib.parse import quote, urlsplit

from tidelock.core.errors import (
    DataCorrupt,
    InvalidInput,
    MissingExtra,
    NotFound,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
)
from tidelock.core.limits import RESEND_TRIES
from tidelock.core.outcome import Landed
from tidelock.storage import config
from tidelock.storage.cloud import CloudPartWriter, CloudStore, UnsignedRequest, UploadTarget
from tidelock.storage.contract import (
    Busy,
    Create,
    Match,
    ObjectMeta,
    Overwrite,
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
    error_for_reply,
    parse_endpoint,
)
from tidelock.storage.uri import checked_key

_INCOMPLETE = 308


class GcsPartWriter(CloudPartWriter):
    """Sends the parts of an object to a resumable upload session.

    The size of a part is a multiple of 256 KiB, as Google requires.
    """

    def __init__(self, target: UploadTarget, start_session: UnsignedRequest) -> None:
        """Create the writer; sends no request. `start_session` is the request to start with."""
        super().__init__(target)
        self._start_session = start_session
        self._session = ""
        self._sent_bytes = 0
        self._result: PutReply | None = None

    def send(self, body: bytes) -> None:
        """Send the next part, until the session has all of it."""
        if not self._session and self._result is None:
            self._start()
        start, end = self._sent_bytes, self._sent_bytes + len(body)
        tries = 0
        while self._sent_bytes < end and self._result is None:
            tries += 1
            part = body[self._sent_bytes - start :]
            if self._send_once(f"bytes {self._sent_bytes}-{end - 1}/*", part):
                continue
            # Without an answer, only the session knows how much of the part it has.
            self._query_progress()
            if tries >= RESEND_TRIES:
                raise StoreUnreachable(
                    f"{self._target.subject}: a part of the upload got no answer {tries} times",
                    hint="check the endpoint and the network, then try again",
                )

    def complete(self, last: bytes) -> PutReply:
        """Send the last part, which creates the object."""
        if self._result is not None:
            return self._result
        total = self._sent_bytes + len(last)

        def classify(reply: HttpReply) -> PutReply | Contended:
            if reply.status == _INCOMPLETE:
                return Unclear("the store expects more bytes after the last part")
            return self._target.classify(reply)

        content_range = f"bytes {self._sent_bytes}-{total - 1}/{total}"
        return self._target.create(self._part(content_range, last), classify)

    def abort(self) -> None:
        """Cancel the session, which discards what was sent."""
        if self._session:
            self._target.send("delete", UnsignedRequest("DELETE", self._session))

    def _start(self) -> None:
        target = self._target
        reply = target.send("put", self._start_session)
        if reply.status not in (200, 201):
            self._end_early(reply)
            return
        location = urlsplit(reply.headers.get("location", ""))
        if not location.path:
            raise DataCorrupt(f"{target.subject}: the store started an upload without a session")
        # The host may be one that only the server can reach; path and query are sufficient.
        self._session = f"{location.path}?{location.query}"

    def _send_once(self, content_range: str, body: bytes) -> bool:
        """Send a part; return False if no answer says what the session received."""

        def classify(reply: HttpReply) -> PutReply | Contended:
            if reply.status == _INCOMPLETE:
                self._set_progress(reply, self._sent_bytes + len(body))
                return Landed("")
            return self._end_early(reply)

        answer = self._target.create(self._part(content_range, body), classify)
        return isinstance(answer, Landed | Refused)

    def _part(self, content_range: str, body: bytes) -> UnsignedRequest:
        headers = {"content-range": content_range}
        return UnsignedRequest("PUT", self._session, headers=headers, body=body)

    def _query_progress(self) -> None:
        """Ask the session how many bytes it has."""
        reply = self._target.send("put", self._part("bytes */*", b""))
        if reply.status == _INCOMPLETE:
            self._set_progress(reply, self._sent_bytes + self.part_bytes)
        else:
            self._end_early(reply)

    def _end_early(self, reply: HttpReply) -> PutReply:
        """Handle a reply that ends the session: the condition may be tested before the end."""
        result = self._target.classify(reply)
        if isinstance(result, Landed):
            raise DataCorrupt(
                f"{self._target.subject}: the store created an object from the first"
                f" {self._sent_bytes} bytes of an upload that was not finished",
                hint="delete the object; this server does not support Google's resumable uploads",
            )
        self._result = Busy(cause=result.cause) if isinstance(result, Contended) else result
        return self._result

    def _set_progress(self, reply: HttpReply, most: int) -> None:
        found = re.fullmatch(r"bytes=0-(\d+)", reply.headers.get("range", ""))
        received = int(found[1]) + 1 if found else 0
        if not self._sent_bytes <= received <= most:
            raise DataCorrupt(
                f"{self._target.subject}: expected the upload to have {self._sent_bytes} to {most}"
                f" bytes, but the store reports {received}",
                hint="start the upload again",
            )
        self._sent_bytes = received


_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class GoogleTokens:
    """Bearer tokens of the application default credentials, refreshed by google-auth."""

    def __init__(self) -> None:
        """Import google-auth; credentials are looked up on first use."""
        try:
            import google.auth  # an optional dependency
            import google.auth.exceptions
            import google.auth.transport.urllib3
            import urllib3
        except ImportError as error:
            raise MissingExtra(
                "Google credentials need google-auth", hint="pip install 'tidelock[gcs]'"
            ) from error
        transport: Any = google.auth.transport.urllib3
        self._auth = google.auth
        self._failures = google.auth.exceptions
        self._send = transport.Request(urllib3.PoolManager())
        self._found: Any = None
        self._refreshing = threading.Lock()

    def headers(self) -> dict[str, str]:
        """Return the authorization headers. Raises: `PermissionDenied`, `StoreUnreachable`."""
        headers: dict[str, str] = {}
        try:
            credentials = self._current()
        except self._failures.TransportError as error:
            raise StoreUnreachable(
                f"cannot fetch Google credentials: {type(error).__name__}", hint="try again"
            ) from error
        except self._failures.GoogleAuthError as error:
            raise PermissionDenied(
                f"Google credentials were refused: {type(error).__name__}",
                hint="run `gcloud auth application-default login`, or set"
                " GOOGLE_APPLICATION_CREDENTIALS",
            ) from error
        credentials.apply(headers)
        return headers

    def _current(self) -> Any:
        # A valid token is read without the lock; threads wait only while one of them refreshes it.
        if self._found is None or not self._found.valid:
            with self._refreshing:
                if self._found is None:
                    self._found, _ = self._auth.default(scopes=[_SCOPE], request=self._send)
                if not self._found.valid:
                    self._found.refresh(self._send)
        return self._found


_ORIGIN = "https://storage.googleapis.com"
_META_FIELDS = "name,size,generation,updated"


class GcsStore(CloudStore):
    """Objects below `prefix` in `bucket`."""

    _scheme = "gs"
    _get_query = {"alt": "media"}  # noqa: RUF012 - never changed
    _version_header = "x-goog-generation"
    _page_parameter = "pageToken"

    def _transport(self, settings: Mapping[str, object]) -> Transport:
        server = config.GCS_ENDPOINT.value(settings) or os.environ.get("STORAGE_EMULATOR_HOST")
        self._origin = _origin(server) if server else _ORIGIN
        # Google credentials are sent to Google only.
        self._tokens = None if server else GoogleTokens()
        return Transport(self._clock)

    @property
    def _server(self) -> str:
        return self._origin

    def head(self, key: str) -> ObjectMeta | None:
        """Return size, version and age of the object without its bytes; None if absent."""
        request = UnsignedRequest("GET", self._path(key), {"fields": _META_FIELDS})
        reply = self._send("head", request, key)
        match reply.status:
            case 200:
                return self._meta(self._json(reply, key))
            case 404:
                self._check_bucket(reply, key)
                return None
            case _:
                raise self._error(reply, key)

    def _path(self, key: str) -> str:
        return f"{self._bucket_path()}/{quote(self._prefix + checked_key(key), safe='')}"

    def _bucket_path(self) -> str:
        return f"/storage/v1/b/{quote(self._bucket, safe='')}/o"

    def _authorized(self, request: UnsignedRequest) -> HttpRequest:
        headers = {"user-agent": "tidelock", **request.headers}
        if self._tokens is not None:
            headers.update(self._tokens.headers())
        return HttpRequest(request.method, self._origin, request.target, headers, request.body)

    def _put_request(self, key: str, body: bytes, mode: PutMode) -> UnsignedRequest:
        headers = {"content-type": "application/octet-stream"}
        return self._upload_request("media", key, mode, headers, body)

    def _upload_request(
        self, kind: str, key: str, mode: PutMode, headers: Mapping[str, str], body: bytes
    ) -> UnsignedRequest:
        name = self._prefix + checked_key(key)
        query = {"uploadType": kind, "name": name, **_condition(mode)}
        return UnsignedRequest("POST", f"/upload{self._bucket_path()}", query, headers, body)

    def _parts(self, target: UploadTarget) -> GcsPartWriter:
        headers = {"x-upload-content-type": "application/octet-stream"}
        start = self._upload_request("resumable", target.key, Create(), headers, b"")
        return GcsPartWriter(target, start)

    def _classify_put(self, reply: HttpReply, key: str, mode: PutMode) -> PutReply:
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
                self._check_bucket(reply, key)
                # The object to be replaced was deleted.
                return Refused()
            case 404:
                raise self._no_bucket()
            case _:
                raise self._error(reply, key)

    def _list_query(self, prefix: str, start_after: str) -> dict[str, str]:
        query = {
            "prefix": prefix,
            "maxResults": str(self._page_size),
            "fields": f"nextPageToken,items({_META_FIELDS})",
        }
        if start_after:
            # Google starts at the offset, the contract after it.
            query["startOffset"] = self._prefix + start_after
        return query

    def _parse_page(self, reply: HttpReply) -> tuple[Iterable[ObjectMeta], str]:
        page = self._json(reply, "")
        return map(self._meta, page.get("items", ())), str(page.get("nextPageToken") or "")

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
            raise self._malformed("", "an object without valid metadata") from error

    def _check_bucket(self, reply: HttpReply, key: str, *, is_head: bool = False) -> None:
        del key, is_head
        if self._bucket_seen or b"No such object" in reply.body:
            return
        if b"bucket does not exist" in reply.body:
            raise self._no_bucket()
        # The reason of a 404 is the same for a missing object and a missing bucket.
        self._list_page({"prefix": self._prefix, "maxResults": "1", "fields": "nextPageToken"})

    def _version(self, reply: HttpReply, key: str) -> str:
        version = super()._version(reply, key)
        if not version.isdecimal():
            raise self._malformed(key, f"the generation {version!a}")
        return version

    def _json(self, reply: HttpReply, key: str) -> Mapping[str, Any]:
        try:
            parsed = json.loads(reply.body)
        except ValueError as error:
            raise self._malformed(key, "not JSON") from error
        if not isinstance(parsed, dict):
            raise self._malformed(key, "not a JSON object")
        return parsed

    def _no_bucket(self) -> NotFound:
        return NotFound(
            f"the bucket {self._bucket} does not exist at {self._origin}",
            hint="create it, or check the name",
        )

    def _error(self, reply: HttpReply, key: str) -> TidelockError:
        if reply.status == 404 and not key:
            return self._no_bucket()
        return error_for_reply(reply, _reason(reply), subject=self._subject(key))


def _origin(endpoint: str) -> str:
    endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
    url = parse_endpoint(endpoint, config.GCS_ENDPOINT.key, hint="write it as http://host:port")
    return f"{url.scheme}://{url.netloc}"


def _condition(mode: PutMode) -> dict[str, str]:
    match mode:
        case Create():
            return {"ifGenerationMatch": "0"}
        case Match(version):
            if not (version.isascii() and version.isdecimal()):
                raise InvalidInput(
                    f"{version!a} is not a generation", hint="use one that this store returned"
                )
            return {"ifGenerationMatch": version}
        case Overwrite():
            return {}
        case _:
            assert_never(mode)


def _reason(reply: HttpReply) -> str:
    """Return the reason in an error document; "" if there is none."""
    try:
        return str(json.loads(reply.body)["error"]["errors"][0]["reason"])
    except (ValueError, KeyError, IndexError, TypeError):
        return ""
