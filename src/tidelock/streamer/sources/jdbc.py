"""JDBC source: a database table, read completely or incrementally by an increasing column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.core.errors import ConfigInvalid, NotFound, Unavailable
from tidelock.streamer import config as c
from tidelock.streamer.sources.source import Batch, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_ROWS_MAX: Final = 2**62
_ROWS_MIN: Final = 1_000
_WHOLE: Final = "whole"
_MAX: Final = "_tidelock_max"
_COUNT: Final = "_tidelock_count"


@dataclass
class JdbcSource(Source):
    """Reads the rows of a database table.

    Incremental reads miss rows that appear later with a value that is not larger than the largest
    one already read. Use a column that only increases, such as an identity column.
    """

    spark: SparkSession
    settings: Mapping[str, object]
    limit = _ROWS_MAX
    limit_min = _ROWS_MIN

    @cached_property
    def table(self) -> str:
        return c.JDBC_TABLE.required(self.settings)

    @property
    def name(self) -> str:
        """The database and table, without URL parameters, which may include a password."""
        url = c.JDBC_URL.required(self.settings)
        return f"{url.partition('?')[0].partition(';')[0]}/{self.table}"

    @property
    def _column(self) -> str | None:
        if not c.JDBC_INCREMENTAL.required(self.settings):
            return None
        return c.JDBC_COLUMN.required(self.settings)

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the rows with the next larger values; without a column, all rows each time."""
        rows, column = self._query(self._rows), self._column
        if column is None:
            return Batch(rows, _WHOLE, 1)
        if column.lower() not in (name.lower() for name in rows.columns):
            raise ConfigInvalid(
                f"{self.name} has no column {column}", hint=f"correct {c.JDBC_COLUMN.key}"
            )
        data_type = rows.select(column).schema.fields[0].dataType
        if since is not None:
            rows = rows.where(F.col(column) > F.lit(since).cast(data_type))
        maximum, count = self._query(lambda: _bound(rows, column, limit))
        if maximum is None:
            return None
        # All rows with the maximum value belong to the batch, even beyond the limit.
        batch = rows.where(F.col(column) <= F.lit(maximum).cast(data_type))
        return Batch(batch, maximum, count)

    def hudi_checkpoint(self, position: str) -> str | None:
        """Return the largest value, as in Hudi; None for a complete read."""
        return None if position == _WHOLE else position

    def _rows(self) -> DataFrame:
        reader = self.spark.read.format("jdbc").option("dbtable", self.table)
        named = {
            "url": c.JDBC_URL.required(self.settings),
            "user": c.JDBC_USER.value(self.settings),
            "password": self._password(),
            "driver": c.JDBC_DRIVER.value(self.settings),
        }
        for name, value in {**named, **c.by_prefix(self.settings, c.JDBC_OPTIONS)}.items():
            if value is not None:
                reader = reader.option(name, value)
        return reader.load()

    def _password(self) -> str | None:
        path = c.JDBC_PASSWORD_FILE.value(self.settings)
        if path is None:
            return c.JDBC_PASSWORD.value(self.settings)
        try:
            return Path(path.removeprefix("file://")).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise NotFound(
                f"cannot read the password file {path}: {error.strerror}",
                hint="check its path and permissions",
            ) from error

    def _query(self, query: Callable[[], T]) -> T:
        try:
            return query()
        except (Py4JError, PySparkException) as error:
            cause: Any = getattr(error, "java_exception", None)
            message = str(cause.getMessage() if cause is not None else error).partition("\n")[0]
            raise Unavailable(
                f"cannot read {self.name}: {message[:200]}",
                hint="check the database, its driver (--jars) and the user's privileges",
            ) from error


def _bound(rows: DataFrame, column: str, limit: int) -> tuple[str | None, int]:
    """Return the largest value of the next batch, and its number of rows."""
    values = rows.select(F.col(column).alias(_MAX)).where(F.col(_MAX).isNotNull())
    if limit < _ROWS_MAX:
        values = values.orderBy(_MAX).limit(limit)
    found = values.agg(F.max(_MAX).cast("string").alias(_MAX), F.count(_MAX).alias(_COUNT)).first()
    return (None, 0) if found is None else (found[_MAX], int(found[_COUNT]))
