"""The files of one file group, as a reader or writer of it needs them. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file: all rows of its file group as of `instant` (its request time)."""

    partition: str
    name: str
    file_id: str
    write_token: str
    instant: str
    size_bytes: int

    @property
    def key(self) -> str:
        """The object, relative to the table's base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file: what the write requested at `instant` changed in its file group."""

    partition: str
    name: str
    file_id: str
    write_token: str
    instant: str
    version: int
    size_bytes: int
    suffix: str = ""
    committed_bytes: int = field(default=0, compare=False)
    """How many of its bytes a completed write has recorded, and must be there; 0 if not known."""

    @property
    def key(self) -> str:
        """The object, relative to the table's base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @property
    def order(self) -> tuple[str, int, str, str]:
        """How Hudi orders the log files of one slice when it merges them."""
        return self.instant, self.version, self.write_token, self.suffix


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file, if any, and the log files on top, in order."""

    partition: str
    file_id: str
    instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def size_bytes(self) -> int:
        """How much all of its files hold, as they are stored."""
        return (self.base.size_bytes if self.base else 0) + sum(log.size_bytes for log in self.logs)
