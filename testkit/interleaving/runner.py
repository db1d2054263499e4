"""Runs a case: prepares the table, runs the actors' steps, and checks all readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from testkit.interleaving.cases import ACTORS, COLUMNS, KEYS, LAST_TIME, Act, Case, Step, row
from testkit.interleaving.oracle import (
    Done,
    Oracle,
    Place,
    Row,
    Rules,
    State,
    TableChange,
    computed,
    plain,
)
from testkit.interleaving.world import Actor, CaseClock, CaseStore, InlineEngine, SlowClock
from testkit.judges.hudi_rs import HudiRs
from tidelock.core.errors import Conflict, InvalidInput, NotFound
from tidelock.core.system import SeededIds, SystemClock, SystemIds
from tidelock.execution.local.read import LocalEngine
from tidelock.execution.service_tasks import LocalServices
from tidelock.hudi.properties import create_properties
from tidelock.hudi.schema import META_COLUMNS
from tidelock.hudi.timeline.instant import Action
from tidelock.operations.attempt import ReadSnapshot
from tidelock.operations.create import table_properties
from tidelock.operations.read import snapshot_now
from tidelock.operations.report import WriteReport
from tidelock.services.runner import ServiceRun, compaction
from tidelock.services.savepoint import SavepointInfo
from tidelock.storage.conditional import ReadbackPolicy
from tidelock.storage.contract import ObjectStore
from tidelock.table import Table
from tidelock.txn.plans import RollbackResult

_TYPES: Final = {
    "string": pa.string(),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "bool": pa.bool_(),
}
_CALM_MS: Final = 5_000
_BEHIND_MS: Final = 300_000
_DEAD_MS: Final = 3_600_000
_KINDS: Final = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
_MODES: Final = {
    "single": "SINGLE_WRITER",
    "occ": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "nbcc": "NON_BLOCKING_CONCURRENCY_CONTROL",
}
_DROP: Final = "hoodie.datasource.write.insert.drop.duplicates"
_INLINE: Final = InlineEngine(1)
_BEFORE_ALL: Final = "00010101000000000"
_TOMBSTONE: Final = "_tidelock_tombstone"


@dataclass
class Outcome:
    """The result of a case: its failures, and how its operations ended."""

    case: Case
    wrong: list[str] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    rebases: int = 0
    reached: int = 0


@dataclass(frozen=True)
class Prepared:
    """A table after its history."""

    store: CaseStore
    passed_ms: int
    done: tuple[Done, ...]


_prepared: dict[tuple[str, ...], Prepared] = {}


def options_of(case: Case) -> dict[str, object]:
    """Return the settings of every actor."""
    chosen: dict[str, object] = {
        "hoodie.index.type": "SIMPLE" if case.index == "none" else case.index.upper(),
        "hoodie.write.concurrency.mode": _MODES[case.mode],
        # An actor that does not know a new column writes null to it.
        "hoodie.write.set.null.for.missing.columns": "true",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.log.compaction.blocks.threshold": "2",
        "hoodie.clustering.plan.strategy.small.file.limit": "1000000",
    }
    if case.index == "bucket":
        chosen["hoodie.bucket.index.num.buckets"] = "2"
    return chosen


def opened(
    case: Case,
    store: ObjectStore,
    clock: CaseClock,
    seed: int,
    *,
    engine: LocalEngine = _INLINE,
    more: Mapping[str, object] | None = None,
) -> Table:
    """Return a handle on the table."""
    table = Table(
        snapshot_now(store),
        engine=engine,
        options={**options_of(case), **(more or {})},
        clock=clock,
        ids=SeededIds(seed),
    )
    table.writer().services = LocalServices(store, workers=1)
    return table


def run_case(case: Case, *, trace: Callable[[str], None] | None = None) -> Outcome:
    """Return the result of a case; `trace` receives each step and what readers saw after it."""
    return _Run(case, trace or _ignore).outcome()


def prepared(case: Case) -> Prepared:
    """Return the initial table of a case; created once."""
    ordered = "commit" if case.ordering == "commit" else str(case.time())
    key = (case.kind, case.index, ordered, case.mode, case.history, *case.columns)
    if key not in _prepared:
        _prepared[key] = _prepare(case)
    return _prepared[key]


def _prepare(case: Case) -> Prepared:
    clock = CaseClock()
    store = CaseStore("case", clock=clock)
    made: dict[str, object] = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.table.type": _KINDS[case.kind],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        **({"hoodie.table.ordering.fields": "ts"} if case.is_ordered else {}),
    }
    columns = _schema(case.columns)
    properties = table_properties(store.uri, columns, {**options_of(case), **made})
    create_properties(store, properties, policy=ReadbackPolicy(SystemClock(), SystemIds()))
    table = opened(case, store, clock, 99)
    table.writer().ensure_first_commit()
    done = [
        _finished(change, perform(table, change, options_of(case))) for change in _history(case)
    ]
    if case.history == "plan":
        # It is not executed yet: the effects of a pending plan are part of the case.
        compaction(table.writer(), options_of(case)).schedule()
    table.close()
    return Prepared(store, clock.passed_ms, tuple(done))


def _history(case: Case) -> list[TableChange]:
    if case.history == "empty":
        return []
    time = case.time()
    old = [row(key, "p", time, 1 + at) for at, key in enumerate(KEYS["old"])]
    gone = [row(key, "p", time, 21 + at) for at, key in enumerate(KEYS["gone"])]
    other_partition = [row("z0", "r", time, 9)]
    first = "insert" if case.index == "none" else "upsert"
    # A second file group of the partition, if there are no buckets.
    other = TableChange("bulk_insert", (row("y0", "p", time, 7),))
    if case.history in ("base", "over"):
        done = [TableChange(first, (*old, *other_partition)), other]
        if case.history == "over":
            done.append(TableChange("insert_overwrite", tuple(old), partition="p"))
        return done
    done = [TableChange(first, (*old, *gone, *other_partition)), other]
    again = tuple({**each, "v": each["v"] + 10} for each in old)
    if case.index == "none":
        added = row("g9", "p", time, 8)
        return [TableChange(first, (*old, *other_partition)), TableChange("insert", (added,))]
    return [
        *done,
        TableChange("upsert", again),
        TableChange("delete", keys=KEYS["gone"], partition="p"),
    ]


def perform(table: Table, change: TableChange, options: Mapping[str, object]) -> Any:
    """Apply an operation to a table, and return the product's result."""
    if change.verb in _PLAIN:
        return _PLAIN[change.verb](table)
    match change.verb:
        case "delete":
            keys = [{"id": key, "region": change.partition} for key in change.keys]
            return table.delete(pa.Table.from_pylist(keys))
        case "delete_anywhere":
            return table.delete(list(change.keys))
        case "delete_partition":
            return table.delete_partition([change.partition])
        case "rewrite":
            return table.rewrite(partial(_computed, change))
        case "erase":
            return table.rewrite(partial(_tombstones, change), tombstones=True)
        case "schedule":
            return compaction(table.writer(), options).schedule()
        case "execute":
            return compaction(table.writer(), options).execute_pending()
        case "restore":
            return table.restore(change.partition, fence=True)
        case _:
            operation = {"insert_new": "insert", "soft": "upsert"}.get(change.verb, change.verb)
            return table.write(_arrow(change.rows, change.columns), operation)


