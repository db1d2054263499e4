"""All numeric limits of the product, each with its reason, and the unit of sizes."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024
"""Bytes in a mebibyte, which Hudi's keys call a megabyte."""

RECORD_BYTES_MAX: Final = 16 * 1024
"""A lock record has about 400 bytes. A larger object is not a lock record and is not parsed."""

RECORD_TEXT_BYTES_MAX: Final = 512
"""An owner or a nonce has about 40 bytes. A record repeats those of the record it replaced."""

RECORD_FORMAT: Final = 1
"""The newest `format` of a lock record that this version understands."""

RESOURCE_BYTES_MAX: Final = 900
"""S3, GCS and Azure allow 1,024 bytes in a key; the rest is for `.hoodie/.locks/…`."""

CLOCK_DRIFT_MS: Final = 500
"""RFC-91: the largest clock difference between contenders. It may be raised, never lowered."""

GRACE_MS: Final = 500
"""A takeover waits this long beyond the drift, so that a holder that is on time has stopped."""

MARGIN_MS_MIN: Final = 200
"""A holder stops at least this long before its lease ends, to finish a running request."""

MARGIN_SHARE: Final = 20
"""…and at least a twentieth of the validity, which covers different clock rates."""

RENEWALS_PER_VALIDITY: Final = 10
"""RFC-91: the heartbeat is at least ten times as frequent as the expiry."""

VALIDITY_S_MIN: Final = 10
"""Hudi rejects a shorter validity; so do we, so that Java writers accept our leases."""

VALIDITY_MS_PLAUSIBLE: Final = 24 * 3_600_000
"""A record valid for more than a day was written with a wrong clock or a wrong unit."""

TOKEN_RANGE: Final = 1_000
"""Tokens are reserved in ranges of this size, so the durable counter is written once per range."""

TOKEN_MAX: Final = 2**63 - 1
"""Tokens fit in a signed 64-bit integer, which every fenced resource can store."""

CONFLICT_RETRIES: Final = 8
"""How often a write is sent again after 409 (nothing written, another write is in progress)."""

RELEASE_TRIES: Final = 6
"""How often a release is tried before the lock is left to expire."""

REQUEST_TIMEOUT_MS: Final = 30_000
"""The timeout of a storage request without a shorter bound."""

RESEND_TRIES: Final = 4
"""How often an idempotent request is sent in total, within one request timeout."""

RETRY_AFTER_MS_MAX: Final = 60_000
"""The longest pause that is honoured when a store requests one."""

CONNECTIONS_MAX: Final = 64
"""Pooled connections per host. Further threads open temporary connections."""

CONNECTION_IDLE_MS_MAX: Final = 20_000
"""A connection idle for longer is replaced: the server may be closing it."""

UPLOAD_PART_BYTES: Final = 8 * 1024 * 1024
"""The part size of a multipart upload. S3 accepts 10,000 parts, which makes 80 GiB; a part is sent
within one request timeout, so it must be small enough for a slow network."""

FLOCK_WAIT_MS: Final = 10_000
"""How long the local store waits for another process in a replace: normally microseconds."""

TEMP_AGE_MS: Final = 3_600_000
"""Temporary files of dead writers are removed once they are this old."""

AUDIT_SWITCH_AGE_MS: Final = 60_000
"""How long a cached value of the audit switch is used."""

AUDIT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest audit file that is read for validation."""

BROKEN_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest unreadable object that is backed up before it is replaced."""

PROPERTIES_BYTES_MAX: Final = 1024 * 1024
"""The largest properties file that is read."""

SERVICE_BODY_BYTES_MAX: Final = 64 * 1024
"""A request to the lock service has a few hundred bytes; a larger one is rejected unparsed."""

SERVICE_HEADER_BYTES_MAX: Final = 16 * 1024
"""All headers of one request to the lock service."""

SERVICE_JSON_DEPTH_MAX: Final = 8
"""Bodies of requests to the lock service are flat; deeper ones are rejected."""

RESOURCE_ID_BYTES_MAX: Final = 512
"""The largest resource id, lock owner or idempotency key that the lock service accepts."""

TTL_MS_MIN: Final = 1_000
"""A shorter lease cannot be renewed reliably over a network."""

TTL_MS_MAX: Final = 3_600_000
"""A dead client blocks others for this long; locks are held longer through renewals."""

WAIT_MS_MAX: Final = 3_600_000
"""The longest wait for a lock in one request to the lock service."""

BACKEND_OUTAGE_MS_MAX: Final = 10_000
"""How long a waiter stays queued while the backend does not answer; then it gets an error."""

WAITERS_PER_RESOURCE_MAX: Final = 2_000
"""The longest queue of a resource; a further request is rejected at once."""

WAITERS_MAX: Final = 20_000
"""The waiting requests of the lock service in total, which bounds its memory."""

REQUESTS_PENDING_MAX: Final = 10_000
"""Requests that the lock service has received and not decided; more are rejected unread."""

STREAMS_MAX: Final = 10_000
"""Open streams of the lock service, lock streams and event streams together."""

STREAMS_PER_PRINCIPAL_MAX: Final = 6_000
"""Open streams of one principal, so that one client cannot use all streams."""

GRANTS_PER_PRINCIPAL_MAX: Final = 20_000
"""Locks that a principal may hold at a time."""

EVENTS_KEPT_MAX: Final = 20_000
"""Lock events in memory for streams that resume; older ones are in the audit file."""

JOURNAL_BATCH_ENTRIES_MAX: Final = 500
"""Decisions in one journal object: about 200 kB."""

JOURNAL_OBJECT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger object is not part of the journal; a checkpoint has about 350 bytes per held lock."""

JOURNAL_BATCHES_KEPT: Final = 64
"""Journal objects retained before the checkpoint, so that event streams resume after a restart."""

JOURNAL_CHECKPOINT_EVERY: Final = 256
"""Journal objects between checkpoints: the most that a restart reads, besides those retained."""

AUTH_FAILURES_MAX: Final = 20
"""Invalid tokens from one address within the window below; further requests are delayed."""

AUTH_WINDOW_MS: Final = 60_000
"""The window in which invalid tokens are counted."""

VALIDATED_KEYS_MAX: Final = 2_000_000
"""Keys of a partition that validation keeps in memory at once: about 100 MB."""
