"""A table of a database, whole or by a column whose values grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from tidelock.base.errors import ConfigInvalid, NotFound, Unavailable
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.sources.contract import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_ROWS_MAX: Final = 2**62
_LEAST_ROWS: Final = 1_000
_WHOLE: Final = "whole"
_MOST: Final = "_tidelock_most"
_COUNT: Final = "_tidelock_count"


@dataclass
class JdbcSource:
    """Rows of a database's table.

    Rows that get a value not larger than the largest that was read are not seen: use a column that
    only grows, such as an identity, or the time of a transaction that is over.
    """

    spark: SparkSession
    settings: Mapping[str, object]

    @cached_property
    def table(self) -> str:
        """The table's name."""
        return c.JDBC_TABLE.required(self.settings)

    @property
    def name(self) -> str:
        """The database and the table, without what follows in the URL: it may hold a password."""
        url = c.JDBC_URL.required(self.settings)
        return f"{url.partition('?')[0].partition(';')[0]}/{self.table}"

    @property
    def limit(self) -> int:
        """Rows of one batch."""
        return _ROWS_MAX

    @property
    def _column(self) -> str | None:
        if not c.JDBC_INCREMENTAL.required(self.settings):
            return None
        return c.JDBC_COLUMN.required(self.settings)

    @property
    def least(self) -> int:
        """Rows of a batch at least."""
        return _LEAST_ROWS

    def next(self, since: str | None, limit: int) -> Batch | None:
        """Return the rows with the next larger values; all rows, each time, without a column."""
        rows, column = self._asked(self._rows), self._column
        if column is None:
            return Batch(rows, _WHOLE, 1)
        if column.lower() not in (name.lower() for name in rows.columns):
            raise ConfigInvalid(
                f"{self.name} has no column {column}", hint=f"correct {c.JDBC_COLUMN.key}"
            )
        kind = rows.select(column).schema.fields[0].dataType
        if since is not None:
            rows = rows.where(F.col(column) > F.lit(since).cast(kind))
        most, count = self._asked(lambda: _bound(rows, column, limit))
        if most is None:
            return None
        # Rows with the same value as the last one belong to the batch, however many they are.
        chosen = rows.where(F.col(column) <= F.lit(most).cast(kind))
        return Batch(chosen, most, count)

    def hudi_place(self, at: str) -> str | None:
        """The largest value, as Hudi has it."""
        return None if at == _WHOLE else at

    def done_with(self, at: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Spark closes its connections."""

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
            raise NotFound(f"the password file {path} cannot be read: {error.strerror}") from error

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (Py4JError, PySparkException) as error:
            cause: Any = getattr(error, "java_exception", None)
            said = str(cause.getMessage() if cause is not None else error).partition("\n")[0]
            raise Unavailable(
                f"{self.name} cannot be read: {said[:200]}",
                hint="check the database, its driver (--jars) and the user's rights",
            ) from error


def _bound(rows: DataFrame, column: str, limit: int) -> tuple[str | None, int]:
    """Return the largest value of the next batch, and how many rows have smaller ones."""
    values = rows.select(F.col(column).alias(_MOST)).where(F.col(_MOST).isNotNull())
    if limit < _ROWS_MAX:
        values = values.orderBy(_MOST).limit(limit)
    found = values.agg(
        F.max(_MOST).cast("string").alias(_MOST), F.count(_MOST).alias(_COUNT)
    ).first()
    return (None, 0) if found is None else (found[_MOST], int(found[_COUNT]))
