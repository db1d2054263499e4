"""Azure Blob Storage: block blobs over the REST API, each request sent once.

A version is the ETag with its quotes.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import Any, Unpack
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    ConfigInvalid,
    MissingExtra,
    NotFound,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
)
from tidelock.core.outcome import Landed
from tidelock.storage import config
from tidelock.storage.cloud import (
    CloudOptions,
    CloudPartWriter,
    CloudStore,
    UnsignedRequest,
    UploadTarget,
)
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
    error_code,
    error_for_reply,
    http_date_ms,
    parse_endpoint,
    parse_xml,
    text_of,
)

_SCOPE = "https://storage.azure.com/.default"
_TOKEN_MARGIN_S = 300
_SIGNED_HEADERS = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


class SharedKey:
    """The account key, which signs each request and is never sent."""

    def __init__(self, account: str, key: str) -> None:
        """Decode the key; raises `ConfigInvalid` if it is not base64."""
        self._account = account
        try:
            self._key = base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise ConfigInvalid(
                f"the AccountKey of the Azure account {account} is not base64",
                hint="copy the connection string again",
            ) from error

    def headers(self, request: UnsignedRequest) -> dict[str, str]:
        """Return the header with the signature of the request."""
        signature = hmac.digest(self._key, self.string_to_sign(request).encode(), "sha256")
        encoded = base64.b64encode(signature).decode()
        return {"authorization": f"SharedKey {self._account}:{encoded}"}

    def string_to_sign(self, request: UnsignedRequest) -> str:
        """Return the canonical text of the request; Azure computes the same text to verify it."""
        headers = request.headers
        values = dict(headers)
        if values.get("content-length") == "0":
            del values["content-length"]
        lines = [
            request.method,
            *(values.get(name, "") for name in _SIGNED_HEADERS),
            *(f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")),
            f"/{self._account}{request.path}",
            *(f"{name}:{request.query[name]}" for name in sorted(request.query)),
        ]
        return "\n".join(lines)


class SharedAccessSignature:
    """A shared access signature, which the transport adds to the query of each request."""

    def headers(self, request: UnsignedRequest) -> dict[str, str]:
        """Return nothing: the signature is in the query."""
        del request
        return {}


class BearerToken:
    """Tokens of an azure-identity credential, each used until shortly before it expires."""

    def __init__(self, credential: Any, clock: Clock) -> None:
        """Request the first token on first use."""
        self._credential = credential
        self._clock = clock
        self._token, self._expires_epoch_s = "", 0
        self._fetching = threading.Lock()

    def headers(self, request: UnsignedRequest) -> dict[str, str]:
        """Return the header with a valid token."""
        del request
        from azure.core.exceptions import (  # present with azure-identity
            AzureError,
            ServiceRequestError,
            ServiceResponseError,
        )

        with self._fetching:
            now_epoch_s = self._clock.now().wall_epoch_ms // 1000
            if self._expires_epoch_s - now_epoch_s < _TOKEN_MARGIN_S:
                try:
                    fetched = self._credential.get_token(_SCOPE)
                except (ServiceRequestError, ServiceResponseError) as error:
                    raise StoreUnreachable(
                        f"cannot fetch Azure credentials: {type(error).__name__}", hint="try again"
                    ) from error
                except AzureError as error:
                    raise PermissionDenied(
                        f"Azure credentials were refused: {type(error).__name__}",
                        hint="run `az login`, or set a connection string or a signature",
                    ) from error
                self._token, self._expires_epoch_s = fetched.token, fetched.expires_on
            return {"authorization": f"Bearer {self._token}"}


def identity(settings: Mapping[str, object], clock: Clock) -> BearerToken:
    """Return the identity in the settings, in Hudi's order, or else that of this machine."""
    try:
        from azure import identity as found  # an optional dependency
    except ImportError as error:
        raise MissingExtra(
            "Azure credentials need azure-identity", hint="pip install 'tidelock[azure]'"
        ) from error
    tenant = config.AZURE_TENANT.value(settings)
    client_id = config.AZURE_CLIENT_ID.value(settings)
    secret = config.AZURE_CLIENT_SECRET.value(settings)
    if managed := config.AZURE_MANAGED_IDENTITY.value(settings):
        return BearerToken(found.ManagedIdentityCredential(client_id=managed), clock)
    if tenant and client_id and secret:
        return BearerToken(found.ClientSecretCredential(tenant, client_id, secret), clock)
    return BearerToken(found.DefaultAzureCredential(), clock)


