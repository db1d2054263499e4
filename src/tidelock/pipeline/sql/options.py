"""Settings of statements: Hudi's names. They come from SET, or from a table's properties."""

from __future__ import annotations

from typing import Final

from tidelock.base.config import ConfigKey, declare

_GROUP: Final = "SQL"

INSERT_OPERATION = declare(
    ConfigKey(
        "hoodie.spark.sql.insert.into.operation",
        str.lower,
        "insert",
        "what INSERT INTO does with its rows: insert, upsert or bulk_insert",
        group=_GROUP,
    )
)
OVERWRITE_MODE = declare(
    ConfigKey(
        "hoodie.datasource.overwrite.mode",
        str.lower,
        None,
        "what INSERT OVERWRITE without a partition replaces: static all rows, dynamic the"
        " partitions that rows lie in; default: spark.sql.sources.partitionOverwriteMode",
        group=_GROUP,
    )
)
