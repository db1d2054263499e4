"""Tokens for Google Cloud Storage, by application default credentials."""

from __future__ import annotations

import threading
from typing import Any

from tidelock.base.errors import MissingExtra, PermissionDenied, StoreUnreachable

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class GoogleTokens:
    """Bearer tokens that google-auth finds and keeps fresh."""

    def __init__(self) -> None:
        """Load google-auth; look for nothing yet."""
        try:
            import google.auth  # an extra
            import google.auth.exceptions
            import google.auth.transport.urllib3
            import urllib3
        except ImportError as error:
            raise MissingExtra(
                "Google credentials need google-auth", hint="pip install 'tidelock[gcs]'"
            ) from error
        transport: Any = google.auth.transport.urllib3
        self._auth = google.auth
        self._failures = google.auth.exceptions
        self._send = transport.Request(urllib3.PoolManager())
        self._found: Any = None
        self._refreshing = threading.Lock()

    def headers(self) -> dict[str, str]:
        """Return the headers that prove who asks; raises `PermissionDenied` without credentials."""
        headers: dict[str, str] = {}
        try:
            credentials = self._current()
        except self._failures.TransportError as error:
            raise StoreUnreachable(
                f"Google credentials could not be fetched: {type(error).__name__}",
                hint="try again",
            ) from error
        except self._failures.GoogleAuthError as error:
            raise PermissionDenied(
                f"Google credentials were refused: {type(error).__name__}",
                hint="run `gcloud auth application-default login`, or set"
                " GOOGLE_APPLICATION_CREDENTIALS",
            ) from error
        credentials.apply(headers)
        return headers

    def _current(self) -> Any:
        # A valid token is read without the lock; threads queue only while one fetches another.
        if self._found is None or not self._found.valid:
            with self._refreshing:
                if self._found is None:
                    self._found, _ = self._auth.default(scopes=[_SCOPE], request=self._send)
                if not self._found.valid:
                    self._found.refresh(self._send)
        return self._found