# The account of every emulator of Azure storage; its key is public and valid for nothing else.
_EMULATOR = {
    "AccountName": "devstoreaccount1",
    "AccountKey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/"
    "KBHBeksoGMGw==",
    "BlobEndpoint": "http://127.0.0.1:10000/devstoreaccount1",
}

Authorizer = SharedKey | SharedAccessSignature | BearerToken


@dataclass(frozen=True, slots=True)
class Account:
    """An endpoint, and how requests to it are authorised.

    `base` is the path before the container: emulators put the account there. `secret_query` is the
    shared access signature, added to the query of each request.
    """

    origin: str
    base: str
    authorizer: Authorizer = field(repr=False)
    secret_query: str = field(default="", repr=False)


def account(account_host: str, settings: Mapping[str, object], clock: Clock) -> Account:
    """Return the account that the settings and the environment select.

    The order is Hudi's: connection string, signature, managed identity, service principal, and
    then the identity that this machine is logged in with.
    """
    endpoint = config.AZURE_ENDPOINT.value(settings)
    connection = config.AZURE_CONNECTION_STRING.value(settings)
    sas = config.AZURE_SAS_TOKEN.value(settings)
    if connection is None and sas is None and config.AZURE_MANAGED_IDENTITY.value(settings) is None:
        connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if connection:
        return _from_connection_string(connection, endpoint)
    origin, base = _split(endpoint or f"https://{_blob_host(account_host)}")
    if sas:
        return Account(origin, base, SharedAccessSignature(), sas.removeprefix("?"))
    if not origin.startswith("https:"):
        raise ConfigInvalid(
            "the Azure endpoint is not https: a bearer token would be sent unencrypted",
            hint=f"use https, or set {config.AZURE_CONNECTION_STRING.key}",
        )
    return Account(origin, base, identity(settings, clock))


def _from_connection_string(text: str, endpoint: str | None) -> Account:
    # Values may contain `=`: keys end with it, signatures are full of it.
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    parts = {name.strip(): value.strip() for name, _, value in pairs}
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        parts = _EMULATOR
    name, key = parts.get("AccountName", ""), parts.get("AccountKey", "")
    sas = parts.get("SharedAccessSignature", "").removeprefix("?")
    where = endpoint or parts.get("BlobEndpoint", "")
    if not where and name:
        scheme = parts.get("DefaultEndpointsProtocol", "https")
        where = f"{scheme}://{name}.blob.{parts.get('EndpointSuffix', 'core.windows.net')}"
    if not where or not (sas or (name and key)):
        raise ConfigInvalid(
            "the Azure connection string has neither an account with a key nor a signature",
            hint="copy all of it: AccountName=…;AccountKey=… or BlobEndpoint=…;SharedAccess…",
        )
    origin, base = _split(where)
    if sas:
        return Account(origin, base, SharedAccessSignature(), sas)
    return Account(origin, base, SharedKey(name, key))


def _blob_host(account_host: str) -> str:
    """Return the blob host of an account named by its data lake host, as in `abfss` URIs."""
    name, dfs, rest = account_host.partition(".dfs.")
    return f"{name}.blob.{rest}" if dfs else account_host


