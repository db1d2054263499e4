"""Writes one batch from the source into the table, with the checkpoint in the same commit.

The ledger accepts each version of an application transaction once (C78-C83). A batch starts at the
checkpoint of the last transaction and carries the next version. So of any number of streamers with
one writer id, only one can commit the batch; the others see its checkpoint and continue after it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from tidelock.core.clock import Clock
from tidelock.core.errors import InvalidInput, NotFound, OutcomeUnknown, Unavailable
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemClock, SystemIds
from tidelock.core.telemetry import Metrics
from tidelock.hudi.keys import KeyRule
from tidelock.operations.read import snapshot_now
from tidelock.operations.report import WriteReport
from tidelock.operations.request import evolved_schema
from tidelock.storage.uri import StoreAddress
from tidelock.streamer import config as c
from tidelock.streamer.checkpoint import (
    OURS,
    BatchStart,
    StreamCheckpoint,
    UserCheckpoint,
    checkpoint_of,
    hudi_checkpoint,
    next_start,
)
from tidelock.streamer.config import StreamerRequest
from tidelock.streamer.decode import Schemas
from tidelock.streamer.initial_checkpoint import initial_checkpoint
from tidelock.streamer.read import COUNT_KEY, BatchRows, Quarantine, read_batch, without_keys
from tidelock.streamer.schemas import SchemaProvider, arrow_of, schema_provider
from tidelock.streamer.sources.checkpoint_files import CheckpointFiles
from tidelock.streamer.sources.registry import source
from tidelock.streamer.sources.source import Batch, Source
from tidelock.streamer.telemetry import record_batch_metrics
from tidelock.streamer.transform import Transformer, first_line_of, transformers
from tidelock.table import Table
from tidelock.txn.app_transactions import AppTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_GROWTH_MAX: Final = 2.0
_SHRINK_MAX: Final = 0.25
"""Bounds of one adjustment: a single slow batch must not stall the stream."""


@dataclass(frozen=True, slots=True)
class BatchPace:
    """The limit of the next batch, in the units of its source.

    A batch that takes longer than `target_s` makes the next one smaller. A full batch that takes
    less makes it larger, up to `limit_max`.
    """

    limit_max: int
    target_s: float
    limit: int
    limit_min: int = 1

    @classmethod
    def of(cls, limit_max: int, target_s: float, *, limit_min: int = 1) -> BatchPace:
        """Start with the maximum."""
        return cls(limit_max, target_s, limit_max, min(limit_min, limit_max))

    def after(self, units: int, duration_s: float) -> BatchPace:
        """Return the pace after a batch of `units` that took `duration_s`."""
        if self.target_s <= 0 or units <= 0:
            return self
        ratio = self.target_s / max(duration_s, 0.001)
        if ratio >= 1 and units < self.limit // 2:
            return self  # a batch that was limited by the source says nothing about the pace
        # A batch may exceed its limit, because files are not split; its actual size counts.
        target = units * min(_GROWTH_MAX, max(_SHRINK_MAX, ratio))
        if ratio >= 1:
            target = max(target, self.limit)
        return replace(self, limit=max(self.limit_min, min(self.limit_max, int(target))))


logger = logging.getLogger(__name__)

_HUDI_COMMITS_MAX: Final = 100
"""How many commits are searched for the checkpoint of a Hudi streamer."""

_RESOLVE_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a committed batch.

    `units` is the size in the units of the source. `lag_ms` is the age of the newest record at the
    commit, if the source has it.
    """

    version: int
    checkpoint: str
    units: int
    rows: int
    malformed: int
    report: WriteReport
    duration_ms: int
    lag_ms: int | None = None

    @property
    def repeated(self) -> bool:
        """Whether another streamer with this writer id committed the batch."""
        return self.report.repeated


