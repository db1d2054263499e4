"""One statement, read: its tree by sqlglot, and the places that its text has in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.base.errors import InvalidInput
from tidelock.pipeline.sql.text import Span, mistake

_BLANK: Final = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*(?!\+).*?\*/)*", re.DOTALL)
_WORD: Final = re.compile(r"\w+")
_EXPLAIN: Final = re.compile(
    r"EXPLAIN(?:\s+(?:EXTENDED|CODEGEN|COST|FORMATTED))?(?=[\s(])", re.IGNORECASE
)
_OPAQUE: Final = frozenset({"SHOW", "SET", "RESET", "USE", "MSCK", "ANALYZE", "ADD", "LIST"})
"""Statements that Spark's grammar has and sqlglot keeps as text."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement. `tree` is None for one that sqlglot does not read; `error` says why, if wrong.

    Places in the tree are places in `text`. `args` are the values of parameters in its text.
    """

    text: str
    keyword: str
    tree: exp.Expr | None = None
    error: InvalidInput | None = None
    args: Any = None

    @property
    def tokens(self) -> list[Token]:
        """The words of the statement."""
        return _tokens(self.text)


def read(text: str) -> Statement:
    """Read one statement. Raises: `InvalidInput` for no statement, or several."""
    start = _blank_end(text)
    found = _WORD.match(text, start)
    keyword = found[0].upper() if found else ""
    if start == len(text):
        raise InvalidInput("there is no statement", hint="give one, such as SELECT * FROM t")
    if keyword in _OPAQUE:
        return Statement(text, keyword)
    readable = text
    explains = _EXPLAIN.match(text, start)
    if keyword == "CALL" or explains:
        # What follows is read for itself; blanks in place of the words keep its places.
        end = explains.end() if explains else start + len(keyword)
        readable = " " * end + text[end:]
    try:
        with _quiet():
            trees = Spark().parse(readable)
    except TokenError as error:
        return Statement(text, keyword, error=mistake(text, None, _first_line(str(error))))
    except ParseError as error:
        return Statement(text, keyword, error=_located(text, error))
    except SqlglotError as error:
        return Statement(text, keyword, error=InvalidInput(_first_line(str(error))))
    several = [tree for tree in trees if tree is not None]
    if len(several) != 1:
        raise InvalidInput(
            f"{len(several)} statements were given, and one is carried out at a time",
            hint="split them at the semicolons",
        )
    return Statement(text, keyword, several[0])


def split(text: str) -> list[str]:
    """Return the statements of a script, without the semicolons between them.

    Raises: `InvalidInput` for a text or a comment that does not end.
    """
    try:
        ends = [t.start for t in Spark().tokenize(text) if t.token_type is TokenType.SEMICOLON]
    except TokenError as error:
        raise InvalidInput(_first_line(str(error)), hint="close the quotes") from None
    parts, start = [], 0
    for end in [*ends, len(text)]:
        part = text[start:end]
        if _blank_end(part) < len(part):
            parts.append(part.strip())
        start = end + 1
    return parts


def place_of(node: exp.Expr | None) -> Span | None:
    """Return where a node is, as far as its names and values tell; None if nothing does."""
    if node is None:
        return None
    spots = [
        (each.meta["start"], each.meta["end"] + 1) for each in node.walk() if "start" in each.meta
    ]
    if not spots:
        return None
    return Span(min(start for start, _ in spots), max(end for _, end in spots))


def place_of_word(statement: Statement, word: str) -> Span | None:
    """Return where the statement first has a word; None if it has not."""
    for token in statement.tokens if word else ():
        if token.text.lower() == word.lower():
            return Span(token.start, token.end + 1)
    return None


def closing(tokens: list[Token], at: int) -> int:
    """Return the index of the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(tokens)):
        if tokens[index].token_type is TokenType.L_PAREN:
            depth += 1
        elif tokens[index].token_type is TokenType.R_PAREN:
            depth -= 1
            if depth == 0:
                return index
    return len(tokens) - 1


def leading_with(statement: Statement) -> Span | None:
    """Return the WITH clause that stands before INSERT or MERGE, if one does."""
    if statement.keyword != "WITH":
        return None
    depth = 0
    for token in statement.tokens:
        depth += deeper(token)
        if depth == 0 and token.text.upper() in ("INSERT", "MERGE"):
            return Span(0, token.start)
    return None


def deeper(token: Token) -> int:
    """Return 1 for an opening bracket, -1 for a closing one."""
    return (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)


def rendered(node: exp.Expr) -> str:
    """Return an expression as Spark's SQL."""
    return node.sql(dialect="spark")


def _tokens(text: str) -> list[Token]:
    return Spark().tokenize(text)


def _blank_end(text: str) -> int:
    found = _BLANK.match(text)
    return found.end() if found else 0


def _located(text: str, error: ParseError) -> InvalidInput:
    for found in error.errors:
        line, column, word = found.get("line"), found.get("col"), str(found.get("highlight") or "")
        if not line or not column:
            continue
        lines = text.split("\n")
        # sqlglot's column is that of the word's last letter.
        end = sum(len(each) + 1 for each in lines[: line - 1]) + column
        span = Span(max(0, end - max(1, len(word))), end)
        what = f"{word!r} is not expected here" if word else str(found.get("description"))
        return mistake(text, span, what, hint="see docs/sql.md for what can be said")
    return InvalidInput(_first_line(str(error)))


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "the statement cannot be read"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep sqlglot from warning of statements that it leaves as text: Spark reads those."""
    logger = logging.getLogger("sqlglot")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
