"""Names of data files: who wrote them, for which file group, in which instant. Pure.

    base file   <file id>_<write token>_<request time>.parquet
    log file    .<file id>_<request time>.log.<version>_<write token>[.cdc]

A write token is three numbers and is unlike that of any other attempt at the same work. Names that
do not follow the format belong to somebody else and are ignored, as Hudi ignores them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import InvalidInput
from tidelock.table.filegroup.slice import BaseFile, LogFile

_BASE: Final = re.compile(r"([^_.]+)_([^_.]+)_(\d+)\.(parquet|hfile)", re.ASCII)
# Hudi's Java readers skip a log file whose token is not three numbers, so it is skipped here too.
_LOG: Final = re.compile(r"\.([^._]+)_(\d+)\.log\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?", re.ASCII)
_TOKEN: Final = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
_FILE_ID: Final = re.compile(r"[^_./\x00-\x1f\x7f]+")

CDC_SUFFIX: Final = ".cdc"
"""The suffix of log files that hold a change feed; they hold no rows of the table."""


@dataclass(frozen=True, slots=True)
class WriteToken:
    """Which attempt of which task wrote a file."""

    task: int
    stage: int
    attempt: int

    def __str__(self) -> str:
        """Return the token as names carry it."""
        return f"{self.task}-{self.stage}-{self.attempt}"


def parse_token(text: str) -> WriteToken | None:
    """Return the three numbers of a write token; None for one that is not ours or Spark's."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else WriteToken(*(int(part) for part in found.groups()))


def file_id(prefix: str, number: int = 0) -> str:
    """Return the id of a file group: a UUID, and a number that grows as one task fills files."""
    return _checked_id(f"{prefix}-{number}")


def base_name(group: str, token: WriteToken, instant: str) -> str:
    """Return the name of a base file."""
    return f"{_checked_id(group)}_{token}_{_checked_time(instant)}.parquet"


def log_name(
    group: str, instant: str, token: WriteToken, *, version: int = 1, suffix: str = ""
) -> str:
    """Return the name of a log file. `version` grows when one write needs several."""
    if version < 1 or suffix not in ("", CDC_SUFFIX):
        raise InvalidInput(f"a log file cannot have version {version} and suffix {suffix!r}")
    return f".{_checked_id(group)}_{_checked_time(instant)}.log.{version}_{token}{suffix}"


def data_file(
    partition: str, name: str, size_bytes: int, extension: str = "parquet"
) -> BaseFile | LogFile | None:
    """Return what the file `name` of a partition is; None if it is no data file.

    `extension` is that of base files: the metadata table has `hfile`.
    """
    if (found := _BASE.fullmatch(name)) and found[4] == extension:
        group, token, instant, _ = found.groups()
        return BaseFile(partition, name, group, token, instant, size_bytes)
    if found := _LOG.fullmatch(name):
        group, instant, version, token, suffix = found.groups()
        return LogFile(
            partition, name, group, token or "", instant, int(version), size_bytes, suffix or ""
        )
    return None


def _checked_id(group: str) -> str:
    if not _FILE_ID.fullmatch(group):
        raise InvalidInput(
            f"{group!r} cannot be a file id",
            hint="use letters, digits and '-': a file's name is parsed at '_' and '.'",
        )
    return group


def _checked_time(instant: str) -> str:
    if not re.fullmatch(r"\d+", instant, re.ASCII):
        raise InvalidInput(f"{instant!r} is no request time", hint="use yyyyMMddHHmmssSSS")
    return instant
