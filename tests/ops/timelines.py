"""Long timelines made without writing them: the files of instants, and a ledger to go with them."""

from __future__ import annotations

from pathlib import Path

from tests.ops.scene import made
from tidelock.table.timeline.container import encode as encoded
from tidelock.table.timeline.instant import Action, format_time, parse_time
from tidelock.table.timeline.metadata import CommitMetadata, WriteStat
from tidelock.txn.checkpoint import CHECKPOINT_KEY, Checkpoint
from tidelock.txn.checkpoint import encode as encode_checkpoint
from tidelock.txn.content import Inline
from tidelock.txn.entry import Commit, Entry, encode, entry_key
from tidelock.txn.footprint import Deed, Footprint
from tidelock.txn.publishing import CHECKPOINT_EVERY
from tidelock.txn.view import View

BEGIN = "20260101000000000"


def long_timeline(folder: Path, instants: int) -> None:
    """Make a table with so many completed instants, one after the other, each 80 ms long."""
    made(folder, name="long").close()
    timeline, ledger = folder / ".hoodie/timeline", folder / ".hoodie/.tidelock/ledger"
    for path in (*timeline.iterdir(), *ledger.iterdir()):
        if path.is_file():
            path.unlink()
    (folder / ".hoodie/.tidelock/checkpoint.json").unlink(missing_ok=True)
    stat = WriteStat(file_id="f-0", path="d/f.parquet", num_writes=3, total_write_bytes=900)
    content = encoded(CommitMetadata({"d": (stat,)}, operation_type="UPSERT"))
    inline, footprint = Inline(content), Footprint(Deed.UPSERT, frozenset({("d", "f-0")}))
    start, nonce, view = parse_time(BEGIN), "", View()
    for number in range(1, instants + 1):
        begun, done = (format_time(start + 2_000 * number + later) for later in (0, 80))
        (timeline / f"{begun}_{done}.deltacommit").write_bytes(content)
        fact = Commit(begun, Action.DELTA_COMMIT, 1, footprint, inline, base=number - 1)
        entry = Entry(number, done, f"writer-{number % 4}", f"n{number}", nonce, number, fact)
        nonce = entry.nonce
        (folder / entry_key(number)).write_bytes(encode(entry))
        view = view.after(entry)
        if number == instants - instants % CHECKPOINT_EVERY:
            # As writers leave one behind them all the time.
            checkpoint = encode_checkpoint(Checkpoint(view.fold, "checkpoint"))
            (folder / CHECKPOINT_KEY).write_bytes(checkpoint)
