"""The options of `tidelock streamer`, under the names that Hudi's streamer gives them."""

from __future__ import annotations

from typing import Annotated

import typer

TargetBasePath = Annotated[
    str,
    typer.Option(
        "--target-base-path",
        metavar="URI",
        help="Base path of the table; it is created if it is not there.",
        show_default=False,
    ),
]
SourceClass = Annotated[
    str,
    typer.Option(
        "--source-class",
        metavar="CLASS",
        help="Where records come from, by the name of Hudi's class or its last part:"
        " JsonKafkaSource, AvroKafkaSource, JsonDFSSource, CsvDFSSource, ParquetDFSSource,"
        " AvroDFSSource, ORCDFSSource, HoodieIncrSource or JdbcSource.",
        show_default=False,
    ),
]
TargetTable = Annotated[
    str | None,
    typer.Option("--target-table", metavar="NAME", help="Name of the table.", show_default=False),
]
OrderingField = Annotated[
    str | None,
    typer.Option(
        "--source-ordering-field",
        "--source-ordering-fields",
        metavar="COLUMN",
        help="Column whose larger value wins between rows of one key.",
        show_default=False,
    ),
]
Operation = Annotated[
    str,
    typer.Option(
        "--op",
        metavar="OPERATION",
        help="UPSERT, INSERT, BULK_INSERT, INSERT_OVERWRITE or INSERT_OVERWRITE_TABLE."
        " [default: UPSERT]",
        show_default=False,
    ),
]
TableKind = Annotated[
    str | None,
    typer.Option(
        "--table-type",
        metavar="TYPE",
        help="COPY_ON_WRITE or MERGE_ON_READ, for a table that is created.",
        show_default=False,
    ),
]
ProviderClass = Annotated[
    str | None,
    typer.Option(
        "--schemaprovider-class",
        metavar="CLASS",
        help="FilebasedSchemaProvider, SchemaRegistryProvider or RowBasedSchemaProvider.",
        show_default=False,
    ),
]
TransformerClass = Annotated[
    str | None,
    typer.Option(
        "--transformer-class",
        metavar="CLASS",
        help="SqlQueryBasedTransformer, SqlFileBasedTransformer, FlatteningTransformer, or a"
        " function as module:function; several with commas.",
        show_default=False,
    ),
]
CheckpointPlace = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="PLACE",
        help="Begin from here, once, instead of where the table says.",
        show_default=False,
    ),
]
IgnoreCheckpoint = Annotated[
    str | None,
    typer.Option(
        "--ignore-checkpoint",
        metavar="WORD",
        help="Begin the source as if it had never been read, once for each word that is given"
        " here; a time or a UUID does.",
        show_default=False,
    ),
]
InitialCheckpoint = Annotated[
    str | None,
    typer.Option(
        "--initial-checkpoint-provider",
        metavar="CLASS",
        help="Who says where to begin a source that this writer has not read:"
        " InitialCheckpointFromAnotherHoodieTimelineProvider, KafkaConnectHdfsProvider, or a"
        " function as module:function.",
        show_default=False,
    ),
]
FilterDupes = Annotated[
    bool,
    typer.Option(
        "--filter-dupes", help="With inserts: leave out rows whose key the table has already."
    ),
]
SourceLimit = Annotated[
    int | None,
    typer.Option(
        "--source-limit",
        metavar="N",
        help="How much one batch takes: bytes of files, records of a topic, commits of a table,"
        " rows of a database.",
        show_default=False,
    ),
]
Continuous = Annotated[
    bool,
    typer.Option(
        "--continuous", help="Go on until a signal comes; the batch under way is finished."
    ),
]
MinInterval = Annotated[
    float,
    typer.Option(
        "--min-sync-interval-seconds",
        metavar="SECONDS",
        help="With --continuous: time from one batch to the next at least.",
        show_default=False,
    ),
]
Termination = Annotated[
    str | None,
    typer.Option(
        "--post-write-termination-strategy-class",
        metavar="CLASS",
        help="NoNewDataTerminationStrategy ends --continuous after rounds without new data: as"
        " many as the property max.rounds.without.new.data.to.shutdown says, or 3.",
        show_default=False,
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        "--max-retry-count",
        metavar="N",
        help="How often a batch is tried again after an error that may pass.",
        show_default=False,
    ),
]
RetryInterval = Annotated[
    float,
    typer.Option(
        "--retry-interval-seconds",
        metavar="SECONDS",
        help="How long to wait before that.",
        show_default=False,
    ),
]
NoCompaction = Annotated[
    bool,
    typer.Option("--disable-compaction", help="Leave compaction of the table to others."),
]
WriterId = Annotated[
    str | None,
    typer.Option(
        "--writer-id",
        metavar="ID",
        help="Whose checkpoint this is: streamers of one id take turns. [default: by the source]",
        show_default=False,
    ),
]
HoodieConf = Annotated[
    list[str] | None,
    typer.Option(
        "--hoodie-conf",
        metavar="KEY=VALUE",
        help="A setting by Hudi's name or ours. May be repeated; wins over --props.",
        show_default=False,
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="A setting of the Spark session, such as spark.jars. May be repeated.",
        show_default=False,
    ),
]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        "--spark-master",
        metavar="MASTER",
        help="Where Spark runs, if it is not spark-submit that says so.",
        show_default=False,
    ),
]
SparkMemory = Annotated[
    str,
    typer.Option(
        "--spark-memory",
        metavar="SIZE",
        help="Memory of a session that is not spark-submit's. [default: 1g]",
        show_default=False,
    ),
]
