"""`stream.writeStream.format("tidelock").start(uri)`: every micro-batch is committed exactly once.

After a crash, Spark retries a batch with the same number and the same rows. The commit carries the
number as an application transaction, so the table rejects a second commit of the batch (C79),
whichever process sends it and however late.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelock.core.clock import Clock
from tidelock.core.errors import ConfigInvalid, OutcomeUnknown, Retry, TidelockError
from tidelock.core.system import SystemClock
from tidelock.execution.spark.frame_size import ExpectedSize, expect_size
from tidelock.operations.config import OPERATION
from tidelock.operations.report import WriteReport
from tidelock.spark.datasource.write import Operation, open_or_create, write_frame
from tidelock.spark.options import (
    CHECKPOINT_LOCATION,
    IGNORE_FAILED,
    RETRIES,
    RETRY_INTERVAL_MS,
    WRITER_ID,
    split_metadata,
    split_path,
)
from tidelock.table import Table
from tidelock.txn.app_transactions import AppTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

SINK_CHECKPOINT: Final = "_hudi_streaming_sink_checkpoint"
"""Metadata key under which Hudi's sink stores the batch number of each writer."""

QUERY: Final = "tidelock.stream.query"
"""Metadata key for the id of the Spark query that wrote the batch."""

_QUERY_ID: Final = "sql.streaming.queryId"
_DEFAULT_LOCATION: Final = "spark.sql.streaming.checkpointLocation"


_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling {} : "
    "java.lang.InterruptedException"
)
"""Spark recognizes a batch that was interrupted by `stop` by this text."""


class Interrupted(Exception):
    """The query was stopped while a batch was being written; a restart retries the batch."""


def start(
    writer: Any, path: str | None, output_mode: str | None, options: dict[str, object]
) -> Any:
    """Start the query that writes a stream to a table; return it.

    `append` and `update` apply `hoodie.datasource.write.operation` to each batch, `complete`
    replaces the table with it.

    Raises: `ConfigInvalid` for a missing checkpoint location or invalid options.
    """
    own = {name: value for name, value in options.items() if name != CHECKPOINT_LOCATION}
    metadata, write_options = split_metadata(own)
    uri, others = split_path(write_options, path)
    spark = writer._spark  # noqa: SLF001 - PySpark has no public accessor
    if CHECKPOINT_LOCATION not in options and not spark.conf.get(_DEFAULT_LOCATION, None):
        raise ConfigInvalid(
            f"{CHECKPOINT_LOCATION}: required for the stream to {uri}",
            hint=f'add .option("{CHECKPOINT_LOCATION}", ...); a restart resumes from it',
        )
    operation = OPERATION.member(Operation, others)
    if (output_mode or "").lower() == "complete":
        operation = Operation.INSERT_OVERWRITE_TABLE
    sink = Sink(uri, operation, others, metadata)
    # The sink is now a `foreachBatch` function; the other settings of the writer still apply.
    sink.query = type(writer).start.__wrapped__(writer.foreachBatch(sink))
    return sink.query


@dataclass(slots=True)
class Sink:
    """Writes the micro-batches of one query, one after another.

    Guarantees: when a call returns, the batch is in the table exactly once. The table stays open
    between batches, so a batch costs only its own commit and does not load the whole timeline.
    """

    uri: str
    operation: Operation
    options: Mapping[str, object]
    metadata: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    query: StreamingQuery | None = None
    """The query, once it has started; the first batches may arrive earlier."""
    _table: Table | None = None
    _expected: ExpectedSize = field(default_factory=ExpectedSize)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write one batch. Raises: the errors of the write, after its retries."""
        try:
            self._write_batch(frame, batch)
        except Exception as error:
            if self._is_stopped:
                raise Interrupted(_INTERRUPTED.format(self.uri)) from None
            # Spark matches the error text with a regular expression. A long text overflows the
            # stack of the query's thread, which then ends silently. So the full traceback goes to
            # the log, and only the last error to Spark.
            logger.exception("%s: batch %d failed", self.uri, batch)
            raise error.with_traceback(None) from None

    def _write_batch(self, frame: DataFrame, batch: int) -> None:
        app_transaction = self._app_transaction(frame, batch)
        retries, wait_ms = RETRIES.required(self.options), RETRY_INTERVAL_MS.required(self.options)
        while True:
            try:
                report = self._write(frame, app_transaction)
            except TidelockError as error:
                self._close()
                if self._is_retryable(error) and retries > 0:
                    logger.warning("%s: retrying batch %d: %s", self.uri, batch, error)
                    self.clock.sleep_ms(wait_ms)
                    retries, wait_ms = retries - 1, wait_ms * 2
                    continue
                if not IGNORE_FAILED.required(self.options):
                    raise
                logger.exception(
                    "%s: batch %d of %s was dropped", self.uri, batch, app_transaction.app_id
                )
                return
            if report.repeated:
                self._check_same_query(app_transaction)
            logger.info("%s: batch %d: %s", self.uri, batch, report)
            return

    def _write(self, frame: DataFrame, app_transaction: AppTransaction) -> WriteReport:
        if self._table is None:
            self._table = open_or_create(self.uri, frame, self.operation, self.options)
        with expect_size(self._expected):
            return write_frame(
                self._table,
                self.operation,
                frame,
                self.options,
                app_transaction=app_transaction,
                metadata=self.metadata,
            )

    def _app_transaction(self, frame: DataFrame, batch: int) -> AppTransaction:
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if not query:
            raise ConfigInvalid(
                "the batch has no query id from Spark",
                hint=f"set the writer id with {WRITER_ID.key}",
            )
        writer = WRITER_ID.value(self.options) or query
        metadata = {SINK_CHECKPOINT: json.dumps({writer: str(batch)}), QUERY: query}
        return AppTransaction(writer, batch, metadata)

    def _check_same_query(self, app_transaction: AppTransaction) -> None:
        """Reject a batch that was applied by another query of the same name.

        Two queries with one name both count from 0, and so does a query whose checkpoints were
        deleted. Skipping its batches would lose rows.
        """
        table, application = self._table, app_transaction.app_id
        last = None if table is None else table.app_transaction(application)
        before = None if last is None else last.metadata.get(QUERY)
        if last is None or before in (None, app_transaction.metadata[QUERY]):
            return
        raise ConfigInvalid(
            f"{self.uri}: batch {app_transaction.version} of {application!r} was"
            f" not written: query {before} already wrote up to batch {last.version} under this"
            " name",
            hint=f"set a unique {WRITER_ID.key} for every query and for every new"
            f" {CHECKPOINT_LOCATION}",
        )

    @property
    def _is_stopped(self) -> bool:
        return self.query is not None and not self.query.isActive

    def _is_retryable(self, error: TidelockError) -> bool:
        """Return whether to retry; the application transaction makes that safe after any error."""
        permanent = error.retry is Retry.NEVER and not isinstance(error, OutcomeUnknown)
        return not permanent and not self._is_stopped

    def _close(self) -> None:
        """Discard all cached state, so that the next attempt starts fresh."""
        self._expected.size_bytes = None
        table, self._table = self._table, None
        if table is not None:
            table.close()