def _split(endpoint: str) -> tuple[str, str]:
    url = parse_endpoint(
        endpoint, "the Azure endpoint", hint="for example https://account.blob.core.windows.net"
    )
    return f"{url.scheme}://{url.netloc}", url.path.rstrip("/")


class AzurePartWriter(CloudPartWriter):
    """Stages the blocks of a blob. Block ids contain a nonce: concurrent uploads do not mix."""

    def __init__(self, target: UploadTarget, nonce: str) -> None:
        """Create the writer; sends no request."""
        super().__init__(target)
        self._nonce = nonce
        self._blocks: list[str] = []

    def send(self, body: bytes) -> None:
        """Stage the next block."""
        # All ids of a blob have the same length.
        block = base64.b64encode(f"{self._nonce}-{len(self._blocks):06}".encode()).decode()
        headers = {"content-length": str(len(body)), "content-type": "application/octet-stream"}
        query = {"comp": "block", "blockid": block}
        request = UnsignedRequest("PUT", self._target.path, query, headers, body)
        reply = self._target.send("put", request)
        if reply.status != 201:
            raise self._target.error(reply)
        self._blocks.append(block)

    def complete(self, last: bytes) -> PutReply:
        """Stage the last block, and create the blob from all blocks."""
        self.send(last)
        body = _block_list(self._blocks)
        headers = {
            "content-length": str(len(body)),
            "content-type": "application/xml",
            **condition_headers(Create()),
        }

        def classify(reply: HttpReply) -> PutReply | Contended:
            if reply.status == 400 and error_code(reply.body) == "InvalidBlockList":
                # Another writer created the blob, which discarded all uncommitted blocks.
                return Refused()
            return self._target.classify(reply)

        query = {"comp": "blocklist"}
        request = UnsignedRequest("PUT", self._target.path, query, headers, body)
        return self._target.create(request, classify)

    def abort(self) -> None:
        """Do nothing: Azure has no request that removes blocks, and expires them by itself."""
        self._blocks.clear()


def _block_list(blocks: list[str]) -> bytes:
    root = ET.Element("BlockList")
    for block in blocks:
        ET.SubElement(root, "Latest").text = block
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


_API_VERSION = "2021-12-02"
_CONTAINER_CODES = frozenset({"ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"})
_HINTS = {
    "AuthenticationFailed": "check the key or signature, and the clock of this machine",
    "AuthorizationPermissionMismatch": "grant the role Storage Blob Data Contributor",
    "UnauthorizedBlobOverwrite": "the signature needs permission to write, not only to create",
}


