"""A request as rules and tests use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request that the proxy received."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def path(self) -> str:
        """The path, percent-encoded."""
        return urlsplit(f"http://proxy{self.target}").path

    @property
    def query(self) -> str:
        """The query string."""
        return urlsplit(f"http://proxy{self.target}").query

    def header(self, name: str) -> str | None:
        """Return the first header with this name, case-insensitive."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)
