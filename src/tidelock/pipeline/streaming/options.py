"""The options of streams: Hudi's names where it has one."""

from __future__ import annotations

from typing import Final

from tidelock.base.config import ConfigKey, boolean, declare

_SINK: Final = "Streaming writes"
_SOURCE: Final = "Streaming reads"

CHECKPOINT_LOCATION: Final = "checkpointLocation"
"""Spark's own option: where a query remembers how far it has come."""

WRITER_ID = declare(
    ConfigKey(
        "hoodie.datasource.write.streaming.checkpoint.identifier",
        str,
        None,
        "name under which a stream's batches are counted; default: the id of the query, which"
        " stays with its checkpointLocation",
        group=_SINK,
    )
)
RETRIES = declare(
    ConfigKey(
        "hoodie.datasource.write.streaming.retry.count",
        int,
        3,
        "how often a batch is tried again when the storage does not answer",
        group=_SINK,
    )
)
RETRY_INTERVAL_MS = declare(
    ConfigKey(
        "hoodie.datasource.write.streaming.retry.interval.ms",
        int,
        2000,
        "wait before a batch is tried again, in milliseconds; doubled each time",
        group=_SINK,
    )
)
IGNORE_FAILED = declare(
    ConfigKey(
        "hoodie.datasource.write.streaming.ignore.failed.batch",
        boolean,
        default=False,
        doc="go on with the next batch when one fails for good; its rows are then lost",
        group=_SINK,
    )
)
START = declare(
    ConfigKey(
        "hoodie.datasource.streaming.startOffset",
        str,
        "earliest",
        "where a stream of changes begins: earliest, latest, or a completion time after which",
        group=_SOURCE,
    )
)
COMMITS_MAX = declare(
    ConfigKey(
        "tidelock.stream.commits.per.trigger.max",
        int,
        None,
        "commits that one micro-batch takes at most",
        group=_SOURCE,
    )
)
BYTES_MAX = declare(
    ConfigKey(
        "tidelock.stream.bytes.per.trigger.max",
        int,
        None,
        "bytes that the commits of one micro-batch wrote, at most; one commit is always taken",
        group=_SOURCE,
    )
)
