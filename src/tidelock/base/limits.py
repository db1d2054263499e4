"""Every numeric bound of the product, with its reason."""

from __future__ import annotations

from typing import Final

RECORD_BYTES_MAX: Final = 16 * 1024
"""A lock record is about 400 bytes. More than this is not a lock record, and is not parsed."""

RECORD_TEXT_BYTES_MAX: Final = 512
"""An owner or a nonce has about 40. A record repeats those it replaced, and must stay readable."""

RECORD_FORMAT: Final = 1
"""The newest `format` of a lock record that this version understands."""

RESOURCE_BYTES_MAX: Final = 900
"""S3, GCS and Azure allow 1,024 bytes in a key; the rest is for `.hoodie/.locks/…` below it."""

CLOCK_DRIFT_MS: Final = 500
"""RFC-91: the largest clock difference between contenders. It may be raised, never lowered."""

GRACE_MS: Final = 500
"""A taker waits this much beyond the drift, so a holder that is exactly on time is never met."""

MARGIN_MS_MIN: Final = 200
"""A holder stops at least this long before its lease ends: time to finish a request under way."""

MARGIN_SHARE: Final = 20
"""…and at least a twentieth of the validity, which covers clock rates that differ."""

RENEWALS_PER_VALIDITY: Final = 10
"""RFC-91: the heartbeat is at least ten times as frequent as the expiry."""

VALIDITY_S_MIN: Final = 10
"""Hudi refuses a shorter validity; so do we, so that Java peers see leases they accept."""

VALIDITY_MS_PLAUSIBLE: Final = 24 * 3_600_000
"""A record valid for longer than a day was written by a wrong clock or in a wrong unit."""

TOKEN_RANGE: Final = 1_000
"""Tokens are reserved in ranges of this size, so the durable counter is written once per range."""

TOKEN_MAX: Final = 2**63 - 1
"""Tokens fit in a signed 64-bit integer, as every fencing resource can store."""

CONFLICT_RETRIES: Final = 8
"""How often a write answered 409 (nothing landed, another write is under way) is sent again."""

RELEASE_TRIES: Final = 6
"""How often a release is tried before it is left to expire."""

REQUEST_TIMEOUT_MS: Final = 30_000
"""How long one storage request may take when nothing else bounds it."""

RESEND_TRIES: Final = 4
"""How often a request that may safely be repeated is sent in all, within one request time-out."""

RETRY_AFTER_MS_MAX: Final = 60_000
"""A store that asks for a longer pause than this is asked again after it all the same."""

CONNECTIONS_MAX: Final = 64
"""Connections a store keeps per host. More threads than this open their own and drop them."""

CONNECTION_IDLE_MS_MAX: Final = 20_000
"""A connection unused for longer is replaced: the server may be dropping it at this moment."""

FLOCK_WAIT_MS: Final = 10_000
"""How long the local store waits for another process inside a replace: normally microseconds."""

TEMP_AGE_MS: Final = 3_600_000
"""Temporary files of dead writers are removed once they are this old."""

AUDIT_SWITCH_AGE_MS: Final = 60_000
"""How long a reading of the audit switch is good for."""

AUDIT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest audit file that is read for validation."""

BROKEN_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest unreadable object that is copied aside before it is replaced."""

PROPERTIES_BYTES_MAX: Final = 1024 * 1024
"""The largest properties file that is read."""
