"""Hudi keys that Tidelock does not read: which ones are ignored, and which are refused.

A Hudi key is honoured (declared in the catalogue, see `tidelock.core.config`), ignored (the table
and its rows are the same without it) or refused, because a job that sets it expects rows, keys or
checks that it would not get. Hudi's own default value is never refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

_UNSET: Final = ("", "null", "none")
_FALSE: Final = ("false", *_UNSET)


class KeySupport(StrEnum):
    """How a configuration key is treated."""

    HONOURED = "honoured"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class HudiKey:
    """A Hudi key, or a family of keys with one prefix (`hoodie.metrics.*`), that nothing reads.

    `reason` says why it is ignored or refused, `hint` what to do instead. A refused key is
    accepted with a value that has no effect: one of `allowed` (lower case), one that starts with
    `allowed_prefix`, or the value of one of the keys `same_as`.
    """

    key: str
    support: KeySupport
    reason: str
    hint: str = ""
    allowed: tuple[str, ...] = ()
    allowed_prefix: str = ""
    same_as: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """The beginning of the keys of a family; "" for a single key."""
        return self.key.removesuffix("*") if self.key.endswith("*") else ""

    def allows(self, value: object, settings: Mapping[str, object]) -> bool:
        """Return whether a value of this refused key has no effect and is accepted."""
        text = str(value).strip()
        if text.lower() in self.allowed:
            return True
        parts = [part.strip() for part in text.split(",")]
        if self.allowed_prefix and all(part.startswith(self.allowed_prefix) for part in parts):
            return True
        return any(text == str(settings[name]).strip() for name in self.same_as if name in settings)

    def allowed_text(self) -> list[str]:
        """Return the values that are accepted although the key is refused, for documentation."""
        values = [value for value in self.allowed if value not in _UNSET]
        values += [f"{self.allowed_prefix}…"] if self.allowed_prefix else []
        return values + [f"the value of {name}" for name in self.same_as[:1]]


def find(name: str) -> HudiKey | None:
    """Return the entry of a Hudi key, or of its family; None if it has none.

    Keys are case sensitive, as in Hudi.
    """
    found = _KEYS.get(name)
    if found is None:
        found = next((key for prefix, key in _FAMILIES.items() if name.startswith(prefix)), None)
    return found


def hudi_keys() -> list[HudiKey]:
    """Return every ignored and refused key and family, by name."""
    return sorted((*_KEYS.values(), *_FAMILIES.values()), key=lambda key: key.key)


def hudi_names() -> frozenset[str]:
    """Return the name of every ignored and refused key; families are not included."""
    return frozenset(_KEYS)


def _refused(
    reason: str,
    hint: str,
    *,
    allowed: tuple[str, ...] = _FALSE,
    allowed_prefix: str = "",
    same_as: tuple[str, ...] = (),
) -> HudiKey:
    """Return the entry of a refused key without its name, since a reason may refuse several."""
    return HudiKey("", KeySupport.REFUSED, reason, hint, allowed, allowed_prefix, same_as)


_STREAMERS: Final = ("hoodie.streamer.", "hoodie.deltastreamer.")
_OF_TABLE: Final = "it is read from the properties of the table; as an option it has no effect"
_NOT_SYNCED: Final = "tables are not synced to a catalog: register the path of the table there"
_IGNORED_FAMILIES: Final = {
    "hoodie.metrics.": "metrics are exported by `tidelock metrics`, not by Hudi's reporters",
    "hoodie.metricscompaction.": "metrics are exported by `tidelock metrics`",
    "hoodie.datasource.hive_sync.": _NOT_SYNCED,
    "hoodie.datasource.meta_sync.": _NOT_SYNCED,
    "hoodie.datasource.meta.sync.": _NOT_SYNCED,
    "hoodie.meta.sync.": _NOT_SYNCED,
    "hoodie.meta_sync.": _NOT_SYNCED,
    "hoodie.gcp.bigquery.": _NOT_SYNCED,
    "hoodie.datasource.datahub.": _NOT_SYNCED,
    "hoodie.aws.glue.": _NOT_SYNCED,
    "hoodie.metadata.": "Hudi's metadata table is not written",
    "_hoodie.metadata.": "Hudi's metadata table is not written",
    "hoodie.hfile.": "Hudi's metadata table is not written",
    "hoodie.record.merge.property.": _OF_TABLE,
    "hoodie.embed.timeline.": "there is no timeline server",
    "hoodie.filesystem.": "there is no timeline server, and requests are retried in any case",
    "hoodie.markers.": "there is no timeline server",
    "hoodie.metaserver.": "there is no metaserver",
    "hoodie.table.service.manager.": "table services run where they are called, or after writes",
    "hoodie.consistency.": "stores without consistent listings are not supported",
    "hoodie.optimistic.consistency.": "stores without consistent listings are not supported",
    "_hoodie.optimistic.": "stores without consistent listings are not supported",
    "hoodie.fs.": "the store is selected by the URI of the table",
    "hoodie.io.": "the store is selected by the URI of the table",
    "hoodie.storage.": "the store is selected by the URI of the table",
    "hoodie.orc.": "base files are Parquet",
    "hoodie.lance.": "base files are Parquet",
    **{
        f"{head}{family}": "it belongs to a source or schema provider that is not supported"
        for head in _STREAMERS
        for family in (
            "source.cloud.",
            "source.gcs.",
            "source.kinesis.",
            "source.pulsar.",
            "source.s3.",
            "source.s3incr.",
            "source.sql.",
            "schemaprovider.proto.",
            "schemaprovider.schema_post_processor.",
            "schemaprovider.source.schema.hive.",
            "schemaprovider.source.schema.jdbc.",
            "schemaprovider.target.schema.hive.",
        )
    },
}
"""Families of ignored keys, by prefix."""

_PARALLELISM: Final = """
    hoodie.common.diskmap.compression.enabled
    hoodie.common.spillable.diskmap.type
    hoodie.datasource.write.row.writer.enable
    hoodie.delete.shuffle.parallelism
    hoodie.fail.job.on.duplicate.data.file.detection
    hoodie.file.listing.parallelism
    hoodie.finalize.write.parallelism
    hoodie.insert.shuffle.parallelism
    hoodie.internal.sql.merge.into.writes
    hoodie.memory.compaction.fraction
    hoodie.memory.compaction.max.size
    hoodie.memory.dfs.buffer.max.size
    hoodie.memory.merge.fraction
    hoodie.memory.merge.max.size
    hoodie.memory.spillable.map.path
    hoodie.memory.writestatus.failure.fraction
    hoodie.post.commit.failures.ignored
    hoodie.release.resource.on.completion.enable
    hoodie.sensitive.config.keys
    hoodie.spark.polaris.catalog.class
    hoodie.spark.sql.merge.into.partial.updates
    hoodie.spark.sql.optimized.writes.enable
    hoodie.sql.bulk.insert.enable
    hoodie.upsert.shuffle.parallelism
    hoodie.write.buffer.limit.bytes
    hoodie.write.buffer.record.cache.limit
    hoodie.write.buffer.record.sampling.rate
    hoodie.write.can.ignore.post.commit.failures
    hoodie.write.concat.handle.class
    hoodie.write.executor.disruptor.buffer.limit.bytes
    hoodie.write.executor.disruptor.wait.strategy
    hoodie.write.executor.type
    hoodie.write.ignore.failed
    hoodie.write.merge.handle.class
    hoodie.write.merge.handle.fallback
    hoodie.write.record.positions
    hoodie.write.rolling.metadata.timeline.lookback.commits
    hoodie.write.status.storage.level
    hoodie.write.tagged.record.storage.level
    hoodie.write.track.event.time.watermark
    hoodie.writestatus.class
