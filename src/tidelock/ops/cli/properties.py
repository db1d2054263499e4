"""Java properties files, as Hudi's tools read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tidelock.base.errors import ConfigInvalid, NotFound, PermissionDenied
from tidelock.base.limits import PROPERTIES_BYTES_MAX

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE = " \t\f"


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


def parse_properties(text: str) -> dict[str, str]:
    """Return the settings in `text`. Raises: `ValueError` for a broken \\u escape."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _end_of_key(line)
        rest = line[end:].lstrip(_SPACE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_SPACE)
        settings[_unescaped(line[:end])] = _unescaped(rest)
    return settings


def _text(body: bytes) -> str:
    """Decode as Java does since version 9: UTF-8, and Latin-1 where it is not."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("latin-1")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blanks, with continued lines joined."""
    joined = ""
    continues = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_SPACE)
        if not continues and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        joined += line[:-1] if continues else line
        if not continues:
            yield joined
            joined = ""
    if joined:
        yield joined


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
        elif line[position] in "=:" + _SPACE:
            return position
        else:
            position += 1
    return len(line)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    letters: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\" and position < len(text):
            letter = text[position]
            position += 1
            if letter == "u":
                digits = text[position : position + 4]
                if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                    raise ValueError(f"\\u{digits} is not a \\uXXXX escape")
                letter = chr(int(digits, 16))
                position += 4
            else:
                letter = _ESCAPES.get(letter, letter)
        letters.append(letter)
    # Java writes letters beyond the basic plane as two escapes; together they are one letter.
    return "".join(letters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
