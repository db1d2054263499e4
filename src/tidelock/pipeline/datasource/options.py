"""The options of the data source: Hudi's names, and some of our own."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tidelock.base.config import ConfigKey, boolean, declare, declared
from tidelock.base.errors import ConfigInvalid
from tidelock.operation.options import check_options, comma_list

FORMAT: Final = "tidelock"
PATH: Final = "path"
_GROUP: Final = "Spark reads"


class QueryType(StrEnum):
    """What a read gives."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
    INCREMENTAL = "incremental"


QUERY_TYPE = declare(
    ConfigKey(
        "hoodie.datasource.query.type",
        str.lower,
        "snapshot",
        "snapshot, read_optimized or incremental",
        aliases=("hoodie.datasource.view.type",),
        group=_GROUP,
    )
)
INCREMENTAL_FORMAT = declare(
    ConfigKey(
        "hoodie.datasource.query.incremental.format",
        str.lower,
        "latest_state",
        "latest_state: an incremental read gives rows as they are at its end; cdc is not supported",
        group=_GROUP,
    )
)
AS_OF = declare(
    ConfigKey(
        "as.of.instant",
        str,
        None,
        "reads the table as it was then: 17 or 14 digits, or an ISO time",
        group=_GROUP,
    )
)
BEGIN = declare(
    ConfigKey(
        "hoodie.datasource.read.begin.instanttime",
        str,
        None,
        "an incremental read gives what completed after this time",
        group=_GROUP,
    )
)
END = declare(
    ConfigKey(
        "hoodie.datasource.read.end.instanttime",
        str,
        None,
        "an incremental read gives what completed up to this time; without it up to now",
        group=_GROUP,
    )
)
COLUMNS = declare(
    ConfigKey(
        "tidelock.read.columns",
        comma_list,
        None,
        "columns to read; files with changes in log files are merged with these alone",
        group=_GROUP,
    )
)
PARTITIONS = declare(
    ConfigKey(
        "tidelock.read.partitions",
        comma_list,
        None,
        "partition paths to read; without it all",
        group=_GROUP,
    )
)
NATIVE = declare(
    ConfigKey(
        "tidelock.read.native",
        boolean,
        default=True,
        doc="let Spark's own Parquet reader read base files that have no log files",
        group=_GROUP,
    )
)

METADATA_PREFIX = declare(
    ConfigKey(
        "hoodie.datasource.write.commitmeta.key.prefix",
        str,
        "_",
        "options of a write whose names begin so go into the metadata of its commit",
        group="Writes",
    )
)
TXN_APPLICATION = declare(
    ConfigKey(
        "tidelock.txn.app.id",
        str,
        None,
        "name of the pipeline that a write belongs to; with tidelock.txn.version a write that is"
        " repeated is not applied again",
        group="Writes",
    )
)
TXN_VERSION = declare(
    ConfigKey(
        "tidelock.txn.version",
        int,
        None,
        "number of the write within its pipeline; each must be larger than the one before",
        group="Writes",
    )
)


def query_type(options: Mapping[str, object]) -> QueryType:
    """Return what kind of read the options ask for. Raises: `ConfigInvalid`."""
    named = QUERY_TYPE.required(options)
    try:
        return QueryType(named)
    except ValueError:
        raise ConfigInvalid(
            f"{QUERY_TYPE.key} = {named} is not known", hint=f"use {', '.join(QueryType)}"
        ) from None


def canonical(options: Mapping[str, str]) -> dict[str, object]:
    """Return options with the letters that they are declared with; Spark makes them all small."""
    known = {name.lower(): name for key in declared() for name in (key.key, *key.aliases)}
    return {known.get(name.lower(), name): value for name, value in options.items()}


def split_metadata(
    options: Mapping[str, object],
) -> tuple[dict[str, str], dict[str, object]]:
    """Return what goes into a commit's metadata, and the other options."""
    prefix = METADATA_PREFIX.required(options)
    said = {name: str(value) for name, value in options.items() if name.startswith(prefix)}
    return said, {name: value for name, value in options.items() if name not in said}


def split_path(options: Mapping[str, object], path: str | None) -> tuple[str, dict[str, object]]:
    """Return the table's path and the other options, checked.

    Raises: `ConfigInvalid` for an unknown name, with the nearest, and for no path.
    """
    others = {name: value for name, value in options.items() if name != PATH}
    check_options(others)
    place = path or options.get(PATH)
    if not place:
        raise ConfigInvalid("no path of a table was given", hint='load("s3://bucket/table")')
    return str(place), others
