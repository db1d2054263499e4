"""One batch from the source into the table, with the place it ends at in the same commit.

The ledger takes each version of a writer's mark once (C78-C83). A batch is built from the place
that the last mark says and carries the next version, so of any number of streamers with one id,
dead or alive, only one can have its batch taken; the others see the mark and go on behind it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import InvalidInput, NotFound, OutcomeUnknown, Unavailable
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.metrics import Metrics
from tidelock.operation.inputs import evolved_schema
from tidelock.operation.reads import snapshot_now
from tidelock.operation.report import WriteReport
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.checkpoint import (
    OURS,
    Checkpoint,
    checkpoint_of,
    hudi_place,
)
from tidelock.pipeline.streamer.decoding import Schemas
from tidelock.pipeline.streamer.initial import initial_checkpoint
from tidelock.pipeline.streamer.observing import told_batch
from tidelock.pipeline.streamer.pace import Pace
from tidelock.pipeline.streamer.placing import Place, Told, next_place
from tidelock.pipeline.streamer.quarantine import COUNT_KEY, Quarantine
from tidelock.pipeline.streamer.reading import Read, reading, without_keys
from tidelock.pipeline.streamer.schemas import SchemaProvider, arrow_of, schema_provider
from tidelock.pipeline.streamer.settings import Asked
from tidelock.pipeline.streamer.sources.contract import Batch, Source
from tidelock.pipeline.streamer.sources.named import source
from tidelock.pipeline.streamer.sources.spilling import Spill
from tidelock.pipeline.streamer.transform import Transformer, said_by_spark, transformers
from tidelock.store.address import StoreAddress
from tidelock.table.keys import KeyRule
from tidelock.tableservice.table import Table
from tidelock.txn.mark import Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_HUDI_COMMITS_MAX: Final = 100
"""How many commits are looked at for the checkpoint of a Hudi streamer that is taken over."""

_SETTLE_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Synced:
    """A batch that is in the table. `repeated` says that another streamer of this id wrote it.

    `taken` counts in the units of the source; `lag_ms` is how old the newest record was when it
    became visible, where the source tells.
    """

    version: int
    checkpoint: str
    taken: int
    rows: int
    malformed: int
    report: WriteReport
    duration_ms: int
    lag_ms: int | None = None

    @property
    def repeated(self) -> bool:
        """Whether somebody else had written a batch of this version."""
        return self.report.repeated


@dataclass
class Streamer:
    """Takes one source into one table.

    Guarantees: each record between two checkpoints of a writer is in exactly one commit, whatever
    dies when, and however many streamers of the same id there are. Does not guarantee: that a
    source which changes what it already gave is read again.
    """

    spark: SparkSession
    asked: Asked
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)
    metrics: Metrics = field(default_factory=Metrics)
    _table: Table | None = field(default=None, init=False)
    _begun: str | None = field(default=None, init=False)
    _pace: Pace | None = field(default=None, init=False)

    @cached_property
    def source(self) -> Source:
        """What is read."""
        return source(
            self.asked.source,
            self.spark,
            self.asked.properties,
            provider=self.provider,
            schemas=Schemas(self._provided, self._known),
            spill=Spill(self._address.open),
        )

    @cached_property
    def provider(self) -> SchemaProvider:
        """What says which columns there are."""
        return schema_provider(self.asked.schemaprovider_class, self.asked.properties)

    @cached_property
    def writer_id(self) -> str:
        """Whose checkpoint it is: given, or by the source."""
        return c.WRITER_ID.value(self.asked.properties) or self.source.name

    @property
    def application(self) -> str:
        """The name of the writer's mark in the ledger."""
        return f"streamer:{self.writer_id}"

    @cached_property
    def _address(self) -> StoreAddress:
        return StoreAddress(self.asked.target_base_path, self.asked.table_options())

    @cached_property
    def _chain(self) -> tuple[Transformer, ...]:
        return transformers(self.asked.transformer_class, self.asked.properties, self.ids)

    @cached_property
    def _quarantine(self) -> Quarantine:
        return Quarantine.read(self.asked.properties, self.asked.target_base_path)

    def sync(self) -> Synced | None:
        """Take the next batch into the table; None if the source has nothing new.

        Raises: `Unavailable` and `Conflict` where trying again may help, and all that reading and
        writing raise. Whatever is raised, the next call goes on from what the table says.
        """
        try:
            return self._sync()
        except AnalysisException as error:
            raise InvalidInput(
                f"{self.source.name} cannot be read as it is: {said_by_spark(error)}",
                hint="a schema provider or a transformation may say what the columns are",
            ) from error
        except (Py4JError, PySparkException) as error:
            raise Unavailable(
                f"Spark could not take {self.source.name}: {said_by_spark(error)}",
                hint="nothing of the batch is visible; it is tried again from where it began",
            ) from error

    def _sync(self) -> Synced | None:
        begun_ms = self.clock.now().monotonic_ms
        place, pace = self._place(), self.pace
        batch = self.source.next(place.at, pace.limit)
        if batch is None:
            return None
        if not batch.taken and self._opened() is None:
            # There is no table yet that could remember where the source was begun.
            self._begun = batch.end
            return None
        done = self._take(batch, place, begun_ms)
        if not done.repeated:
            self._pace = pace.after(batch.taken, done.duration_ms / 1_000)
            self.source.done_with(batch.end)
        told_batch(self.metrics, done, limit=self.pace.limit)
        return done

    @property
    def pace(self) -> Pace:
        """How much the next batch takes."""
        if self._pace is None:
            most = self.asked.source_limit or self.source.limit
            target_s = c.BATCH_TARGET_S.required(self.asked.properties)
            self._pace = Pace.of(most, target_s, least=self.source.least)
        return self._pace

    def close(self) -> None:
        """Give back what is held."""
        if "source" in self.__dict__:
            self.source.close()
        if self._table is not None:
            self._table.close()
            self._table = None

    @property
    def table(self) -> Table | None:
        """The table, once there is one."""
        return self._opened()

    def _opened(self) -> Table | None:
        if self._table is None:
            try:
                self._table = Table.open(
                    self.asked.target_base_path, options=self.asked.table_options()
                )
            except NotFound:
                return None
        return self._table

    def _place(self) -> Place:
        """Return where to go on: what the ledger says, unless the user says where to begin."""
        table, where = self._opened(), self.asked.target_base_path
        mark = None if table is None else table.mark(self.application)
        return next_place(
            self._told,
            None if mark is None else checkpoint_of(mark.data, where=where),
            version=0 if mark is None else mark.version + 1,
            source=self.source.name,
            anew=lambda: self._begun,
            first=self._first,
        )

    @cached_property
    def _told(self) -> Told:
        asked = self.asked
        has_initial = asked.initial_checkpoint_provider is not None
        return Told(asked.checkpoint or "", asked.ignore_checkpoint or "", has_initial)

    def _first(self) -> str | None:
        """Return where this writer begins a source that it has not read."""
        if self._begun is None and self.asked.initial_checkpoint_provider is not None:
            named = self.asked.initial_checkpoint_provider
            # Asked once: what it looks at may go on while there is no table to remember this.
            self._begun = initial_checkpoint(named, self.asked.properties, self.source.name)
            logger.warning("%s says where to begin: %s", named, self._begun)
        if self._begun is None and self._opened() is not None:
            return self._left_in_commits()
        return self._begun

    def _left_in_commits(self) -> str | None:
        """Return the checkpoint of Hudi's own streamer, which this one takes over from.

        Or one's own, if so many others came since that the ledger has forgotten the mark (C82).
        """
        timeline = snapshot_now(self._address.open()).timeline
        for instant in timeline.writes()[:-_HUDI_COMMITS_MAX:-1]:
            extra = timeline.commit(instant).extra_metadata
            if OURS in extra:
                held = checkpoint_of(extra, where=self.asked.target_base_path)
                if held.writer == self.writer_id:
                    return held.at
                continue
            found = hudi_place(extra)
            if found is not None:
                logger.warning("going on from the checkpoint that Hudi's streamer left: %s", found)
                return found
        return None

    def _take(self, batch: Batch, place: Place, begun_ms: int) -> Synced:
        where, most = self.source.name, self._quarantine.most
        with reading(batch, self._chain, malformed_max=most, where=where) as read:
            table, found = self._opened() or self._created(read), read
            if self._quarantine.puts_aside:
                keys = KeyRule.of(table.properties).keys
                found = without_keys(found, keys, malformed_max=most, where=where)
            self._check_schema(table, found)
            checkpoint = Checkpoint(self.writer_id, where, batch.end, place.reset, place.ignored)
            told = self._quarantine.take(
                found.malformed, writer=self.writer_id, source=where, end=batch.end
            )
            mark = Mark(self.application, place.version, checkpoint.data)
            metadata = {**checkpoint.metadata(self.source.hudi_place(batch.end)), **told}
            report = self._written(table, found, mark, metadata)
        now = self.clock.now()
        newest = batch.source_epoch_ms
        return Synced(
            version=place.version,
            checkpoint=batch.end,
            taken=batch.taken,
            rows=report.rows_inserted + report.rows_updated + report.rows_deleted,
            malformed=int(told.get(COUNT_KEY, "0")),
            report=report,
            duration_ms=now.monotonic_ms - begun_ms,
            lag_ms=None if newest is None else now.wall_epoch_ms - newest,
        )

    def _written(
        self, table: Table, found: Read, mark: Mark, metadata: dict[str, str]
    ) -> WriteReport:
        try:
            return table.write(found.rows, self.asked.operation, metadata=metadata, mark=mark)
        except OutcomeUnknown:
            for _ in range(_SETTLE_TRIES):
                last = table.mark(mark.application)
                if last is not None and last.version >= mark.version:
                    break
                self.clock.sleep_ms(200)
            # Landed or not: the same version is tried again, and the ledger takes it once.
            return table.write(found.rows, self.asked.operation, metadata=metadata, mark=mark)

    def _created(self, found: Read) -> Table:
        target = self.provider.target()
        schema = found.schema if target is None else arrow_of(target, where="the target schema")
        if not schema.names:
            raise Unavailable(
                f"{self.asked.target_base_path}: no record says which columns the table has",
                hint="give a schema with --schemaprovider-class, or wait for records",
            )
        self._table = Table.create(
            self.asked.target_base_path,
            pa.schema([each.with_nullable(nullable=True) for each in schema]),
            options=self.asked.table_options(),
            exist_ok=True,
        )
        return self._table

    def _check_schema(self, table: Table, found: Read) -> None:
        """Refuse rows that the table's schema cannot take, and name every column that differs."""
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
                f"{table.uri}: the schema cannot evolve to what {self.source.name} gives:"
                f" {'; '.join(problems)}",
                hint="cast the columns with --transformer-class, or write to another table",
            )

    def _provided(self) -> pa.Schema | None:
        avro = self.provider.source()
        return None if avro is None else arrow_of(avro, where="the schema of the source")

    def _known(self) -> pa.Schema | None:
        """Return the table's columns: what records without a schema are read as."""
        table = self._opened()
        if table is None or self._chain:
            return None  # a transformation may call other columns by the same names
        found = table.writer().columns()
        return found if found.names else None
