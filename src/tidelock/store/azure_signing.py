"""Who asks Azure: a shared key that signs, a signature in the query, or a bearer token."""

from __future__ import annotations

import base64
import binascii
import hmac
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Protocol

from tidelock.base.clock import Clock
from tidelock.base.errors import ConfigInvalid, MissingExtra, PermissionDenied, StoreUnreachable
from tidelock.store import options

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


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A request before anybody vouches for it; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class Authorizer(Protocol):
    """Vouches for requests."""

    def headers(self, request: Unsigned) -> dict[str, str]:
        """Return the headers to add."""
        ...


class SharedKey:
    """The account's key, which signs each request and never travels."""

    def __init__(self, account: str, key: str) -> None:
        """Decode the key; raises `ConfigInvalid` if it is not base64."""
        self._account = account
        try:
            self._key = base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise ConfigInvalid(
                f"the AccountKey of the Azure account {account} is not base64",
                hint="copy the connection string anew",
            ) from error

    def headers(self, request: Unsigned) -> dict[str, str]:
        """Return the signature of the request."""
        signature = hmac.digest(self._key, self.string_to_sign(request).encode(), "sha256")
        encoded = base64.b64encode(signature).decode()
        return {"authorization": f"SharedKey {self._account}:{encoded}"}

    def string_to_sign(self, request: Unsigned) -> str:
        """Return the text that Azure signs too, to compare."""
        headers = request.headers
        values = {name: headers.get(name, "") for name in _SIGNED_HEADERS}
        if values["content-length"] == "0":
            values["content-length"] = ""
        own = sorted(name for name in headers if name.startswith("x-ms-"))
        lines = [
            request.method,
            *(values[name] for name in _SIGNED_HEADERS),
            *(f"{name}:{headers[name]}" for name in own),
            f"/{self._account}{request.path}",
            *(f"{name}:{request.query[name]}" for name in sorted(request.query)),
        ]
        return "\n".join(lines)


class SharedAccessSignature:
    """A signature that the transport adds to the query of each request."""

    def headers(self, request: Unsigned) -> dict[str, str]:
        """Return nothing: the query says it all."""
        del request
        return {}


class BearerToken:
    """Tokens of an azure-identity credential, each kept until shortly before its end."""

    def __init__(self, credential: Any, clock: Clock) -> None:
        """Ask `credential` when a token is first wanted."""
        self._credential = credential
        self._clock = clock
        self._token, self._expires_epoch_s = "", 0
        self._fetching = threading.Lock()

    def headers(self, request: Unsigned) -> dict[str, str]:
        """Return the token that is good now."""
        del request
        return {"authorization": f"Bearer {self._current()}"}

    def _current(self) -> str:
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
                        f"Azure credentials could not be fetched: {type(error).__name__}",
                        hint="try again",
                    ) from error
                except AzureError as error:
                    raise PermissionDenied(
                        f"Azure credentials were refused: {type(error).__name__}",
                        hint="run `az login`, or set a connection string or a signature",
                    ) from error
                self._token, self._expires_epoch_s = fetched.token, fetched.expires_on
            return self._token


def identity(settings: Mapping[str, object], clock: Clock) -> BearerToken:
    """Return the identity of the settings, in Hudi's order, or else the one of this machine."""
    try:
        from azure import identity as found  # an extra
    except ImportError as error:
        raise MissingExtra(
            "Azure credentials need azure-identity", hint="pip install 'tidelock[azure]'"
        ) from error
    managed = options.AZURE_MANAGED_IDENTITY.value(settings)
    tenant = options.AZURE_TENANT.value(settings)
    client_id = options.AZURE_CLIENT_ID.value(settings)
    secret = options.AZURE_CLIENT_SECRET.value(settings)
    if managed:
        return BearerToken(found.ManagedIdentityCredential(client_id=managed), clock)
    if tenant and client_id and secret:
        return BearerToken(found.ClientSecretCredential(tenant, client_id, secret), clock)
    return BearerToken(found.DefaultAzureCredential(), clock)


def date_header(clock: Clock) -> str:
    """Return the present as Azure wants it."""
    return formatdate(clock.now().wall_epoch_ms // 1000, usegmt=True)
