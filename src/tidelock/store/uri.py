"""From a URI to a store, and from a name to a key that cannot escape it (L13)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidelock.base.errors import InvalidInput, ResourceInvalid, Unsupported
from tidelock.base.limits import RESOURCE_BYTES_MAX
from tidelock.store.contract import ObjectStore
from tidelock.store.metric_names import observe

_S3 = ("s3", "s3a")
_GCS = ("gs",)
_AZURE = ("abfs", "abfss", "wasb", "wasbs")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SCHEMES = ("file", "memory", *_S3, *_GCS, *_AZURE)


def is_key(key: str) -> bool:
    """Tell whether `key` can name an object."""
    return key != "" and not _problem(key)


def checked_key(key: str) -> str:
    """Return `key` if it names one object below a root; raise `InvalidInput` otherwise."""
    problem = _problem(key) or ("it is empty" if not key else "")
    if problem:
        raise InvalidInput(f"{shown(key)} is not a key: {problem}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return `prefix` if keys can start with it; it may be empty or end with `/`."""
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
        return f"it has {size} bytes; {RESOURCE_BYTES_MAX} are allowed"
    if path.startswith("/"):
        return "it starts with '/'"
    if "//" in path or path.endswith("/"):
        return "it has an empty part ('//')"
    if any(part in (".", "..") for part in path.split("/")):
        return "it has a '.' or '..' part"
    return ""


def shown(name: str) -> str:
    """Return `name` for a message: quoted, escaped, and cut when long."""
    text = ascii(name)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(name)} characters)"


def is_far(store: ObjectStore) -> bool:
    """Tell whether a server holds the objects, so that each request is a round trip."""
    return store.uri.partition("://")[0] in (*_S3, *_GCS, *_AZURE)


def canonical(uri: str) -> str:
    """Return the one spelling of a resource, or raise `ResourceInvalid`.

    `s3a` is `s3`; slashes at the end do not count; a plain path is a local one, made absolute.
    """
    scheme, authority, path = _split(uri)
    if scheme == "file":
        return f"file://{path}"
    return f"{scheme}://{authority}/{path}" if path else f"{scheme}://{authority}"


def _check_text(uri: str) -> None:
    """Refuse what is no text that could be a URI or a path."""
    if not isinstance(uri, str):
        raise ResourceInvalid(f"{uri!r} is not a resource: it is no string", hint="give a URI")
    try:
        size = len(uri.encode())
    except UnicodeEncodeError:
        raise ResourceInvalid(f"{shown(uri)} is not a resource: it is not valid Unicode") from None
    if not uri or uri != uri.strip():
        raise ResourceInvalid(
            f"{shown(uri)} is not a resource: it is empty or has spaces around it",
            hint="give a path, or a URI such as s3://bucket/table",
        )
    if "\0" in uri or size > 4 * RESOURCE_BYTES_MAX:
        raise ResourceInvalid(
            f"{shown(uri)} is not a resource: it has NUL bytes or is too long",
            hint=f"use at most {RESOURCE_BYTES_MAX} bytes",
        )


def _split(uri: str) -> tuple[str, str, str]:
    """Return scheme, authority and path (without slashes around it, but absolute for files)."""
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
            hint="percent-encode them if they belong to the name",
        )
    path = unquote(parts.path)
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ResourceInvalid(
                f"{shown(uri)} names the host {parts.netloc!r}", hint="write file:///path"
            )
        return "file", "", _local(path)
    # Hudi absorbs slashes at the end, one or many; an empty part elsewhere is a mistake.
    path = path.rstrip("/").removeprefix("/")
    problem = _problem(path)
    if problem:
        raise ResourceInvalid(f"{shown(uri)} is not a resource: {problem}")
    if len(path.encode()) > RESOURCE_BYTES_MAX:
        raise ResourceInvalid(
            f"{shown(uri)} is too long", hint=f"use at most {RESOURCE_BYTES_MAX} bytes"
        )
    if not parts.netloc:
        raise ResourceInvalid(f"{shown(uri)} names no bucket or container")
    return ("s3" if scheme == "s3a" else scheme), parts.netloc, path


def _local(path: str) -> str:
    if not path:
        raise ResourceInvalid("the path is empty", hint="give a folder")
    if any(part == ".." for part in path.split("/")):
        raise ResourceInvalid(f"{shown(path)} has a '..' part", hint="give the folder itself")
    if "//" in path.rstrip("/"):
        raise ResourceInvalid(f"{shown(path)} has an empty part ('//')")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise ResourceInvalid(f"{shown(path)} has control characters")
    if any(len(part.encode(errors="replace")) > 255 for part in path.split("/")):
        raise ResourceInvalid(f"{shown(path)} has a part of more than 255 bytes")
    full = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links, and L13 forbids that
    if len(full.encode(errors="replace")) > RESOURCE_BYTES_MAX:
        raise ResourceInvalid(
            f"{shown(path)} is too long", hint=f"use at most {RESOURCE_BYTES_MAX} bytes"
        )
    return full


def open_store(uri: str, settings: Mapping[str, object] | None = None) -> ObjectStore:
    """Open the store whose root is the resource `uri`.

    Raises: `ResourceInvalid`, `Unsupported`, `MissingExtra`, `ConfigInvalid`.
    """
    scheme, authority, path = _split(uri)
    chosen = settings or {}
    if scheme == "file":
        from tidelock.store.local import LocalStore  # each store loads on use

        return LocalStore(Path(path), observe=observe)
    if scheme == "memory":
        from tidelock.store.memory import shared_memory

        return shared_memory(authority, path)
    if scheme in _S3:
        from tidelock.store.s3 import S3Store

        return S3Store(authority, path, chosen, observe=observe)
    if scheme in _GCS:
        from tidelock.store.gcs import GcsStore

        return GcsStore(authority, path, chosen, observe=observe)
    from tidelock.store.azure import AzureStore

    container, _, host = authority.partition("@")
    if not container or not host:
        raise ResourceInvalid(
            f"{shown(uri)}: the part after '//' must be container@account-host",
            hint="such as abfss://lake@account.dfs.core.windows.net/table",
        )
    return AzureStore(host, container, path, chosen, observe=observe)
