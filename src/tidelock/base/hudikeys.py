"""Hudi's settings that nothing here reads: which ones ask for nothing, and which are refused.

A setting of Hudi's is honoured (it is declared, see `tidelock.base.config`), harmless (the table
and its rows are the same without it) or refused, because a job that sets it expects rows, keys or
checks that it would not get. Hudi's own default is never refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_UNSET: Final = ("", "null", "none")
_FALSE: Final = ("false", *_UNSET)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a setting is refused, unless its value asks for nothing.

    `fine` are the values that do, in small letters. A value that begins with `fine_prefix`, or is
    the value of one of the settings `same_as`, does as well.
    """

    why: str
    hint: str
    fine: tuple[str, ...] = _FALSE
    fine_prefix: str = ""
    same_as: tuple[str, ...] = ()

    def allows(self, value: object, settings: Mapping[str, object]) -> bool:
        """Tell whether the value asks for nothing that is not done."""
        text = str(value).strip()
        if text.lower() in self.fine:
            return True
        names = [part.strip() for part in text.split(",")]
        if self.fine_prefix and all(name.startswith(self.fine_prefix) for name in names):
            return True
        return any(text == str(settings[name]).strip() for name in self.same_as if name in settings)


def harmless(name: str) -> str | None:
    """Return why a setting of Hudi's changes nothing here; None if it is none of those."""
    found = _HARMLESS.get(name.lower())
    if found is None:
        found = next((why for head, why in _FAMILIES.items() if name.startswith(head)), None)
    return found


def refusal(name: str) -> Refusal | None:
    """Return why a setting of Hudi's may be refused; None if it is none of those."""
    found = _REFUSED.get(name.lower())
    if found is None and name.startswith(_ENCRYPTION):
        found = _ENCRYPTED
    return found


def harmless_names() -> Mapping[str, str]:
    """Return each harmless setting, and each family of them (`hoodie.metrics.*`), with why."""
    return {**_HARMLESS, **{f"{head}*": why for head, why in _FAMILIES.items()}}


def refused_names() -> Mapping[str, Refusal]:
    """Return each setting that is refused."""
    return {**_REFUSED, **{f"{head}*": _ENCRYPTED for head in _ENCRYPTION}}


