"""The archived timeline: completed instants in a log-structured set of Parquet files.

`history/manifest_<n>` lists the Parquet files that make up the history, and `_version_` holds the
current n. Files are named `<first time>_<last time>_<level>.parquet`. Each archive run adds a file
of level 0; ten files of one level are merged into one of the next.
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

from tidelock.core.errors import Conflict, DataCorrupt, OutcomeUnknown
from tidelock.core.outcome import Landed, NotLanded, Unknown
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.timeline.instant import Action
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Create, Match, ObjectStore

HISTORY_FOLDER: Final = ".hoodie/timeline/history"
MERGE_FILES: Final = 10
"""This many files of one level are merged into one of the next; Hudi's default."""

_MANIFESTS_RETAINED: Final = 3
_VERSION_NAME: Final = "_version_"
_MANIFEST: Final = re.compile(r"manifest_(\d+)", re.ASCII)
_FILE: Final = re.compile(r"(\d+)_(\d+)_(\d)\.parquet", re.ASCII)
_ORPHAN_AGE_MS: Final = 3_600_000
"""A file that no manifest has listed for this long was left by a crashed writer."""
_TAIL_BYTES: Final = 64 * 1024
_MAGIC: Final = b"PAR1"
_TIME_MAX: Final = "~"
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
    """A completed instant with the content of its completed file, and of its plan if any."""

    requested: str
    completion: str
    action: Action
    metadata: bytes = b""
    plan: bytes = b""


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """One file of the history, as described by its name."""

    name: str
    first: str
    last: str
    level: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of the history at one version. Number 0 is the empty history."""

    number: int
    files: tuple[HistoryFile, ...]


class Archive:
    """The archived timeline of a table. Any number of processes may append to it."""

    def __init__(self, store: ObjectStore, folder: str = HISTORY_FOLDER) -> None:
        """Create the accessor. Reads nothing."""
        self._store = store
        self._folder = folder

    def manifest(self) -> Manifest:
        """Return the current manifest. Raises: `DataCorrupt`."""
        found = self._store.get(f"{self._folder}/{_VERSION_NAME}")
        text = found.body.decode("latin-1").strip() if found else ""
        if re.fullmatch(r"\d+", text, re.ASCII):
            number = int(text)
        else:
            listed = self._store.list(f"{self._folder}/manifest_")
            names = (_MANIFEST.fullmatch(meta.key.rpartition("/")[2]) for meta in listed)
            number = max((int(name[1]) for name in names if name), default=0)
        return self._manifest(number) if number else Manifest(0, ())

    def completions(self, times: Collection[str]) -> dict[str, str]:
        """Return the completion times of the archived writes requested at `times`."""
        return {
            row["instantTime"]: row["completionTime"]
            for row in self._rows_requested_at(times)
            if _writes(row["action"])
        }

    def contains(self, times: Collection[str]) -> set[tuple[str, Action]]:
        """Return the archived actions requested at these times."""
        return {
            (row["instantTime"], _ACTIONS[row["action"]])
            for row in self._rows_requested_at(times)
            if row["action"] in _ACTIONS
        }

    def write(self, requested: str) -> ArchivedInstant | None:
        """Return the archived write requested at a time; None if there is none."""
        return next(self.writes([requested]), None)

    def writes(self, times: Collection[str]) -> Iterator[ArchivedInstant]:
        """Yield the archived writes requested at these times."""
        for row in self._rows_requested_at(times, _SCHEMA.names):
            if _writes(row["action"]):
                yield _archived_instant(row)

    def _rows_requested_at(
        self,
        times: Collection[str],
        columns: Sequence[str] = ("instantTime", "completionTime", "action"),
    ) -> Iterator[dict[str, Any]]:
        requested = pa.array(sorted(times), pa.string())
        for table in self._tables(
            lambda file: any(file.first <= time <= file.last for time in times), columns
        ):
            yield from table.filter(pc.is_in(table["instantTime"], requested)).to_pylist()

    def instants(self, *, after: str = "", until: str = "~") -> tuple[ArchivedInstant, ...]:
        """Return the instants of known actions completed in (`after`, `until`], in order."""
        found: dict[tuple[str, str], ArchivedInstant] = {}
        # An instant completes after its request, possibly long after.
        for table in self._tables(lambda file: file.first <= until and self._latest(file) > after):
            done = table["completionTime"]
            within = pc.and_(pc.greater(done, after), pc.less_equal(done, until))
            for row in table.filter(within).to_pylist():
                if row["action"] in _ACTIONS:
                    # A crash during a merge may leave an instant in two files.
                    found[row["instantTime"], row["action"]] = _archived_instant(row)
        return tuple(found[key] for key in sorted(found))

    def append(self, instants: Sequence[ArchivedInstant]) -> Manifest:
        """Add completed instants to the history, and merge full levels.

        The instants may be deleted from the active timeline only after this returns.
        Guarantees: if two processes append concurrently, one gets a `Conflict` and has changed
        nothing; the history never returns to an older manifest.
        Raises: `Conflict` if another process appended concurrently, `OutcomeUnknown`,
        `Unavailable`.
        """
        before, tag = self._current()
        # If another process archived some of them since the caller checked, they are in this
        # manifest; or it writes the next manifest, and this attempt fails.
        known = self.contains([each.requested for each in instants]) if instants else set()
        new_instants = [each for each in instants if (each.requested, each.action) not in known]
        if not new_instants:
            return before
        added = self._write(_history_table(new_instants), level=0)
        files, new_files = [*before.files, added], {added.name}
        for level in range(_LEVEL_MAX):
            full = [file for file in files if file.level == level]
            if len(full) >= MERGE_FILES:
                merged = self._merge(full, level + 1, before)
                files = [file for file in files if file.level != level] + [merged]
                new_files.add(merged.name)
        after = Manifest(before.number + 1, tuple(sorted(files, key=lambda file: file.name)))
        self._publish(after, tag)
        self._delete_unreferenced(after, new_files)
        return after

    def _current(self) -> tuple[Manifest, str]:
        """Return the current manifest, and the version of the `_version_` object ("" if absent).

        A newer manifest was left by a process that died before updating `_version_`; finish that.
        """
        found = self._store.get(f"{self._folder}/{_VERSION_NAME}")
        manifest, tag = self.manifest(), found.version if found else ""
        while self._store.head(f"{self._folder}/manifest_{manifest.number + 1}") is not None:
            manifest = self._manifest(manifest.number + 1)
            tag = self._set_version(manifest, tag)
        return manifest, tag

    def _merge(self, files: Sequence[HistoryFile], level: int, base: Manifest) -> HistoryFile:
        try:
            rows = pa.concat_tables([self._table(file) for file in files])
        except DataCorrupt as error:
            if self.manifest().number == base.number:
                raise
            raise Conflict(
                f"{self._where(self._folder)} was changed concurrently: {error.message}",
                hint="another process archives this table; retry",
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
        self._set_version(manifest, tag)

    def _set_version(self, manifest: Manifest, tag: str) -> str:
        mode = Match(tag) if tag else Create()
        return self._put(_VERSION_NAME, str(manifest.number).encode(), mode)

    def _delete_unreferenced(self, current: Manifest, new_files: Collection[str]) -> None:
        """Delete files that no recent manifest lists; slow readers may still use older manifests.

        Writers create their files before the manifest that lists them. So a file that no manifest
        ever listed is deleted only if it is one of `new_files`, or much older than the current
        manifest.
        """
        oldest = current.number - _MANIFESTS_RETAINED + 1
        referenced = {file.name for file in current.files}
        for number in range(max(1, oldest), current.number):
            try:
                referenced |= {file.name for file in self._manifest(number).files}
            except DataCorrupt:
                return  # its files are unknown, so nothing is deleted
        listed = {
            meta.key.removeprefix(f"{self._folder}/"): meta
            for meta in self._store.list(f"{self._folder}/")
        }
        manifest = listed.get(f"manifest_{current.number}")
        orphan_before = manifest.modified_epoch_ms - _ORPHAN_AGE_MS if manifest else 0
        outdated = [name for name in listed if _manifest_number(name) < oldest]
        unreferenced = {*new_files, *self._files_named_by(outdated)}
        for name, meta in listed.items():
            if not _FILE.fullmatch(name) or name in referenced:
                continue
            if name in unreferenced or meta.modified_epoch_ms < orphan_before:
                self._store.delete(meta.key)
        for name in outdated:
            self._store.delete(listed[name].key)

    def _files_named_by(self, manifests: Iterable[str]) -> set[str]:
        """Return the files listed by outdated manifests, as far as they can be read."""
        found: set[str] = set()
        for name in manifests:
            with suppress(DataCorrupt):
                found |= {file.name for file in self._manifest(int(_manifest_number(name))).files}
        return found

    def _put(self, name: str, body: bytes, mode: Create | Match) -> str:
        """Write an object of the history and return its version."""
        key = f"{self._folder}/{name}"
        match put_and_verify(
            self._store, key, body, mode, policy=ReadbackPolicy(SystemClock(), SystemIds())
        ):
            case Landed(version):
                return version
            case Unknown(cause):
                raise OutcomeUnknown(
                    f"{self._where(key)}: the outcome of the write is unknown: {cause}",
                    hint="archive again: the same instants give the same file",
                )
            case NotLanded(reason):
                raise Conflict(
                    f"{self._where(key)} was not written: {reason}",
                    hint="another process archives this table; retry",
                )

    def _manifest(self, number: int) -> Manifest:
        where = self._where(f"{self._folder}/manifest_{number}")
        found = self._store.get(f"{self._folder}/manifest_{number}")
        if found is None:
            raise DataCorrupt(
                f"{where} is missing",
                hint=f"delete {self._folder}/{_VERSION_NAME}, so that the latest manifest is used",
            )
        try:
            listed = json.loads(found.body)["files"]
            files = tuple(_history_file(each["fileName"], each["fileLen"]) for each in listed)
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorrupt(
                f"{where}: invalid manifest: {error}", hint="restore it from a copy"
            ) from error
        return Manifest(number, files)

    def _tables(
        self, selected: Callable[[HistoryFile], bool], columns: Sequence[str] = _SCHEMA.names
    ) -> list[pa.Table]:
        """Read the selected files of the current manifest.

        A file may be merged into another during the read; the next manifest then lists the new one.
        """
        try:
            files = self.manifest().files
            return [self._table(file, columns) for file in files if selected(file)]
        except DataCorrupt:
            files = self.manifest().files
            return [self._table(file, columns) for file in files if selected(file)]

    def _latest(self, file: HistoryFile) -> str:
        """Return an upper bound of the completion times in a file, from its Parquet footer."""
        start = max(0, file.size_bytes - _TAIL_BYTES)
        found = self._store.get(f"{self._folder}/{file.name}", start=start)
        return _TIME_MAX if found is None else _latest_completion(found.body)

    def _table(self, file: HistoryFile, columns: Sequence[str] = _SCHEMA.names) -> pa.Table:
        key = f"{self._folder}/{file.name}"
        found = self._store.get(key)
        if found is None:
            raise DataCorrupt(
                f"{self._where(key)} is missing from the history", hint="restore it from a copy"
            )
        try:
            # Each of Arrow's threads would retain memory, for little data.
            parquet = pq.ParquetFile(pa.BufferReader(found.body))
            table = parquet.read(columns=[*columns], use_threads=False)
            return table.cast(pa.schema([_SCHEMA.field(name) for name in columns]))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataCorrupt(
                f"{self._where(key)}: invalid history file: {error}", hint="restore it from a copy"
            ) from error

    def _where(self, key: str) -> str:
        return f"{self._store.uri}/{key}"


_ACTIONS: Final = {action.value: action for action in Action}


def _latest_completion(tail: bytes) -> str:
    """Return an upper bound of the completion times in a history file, given its tail."""
    footer = tail[-8 - int.from_bytes(tail[-8:-4], "little") :]
    try:
        found = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        at = found.schema.names.index("completionTime")
        parts = [found.row_group(each).column(at) for each in range(found.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError):
        # Reading the whole file reports the error.
        return _TIME_MAX
    known = [part.statistics.max if part.is_stats_set else None for part in parts]
    ends = [end if isinstance(end, str) else _TIME_MAX for end in known]
    return max(ends, default=_TIME_MAX)


def _writes(action: str) -> bool:
    return action in _ACTIONS and _ACTIONS[action].writes_data


def _manifest_number(name: str) -> float:
    """Return the number of a manifest; infinity for other files."""
    found = _MANIFEST.fullmatch(name)
    return inf if found is None else int(found[1])


def _history_table(instants: Iterable[ArchivedInstant]) -> pa.Table:
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


def _archived_instant(row: dict[str, Any]) -> ArchivedInstant:
    return ArchivedInstant(
        row["instantTime"],
        row["completionTime"],
        _ACTIONS[row["action"]],
        row["metadata"] or b"",
        row["plan"] or b"",
    )


def _history_file(name: str, size_bytes: int) -> HistoryFile:
    found = _FILE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not <first>_<last>_<level>.parquet")
    return HistoryFile(name, found[1], found[2], int(found[3]), size_bytes)
