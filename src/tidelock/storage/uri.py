"""URIs of stores, and validation of keys so that none can escape its root (L13)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidelock.core.errors import InvalidInput, ResourceInvalid, Unsupported
from tidelock.core.limits import RESOURCE_BYTES_MAX
from tidelock.core.telemetry import PROCESS
from tidelock.storage.contract import ObjectStore

_S3 = ("s3", "s3a")
_GCS = ("gs",)
_AZURE = ("abfs", "abfss", "wasb", "wasbs")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SCHEMES = ("file", "memory", *_S3, *_GCS, *_AZURE)


def is_key(key: str) -> bool:
    """Return whether `key` is a valid key."""
    return key != "" and not _problem(key)


def checked_key(key: str) -> str:
    """Return `key` if it is valid. Raises: `InvalidInput`."""
    problem = _problem(key) or ("it is empty" if not key else "")
    if problem:
        raise InvalidInput(f"{shown(key)} is not a key: {problem}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return `prefix` if it is valid; it may be empty or end with `/`. Raises: `InvalidInput`."""
    problem = _problem(prefix if prefix == "/" else prefix.removesuffix("/"))
    if problem:
        raise InvalidInput(f"{shown(prefix)} is not a prefix: {problem}")
    return prefix


@lru_cache(maxsize=1_024)
def _problem(path: str) -> str:
    if _CONTROL.search(path):
        return "it has control characters"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > RESOURCE_BYTES_MAX + 100:
        return f"it has {size} bytes; at most {RESOURCE_BYTES_MAX} are allowed"
    if path.startswith("/"):
        return "it starts with '/'"
    if "//" in path or path.endswith("/"):
        return "it has an empty part ('//')"
    if any(part in (".", "..") for part in path.split("/")):
        return "it has a '.' or '..' part"
    return ""


def shown(name: str) -> str:
    """Return `name` for a message: quoted, escaped, and truncated if long."""
    text = ascii(name)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(name)} characters)"


def is_remote(store: ObjectStore) -> bool:
    """Return whether the objects are on a server, so that each request is a round trip."""
    return store.uri.partition("://")[0] in (*_S3, *_GCS, *_AZURE)


def canonical(uri: str) -> str:
    """Return the canonical form of a resource. Raises: `ResourceInvalid`, `Unsupported`.

    `s3a` becomes `s3`, trailing slashes are removed, and a plain path becomes an absolute one.
    """
    scheme, authority, path = _split(uri)
    if scheme == "file":
        return f"file://{path}"
    return f"{scheme}://{authority}/{path}" if path else f"{scheme}://{authority}"


def _check_text(uri: str) -> None:
    """Reject text that cannot be a URI or a path."""
    if not isinstance(uri, str):
        raise ResourceInvalid(f"expected a URI or path, got {uri!r}", hint="use a string")
    try:
        size = len(uri.encode())
    except UnicodeEncodeError:
        raise ResourceInvalid(f"{shown(uri)} is not a resource: it is not valid Unicode") from None
    if not uri or uri != uri.strip():
        raise ResourceInvalid(
            f"{shown(uri)} is not a resource: it is empty or has spaces around it",
            hint="use a path, or a URI such as s3://bucket/table",
        )
    if "\0" in uri or size > 4 * RESOURCE_BYTES_MAX:
        raise ResourceInvalid(
            f"{shown(uri)} is not a resource: it has NUL bytes or is too long",
            hint=f"use at most {RESOURCE_BYTES_MAX} bytes",
        )


