"""Commits of writers without a ledger are imported into its order."""

from __future__ import annotations

import pytest

from tests.unit.txn.bench import PARTITION, Bench, draft, groups
from tidelock.core.errors import HoldingLost
from tidelock.hudi.timeline.metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat, encode
from tidelock.storage.contract import Create
from tidelock.txn.conflicts import Committed, Conflicted, Rebase
from tidelock.txn.entries import ExternalCommit
from tidelock.txn.external_writers import footprint_of
from tidelock.txn.footprint import CommitKind, schema_id_of

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
LOCK = {
    **OCC,
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    ),
    "tidelock.write.mixed": "true",
}


def java_commit(bench: Bench, requested: str, completion: str, *names: str) -> None:
    """Complete a commit the way Java does."""
    stats = tuple(
        WriteStat(file_id=name, path=f"{PARTITION}/{name}", prev_commit="20200101000000000")
        for name in names
    )
    body = encode(CommitMetadata({PARTITION: stats}, operation_type="UPSERT"))
    key = f".hoodie/timeline/{requested}_{completion}.commit"
    bench.store.put(key, body, Create())


def test_table_with_a_history_is_imported() -> None:
    bench = Bench(OCC)
    java_commit(bench, "20210101000000000", "20210101000000005", "a")
    java_commit(bench, "20210101000000001", "20210101000000003", "b")
    txns = bench.writer()
    state = txns.ledger.refresh()
    assert state.position == 2
    imported = [entry.fact for entry in txns.ledger.view.tail]
    assert all(isinstance(fact, ExternalCommit) for fact in imported)
    completions = [fact.completion for fact in imported if isinstance(fact, ExternalCommit)]
    assert completions == sorted(completions)
    assert bench.commit_one(txns, "a").instant > "20210101000000005"


def test_imported_table_is_imported_once() -> None:
    bench = Bench(OCC)
    java_commit(bench, "20210101000000000", "20210101000000005", "a")
    assert bench.writer().ledger.refresh().position == 1
    assert bench.writer().ledger.refresh().position == 1


def test_our_own_commits_are_not_external() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    bench.commit_one(txns, "a")
    assert txns.ledger.refresh(external=True).position == 1
    assert not bench.writer().ledger.refresh().external


def test_java_commit_to_the_same_group_conflicts() -> None:
    bench = Bench(OCC)
    txns = bench.writer(settings={**OCC, "tidelock.write.mixed": "true"})
    bench.commit_one(txns, "a")
    transaction = bench.begin(txns)
    java_commit(bench, "20990101000000000", "20990101000000001", "a")
    result = transaction.commit(draft(touched=("a",)))
    assert isinstance(result, Conflicted)
    assert isinstance(result.verdict, Rebase)
    assert result.verdict.groups == groups("a")
    again = bench.begin(txns)
    assert again.instant > "20990101000000001", "a version made of it is requested later"
    assert isinstance(again.commit(draft(touched=("a",))), Committed)


def test_clock_skew_is_waited_out_where_java_compares_times() -> None:
    bench = Bench(OCC)
    bench.commit_one(bench.writer(settings={**OCC, "tidelock.write.mixed": "true"}), "a")
    assert sum(bench.clock.slept_ms) >= 400
    alone = Bench(OCC)
    alone.commit_one(alone.writer(), "a")
    assert alone.clock.slept_ms == []


def test_commit_metadata_gives_the_footprint() -> None:
    metadata = ReplaceCommitMetadata(
        {
            "p": (
                WriteStat(file_id="new", path="p/new_0-1-0_1.parquet", prev_commit="null"),
                WriteStat(file_id="old", path="p/old_0-1-0_1.parquet", prev_commit="1"),
                WriteStat(
                    file_id="log", path="p/.log_1.log.1_0-1-0", prev_commit="1", num_inserts=3
                ),
            )
        },
        operation_type="INSERT_OVERWRITE",
        partition_to_replace_file_ids={"q": ("gone",)},
    )
    found = footprint_of(metadata)
    assert found.commit_kind is CommitKind.OVERWRITE
    assert found.created == {("p", "new")}
    assert found.based & found.touched == {("p", "old")}
    assert found.appended == {("p", "log")}
    assert found.replaced == {("q", "gone")}
    assert found.intents == frozenset({"p", "q"})
    assert found.inserts["p"].keys is None


def test_equal_schemas_in_different_notations_are_the_same() -> None:
    assert schema_id_of('{"a": 1, "b": 2}') == schema_id_of('{"b":2,"a":1}') != ""
    assert schema_id_of("") == ""


class Provider:
    """A lock that is lost when the test decides."""

    def __init__(self) -> None:
        """Start without the lock."""
        self.calls: list[str] = []
        self.lost = False
        self.token = 1

    def try_lock(self, wait_ms: float) -> bool:
        """Grant."""
        self.calls.append("lock")
        return True

    def unlock(self) -> None:
        """Release."""
        self.calls.append("unlock")

    def check(self) -> int:
        """Raise once lost."""
        self.calls.append("check")
        if self.lost:
            raise HoldingLost("lost")
        return self.token

    def close(self) -> None:
        """Nothing to close."""


def test_lock_is_held_around_begin_and_commit_and_checked() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    provider = Provider()
    txns.lock.provider = provider  # type: ignore[assignment]
    transaction = bench.begin(txns)
    assert provider.calls[0] == "lock"
    assert provider.calls[-1] == "unlock"
    assert "check" in provider.calls
    del provider.calls[:]
    assert isinstance(transaction.commit(draft(touched=("a",))), Committed)
    assert (provider.calls[0], provider.calls[-1]) == ("lock", "unlock")


def test_zombie_with_an_older_token_does_not_commit() -> None:
    """T9: tokens never decrease in the order of commits."""
    bench = Bench(OCC)
    each_txns = [bench.writer(), bench.writer()]
    providers = [Provider(), Provider()]
    for txns, provider in zip(each_txns, providers, strict=True):
        txns.lock.provider = provider  # type: ignore[assignment]
    zombie, other = (bench.begin(txns) for txns in each_txns)
    providers[1].token = 2
    assert isinstance(other.commit(draft(touched=("b",))), Committed)
    with pytest.raises(HoldingLost, match="the last token is 2"):
        zombie.commit(draft(touched=("a",)))
    providers[0].token = 3
    assert isinstance(zombie.commit(draft(touched=("a",))), Committed)


def test_lost_lock_stops_the_commit_before_it_is_decided() -> None:
    bench = Bench(OCC)
    txns = bench.writer()
    provider = Provider()
    txns.lock.provider = provider  # type: ignore[assignment]
    transaction = bench.begin(txns)
    provider.lost = True
    with pytest.raises(HoldingLost):
        transaction.commit(draft(touched=("a",)))
    assert provider.calls[-1] == "unlock"
    assert bench.completed() == ()
    provider.lost = False
    assert isinstance(transaction.commit(draft(touched=("a",))), Committed)