"""
_CONCURRENCY: Final = """
    _.hoodie.allow.multi.write.on.same.instant
    _hoodie.time.generator.reuse.enable
    hoodie.allow.empty.commit
    hoodie.auto.adjust.lock.configs
    hoodie.block.writes.on.speculative.execution
    hoodie.time.generator.type
    hoodie.write.concurrency.async.conflict.detector.initial_delay_ms
    hoodie.write.concurrency.early.conflict.check.commit.conflict
    hoodie.write.concurrency.early.conflict.detection.strategy
    hoodie.write.markers.type
"""
_SCHEMA: Final = """
    hoodie.avro.schema
    hoodie.avro.schema.external.transformation
    hoodie.avro.schema.externalTransformation
    hoodie.avro.schema.validate
    hoodie.bulkinsert.schema.ddl
    hoodie.datasource.write.reconcile.schema
    hoodie.internal.schema
    hoodie.internal.write.schema.canonicalize
    hoodie.payload.event.time.field
    hoodie.write.concurrency.schema.conflict.resolution.enable
    hoodie.write.schema
"""
_TABLE_PROPERTIES: Final = """
    hoodie.datasource.partition_extractor_class
    hoodie.table.cdc.supplemental.logging.mode
    hoodie.table.checksum
    hoodie.table.create.schema
    hoodie.table.index.defs.path
    hoodie.table.initial.version
    hoodie.table.metadata.partitions
    hoodie.table.metadata.partitions.inflight
    hoodie.table.partition_extractor_class
    hoodie.table.secondary.indexes.metadata
    hoodie.table.timeline.timezone
    hoodie.timeline.layout.version
    hoodie.write.auto.upgrade
    hoodie.write.complex.keygen.validation.enable
