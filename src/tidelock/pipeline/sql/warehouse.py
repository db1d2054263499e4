"""A folder of tables, entered into a session's catalog by the names of their folders."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tidelock.base.errors import TidelockError
from tidelock.engine.spark.schema import spark_schema
from tidelock.pipeline.sql.catalog import MANAGED, Catalog
from tidelock.pipeline.sql.text import quoted
from tidelock.table.properties_file import KEY as PROPERTIES
from tidelock.tableservice.table import Table

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"\w+", re.ASCII)
_DATABASE: Final = ".db"


def register_tables(spark: SparkSession, folder: Path) -> list[str]:
    """Enter every table of a folder that has no name yet; return the names.

    A folder `sales.db` is the database `sales`, as Spark lays it out. A table that cannot be opened
    is left out with a warning: the others are no worse for it.
    """
    catalog, entered = Catalog(spark), []
    for parts, place in _tables(spark, folder):
        if catalog.is_taken(parts):
            continue
        try:
            with Table.open(str(place)) as table:
                schema = spark_schema(table.schema)
            catalog.register(parts, str(place), schema, {MANAGED: "true"})
        except TidelockError as error:
            logger.warning("%s is left out: %s", place, error)
            continue
        entered.append(".".join(parts))
    return entered


def _tables(spark: SparkSession, folder: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (place / PROPERTIES).is_file() and _NAME.fullmatch(place.name):
            yield (place.name,), place
        elif place.is_dir() and place.suffix == _DATABASE and _NAME.fullmatch(place.stem):
            inner = [each for each in sorted(place.iterdir()) if (each / PROPERTIES).is_file()]
            if inner:
                spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(place.stem)}")
            yield from (((place.stem, each.name), each) for each in inner)
