"""The Spark session that a streamer runs in: that of spark-submit, or one of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tidelock.base.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started the Java side, and with it decided about the session."""


@contextmanager
def streamer_session(
    app: str, *, memory: str = "1g", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield the session of spark-submit, or a local one; stop it at the end.

    Raises: `MissingExtra` without PySpark.
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from pyspark.sql import SparkSession

    from tidelock.engine.spark.session import checked, local_session

    # Spark says what is wrong with a query a second time, as a page of JSON.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    if _SUBMITTED in os.environ:
        builder = SparkSession.builder.appName(app)
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    else:
        spark = local_session(app, memory=memory, settings=settings)
        spark.sparkContext.setLogLevel("FATAL")
    try:
        yield checked(spark)
    finally:
        spark.stop()