"""
_MERGE_PROPERTIES: Final = """
    hoodie.payload.delete.field
    hoodie.payload.delete.marker
"""
_FILES: Final = """
    _hoodie.record.size.estimator.max.commits
    hoodie.avro.write.support.class
    hoodie.bloom.index.bucketized.checking
    hoodie.bloom.index.bucketized.checking.enable.dynamic.parallelism
    hoodie.bloom.index.fileid.key.sorting.enable
    hoodie.bloom.index.filter.type
    hoodie.bloom.index.input.storage.level
    hoodie.bloom.index.keys.per.bucket
    hoodie.bloom.index.parallelism
    hoodie.bloom.index.prune.by.ranges
    hoodie.bloom.index.update.partition.path
    hoodie.bloom.index.use.caching
    hoodie.bloom.index.use.metadata
    hoodie.bloom.index.use.treebased.filter
    hoodie.bucket.index.max.num.buckets
    hoodie.bucket.index.merge.threshold
    hoodie.bucket.index.min.num.buckets
    hoodie.bucket.index.partition.rule.type
    hoodie.bucket.index.query.pruning
    hoodie.bucket.index.remote.partitioner.enable
    hoodie.bucket.index.split.threshold
    hoodie.bulkinsert.sort.suffix.record_key
    hoodie.bulkinsert.user.defined.partitioner.class
    hoodie.fileid.prefix.provider.class
    hoodie.global.index.reconcile.parallelism
    hoodie.global.simple.index.parallelism
    hoodie.logfile.data.block.max.size
    hoodie.logfile.max.size
    hoodie.logfile.to.parquet.compression.ratio
    hoodie.merge.data.validation.enabled
    hoodie.merge.use.record.positions
    hoodie.parquet.compression.ratio
    hoodie.parquet.dictionary.enabled
    hoodie.parquet.field_id.write.enabled
    hoodie.parquet.flink.rowdata.write.support.class
    hoodie.parquet.outputtimestamptype
    hoodie.parquet.page.size
    hoodie.parquet.spark.row.write.support.class
    hoodie.parquet.write.config.injector.class
    hoodie.parquet.write.utc-timezone.enabled
    hoodie.parquet.writelegacyformat.enabled
    hoodie.partition.metafile.use.base.format
    hoodie.record.size.estimator.average.metadata.size
    hoodie.record.size.estimator.class
    hoodie.simple.index.input.storage.level
    hoodie.simple.index.parallelism
    hoodie.simple.index.update.partition.path
    hoodie.simple.index.use.caching
    hoodie.skip.default.partition.validation
