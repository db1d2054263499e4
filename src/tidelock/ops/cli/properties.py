"""Properties files that a command is given, as Hudi's tools read them."""

from __future__ import annotations

from pathlib import Path

from tidelock.base.errors import ConfigInvalid, NotFound, PermissionDenied
from tidelock.base.javaproperties import parse_properties
from tidelock.base.limits import PROPERTIES_BYTES_MAX


def read_properties(path: Path) -> dict[str, str]:
    """Return the settings in a properties file; the last of two equal keys wins, as in Java.

    Raises: `NotFound`, `PermissionDenied`, `ConfigInvalid`.
    """
    try:
        with path.open("rb") as file:
            body = file.read(PROPERTIES_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise NotFound(f"there is no properties file {path}") from error
    except PermissionError as error:
        raise PermissionDenied(f"the properties file {path} may not be read") from error
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"the properties file {path} cannot be read: {error}") from error
    if len(body) > PROPERTIES_BYTES_MAX:
        raise ConfigInvalid(f"the properties file {path} has over {PROPERTIES_BYTES_MAX} bytes")
    try:
        return parse_properties(_text(body))
    except ValueError as error:
        raise ConfigInvalid(f"the properties file {path} is wrong: {error}") from error


def _text(body: bytes) -> str:
    """Decode as Java does since version 9: UTF-8, and Latin-1 where it is not."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("latin-1")
