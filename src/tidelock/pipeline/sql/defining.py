"""CREATE, DROP, ALTER and TRUNCATE TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidelock.base.errors import Conflict, InvalidInput, NotFound, Unsupported
from tidelock.engine.spark.schema import arrow_schema_of, spark_schema
from tidelock.operation import options as o
from tidelock.operation.create import check_identity
from tidelock.operation.report import WriteReport
from tidelock.pipeline.sql.catalog import MANAGED, PROVIDERS, Catalog, Entry
from tidelock.pipeline.sql.reading import Sources, write_options
from tidelock.pipeline.sql.references import name_parts
from tidelock.pipeline.sql.result import reported
from tidelock.pipeline.sql.statement import Statement, closing, deeper, place_of_word, rendered
from tidelock.pipeline.sql.text import Span, mistake, nearest, quoted
from tidelock.store.uri import open_store
from tidelock.table.schema.meta import META_COLUMNS
from tidelock.tableservice.table import Table

_SHORT: Final = {
    "primarykey": o.RECORD_KEY_FIELDS.key,
    "precombinefield": o.ORDERING.key,
    "orderingfields": o.ORDERING.key,
    "type": o.TABLE_TYPE.key,
}
_TYPES: Final = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
_HEADS: Final = ("hoodie.", "tidelock.")


def is_ours(tree: exp.Create) -> bool:
    """Tell whether a CREATE TABLE makes a table of ours."""
    properties = tree.args.get("properties")
    formats = () if properties is None else properties.find_all(exp.FileFormatProperty)
    return tree.kind == "TABLE" and any(each.name.lower() in PROVIDERS for each in formats)


def create(
    spark: SparkSession, statement: Statement, catalog: Catalog, tree: exp.Create
) -> DataFrame:
    """Make a table and register it, or register one that is at its location.

    Raises: `Conflict` for a name that is taken, `InvalidInput`, and what `Table.create` raises.
    """
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    parts = name_parts(node)
    if tree.args.get("replace"):
        raise Unsupported("CREATE OR REPLACE TABLE is not supported", hint="DROP TABLE first")
    if catalog.is_taken(parts):
        if tree.args.get("exists"):
            return reported(spark, "create", None)
        raise Conflict(f"{'.'.join(parts)} is there already", hint="CREATE TABLE IF NOT EXISTS")
    wanted = _Wanted(spark, statement, tree)
    place = wanted.location
    uri = place or catalog.place_for(parts)
    managed = {} if place else {MANAGED: "true"}
    with Sources(spark, catalog) as sources:
        query = None if tree.expression is None else sources.query(statement, wanted.query)
        rows = None if query is None else query.drop(*META_COLUMNS)
        schema = wanted.schema() if rows is None else wanted.ordered(rows.schema)
        report = None
        known = _opened(uri, wanted.options)
        if known is None:
            table = _made(uri, schema, wanted)
            if rows is not None:
                report = _filled(table, rows.select(*schema.names))
        else:
            table = known
            _check_known(table, schema, wanted, filled=rows is not None)
    with table:
        catalog.register(parts, uri, spark_schema(table.schema), {**wanted.kept, **managed})
    return reported(spark, "create", report)


def drop(spark: SparkSession, entry: Entry, *, purge: bool) -> DataFrame:
    """Forget a table; its files go too if it lies where Spark put it, or with PURGE."""
    Catalog(spark).forget(entry.parts)
    if entry.is_managed or purge:
        delete_files(entry.uri, write_options(spark, entry))
    return reported(spark, "drop", None)


def delete_files(uri: str, options: Mapping[str, object]) -> None:
    """Delete every file of a table, what makes it a table first."""
    store = open_store(uri, options)
    try:
        keys = [found.key for found in store.list("")]
        for key in sorted(keys, key=lambda key: (not key.startswith(".hoodie/hoodie."), key)):
            store.delete(key)
    finally:
        store.close()


class _Wanted:
    """What a CREATE TABLE says."""

    def __init__(self, spark: SparkSession, statement: Statement, tree: exp.Create) -> None:
        self._spark, self._statement, self._tree = spark, statement, tree
        self._properties = list(tree.args["properties"].expressions)
        self.given = self._given()
        self.options: dict[str, object] = {
            o.HIVE_STYLE_PARTITIONS.key: "true",
            **{k: v for k, v in self.given.items() if k.startswith(_HEADS)},
        }
        self.partitions = self._partitions()
        if self.partitions:
            self.options[o.PARTITION_PATH_FIELDS.key] = ",".join(self.partitions)

    @property
    def kept(self) -> dict[str, str]:
        """What the catalog remembers: options of writes, and what means nothing here."""
        own = {key.key for key in (o.PARTITION_PATH_FIELDS, o.RECORD_KEY_FIELDS, o.ORDERING)}
        return {
            key: value
            for key, value in self.given.items()
            if key not in own and key not in (o.TABLE_TYPE.key, o.HIVE_STYLE_PARTITIONS.key)
        }

    @property
    def location(self) -> str | None:
        for each in self._properties:
            if isinstance(each, exp.LocationProperty):
                return str(each.this.name)
        return None

    @property
    def query(self) -> Span:
        """Where the query behind AS is."""
        tokens, depth = self._statement.tokens, 0
        for index, token in enumerate(tokens):
            depth += deeper(token)
            if depth == 0 and token.token_type is TokenType.ALIAS:
                return Span(tokens[index + 1].start, len(self._statement.text))
        raise mistake(self._statement.text, None, "there is no query behind AS")

    def schema(self) -> StructType:
        """Return the columns that are listed, in Spark's own reading, partition columns last."""
        if not isinstance(self._tree.this, exp.Schema):
            return StructType([])
        tokens = self._statement.tokens
        at = next(i for i, t in enumerate(tokens) if t.token_type is TokenType.L_PAREN)
        text = self._statement.text
        listed = text[tokens[at].end + 1 : tokens[closing(tokens, at)].start]
        try:
            found = cast("StructType", StructType.fromDDL(listed))
        except PySparkException as error:
            place = Span(tokens[at].end + 1, tokens[at].end + 2)
            first = str(error).splitlines()[0]
            raise mistake(text, place, f"these are no columns: {first}") from error
        return self.ordered(StructType([*found.fields, *self._typed_partitions().fields]))

    def ordered(self, schema: StructType) -> StructType:
        """Return the columns with those of the partition at the end, where Spark has them."""
        by_name = {field.name.lower(): field for field in schema.fields}
        last = []
        for name in self.partitions:
            if name.lower() not in by_name:
                raise mistake(
                    self._statement.text,
                    None,
                    f"the partition column {name} is not among the columns",
                    hint=nearest(name, schema.names),
                )
            last.append(by_name.pop(name.lower()))
        return StructType([*by_name.values(), *last])

    def _given(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in self._properties:
            if isinstance(each, exp.OptionsProperty):
                pairs = each.expressions
            elif type(each) is exp.Property:
                pairs = [each]
            else:
                continue
            for pair in pairs:
                name, value = self._pair(pair)
                found[name] = value
        return found

    def _pair(self, pair: exp.Expr) -> tuple[str, str]:
        name, value = pair.this.name or pair.this.sql("spark"), str(pair.args["value"].name)
        short = _SHORT.get(name.lower())
        if short is None:
            near = nearest(name, ["primaryKey", "preCombineField", "orderingFields", "type"])
            if not name.startswith(_HEADS) and near.startswith("did you mean"):
                place = place_of_word(self._statement, name)
                raise mistake(self._statement.text, place, f"unknown property {name}", hint=near)
            return name, value
        if short == o.TABLE_TYPE.key:
            return short, _TYPES.get(value.lower(), value)
        return short, value

    def _partitions(self) -> list[str]:
        for each in self._properties:
            if isinstance(each, exp.PartitionedByProperty):
                return [column.name for column in each.this.expressions]
        return []

    def _typed_partitions(self) -> StructType:
        """Return the columns that PARTITIONED BY declares itself, with their types."""
        found = []
        for each in self._properties:
            if isinstance(each, exp.PartitionedByProperty):
                found = [c for c in each.this.expressions if isinstance(c, exp.ColumnDef)]
        schema = StructType([])
        for column in found:
            schema = StructType(
                [*schema.fields, *declared(column.name, column.args["kind"]).fields]
            )
        return schema


def declared(name: str, kind: exp.Expr) -> StructType:
    """Return one column whose type is as a statement has it."""
    return cast("StructType", StructType.fromDDL(f"{quoted(name)} {rendered(kind)}"))


def _opened(uri: str, options: Mapping[str, object]) -> Table | None:
    try:
        return Table.open(uri, options=_of_store(options))
    except NotFound:
        return None


def _of_store(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options without those that say what the table is: it says so itself."""
    shape = {o.RECORD_KEY_FIELDS.key, o.PARTITION_PATH_FIELDS.key, o.ORDERING.key}
    return {k: v for k, v in options.items() if k not in shape}


def _made(uri: str, schema: StructType, wanted: _Wanted) -> Table:
    if not schema.fields:
        raise NotFound(
            f"there is no table at {uri}, and the statement has no columns for one",
            hint="CREATE TABLE t (id BIGINT, ...) USING tidelock TBLPROPERTIES (primaryKey = 'id')",
        )
    if not o.RECORD_KEY_FIELDS.value(wanted.options):
        raise InvalidInput(
            "a table needs a record key",
            hint="TBLPROPERTIES (primaryKey = 'id'), or several columns with commas",
        )
    return Table.create(uri, arrow_schema_of(schema), options=wanted.options)


def _filled(table: Table, rows: DataFrame) -> WriteReport:
    try:
        return table.bulk_insert(rows)
    except BaseException:
        # Nobody has seen the table yet: it goes as if the statement had never been.
        uri = table.uri
        table.close()
        delete_files(uri, {})
        raise


def _check_known(table: Table, schema: StructType, wanted: _Wanted, *, filled: bool) -> None:
    """Refuse to register a table that is another than the statement says."""
    if filled:
        table.close()
        raise Conflict(f"{table.uri} is a table already", hint="INSERT INTO it instead")
    check_identity(table.properties, {k: v for k, v in wanted.options.items() if k in wanted.given})
    offered: pa.Schema = arrow_schema_of(schema)
    for column in offered:
        if column.name not in table.schema.names:
            raise InvalidInput(
                f"{table.uri} has no column {column.name}",
                hint=nearest(column.name, table.schema.names),
            )
