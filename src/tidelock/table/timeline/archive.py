"""The history: completed instants that left the active timeline, in a log-structured set of files.

`history/manifest_<n>` names the Parquet files that together are the history, `_version_` says which
n is current. Files are named `<first time>_<last time>_<level>.parquet`; every archiving adds one
of level 0, and ten of a level are merged into one of the next.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelock.base.errors import Conflict, DataCorrupt, OutcomeUnknown
from tidelock.base.outcome import Landed, NotLanded, Unknown
from tidelock.store.contract import Create, Match, ObjectStore
from tidelock.store.readback import Patience, put_checked
from tidelock.table.timeline.instant import Action

HISTORY_FOLDER: Final = ".hoodie/timeline/history"
MERGE_FILES: Final = 10
"""This many files of one level become one of the next, as Hudi does by default."""

_MANIFESTS_KEPT: Final = 3
_VERSION_NAME: Final = "_version_"
_MANIFEST: Final = re.compile(r"manifest_(\d+)", re.ASCII)
_FILE: Final = re.compile(r"(\d+)_(\d+)_(\d)\.parquet", re.ASCII)
_LEFT_MS: Final = 3_600_000
"""A file of the history that nobody has named for so long was left by somebody who died."""
_TAIL_BYTES: Final = 64 * 1024
_MAGIC: Final = b"PAR1"
_AFTER_ALL: Final = "~"
_LEVEL_MAX: Final = 9  # a level is one digit in a file's name

_SCHEMA: Final = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A completed instant with the bytes of its completed file, and of its plan if it had one."""

    requested: str
    completion: str
    action: Action
    metadata: bytes = b""
    plan: bytes = b""


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """One file of the history, by what its name says."""

    name: str
    first: str
    last: str
    level: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which files were the history at one moment. Number 0 is the empty history."""

    number: int
    files: tuple[HistoryFile, ...]


class Archive:
    """The history of a table. Any number of processes may try to add to it."""

    def __init__(self, store: ObjectStore, folder: str = HISTORY_FOLDER) -> None:
        """Read nothing yet."""
        self._store = store
        self._folder = folder

    def manifest(self) -> Manifest:
        """Return the current manifest. Raises: `DataCorrupt`."""
        number = self._version()
        if number is None:
            number = max(self._manifest_numbers(), default=0)
        return self._manifest(number) if number else Manifest(0, ())

    def completions(self, times: Collection[str]) -> dict[str, str]:
        """Return the completion time of each write in `times` that the history knows.

        Only files that may have one of them are read, and only three columns of those.
        """
        return {
            row["instantTime"]: row["completionTime"]
            for row in self._among(times)
            if _writes(row["action"])
        }

    def holds(self, times: Collection[str]) -> set[tuple[str, Action]]:
        """Return which actions requested at these times are in the history."""
        return {
            (row["instantTime"], _ACTIONS[row["action"]])
            for row in self._among(times)
            if row["action"] in _ACTIONS
        }

    def write(self, requested: str) -> ArchivedInstant | None:
        """Return the write requested at a time; None if the history has none."""
        for table in self._tables(lambda file: file.first <= requested <= file.last):
            for row in table.filter(pc.equal(table["instantTime"], requested)).to_pylist():
                if _writes(row["action"]):
                    return _archived(row)
        return None

    def writes(self, times: Collection[str]) -> Iterator[ArchivedInstant]:
        """Yield those writes requested at these times that the history has."""
        wanted = pa.array(sorted(times), pa.string())
        for table in self._tables(
            lambda file: any(file.first <= time <= file.last for time in times)
        ):
            for row in table.filter(pc.is_in(table["instantTime"], wanted)).to_pylist():
                if _writes(row["action"]):
                    yield _archived(row)

    def _among(self, times: Collection[str]) -> Iterator[dict[str, Any]]:
        for table in self._tables(
            lambda file: any(file.first <= time <= file.last for time in times),
            columns=["instantTime", "completionTime", "action"],
        ):
            wanted = pc.is_in(table["instantTime"], pa.array(sorted(times), pa.string()))
            yield from table.filter(wanted).to_pylist()

    def instants(self, *, after: str = "", until: str = "~") -> tuple[ArchivedInstant, ...]:
        """Return the instants completed after one time and by another, by request time.

        Actions that this version does not know are left out.
        """
        found: dict[tuple[str, str], ArchivedInstant] = {}
        # Nothing completes before it is requested. It may well complete long after.
        for table in self._tables(lambda file: file.first <= until and self._latest(file) > after):
            done = table["completionTime"]
            within = pc.and_(pc.greater(done, after), pc.less_equal(done, until))
            for row in table.filter(within).to_pylist():
                if row["action"] in _ACTIONS:
                    # A crash between two steps of a merge may leave an instant in two files.
                    found[row["instantTime"], row["action"]] = _archived(row)
        return tuple(found[key] for key in sorted(found))

    def append(self, instants: Sequence[ArchivedInstant]) -> Manifest:
        """Add completed instants to the history, and merge levels that have grown full.

        The instants may be deleted from the active timeline once this has returned, not before.
        Guarantees: of two that append at once one gets a `Conflict` and has changed nothing; the
        history never goes back to an older manifest.
        Raises: `Conflict` if somebody else was at it, `OutcomeUnknown`, `Unavailable`.
        """
        before, tag = self._current()
        # Whoever archived some of them since the caller looked has made this manifest or an older
        # one, or the next one is theirs and this attempt fails.
        known = self.holds([each.requested for each in instants]) if instants else set()
        fresh = [each for each in instants if (each.requested, each.action) not in known]
        if not fresh:
            return before
        added = self._write(_rows(fresh), level=0)
        files, made = [*before.files, added], {added.name}
        for level in range(_LEVEL_MAX):
            full = [file for file in files if file.level == level]
            if len(full) >= MERGE_FILES:
                merged = self._merge(full, level + 1, before)
                files = [file for file in files if file.level != level] + [merged]
                made.add(merged.name)
        after = Manifest(before.number + 1, tuple(sorted(files, key=lambda file: file.name)))
        self._publish(after, tag)
        self._sweep(after, made)
        return after

    def _current(self) -> tuple[Manifest, str]:
        """Return the current manifest, and the version of the object that names it ("" for none).

        A manifest beyond it was left by somebody who died before its last step, which is done now.
        """
        found = self._store.get(f"{self._folder}/{_VERSION_NAME}")
        tag = found.version if found else ""
        manifest = self.manifest()
        while self._store.head(f"{self._folder}/manifest_{manifest.number + 1}") is not None:
            manifest = self._manifest(manifest.number + 1)
            tag = self._point_to(manifest, tag)
        return manifest, tag

    def _merge(self, files: Sequence[HistoryFile], level: int, seen: Manifest) -> HistoryFile:
        try:
            rows = pa.concat_tables([self._table(file) for file in files])
        except DataCorrupt as error:
            if self.manifest().number == seen.number:
                raise
            raise Conflict(
                f"{self._where(self._folder)} was changed by somebody else: {error.message}",
                hint="somebody else archives this table; try again",
            ) from error
        times, actions = rows["instantTime"].to_pylist(), rows["action"].to_pylist()
        first_at = {
            key: at for at, key in reversed(list(enumerate(zip(times, actions, strict=True))))
        }
        return self._write(rows.take([first_at[key] for key in sorted(first_at)]), level=level)

    def _write(self, rows: pa.Table, *, level: int) -> HistoryFile:
        body = io.BytesIO()
        pq.write_table(rows, body, store_schema=False)
        first, last = rows["instantTime"][0].as_py(), rows["instantTime"][-1].as_py()
        name = f"{first}_{last}_{level}.parquet"
        self._put(name, body.getvalue(), Create())
        return HistoryFile(name, first, last, level, body.getbuffer().nbytes)

    def _publish(self, manifest: Manifest, tag: str) -> None:
        listed = [{"fileName": f.name, "fileLen": f.size_bytes} for f in manifest.files]
        body = json.dumps({"files": listed}, indent=2).encode()
        self._put(f"manifest_{manifest.number}", body, Create())
        self._point_to(manifest, tag)

    def _point_to(self, manifest: Manifest, tag: str) -> str:
        mode = Match(tag) if tag else Create()
        return self._put(_VERSION_NAME, str(manifest.number).encode(), mode)

    def _sweep(self, current: Manifest, made: Collection[str]) -> None:
        """Delete what no recent manifest names: a slow reader may still follow an older one.

        Others write their files before the manifest that names them. So a file that no manifest
        ever named goes only if it was `made` here, or is much older than the current one.
        """
        oldest = current.number - _MANIFESTS_KEPT + 1
        kept = {file.name for file in current.files}
        for number in range(max(1, oldest), current.number):
            try:
                kept |= {file.name for file in self._manifest(number).files}
            except DataCorrupt:
                return  # it is not known what it named, so nothing is deleted
        listed = {
            meta.key.removeprefix(f"{self._folder}/"): meta
            for meta in self._store.list(f"{self._folder}/")
        }
        written = listed.get(f"manifest_{current.number}")
        left_before = written.modified_epoch_ms - _LEFT_MS if written else 0
        outdated = [name for name in listed if _number(name) < oldest]
        dropped = {*made, *self._named_by(outdated)}
        for name, meta in listed.items():
            if not _FILE.fullmatch(name) or name in kept:
                continue
            if name in dropped or meta.modified_epoch_ms < left_before:
                self._store.delete(meta.key)
        for name in outdated:
            self._store.delete(listed[name].key)

    def _named_by(self, manifests: Iterable[str]) -> set[str]:
        """Return the files that outdated manifests name, as far as they can be read."""
        found: set[str] = set()
        for name in manifests:
            with suppress(DataCorrupt):
                found |= {file.name for file in self._manifest(int(_number(name))).files}
        return found

    def _put(self, name: str, body: bytes, mode: Create | Match) -> str:
        """Write an object of the history and return its version."""
        key = f"{self._folder}/{name}"
        match put_checked(self._store, key, body, mode, patience=Patience()):
            case Landed(version):
                return version
            case Unknown(cause):
                raise OutcomeUnknown(
                    f"{self._where(key)} may or may not be written: {cause}",
                    hint="archive again: the same instants give the same file",
                )
            case NotLanded(reason):
                raise Conflict(
                    f"{self._where(key)} was not written: {reason}",
                    hint="somebody else archives this table; try again",
                )

    def _version(self) -> int | None:
        found = self._store.get(f"{self._folder}/{_VERSION_NAME}")
        text = found.body.decode("latin-1").strip() if found else ""
        return int(text) if re.fullmatch(r"\d+", text, re.ASCII) else None

    def _manifest_numbers(self) -> Iterator[int]:
        for meta in self._store.list(f"{self._folder}/manifest_"):
            if found := _MANIFEST.fullmatch(meta.key.rpartition("/")[2]):
                yield int(found[1])

    def _manifest(self, number: int) -> Manifest:
        where = self._where(f"{self._folder}/manifest_{number}")
        found = self._store.get(f"{self._folder}/manifest_{number}")
        if found is None:
            raise DataCorrupt(
                f"{where} is missing",
                hint=f"delete {self._folder}/{_VERSION_NAME}: then the newest manifest counts",
            )
        try:
            files = tuple(_named(each["fileName"], each["fileLen"]) for each in _listed(found.body))
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorrupt(
                f"{where} is no manifest of the history: {error}", hint="restore it from a copy"
            ) from error
        return Manifest(number, files)

    def _tables(
        self, wanted: Callable[[HistoryFile], bool], *, columns: list[str] | None = None
    ) -> list[pa.Table]:
        """Read the files of the current manifest that are wanted.

        A file may be merged into another while it is being looked for; the next manifest tells.
        """
        try:
            files = self.manifest().files
            return [self._table(file, columns) for file in files if wanted(file)]
        except DataCorrupt:
            files = self.manifest().files
            return [self._table(file, columns) for file in files if wanted(file)]

    def _latest(self, file: HistoryFile) -> str:
        """Return the last completion time in a file, or a later one, by the file's own statistics.

        Files do not change, so their footers tell which of a long history need not be read.
        """
        start = max(0, file.size_bytes - _TAIL_BYTES)
        found = self._store.get(f"{self._folder}/{file.name}", start=start)
        return _AFTER_ALL if found is None else _latest_in(found.body)

    def _table(self, file: HistoryFile, columns: list[str] | None = None) -> pa.Table:
        key = f"{self._folder}/{file.name}"
        found = self._store.get(key)
        if found is None:
            raise DataCorrupt(
                f"{self._where(key)} is missing from the history", hint="restore it from a copy"
            )
        try:
            # Arrow's threads would each keep some memory for so little.
            whole = pq.ParquetFile(pa.BufferReader(found.body))
            table = whole.read(columns=columns, use_threads=False)
            return table.cast(pa.schema([_SCHEMA.field(name) for name in columns or _SCHEMA.names]))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataCorrupt(
                f"{self._where(key)} is no Parquet file of the history: {error}",
                hint="restore it from a copy",
            ) from error

    def _where(self, key: str) -> str:
        return f"{self._store.uri}/{key}"


_ACTIONS: Final = {action.value: action for action in Action}


def _latest_in(tail: bytes) -> str:
    """Return the last completion time that the end of a file of the history knows of."""
    footer = tail[-8 - int.from_bytes(tail[-8:-4], "little") :]
    try:
        found = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        at = found.schema.names.index("completionTime")
        parts = [found.row_group(each).column(at) for each in range(found.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError):
        # Whoever reads the whole file says what is wrong with it.
        return _AFTER_ALL
    known = [part.statistics.max if part.is_stats_set else None for part in parts]
    ends = [end if isinstance(end, str) else _AFTER_ALL for end in known]
    return max(ends, default=_AFTER_ALL)


def _writes(action: str) -> bool:
    return action in _ACTIONS and _ACTIONS[action].writes_data


def _number(name: str) -> float:
    """Return the number of a manifest; infinity for another file."""
    found = _MANIFEST.fullmatch(name)
    return inf if found is None else int(found[1])


def _rows(instants: Iterable[ArchivedInstant]) -> pa.Table:
    ordered = sorted(instants, key=lambda each: (each.requested, each.action))
    columns: dict[str, list[Any]] = {
        "instantTime": [each.requested for each in ordered],
        "completionTime": [each.completion for each in ordered],
        "action": [each.action.value for each in ordered],
        "metadata": [each.metadata or None for each in ordered],
        "plan": [each.plan or None for each in ordered],
        "version": [1] * len(ordered),
    }
    return pa.table(columns, schema=_SCHEMA)


def _archived(row: dict[str, Any]) -> ArchivedInstant:
    return ArchivedInstant(
        row["instantTime"],
        row["completionTime"],
        _ACTIONS[row["action"]],
        row["metadata"] or b"",
        row["plan"] or b"",
    )


def _listed(body: bytes) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(body)["files"]
    return listed


def _named(name: str, size_bytes: int) -> HistoryFile:
    found = _FILE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not <first>_<last>_<level>.parquet")
    return HistoryFile(name, found[1], found[2], int(found[3]), size_bytes)
