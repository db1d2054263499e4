"""A case: a table, what each actor does to it, and whose turn it is when; one line of text each.

    mor bucket event single logs fresh | upsert:new compact | a>begun b a | touch

The table is merge-on-read with a bucket index, ordered by event time, in single-writer mode, with
log files already there, and every actor opens it when it begins. Actor `a` upserts keys that are
new to an existing file group, `b` compacts. `a` runs until it has begun, `b` to its end, then `a`
goes on. At the end every key is written again and deleted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from tidelock.testing.interleaving.oracle import Deed, Row

KINDS: Final = ("cow", "mor")
INDEXES: Final = ("simple", "bloom", "bucket", "none")
ORDERINGS: Final = ("event", "late", "tie", "commit")
MODES: Final = ("single", "occ", "nbcc")
HISTORIES: Final = ("empty", "base", "logs", "plan", "over")
VIEWS: Final = ("fresh", "stale", "calm", "skew")
"""How actors come to the table: each opens it when it begins, or all before the first begins; with
much time between turns, so that nobody seems to be beside them; or the first's clock is behind."""
ENDS: Final = ("", "touch", "rust")
"""What comes after the turns: nothing, every key is written again and deleted, or hudi-rs reads."""
ACTORS: Final = "abc"
IS_DELETED: Final = "_hoodie_is_deleted"

