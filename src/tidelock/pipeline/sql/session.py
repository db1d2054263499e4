"""`tl.sql(spark, "...")`, and `spark.sql` of a session that was taught our tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tidelock.base.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ORIGINAL: Final = "_tidelock_spark_sql"

_enabled_sessions: set[str] = set()
_taught_sessions: set[str] = set()
"""By Spark's own names for them: one session may be several objects in Python."""


def sql(
    spark: SparkSession, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None
) -> DataFrame:
    """Carry out one SQL statement and return its rows.

        tl.sql(spark, "MERGE INTO orders USING changes c ON orders.id = c.id WHEN MATCHED ...")

    Statements on tables of ours are carried out here; all others are Spark's. Those that change a
    table return one row: the operation, its instant, and the rows inserted, updated and deleted.
    `args` are the values of parameters: `:name` from a mapping, `?` from a list.

    Raises: `InvalidInput` with the place of a mistake, `NotFound`, `Unsupported`, `MissingExtra`,
    and what reading and writing raise.
    """
    _require()
    from tidelock.engine.spark.session import checked
    from tidelock.pipeline.datasource.hook import enable
    from tidelock.pipeline.sql.executing import carry_out

    if _identity(checked(spark)) not in _enabled_sessions:
        enable(spark, sql=False)
        _enabled_sessions.add(_identity(spark))
    return carry_out(spark, text, _plain(spark), args=args)


def teach_sql(spark: SparkSession) -> None:
    """Let `spark.sql` of this session know our tables; other sessions keep Spark's own.

    What is not about tables of ours goes to Spark unchanged, mistakes included.
    """
    _require()
    kind: Any = type(spark)
    if not hasattr(kind, _ORIGINAL):
        setattr(kind, _ORIGINAL, kind.sql)
        kind.sql = _taught(kind.sql)
    _taught_sessions.add(_identity(spark))


def _taught(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    @wraps(original)
    def sql(self: Any, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: N803
        if kwargs or _identity(self) not in _taught_sessions:
            return original(self, sqlQuery, args, **kwargs)
        from tidelock.pipeline.sql.executing import carry_out

        return carry_out(self, sqlQuery, _plain(self), args=args, strict=False)

    return sql


def _identity(spark: Any) -> str:
    return str(spark._jsparkSession.sessionUUID())  # noqa: SLF001 - Python has no name for it


def _plain(spark: SparkSession) -> Callable[..., DataFrame]:
    """Return Spark's own way to carry out a statement."""
    original = getattr(type(spark), _ORIGINAL, type(spark).sql)

    def plain(text: str, args: Any = None) -> DataFrame:
        found: DataFrame = original(spark, text, args)
        return found

    return plain


def _require() -> None:
    for name in ("pyspark", "sqlglot"):
        if find_spec(name) is None:
            raise MissingExtra(f"{name} is not installed", hint="pip install 'tidelock[spark]'")
