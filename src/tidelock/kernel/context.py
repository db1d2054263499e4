"""What every file of one write has in common: its instant, the schema, the merge rule, settings.

All of it can be pickled, so that a worker in another process writes exactly what this one would.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from tidelock.kernel.merge import MergeRule
from tidelock.table.index.bloom import ENTRIES, ENTRIES_MAX, FALSE_POSITIVES
from tidelock.table.naming import WriteToken, base_name, log_name
from tidelock.table.schema.avro import avro_schema
from tidelock.table.schema.meta import META_COLUMNS, without_meta

FILE_BYTES_MAX: Final = 120 * 1024 * 1024
ROW_GROUP_BYTES: Final = 128 * 1024 * 1024


class LogFormat(StrEnum):
    """How a log file holds rows."""

    AVRO = "avro"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class BloomSettings:
    """The filter of record keys in the footer of base files."""

    entries: int = ENTRIES
    rate: float = FALSE_POSITIVES
    entries_max: int = ENTRIES_MAX


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How files are laid out.

    `file_bytes_max` is where a task that creates files begins the next one; None keeps all rows in
    one. `row_group_bytes` counts rows as they are in memory. `dictionary` names the columns that
    are dictionary-encoded; None lets the first rows decide.
    """

    compression: str = "snappy"
    row_group_bytes: int = ROW_GROUP_BYTES
    dictionary: tuple[str, ...] | None = None
    statistics: bool = True
    bloom: BloomSettings | None = None
    log_format: LogFormat = LogFormat.AVRO
    file_bytes_max: int | None = FILE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class WriteContext:
    """One write.

    `schema` is the table's after the write, meta columns first. `avro_schema` is the same without
    meta columns, as the commit's metadata has it. `attempt` and `round` keep the names of files
    apart that different attempts at the same instant make. With `markers`, each data file is
    announced before it is made. `settled` are partitions that have files, and so their metadata.
    """

    instant: str
    attempt: int
    schema: pa.Schema
    avro_schema: str
    rule: MergeRule = field(default_factory=MergeRule)
    settings: FileSettings = field(default_factory=FileSettings)
    round: int = 0
    markers: bool = True
    settled: frozenset[str] = frozenset()

    def token(self, slot: int) -> WriteToken:
        """Return the write token of a task's files."""
        return WriteToken(slot, self.attempt, self.round)

    def base_name(self, file_id: str, slot: int) -> str:
        """Return the name of the base file that a task makes for a file group."""
        return base_name(file_id, self.token(slot), self.instant)

    def log_name(self, file_id: str, slot: int, *, version: int = 1) -> str:
        """Return the name of the log file that a task makes for a file group."""
        return log_name(file_id, self.instant, self.token(slot), version=version)

    @property
    def log_schema(self) -> dict[str, Any]:
        """The Avro schema of log records: the meta columns, then the table's."""
        return _with_meta(self.avro_schema)

    @property
    def user_schema(self) -> pa.Schema:
        """The table's columns without the meta columns."""
        return without_meta(self.schema)


@lru_cache(maxsize=64)
def _with_meta(text: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(text)
    lead = pa.schema([pa.field(name, pa.string()) for name in META_COLUMNS])
    fields = avro_schema(lead, table="t")["fields"]
    return {**schema, "fields": [*fields, *schema["fields"]]}