WRITES: Final = ("insert", "upsert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
DELETES: Final = ("delete", "delete_anywhere", "delete_partition")
COMPUTED: Final = ("rewrite", "erase")
KEYED: Final = ("insert_new", "soft")
"""Inserts that leave out keys that are there, and rows that say of themselves that they delete."""
BLIND: Final = ("insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
MERGES: Final = ("compact", "schedule", "execute", "logcompact")
SERVICES: Final = (*MERGES, "cluster", "clean", "archive", "savepoint")
UNDOING: Final = ("rollback", "restore", "recover")
"""Taking back the last commit, what came after the history, and what seems to be dead."""
CHANGES: Final = ("col", "wide")

WRITER_POINTS: Final = ("placed", "begun", "writing", "commit", "decided")
SERVICE_POINTS: Final = ("plan", "claim", "writing", "commit", "decided")
UNDO_POINTS: Final = ("undo", "claim", "commit")
_FEW_POINTS: Final = {
    "schedule": ("plan",),
    "execute": ("claim", "writing", "commit", "decided"),
    "clean": ("plan", "claim", "commit", "decided"),
    "archive": ("boundary",),
    "savepoint": ("commit", "decided"),
}
POINTS: Final = tuple(dict.fromkeys((*WRITER_POINTS, *SERVICE_POINTS, *UNDO_POINTS, "boundary")))

SPOTS: Final = ("old", "new", "bkt", "prt", "gone")
"""Where keys lie: in the table, new to a group that exists, in a bucket without one, in a new
partition, or in a group that they were deleted from."""

_IN: Final = {"old": "p", "new": "p", "bkt": "p", "prt": "q", "gone": "p"}
# The numbers are chosen so that of two buckets every spot but `bkt` lies in the first.
KEYS: Final = {
    "old": ("k0", "k2", "k4", "k6"),
    "new": ("m0", "m2", "m4", "m6"),
    "bkt": ("k1", "k3", "k5", "k7"),
    "prt": ("n1", "n3", "n5", "n7"),
    "gone": ("g0", "g2", "g4", "g6"),
}
"""Of each spot the key that actors share, and one of each actor's own."""

_TIMES: Final = {
    "event": {"": 10, "a": 30, "b": 20, "c": 40},
    "late": {"": 10, "a": 5, "b": 20, "c": 15},
    "tie": {"": 10, "a": 10, "b": 10, "c": 10},
    "commit": {"": 10, "a": 30, "b": 20, "c": 40},
}
LAST_TIME: Final = 100
COLUMNS: Final = {"id": "string", "ts": "int64", "region": "string", "v": "int64", "n": "int32"}


@dataclass(frozen=True, slots=True)
class Act:
    """What one actor does: a verb, where, whether with keys of its own alone, and new columns."""

    verb: str
    spot: str = ""
    apart: bool = False
    change: str = ""

    def __str__(self) -> str:
        """Return the word in the line."""
        change = f"+{self.change}" if self.change else ""
        spot = f":{self.spot}{'-' if self.apart else ''}" if self.spot else ""
        return f"{self.verb}{change}{spot}"

    @property
    def writes(self) -> bool:
        """Tell whether it is a write, which nobody may make fail."""
        return self.verb in (*WRITES, *DELETES, *COMPUTED, *KEYED)

    @property
    def points(self) -> tuple[str, ...]:
        """Return where it can be stopped."""
        if self.writes:
            return WRITER_POINTS
        every = UNDO_POINTS if self.verb in UNDOING else SERVICE_POINTS
        return _FEW_POINTS.get(self.verb, every)


@dataclass(frozen=True, slots=True)
class Step:
    """An actor's turn: until a point, or to its end."""

    actor: str
    until: str = ""

    def __str__(self) -> str:
        """Return the word in the line."""
        return f"{self.actor}>{self.until}" if self.until else self.actor


@dataclass(frozen=True, slots=True)
class Case:
    """One case of the matrix."""

    kind: str
    index: str
    ordering: str
    mode: str
    history: str
    view: str
    acts: tuple[Act, ...]
    steps: tuple[Step, ...]
    end: str = ""

    def __str__(self) -> str:
        """Return the line that replays it."""
        table = f"{self.kind} {self.index} {self.ordering} {self.mode} {self.history} {self.view}"
        parts = [table, " ".join(map(str, self.acts)), " ".join(map(str, self.steps))]
        return " | ".join([*parts, self.end] if self.end else parts)

    @property
    def is_possible(self) -> bool:
        """Tell whether Hudi has such a table, and such operations on it."""
        if self.mode == "nbcc" and (self.kind, self.index) != ("mor", "bucket"):
            return False
        if self.history == "plan" and self.kind != "mor":
            return False
        return all(self.takes(act) for act in self.acts)

    def takes(self, act: Act) -> bool:
        """Tell whether the table takes an operation, and the operation is another one here."""
        if act.verb in MERGES and self.kind != "mor":
            return False
        if act.verb == "cluster" and self.index == "bucket":
            return False
        if act.verb in ("rollback", "restore", "savepoint") and self.history == "empty":
            return False
        # A row that deletes is remembered with its event time for as long as its log file is there.
        if act.verb == "soft" and self.ordering in ("event", "late"):
            return False
        blind = act.verb in BLIND or act.verb == "delete_partition" or not act.writes
        if self.index == "none" and not blind:  # keys are not looked for
            return False
        if act.spot == "bkt" and self.index != "bucket":
            return False
        if act.spot == "gone" and self.history not in ("logs", "plan"):
            return False
        return not (act.spot == "old" and self.history == "empty")

    def with_steps(self, *steps: Step) -> Case:
        """Return the case with other turns."""
        return replace(self, steps=steps)

    def deed(self, number: int) -> Deed:
        """Return what an actor's operation means, in plain values."""
        act, actor = self.acts[number], ACTORS[number]
        if not act.spot:
            return Deed(act.verb)
        shared, *own = KEYS[act.spot]
        keys = (own[number],) if act.apart else (shared, own[number])
        columns: dict[str, str] = {}
        if act.change == "col":
            columns = {f"w{actor}": "string"}
        elif act.change == "wide":
            columns = {"n": "int64"}
        elif act.verb == "soft":
            columns = {IS_DELETED: "bool"}
        rows = [
            row(key, _IN[act.spot], self.time(actor), 100 * (number + 1) + at)
            for at, key in enumerate(keys)
        ]
        value = {"wide": 2**40, "col": f"of {actor}", "": True}[act.change]
        for each in rows:
            each.update(dict.fromkeys(columns, value))
        return Deed(act.verb, tuple(rows), keys, _IN[act.spot], columns, 1_000 * (number + 1))

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns that the table begins with, and their types."""
        soft = any(act.verb == "soft" for act in self.acts)
        return {**COLUMNS, IS_DELETED: "bool"} if soft else COLUMNS

    def time(self, actor: str = "") -> int:
        """Return the ordering value of an actor's rows; of the history's without one."""
        return _TIMES[self.ordering][actor]

    @property
    def is_ordered(self) -> bool:
        """Tell whether the larger ordering value wins."""
        return self.ordering != "commit"

    @property
    def merges_inserts(self) -> bool:
        """Tell whether an insert of a key that is there meets it: in a log of its bucket."""
        return self.kind == "mor" and self.index == "bucket"

    @property
    def merges_bulk(self) -> bool:
        """Tell whether a bulk insert of a key that is there meets it: in its bucket."""
        return self.index == "bucket"


def row(key: str, region: str, ts: int, v: int) -> Row:
    """Return a row of the columns that every table begins with."""
    return {"id": key, "ts": ts, "region": region, "v": v, "n": v}


def parsed(line: str) -> Case:
    """Return the case that a line describes. Raises: `ValueError`."""
    table, acts, steps, *end = (part.strip() for part in line.split("|"))
    kind, index, ordering, mode, history, view = table.split()
    return Case(
        kind,
        index,
        ordering,
        mode,
        history,
        view,
        tuple(_act(word) for word in acts.split()),
        tuple(Step(*word.split(">")) for word in steps.split()),
        end[0] if end else "",
    )


def _act(word: str) -> Act:
    found = re.fullmatch(r"(\w+)(?:\+(\w+))?(?::(\w+)(-?))?", word)
    if found is None:
        raise ValueError(f"{word!r} is no operation")
    verb, change, spot, apart = found.groups()
    return Act(verb, spot or "", bool(apart), change or "")
