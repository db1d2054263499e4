"""A request as rules and tests see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """A request that reached the proxy, complete with its body."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def path(self) -> str:
        """Return the path, still percent-encoded."""
        return urlsplit(f"http://proxy{self.target}").path

    @property
    def query(self) -> str:
        """Return what follows the question mark."""
        return urlsplit(f"http://proxy{self.target}").query

    def header(self, name: str) -> str | None:
        """Return the first header of this name, in any case of letters."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)
