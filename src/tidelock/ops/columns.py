"""Columns as a person types them: `id long, ts timestamp, tags array<string>`. Pure.

The types are Spark's, so a column list of a `CREATE TABLE` can be pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelock.base.errors import InvalidInput

_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int32(),
    "tinyint": pa.int32(),
    "short": pa.int32(),
    "smallint": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""Hudi's schemas have no whole numbers smaller than an int."""

_TOKEN: Final = re.compile(r"\s*([\w.]+|`[^`]+`|[<>(),:]|\S)")
_EXAMPLE: Final = 'for example "id long, ts timestamp, amount decimal(10,2), tags array<string>"'


def parse_columns(text: str) -> pa.Schema:
    """Return the schema of a list of columns. Raises: `InvalidInput` naming what is wrong."""
    reader = _Reader(text)
    fields = list(reader.fields(end=""))
    if not fields:
        raise InvalidInput("no columns are given", hint=_EXAMPLE)
    return pa.schema(fields)


class _Reader:
    """The words of a column list, taken one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = [found[1] for found in _TOKEN.finditer(text)]
        self._at = 0

    def fields(self, *, end: str) -> Iterator[pa.Field]:
        """Yield the columns up to `end`; `name type` and `name: type` both do."""
        if self._peek() == end:
            return
        while True:
            name = self._name()
            if self._peek() == ":":
                self._take()
            kind = self._type()
            nullable = True
            if self._peek().lower() == "not":
                self._take()
                self._expect("null")
                nullable = False
            yield pa.field(name, kind, nullable)
            if self._peek() == end:
                return
            self._expect(",")

    def _type(self) -> pa.DataType:
        word = self._take().lower()
        if word in _TYPES:
            return _TYPES[word]
        match word:
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "array":
                self._expect("<")
                item = self._type()
                self._expect(">")
                return pa.list_(item)
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                if key != pa.string():
                    raise InvalidInput("a map has strings for keys", hint=_EXAMPLE)
                return pa.map_(key, value)
            case "struct":
                self._expect("<")
                inner = list(self.fields(end=">"))
                self._expect(">")
                return pa.struct(inner)
            case _:
                raise InvalidInput(
                    f"{word!r} is no type of a column",
                    hint=f"use one of {', '.join(_TYPES)}, decimal, array, map, struct",
                )

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take()
            precision = self._number()
            if self._peek() == ",":
                self._take()
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise InvalidInput(f"decimal({precision},{scale}) cannot be: at most 38 digits in all")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        word = self._take()
        if not word.isdecimal():
            raise InvalidInput(f"{word!r} is no number of digits", hint=_EXAMPLE)
        return int(word)

    def _name(self) -> str:
        word = self._take()
        name = word[1:-1] if word.startswith("`") else word
        if not re.fullmatch(r"\w+", name):
            raise InvalidInput(f"{name!r} cannot be the name of a column", hint=_EXAMPLE)
        return name

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self) -> str:
        word = self._peek()
        if not word:
            raise InvalidInput(f"{self._text!r} ends in the middle of a column", hint=_EXAMPLE)
        self._at += 1
        return word

    def _expect(self, word: str) -> None:
        found = self._peek()
        if found.lower() != word:
            raise InvalidInput(
                f"{self._text!r}: {word!r} was expected, not {found or 'its end'!r}", hint=_EXAMPLE
            )
        self._at += 1