@dataclass
class Streamer:
    """Ingests one source into one table.

    Guarantees: each record between two checkpoints of a writer is in exactly one commit, after any
    crash and with any number of streamers of the same writer id. Does not guarantee: that records
    which the source changes after they were read are read again.
    """

    spark: SparkSession
    request: StreamerRequest
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)
    metrics: Metrics = field(default_factory=Metrics)
    _table: Table | None = field(default=None, init=False)
    _start_position: str | None = field(default=None, init=False)
    _pace: BatchPace | None = field(default=None, init=False)

    @cached_property
    def source(self) -> Source:
        return source(
            self.request.source,
            self.spark,
            self.request.properties,
            provider=self.provider,
            schemas=Schemas(self._provided_schema, self._table_schema),
            checkpoint_files=CheckpointFiles(self._address.open),
        )

    @cached_property
    def provider(self) -> SchemaProvider:
        return schema_provider(self.request.schemaprovider_class, self.request.properties)

    @cached_property
    def writer_id(self) -> str:
        """The writer id of the checkpoint: configured, or the name of the source."""
        return c.WRITER_ID.value(self.request.properties) or self.source.name

    @property
    def application(self) -> str:
        """The application id of the writer's transactions in the ledger."""
        return f"streamer:{self.writer_id}"

    @cached_property
    def _address(self) -> StoreAddress:
        return StoreAddress(self.request.target_base_path, self.request.table_options())

    @cached_property
    def _chain(self) -> tuple[Transformer, ...]:
        return transformers(self.request.transformer_class, self.request.properties, self.ids)

    @cached_property
    def _quarantine(self) -> Quarantine:
        return Quarantine.read(self.request.properties, self.request.target_base_path)

    def sync(self) -> SyncResult | None:
        """Write the next batch to the table; return None if the source has nothing new.

        Raises: `Unavailable` and `Conflict` if a retry may help, and the errors of reads and
        writes. After any error, the next call continues from the checkpoint in the table.
        """
        try:
            return self._sync()
        except AnalysisException as error:
            raise InvalidInput(
                f"cannot read {self.source.name}: {first_line_of(error)}",
                hint="declare the columns with a schema provider or a transformer",
            ) from error
        except (Py4JError, PySparkException) as error:
            raise Unavailable(
                f"Spark failed to read {self.source.name}: {first_line_of(error)}",
                hint="nothing of the batch was committed; it is retried from its start",
            ) from error

    def _sync(self) -> SyncResult | None:
        started_ms = self.clock.now().monotonic_ms
        start, pace = self._next_start(), self.pace
        batch = self.source.next(start.position, pace.limit)
        if batch is None:
            return None
        if not batch.units and self._open_table() is None:
            # There is no table yet to store the start position.
            self._start_position = batch.end
            return None
        result = self._write_batch(batch, start, started_ms)
        if not result.repeated:
            self._pace = pace.after(batch.units, result.duration_ms / 1_000)
            self.source.on_committed(batch.end)
        record_batch_metrics(self.metrics, result, limit=self.pace.limit)
        return result

    @property
    def pace(self) -> BatchPace:
        """The pace of the next batch."""
        if self._pace is None:
            limit_max = self.request.source_limit or self.source.limit
            target_s = c.BATCH_TARGET_S.required(self.request.properties)
            self._pace = BatchPace.of(limit_max, target_s, limit_min=self.source.limit_min)
        return self._pace

    def close(self) -> None:
        """Release all resources."""
        if "source" in self.__dict__:
            self.source.close()
        if self._table is not None:
            self._table.close()
            self._table = None

    def _open_table(self) -> Table | None:
        if self._table is None:
            try:
                self._table = Table.open(self._address.uri, options=self._address.settings)
            except NotFound:
                return None
        return self._table

    def _next_start(self) -> BatchStart:
        """Return the start of the next batch: from the ledger, unless the user overrides it."""
        table, where = self._open_table(), self.request.target_base_path
        app_transaction = None if table is None else table.app_transaction(self.application)
        request = self.request
        has_initial = request.initial_checkpoint_provider is not None
        return next_start(
            UserCheckpoint(request.checkpoint or "", request.ignore_checkpoint or "", has_initial),
            None if app_transaction is None else checkpoint_of(app_transaction.data, where=where),
            version=0 if app_transaction is None else app_transaction.version + 1,
            source=self.source.name,
            fresh=lambda: self._start_position,
            first=self._first_position,
        )

    def _first_position(self) -> str | None:
        """Return the start position in a source that this writer has not read."""
        if self._start_position is None and self.request.initial_checkpoint_provider is not None:
            named = self.request.initial_checkpoint_provider
            # Called only once: its result may change while there is no table to store it.
            self._start_position = initial_checkpoint(
                named, self.request.properties, self.source.name
            )
            logger.warning("%s: starting at %s", named, self._start_position)
        if self._start_position is None and self._open_table() is not None:
            return self._checkpoint_in_commits()
        return self._start_position

    def _checkpoint_in_commits(self) -> str | None:
        """Return the checkpoint that Hudi's streamer left in a commit.

        Or this writer's own, if the ledger has dropped its transaction since (C82).
        """
        timeline = snapshot_now(self._address.open()).timeline
        for instant in timeline.writes()[:-_HUDI_COMMITS_MAX:-1]:
            extra = timeline.commit(instant).extra_metadata
            if OURS in extra:
                stored = checkpoint_of(extra, where=self.request.target_base_path)
                if stored.writer == self.writer_id:
                    return stored.position
                continue
            found = hudi_checkpoint(extra)
            if found is not None:
                logger.warning("continuing from the checkpoint of Hudi's streamer: %s", found)
                return found
        return None

    def _write_batch(self, batch: Batch, start: BatchStart, started_ms: int) -> SyncResult:
        where, malformed_max = self.source.name, self._quarantine.records_max
        with read_batch(batch, self._chain, malformed_max=malformed_max, where=where) as rows:
            table, found = self._open_table() or self._create_table(rows), rows
            if self._quarantine.is_enabled:
                keys = KeyRule.of(table.properties).keys
                found = without_keys(found, keys, malformed_max=malformed_max, where=where)
            self._check_schema(table, found)
            checkpoint = StreamCheckpoint(
                self.writer_id, where, batch.end, start.reset, start.ignored
            )
            quarantined = self._quarantine.store(
                found.malformed, writer=self.writer_id, source=where, end=batch.end
            )
            app_transaction = AppTransaction(self.application, start.version, checkpoint.data)
            metadata = {
                **checkpoint.metadata(self.source.hudi_checkpoint(batch.end)),
                **quarantined,
            }
            report = self._commit(table, found, app_transaction, metadata)
        now = self.clock.now()
        newest = batch.source_epoch_ms
        return SyncResult(
            version=start.version,
            checkpoint=batch.end,
            units=batch.units,
            rows=report.rows_inserted + report.rows_updated + report.rows_deleted,
            malformed=int(quarantined.get(COUNT_KEY, "0")),
            report=report,
            duration_ms=now.monotonic_ms - started_ms,
            lag_ms=None if newest is None else now.wall_epoch_ms - newest,
        )

    def _commit(
        self,
        table: Table,
        found: BatchRows,
        app_transaction: AppTransaction,
        metadata: dict[str, str],
    ) -> WriteReport:
        def write() -> WriteReport:
            return table.write(
                found.rows,
                self.request.operation,
                metadata=metadata,
                app_transaction=app_transaction,
            )

        try:
            return write()
        except OutcomeUnknown:
            for _ in range(_RESOLVE_TRIES):
                last = table.app_transaction(app_transaction.app_id)
                if last is not None and last.version >= app_transaction.version:
                    break
                self.clock.sleep_ms(200)
            return write()  # whether or not it was committed, retrying the same version is safe

    def _create_table(self, found: BatchRows) -> Table:
        target = self.provider.target()
        schema = found.schema if target is None else arrow_of(target, where="the target schema")
        if not schema.names:
            raise Unavailable(
                f"{self.request.target_base_path}: cannot create the table without columns",
                hint="set a schema with --schemaprovider-class, or wait for records",
            )
        self._table = Table.create(
            self.request.target_base_path,
            pa.schema([each.with_nullable(nullable=True) for each in schema]),
            options=self.request.table_options(),
            exist_ok=True,
        )
        return self._table

    def _check_schema(self, table: Table, found: BatchRows) -> None:
        """Reject rows that do not fit the table's schema, naming every column that differs."""
        writer, problems = table.writer(), []
        known, rule = writer.columns(), writer.settings.evolution
        for column in found.schema:
            index = known.get_field_index(column.name)
            if index < 0:
                continue
            try:
                one = pa.schema([known.field(index)])
                evolved_schema(one, pa.schema([column]), rule, where=column.name)
            except InvalidInput as error:
                problems.append(error.message)
        if problems:
            raise InvalidInput(
                f"{table.uri}: the schema cannot evolve to that of {self.source.name}:"
                f" {'; '.join(problems)}",
                hint="cast the columns with --transformer-class, or use another table",
            )

    def _provided_schema(self) -> pa.Schema | None:
        avro = self.provider.source()
        return None if avro is None else arrow_of(avro, where="the schema of the source")

    def _table_schema(self) -> pa.Schema | None:
        """Return the table's columns, which type the records without a schema."""
        table = self._open_table()
        if table is None or self._chain:
            return None  # a transformer may use the same names for other columns
        found = table.writer().columns()
        return found if found.names else None
