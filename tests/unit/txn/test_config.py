"""Settings: Hudi's names and refusals."""

from __future__ import annotations

import pytest

from tests.unit.txn.bench import Bench
from tidelock.base.errors import ConfigInvalid, Unsupported
from tidelock.store.contract import Create
from tidelock.table.properties import METADATA_PARTITIONS, TableType, new_properties
from tidelock.table.properties_file import load_properties, update_properties
from tidelock.txn.config import FailedWrites, Mode, TxnSettings
from tidelock.txn.strategy import Strategy

MODE = "hoodie.write.concurrency.mode"
POLICY = "hoodie.clean.failed.writes.policy"
STRATEGY = "hoodie.write.lock.conflict.resolution.strategy"
EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"


def test_defaults_are_hudi_s() -> None:
    read = TxnSettings.read({})
    assert (read.mode, read.failed_writes) == (Mode.SINGLE_WRITER, FailedWrites.EAGER)
    assert (read.heartbeat_interval_ms, read.heartbeat_misses) == (60_000, 10)
    assert read.strategy is Strategy.SOLVE


@pytest.mark.parametrize("mode", [Mode.OPTIMISTIC, Mode.NON_BLOCKING])
def test_several_writers_are_lazy_and_refuse_to_be_eager(mode: Mode) -> None:
    assert TxnSettings.read({MODE: mode}).failed_writes is FailedWrites.LAZY
    assert TxnSettings.read({MODE: mode.lower()}).mode is mode
    with pytest.raises(ConfigInvalid, match="EAGER"):
        TxnSettings.read({MODE: mode, POLICY: "EAGER"})
    with pytest.raises(ConfigInvalid):
        TxnSettings.read({MODE: mode, "hoodie.cleaner.policy.failed.writes": "EAGER"})


def test_early_detection_needs_optimistic_concurrency_control() -> None:
    assert TxnSettings.read({MODE: Mode.OPTIMISTIC, EARLY: "true"}).early_detection
    for mode in (Mode.SINGLE_WRITER, Mode.NON_BLOCKING):
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
def test_what_cannot_be_is_refused(setting: str, value: str) -> None:
    with pytest.raises(ConfigInvalid):
        TxnSettings.read({setting: value})


def test_non_blocking_needs_a_merge_on_read_table_with_simple_buckets() -> None:
    settings = TxnSettings.read({MODE: Mode.NON_BLOCKING})
    mor = new_properties("t", record_keys=["id"], table_type=TableType.MERGE_ON_READ)
    cow = new_properties("t", record_keys=["id"])
    settings.check_table(mor, simple_buckets=True)
    for properties, simple in ((cow, True), (mor, False)):
        with pytest.raises(ConfigInvalid, match="MERGE_ON_READ"):
            settings.check_table(properties, simple_buckets=simple)
    TxnSettings.read({MODE: Mode.OPTIMISTIC}).check_table(cow, simple_buckets=False)


def test_a_table_with_a_metadata_table_is_refused_or_freed_of_it() -> None:
    bench = Bench()
    update_properties(bench.store, {METADATA_PARTITIONS: "files"}, patience=bench.patience)
    bench.store.put(".hoodie/metadata/files/x", b"", Create())
    with pytest.raises(Unsupported, match=r"tidelock\.metadata\.table\.policy=disable"):
        bench.begin(bench.writer())
    assert bench.pending() == ()
    bench.begin(bench.writer(settings={"tidelock.metadata.table.policy": "disable"}))
    assert not load_properties(bench.store).has_metadata_table
    assert bench.keys(".hoodie/metadata/") == []
