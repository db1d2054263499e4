"""A case: a table, the operation of each actor, and the order of their steps, as one line of text.

    mor bucket event single logs fresh | upsert:new compact | a>begun b a | touch

The table is merge-on-read with a bucket index, ordered by event time, in single-writer mode, with
existing log files, and every actor opens it when it starts. Actor `a` upserts keys that are new to
an existing file group, `b` compacts. `a` runs until it has begun, `b` to its end, then `a`
continues. At the end every key is written again and deleted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from testkit.interleaving.oracle import Row, TableChange

KINDS: Final = ("cow", "mor")
INDEXES: Final = ("simple", "bloom", "bucket", "none")
ORDERINGS: Final = ("event", "late", "tie", "commit")
MODES: Final = ("single", "occ", "nbcc")
HISTORIES: Final = ("empty", "base", "logs", "plan", "over")
VIEWS: Final = ("fresh", "stale", "calm", "skew")
"""How actors open the table: each when it starts, or all before the first one starts; with much
time between steps, so that there is no contention; or with the clock of the first actor behind."""
ENDS: Final = ("", "touch", "rust")
"""What follows the steps: nothing, every key is written again and deleted, or a read by hudi-rs."""
ACTORS: Final = "abc"
IS_DELETED: Final = "_hoodie_is_deleted"

WRITES: Final = ("insert", "upsert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
DELETES: Final = ("delete", "delete_anywhere", "delete_partition")
COMPUTED: Final = ("rewrite", "erase")
KEYED: Final = ("insert_new", "soft")
"""Inserts that skip existing keys, and rows that are marked as deletes."""
BLIND: Final = ("insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
MERGES: Final = ("compact", "schedule", "execute", "logcompact")
SERVICES: Final = (*MERGES, "cluster", "clean", "archive", "savepoint")
UNDOING: Final = ("rollback", "restore", "recover")
"""Rollback of the last commit, restore to the history, and recovery of dead writes."""
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
"""Location of keys: in the table, new to an existing group, in a bucket without one, in a new
partition, or in a group that they were deleted from."""

_IN: Final = {"old": "p", "new": "p", "bkt": "p", "prt": "q", "gone": "p"}
# With these numbers, every location but `bkt` is in the first of two buckets.
KEYS: Final = {
    "old": ("k0", "k2", "k4", "k6"),
    "new": ("m0", "m2", "m4", "m6"),
    "bkt": ("k1", "k3", "k5", "k7"),
    "prt": ("n1", "n3", "n5", "n7"),
    "gone": ("g0", "g2", "g4", "g6"),
}
"""For each location the key that actors share, and one of each actor's own."""

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
    """The operation of one actor: a verb, a location, whether only with its own keys, and new
    columns."""

    verb: str
    spot: str = ""
    apart: bool = False
    change: str = ""

    def __str__(self) -> str:
        """Return the word in the case line."""
        change = f"+{self.change}" if self.change else ""
        spot = f":{self.spot}{'-' if self.apart else ''}" if self.spot else ""
        return f"{self.verb}{change}{spot}"

    @property
    def writes(self) -> bool:
        """Whether it is a write, which must not fail."""
        return self.verb in (*WRITES, *DELETES, *COMPUTED, *KEYED)

    @property
    def points(self) -> tuple[str, ...]:
        """Return the points at which it can be stopped."""
        if self.writes:
            return WRITER_POINTS
        every = UNDO_POINTS if self.verb in UNDOING else SERVICE_POINTS
        return _FEW_POINTS.get(self.verb, every)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an actor: until a point, or to its end."""

    actor: str
    until: str = ""

    def __str__(self) -> str:
        """Return the word in the case line."""
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
        """Return the case line that replays it."""
        table = f"{self.kind} {self.index} {self.ordering} {self.mode} {self.history} {self.view}"
        parts = [table, " ".join(map(str, self.acts)), " ".join(map(str, self.steps))]
        return " | ".join([*parts, self.end] if self.end else parts)

    @property
    def is_possible(self) -> bool:
        """Return whether Hudi supports such a table and these operations on it."""
        if self.mode == "nbcc" and (self.kind, self.index) != ("mor", "bucket"):
            return False
        if self.history == "plan" and self.kind != "mor":
            return False
        return all(self.takes(act) for act in self.acts)

    def takes(self, act: Act) -> bool:
        """Return whether the table supports an operation, and it is not the same as another one."""
        if act.verb in MERGES and self.kind != "mor":
            return False
        if act.verb == "cluster" and self.index == "bucket":
            return False
        if act.verb in ("rollback", "restore", "savepoint") and self.history == "empty":
            return False
        # A delete row keeps its event time for as long as its log file exists.
        if act.verb == "soft" and self.ordering in ("event", "late"):
            return False
        blind = act.verb in BLIND or act.verb == "delete_partition" or not act.writes
        if self.index == "none" and not blind:  # keys are not looked up
            return False
        if act.spot == "bkt" and self.index != "bucket":
            return False
        if act.spot == "gone" and self.history not in ("logs", "plan"):
            return False
        return not (act.spot == "old" and self.history == "empty")

    def with_steps(self, *steps: Step) -> Case:
        """Return the case with other steps."""
        return replace(self, steps=steps)

    def change(self, number: int) -> TableChange:
        """Return the meaning of an actor's operation, in plain values."""
        act, actor = self.acts[number], ACTORS[number]
        if not act.spot:
            return TableChange(act.verb)
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
        return TableChange(
            act.verb, tuple(rows), keys, _IN[act.spot], columns, 1_000 * (number + 1)
        )

    @property
    def columns(self) -> dict[str, str]:
        """Return the initial columns of the table, and their types."""
        soft = any(act.verb == "soft" for act in self.acts)
        return {**COLUMNS, IS_DELETED: "bool"} if soft else COLUMNS

    def time(self, actor: str = "") -> int:
        """Return the ordering value of an actor's rows, or of the history's without one."""
        return _TIMES[self.ordering][actor]

    @property
    def is_ordered(self) -> bool:
        """Whether the larger ordering value wins."""
        return self.ordering != "commit"

    @property
    def merges_inserts(self) -> bool:
        """Whether an insert of an existing key is merged with it, in a log file of its bucket."""
        return self.kind == "mor" and self.index == "bucket"

    @property
    def merges_bulk(self) -> bool:
        """Whether a bulk insert of an existing key is merged with it, in its bucket."""
        return self.index == "bucket"


def row(key: str, region: str, ts: int, v: int) -> Row:
    """Return a row with the columns that every table starts with."""
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
        raise ValueError(f"expected an operation, got {word!r}")
    verb, change, spot, apart = found.groups()
    return Act(verb, spot or "", bool(apart), change or "")
