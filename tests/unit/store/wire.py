"""A transport that answers from a script, so that a store's words can be read and chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from urllib3 import HTTPHeaderDict

from tidelock.store.http import Answer, Reply, Request, Transport


def reply(status: int, body: bytes = b"", **headers: str) -> Reply:
    """Return a reply; underscores in the names of `headers` stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, HTTPHeaderDict(named), body)


def error(status: int, code: str, **headers: str) -> Reply:
    """Return a reply with an error document in XML."""
    return reply(status, f"<Error><Code>{code}</Code></Error>".encode(), **headers)


@dataclass(slots=True)
class Wire:
    """What will be answered, in order, and what was asked."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def will_answer(self, *answers: Answer) -> None:
        """Add to the script."""
        self.answers.extend(answers)

    @property
    def last(self) -> Request:
        """The request sent last."""
        return self.requests[-1]


@contextmanager
def scripted_wire() -> Iterator[Wire]:
    """Answer every request of every store from one script, and see that the script ends."""
    wire = Wire()

    def send(transport: Transport, request: Request, *, timeout_ms: float) -> Answer:
        assert timeout_ms > 0
        wire.requests.append(request)
        assert wire.answers, f"nobody expected {request.method} {request.target}"
        return wire.answers.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transport, "send", send)
        yield wire
    assert not wire.answers, "the script did not come to its end"
