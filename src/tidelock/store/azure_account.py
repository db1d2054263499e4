"""Which Azure account, at which end point, by whose right."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidelock.base.clock import Clock
from tidelock.base.errors import ConfigInvalid
from tidelock.store import options
from tidelock.store.azure_signing import (
    Authorizer,
    SharedAccessSignature,
    SharedKey,
    identity,
)

# The account every emulator of Azure storage has; its key is published and opens nothing else.
_EMULATOR = {
    "AccountName": "devstoreaccount1",
    "AccountKey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/"
    "KBHBeksoGMGw==",
    "BlobEndpoint": "http://127.0.0.1:10000/devstoreaccount1",
}

_CREDENTIAL_KEYS = (
    options.AZURE_CONNECTION_STRING,
    options.AZURE_SAS_TOKEN,
    options.AZURE_MANAGED_IDENTITY,
    options.AZURE_CLIENT_ID,
)


@dataclass(frozen=True, slots=True)
class Account:
    """An end point, and who vouches for requests to it.

    `base` is the path before the container: emulators name the account there. `secret_query`
    goes with each request when the right to it is a signature in the query.
    """

    origin: str
    base: str
    authorizer: Authorizer = field(repr=False)
    secret_query: str = field(default="", repr=False)


def account(account_host: str, settings: Mapping[str, object], clock: Clock) -> Account:
    """Return the account that `settings` and the environment ask for.

    The order is Hudi's: connection string, signature, managed identity, service principal, and
    then whatever this machine is logged in as.
    """
    endpoint = options.AZURE_ENDPOINT.value(settings)
    connection = options.AZURE_CONNECTION_STRING.value(settings)
    sas = options.AZURE_SAS_TOKEN.value(settings)
    if (
        connection is None
        and sas is None
        and options.AZURE_MANAGED_IDENTITY.value(settings) is None
    ):
        connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if connection:
        return _from_connection_string(connection, endpoint)
    origin, base = _split(endpoint or f"https://{_blob_host(account_host)}")
    if sas:
        return Account(origin, base, SharedAccessSignature(), sas.removeprefix("?"))
    if not origin.startswith("https:"):
        raise ConfigInvalid(
            "a bearer token would travel unencrypted to the Azure end point",
            hint=f"use https, or set {options.AZURE_CONNECTION_STRING.key}",
        )
    return Account(origin, base, identity(settings, clock))


def _from_connection_string(text: str, endpoint: str | None) -> Account:
    parts = _connection_parts(text)
    name, key = parts.get("AccountName", ""), parts.get("AccountKey", "")
    sas = parts.get("SharedAccessSignature", "").removeprefix("?")
    where = endpoint or parts.get("BlobEndpoint", "")
    if not where and name:
        scheme = parts.get("DefaultEndpointsProtocol", "https")
        where = f"{scheme}://{name}.blob.{parts.get('EndpointSuffix', 'core.windows.net')}"
    if not where or not (sas or (name and key)):
        raise ConfigInvalid(
            "the Azure connection string names no account with a key, and no signature",
            hint="copy it whole: AccountName=…;AccountKey=… or BlobEndpoint=…;SharedAccess…",
        )
    origin, base = _split(where)
    if sas:
        return Account(origin, base, SharedAccessSignature(), sas)
    return Account(origin, base, SharedKey(name, key))


def _connection_parts(text: str) -> dict[str, str]:
    # Values may hold `=`: a key ends in it, a signature is full of it.
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    parts = {name.strip(): value.strip() for name, _, value in pairs}
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        return _EMULATOR
    return parts


def _blob_host(account_host: str) -> str:
    """Return the blob host of an account named by its data lake host, as in `abfss` URIs."""
    name, dfs, rest = account_host.partition(".dfs.")
    return f"{name}.blob.{rest}" if dfs else account_host


def _split(endpoint: str) -> tuple[str, str]:
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc or url.query:
        raise ConfigInvalid(
            "the Azure end point is not an http or https URL of a host",
            hint="write it as https://account.blob.core.windows.net",
        )
    return f"{url.scheme}://{url.netloc}", url.path.rstrip("/")
