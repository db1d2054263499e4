"""Hypothesis on the ledger's pure parts: codecs accept or say `DataCorrupt`; folds agree."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.base.errors import DataCorrupt
from tidelock.table.timeline.instant import Action, format_time
from tidelock.txn import checkpoint as checkpoints
from tidelock.txn.checkpoint import Checkpoint
from tidelock.txn.conflict import judge
from tidelock.txn.content import Inline, Stored
from tidelock.txn.entry import (
    Adopt,
    Boundary,
    Claim,
    Commit,
    Entry,
    Fact,
    Foreign,
    Plan,
    Release,
    Rollback,
    Turn,
    Undo,
    decode,
    encode,
)
from tidelock.txn.fold import Fold, lawful
from tidelock.txn.footprint import Deed, Footprint, NewKeys
from tidelock.txn.grown import Grown
from tidelock.txn.mark import Mark
from tidelock.txn.rules import Candidate, Past
from tidelock.txn.verdict import Fine

MANY = settings(max_examples=100, deadline=None)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
wholes = st.integers(0, 2**63 - 1)
times = st.integers(0, 10**13).map(format_time)
few_times = st.integers(0, 20).map(format_time)
group_sets = st.frozensets(st.tuples(st.sampled_from("pq"), st.sampled_from("abc")), max_size=4)
marks = st.builds(
    Mark,
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
        deed=draw(st.sampled_from(Deed)),
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
    """Return facts about instants."""
    actions = st.sampled_from(Action)
    contents = st.builds(Inline, st.binary(max_size=20)) | st.builds(Stored, texts, texts, wholes)
    return st.one_of(
        st.builds(Plan, actions, group_sets, contents, st.booleans()),
        st.builds(Adopt, instants, actions, group_sets, st.booleans()),
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
            st.none() | marks,
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
            Foreign,
            instants,
            actions,
            instants,
            footprints(),
            texts,
            st.lists(instants, max_size=2, unique=True).map(tuple),
            st.lists(instants, max_size=2, unique=True).map(tuple),
        ),
        st.builds(Boundary, st.integers(0, 30), st.just("") | instants, st.just("") | instants),
        st.builds(Turn, instants, group_sets, st.frozensets(texts, max_size=2)),
        st.builds(
            Undo,
            actions,
            st.lists(instants, min_size=1, max_size=3, unique=True).map(tuple),
            contents,
            st.booleans(),
            st.booleans(),
            texts,
        ),
        st.builds(Release, instants),
    )


entries = st.builds(Entry, wholes, times, texts, texts, texts, wholes, facts(times))


@MANY
@given(entries)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert decode(encode(entry), where="here") == entry


@MANY
@given(entries, st.dictionaries(texts.map("x-".__add__), st.none() | st.booleans() | texts))
def test_fields_that_nobody_knows_change_nothing(entry: Entry, more: dict[str, object]) -> None:
    body = json.dumps({**json.loads(encode(entry)), **more}).encode()
    assert decode(body, where="here") == entry


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@MANY
@given(entries, st.data())
def test_a_spoilt_entry_is_read_or_said_to_be_corrupt(entry: Entry, data: st.DataObject) -> None:
    fields = json.loads(encode(entry))
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(json_values)
    with suppress(DataCorrupt):
        decode(json.dumps(fields).encode(), where="here")


@MANY
@given(st.binary(max_size=60) | entries.map(encode).map(lambda body: body[: len(body) // 2]))
def test_no_bytes_crash_the_decoders(body: bytes) -> None:
    with suppress(DataCorrupt):
        decode(body, where="here")
    with suppress(DataCorrupt):
        checkpoints.decode(body, where="here")


@st.composite
def ledgers(draw: st.DrawFn) -> list[Entry]:
    """Return a lawful ledger about a handful of instants."""
    fold, found = Fold(), list[Entry]()
    for drawn in draw(st.lists(facts(few_times), max_size=15)):
        fact = drawn
        time = format_time(1_000 + fold.position)
        if isinstance(fact, Claim | Rollback) and fold.plans and draw(st.booleans()):
            plan = draw(st.sampled_from(sorted(fold.plans)))
            fact = Claim(plan, fold.plans[plan].attempt + 1)
        if lawful(fact, fold, owner="me") is not None:
            continue
        entry = Entry(fold.position + 1, time, "me", f"n{len(found)}", fold.nonce, 0, fact)
        found.append(entry)
        fold = fold.after(entry)
    return found


def folded(ledger: list[Entry], fold: Fold | None = None) -> Fold:
    """Fold a ledger."""
    fold = fold or Fold()
    for entry in ledger:
        fold = fold.after(entry)
    return fold


def plain(fold: Fold) -> tuple[object, ...]:
    """Return a fold for comparison: sets may be cut into other chunks."""
    return (
        fold.position,
        fold.time,
        fold.nonce,
        sorted(fold.committed),
        sorted(fold.void),
        dict(fold.plans),
        fold.turns,
        fold.boundary,
        fold.archived,
        fold.schema_id,
        fold.token,
        fold.foreign,
        list(fold.marks.items()),
    )


@MANY
@given(ledgers(), st.integers(0, 25))
def test_a_checkpoint_anywhere_gives_the_same_fold(ledger: list[Entry], at: int) -> None:
    middle = folded(ledger[:at])
    body = checkpoints.encode(Checkpoint(middle, "nonce"))
    restored = checkpoints.decode(body, where="here").fold
    assert plain(restored) == plain(middle)
    assert plain(folded(ledger[at:], restored)) == plain(folded(ledger))


@MANY
@given(ledgers())
def test_an_instant_has_one_fate(ledger: list[Entry]) -> None:
    committed, void = set[str](), set[str]()
    for entry in ledger:
        match entry.fact:
            case Commit(instant, action) if action is not Action.SAVEPOINT:
                assert instant not in committed
                committed.add(instant)
            case Foreign(instant):
                assert instant not in committed
                committed.add(instant)
            case Rollback(instant, attempt=None):
                assert instant not in void
                assert instant not in committed
                void.add(instant)
            case _:
                pass
    ours = {e.fact.instant for e in ledger if isinstance(e.fact, Commit)}
    kept = {e.fact.instant for e in ledger if isinstance(e.fact, Foreign)}
    assert not void & (ours - kept)


@MANY
@given(ledgers())
def test_no_batch_of_an_application_is_committed_twice_or_out_of_order(
    ledger: list[Entry],
) -> None:
    """T15. A savepoint is no write, and its mark is none."""
    committed: dict[str, list[int]] = {}
    for entry in ledger:
        match entry.fact:
            case Commit(mark=Mark() as mark, action=action) if action is not Action.SAVEPOINT:
                committed.setdefault(mark.application, []).append(mark.version)
            case _:
                pass
    for versions in committed.values():
        assert versions == sorted(set(versions))


@MANY
@given(ledgers())
def test_no_file_group_is_in_two_pending_plans(ledger: list[Entry]) -> None:
    fold = Fold()
    for entry in ledger:
        fold = fold.after(entry)
        targets = [group for plan in fold.plans.values() for group in plan.targets]
        assert len(targets) == len(set(targets))


@MANY
@given(st.lists(st.integers(0, 400).map(str), max_size=200), st.integers(0, 400).map(str))
def test_a_grown_set_is_a_set(added: list[str], other: str) -> None:
    grown, earlier = Grown(), list[tuple[Grown, int]]()
    for text in added:
        grown = grown.add(text)
        earlier.append((grown, len(grown)))
    assert set(grown) == set(added)
    assert len(grown) == len(set(added))
    assert (other in grown) == (other in added)
    assert all(len(before) == size for before, size in earlier), "it shares, and never changes"


def test_an_entry_that_does_not_say_whether_it_deletes_may_have_deleted() -> None:
    logs = frozenset({("p", "a")})
    appended = Footprint(Deed.UPSERT, touched=logs, appended=logs)
    based = Footprint(Deed.UPSERT, touched=logs)
    for footprint in (appended, based):
        fact = Foreign(format_time(1), Action.DELTA_COMMIT, format_time(2), footprint)
        body = json.loads(encode(Entry(1, format_time(3), "me", "n", "", 0, fact)))
        body["footprint"].pop("deletes", None)
        read = decode(json.dumps(body).encode(), where="an entry").fact
        assert isinstance(read, Foreign)
        assert read.footprint.deletes == (footprint is appended)


@MANY
@given(footprints(), footprints())
def test_what_has_nothing_in_common_never_meets(mine: Footprint, other: Footprint) -> None:
    """G12, with every partition of the other one renamed."""

    def away(groups: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        return frozenset((f"far/{partition}", file_id) for partition, file_id in groups)

    services = (Deed.RESTORE, Deed.SAVEPOINT, Deed.CLEAN, Deed.READ_WRITE)
    if mine.deed in services or other.deed in services or other.everything:
        return
    if mine.intents is None:
        return
    moved = Footprint(
        other.deed,
        away(other.touched),
        away(other.appended),
        away(other.created),
        away(other.replaced),
        frozenset(),
        {f"far/{p}": new for p, new in other.inserts.items()},
        other.nonblocking,
        other.bucketed,
    )
    past = Past(1, "20260101000000000", "20260101000000001", moved)
    assert judge(Candidate("20260101000000002", mine), [past]) == Fine()
