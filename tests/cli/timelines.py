"""Long timelines without data: the files of instants, and a matching ledger."""

from __future__ import annotations

from pathlib import Path

from tests.cli.scene import create_table
from tidelock.hudi.timeline.instant import Action, format_time, parse_time
from tidelock.hudi.timeline.metadata import CommitMetadata, WriteStat
from tidelock.hudi.timeline.metadata import encode as encoded
from tidelock.txn.checkpoint import CHECKPOINT_KEY, Checkpoint
from tidelock.txn.checkpoint import encode as encode_checkpoint
from tidelock.txn.entries import Commit, InlineContent, LedgerEntry, encode, entry_key
from tidelock.txn.footprint import CommitKind, Footprint
from tidelock.txn.ledger_io import CHECKPOINT_EVERY
from tidelock.txn.state import View

BEGIN = "20260101000000000"


def long_timeline(folder: Path, instants: int) -> None:
    """Create a table with this many completed instants, one after the other, 80 ms each."""
    create_table(folder, name="long").close()
    timeline, ledger = folder / ".hoodie/timeline", folder / ".hoodie/.tidelock/ledger"
    for path in (*timeline.iterdir(), *ledger.iterdir()):
        if path.is_file():
            path.unlink()
    (folder / ".hoodie/.tidelock/checkpoint.json").unlink(missing_ok=True)
    stat = WriteStat(file_id="f-0", path="d/f.parquet", num_writes=3, total_write_bytes=900)
    content = encoded(CommitMetadata({"d": (stat,)}, operation_type="UPSERT"))
    inline, footprint = (
        InlineContent(content),
        Footprint(CommitKind.UPSERT, frozenset({("d", "f-0")})),
    )
    start, nonce, view = parse_time(BEGIN), "", View()
    for number in range(1, instants + 1):
        begun, done = (format_time(start + 2_000 * number + later) for later in (0, 80))
        (timeline / f"{begun}_{done}.deltacommit").write_bytes(content)
        fact = Commit(begun, Action.DELTA_COMMIT, 1, footprint, inline, base=number - 1)
        entry = LedgerEntry(number, done, f"writer-{number % 4}", f"n{number}", nonce, number, fact)
        nonce = entry.nonce
        (folder / entry_key(number)).write_bytes(encode(entry))
        view = view.after(entry)
        if number == instants - instants % CHECKPOINT_EVERY:
            # Writers regularly leave one behind.
            checkpoint = encode_checkpoint(Checkpoint(view.state, "checkpoint"))
            (folder / CHECKPOINT_KEY).write_bytes(checkpoint)
