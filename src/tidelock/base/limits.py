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

UPLOAD_PART_BYTES: Final = 8 * 1024 * 1024
"""The parts of a large object. S3 takes 10,000 of them, which makes 80 GiB; a part is sent within
one request time-out, so it must be small enough for a slow line."""

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

SERVICE_BODY_BYTES_MAX: Final = 64 * 1024
"""A request to the lock service has a few hundred bytes; more is refused before it is parsed."""

SERVICE_HEADER_BYTES_MAX: Final = 16 * 1024
"""All headers of one request to the lock service."""

SERVICE_JSON_DEPTH_MAX: Final = 8
"""The lock service's bodies are flat; deeper ones are not for it."""

RESOURCE_ID_BYTES_MAX: Final = 512
"""A resource id, lock owner or idempotency key that a client of the lock service may send."""

TTL_MS_MIN: Final = 1_000
"""A shorter lease cannot be kept over a network."""

TTL_MS_MAX: Final = 3_600_000
"""A dead client would block everybody for that long; renewals make longer holdings."""

WAIT_MS_MAX: Final = 3_600_000
"""The longest wait for a lock in one request to the lock service."""

BACKEND_OUTAGE_MS_MAX: Final = 10_000
"""How long a waiter keeps its place while the backend does not answer; then it is told."""

WAITERS_PER_RESOURCE_MAX: Final = 2_000
"""Beyond this a queue is an outage; the next one hears it at once."""

WAITERS_MAX: Final = 20_000
"""All requests that the lock service lets wait, so that its memory has a bound."""

REQUESTS_PENDING_MAX: Final = 10_000
"""Requests that the lock service has heard and not yet decided; more are refused unread."""

STREAMS_MAX: Final = 10_000
"""Open streams of the lock service, lock streams and event streams together."""

STREAMS_PER_PRINCIPAL_MAX: Final = 6_000
"""One client cannot use up the streams of all."""

GRANTS_PER_PRINCIPAL_MAX: Final = 20_000
"""Locks that one principal may hold at a time."""

EVENTS_KEPT_MAX: Final = 20_000
"""Lock events kept in memory for streams that resume; older ones are in the audit file."""

JOURNAL_BATCH_ENTRIES_MAX: Final = 500
"""Decisions that one journal object may hold: about 200 kB."""

JOURNAL_OBJECT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger object is not one of the journal's; a checkpoint has about 350 bytes per held lock."""

JOURNAL_BATCHES_KEPT: Final = 64
"""Journal objects kept behind the checkpoint, so that event streams resume after a restart."""

JOURNAL_CHECKPOINT_EVERY: Final = 256
"""Journal objects between two checkpoints: what a restart reads at most, besides those kept."""

AUTH_FAILURES_MAX: Final = 20
"""Wrong tokens from one address within the window below; then it waits."""

AUTH_WINDOW_MS: Final = 60_000
"""How long wrong tokens are remembered."""

VALIDATED_KEYS_MAX: Final = 2_000_000
"""So many keys of a partition are held at once when it is validated: about 100 MB of them."""
