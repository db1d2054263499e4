"""Where table services run: in threads of this process, or in the workers of a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelock.base.config import ConfigKey, declare
from tidelock.engine.service import LocalServices, ServiceEngine, Watch
from tidelock.store.address import StoreAddress
from tidelock.store.contract import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_DRIVER_BYTES: Final = declare(
    ConfigKey(
        "tidelock.spark.services.driver.max.bytes",
        int,
        default=None,
        doc="stored bytes up to which a table service runs in the driver; without this 8 MB, and"
        " all where Spark runs in the driver's own machine",
        group="Table services",
    )
)


def services_engine(
    store: ObjectStore,
    options: Mapping[str, object],
    spark: SparkSession | None,
    watch: Watch | None = None,
) -> ServiceEngine:
    """Return what runs the services of a table. Raises: `ConfigInvalid`, `Unsupported`."""
    looking_on = watch or Watch()
    if spark is None:
        return LocalServices(store, watch=looking_on)
    from tidelock.engine.spark.services import SparkServices
    from tidelock.engine.spark.session import checked

    address = StoreAddress(store.uri, dict(options))
    return SparkServices(
        checked(spark), address, SPARK_DRIVER_BYTES.value(options), watch=looking_on
    )