def _roll_back_last(table: Table) -> Any:
    writes = [each for each in table.timeline if each.is_completed and each.action.writes_data]
    return table.rollback(max(writes, key=lambda each: each.completion).requested)


_PLAIN: Final[Mapping[str, Callable[[Table], Any]]] = {
    "compact": Table.compact,
    "logcompact": Table.log_compact,
    "cluster": Table.cluster,
    "clean": Table.clean,
    "archive": Table.archive,
    "savepoint": Table.savepoint,
    "recover": Table.rollback,
    "rollback": _roll_back_last,
}


def _computed(change: TableChange, now: ReadSnapshot) -> pa.Table:
    return _arrow(computed(now.read().to_pylist(), change), change.columns)


def _tombstones(change: TableChange, now: ReadSnapshot) -> pa.Table:
    # The whole table is read, so any concurrent change must be detected.
    now.read()
    rows = _arrow(change.rows, change.columns)
    return rows.append_column(_TOMBSTONE, pa.array([True] * rows.num_rows))


def _arrow(rows: Iterable[Row], columns: Any) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=_schema({**COLUMNS, **columns}))


def _schema(columns: Any) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])


def _finished(change: TableChange, answer: Any) -> Done:
    match answer:
        case WriteReport(instant=instant, completion=completion):
            return Done(change, instant, completion)
        case RollbackResult(instant=instant):
            rolled_back = frozenset(each.instant for each in answer.rolled_back)
            return Done(change, instant, instant, rolled_back or frozenset({"nothing"}))
        case (RollbackResult() as first, *_):
            rolled_back = frozenset(each.instant for one in answer for each in one.rolled_back)
            return Done(change, first.instant, first.instant, rolled_back)
        case _:
            return Done(change, "", "")