def _split(uri: str) -> tuple[str, str, str]:
    """Return scheme, authority and path (without outer slashes, but absolute for files)."""
    _check_text(uri)
    if uri.startswith("file:/") and not uri.startswith("file://"):
        uri = f"file://{uri.removeprefix('file:')}"  # as Hadoop prints local paths
    if "://" not in uri:
        return "file", "", _local(uri)
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES:
        raise Unsupported(
            f"{shown(uri)}: no store for the scheme {scheme!r}",
            hint=f"use one of {', '.join(SCHEMES)}, or a plain path",
        )
    if parts.query or parts.fragment:
        raise ResourceInvalid(
            f"{shown(uri)} is not a resource: it has a '?' or '#'",
            hint="percent-encode them if they are part of the name",
        )
    path = unquote(parts.path)
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ResourceInvalid(
                f"{shown(uri)} has the host {parts.netloc!r}", hint="use file:///path"
            )
        return "file", "", _local(path)
    # Hudi ignores trailing slashes; an empty part elsewhere is a mistake.
    path = path.rstrip("/").removeprefix("/")
    problem = _problem(path)
    if problem:
        raise ResourceInvalid(
            f"{shown(uri)} is not a resource: {problem}", hint=f"correct the path after {scheme}://"
        )
    if len(path.encode()) > RESOURCE_BYTES_MAX:
        raise ResourceInvalid(
            f"{shown(uri)} is too long", hint=f"use at most {RESOURCE_BYTES_MAX} bytes"
        )
    if not parts.netloc:
        place = "container@account.dfs.core.windows.net" if scheme in _AZURE else "bucket"
        raise ResourceInvalid(
            f"{shown(uri)}: expected a bucket or container, found none",
            hint=f"use {scheme}://{place}/path",
        )
    return ("s3" if scheme == "s3a" else scheme), parts.netloc, path


def _local(path: str) -> str:
    if not path:
        raise ResourceInvalid("the path is empty", hint="use the path of a folder")
    if ".." in path.split("/"):
        raise ResourceInvalid(f"{shown(path)} has a '..' part", hint="use the path without it")
    if "//" in path.rstrip("/"):
        raise ResourceInvalid(
            f"{shown(path)} has an empty part ('//')", hint="use one slash between two parts"
        )
    if _CONTROL.search(path):
        raise ResourceInvalid(
            f"{shown(path)} has control characters", hint="use the path without them"
        )
    if any(len(part.encode(errors="replace")) > 255 for part in path.split("/")):
        raise ResourceInvalid(
            f"{shown(path)} has a part of more than 255 bytes", hint="use shorter names"
        )
    full = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links, and L13 forbids that
    if len(full.encode(errors="replace")) > RESOURCE_BYTES_MAX:
        raise ResourceInvalid(
            f"{shown(path)} is too long", hint=f"use at most {RESOURCE_BYTES_MAX} bytes"
        )
    return full


def _count_request(verb: str) -> None:
    PROCESS.count(f"store.{verb}")


def open_store(uri: str, settings: Mapping[str, object] | None = None) -> ObjectStore:
    """Open the store whose root is the resource `uri`.

    Raises: `ResourceInvalid`, `Unsupported`, `MissingExtra`, `ConfigInvalid`.
    """
    scheme, authority, path = _split(uri)
    chosen = settings or {}
    if scheme == "file":
        from tidelock.storage.local import LocalStore  # each store is imported on use

        return LocalStore(Path(path), observe=_count_request)
    if scheme == "memory":
        from tidelock.storage.memory import shared_memory

        return shared_memory(authority, path)
    if scheme in _S3:
        from tidelock.storage.s3 import S3Store

        return S3Store(authority, path, chosen, observe=_count_request)
    if scheme in _GCS:
        from tidelock.storage.gcs import GcsStore

        return GcsStore(authority, path, chosen, observe=_count_request)
    from tidelock.storage.azure import AzureStore

    container, _, host = authority.partition("@")
    if not container or not host:
        raise ResourceInvalid(
            f"{shown(uri)}: expected container@account-host after '//'",
            hint="for example abfss://lake@account.dfs.core.windows.net/table",
        )
    return AzureStore(host, container, path, chosen, observe=_count_request)


_opened: dict[tuple[int, str, tuple[tuple[str, str], ...]], ObjectStore] = {}


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A URI and the settings to open it with; it can be pickled, and its repr has no settings."""

    uri: str
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)

    def open(self) -> ObjectStore:
        """Return the store at this address: opened once per process, shared, never closed.

        Raises: the errors of `open_store`.
        """
        named = tuple(sorted((key, repr(value)) for key, value in self.settings.items()))
        # A forked child opens its own store: connections are not shared between processes.
        address = (os.getpid(), self.uri, named)
        found = _opened.get(address)
        if found is None:
            # Two threads may both open one; `setdefault` keeps one of them.
            found = _opened.setdefault(address, open_store(self.uri, self.settings))
        return found
