"""DESCRIBE and SHOW for Tidelock tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.execution.spark.types import spark_schema
from tidelock.hudi.properties import TableProperties, TableType
from tidelock.hudi.schema import with_meta
from tidelock.spark.frames import frame_of_rows
from tidelock.spark.sql.catalog import MANAGED, Catalog, CatalogEntry
from tidelock.spark.sql.sources import write_options
from tidelock.spark.sql.statement import Statement, quoted
from tidelock.table import Table

_COLUMNS: Final = "col_name string, data_type string, comment string"


def describe(spark: SparkSession, entry: CatalogEntry, tree: exp.Describe) -> DataFrame:
    """Return the columns of a table; with EXTENDED or FORMATTED, the table details as well."""
    style = str(tree.args.get("style") or "").upper()
    with Table.open(entry.uri, options=write_options(spark, entry)) as table:
        columns = spark_schema(with_meta(table.schema))
        rows: list[tuple[str, str, str | None]] = [
            (field.name, field.dataType.simpleString(), None) for field in columns.fields
        ]
        properties = table.properties
        if properties.partition_fields:
            rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
            rows += [
                (field.name, field.dataType.simpleString(), None)
                for field in columns.fields
                if field.name in properties.partition_fields
            ]
        if style in ("EXTENDED", "FORMATTED"):
            rows += [("", "", ""), ("# Detailed Table Information", "", "")]
            rows += [(name, value, "") for name, value in _details(entry, properties)]
    return frame_of_rows(spark, rows, _COLUMNS)


_SHOWN: Final = ("PARTITIONS", "TBLPROPERTIES", "COLUMNS")


def show(spark: SparkSession, catalog: Catalog, statement: Statement) -> DataFrame | None:
    """Execute a SHOW statement on a Tidelock table; return None for any other table."""
    tokens = tokens_after_keyword(statement)
    words = [token.text.upper() for token in tokens[:2]]
    if not words or (words[0] not in _SHOWN and words != ["CREATE", "TABLE"]):
        return None
    entry = catalog.find(_table_name(tokens))
    if entry is None:
        return None
    with Table.open(entry.uri, options=write_options(spark, entry)) as table:
        match words:
            case ["PARTITIONS", *_]:
                paths = sorted({piece.partition for piece in table.files()})
                return frame_of_rows(spark, [(path,) for path in paths], "partition string")
            case ["TBLPROPERTIES", *_]:
                merged = {**table.properties.values, **entry.properties}
                return frame_of_rows(spark, sorted(merged.items()), "key string, value string")
            case ["COLUMNS", *_]:
                names = with_meta(table.schema).names
                return frame_of_rows(spark, [(name,) for name in names], "col_name string")
            case ["CREATE", "TABLE"]:
                text = _create_statement(entry, table)
                return frame_of_rows(spark, [(text,)], "createtab_stmt string")
    return None


def tokens_after_keyword(statement: Statement) -> list[Token]:
    """Return the tokens after the keyword, which sqlglot would keep as one text."""
    start = statement.text.upper().index(statement.keyword) + len(statement.keyword)
    return Spark().tokenize(" " * start + statement.text[start:])


def _table_name(tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return the table name of a SHOW statement; empty if there is none."""
    skipped = {"PARTITIONS", "TBLPROPERTIES", "COLUMNS", "CREATE", "TABLE", "IN", "FROM"}
    rest = list(dropwhile(lambda token: token.text.upper() in skipped, tokens))
    parts: list[str] = []
    for index, token in enumerate(rest):
        if index % 2 == 0:
            parts.append(token.text)
        elif token.token_type is not TokenType.DOT:
            break
    return tuple(parts)


def _create_statement(entry: CatalogEntry, table: Table) -> str:
    """Return the CREATE TABLE statement of a table."""
    properties, columns = table.properties, spark_schema(table.schema)
    lines = [f"  {quoted(f.name)} {f.dataType.simpleString()}" for f in columns.fields]
    partitioned = ", ".join(quoted(name) for name in properties.partition_fields)
    options = {"type": "mor" if properties.type is TableType.MERGE_ON_READ else "cow"}
    options["primaryKey"] = ",".join(properties.record_keys)
    if properties.ordering_fields:
        options["orderingFields"] = ",".join(properties.ordering_fields)
    options |= {key: value for key, value in entry.properties.items() if key != MANAGED}
    pairs = ",\n".join(f"  '{key}' = '{value}'" for key, value in options.items())
    text = f"CREATE TABLE {entry.name} (\n" + ",\n".join(lines) + ")\nUSING tidelock\n"
    text += f"PARTITIONED BY ({partitioned})\n" if partitioned else ""
    text += "" if entry.is_managed else f"LOCATION '{entry.uri}'\n"
    return f"{text}TBLPROPERTIES (\n{pairs})"


def _details(entry: CatalogEntry, properties: TableProperties) -> Sequence[tuple[str, str]]:
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
