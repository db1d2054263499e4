"""Spark's frames, where a table takes and gives them. Spark is imported by who brings a frame."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidelock.base.errors import InvalidInput, MissingExtra
from tidelock.engine.contract import WriteEngine
from tidelock.engine.local import Scan
from tidelock.store.address import StoreAddress
from tidelock.table.keys import KeyRule
from tidelock.table.snapshot import TableSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelock.engine.spark.read import Merging


def is_frame(data: object) -> bool:
    """Tell whether `data` is a frame of Spark's, without importing it."""
    return type(data).__module__.startswith("pyspark.sql.")


def session_of(data: object) -> SparkSession | None:
    """Return the session that a frame belongs to; None for what is no frame."""
    return data.sparkSession if is_frame(data) else None  # type: ignore[attr-defined]


def session_engine(session: object, uri: str, options: Mapping[str, object]) -> WriteEngine:
    """Return the engine that writes the frames of a session."""
    from tidelock.engine.spark.session import checked
    from tidelock.engine.spark.write import SparkWriter

    spark: SparkSession = session  # type: ignore[assignment]
    return SparkWriter(checked(spark), StoreAddress(uri, dict(options)))


def frame_keys(frame: object, rule: KeyRule) -> tuple[object, bool]:
    """Return a frame of keys to delete, and whether they may be in any partition.

    Raises: `InvalidInput` for a key column that is not there.
    """
    columns: list[str] = frame.columns  # type: ignore[attr-defined]
    for name in rule.keys:
        if name not in columns and name.partition(".")[0] not in columns:
            raise InvalidInput(
                f"the record key column {name!r} is missing",
                hint=f"the columns are {', '.join(columns)}",
            )
    heads = {name.partition(".")[0] for name in rule.partitions}
    return frame, bool(rule.partitions) and not heads <= set(columns)


def scan_frame(
    spark: SparkSession,
    snapshot: TableSnapshot,
    scan: Scan,
    options: Mapping[str, object],
    *,
    native: bool = True,
    merging: Merging | None = None,
) -> DataFrame:
    """Return what a scan reads as a frame of the session. Raises: `MissingExtra`, `Unsupported`."""
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from tidelock.engine.spark.read import frame_of
    from tidelock.engine.spark.session import checked

    address = StoreAddress(snapshot.store.uri, dict(options))
    return frame_of(checked(spark), snapshot, scan, address, native=native, merging=merging)
