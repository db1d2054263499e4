"""DESCRIBE and SHOW on tables of ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.engine.spark.schema import spark_schema
from tidelock.pipeline.sql.catalog import MANAGED, Catalog, Entry
from tidelock.pipeline.sql.reading import write_options
from tidelock.pipeline.sql.result import frame_of_rows
from tidelock.pipeline.sql.statement import Statement
from tidelock.pipeline.sql.text import quoted
from tidelock.table.properties import TableProperties, TableType
from tidelock.table.schema.meta import with_meta
from tidelock.tableservice.table import Table

_DESCRIBED: Final = "col_name string, data_type string, comment string"


def describe(spark: SparkSession, entry: Entry, tree: exp.Describe) -> DataFrame:
    """Return the columns of a table, and with EXTENDED or FORMATTED what else it is."""
    style = str(tree.args.get("style") or "").upper()
    with _opened(spark, entry) as table:
        kinds = spark_schema(with_meta(table.schema))
        rows: list[tuple[str, str, str | None]] = [
            (field.name, field.dataType.simpleString(), None) for field in kinds.fields
        ]
        properties = table.properties
        if properties.partition_fields:
            rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
            rows += [
                (field.name, field.dataType.simpleString(), None)
                for field in kinds.fields
                if field.name in properties.partition_fields
            ]
        if style in ("EXTENDED", "FORMATTED"):
            rows += [("", "", ""), ("# Detailed Table Information", "", "")]
            rows += [(name, value, "") for name, value in _details(entry, properties)]
    return frame_of_rows(spark, rows, _DESCRIBED)


def show(spark: SparkSession, catalog: Catalog, statement: Statement) -> DataFrame | None:
    """Carry out a SHOW of a table of ours; None for one that Spark carries out."""
    words = words_after(statement)
    entry = catalog.find(_name(words)) if words else None
    if entry is None:
        return None
    match [word.text.upper() for word in words[:2]]:
        case ["PARTITIONS", *_]:
            with _opened(spark, entry) as table:
                paths = sorted({piece.partition for piece in table.files()})
            return frame_of_rows(spark, [(path,) for path in paths], "partition string")
        case ["TBLPROPERTIES", *_]:
            with _opened(spark, entry) as table:
                every = {**table.properties.values, **entry.properties}
            return frame_of_rows(spark, sorted(every.items()), "key string, value string")
        case ["COLUMNS", *_]:
            with _opened(spark, entry) as table:
                names = with_meta(table.schema).names
            return frame_of_rows(spark, [(name,) for name in names], "col_name string")
        case ["CREATE", "TABLE"]:
            with _opened(spark, entry) as table:
                text = _creating(entry, table)
            return frame_of_rows(spark, [(text,)], "createtab_stmt string")
    return None


def words_after(statement: Statement) -> list[Token]:
    """Return the words behind the first one, which sqlglot would take as one text."""
    start = statement.text.upper().index(statement.keyword) + len(statement.keyword)
    return Spark().tokenize(" " * start + statement.text[start:])


def _name(words: Sequence[Token]) -> tuple[str, ...]:
    """Return the name of the table that a SHOW is about, as far as there is one."""
    skipped = {"PARTITIONS", "TBLPROPERTIES", "COLUMNS", "CREATE", "TABLE", "IN", "FROM"}
    left = list(dropwhile(lambda word: word.text.upper() in skipped, words))
    parts: list[str] = []
    for index, word in enumerate(left):
        if index % 2 == 0:
            parts.append(word.text)
        elif word.token_type is not TokenType.DOT:
            break
    return tuple(parts)


def _opened(spark: SparkSession, entry: Entry) -> Table:
    return Table.open(entry.uri, options=write_options(spark, entry))


def _creating(entry: Entry, table: Table) -> str:
    """Return the statement that would make a table like this one."""
    properties, kinds = table.properties, spark_schema(table.schema)
    lines = [f"  {quoted(f.name)} {f.dataType.simpleString()}" for f in kinds.fields]
    partitioned = ", ".join(quoted(name) for name in properties.partition_fields)
    said = {"type": "mor" if properties.type is TableType.MERGE_ON_READ else "cow"}
    said["primaryKey"] = ",".join(properties.record_keys)
    if properties.ordering_fields:
        said["orderingFields"] = ",".join(properties.ordering_fields)
    said |= {key: value for key, value in entry.properties.items() if key != MANAGED}
    pairs = ",\n".join(f"  '{key}' = '{value}'" for key, value in said.items())
    text = f"CREATE TABLE {entry.name} (\n" + ",\n".join(lines) + ")\nUSING tidelock\n"
    text += f"PARTITIONED BY ({partitioned})\n" if partitioned else ""
    text += "" if entry.is_managed else f"LOCATION '{entry.uri}'\n"
    return f"{text}TBLPROPERTIES (\n{pairs})"


def _details(entry: Entry, properties: TableProperties) -> Sequence[tuple[str, str]]:
    return [
        ("Name", entry.name),
        ("Location", entry.uri),
        ("Provider", "tidelock"),
        ("Type", "MANAGED" if entry.is_managed else "EXTERNAL"),
        ("Table Type", properties.type.value),
        ("Table Version", str(properties.version)),
        ("Record Key", ", ".join(properties.record_keys)),
        ("Ordering", ", ".join(properties.ordering_fields)),
        ("Table Properties", ", ".join(f"{k}={v}" for k, v in sorted(entry.properties.items()))),
    ]
