"""Hypothesis on the ledger's pure parts: codecs accept or raise `DataCorrupt`; states agree."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.core.errors import DataCorrupt
from tidelock.hudi.timeline.instant import Action, format_time
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.app_transactions import AppTransaction
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.conflicts import NoConflict, PendingTxn, check_conflicts
from tidelock.txn.entries import (
    Boundary,
    Claim,
    Commit,
    ExternalCommit,
    Fact,
    ImportPlan,
    InlineContent,
    LedgerEntry,
    Plan,
    PlanRollback,
    PriorityTicket,
    ReleaseSavepoint,
    Rollback,
    StoredContent,
    decode,
    encode,
)
from tidelock.txn.footprint import CommitKind, Footprint, NewKeys
from tidelock.txn.state import CommittedTxn, LedgerState, PersistentSet, validate_entry

MANY = settings(max_examples=100, deadline=None)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
wholes = st.integers(0, 2**63 - 1)
times = st.integers(0, 10**13).map(format_time)
few_times = st.integers(0, 20).map(format_time)
group_sets = st.frozensets(st.tuples(st.sampled_from("pq"), st.sampled_from("abc")), max_size=4)
app_transactions = st.builds(
    AppTransaction,
    st.sampled_from(["orders", "clicks", "\u00fc"]),
    st.integers(0, 6) | wholes,
    texts | st.dictionaries(texts, texts, max_size=2),
)
keys = st.none() | st.frozensets(st.sampled_from("klm"), max_size=3)


@st.composite
def footprints(draw: st.DrawFn) -> Footprint:
    """Return any footprint whose appended groups are among those touched."""
    touched = draw(group_sets)
    appended = frozenset(group for group in touched if draw(st.booleans()))
    return Footprint(
        commit_kind=draw(st.sampled_from(CommitKind)),
        touched=touched,
        appended=appended,
        created=draw(group_sets),
        replaced=draw(group_sets),
        intents=draw(st.none() | st.frozensets(st.sampled_from("pq"))),
        inserts=draw(
            st.dictionaries(
                st.sampled_from("pq"),
                st.builds(NewKeys, keys, st.lists(texts, max_size=2).map(tuple)),
            )
        ),
        nonblocking=draw(st.booleans()),
        bucketed=draw(st.booleans()),
        everything=draw(st.booleans()),
        deletes=bool(appended) and draw(st.booleans()),
    )


def facts(instants: st.SearchStrategy[str]) -> st.SearchStrategy[Fact]:
    """Return properties of instants."""
    actions = st.sampled_from(Action)
    contents = st.builds(InlineContent, st.binary(max_size=20)) | st.builds(
        StoredContent, texts, texts, wholes
    )
    return st.one_of(
        st.builds(Plan, actions, group_sets, contents, st.booleans()),
        st.builds(ImportPlan, instants, actions, group_sets, st.booleans()),
        st.builds(Claim, instants, st.integers(1, 4)),
        st.builds(
            Commit,
            instants,
            actions,
            st.integers(1, 4),
            footprints(),
            contents,
            texts,
            wholes,
            wholes,
            st.integers(0, 3),
            st.none() | app_transactions,
            st.integers(0, 2),
            st.dictionaries(texts, st.none(), max_size=2),
        ),
        st.builds(
            Rollback,
            instants,
            texts,
            st.none() | st.integers(1, 4),
            st.lists(instants, max_size=2).map(tuple),
            group_sets,
        ),
        st.builds(
            ExternalCommit,
            instants,
            actions,
            instants,
            footprints(),
            texts,
            st.lists(instants, max_size=2, unique=True).map(tuple),
            st.lists(instants, max_size=2, unique=True).map(tuple),
        ),
        st.builds(Boundary, st.integers(0, 30), st.just("") | instants, st.just("") | instants),
        st.builds(PriorityTicket, instants, group_sets, st.frozensets(texts, max_size=2)),
        st.builds(
            PlanRollback,
            actions,
            st.lists(instants, min_size=1, max_size=3, unique=True).map(tuple),
            contents,
            st.booleans(),
            st.booleans(),
            texts,
        ),
        st.builds(ReleaseSavepoint, instants),
    )


entries = st.builds(LedgerEntry, wholes, times, texts, texts, texts, wholes, facts(times))


@MANY
@given(entries)
def test_entry_round_trips(entry: LedgerEntry) -> None:
    assert decode(encode(entry), where="here") == entry


@MANY
@given(entries, st.dictionaries(texts.map("x-".__add__), st.none() | st.booleans() | texts))
def test_unknown_fields_change_nothing(entry: LedgerEntry, more: dict[str, object]) -> None:
    body = json.dumps({**json.loads(encode(entry)), **more}).encode()
    assert decode(body, where="here") == entry


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@MANY
@given(entries, st.data())
def test_damaged_entry_is_read_or_reported_corrupt(entry: LedgerEntry, data: st.DataObject) -> None:
    fields = json.loads(encode(entry))
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(json_values)
    with suppress(DataCorrupt):
        assert isinstance(decode(json.dumps(fields).encode(), where="here"), LedgerEntry)


@MANY
@given(st.binary(max_size=60) | entries.map(encode).map(lambda body: body[: len(body) // 2]))
def test_no_bytes_crash_the_decoders(body: bytes) -> None:
    with suppress(DataCorrupt):
        assert isinstance(decode(body, where="here"), LedgerEntry)
    with suppress(DataCorrupt):
        checkpoints.decode_checkpoint(body, where="here")


@st.composite
def ledgers(draw: st.DrawFn) -> list[LedgerEntry]:
    """Return a valid ledger with a handful of instants."""
    state, found = LedgerState(), list[LedgerEntry]()
    for drawn in draw(st.lists(facts(few_times), max_size=15)):
        fact = drawn
        time = format_time(1_000 + state.position)
        if isinstance(fact, Claim | Rollback) and state.plans and draw(st.booleans()):
            plan = draw(st.sampled_from(sorted(state.plans)))
            fact = Claim(plan, state.plans[plan].attempt + 1)
        if validate_entry(fact, state, owner="me") is not None:
            continue
        entry = LedgerEntry(state.position + 1, time, "me", f"n{len(found)}", state.nonce, 0, fact)
        found.append(entry)
        state = state.after(entry)
    return found


def state_of(ledger: list[LedgerEntry], state: LedgerState | None = None) -> LedgerState:
    """Return the state of a ledger."""
    state = state or LedgerState()
    for entry in ledger:
        state = state.after(entry)
    return state


def plain(state: LedgerState) -> tuple[object, ...]:
    """Return a state for comparison: sets may be split into other chunks."""
    return (
        state.position,
        state.time,
        state.nonce,
        sorted(state.committed),
        sorted(state.aborted),
        dict(state.plans),
        state.tickets,
        state.boundary,
        state.archived,
        state.schema_id,
        state.token,
        state.external,
        list(state.app_transactions.items()),
    )


@MANY
@given(ledgers(), st.integers(0, 25))
def test_checkpoint_at_any_position_gives_the_same_state(
    ledger: list[LedgerEntry], at: int
) -> None:
    middle = state_of(ledger[:at])
    body = checkpoints.encode(Checkpoint(middle, "nonce"))
    restored = checkpoints.decode_checkpoint(body, where="here").state
    assert plain(restored) == plain(middle)
    assert plain(state_of(ledger[at:], restored)) == plain(state_of(ledger))


@MANY
@given(ledgers())
def test_instant_has_one_outcome(ledger: list[LedgerEntry]) -> None:
    committed, aborted = set[str](), set[str]()
    for entry in ledger:
        match entry.fact:
            case Commit(instant, action) if action is not Action.SAVEPOINT:
                assert instant not in committed
                committed.add(instant)
            case ExternalCommit(instant):
                assert instant not in committed
                committed.add(instant)
            case Rollback(instant, attempt=None):
                assert instant not in aborted
                assert instant not in committed
                aborted.add(instant)
            case _:
                pass
    ours = {e.fact.instant for e in ledger if isinstance(e.fact, Commit)}
    kept = {e.fact.instant for e in ledger if isinstance(e.fact, ExternalCommit)}
    assert not aborted & (ours - kept)


@MANY
@given(ledgers())
def test_no_batch_of_an_application_is_committed_twice_or_out_of_order(
    ledger: list[LedgerEntry],
) -> None:
    """T15. A savepoint is not a write, and its application transaction does not count."""
    committed: dict[str, list[int]] = {}
    for entry in ledger:
        match entry.fact:
            case Commit(app_transaction=AppTransaction() as app_transaction, action=action) if (
                action is not Action.SAVEPOINT
            ):
                committed.setdefault(app_transaction.app_id, []).append(app_transaction.version)
            case _:
                pass
    for versions in committed.values():
        assert versions == sorted(set(versions))


@MANY
@given(ledgers())
def test_no_file_group_is_in_two_pending_plans(ledger: list[LedgerEntry]) -> None:
    state = LedgerState()
    for entry in ledger:
        state = state.after(entry)
        targets = [group for plan in state.plans.values() for group in plan.targets]
        assert len(targets) == len(set(targets))


@MANY
@given(st.lists(st.integers(0, 400).map(str), max_size=200), st.integers(0, 400).map(str))
def test_persistent_set_behaves_like_a_set(added: list[str], other: str) -> None:
    grown, earlier = PersistentSet(), list[tuple[PersistentSet, int]]()
    for text in added:
        grown = grown.add(text)
        earlier.append((grown, len(grown)))
    assert set(grown) == set(added)
    assert len(grown) == len(set(added))
    assert (other in grown) == (other in added)
    assert all(len(before) == size for before, size in earlier), "it shares, and never changes"


def test_entry_without_a_delete_flag_may_have_deleted() -> None:
    logs = frozenset({("p", "a")})
    appended = Footprint(CommitKind.UPSERT, touched=logs, appended=logs)
    based = Footprint(CommitKind.UPSERT, touched=logs)
    for footprint in (appended, based):
        fact = ExternalCommit(format_time(1), Action.DELTA_COMMIT, format_time(2), footprint)
        body = json.loads(encode(LedgerEntry(1, format_time(3), "me", "n", "", 0, fact)))
        body["footprint"].pop("deletes", None)
        read = decode(json.dumps(body).encode(), where="an entry").fact
        assert isinstance(read, ExternalCommit)
        assert read.footprint.deletes == (footprint is appended)


@MANY
@given(footprints(), footprints())
def test_disjoint_writes_never_conflict(mine: Footprint, other: Footprint) -> None:
    """G12, with every partition of the other write renamed."""

    def renamed(groups: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        return frozenset((f"far/{partition}", file_id) for partition, file_id in groups)

    services = (CommitKind.RESTORE, CommitKind.SAVEPOINT, CommitKind.CLEAN, CommitKind.READ_WRITE)
    if mine.commit_kind in services or other.commit_kind in services or other.everything:
        return
    if mine.intents is None:
        return
    moved = Footprint(
        other.commit_kind,
        renamed(other.touched),
        renamed(other.appended),
        renamed(other.created),
        renamed(other.replaced),
        frozenset(),
        {f"far/{p}": new for p, new in other.inserts.items()},
        other.nonblocking,
        other.bucketed,
    )
    past = CommittedTxn(1, "20260101000000000", "20260101000000001", moved)
    assert check_conflicts(PendingTxn("20260101000000002", mine), [past]) == NoConflict()
