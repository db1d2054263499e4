"""Signature Version 4 for S3, with the derived key kept for the day it is good for.

The signature covers every header given, so a hop that strips a condition makes the store refuse
the request instead of writing blindly.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials at one moment; their secrets do not show in a repr."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def canonical_query(parameters: dict[str, str]) -> str:
    """Return `parameters` encoded and ordered, as both the URL and the signature want them."""
    encoded = ((quote(name, safe=""), quote(value, safe="")) for name, value in parameters.items())
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def payload_hash(body: bytes | None, *, encrypted: bool) -> str:
    """Return what stands for the body in the signature.

    TLS already guards the body; without it the signature must.
    """
    if not body:
        return _EMPTY_SHA256
    return UNSIGNED_PAYLOAD if encrypted else hashlib.sha256(body).hexdigest()


class Signer:
    """Signs requests for one service; safe to share between threads."""

    def __init__(self, service: str = "s3") -> None:
        """Start without a derived key."""
        self._service = service
        self._derived: tuple[tuple[str, str, str], bytes] = (("", "", ""), b"")

    def sign(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[str, str],
        *,
        keys: Keys,
        region: str,
        payload: str,
        now_epoch_ms: int,
    ) -> dict[str, str]:
        """Return `headers` (lower-case names, with `host`) plus those that prove who sends them."""
        moment = datetime.fromtimestamp(now_epoch_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = {**headers, "x-amz-content-sha256": payload, "x-amz-date": moment}
        if keys.session_token is not None:
            signed["x-amz-security-token"] = keys.session_token
        names = sorted(signed)
        lines = "".join(f"{name}:{' '.join(signed[name].split())}\n" for name in names)
        listed = ";".join(names)
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{listed}\n{payload}"
        scope = f"{moment[:8]}/{region}/{self._service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = self._key(keys.secret_key, moment[:8], region)
        signature = hmac.digest(
            key, f"{_ALGORITHM}\n{moment}\n{scope}\n{digest}".encode(), "sha256"
        ).hex()
        signed["authorization"] = (
            f"{_ALGORITHM} Credential={keys.access_key}/{scope}, "
            f"SignedHeaders={listed}, Signature={signature}"
        )
        return signed

    def _key(self, secret_key: str, day: str, region: str) -> bytes:
        wanted = (secret_key, day, region)
        # One tuple is read and replaced whole, so threads never see a key under another's name.
        known, key = self._derived
        if known != wanted:
            key = f"AWS4{secret_key}".encode()
            for part in (day, region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (wanted, key)
        return key
