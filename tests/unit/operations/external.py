"""Commits of a writer without a ledger, made without Java.

Our writer writes a copy of the table without its ledger, so it knows as little of the ledger as
Java does; the new files are then copied into the table.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import tidelock as tl
from tidelock.core.system import SystemClock, SystemIds
from tidelock.hudi.properties import METADATA_PARTITIONS, update_properties
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.local import LocalStore

_OURS = (".hoodie/.tidelock", ".hoodie/.heartbeat", ".hoodie/.temp")
_ALONE = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def path_of(table: tl.Table) -> Path:
    """Return the folder of a local table."""
    return Path(table.uri.removeprefix("file://"))


def contents(base: Path) -> dict[str, bytes]:
    """Return every file below a folder, by name, with its content."""
    files = (path for path in base.rglob("*") if path.is_file())
    return {str(path.relative_to(base)): path.read_bytes() for path in files}


def without_ledger(
    base: Path,
    write: Callable[[tl.Table], object],
    options: Mapping[str, str] | None = None,
) -> None:
    """Let a writer without a ledger write to the table, and finish."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(base, copy)
        for name in _OURS:
            shutil.rmtree(copy / name, ignore_errors=True)
        _end_writes(copy / ".hoodie/timeline")
        before = contents(copy)
        with tl.Table.open(str(copy), options={**_ALONE, **(options or {})}) as table:
            write(table)
        for name in _OURS:
            shutil.rmtree(copy / name, ignore_errors=True)
        after = contents(copy)
        for name in before.keys() - after.keys():
            (base / name).unlink()
        # A completed instant comes after the files that it lists.
        for name in sorted(after.keys() - before.keys(), key=_order):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_bytes(after[name])
        for name in before.keys() & after.keys():
            if before[name] != after[name]:
                (base / name).write_bytes(after[name])


def _end_writes(timeline: Path) -> None:
    """Remove pending instants from the timeline: a Java writer ignores them."""
    names = [path.name for path in timeline.iterdir() if path.is_file()]
    done = {name.partition("_")[0] for name in names if "_" in name}
    for name in names:
        if name.partition(".")[0] not in done and "_" not in name:
            (timeline / name).unlink()


def _order(name: str) -> tuple[bool, str]:
    return name.startswith(".hoodie/timeline/"), name


def set_properties(base: Path, changes: Mapping[str, str | None]) -> None:
    """Change `hoodie.properties` as a Java writer does."""
    update_properties(LocalStore(base), changes, policy=ReadbackPolicy(SystemClock(), SystemIds()))


def with_metadata_table(base: Path) -> None:
    """Give the table a metadata table that readers list files from, as is Java's default.

    Its content does not matter to us, so it is unreadable.
    """
    set_properties(base, {METADATA_PARTITIONS: "files"})
    file = base / ".hoodie/metadata/files/files-0000-0_0-0-0_00000000000000010.hfile"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"as Java writes it")
