"""SQL statements: parsing with sqlglot, positions in the text, and error messages. Pure."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters; `end` is exclusive."""

    start: int
    end: int

    def __contains__(self, other: Span) -> bool:
        """Return whether another span lies within this one."""
        return self.start <= other.start and other.end <= self.end


def sql_error(text: str, at: int | Span | None, message: str, *, hint: str = "") -> InvalidInput:
    """Return the error for a statement, with the line of the mistake and a caret below it.

    The message begins with the 1-based position, such as `line 2:14:`.
    """
    if at is None:
        return InvalidInput(message, hint=hint)
    span = at if isinstance(at, Span) else Span(at, at + 1)
    start = min(span.start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    number, column = text.count("\n", 0, start) + 1, start - line_start
    width = max(1, min(span.end - start, len(line) - column))
    # Tabs are kept, so that the caret stays aligned.
    indent = "".join("\t" if letter == "\t" else " " for letter in line[:column])
    return InvalidInput(
        f"line {number}:{column + 1}: {message}\n  {line}\n  {indent}{'^' * width}", hint=hint
    )


def substitute(text: str, edits: Iterable[tuple[Span, str]], within: Span | None = None) -> str:
    """Return the text, or the part `within` it, with spans replaced."""
    range_ = within or Span(0, len(text))
    parts, at = [], range_.start
    for span, replacement in sorted(edits, key=lambda edit: edit[0].start):
        if span not in range_:
            continue
        parts += [text[at : span.start], replacement]
        at = span.end
    return "".join([*parts, text[at : range_.end]])


def quoted(name: str) -> str:
    """Return a name as a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known names that are closest to an unknown one."""
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(by_lower[each] for each in close)}?"
    available = ", ".join(sorted(by_lower.values())[:12])
    return f"available: {available}" if available else ""


_BLANK: Final = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*(?!\+).*?\*/)*", re.DOTALL)
_WORD: Final = re.compile(r"\w+")
_EXPLAIN: Final = re.compile(
    r"EXPLAIN(?:\s+(?:EXTENDED|CODEGEN|COST|FORMATTED))?(?=[\s(])", re.IGNORECASE
)
_UNPARSED: Final = frozenset({"SHOW", "SET", "RESET", "USE", "MSCK", "ANALYZE", "ADD", "LIST"})
"""Statements that only Spark's grammar covers; sqlglot keeps them as text."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement.

    `tree` is None if sqlglot does not parse the statement; `error` is set if it is invalid.
    Positions in the tree are positions in `text`. `args` are the values of its parameters.
    """

    text: str
    keyword: str
    tree: exp.Expr | None = None
    error: InvalidInput | None = None
    args: Any = None

    @property
    def tokens(self) -> list[Token]:
        return Spark().tokenize(self.text)

    def invalid(
        self, at: exp.Expr | Span | int | str | None, message: str, *, hint: str = ""
    ) -> InvalidInput:
        """Return the error at a node, a span, an index, or the first occurrence of a word."""
        if isinstance(at, str):
            at = span_of_word(self, at)
        elif isinstance(at, exp.Expr):
            at = span_of(at)
        return sql_error(self.text, at, message, hint=hint)


def parse(text: str) -> Statement:
    """Parse one statement. Raises: `InvalidInput` if there is none, or more than one."""
    start = _skip_blanks(text)
    found = _WORD.match(text, start)
    keyword = found[0].upper() if found else ""
    if start == len(text):
        raise InvalidInput("the statement is empty", hint="for example SELECT * FROM t")
    if keyword in _UNPARSED:
        return Statement(text, keyword)
    parsable = text
    explains = _EXPLAIN.match(text, start)
    if keyword == "CALL" or explains:
        # The rest is parsed on its own; blanks in place of the keyword keep its positions.
        end = explains.end() if explains else start + len(keyword)
        parsable = " " * end + text[end:]
    try:
        with _silenced():
            trees = Spark().parse(parsable)
    except ParseError as error:
        return Statement(text, keyword, error=_parse_error(text, error))
    except SqlglotError as error:
        return Statement(text, keyword, error=InvalidInput(_first_line(str(error))))
    statements = [tree for tree in trees if tree is not None]
    if len(statements) != 1:
        raise InvalidInput(
            f"expected one statement, got {len(statements)}",
            hint="run the statements one at a time",
        )
    return Statement(text, keyword, statements[0])