class AzureStore(CloudStore):
    """Blobs below `prefix` in `container` of the account at `account_host`."""

    _scheme = "abfss"
    _deleted = frozenset({202})
    _delete_headers = {"x-ms-delete-snapshots": "include"}  # noqa: RUF012 - never changed
    _page_parameter = "marker"

    def __init__(
        self,
        account_host: str,
        container: str,
        prefix: str,
        settings: Mapping[str, object] = {},
        **options: Unpack[CloudOptions],
    ) -> None:
        """Resolve settings and environment; no request is sent yet."""
        self._host, self._container = account_host, container
        super().__init__(f"{container}@{account_host}", prefix, settings, **options)

    def _transport(self, settings: Mapping[str, object]) -> Transport:
        self._account = account(self._host, settings, self._clock)
        return Transport(self._clock, secret_query=self._account.secret_query)

    @property
    def _server(self) -> str:
        return self._account.origin

    def _authorized(self, request: UnsignedRequest) -> HttpRequest:
        path = f"{self._account.base}/{quote(self._container, safe='')}{request.path}"
        headers = {
            **request.headers,
            "x-ms-date": formatdate(self._clock.now().wall_epoch_ms // 1000, usegmt=True),
            "x-ms-version": _API_VERSION,
        }
        request = replace(request, path=path, headers=headers)
        headers.update(self._account.authorizer.headers(request))
        headers["user-agent"] = "tidelock"
        origin = self._account.origin
        return HttpRequest(request.method, origin, request.target, headers, request.body)

    def _put_request(self, key: str, body: bytes, mode: PutMode) -> UnsignedRequest:
        headers = {
            "content-length": str(len(body)),
            "content-type": "application/octet-stream",
            "x-ms-blob-type": "BlockBlob",
            **condition_headers(mode),
        }
        return UnsignedRequest("PUT", self._path(key), headers=headers, body=body)

    def _parts(self, target: UploadTarget) -> AzurePartWriter:
        return AzurePartWriter(target, self._ids.uuid())

    def _classify_put(self, reply: HttpReply, key: str, mode: PutMode) -> PutReply:
        code = _code(reply)
        match reply.status:
            case 201:
                version = reply.headers.get("etag", "")
                return Landed(version) if version else Unclear("the reply has no ETag")
            case 412 if code.startswith("LeaseId"):
                raise PermissionDenied(
                    f"{self._subject(key)}: another client holds an Azure lease on this blob",
                    hint="break the lease: writes are guarded by conditions only",
                )
            case 412:
                return Refused()
            case 409 if code == "BlobAlreadyExists":
                return Refused()
            case 404 if isinstance(mode, Match) and code not in _CONTAINER_CODES:
                # The object to be replaced was deleted.
                return Refused()
            case 409 if code not in _CONTAINER_CODES:
                return Busy(cause=f"409 {code or 'Conflict'}")
            case _:
                raise self._error(reply, key)

    def _list_query(self, prefix: str, start_after: str) -> dict[str, str]:
        # Azure cannot start in the middle: blobs before `start_after` are read and dropped.
        del start_after
        return {
            "comp": "list",
            "maxresults": str(self._page_size),
            "prefix": prefix,
            "restype": "container",
        }

    def _bucket_path(self) -> str:
        return ""

    def _parse_page(self, reply: HttpReply) -> tuple[Iterable[ObjectMeta], str]:
        page = parse_xml(reply.body, subject=self.uri)
        blobs = page.iterfind("{*}Blobs/{*}Blob")
        found = (meta for blob in blobs if (meta := self._listed(blob)) is not None)
        return found, text_of(page, "NextMarker")

    def _listed(self, blob: ET.Element) -> ObjectMeta | None:
        properties = blob.find("{*}Properties")
        name = blob.find("{*}Name")
        if properties is None or name is None:
            raise self._malformed("", "a listing without names or properties")
        # A name that XML cannot represent is percent-encoded.
        encoded = name.get("Encoded") == "true"
        text = unquote(name.text or "") if encoded else name.text or ""
        key = text.removeprefix(self._prefix)
        if text_of(properties, "ResourceType") == "directory" or not key:
            return None
        modified = http_date_ms(text_of(properties, "Last-Modified"))
        size = text_of(properties, "Content-Length")
        if not key.endswith("/") and (modified is None or not size.isdecimal()):
            raise self._malformed(key, "a listing without a valid size or time")
        # Listings omit the quotes that headers have.
        version = text_of(properties, "Etag")
        version = version if version.startswith('"') else f'"{version}"'
        return ObjectMeta(key, int(size or "0"), version, modified or 0)

    def _check_bucket(self, reply: HttpReply, key: str, *, is_head: bool = False) -> None:
        del is_head
        if _code(reply) in _CONTAINER_CODES:
            raise self._error(reply, key)

    def _error(self, reply: HttpReply, key: str) -> TidelockError:
        code = _code(reply)
        if code in _CONTAINER_CODES:
            return NotFound(
                f"the container {self._container} does not exist at {self._account.origin}: {code}",
                hint="create it, or check the name and the account",
            )
        return error_for_reply(reply, code, subject=self._subject(key), hint=_HINTS.get(code, ""))


def _code(reply: HttpReply) -> str:
    return reply.headers.get("x-ms-error-code") or error_code(reply.body)
