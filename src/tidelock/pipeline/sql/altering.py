"""ALTER TABLE and TRUNCATE TABLE on tables of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidelock.base.errors import Conflict, InvalidInput, Unsupported
from tidelock.engine.spark.schema import arrow_schema_of, spark_schema
from tidelock.operation.options import check_options
from tidelock.pipeline.sql.defining import declared
from tidelock.pipeline.sql.partitions import chosen_paths
from tidelock.pipeline.sql.references import name_parts
from tidelock.pipeline.sql.result import reported
from tidelock.pipeline.sql.statement import Statement, place_of, place_of_word
from tidelock.pipeline.sql.target import Target
from tidelock.pipeline.sql.text import mistake, nearest
from tidelock.table.schema.evolution import evolved, widens

_FIXED: Final = ("primarykey", "precombinefield", "orderingfields", "type")


def alter(target: Target, tree: exp.Alter) -> DataFrame:
    """Carry out an ALTER TABLE. Raises: `Unsupported` for what tables here cannot do."""
    actions = tree.args.get("actions") or []
    match actions:
        case [exp.Schema() as listed]:
            return _evolved(target, _added(target, listed.expressions))
        case [exp.ColumnDef(), *_]:
            return _evolved(target, _added(target, actions))
        case [exp.AlterColumn() as column] if column.args.get("dtype") is not None:
            return _evolved(target, [_widened(target, column)])
        case [exp.AlterRename() as renaming]:
            return _renamed(target, renaming.this)
        case [exp.DropPartition() as dropping]:
            lenient = bool(dropping.args.get("exists"))
            return delete_partitions(target, dropping.expressions, lenient=lenient)
        case [exp.AlterSet() as setting]:
            return _set(target, setting)
    raise Unsupported(
        f"{target.entry.name}: this ALTER TABLE is not supported",
        hint="columns are added and widened; properties are set; partitions are dropped; tables"
        " are renamed",
    )


def truncate(target: Target, tree: exp.TruncateTable) -> DataFrame:
    """Take all rows away, or those of a partition; earlier versions stay for time travel."""
    clause = tree.args.get("partition")
    if isinstance(clause, exp.Partition):
        return delete_partitions(target, [clause], lenient=False)
    nothing = target.table.schema.empty_table()
    report = target.table.insert_overwrite_table(nothing)
    return reported(target.spark, "truncate", report)


def delete_partitions(target: Target, nodes: Sequence[exp.Expr], *, lenient: bool) -> DataFrame:
    """Delete all rows of the partitions that clauses name."""
    clauses = [node for node in nodes if isinstance(node, exp.Partition)]
    paths = chosen_paths(target, clauses, lenient=lenient)
    report = target.table.delete_partition(paths) if paths else None
    return reported(target.spark, target.statement.keyword.lower(), report)


def _added(target: Target, nodes: Sequence[exp.Expr]) -> list[StructField]:
    known = {name.lower() for name in target.table.schema.names}
    found = []
    for node in nodes:
        if node.name.lower() in known:
            raise mistake(
                target.statement.text,
                place_of(node),
                f"{target.entry.name} has a column {node.name} already",
            )
        found.append(_field(node.name, node.args["kind"]))
    return found


def _widened(target: Target, node: exp.AlterColumn) -> StructField:
    name, _ = target.column(node.this, target.table.schema.names)
    renamed = node.args.get("rename_to")
    if renamed is not None and renamed.name.lower() != name.lower():
        raise Unsupported(
            f"{target.entry.name}: columns are not renamed",
            hint="add a column, fill it by UPDATE, and read that one",
        )
    wanted = _field(name, node.args["dtype"])
    before = target.table.schema.field(name).type
    after = arrow_schema_of(StructType([wanted])).field(0).type
    if not before.equals(after) and not widens(before, after):
        raise mistake(
            target.statement.text,
            place_of(node),
            f"{name} is {before}, and not all of its values would fit {after}",
            hint="types are widened: int to bigint or double, float to double, and so on",
        )
    rule = target.table.writer().settings.evolution
    try:
        evolved(pa.schema([(name, before)]), pa.schema([(name, after)]), rule)
    except InvalidInput as error:
        text = target.statement.text
        raise mistake(text, place_of(node), error.message, hint=error.hint) from None
    return wanted


def _field(name: str, kind: exp.Expr) -> StructField:
    return declared(name, kind).fields[0]


def _evolved(target: Target, fields: Sequence[StructField]) -> DataFrame:
    """Commit a schema with these columns added or widened, and no rows.

    Raises: `InvalidInput` naming a column whose values would not all fit.
    """
    changed = arrow_schema_of(StructType(list(fields)))
    by_name = {field.name: field for field in changed}
    whole = [by_name.pop(field.name, field) for field in target.table.schema]
    nothing = pa.schema([*whole, *by_name.values()]).empty_table()
    report = target.table.insert(nothing)
    # The catalog's own copy of the columns is for those who list them; the table's is what counts.
    entry, catalog = target.entry, target.catalog
    if entry.parts:
        catalog.forget(entry.parts)
        target.table.refresh()
        schema = spark_schema(target.table.schema)
        catalog.register(entry.parts, entry.uri, schema, entry.properties)
    return reported(target.spark, "alter", report)


def _renamed(target: Target, node: exp.Table) -> DataFrame:
    entry, catalog = target.entry, target.catalog
    parts = name_parts(node)
    if len(parts) < len(entry.parts):
        parts = (*entry.parts[: len(entry.parts) - len(parts)], *parts)
    if catalog.is_taken(parts):
        raise Conflict(f"{'.'.join(parts)} is there already", hint="choose another name")
    _require_name(target)
    schema = spark_schema(target.table.schema)
    catalog.register(parts, entry.uri, schema, entry.properties)
    catalog.forget(entry.parts)
    return reported(target.spark, "alter", None)


def _set(target: Target, setting: exp.AlterSet) -> DataFrame:
    pairs = {
        each.this.name: str(each.args["value"].name) for each in setting.find_all(exp.Property)
    }
    check_properties(pairs)
    return change_properties(target, {**target.entry.properties, **pairs})


def unset_names(statement: Statement) -> tuple[exp.Table, list[str], bool] | None:
    """Return table, names and IF EXISTS of ALTER TABLE ... UNSET TBLPROPERTIES; None for another.

    sqlglot keeps that statement as text, so its words are taken one by one.
    """
    words = [token.text.upper() for token in statement.tokens]
    if words[:2] != ["ALTER", "TABLE"] or "UNSET" not in words[2:]:
        return None
    at = words.index("UNSET")
    if words[at + 1 : at + 2] != ["TBLPROPERTIES"]:
        return None
    parts = [token.text for token in statement.tokens[2:at] if token.text != "."]
    lenient = words[at + 2 : at + 4] == ["IF", "EXISTS"]
    names = [t.text for t in statement.tokens[at + 2 :] if t.token_type is TokenType.STRING]
    name, *outer = reversed(parts)
    database, catalog = [*outer, None, None][:2]
    return exp.table_(name, database, catalog, quoted=True), names, lenient


def unset(target: Target, names: Sequence[str], *, lenient: bool) -> DataFrame:
    """Take properties from a table's entry. Raises: `InvalidInput` for one that it has not."""
    left = dict(target.entry.properties)
    for name in names:
        if left.pop(name, None) is None and not lenient:
            raise mistake(
                target.statement.text,
                place_of_word(target.statement, name),
                f"{target.entry.name} has no property {name}",
                hint=nearest(name, target.entry.properties) or "UNSET TBLPROPERTIES IF EXISTS",
            )
    return change_properties(target, left)


def check_properties(pairs: dict[str, str]) -> None:
    """Refuse properties that are mistakes, or say what the table is. Raises: `Unsupported`."""
    for name in pairs:
        if name.lower() in _FIXED or name.startswith("hoodie.table."):
            raise Unsupported(
                f"{name} says what a table is, and is set when it is created",
                hint="create another table and insert the rows",
            )
    check_options({k: v for k, v in pairs.items() if k.startswith(("hoodie.", "tidelock."))})


def change_properties(target: Target, properties: dict[str, str]) -> DataFrame:
    """Give a table's entry in the catalog other properties."""
    _require_name(target)
    entry, catalog = target.entry, target.catalog
    schema = spark_schema(target.table.schema)
    catalog.forget(entry.parts)
    catalog.register(entry.parts, entry.uri, schema, properties)
    return reported(target.spark, "alter", None)


def _require_name(target: Target) -> None:
    if not target.entry.parts:
        raise Unsupported(
            f"{target.entry.uri} is named by its path, and only names have properties",
            hint="CREATE TABLE name USING tidelock LOCATION '...' gives it one",
        )