"""
_SERVICES: Final = """
    hoodie.archive.beyond.savepoint
    hoodie.archive.block.on.latest.clean.ectr
    hoodie.archive.delete.parallelism
    hoodie.archivelog.folder
    hoodie.clean.allow.multiple
    hoodie.clean.delete.bootstrap.base.file
    hoodie.clean.incremental.enabled
    hoodie.clean.max.commits.to.clean
    hoodie.clean.multiple.enabled
    hoodie.clean.optimize.using.local.engine.context
    hoodie.clean.parallelism
    hoodie.clean.trigger.strategy
    hoodie.cleaner.delete.bootstrap.base.file
    hoodie.cleaner.incremental.mode
    hoodie.cleaner.parallelism
    hoodie.clustering.execution.strategy.class
    hoodie.clustering.fail.on.pending.ingestion.during.conflict.resolution
    hoodie.clustering.group.read.parallelism
    hoodie.clustering.max.parallelism
    hoodie.clustering.plan.generation.use.local.engine.context
    hoodie.clustering.plan.strategy.binary.copy.schema.evolution.enable
    hoodie.clustering.plan.strategy.earliest.commit.to.cluster
    hoodie.clustering.plan.strategy.file.slices.sort.by
    hoodie.clustering.rollback.pending.replacecommit.on.conflict
    hoodie.clustering.updates.strategy
    hoodie.commits.archival.batch
    hoodie.compact.merge.handle.class
    hoodie.compaction.lazy.block.read
    hoodie.compaction.plan.generator
    hoodie.compaction.reverse.log.read
    hoodie.datasource.write.streaming.disable.compaction
    hoodie.fail.on.timeline.archiving
    hoodie.fail.writes.on.inline.table.service.exception
    hoodie.layout.optimize.build.curve.sample.size
    hoodie.layout.optimize.curve.build.method
    hoodie.layout.optimize.enable
    hoodie.log.compaction.enable
    hoodie.rollback.avoid.duplicate.plan
    hoodie.rollback.instant.backup.dir
    hoodie.rollback.instant.backup.enabled
    hoodie.rollback.parallelism
    hoodie.table.services.incremental.enabled
    hoodie.timeline.compaction.batch.size
    hoodie.timeline.compaction.target.file.max.bytes
    hoodie.timeline.manifest.retained.versions
    hoodie.write.empty.clean.interval.hours
"""
_READS: Final = """
    hoodie.cdc.file.group.iterator.memory.spill.bytes
    hoodie.datasource.read.create.filesystem.relation
    hoodie.datasource.read.extract.partition.values.from.path
    hoodie.datasource.read.file.index.list.partitions.from.catalog
    hoodie.datasource.read.file.index.listing.mode
    hoodie.datasource.read.file.index.listing.partition-path-prefix.analysis.enabled
    hoodie.datasource.read.file.index.optimize.listing.using.path.filter
    hoodie.datasource.read.incr.fallback.fulltablescan.enable
    hoodie.datasource.read.incr.skip_cluster
    hoodie.datasource.read.incr.skip_compact
    hoodie.datasource.read.incr.table.version
    hoodie.datasource.read.partition.value.extractor.enabled
    hoodie.datasource.read.streaming.table.version
    hoodie.datasource.read.table.valued.function.filesystem.relation.subpath
    hoodie.datasource.read.table.valued.function.timeline.relation
    hoodie.datasource.read.table.valued.function.timeline.relation.archived
    hoodie.file.group.reader.enabled
    hoodie.file.index.cache.spillable.mem
    hoodie.file.index.cache.use.spillable.map
    hoodie.file.index.enable
    hoodie.read.blob.inline.mode
    hoodie.read.timeline.holes.resolution.policy
"""
_INDEXES: Final = """
    hoodie.datasource.write.secondarykey.column
    hoodie.enable.data.skipping
    hoodie.expression.index.function
    hoodie.expression.index.range.metadata.storage.level
    hoodie.expression.index.type
    hoodie.hfile.block.cache.enabled
    hoodie.hfile.block.cache.size
    hoodie.hfile.block.cache.ttl.minutes
    hoodie.hfile.block.size
    hoodie.hfile.compression.algorithm
    hoodie.hfile.max.file.size
    hoodie.hfile.writes.allow.duplicates
    hoodie.index.name
    hoodie.layout.optimize.data.skipping.enable
    hoodie.record.index.input.storage.level
    hoodie.record.index.update.partition.path
    hoodie.record.index.use.caching
"""
_UNUSED: Final = """
    hoodie.bootstrap.data.queries.only
    hoodie.bootstrap.full.input.provider
    hoodie.bootstrap.index.class
    hoodie.bootstrap.index.enable
    hoodie.bootstrap.index.type
    hoodie.bootstrap.mode.selector
    hoodie.bootstrap.mode.selector.regex
    hoodie.bootstrap.mode.selector.regex.mode
    hoodie.bootstrap.parallelism
    hoodie.bootstrap.partitionpath.translator.class
    hoodie.deltastreamer.keygen.datetime.parser.class
    hoodie.errortable.insert.shuffle.parallelism
    hoodie.errortable.source.rdd.persist
    hoodie.errortable.target.table.name
    hoodie.errortable.upsert.shuffle.parallelism
    hoodie.errortable.validate.recordcreation.enable
    hoodie.errortable.validate.targetschema.enable
    hoodie.errortable.write.class
    hoodie.errortable.write.failure.strategy
    hoodie.errortable.write.union.enable
    hoodie.keygen.datetime.parser.class
    hoodie.precommit.validators.equality.sql.queries
    hoodie.precommit.validators.failure.policy
    hoodie.precommit.validators.inequality.sql.queries
    hoodie.precommit.validators.single.value.sql.queries
    hoodie.precommit.validators.streaming.offset.tolerance.percentage
    hoodie.prewrite.cleaner.policy
    hoodie.storage.layout.partitioner.class
    hoodie.storage.layout.type
    hoodie.write.commit.callback.class
    hoodie.write.commit.callback.http.api.key
    hoodie.write.commit.callback.http.custom.headers
    hoodie.write.commit.callback.http.timeout.seconds
    hoodie.write.commit.callback.http.url
