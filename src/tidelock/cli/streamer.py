"""`tidelock streamer`: ingest a topic, a folder, a table or a database into a table."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated

from tidelock.cli import options
from tidelock.cli.options import flag, option
from tidelock.cli.output import Output
from tidelock.cli.signals import Stopping
from tidelock.core.errors import ConfigInvalid
from tidelock.core.formatting import duration, error_facts, fields_of, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelock.streamer.batch import SyncResult
    from tidelock.streamer.config import StreamerRequest
    from tidelock.streamer.run import Event, Totals


_NO_NEW_DATA = "nonewdataterminationstrategy"
_ROUNDS = "max.rounds.without.new.data.to.shutdown"
_ROUNDS_DEFAULT = 3


@dataclass(frozen=True, kw_only=True)
class StreamerOptions:
    """The options of `tidelock streamer`."""

    target_base_path: Annotated[
        str,
        option(
            "--target-base-path URI", "The base path of the table; created if it does not exist."
        ),
    ]
    source_class: Annotated[
        str,
        option(
            "--source-class CLASS",
            "The source, by the name of Hudi's class or its last part:"
            " JsonKafkaSource, AvroKafkaSource, JsonDFSSource, CsvDFSSource, ParquetDFSSource,"
            " AvroDFSSource, ORCDFSSource, HoodieIncrSource or JdbcSource.",
        ),
    ]
    target_table: Annotated[str | None, option("--target-table NAME", "The name of the table.")] = (
        None
    )
    source_ordering_field: Annotated[
        str | None,
        option(
            "--source-ordering-field --source-ordering-fields COLUMN",
            "The column that orders rows of one key: the larger value wins.",
        ),
    ] = None
    op: Annotated[
        str,
        option(
            "--op OPERATION",
            "UPSERT, INSERT, BULK_INSERT, INSERT_OVERWRITE or INSERT_OVERWRITE_TABLE."
            " [default: UPSERT]",
        ),
    ] = "UPSERT"
    table_type: Annotated[
        str | None,
        option("--table-type TYPE", "COPY_ON_WRITE or MERGE_ON_READ, for a table that is created."),
    ] = None
    schemaprovider_class: Annotated[
        str | None,
        option(
            "--schemaprovider-class CLASS",
            "FilebasedSchemaProvider, SchemaRegistryProvider or RowBasedSchemaProvider.",
        ),
    ] = None
    transformer_class: Annotated[
        str | None,
        option(
            "--transformer-class CLASS",
            "SqlQueryBasedTransformer, SqlFileBasedTransformer, FlatteningTransformer, or a"
            " function as module:function; several with commas.",
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        option(
            "--checkpoint POSITION",
            "Start from this position, once, instead of from the checkpoint in the table.",
        ),
    ] = None
    ignore_checkpoint: Annotated[
        str | None,
        option(
            "--ignore-checkpoint VALUE",
            "Ignore the checkpoint and start as if the source had never been read, once per VALUE;"
            " use a new value, such as a time or a UUID, to ignore it again.",
        ),
    ] = None
    initial_checkpoint_provider: Annotated[
        str | None,
        option(
            "--initial-checkpoint-provider CLASS",
            "Provides the first checkpoint of a source that this writer has not read:"
            " InitialCheckpointFromAnotherHoodieTimelineProvider, KafkaConnectHdfsProvider, or a"
            " function as module:function.",
        ),
    ] = None
    filter_dupes: Annotated[
        bool, flag("--filter-dupes", "With inserts: skip rows whose key is already in the table.")
    ] = False
    source_limit: Annotated[
        int | None,
        option(
            "--source-limit N",
            "The maximum size of a batch: bytes of files, records of a topic, commits of a table,"
            " rows of a database.",
        ),
    ] = None
    continuous: Annotated[
        bool, flag("--continuous", "Run until a signal; the current batch is finished first.")
    ] = False
    min_sync_interval_s: Annotated[
        float,
        option(
            "--min-sync-interval-seconds SECONDS",
            "With --continuous: the minimum time between two batches.",
            show_default=True,
        ),
    ] = 0.0
    termination: Annotated[
        str | None,
        option(
            "--post-write-termination-strategy-class CLASS",
            "NoNewDataTerminationStrategy ends --continuous after rounds without new data: the"
            " property max.rounds.without.new.data.to.shutdown, or 3.",
        ),
    ] = None
    retries_max: Annotated[
        int,
        option(
            "--max-retry-count N",
            "The number of retries of a batch after a transient error.",
            show_default=True,
        ),
    ] = 3
    retry_interval_s: Annotated[
        float,
        option("--retry-interval-seconds SECONDS", "The delay before a retry.", show_default=True),
    ] = 30.0
    disable_compaction: Annotated[
        bool, flag("--disable-compaction", "Do not compact the table.")
    ] = False
    writer_id: Annotated[
        str | None,
        option(
            "--writer-id ID",
            "The id of the checkpoint: streamers with the same id share it."
            " [default: derived from the source]",
        ),
    ] = None
    props_file: options.PropsFile = None
    hoodie_conf: Annotated[
        list[str] | None,
        option(
            "--hoodie-conf KEY=VALUE",
            "A setting, by its hoodie.* or tidelock.* key. May be repeated; overrides --props.",
        ),
    ] = None
    spark_conf: Annotated[
        list[str] | None,
        option(
            "--spark-conf KEY=VALUE",
            "A setting of the Spark session, such as spark.jars. May be repeated.",
        ),
    ] = None
    spark_master: Annotated[
        str | None,
        option(
            "--spark-master MASTER",
            "The Spark master, if the command does not run under spark-submit.",
        ),
    ] = None
    spark_memory: Annotated[
        str,
        option(
            "--spark-memory SIZE",
            "The driver memory, if the command does not run under spark-submit. [default: 1g]",
        ),
    ] = "1g"
    as_json: options.Json = False


def streamer(*, given: StreamerOptions) -> None:
    """Ingest records from a source, each exactly once.

    The commit of each batch contains the checkpoint. After a crash the streamer resumes from it,
    and any number of streamers may write one table. SIGTERM and Ctrl-C end the streamer after the
    current batch.

        tidelock streamer --source-class JsonDFSSource \\
            --target-base-path s3://lake/orders \\
            --hoodie-conf hoodie.streamer.source.dfs.root=s3://landing/orders \\
            --hoodie-conf hoodie.datasource.write.recordkey.field=id
    """
    from tidelock.streamer.config import WRITER_ID, StreamerRequest
    from tidelock.streamer.run import streamer_session

    properties = options.given_settings(given.hoodie_conf, given.props_file, option="--hoodie-conf")
    if given.writer_id is not None:
        properties[WRITER_ID.key] = given.writer_id
    computed = ("rounds_without_data_max", "properties")
    names = [field.name for field in fields(StreamerRequest) if field.name not in computed]
    request = StreamerRequest(
        **{name: getattr(given, name) for name in names},
        rounds_without_data_max=_rounds(given.termination, properties),
        properties=properties,
    )
    settings = {k: str(v) for k, v in options.key_values(given.spark_conf, "--spark-conf").items()}
    if given.spark_master is not None:
        settings["spark.master"] = given.spark_master
    app = f"tidelock streamer {given.target_table or given.target_base_path}"
    with streamer_session(app, memory=given.spark_memory, settings=settings) as spark:
        _run(spark, request, Output(as_json=given.as_json))


def _run(spark: SparkSession, request: StreamerRequest, output: Output) -> None:
    from tidelock.streamer.batch import Streamer
    from tidelock.streamer.run import run_continuously, run_once

    def on_event(event: Event) -> None:
        _show_event(event, output)

    working = Streamer(spark, request)
    with Stopping() as stopping:
        stopping.record_only()
        try:
            run = run_continuously if request.continuous else run_once
            totals = run(working, stop=stopping, on_event=on_event)
        finally:
            # A second signal must not interrupt closing.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            working.close()
    _show_totals(totals, request, output)


def _show_event(event: Event, output: Output) -> None:
    from tidelock.streamer.batch import SyncResult
    from tidelock.streamer.run import Idle, StreamerFailed

    match event:
        case SyncResult():
            facts = {
                "event": "batch",
                **fields_of(event, "version", "checkpoint"),
                "taken": event.units,
                **fields_of(event, "rows", "malformed", "duration_ms", "lag_ms"),
                "report": asdict(event.report),
            }
            output.result(facts, _line(event))
        case StreamerFailed(error, attempt, pause_s):
            failure = error_facts(kind_of(error), error.message, error.hint)
            facts = {"event": "failed", "attempt": attempt, "retry_in_s": pause_s, **failure}
            output.result(facts, f"attempt {attempt}: {error}; retry in {pause_s:g} s")
        case Idle(rounds):
            if rounds == 1:
                output.result({"event": "idle"}, "waiting for records")


def _line(event: SyncResult) -> str:
    if event.repeated:
        return f"batch {event.version} was written by another streamer with this id"
    speed = event.rows * 1000 / max(event.duration_ms, 1)
    malformed = f", {event.malformed} malformed" if event.malformed else ""
    lag = "" if event.lag_ms is None else f", {duration(event.lag_ms)} behind"
    return (
        f"batch {event.version}  {event.report.instant}  {event.rows:,} rows{malformed} in"
        f" {duration(event.duration_ms)} ({speed:,.0f}/s){lag}"
    )


def _show_totals(totals: Totals, request: StreamerRequest, output: Output) -> None:
    summary = f"{totals.rows:,} rows in {totals.batches} batches"
    malformed = f", {totals.malformed} malformed records" if totals.malformed else ""
    output.result(
        {"event": "end", "target": request.target_base_path, **asdict(totals)},
        f"{request.target_base_path}  {summary}{malformed}" if totals.batches else "no new data",
    )


def _rounds(strategy: str | None, properties: dict[str, object]) -> int | None:
    """Return the number of rounds without new data after which to end; None for never."""
    rounds = properties.pop(_ROUNDS, None)
    if strategy is None:
        return None
    if strategy.rpartition(".")[2].lower() != _NO_NEW_DATA:
        raise ConfigInvalid(
            f"--post-write-termination-strategy-class: unknown class {strategy!r}",
            hint="use NoNewDataTerminationStrategy",
        )
    return _ROUNDS_DEFAULT if rounds is None else int(str(rounds))
