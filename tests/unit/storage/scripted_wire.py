"""A transport with scripted replies that records requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from urllib3 import HTTPHeaderDict

from tidelock.storage.http import Answer, HttpReply, HttpRequest, Transport


def reply(status: int, body: bytes = b"", **headers: str) -> HttpReply:
    """Return a reply; underscores in the names of `headers` stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpReply(status, HTTPHeaderDict(named), body)


def error(status: int, code: str, **headers: str) -> HttpReply:
    """Return a reply with an XML error document."""
    return reply(status, f"<Error><Code>{code}</Code></Error>".encode(), **headers)


@dataclass(slots=True)
class Wire:
    """The scripted replies, in order, and the recorded requests."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[HttpRequest] = field(default_factory=list)

    def will_answer(self, *answers: Answer) -> None:
        """Add to the script."""
        self.answers.extend(answers)

    @property
    def last(self) -> HttpRequest:
        """The request sent last."""
        return self.requests[-1]


@contextmanager
def scripted_wire() -> Iterator[Wire]:
    """Reply to every request of every store from one script, which must be used up."""
    wire = Wire()

    def send(transport: Transport, request: HttpRequest, *, timeout_ms: float) -> Answer:
        assert timeout_ms > 0
        wire.requests.append(request)
        assert wire.answers, f"nobody expected {request.method} {request.target}"
        return wire.answers.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transport, "send", send)
        yield wire
    assert not wire.answers, "the script did not come to its end"
