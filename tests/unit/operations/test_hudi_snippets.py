"""The properties printed on Hudi's page about concurrency control work unchanged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tidelock.core.javaproperties import parse_properties
from tidelock.lock.client import reject_unknown_keys
from tidelock.lock.config import PROVIDER, LockSettings
from tidelock.lock.providers.registry import HUDI
from tidelock.operations.config import check_options
from tidelock.txn.config import ConcurrencyMode, FailedWrites, TxnSettings

ROWS = pa.table({"uuid": ["a", "b"], "partitionpath": ["x", "y"], "ts": [1, 2]})

IN_PROCESS = """
hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.InProcessLockProvider
"""
STORAGE = """
hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.StorageBasedLockProvider
"""
STORAGE_TUNED = (
    STORAGE
    + """
hoodie.write.lock.storage.validity.timeout.secs = 300
hoodie.write.lock.storage.renew.interval.secs = 30
"""
)
ZOOKEEPER = """
hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider
hoodie.write.lock.zookeeper.base_path=/test
hoodie.write.lock.zookeeper.port=2181
hoodie.write.lock.zookeeper.url=zookeeper
"""
HIVE = """
hoodie.write.lock.provider=org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider
hoodie.write.lock.hivemetastore.database=lake
hoodie.write.lock.hivemetastore.table=orders
hoodie.write.lock.zookeeper.url=zookeeper
hoodie.write.lock.zookeeper.port=2181
"""
DYNAMODB = """
hoodie.write.lock.provider=org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider
hoodie.write.lock.dynamodb.endpoint_url=http://localhost:8000
hoodie.aws.access.key=key
hoodie.aws.secret.key=secret
hoodie.aws.session.token=token
"""
FILESYSTEM = """
hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider
"""
MULTI_WRITER = """
hoodie.write.concurrency.mode=optimistic_concurrency_control
hoodie.write.lock.provider=<lock-provider-classname>
hoodie.cleaner.policy.failed.writes=LAZY
"""
SINGLE_WRITER = """
hoodie.write.concurrency.mode=single_writer
hoodie.cleaner.policy.failed.writes=EAGER
"""
LOCK_RETRIES = """
hoodie.write.lock.wait_time_ms=60000
hoodie.write.lock.num_retries=15
hoodie.write.lock.client.wait_time_ms=5000
hoodie.write.lock.client.num_retries=50
"""
EARLY = """
hoodie.write.concurrency.mode=optimistic_concurrency_control
hoodie.write.concurrency.early.conflict.detection.enable=true
hoodie.cleaner.policy.failed.writes=LAZY
"""
EVERY = (STORAGE_TUNED, ZOOKEEPER, HIVE, DYNAMODB, FILESYSTEM, IN_PROCESS)


@pytest.mark.parametrize("printed", EVERY)
def test_properties_of_each_provider_select_it(printed: str) -> None:
    given = parse_properties(printed)
    reject_unknown_keys(given)
    check_options(given)
    LockSettings.read(given)
    assert PROVIDER.required(given) in HUDI


@pytest.mark.parametrize("printed", [IN_PROCESS, STORAGE, STORAGE_TUNED, FILESYSTEM])
def test_multi_writer_mode_works_with_a_provider_that_needs_no_server(
    printed: str, tmp_path: Path
) -> None:
    provider = parse_properties(printed)[PROVIDER.key]
    multi = MULTI_WRITER.replace("<lock-provider-classname>", provider)
    given = parse_properties(printed + multi + LOCK_RETRIES)
    settings = TxnSettings.read(given)
    assert (settings.mode, settings.failed_writes) == (
        ConcurrencyMode.OPTIMISTIC,
        FailedWrites.LAZY,
    )
    uri = f"file://{tmp_path}/orders"
    with (
        tl.Table.create(uri, ROWS.schema, key="uuid", ordering="ts", options=given) as one,
        tl.Table.open(uri, options=given) as other,
    ):
        one.upsert(ROWS)
        other.upsert(ROWS)
        other.refresh()
        assert other.read().num_rows == 2


@pytest.mark.parametrize("printed", [LOCK_RETRIES, EARLY, SINGLE_WRITER])
def test_other_properties_of_the_page_are_accepted(printed: str) -> None:
    given = parse_properties(printed)
    reject_unknown_keys(given)
    with tl.Table.create(
        f"memory://page-{len(printed)}", ROWS.schema, key="uuid", options=given
    ) as table:
        table.upsert(ROWS)
        assert table.read().num_rows == 2