"""
_STREAMER_SUFFIXES: Final = """
    ingestion.tablesToBeIngested
    ingestion.targetBasePath
    jdbc.storage.level
    row.throw.explicit.exceptions
    sample.writes.enabled
    sample.writes.size
    schema.make.columns.nullable
    source.hoodieincr.drop.all.meta.fields.from.source
    source.hoodieincr.file.format
    source.hoodieincr.partition.extractor.class
    source.kafka.checkpoint.type
    source.kafka.enable.commit.offset
    source.kafka.fetch_partition.time.out
    source.kafka.ignore.prefix.config.list
    source.kafka.offset.skip.buffer.minutes
    source.kafka.proto.value.deserializer.class
    source.kafka.spark.sql.consumer.enable
    source.kafka.value.deserializer.class
    source.kafka.value.deserializer.schema
    source.sanitize.invalid.char.mask
"""
_STREAMER: Final = " ".join(
    f"{head}{suffix}" for head in _STREAMERS for suffix in _STREAMER_SUFFIXES.split()
)

_IGNORED: Final[Mapping[str, str]] = {
    name: reason
    for names, reason in (
        (_PARALLELISM, "it tunes how Hudi distributes work over tasks, memory and disk"),
        (_CONCURRENCY, "conflicts are resolved by the ledger"),
        (
            _SCHEMA,
            "the schema comes with the rows, and every write checks it against that of the table",
        ),
        (_TABLE_PROPERTIES, "it is maintained by the table"),
        (_MERGE_PROPERTIES, _OF_TABLE),
        (_FILES, "it tunes how Hudi looks up keys and lays out files; the rows are the same"),
        (_SERVICES, "it tunes the internals of Hudi's table services"),
        (_READS, "it tunes how Hudi's readers plan; the rows are the same"),
        (_INDEXES, "Hudi's metadata table and its indexes are not written"),
        (_STREAMER, "it tunes how Hudi's streamer reads its source"),
        (_UNUSED, "it belongs to a feature of Hudi that is not used"),
    )
    for name in names.split()
}

_METADATA_TABLE: Final = HudiKey(
    "hoodie.metadata.enable",
    KeySupport.IGNORED,
    "Hudi's metadata table is not written, and writes and services refuse a table that has one",
    "set it to false for Java writers of the same table; tidelock.metadata.table.policy=disable"
    " removes a metadata table",
)

_KEY_INDEX: Final = _refused(
    "keys are not looked up in Hudi's record index, which is not written",
    "remove the key; record keys are unique within a partition, see hoodie.index.type",
)
_BASE_FORMAT: Final = _refused(
    "base files are Parquet", "remove the key", allowed=("parquet", *_UNSET)
)
_LOG_FORMAT: Final = _refused(
    "log files have Hudi's log format", "remove the key", allowed=("hoodie_log", *_UNSET)
)
_ALL_PARTITIONS: Final = _refused(
    "a clean covers every partition, and would delete files in others, too",
    "remove the key, or disable cleaning with hoodie.clean.automatic=false",
)
_ORDERED: Final = (
    "hoodie.table.ordering.fields",
    "hoodie.datasource.write.precombine.field",
    "hoodie.table.precombine.field",
)
_JAVA_CHECKS: Final = _refused(
    "Java classes cannot be run, so the checks would be skipped", "check the rows before the write"
)
_MERGERS: Final = _refused(
    "custom mergers are Java classes, which cannot be run",
    "use hoodie.write.record.merge.mode=EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING",
    allowed_prefix="org.apache.hudi.",
)
_ENCRYPTION: Final = ("parquet.crypto.", "parquet.encryption.")
_ENCRYPTED: Final = _refused(
    "base files are not encrypted", "remove the key, and use the encryption of the store"
)

_REGISTRY_URL: Final = _refused(
    "each schema has one registry URL",
    "use hoodie.streamer.schemaprovider.registry.url and registry.targetUrl",
)
_STREAMER_REFUSED: Final = {
    "checkpoint.force.skip": _refused(
        "the checkpoint is part of each commit, so that every record is written once",
        "remove the key, and write a backfill with `df.write`",
    ),
    "source.sanitize.invalid.schema.field.names": _refused(
        "columns keep their names", "rename them with a transformer"
    ),
    "source.json.skip.invalid.records": _refused(
        "malformed records are handled by a key of Tidelock",
        "use tidelock.streamer.malformed=quarantine",
    ),
    "source.hoodieincr.partition.fields": _refused(
        "rows of the source include its partition columns", "remove the key"
    ),
    "source.input.selector": _refused(
        "files are selected by modification time, which is Hudi's default", "remove the key"
    ),
    "jdbc.incr.fallback.to.full.fetch": _refused(
        "an incremental read never falls back to a full read", "remove the key"
    ),
    "schemaprovider.schema_post_processor": _refused(
        "Java classes cannot be run", "change columns with a transformer"
    ),
    "transformer.class": _refused(
        "the transformer is a command line option of the streamer", "use --transformer-class"
    ),
    "schemaprovider.registry.schemaconverter": _refused(
        "Java classes cannot be run", "register an Avro schema"
    ),
    "schemaprovider.registry.baseUrl": _REGISTRY_URL,
    "schemaprovider.registry.urlSuffix": _REGISTRY_URL,
    "schemaprovider.registry.sourceUrlSuffix": _REGISTRY_URL,
    "schemaprovider.registry.targetUrlSuffix": _REGISTRY_URL,
}

_REFUSED: Final[Mapping[str, HudiKey]] = {
    **{f"{head}{name}": each for head in _STREAMERS for name, each in _STREAMER_REFUSED.items()},
    "hoodie.allow.operation.metadata.field": _refused(
        "rows do not record the operation that wrote them", "remove the key; read changes instead"
    ),
    "hoodie.base.file.format": _BASE_FORMAT,
    "hoodie.table.base.file.format": _BASE_FORMAT,
    "hoodie.table.ro.file.format": _BASE_FORMAT,
    "hoodie.table.log.file.format": _LOG_FORMAT,
    "hoodie.table.rt.file.format": _LOG_FORMAT,
    "hoodie.table.multiple.base.file.formats.enable": _refused(
        "base files are Parquet", "remove the key"
    ),
    "hoodie.table.format": _refused(
        "tables have Hudi's native format", "remove the key", allowed=("native", *_UNSET)
    ),
    "hoodie.bootstrap.base.path": _refused(
        "bootstrap tables, which point at files elsewhere, are not created",
        "write the rows with bulk_insert",
    ),
    "hoodie.bucket.index.partition.expressions": _refused(
        "every partition has the same number of buckets", "use only hoodie.bucket.index.num.buckets"
    ),
    "hoodie.bulkinsert.overwrite.operation.type": _refused(
        "the behaviour of a write is set by its operation",
        "use hoodie.datasource.write.operation=insert_overwrite or insert_overwrite_table",
    ),
    "hoodie.clean.partition.filter.regex": _ALL_PARTITIONS,
    "hoodie.cleaner.partition.filter.regex": _ALL_PARTITIONS,
    "hoodie.clean.partition.filter.selected": _ALL_PARTITIONS,
    "hoodie.cleaner.partition.filter.selected": _ALL_PARTITIONS,
    "hoodie.client.init.callback.classes": _JAVA_CHECKS,
    "hoodie.precommit.validators": _JAVA_CHECKS,
    "hoodie.prewrite.validators": _JAVA_CHECKS,
    "hoodie.write.commit.callback.on": _refused(
        "there are no commit callbacks",
        "follow the table with changes(), or the ledger with `tidelock ledger`",
    ),
    "hoodie.write.record.merge.custom.implementation.classes": _MERGERS,
    "hoodie.datasource.write.record.merger.impls": _MERGERS,
    "hoodie.datasource.write.drop.partition.columns": _refused(
        "base files keep the partition columns", "remove the key"
    ),
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": _refused(
        "timestamps in keys have one format", "remove the key, or use a string column"
    ),
    "hoodie.datasource.write.slash.separated.date.partitioning": _refused(
        "a date is one partition folder",
        "use the TIMESTAMP key generator with output format yyyy/MM/dd",
    ),
    "hoodie.write.complex.keygen.new.encoding": _refused(
        "keys of the complex generator are written as field:value, which is Hudi's default",
        "remove the key",
    ),
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": _refused(
        "a write does not drop columns that its rows do not have",
        "remove the key, and drop columns with ALTER TABLE",
    ),
    "hoodie.schema.on.read.enable": _refused(
        "columns are identified by name, without a history of renames",
        "remove the key: columns can be added and widened",
    ),
    "hoodie.metadata.global.record.level.index.enable": _KEY_INDEX,
    "hoodie.metadata.record.index.enable": _KEY_INDEX,
    "hoodie.metadata.record.level.index.enable": _KEY_INDEX,
    "hoodie.index.class": _refused(
        "custom indexes are Java classes, which cannot be run", "use hoodie.index.type"
    ),
    "hoodie.datasource.merge.type": _refused(
        "a snapshot merges log files into base files",
        "use hoodie.datasource.query.type=read_optimized to read only base files",
        allowed=("payload_combine", *_UNSET),
    ),
    "hoodie.datasource.read.incr.filters": _refused(
        "an incremental read would return rows that the filter excludes", "filter the DataFrame"
    ),
    "hoodie.datasource.read.incr.path.glob": _refused(
        "an incremental read would return rows of other folders", "use tidelock.read.partitions"
    ),
    "hoodie.datasource.read.paths": _refused(
        "one table is read at a time", "load each path, and union the DataFrames"
    ),
    "hoodie.datasource.read.schema.use.end.instanttime": _refused(
        "rows have the current columns of the table", "select the columns"
    ),
    "hoodie.errortable.enable": _refused(
        "there is no error table",
        "use tidelock.streamer.malformed=quarantine, which stores such records next to the table",
    ),
    "hoodie.metaserver.enabled": _refused(
        "the timeline is read from the folder of the table", "remove the key"
    ),
    "hoodie.payload.ordering.field": _refused(
        "rows are ordered by the ordering fields of the table",
        "use hoodie.table.ordering.fields",
        same_as=_ORDERED,
    ),
    "hoodie.populate.meta.fields": _refused(
        "rows are looked up by their meta columns", "remove the key", allowed=("true", *_UNSET)
    ),
    "hoodie.sql.insert.mode": _refused(
        "it is deprecated in Hudi, and is not supported",
        "use hoodie.spark.sql.insert.into.operation and hoodie.datasource.insert.dup.policy",
        allowed=("upsert", "non-strict", *_UNSET),
    ),
    "hoodie.static.overwrite.partition.paths": _refused(
        "an overwrite replaces the partitions of its rows",
        "use hoodie.datasource.write.partitions.to.delete with delete_partition",
    ),
    "hoodie.table.cdc.enabled": _refused(
        "rows before a change are not stored", "remove the key; changes() returns rows after it"
    ),
    "hoodie.table.partial.update.mode": _refused(
        "a row replaces the previous row as a whole", "write complete rows"
    ),
    "hoodie.write.partial.update.schema": _refused(
        "a row replaces the previous row as a whole", "write complete rows"
    ),
    "hoodie.timeline.path": _refused(
        "the timeline is in its default folder", "remove the key", allowed=("timeline", *_UNSET)
    ),
    "hoodie.timeline.history.path": _refused(
        "the history is in its default folder", "remove the key", allowed=("history", *_UNSET)
    ),
    "hoodie.write.rolling.metadata.keys": _refused(
        "commit metadata is not carried over to the next commit", "pass it to each write"
    ),
}

_KEYS: Final[Mapping[str, HudiKey]] = {
    **{name: HudiKey(name, KeySupport.IGNORED, why) for name, why in _IGNORED.items()},
    **{name: replace(refusal, key=name) for name, refusal in _REFUSED.items()},
    _METADATA_TABLE.key: _METADATA_TABLE,
}
_FAMILIES: Final[Mapping[str, HudiKey]] = {
    **{
        prefix: HudiKey(f"{prefix}*", KeySupport.IGNORED, why)
        for prefix, why in _IGNORED_FAMILIES.items()
    },
    **{prefix: replace(_ENCRYPTED, key=f"{prefix}*") for prefix in _ENCRYPTION},
}