_FAMILIES: Final = {
    "hoodie.metrics.": "metrics are exported by `tidelock metrics`, not by Hudi's reporters",
    "hoodie.metricscompaction.": "metrics are exported by `tidelock metrics`",
    "hoodie.datasource.hive_sync.": "no catalog is told of the table: register its path there",
    "hoodie.datasource.meta_sync.": "no catalog is told of the table: register its path there",
    "hoodie.datasource.meta.sync.": "no catalog is told of the table: register its path there",
    "hoodie.meta.sync.": "no catalog is told of the table: register its path there",
    "hoodie.meta_sync.": "no catalog is told of the table: register its path there",
    "hoodie.gcp.bigquery.": "no catalog is told of the table: register its path there",
    "hoodie.datasource.datahub.": "no catalog is told of the table: register its path there",
    "hoodie.aws.glue.": "no catalog is told of the table: register its path there",
    "hoodie.metadata.": "Hudi's metadata table is not written here",
    "_hoodie.metadata.": "Hudi's metadata table is not written here",
    "hoodie.hfile.": "Hudi's metadata table is not written here",
    "hoodie.embed.timeline.": "there is no timeline server",
    "hoodie.filesystem.": "there is no timeline server, and requests are repeated anyway",
    "hoodie.markers.": "there is no timeline server",
    "hoodie.metaserver.": "there is no meta server",
    "hoodie.table.service.manager.": "services run where they are called, or after writes",
    "hoodie.consistency.": "stores that do not list what was written are not supported",
    "hoodie.optimistic.consistency.": "stores that do not list what was written are not supported",
    "_hoodie.optimistic.": "stores that do not list what was written are not supported",
    "hoodie.fs.": "stores are chosen by the table's URI",
    "hoodie.io.": "stores are chosen by the table's URI",
    "hoodie.storage.": "stores are chosen by the table's URI",
    "hoodie.orc.": "base files are Parquet",
    "hoodie.lance.": "base files are Parquet",
    **{
        f"{head}{family}": "it belongs to a source or schema provider that is not there"
        for head in ("hoodie.streamer.", "hoodie.deltastreamer.")
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
"""Whole families of harmless settings, by how their names begin."""

_SPREADING: Final = """
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
_RULES: Final = """
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
    hoodie.write.set.null.for.missing.columns
"""
_KEPT: Final = """
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
_STREAMER: Final = """
    hoodie.deltastreamer.ingestion.tablesToBeIngested
    hoodie.deltastreamer.jdbc.storage.level
    hoodie.streamer.jdbc.storage.level
    hoodie.deltastreamer.ingestion.targetBasePath
    hoodie.deltastreamer.row.throw.explicit.exceptions
    hoodie.deltastreamer.sample.writes.enabled
    hoodie.deltastreamer.sample.writes.size
    hoodie.deltastreamer.schema.make.columns.nullable
    hoodie.deltastreamer.source.hoodieincr.drop.all.meta.fields.from.source
    hoodie.deltastreamer.source.hoodieincr.file.format
    hoodie.deltastreamer.source.hoodieincr.partition.extractor.class
    hoodie.deltastreamer.source.kafka.checkpoint.type
    hoodie.deltastreamer.source.kafka.enable.commit.offset
    hoodie.deltastreamer.source.kafka.fetch_partition.time.out
    hoodie.deltastreamer.source.kafka.ignore.prefix.config.list
    hoodie.deltastreamer.source.kafka.offset.skip.buffer.minutes
    hoodie.deltastreamer.source.kafka.proto.value.deserializer.class
    hoodie.deltastreamer.source.kafka.spark.sql.consumer.enable
    hoodie.deltastreamer.source.kafka.value.deserializer.class
    hoodie.deltastreamer.source.kafka.value.deserializer.schema
    hoodie.deltastreamer.source.sanitize.invalid.char.mask
    hoodie.streamer.ingestion.tablesToBeIngested
    hoodie.streamer.ingestion.targetBasePath
    hoodie.streamer.row.throw.explicit.exceptions
    hoodie.streamer.sample.writes.enabled
    hoodie.streamer.sample.writes.size
    hoodie.streamer.schema.make.columns.nullable
    hoodie.streamer.source.hoodieincr.drop.all.meta.fields.from.source
    hoodie.streamer.source.hoodieincr.file.format
    hoodie.streamer.source.hoodieincr.partition.extractor.class
    hoodie.streamer.source.kafka.checkpoint.type
    hoodie.streamer.source.kafka.enable.commit.offset
    hoodie.streamer.source.kafka.fetch_partition.time.out
    hoodie.streamer.source.kafka.ignore.prefix.config.list
    hoodie.streamer.source.kafka.offset.skip.buffer.minutes
    hoodie.streamer.source.kafka.proto.value.deserializer.class
    hoodie.streamer.source.kafka.spark.sql.consumer.enable
    hoodie.streamer.source.kafka.value.deserializer.class
    hoodie.streamer.source.kafka.value.deserializer.schema
    hoodie.streamer.source.sanitize.invalid.char.mask
"""

_HARMLESS: Final[Mapping[str, str]] = {
    name.lower(): why
    for names, why in (
        (_SPREADING, "it says how Hudi spreads its work over tasks, memory and disk"),
        (_RULES, "every commit is judged by the ledger"),
        (_SCHEMA, "rows bring their schema, and every write checks it against the table's"),
        (_KEPT, "the table keeps this itself"),
        (_FILES, "it says how Hudi finds keys and lays out bytes; the rows are the same"),
        (_SERVICES, "it says how Hudi's table services work inside"),
        (_READS, "it says how Hudi's readers plan; the rows are the same"),
        (_INDEXES, "Hudi's metadata table and its indexes are not written here"),
        (_STREAMER, "the streamer reads its source in its own way"),
        (_UNUSED, "it belongs to something of Hudi's that is not used here"),
    )
    for name in names.split()
}

_KEY_INDEX: Final = Refusal(
    "keys are not looked up in Hudi's record index, which is not written here",
    "leave it out; keys are unique within a partition, by hoodie.index.type",
)
_BASE_FORMAT: Final = Refusal("base files are Parquet", "leave it out", fine=("parquet", *_UNSET))
_LOG_FORMAT: Final = Refusal("log files are Hudi's", "leave it out", fine=("hoodie_log", *_UNSET))
_ALL_PARTITIONS: Final = Refusal(
    "a clean looks at every partition, and would delete where it was not asked to",
    "leave it out, or switch cleaning off with hoodie.clean.automatic=false",
)
_ORDERED: Final = (
    "hoodie.table.ordering.fields",
    "hoodie.datasource.write.precombine.field",
    "hoodie.table.precombine.field",
)
_JAVA_CHECKS: Final = Refusal(
    "Java classes do not run here, so the checks would not be made",
    "check rows before they are written",
)
_MERGERS: Final = Refusal(
    "the user's own mergers are Java classes, which do not run here",
    "use hoodie.write.record.merge.mode=EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING",
    fine_prefix="org.apache.hudi.",
)
_ENCRYPTION: Final = ("parquet.crypto.", "parquet.encryption.")
_ENCRYPTED: Final = Refusal(
    "base files are not encrypted here",
    "leave it out, and let the store encrypt what it keeps",
)

_REGISTRY_URL: Final = Refusal(
    "the registry is asked by one URL for each schema",
    "use hoodie.streamer.schemaprovider.registry.url and registry.targetUrl",
)
_STREAMER_REFUSED: Final = {
    "checkpoint.force.skip": Refusal(
        "the checkpoint is part of each commit, so that a record arrives once",
        "leave it out, and write a backfill with `df.write`",
    ),
    "source.sanitize.invalid.schema.field.names": Refusal(
        "columns keep their names", "rename them with a transformer"
    ),
    "source.json.skip.invalid.records": Refusal(
        "records that cannot be read are handled by a setting of ours",
        "use tidelock.streamer.malformed=quarantine",
    ),
    "source.hoodieincr.partition.fields": Refusal(
        "rows of the source have its partition columns", "leave it out"
    ),
    "source.input.selector": Refusal(
        "files are chosen by their time, as Hudi's default does", "leave it out"
    ),
    "jdbc.incr.fallback.to.full.fetch": Refusal(
        "a table is not read as a whole where its changes were asked for", "leave it out"
    ),
    "schemaprovider.schema_post_processor": Refusal(
        "Java classes do not run here", "change columns with a transformer"
    ),
    "transformer.class": Refusal(
        "the transformer is an argument of the streamer", "use --transformer-class"
    ),
    "schemaprovider.registry.schemaconverter": Refusal(
        "Java classes do not run here", "register an Avro schema"
    ),
    "schemaprovider.registry.baseurl": _REGISTRY_URL,
    "schemaprovider.registry.urlsuffix": _REGISTRY_URL,
    "schemaprovider.registry.sourceurlsuffix": _REGISTRY_URL,
    "schemaprovider.registry.targeturlsuffix": _REGISTRY_URL,
}

_REFUSED: Final[Mapping[str, Refusal]] = {
    **{
        f"{head}{name}": each
        for head in ("hoodie.streamer.", "hoodie.deltastreamer.")
        for name, each in _STREAMER_REFUSED.items()
    },
    "hoodie.allow.operation.metadata.field": Refusal(
        "rows do not keep which operation wrote them", "leave it out; read changes instead"
    ),
    "hoodie.base.file.format": _BASE_FORMAT,
    "hoodie.table.base.file.format": _BASE_FORMAT,
    "hoodie.table.ro.file.format": _BASE_FORMAT,
    "hoodie.table.log.file.format": _LOG_FORMAT,
    "hoodie.table.rt.file.format": _LOG_FORMAT,
    "hoodie.table.multiple.base.file.formats.enable": Refusal(
        "base files are Parquet", "leave it out"
    ),
    "hoodie.table.format": Refusal(
        "tables have Hudi's own format", "leave it out", fine=("native", *_UNSET)
    ),
    "hoodie.bootstrap.base.path": Refusal(
        "tables that only point at files elsewhere are not made here",
        "write the rows with bulk_insert",
    ),
    "hoodie.bucket.index.partition.expressions": Refusal(
        "every partition has the same number of buckets",
        "use hoodie.bucket.index.num.buckets alone",
    ),
    "hoodie.bulkinsert.overwrite.operation.type": Refusal(
        "what a write does is said by its operation",
        "use hoodie.datasource.write.operation=insert_overwrite or insert_overwrite_table",
    ),
    "hoodie.clean.partition.filter.regex": _ALL_PARTITIONS,
    "hoodie.cleaner.partition.filter.regex": _ALL_PARTITIONS,
    "hoodie.clean.partition.filter.selected": _ALL_PARTITIONS,
    "hoodie.cleaner.partition.filter.selected": _ALL_PARTITIONS,
    "hoodie.client.init.callback.classes": _JAVA_CHECKS,
    "hoodie.precommit.validators": _JAVA_CHECKS,
    "hoodie.prewrite.validators": _JAVA_CHECKS,
    "hoodie.write.commit.callback.on": Refusal(
        "nobody is called after a commit",
        "follow the table with changes(), or the ledger with `tidelock ledger`",
    ),
    "hoodie.write.record.merge.custom.implementation.classes": _MERGERS,
    "hoodie.datasource.write.record.merger.impls": _MERGERS,
    "hoodie.datasource.write.drop.partition.columns": Refusal(
        "base files keep the partition columns", "leave it out"
    ),
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": Refusal(
        "keys of timestamps are written in one way", "leave it out, or use a column of text"
    ),
    "hoodie.datasource.write.slash.separated.date.partitioning": Refusal(
        "a date is one folder", "use the TIMESTAMP key generator with output format yyyy/MM/dd"
    ),
    "hoodie.write.complex.keygen.new.encoding": Refusal(
        "keys of the complex generator are written as field:value, as Hudi's default is",
        "leave it out",
    ),
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": Refusal(
        "a write does not drop columns that its rows lack",
        "leave it out, and drop a column with ALTER TABLE",
    ),
    "hoodie.schema.on.read.enable": Refusal(
        "columns are known by their names, without a history of renames",
        "leave it out: columns can be added and widened",
    ),
    "hoodie.metadata.global.record.level.index.enable": _KEY_INDEX,
    "hoodie.metadata.record.index.enable": _KEY_INDEX,
    "hoodie.metadata.record.level.index.enable": _KEY_INDEX,
    "hoodie.index.class": Refusal(
        "the user's own indexes are Java classes, which do not run here", "use hoodie.index.type"
    ),
    "hoodie.datasource.merge.type": Refusal(
        "a snapshot merges log files into base files",
        "use hoodie.datasource.query.type=read_optimized to read base files alone",
        fine=("payload_combine", *_UNSET),
    ),
    "hoodie.datasource.read.incr.filters": Refusal(
        "an incremental read would give rows that the filter leaves out", "filter the frame"
    ),
    "hoodie.datasource.read.incr.path.glob": Refusal(
        "an incremental read would give rows of other folders", "use tidelock.read.partitions"
    ),
    "hoodie.datasource.read.paths": Refusal(
        "one table is read at a time", "load each path, and union the frames"
    ),
    "hoodie.datasource.read.schema.use.end.instanttime": Refusal(
        "rows have the columns that the table has now", "select the columns"
    ),
    "hoodie.errortable.enable": Refusal(
        "there is no error table",
        "use tidelock.streamer.malformed=quarantine, which keeps such records beside the table",
    ),
    "hoodie.metaserver.enabled": Refusal(
        "the timeline is read from the table's folder", "leave it out"
    ),
    "hoodie.payload.ordering.field": Refusal(
        "rows are ordered by the table's ordering fields",
        "use hoodie.table.ordering.fields",
        same_as=_ORDERED,
    ),
    "hoodie.populate.meta.fields": Refusal(
        "rows need their meta columns to be found again",
        "leave it out",
        fine=("true", *_UNSET),
    ),
    "hoodie.sql.insert.mode": Refusal(
        "it has been replaced in Hudi, and is not read here",
        "use hoodie.spark.sql.insert.into.operation and hoodie.datasource.insert.dup.policy",
        fine=("upsert", "non-strict", *_UNSET),
    ),
    "hoodie.static.overwrite.partition.paths": Refusal(
        "an overwrite replaces the partitions of its rows",
        "use hoodie.datasource.write.partitions.to.delete with delete_partition",
    ),
    "hoodie.table.cdc.enabled": Refusal(
        "rows before a change are not kept", "leave it out; changes() gives rows after it"
    ),
    "hoodie.table.partial.update.mode": Refusal(
        "a row replaces the one before it as a whole", "give whole rows"
    ),
    "hoodie.write.partial.update.schema": Refusal(
        "a row replaces the one before it as a whole", "give whole rows"
    ),
    "hoodie.timeline.path": Refusal(
        "the timeline has its usual folder", "leave it out", fine=("timeline", *_UNSET)
    ),
    "hoodie.timeline.history.path": Refusal(
        "the history has its usual folder", "leave it out", fine=("history", *_UNSET)
    ),
    "hoodie.write.rolling.metadata.keys": Refusal(
        "metadata of a commit is not carried on to the next", "give it with each write"
    ),
}
