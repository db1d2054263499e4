"""CREATE, DROP, ALTER and TRUNCATE TABLE for Tidelock tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidelock.core.errors import Conflict, InvalidInput, NotFound, Unsupported
from tidelock.execution.spark.types import arrow_schema_of, spark_schema
from tidelock.hudi.schema import META_COLUMNS, evolve, widens
from tidelock.operations import config as o
from tidelock.operations.config import check_options
from tidelock.operations.create import check_identity
from tidelock.operations.report import WriteReport
from tidelock.spark.frames import report_frame
from tidelock.spark.sql.catalog import MANAGED, PROVIDERS, Catalog, CatalogEntry
from tidelock.spark.sql.partitions import named_partitions
from tidelock.spark.sql.sources import Sources, name_parts, write_options
from tidelock.spark.sql.statement import (
    Span,
    Statement,
    closing_bracket,
    quoted,
    suggestion,
    to_sql,
    top_level,
)
from tidelock.spark.sql.target import StatementTarget
from tidelock.storage.uri import open_store
from tidelock.table import Table

_ALIASES: Final = {
    "primarykey": o.RECORD_KEY_FIELDS.key,
    "precombinefield": o.ORDERING.key,
    "orderingfields": o.ORDERING.key,
    "type": o.TABLE_TYPE.key,
}
_STORED: Final = (o.RECORD_KEY_FIELDS.key, o.PARTITION_PATH_FIELDS.key, o.ORDERING.key)
"""Options that are stored with the table."""

_TYPES: Final = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
_PREFIXES: Final = ("hoodie.", "tidelock.")


def is_tidelock_table(tree: exp.Create) -> bool:
    """Return whether a CREATE TABLE creates a Tidelock table."""
    properties = tree.args.get("properties")
    formats = () if properties is None else properties.find_all(exp.FileFormatProperty)
    return tree.kind == "TABLE" and any(each.name.lower() in PROVIDERS for each in formats)


def create(
    spark: SparkSession, statement: Statement, catalog: Catalog, tree: exp.Create
) -> DataFrame:
    """Create a table and register it, or register the existing table at its location.

    Raises: `Conflict` if the name exists, `InvalidInput`, and the errors of `Table.create`.
    """
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    parts = name_parts(node)
    if tree.args.get("replace"):
        raise Unsupported("CREATE OR REPLACE TABLE is not supported", hint="use DROP TABLE first")
    if catalog.exists(parts):
        if tree.args.get("exists"):
            return report_frame(spark, "create", None)
        raise Conflict(f"{'.'.join(parts)} already exists", hint="use CREATE TABLE IF NOT EXISTS")
    spec = _CreateSpec(statement, tree)
    uri = spec.location or catalog.default_location(parts)
    managed = {} if spec.location else {MANAGED: "true"}
    with Sources(spark, catalog) as sources:
        query = None if tree.expression is None else sources.query(statement, spec.query)
        rows = None if query is None else query.drop(*META_COLUMNS)
        schema = spec.schema() if rows is None else spec.partitions_last(rows.schema)
        report = None
        existing = _open_existing(uri, spec.options)
        if existing is None:
            table = _create_table(uri, schema, spec)
            if rows is not None:
                report = _fill(table, rows.select(*schema.names))
        else:
            table = existing
            _check_existing(table, schema, spec, has_query=rows is not None)
    with table:
        properties = {**spec.catalog_properties, **managed}
        catalog.register(parts, uri, spark_schema(table.schema), properties)
    return report_frame(spark, "create", report)


def drop(spark: SparkSession, entry: CatalogEntry, *, purge: bool) -> DataFrame:
    """Unregister a table; delete its files if it is managed, or with PURGE."""
    Catalog(spark).unregister(entry.parts)
    if entry.is_managed or purge:
        delete_files(entry.uri, write_options(spark, entry))
    return report_frame(spark, "drop", None)


def delete_files(uri: str, options: Mapping[str, object]) -> None:
    """Delete all files of a table, starting with `hoodie.properties`."""
    with closing(open_store(uri, options)) as store:
        keys = [found.key for found in store.list("")]
        for key in sorted(keys, key=lambda key: (not key.startswith(".hoodie/hoodie."), key)):
            store.delete(key)


class _CreateSpec:
    """The location, properties, columns and query of a CREATE TABLE."""

    def __init__(self, statement: Statement, tree: exp.Create) -> None:
        self._statement, self._tree = statement, tree
        self._clauses = list(tree.args["properties"].expressions)
        self.properties = self._parse_properties()
        self.options: dict[str, object] = {
            o.HIVE_STYLE_PARTITIONS.key: "true",
            **{k: v for k, v in self.properties.items() if k.startswith(_PREFIXES)},
        }
        partitioned = (c for c in self._clauses if isinstance(c, exp.PartitionedByProperty))
        self._partition_nodes = [column for each in partitioned for column in each.this.expressions]
        self.partitions = [column.name for column in self._partition_nodes]
        if self.partitions:
            self.options[o.PARTITION_PATH_FIELDS.key] = ",".join(self.partitions)

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The properties for the catalog entry: all but those stored with the table."""
        stored = {*_STORED, o.TABLE_TYPE.key, o.HIVE_STYLE_PARTITIONS.key}
        return {key: value for key, value in self.properties.items() if key not in stored}

    @property
    def location(self) -> str | None:
        for each in self._clauses:
            if isinstance(each, exp.LocationProperty):
                return str(each.this.name)
        return None

    @property
    def query(self) -> Span:
        """The span of the query after AS."""
        index = top_level(self._statement, "AS")
        if index is None:
            raise self._statement.invalid(None, "AS: expected a query")
        return Span(self._statement.tokens[index + 1].start, len(self._statement.text))

    def schema(self) -> StructType:
        """Return the declared columns as Spark parses them, partition columns last."""
        if not isinstance(self._tree.this, exp.Schema):
            return StructType([])
        tokens = self._statement.tokens
        at = next(i for i, t in enumerate(tokens) if t.token_type is TokenType.L_PAREN)
        text = self._statement.text
        columns = text[tokens[at].end + 1 : tokens[closing_bracket(tokens, at)].start]
        try:
            found = cast("StructType", StructType.fromDDL(columns))
        except PySparkException as error:
            span = Span(tokens[at].end + 1, tokens[at].end + 2)
            first = str(error).splitlines()[0]
            raise self._statement.invalid(span, f"invalid column list: {first}") from error
        typed = [
            _field(column.name, column.args["kind"])
            for column in self._partition_nodes
            if isinstance(column, exp.ColumnDef)
        ]
        return self.partitions_last(StructType([*found.fields, *typed]))

    def partitions_last(self, schema: StructType) -> StructType:
        """Return the columns with the partition columns last, as in Spark."""
        by_name = {field.name.lower(): field for field in schema.fields}
        last = []
        for name in self.partitions:
            if name.lower() not in by_name:
                raise self._statement.invalid(
                    None, f"partition column {name} not found", hint=suggestion(name, schema.names)
                )
            last.append(by_name.pop(name.lower()))
        return StructType([*by_name.values(), *last])

    def _parse_properties(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in self._clauses:
            if isinstance(each, exp.OptionsProperty):
                found |= map(self._property, each.expressions)
            elif type(each) is exp.Property:
                found |= [self._property(each)]
        return found

    def _property(self, pair: exp.Expr) -> tuple[str, str]:
        name, value = pair.this.name or pair.this.sql("spark"), str(pair.args["value"].name)
        key = _ALIASES.get(name.lower())
        if key is None:
            hint = suggestion(name, ["primaryKey", "preCombineField", "orderingFields", "type"])
            if not name.startswith(_PREFIXES) and hint.startswith("did you mean"):
                raise self._statement.invalid(name, f"unknown property {name}", hint=hint)
            return name, value
        if key == o.TABLE_TYPE.key:
            return key, _TYPES.get(value.lower(), value)
        return key, value


def _open_existing(uri: str, options: Mapping[str, object]) -> Table | None:
    try:
        return Table.open(uri, options={k: v for k, v in options.items() if k not in _STORED})
    except NotFound:
        return None


def _create_table(uri: str, schema: StructType, spec: _CreateSpec) -> Table:
    if not schema.fields:
        raise NotFound(
            f"{uri}: no table found, and the statement declares no columns",
            hint="CREATE TABLE t (id BIGINT, ...) USING tidelock TBLPROPERTIES (primaryKey = 'id')",
        )
    if not o.RECORD_KEY_FIELDS.value(spec.options):
        raise InvalidInput(
            "primaryKey: required",
            hint="add TBLPROPERTIES (primaryKey = 'id'); separate several columns with commas",
        )
    return Table.create(uri, arrow_schema_of(schema), options=spec.options)


def _fill(table: Table, rows: DataFrame) -> WriteReport:
    try:
        return table.bulk_insert(rows)
    except BaseException:
        # The table is not registered yet, so it can be removed without a trace.
        uri = table.uri
        table.close()
        delete_files(uri, {})
        raise


def _check_existing(
    table: Table, schema: StructType, spec: _CreateSpec, *, has_query: bool
) -> None:
    """Reject an existing table that contradicts the statement."""
    if has_query:
        table.close()
        raise Conflict(f"{table.uri}: the table already exists", hint="use INSERT INTO")
    stated = {k: v for k, v in spec.options.items() if k in spec.properties}
    check_identity(table.properties, stated)
    for column in arrow_schema_of(schema):
        if column.name not in table.schema.names:
            raise InvalidInput(
                f"{table.uri} has no column {column.name}",
                hint=suggestion(column.name, table.schema.names),
            )


_IMMUTABLE: Final = ("primarykey", "precombinefield", "orderingfields", "type")


def alter(target: StatementTarget, tree: exp.Alter) -> DataFrame:
    """Execute an ALTER TABLE. Raises: `Unsupported`."""
    actions = tree.args.get("actions") or []
    match actions:
        case [exp.Schema() as listed]:
            return _evolve_schema(target, _added_columns(target, listed.expressions))
        case [exp.ColumnDef(), *_]:
            return _evolve_schema(target, _added_columns(target, actions))
        case [exp.AlterColumn() as column] if column.args.get("dtype") is not None:
            return _evolve_schema(target, [_widened_column(target, column)])
        case [exp.AlterRename() as renaming]:
            return _rename(target, renaming.this)
        case [exp.DropPartition() as dropping]:
            if_exists = bool(dropping.args.get("exists"))
            return delete_partitions(target, dropping.expressions, if_exists=if_exists)
        case [exp.AlterSet() as setting]:
            return _set_properties(target, setting)
    raise Unsupported(
        f"{target.entry.name}: this ALTER TABLE is not supported",
        hint="supported: ADD COLUMNS, ALTER COLUMN ... TYPE, SET and UNSET TBLPROPERTIES,"
        " DROP PARTITION, RENAME TO",
    )


def truncate(target: StatementTarget, tree: exp.TruncateTable) -> DataFrame:
    """Delete all rows, or those of a partition; earlier versions remain for time travel."""
    clause = tree.args.get("partition")
    if isinstance(clause, exp.Partition):
        return delete_partitions(target, [clause], if_exists=False)
    report = target.table.insert_overwrite_table(target.table.schema.empty_table())
    return report_frame(target.spark, "truncate", report)


def delete_partitions(
    target: StatementTarget, nodes: Sequence[exp.Expr], *, if_exists: bool
) -> DataFrame:
    """Delete all rows of the partitions in PARTITION clauses."""
    clauses = [node for node in nodes if isinstance(node, exp.Partition)]
    paths = named_partitions(target, clauses, if_exists=if_exists)
    report = target.table.delete_partition(paths) if paths else None
    return report_frame(target.spark, target.statement.keyword.lower(), report)


def _added_columns(target: StatementTarget, nodes: Sequence[exp.Expr]) -> list[StructField]:
    known = {name.lower() for name in target.table.schema.names}
    found = []
    for node in nodes:
        if node.name.lower() in known:
            raise target.statement.invalid(
                node, f"{target.entry.name} already has a column {node.name}"
            )
        found.append(_field(node.name, node.args["kind"]))
    return found


def _widened_column(target: StatementTarget, node: exp.AlterColumn) -> StructField:
    name, _ = target.resolve_column(node.this, target.table.schema.names)
    renamed = node.args.get("rename_to")
    if renamed is not None and renamed.name.lower() != name.lower():
        raise Unsupported(
            f"{target.entry.name}: renaming columns is not supported",
            hint="add a column and copy the values with UPDATE",
        )
    field = _field(name, node.args["dtype"])
    before = target.table.schema.field(name).type
    after = arrow_schema_of(StructType([field])).field(0).type
    if not before.equals(after) and not widens(before, after):
        raise target.statement.invalid(
            node,
            f"{name}: {before} cannot be changed to {after}, which does not fit all values",
            hint="types can only be widened: int to bigint or double, float to double, and so on",
        )
    rule = target.table.writer().settings.evolution
    try:
        evolve(pa.schema([(name, before)]), pa.schema([(name, after)]), rule)
    except InvalidInput as error:
        raise target.statement.invalid(node, error.message, hint=error.hint) from None
    return field


def _field(name: str, data_type: exp.Expr) -> StructField:
    """Return a column with a type of the statement, as Spark parses it."""
    return cast("StructType", StructType.fromDDL(f"{quoted(name)} {to_sql(data_type)}")).fields[0]


def _evolve_schema(target: StatementTarget, fields: Sequence[StructField]) -> DataFrame:
    """Commit a schema with these columns added or widened, without rows.

    Raises: `InvalidInput` naming a column whose values might not fit.
    """
    changed = arrow_schema_of(StructType(list(fields)))
    by_name = {field.name: field for field in changed}
    columns = [by_name.pop(field.name, field) for field in target.table.schema]
    report = target.table.insert(pa.schema([*columns, *by_name.values()]).empty_table())
    # The columns in the catalog are informational; those of the table are authoritative.
    if target.entry.parts:
        target.table.refresh()
        _register_again(target, target.entry.properties)
    return report_frame(target.spark, "alter", report)


def _rename(target: StatementTarget, node: exp.Table) -> DataFrame:
    entry, catalog = target.entry, target.catalog
    parts = name_parts(node)
    if len(parts) < len(entry.parts):
        parts = (*entry.parts[: len(entry.parts) - len(parts)], *parts)
    if catalog.exists(parts):
        raise Conflict(f"{'.'.join(parts)} already exists", hint="choose another name")
    _require_name(target)
    schema = spark_schema(target.table.schema)
    catalog.register(parts, entry.uri, schema, entry.properties)
    catalog.unregister(entry.parts)
    return report_frame(target.spark, "alter", None)


def _set_properties(target: StatementTarget, setting: exp.AlterSet) -> DataFrame:
    pairs = {
        each.this.name: str(each.args["value"].name) for each in setting.find_all(exp.Property)
    }
    for name in pairs:
        if name.lower() in _IMMUTABLE or name.startswith("hoodie.table."):
            raise Unsupported(
                f"{name}: can only be set when the table is created",
                hint="create a new table and insert the rows",
            )
    check_options({k: v for k, v in pairs.items() if k.startswith(_PREFIXES)})
    return replace_properties(target, {**target.entry.properties, **pairs})


def parse_unset(statement: Statement) -> tuple[exp.Table, list[str], bool] | None:
    """Return table, names and IF EXISTS of `ALTER TABLE ... UNSET TBLPROPERTIES`.

    Returns None for any other statement. sqlglot keeps this one as text, so its tokens are parsed
    here.
    """
    words = [token.text.upper() for token in statement.tokens]
    if words[:2] != ["ALTER", "TABLE"] or "UNSET" not in words[2:]:
        return None
    at = words.index("UNSET")
    if words[at + 1 : at + 2] != ["TBLPROPERTIES"]:
        return None
    parts = [token.text for token in statement.tokens[2:at] if token.text != "."]
    if_exists = words[at + 2 : at + 4] == ["IF", "EXISTS"]
    names = [t.text for t in statement.tokens[at + 2 :] if t.token_type is TokenType.STRING]
    name, *outer = reversed(parts)
    database, catalog = [*outer, None, None][:2]
    return exp.table_(name, database, catalog, quoted=True), names, if_exists


def unset_properties(
    target: StatementTarget, names: Sequence[str], *, if_exists: bool
) -> DataFrame:
    """Remove properties from a catalog entry. Raises: `InvalidInput` for a missing one."""
    remaining = dict(target.entry.properties)
    for name in names:
        if remaining.pop(name, None) is None and not if_exists:
            raise target.statement.invalid(
                name,
                f"{target.entry.name} has no property {name}",
                hint=suggestion(name, target.entry.properties)
                or "use UNSET TBLPROPERTIES IF EXISTS",
            )
    return replace_properties(target, remaining)


def replace_properties(target: StatementTarget, properties: dict[str, str]) -> DataFrame:
    """Replace the properties of a catalog entry."""
    _require_name(target)
    _register_again(target, properties)
    return report_frame(target.spark, "alter", None)


def _register_again(target: StatementTarget, properties: Mapping[str, str]) -> None:
    entry, schema = target.entry, spark_schema(target.table.schema)
    target.catalog.unregister(entry.parts)
    target.catalog.register(entry.parts, entry.uri, schema, properties)


def _require_name(target: StatementTarget) -> None:
    if not target.entry.parts:
        raise Unsupported(
            f"{target.entry.uri}: a table that is referenced by its path has no catalog entry",
            hint="register it: CREATE TABLE name USING tidelock LOCATION '...'",
        )