@dataclass
class _Poll:
    """What a reader saw between two steps."""

    after: str
    since: str
    until: str
    rows: list[Row]
    changed: list[Row] | None


class _Run:
    def __init__(self, case: Case, trace: Callable[[str], None]) -> None:
        self.case = case
        self.trace = trace
        begins = prepared(case)
        self.clock = CaseClock(begins.passed_ms + 60_000)
        self.store = begins.store.copied(self.clock)
        self.history = begins.done
        self.done = list(begins.done)
        self.result = Outcome(case)
        self.rules = Rules(case.is_ordered, case.merges_inserts, case.merges_bulk)
        self.oracle = Oracle(self.rules, case.columns)
        self.polls: list[_Poll] = []
        self.savepoints: set[str] = set()
        self.reader = opened(case, self.store, self.clock, 1)
        self.since = self.reader.latest_completion or _BEFORE_ALL
        self.verbs = {act.verb for act in case.acts}
        self._repeats = bool(self.verbs & {"insert", "bulk_insert"})

    def outcome(self) -> Outcome:
        try:
            self._play()
            if not self.result.wrong:
                self._check_polls()
                self._check_now("at the end")
                self._check_past()
                self._check_savepoints()
                self._check_every_block()
            if not self.result.wrong and self.case.end == "touch":
                self._touch()
            if not self.result.wrong and self.case.end == "rust":
                self._check_by_rust()
        except Exception as error:
            self._wrong(f"{type(error).__name__} outside of the operations: {error}")
        self.reader.close()
        return self.result

    def _wrong(self, what: str) -> None:
        self.result.wrong.append(what)

    # -- steps ----------------------------------------------------------------------------------

    def _play(self) -> None:
        actors = {
            ACTORS[number]: self._actor(number, act) for number, act in enumerate(self.case.acts)
        }
        for step in (*self.case.steps, *(Step(name) for name in actors)):
            actor = actors[step.actor]
            if actor.is_done:
                continue
            if self.case.view == "calm":
                self.clock.sleep_ms(_CALM_MS)
            if self.case.acts[ACTORS.index(step.actor)].verb == "recover":
                self.clock.sleep_ms(_DEAD_MS)
            ended = actor.advance(step.until)
            self.result.reached += bool(step.until and not ended)
            if ended:
                self._ended(actor, self.case.acts[ACTORS.index(step.actor)])
            self._poll(str(step))

    def _actor(self, number: int, act: Act) -> Actor:
        change = self.case.change(number)
        if act.verb == "restore":
            change = TableChange(
                "restore", partition=max(self.done, key=lambda each: each.at).instant
            )
        opened_tables: list[Table] = []
        more = {_DROP: "true"} if act.verb == "insert_new" else None
        behind = self.case.view == "skew" and number == 0
        clock = SlowClock(self.clock, _BEHIND_MS) if behind else self.clock

        def run(store: ObjectStore) -> Any:
            if not opened_tables:
                opened_tables.append(opened(self.case, store, clock, 10 + number, more=more))
            try:
                return perform(opened_tables[0], change, options_of(self.case)), change
            finally:
                opened_tables[0].close()

        actor = Actor(ACTORS[number], run, self.store)
        if self.case.view == "stale":
            opened_tables.append(opened(self.case, actor.store, clock, 10 + number, more=more))
            opened_tables[0].read()
            opened_tables[0].writer().columns()
        return actor

    def _ended(self, actor: Actor, act: Act) -> None:
        if actor.error is not None:
            self._failed(actor, act, actor.error)
            return
        answer, change = actor.result
        end = "done"
        if isinstance(answer, ServiceRun):
            end = "done" if answer.executed else "preempted" if answer.skipped else "nothing to do"
        elif isinstance(answer, str):
            end = "done"  # a plan that is not executed yet
        elif answer is None:
            end = "nothing to do"
        else:
            self.done.append(_finished(change, answer))
            self.trace(f"{actor.name} {act}: {answer}")
            if isinstance(answer, WriteReport):
                self.result.rebases += answer.rebases
            if isinstance(answer, SavepointInfo):
                self.savepoints.add(answer.instant)
        self.result.ends[actor.name] = end

    def _failed(self, actor: Actor, act: Act, error: BaseException) -> None:
        self.result.ends[actor.name] = f"{type(error).__name__}"
        rolled_back = self.verbs & {"rollback", "restore", "recover"}
        if isinstance(error, Conflict) and (not act.writes or rolled_back):
            return
        if isinstance(error, NotFound) and act.verb in ("savepoint", "rollback", "restore"):
            return
        unseen = act.spot == "prt" or self.case.history == "empty"
        if isinstance(error, InvalidInput) and act.verb == "delete_partition" and unseen:
            return  # a missing partition is an error
        self._wrong(f"{actor.name} ({act}) failed with {type(error).__name__}: {error}")

    # -- readers --------------------------------------------------------------------------------

    def _poll(self, after: str) -> None:
        self.reader.refresh()
        until = self.reader.latest_completion or _BEFORE_ALL
        rows = self.reader.read().to_pylist()
        changed: list[Row] | None = []
        if until > self.since:
            changed = self._changes(self.since, until)
        self.polls.append(_Poll(after, self.since, until, rows, changed))
        self.trace(f"{after}: {until}")
        for shown in plain(rows):
            self.trace(f"    {shown}")
        self.since = max(until, self.since)

    def _changes(self, since: str, until: str) -> list[Row] | None:
        try:
            return list(self.reader.changes(since, until).to_pylist())
        except NotFound:
            if self.verbs & {"clean", "archive", "rollback", "restore"}:
                return None
            raise

    def _check_polls(self) -> None:
        finding = self.oracle.states(self.done)
        if any(each.rolls_back for each in self.done):
            states = [plain(State().found()), *(plain(state.found()) for _, state in finding)]
            for poll in self.polls:
                if plain(poll.rows) not in states:
                    self._wrong(f"after {poll.after} no state has these rows: {_shown(poll.rows)}")
            return
        for poll in self.polls:
            seen = [(done, state) for done, state in finding if done.at <= poll.until]
            state = seen[-1][1] if seen else State(columns=self.case.columns)
            self._compare(f"snapshot after {poll.after}", poll.rows, state.found())
            if poll.changed is None:
                continue
            within = [done.instant for done, _ in seen if done.at > poll.since]
            expected = state.written_by(within)
            self._compare(f"changes after {poll.after}", poll.changed, expected)

    def _check_now(self, when: str) -> None:
        # The default engine is used in some of the cases: it starts a thread each time.
        engine = LocalEngine(1) if self.case.end == "touch" else _INLINE
        table = opened(self.case, self.store, self.clock, 2, engine=engine)
        state = self.oracle.last(self.done)
        rows = table.read()
        self._compare(f"snapshot {when}", rows.to_pylist(), state.found())
        columns = {f.name: str(f.type) for f in rows.schema}
        if columns != dict(state.columns):
            self._wrong(f"columns {when}: {columns} instead of {dict(state.columns)}")
        if self.case.kind == "cow":
            best = table.read(read_optimized=True).to_pylist()
            self._compare(f"read-optimised {when}", best, state.found())
        table.close()

    def _check_past(self) -> None:
        """Read the table as of each remaining instant: it must be as after that write."""
        gone = {instant for each in self.done for instant in each.rolls_back}
        remaining = [
            e for e in self.done if not e.rolls_back and e.instant and e.instant not in gone
        ]
        # The last instant represents the whole history.
        for each in remaining[max(0, len(self.history) - 1) :]:
            try:
                rows = self.reader.read(as_of=each.instant).to_pylist()
            except (NotFound, InvalidInput):
                if self.verbs & {"clean", "archive"} and each.instant not in self.savepoints:
                    continue
                raise
            before = [other for other in remaining if other.at <= each.at]
            expected = self.oracle.replayed(before).found()
            self._compare(f"as of {each.change.verb} {each.instant}", rows, expected)

    def _check_savepoints(self) -> None:
        """Read the table as of its savepoints: no clean may have deleted a file of it."""
        if not self.savepoints:
            return
        table = opened(self.case, self.store, self.clock, 3)
        gone = {instant for each in self.done for instant in each.rolls_back}
        for found in (each for each in table.timeline if each.requested in self.savepoints):
            if found.is_completed and found.action.writes_data:
                before = [e for e in self.done if e.at <= found.completion and not e.rolls_back]
                left = self.oracle.replayed([e for e in before if e.instant not in gone])
                rows = table.read(as_of=found.requested).to_pylist()
                self._compare(f"savepoint of {found.requested}", rows, left.found())
        table.close()

    def _check_every_block(self) -> None:
        """Let a reader merge blocks that a log compaction replaced: the rows must be the same."""
        if "logcompact" not in self.verbs:
            return
        store = self.store.with_every_block(self.clock)
        table = opened(self.case, store, self.clock, 4)
        rows = table.read().to_pylist()
        self._compare("snapshot of every block", rows, self.oracle.last(self.done).found())
        table.close()

    def _check_by_rust(self) -> None:
        """Let hudi-rs read the table: current rows, and base files only."""
        if self.case.kind == "mor" and any(act.change == "wide" for act in self.case.acts):
            return  # it rejects log files with the narrower type
        if self.case.mode == "nbcc" and "archive" in self.verbs:
            return  # it does not read the archived history, which orders the log files
        expected = self.oracle.last(self.done)
        with TemporaryDirectory(prefix="tidelock-interleaving-") as folder:
            for key, body in self.store.objects().items():
                path = Path(folder, key)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body)
            rows = without_meta(HudiRs().snapshot(folder))
            self._compare("snapshot of hudi-rs", rows, expected.found())
            if self.case.kind == "cow":
                best = without_meta(HudiRs().read_optimized(folder))
                self._compare("read-optimised of hudi-rs", best, expected.found())

    def _touch(self) -> None:
        """Compact, then write every key of the table again, then delete them all."""
        if self.case.kind == "mor":
            self._final_write("compact", TableChange("compact"))
            table = opened(self.case, self.store, self.clock, 2)
            best = table.read(read_optimized=True).to_pylist()
            expected = self.oracle.last(self.done).found()
            pending = [e for e in table.timeline if not e.is_completed]
            if not pending:
                self._compare("read-optimised after a compaction", best, expected)
            for plan in (each for each in pending if each.action is Action.COMPACTION):
                self._wrong(f"plan {plan.requested} can no longer be executed")
        if self.case.index == "none":
            return
        keys = sorted({(r["region"], r["id"]) for r in self.oracle.last(self.done).found()})
        keys += [(act_row["region"], act_row["id"]) for act_row in self._all_rows()]
        places = list(dict.fromkeys(keys))
        rows = tuple(row(key, region, LAST_TIME, 900) for region, key in places)
        for change in (
            TableChange("upsert", rows),
            TableChange("delete_anywhere", keys=tuple(sorted({key for _, key in places}))),
        ):
            if rows and not self.result.wrong:
                self._final_write(change.verb, change)

    def _all_rows(self) -> list[Row]:
        numbers = range(len(self.case.acts))
        return [each for number in numbers for each in self.case.change(number).rows]

    def _final_write(self, name: str, change: TableChange) -> None:
        table = opened(self.case, self.store, self.clock, 50)
        answer = perform(table, change, options_of(self.case))
        if isinstance(answer, WriteReport):
            self.done.append(_finished(change, answer))
        table.close()
        self._check_now(f"after a last {name}")

    def _compare(self, what: str, found: Sequence[Row], expected: Sequence[Row]) -> None:
        finding = self._difference(what, found, expected)
        if finding:
            self._wrong(f"{what}: {finding}")

    def _difference(self, what: str, found: Sequence[Row], expected: Sequence[Row]) -> str:
        """Return how rows differ; "" if they do not.

        If blind inserts repeated a key, an upsert may leave one row or several.
        """
        more, less = plain(found), []
        for each in expected:
            shown = plain([each])[0]
            if shown in more:
                more.remove(shown)
            else:
                less.append(each)
        if less and self._repeats:
            seen = {_place(each) for each in found}
            repeated = self._repeated_places()
            less = [
                each
                for each in less
                if _place(each) not in repeated
                or not (what.startswith("changes") or _place(each) in seen)
            ]
        return f"too many {more}, missing {plain(less)}" if more or less else ""

    def _repeated_places(self) -> set[Place]:
        finding = self.oracle.states(self.done)
        return {p for _, state in finding for p, held in state.rows.items() if len(held) > 1}


def without_meta(rows: Iterable[Row]) -> list[Row]:
    """Return rows without Hudi's own columns."""
    return [{n: v for n, v in row.items() if n not in META_COLUMNS} for row in rows]


def _place(row: Row) -> Place:
    return row["region"], row["id"]


def _ignore(line: str) -> None:
    del line


def _shown(rows: Sequence[Row]) -> str:
    return ", ".join(plain(rows))
