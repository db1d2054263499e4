"""What the dashboard answers with: bodies, the headers of every answer, and its own files."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

HEADERS: Final = {
    # No inline script or style, nothing from elsewhere, in nobody's frame.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_GZIP_BYTES_MIN: Final = 2_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body, and the headers that this answer has beside those of all."""

    status: int
    body: bytes = b""
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    def packed(self, accepts: str) -> Answer:
        """Return the answer as small as the reader understands it."""
        if len(self.body) < _GZIP_BYTES_MIN or "gzip" not in accepts or self.kind == "image/png":
            return self
        headers = {**self.headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Answer(self.status, gzip.compress(self.body, 1), self.kind, headers)


def as_json(value: object, status: int = 200, **headers: str) -> Answer:
    """Return an answer of JSON, which nobody keeps."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return Answer(status, body, headers={"Cache-Control": "no-store", **headers})


def load_assets() -> dict[str, Answer]:
    """Return the page and its parts by path. Nothing else is ever read because of a path."""
    found: dict[str, Answer] = {}
    for item in files("tidelock.ops.ui").joinpath("assets").iterdir():
        kind = _TYPES.get(item.name.rpartition(".")[2])
        if kind is not None:
            headers = {"Cache-Control": "no-cache"}
            found[f"/assets/{item.name}"] = Answer(200, item.read_bytes(), kind, headers)
    found["/"] = found.pop("/assets/index.html")
    return found
