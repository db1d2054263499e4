"""Transaction settings: Hudi's names and refusals."""

from __future__ import annotations

import pytest

from tests.unit.txn.bench import Bench
from tidelock.core.errors import ConfigInvalid, Unsupported
from tidelock.hudi.properties import (
    METADATA_PARTITIONS,
    TableType,
    load_properties,
    new_properties,
    update_properties,
)
from tidelock.storage.contract import Create
from tidelock.txn.config import ConcurrencyMode, FailedWrites, TxnSettings
from tidelock.txn.conflicts import ConflictStrategy

MODE = "hoodie.write.concurrency.mode"
POLICY = "hoodie.clean.failed.writes.policy"
STRATEGY = "hoodie.write.lock.conflict.resolution.strategy"
EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"


def test_defaults_are_those_of_hudi() -> None:
    read = TxnSettings.read({})
    assert (read.mode, read.failed_writes) == (ConcurrencyMode.SINGLE_WRITER, FailedWrites.EAGER)
    assert (read.heartbeat_interval_ms, read.heartbeat_misses) == (60_000, 10)
    assert read.strategy is ConflictStrategy.SOLVE


@pytest.mark.parametrize("mode", [ConcurrencyMode.OPTIMISTIC, ConcurrencyMode.NON_BLOCKING])
def test_multi_writer_mode_is_lazy_and_refuses_eager(mode: ConcurrencyMode) -> None:
    assert TxnSettings.read({MODE: mode}).failed_writes is FailedWrites.LAZY
    assert TxnSettings.read({MODE: mode.lower()}).mode is mode
    with pytest.raises(ConfigInvalid, match="EAGER"):
        TxnSettings.read({MODE: mode, POLICY: "EAGER"})
    with pytest.raises(ConfigInvalid):
        TxnSettings.read({MODE: mode, "hoodie.cleaner.policy.failed.writes": "EAGER"})


def test_early_detection_needs_optimistic_concurrency_control() -> None:
    assert TxnSettings.read({MODE: ConcurrencyMode.OPTIMISTIC, EARLY: "true"}).early_detection
    for mode in (ConcurrencyMode.SINGLE_WRITER, ConcurrencyMode.NON_BLOCKING):
        with pytest.raises(ConfigInvalid, match="OPTIMISTIC"):
            TxnSettings.read({MODE: mode, EARLY: "true"})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (MODE, "PESSIMISTIC"),
        (POLICY, "SOMETIMES"),
        (STRATEGY, "com.example.OurStrategy"),
        ("hoodie.client.heartbeat.interval_in_ms", "10"),
        ("hoodie.client.heartbeat.interval_in_ms", "often"),
        ("tidelock.metadata.table.policy", "ignore"),
    ],
)
def test_invalid_settings_are_refused(setting: str, value: str) -> None:
    with pytest.raises(ConfigInvalid):
        TxnSettings.read({setting: value})


def test_non_blocking_needs_a_merge_on_read_table_with_simple_buckets() -> None:
    settings = TxnSettings.read({MODE: ConcurrencyMode.NON_BLOCKING})
    mor = new_properties("t", record_keys=["id"], table_type=TableType.MERGE_ON_READ)
    cow = new_properties("t", record_keys=["id"])
    settings.check_table(mor, simple_buckets=True)
    for properties, simple in ((cow, True), (mor, False)):
        with pytest.raises(ConfigInvalid, match="MERGE_ON_READ"):
            settings.check_table(properties, simple_buckets=simple)
    TxnSettings.read({MODE: ConcurrencyMode.OPTIMISTIC}).check_table(cow, simple_buckets=False)


def test_table_with_a_metadata_table_is_refused_or_freed_of_it() -> None:
    bench = Bench()
    update_properties(bench.store, {METADATA_PARTITIONS: "files"}, policy=bench.policy)
    bench.store.put(".hoodie/metadata/files/x", b"", Create())
    with pytest.raises(Unsupported, match=r"tidelock\.metadata\.table\.policy=disable"):
        bench.begin(bench.writer())
    assert bench.pending() == ()
    bench.begin(bench.writer(settings={"tidelock.metadata.table.policy": "disable"}))
    assert not load_properties(bench.store).has_metadata_table
    assert bench.keys(".hoodie/metadata/") == []
