"""What is made of the rows between source and table: a query, flat columns, a function."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql import types as st

from tidelock.base.errors import ConfigInvalid, InvalidInput, NotFound
from tidelock.base.ids import IdSource
from tidelock.operation.options import comma_list
from tidelock.pipeline.streamer import config as c

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Transformer = Callable[[DataFrame], DataFrame]

_SOURCE: Final = "<SRC>"


def transformers(
    named: str | None, settings: Mapping[str, object], ids: IdSource
) -> tuple[Transformer, ...]:
    """Return the transformers of class names, Hudi's or their last parts, in their order.

    A name with a colon is a function of one's own, `module:function`, that takes a frame and
    returns one. Raises: `ConfigInvalid`, `NotFound`.
    """
    return tuple(_transformer(name, settings, ids) for name in comma_list(named or ""))


def said_by_spark(error: BaseException) -> str:
    """Return the head of what Spark writes about an error; some begin with an empty line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300].rstrip(";")


def transformed(rows: DataFrame, chain: Sequence[Transformer]) -> DataFrame:
    """Return the rows after each transformer. Raises: `InvalidInput` for a query that is wrong."""
    for each in chain:
        try:
            rows = each(rows)
        except (AnalysisException, ParseException) as error:
            raise InvalidInput(
                f"the transformation cannot be done: {said_by_spark(error)}",
                hint=f"the rows have the columns {', '.join(rows.columns)}",
            ) from error
    return rows


def _transformer(name: str, settings: Mapping[str, object], ids: IdSource) -> Transformer:
    if ":" in name:
        found: Transformer = function_of(name, "transformer")
        return found
    match name.rpartition(".")[2].lower():
        case "sqlquerybasedtransformer":
            return _query([c.TRANSFORMER_SQL.required(settings)], ids)
        case "sqlfilebasedtransformer":
            return _query(_statements(c.TRANSFORMER_SQL_FILE.required(settings)), ids)
        case "flatteningtransformer":
            return _flattened
        case _:
            raise ConfigInvalid(
                f"the transformer {name} is not known",
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
        raise NotFound(f"the SQL file {path} cannot be read: {error.strerror}") from error
    found = [part.strip() for part in text.split(";") if part.strip()]
    if not found:
        raise ConfigInvalid(f"the SQL file {path} has no statement")
    return found


def _flattened(rows: DataFrame) -> DataFrame:
    """Return the rows with the parts of structs as columns: `a.b` becomes `a_b`."""
    return rows.select(*_flat_columns(rows.schema, "", ""))


def _flat_columns(schema: st.StructType, path: str, name: str) -> list[Any]:
    found: list[Any] = []
    for field in schema.fields:
        place, called = f"{path}`{field.name}`", f"{name}{field.name}"
        if isinstance(field.dataType, st.StructType):
            found += _flat_columns(field.dataType, f"{place}.", f"{called}_")
        else:
            found.append(F.col(place).alias(called))
    return found


def function_of(name: str, what: str) -> Any:
    """Return the function that `module:function` names. Raises: `ConfigInvalid`."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigInvalid(
            f"the {what} {name} cannot be loaded: {error}", hint="write it as module:function"
        ) from error
