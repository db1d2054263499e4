"""`tidelock table create`: make an empty table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.errors import ConfigInvalid, InvalidInput, NotFound
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns, facts

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="LIST",
        help='The columns with Spark\'s types: "id long, ts timestamp, tags array<string>".',
        show_default=False,
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="A file with the columns: an Avro schema (JSON), or any Parquet file.",
        show_default=False,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="COLUMN[,…]", help="The columns of the record key.", show_default=False
    ),
]
Ordering = Annotated[
    str | None,
    typer.Option(
        "--ordering",
        metavar="COLUMN",
        help="The column whose larger value wins; without one the later write wins.",
        show_default=False,
    ),
]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN[,…]",
        help="The columns that partition the table.",
        show_default=False,
    ),
]
Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="COPY_ON_WRITE (or cow) or MERGE_ON_READ (or mor). [default: COPY_ON_WRITE]",
        show_default=False,
    ),
]
Version = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="N",
        help="The version of the table format: 9, or 8 for readers of Hudi 1.0. [default: 9]",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", help="The table's name. [default: the last part of its path]", show_default=False
    ),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "-O",
        "--option",
        metavar="KEY=VALUE",
        help="Anything else by Hudi's name, such as"
        " hoodie.datasource.write.hive_style_partitioning=true. May be repeated.",
        show_default=False,
    ),
]

_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}


def create(
    uri: options.TableUri,
    *,
    column_list: Columns = None,
    schema: SchemaFile = None,
    key: Key = None,
    ordering: Ordering = None,
    partition_by: PartitionBy = None,
    table_type: Type = None,
    version: Version = None,
    name: Name = None,
    option: Option = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Make an empty table.

    It is an error if there is one already.

        tidelock table create s3://lake/orders --columns "id long, ts timestamp, day date" \\
            --key id --ordering ts --partition-by day --type mor
    """
    # Arrow takes longer to load than most lock commands take to run, so it loads here.
    from tidelock.operation.table import Table

    fields = _schema(column_list, schema)
    settings = options.given_settings(props, props_file)
    table = Table.create(
        uri,
        fields,
        key=_names(key),
        ordering=_names(ordering),
        partition_by=_names(partition_by),
        type=_TYPES.get(table_type.lower(), table_type) if table_type is not None else None,
        version=version,
        name=name,
        settings=settings,
        options=given_options(option),
    )
    with table:
        place, properties = table.uri, table.properties
        listed = [[field.name, str(field.type)] for field in table.schema]
    shown = {
        "type": properties.type.value,
        "version": properties.version,
        "record_keys": list(properties.record_keys),
        "partition_fields": list(properties.partition_fields),
        "ordering_fields": list(properties.ordering_fields),
        "key_generator": properties.key_generator.value,
    }
    told = [(each.replace("_", " "), _said(value)) for each, value in shown.items()]
    Output(as_json=as_json).result(
        {
            "uri": place,
            "name": properties.name,
            **shown,
            "columns": [{"name": column, "type": kind} for column, kind in listed],
        },
        Text.assemble("created ", (properties.name, "bold"), f"  {place}"),
        *facts(told),
        "",
        *columns(["column", "type"], listed),
    )


def _schema(column_list: str | None, file: Path | None) -> pa.Schema:
    if (column_list is None) == (file is None):
        raise InvalidInput(
            "give the columns either by --columns or by --schema",
            hint='for example --columns "id long, ts timestamp"',
        )
    if column_list is not None:
        from tidelock.ops.columns import parse_columns

        return parse_columns(column_list)
    assert file is not None
    return _schema_of(file)


def _schema_of(file: Path) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tidelock.table.schema.avro import arrow_schema, parse_schema
    from tidelock.table.schema.meta import without_meta

    try:
        body = file.read_bytes()
    except OSError as error:
        raise NotFound(f"--schema {file} cannot be read: {error.strerror}") from error
    if body.startswith(b"PAR1"):
        try:
            return without_meta(pq.read_schema(pa.BufferReader(body)))
        except pa.ArrowInvalid as error:
            raise InvalidInput(f"--schema {file} is no Parquet file: {error}") from error
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"--schema {file} is neither JSON nor Parquet", hint="give an Avro schema in JSON"
        ) from error
    where = f"--schema {file}"
    return without_meta(arrow_schema(parse_schema(text, where=where), where=where))


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]


def given_options(given: list[str] | None) -> dict[str, object]:
    """Return what `-O` gives, by name. Raises: `ConfigInvalid`."""
    chosen: dict[str, object] = {}
    for each in given or ():
        name, found, value = each.partition("=")
        if not found or not name.strip():
            raise ConfigInvalid(f"-O {each!r} is not KEY=VALUE")
        chosen[name.strip()] = value
    return chosen


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return str(value)