def split_statements(text: str) -> list[str]:
    """Return the statements of a script, without the semicolons between them.

    Raises: `InvalidInput` for an unterminated string or comment.
    """
    try:
        ends = [t.start for t in Spark().tokenize(text) if t.token_type is TokenType.SEMICOLON]
    except TokenError as error:
        raise InvalidInput(_first_line(str(error)), hint="close the quotes") from None
    parts, start = [], 0
    for end in [*ends, len(text)]:
        part = text[start:end]
        if _skip_blanks(part) < len(part):
            parts.append(part.strip())
        start = end + 1
    return parts


def span_of(node: exp.Expr | None) -> Span | None:
    """Return the span of a node's names and literals; None if sqlglot has no positions for it."""
    if node is None:
        return None
    spans = [
        (each.meta["start"], each.meta["end"] + 1) for each in node.walk() if "start" in each.meta
    ]
    if not spans:
        return None
    return Span(min(start for start, _ in spans), max(end for _, end in spans))


def span_of_word(statement: Statement, word: str) -> Span | None:
    """Return the span of the first occurrence of a word; None if there is none."""
    for token in statement.tokens if word else ():
        if token.text.lower() == word.lower():
            return Span(token.start, token.end + 1)
    return None


def closing_bracket(tokens: list[Token], at: int) -> int:
    """Return the index of the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(tokens)):
        change = depth_change(tokens[index])
        depth += change
        if change < 0 and depth == 0:
            return index
    return len(tokens) - 1


def with_clause(statement: Statement) -> Span | None:
    """Return the WITH clause in front of INSERT or MERGE, if any."""
    index = top_level(statement, "INSERT", "MERGE") if statement.keyword == "WITH" else None
    return None if index is None else Span(0, statement.tokens[index].start)


def top_level(statement: Statement, *words: str) -> int | None:
    """Return the index of the first of these keywords outside of brackets."""
    depth = 0
    quoted_types = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING)
    for index, token in enumerate(statement.tokens):
        depth += depth_change(token)
        is_word = token.token_type not in quoted_types and token.text.upper() in words
        if depth == 0 and is_word:
            return index
    return None


def depth_change(token: Token) -> int:
    """Return 1 for an opening bracket, -1 for a closing one."""
    return (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)


def to_sql(node: exp.Expr) -> str:
    """Return an expression as Spark's SQL."""
    return node.sql(dialect="spark")


def _skip_blanks(text: str) -> int:
    found = _BLANK.match(text)
    return found.end() if found else 0


def _parse_error(text: str, error: ParseError) -> InvalidInput:
    for found in error.errors:
        line, column, word = found.get("line"), found.get("col"), str(found.get("highlight") or "")
        if not line or not column:
            continue
        lines = text.split("\n")
        # sqlglot reports the column of the last character.
        end = sum(len(each) + 1 for each in lines[: line - 1]) + column
        span = Span(max(0, end - max(1, len(word))), end)
        message = f"unexpected {word!r}" if word else str(found.get("description"))
        return sql_error(text, span, message, hint="see docs/sql.md for the supported syntax")
    return InvalidInput(_first_line(str(error)))


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "the statement cannot be parsed"


@contextmanager
def _silenced() -> Iterator[None]:
    """Suppress sqlglot's warnings about statements that it keeps as text: Spark parses those."""
    logger = logging.getLogger("sqlglot")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
