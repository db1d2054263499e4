"""The text of Java properties files, read and written as `java.util.Properties` does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE = " \t\f"

# The characters that `Properties.store` escapes, in keys and in values.
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {c: f"\\{c}" for c in "\\=:#!"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties in `text`; of equal keys the last one wins, as in Java.

    Raises: `ValueError` for an invalid \\u escape.
    """
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _end_of_key(line)
        rest = line[end:].lstrip(_SPACE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_SPACE)
        settings[_unescaped(line[:end])] = _unescaped(rest)
    return settings


def render_properties(settings: Mapping[str, str], *, comments: Iterable[str] = ()) -> str:
    """Return the text of `settings`, in their order, after the comments.

    The text is ASCII, so it does not depend on the encoding that a reader assumes.
    """
    lines = [f"#{_one_line(comment)}" for comment in comments]
    for key, value in settings.items():
        lead = len(value) - len(value.lstrip(" "))
        # A space ends a key; in a value only leading spaces would be lost. Java escapes the first
        # of those, which preserves the others.
        shown = ("\\ " + " " * (lead - 1) if lead else "") + _escaped(value[lead:])
        lines.append(f"{_escaped(key).replace(' ', chr(92) + ' ')}={shown}")
    return "".join(f"{line}\n" for line in lines)


def _one_line(comment: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", comment)


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(letter) or _as_ascii(letter) for letter in text)


def _as_ascii(letter: str) -> str:
    if " " <= letter <= "~":
        return letter
    # Java characters are UTF-16 units: one outside the basic plane is two of them.
    units = letter.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


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
            if joined:
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
    # Java writes a character outside the basic plane as two escapes.
    return "".join(letters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
