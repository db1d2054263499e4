"""Transformers between source and table: SQL queries, flattening, and user functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql import types as st

from tidelock.core.config import comma_list
from tidelock.core.errors import ConfigInvalid, InvalidInput, NotFound
from tidelock.core.ids import IdSource
from tidelock.streamer import config as c

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Transformer = Callable[[DataFrame], DataFrame]

_SOURCE: Final = "<SRC>"


def transformers(
    named: str | None, settings: Mapping[str, object], ids: IdSource
) -> tuple[Transformer, ...]:
    """Return the transformers for a comma-separated list of class names, in order.

    A name is Hudi's class name or its last part, or `module:function` for a user function that
    takes a frame and returns one. Raises: `ConfigInvalid`, `NotFound`.
    """
    return tuple(_transformer(name, settings, ids) for name in comma_list(named or ""))


def first_line_of(error: BaseException) -> str:
    """Return the first non-empty line of an error message of Spark."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300].rstrip(";")


def transformed(rows: DataFrame, chain: Sequence[Transformer]) -> DataFrame:
    """Return the rows after all transformers. Raises: `InvalidInput` for an invalid query."""
    for each in chain:
        try:
            rows = each(rows)
        except (AnalysisException, ParseException) as error:
            raise InvalidInput(
                f"transformer: {first_line_of(error)}",
                hint=f"the input columns are {', '.join(rows.columns)}",
            ) from error
    return rows


def _transformer(name: str, settings: Mapping[str, object], ids: IdSource) -> Transformer:
    if ":" in name:
        found: Transformer = load_function(name, "transformer")
        return found
    match name.rpartition(".")[2].lower():
        case "sqlquerybasedtransformer":
            return _query([c.TRANSFORMER_SQL.required(settings)], ids)
        case "sqlfilebasedtransformer":
            return _query(_statements(c.TRANSFORMER_SQL_FILE.required(settings)), ids)
        case "flatteningtransformer":
            return lambda rows: rows.select(*_flat_columns(rows.schema, "", ""))
        case _:
            raise ConfigInvalid(
                f"unknown transformer class {name!r}",
                hint="use SqlQueryBasedTransformer, SqlFileBasedTransformer, FlatteningTransformer,"
                " or module:function",
            )


def _query(statements: Sequence[str], ids: IdSource) -> Transformer:
    def run(rows: DataFrame) -> DataFrame:
        spark: SparkSession = rows.sparkSession
        view = f"HOODIE_SRC_TMP_TABLE_{ids.uuid().replace('-', '_')}"
        rows.createOrReplaceTempView(view)
        try:
            *before, last = statements
            for statement in before:
                spark.sql(statement.replace(_SOURCE, view))
            return spark.sql(last.replace(_SOURCE, view))
        finally:
            spark.catalog.dropTempView(view)

    return run


def _statements(path: str) -> list[str]:
    try:
        text = Path(path.removeprefix("file://")).read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(
            f"cannot read the SQL file {path}: {error.strerror}",
            hint="check its path and permissions",
        ) from error
    found = [part.strip() for part in text.split(";") if part.strip()]
    if not found:
        raise ConfigInvalid(
            f"{path}: expected at least one SQL statement, got none", hint="add a SELECT statement"
        )
    return found


def _flat_columns(schema: st.StructType, path: str, name: str) -> list[Any]:
    """Return the nested fields as columns: `a.b` becomes `a_b`."""
    found: list[Any] = []
    for field in schema.fields:
        source, target = f"{path}`{field.name}`", f"{name}{field.name}"
        if isinstance(field.dataType, st.StructType):
            found += _flat_columns(field.dataType, f"{source}.", f"{target}_")
        else:
            found.append(F.col(source).alias(target))
    return found


def load_function(name: str, what: str) -> Any:
    """Return the function that `module:function` names. Raises: `ConfigInvalid`."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigInvalid(
            f"cannot load the {what} {name}: {error}", hint="expected module:function"
        ) from error
