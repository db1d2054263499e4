"""Properties files that a command is given, as Hudi's tools read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelock.base.errors import ConfigInvalid, NotFound, PermissionDenied
from tidelock.base.javaproperties import parse_properties
from tidelock.base.limits import PROPERTIES_BYTES_MAX
from tidelock.store.uri import canonical, open_store

_FILE = "file://"
_INCLUDE = "include"


def read_properties(place: str, settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the settings in a properties file; the last of two equal keys wins, as in Java.

    `place` is a path or a URI; `settings` are those of the store that a URI names. As in Hudi a
    file may include another one beside it, whose settings it wins over.
    Raises: `NotFound`, `PermissionDenied`, `ConfigInvalid`, `ResourceInvalid`, `Unsupported`.
    """
    read: list[str] = []
    found: dict[str, str] = {}
    uri = canonical(place)
    while uri:
        if uri in read:
            raise ConfigInvalid(f"the properties files {' and '.join(read)} include each other")
        read.append(uri)
        own = _read_one(uri, settings or {})
        included = own.pop(_INCLUDE, "")
        found = {**own, **found}
        beside = included if "/" in included else f"{uri.rpartition('/')[0]}/{included}"
        uri = canonical(beside) if included else ""
    return found


def _read_one(place: str, settings: Mapping[str, object]) -> dict[str, str]:
    uri = place
    if uri.startswith(_FILE):
        body = _from_disk(Path(uri.removeprefix(_FILE)))
    else:
        body = _from_store(uri, settings)
    if len(body) > PROPERTIES_BYTES_MAX:
        raise ConfigInvalid(f"the properties file {place} has over {PROPERTIES_BYTES_MAX} bytes")
    try:
        return parse_properties(_text(body))
    except ValueError as error:
        raise ConfigInvalid(f"the properties file {place} is wrong: {error}") from error


def _from_disk(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(PROPERTIES_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise NotFound(f"there is no properties file {path}") from error
    except PermissionError as error:
        raise PermissionDenied(f"the properties file {path} may not be read") from error
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"the properties file {path} cannot be read: {error}") from error


def _from_store(uri: str, settings: Mapping[str, object]) -> bytes:
    folder, _, name = uri.rpartition("/")
    store = open_store(folder, settings)
    try:
        found = store.get(name, end=PROPERTIES_BYTES_MAX + 1)
    finally:
        store.close()
    if found is None:
        raise NotFound(f"there is no properties file {uri}")
    return found.body


def _text(body: bytes) -> str:
    """Decode as Java does since version 9: UTF-8, and Latin-1 where it is not."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("latin-1")
