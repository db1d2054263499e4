"""Statements as text: where a mistake is, and the text with parts of it exchanged. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from tidelock.base.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text: its first letter and the one behind its last."""

    start: int
    end: int

    def __contains__(self, other: Span) -> bool:
        """Tell whether another part lies in this one."""
        return self.start <= other.start and other.end <= self.end


def mistake(text: str, at: int | Span | None, message: str, *, hint: str = "") -> InvalidInput:
    """Return the error for a statement that is wrong at a place, with the place shown.

    The message begins with `line 2:14:`, as people count; the line follows with a caret below.
    """
    if at is None:
        return InvalidInput(message, hint=hint)
    span = at if isinstance(at, Span) else Span(at, at + 1)
    start = min(span.start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    shown = text[line_start : line_end if line_end >= 0 else len(text)]
    number, column = text.count("\n", 0, start) + 1, start - line_start
    width = max(1, min(span.end - start, len(shown) - column))
    # Tabs stay tabs, so that the caret stands below its letter.
    lead = "".join("\t" if letter == "\t" else " " for letter in shown[:column])
    return InvalidInput(
        f"line {number}:{column + 1}: {message}\n  {shown}\n  {lead}{'^' * width}", hint=hint
    )


def exchanged(text: str, edits: Iterable[tuple[Span, str]], within: Span | None = None) -> str:
    """Return a part of the text (all of it without `within`) with spans exchanged."""
    whole = within or Span(0, len(text))
    parts, at = [], whole.start
    for span, other in sorted(edits, key=lambda edit: edit[0].start):
        if span not in whole:
            continue
        parts += [text[at : span.start], other]
        at = span.end
    return "".join([*parts, text[at : whole.end]])


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes it, whatever letters it has."""
    return "`" + name.replace("`", "``") + "`"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known names that are nearest to one that is not known."""
    every = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), every, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(every[each] for each in near)}?"
    shown = ", ".join(sorted(every.values())[:12])
    return f"there is {shown}" if shown else ""
