"""`stream.writeStream.format("tidelock").start(uri)`: every micro-batch is one commit, once.

Spark tries a batch again after a crash, with the same number and the same rows. The number goes
into the commit as a mark, so the table itself refuses the second one (C79), whichever process
sends it and however late.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import ConfigInvalid, OutcomeUnknown, Retry, TidelockError
from tidelock.engine.spark.expecting import Expected, expecting
from tidelock.operation.report import WriteReport
from tidelock.pipeline.datasource.options import split_metadata, split_path
from tidelock.pipeline.datasource.writing import Operation, asked_operation, opened, run
from tidelock.pipeline.streaming.options import (
    CHECKPOINT_LOCATION,
    IGNORE_FAILED,
    RETRIES,
    RETRY_INTERVAL_MS,
    WRITER_ID,
)
from tidelock.tableservice.table import Table
from tidelock.txn.mark import Mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

SINK_CHECKPOINT: Final = "_hudi_streaming_sink_checkpoint"
"""Where a commit of Hudi's sink says which batch of which writer it is."""

QUERY: Final = "tidelock.stream.query"
"""Where a commit says which of Spark's queries its batch is of."""

_QUERY_ID: Final = "sql.streaming.queryId"
_DEFAULT_LOCATION: Final = "spark.sql.streaming.checkpointLocation"


_AS_SPARK_KNOWS_IT: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling {} : "
    "java.lang.InterruptedException"
)
"""By this text Spark tells a batch that was interrupted by `stop` from one that failed."""


class Interrupted(Exception):
    """The query was stopped while a batch was being written; a restart writes it again."""


def start(
    writer: Any, path: str | None, output_mode: str | None, options: dict[str, object]
) -> Any:
    """Start the query that writes a stream to a table; return it.

    `append` and `update` do what `hoodie.datasource.write.operation` says with each batch,
    `complete` replaces the table by it.

    Raises: `ConfigInvalid` without a place for Spark's checkpoints, and for options.
    """
    ours = {name: value for name, value in options.items() if name != CHECKPOINT_LOCATION}
    metadata, told = split_metadata(ours)
    uri, others = split_path(told, path)
    spark = writer._spark  # noqa: SLF001 - PySpark has no other way to it
    if CHECKPOINT_LOCATION not in options and not spark.conf.get(_DEFAULT_LOCATION, None):
        raise ConfigInvalid(
            f"the stream to {uri} has no {CHECKPOINT_LOCATION}",
            hint=f'add .option("{CHECKPOINT_LOCATION}", ...), which a restart goes on from',
        )
    operation = asked_operation(others)
    if (output_mode or "").lower() == "complete":
        operation = Operation.INSERT_OVERWRITE_TABLE
    sink = Sink(uri, operation, others, metadata)
    # The function, not the format, is now the sink; what was said before stands.
    sink.query = type(writer).start.__wrapped__(writer.foreachBatch(sink))
    return sink.query


@dataclass(slots=True)
class Sink:
    """Takes the micro-batches of one query, one after the other.

    Guarantees: a batch that returns is in the table, exactly once. The table stays open between
    batches, so that a batch costs its own commit and no look at the whole table.
    """

    uri: str
    operation: Operation
    options: Mapping[str, object]
    metadata: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    query: StreamingQuery | None = None
    """The query, once it has been started; the first batches may come before."""
    _table: Table | None = None
    _expected: Expected = field(default_factory=Expected)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write one batch. Raises what the write raises, after its retries."""
        try:
            self._take(frame, batch)
        except Exception as error:
            if self._is_stopped:
                raise Interrupted(_AS_SPARK_KNOWS_IT.format(self.uri)) from None
            # Spark reads the text of an error by an expression that a long one makes overflow the
            # stack of the query's thread, which then ends without a word. So the whole goes to
            # the log, and only its end to Spark.
            logger.exception("%s: batch %d failed", self.uri, batch)
            raise error.with_traceback(None) from None

    def _take(self, frame: DataFrame, batch: int) -> None:
        mark = self._mark(frame, batch)
        left, wait_ms = RETRIES.required(self.options), RETRY_INTERVAL_MS.required(self.options)
        while True:
            try:
                report = self._write(frame, mark)
            except TidelockError as error:
                self._close()
                if self._may_help(error) and left > 0:
                    logger.warning("%s: batch %d is tried again: %s", self.uri, batch, error)
                    self.clock.sleep_ms(wait_ms)
                    left, wait_ms = left - 1, wait_ms * 2
                    continue
                if not IGNORE_FAILED.required(self.options):
                    raise
                logger.exception("%s: batch %d of %s is lost", self.uri, batch, mark.application)
                return
            if report.repeated:
                self._check_is_own(mark)
            logger.info("%s: batch %d: %s", self.uri, batch, report)
            return

    def _write(self, frame: DataFrame, mark: Mark) -> WriteReport:
        if self._table is None:
            self._table = opened(self.uri, frame, self.operation, self.options)
        with expecting(self._expected):
            return run(
                self._table,
                self.operation,
                frame,
                self.options,
                mark=mark,
                metadata=self.metadata,
            )

    def _mark(self, frame: DataFrame, batch: int) -> Mark:
        query = _query_id(frame)
        named = WRITER_ID.value(self.options) or query
        said = {SINK_CHECKPOINT: json.dumps({named: str(batch)}), QUERY: query}
        return Mark(named, batch, said)

    def _check_is_own(self, mark: Mark) -> None:
        """Refuse to pass over a batch that only looks like one that was applied.

        Two queries with one name, or one whose checkpoints were thrown away, count from 0 both.
        """
        last = None if self._table is None else self._table.mark(mark.application)
        before = None if last is None else last.metadata.get(QUERY)
        if last is None or before in (None, mark.metadata[QUERY]):
            return
        raise ConfigInvalid(
            f"{self.uri}: batch {mark.version} of {mark.application!r} is not written: query"
            f" {before} has written up to batch {last.version} under this name",
            hint=f"give every query, and one with a new {CHECKPOINT_LOCATION}, its own"
            f" {WRITER_ID.key}",
        )

    @property
    def _is_stopped(self) -> bool:
        return self.query is not None and not self.query.isActive

    def _may_help(self, error: TidelockError) -> bool:
        """Tell whether a batch may be tried again: its mark makes that safe after any error."""
        lasts = error.retry is Retry.NEVER and not isinstance(error, OutcomeUnknown)
        return not lasts and not self._is_stopped

    def _close(self) -> None:
        """Begin the next try with nothing that this one believed."""
        self._expected.size_bytes = None
        table, self._table = self._table, None
        if table is not None:
            table.close()


def _query_id(frame: DataFrame) -> str:
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise ConfigInvalid(
            "Spark does not say which query this batch is of",
            hint=f"name the writer: {WRITER_ID.key}",
        )
    return str(found)
