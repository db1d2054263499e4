"""Interleavings that failed once, each as the line that replays it."""

from __future__ import annotations

import pytest

from testkit.interleaving.cases import parsed
from testkit.interleaving.runner import run_case

LINES = (
    # A key that a log file deleted is still in the base file: compaction, inserts, upserts.
    "mor simple event single logs fresh | compact upsert:gone upsert:gone | a>claim b a c | touch",
    "mor bloom event single logs fresh | compact upsert:gone upsert:gone | a>claim b a c | touch",
    "mor simple event single logs fresh | bulk_insert:gone upsert:gone | a b",
    "mor simple event single logs fresh | insert:gone upsert:gone | a b | touch",
    "mor simple event single logs fresh | insert_new:gone | a",
    "mor bucket event single logs fresh | insert_new:gone | a",
    "mor bucket event nbcc logs fresh | insert_new:gone | a",
    "mor simple event single logs fresh | rewrite:gone insert:gone | b",
    "mor simple event single logs fresh | insert_new:gone delete_anywhere:gone | b>begun",
    "mor bloom event single logs fresh | insert_new:gone upsert:gone | b>begun",
    "mor simple event single logs fresh | upsert:gone compact upsert:gone | a>begun b c a",
    "mor simple event single logs fresh | delete:gone compact upsert:gone | a>begun b c a",
    # Two non-blocking writers insert a key that neither found.
    "mor bucket event nbcc empty fresh | insert_new:prt insert_new:prt | a>commit b",
    # An archive runs while commits are rolled back, and a reader reads.
    "cow simple event single logs fresh | rollback archive | a>claim b",
    # A plan that precedes a rolled back commit is still executed.
    "mor simple event single plan fresh | upsert:prt rollback | a b | touch",
    "mor simple event single plan fresh | upsert:prt execute rollback | a c b | touch",
    # A key that a log file deleted is written with an earlier event time, and hudi-rs reads.
    "mor simple late single logs fresh | upsert:gone | a | rust",
    "mor bucket late single logs fresh | insert:gone | a | rust",
    "mor bucket late nbcc logs fresh | upsert:old delete:old | b>begun a>begun b a | rust",
    "mor bucket late nbcc plan fresh | upsert:gone | a | rust",
    # A read as of an overwrite that conflicted: its rows without those that it replaced.
    "cow simple event single base fresh | insert_overwrite:old insert_overwrite:old | a>commit b",
    "cow none tie occ base fresh | insert_overwrite:old insert_overwrite_table:old | a>commit b",
    # Overwrites of buckets concurrent with a compaction.
    "mor bucket event single logs fresh | insert_overwrite:old compact | a>begun b a",
    "mor bucket event single logs fresh | insert_overwrite_table:old compact | a>begun b a",
    "mor bucket event single logs fresh | delete_partition:old compact | a>begun b a",
    # Two writers create one bucket.
    "cow bucket event single base fresh | insert_overwrite:bkt- upsert:bkt- | a>begun b a",
    "mor bucket event single base fresh | insert_overwrite:bkt- insert:bkt- | a>commit b a",
    "cow bucket event occ base fresh | insert_overwrite:prt- bulk_insert:prt- | a>begun b a",
    "mor bucket tie occ plan fresh | insert_overwrite:prt- insert_overwrite:prt | a>commit b a",
    # Non-blocking blind writes, and equal ordering values.
    "mor bucket event nbcc base stale | bulk_insert:bkt upsert:bkt | b a",
    "mor bucket event nbcc base fresh | bulk_insert:bkt upsert:bkt | a>placed b a",
    "mor bucket event nbcc base fresh | bulk_insert:bkt- bulk_insert:bkt- | a>begun b a",
    "mor bucket tie nbcc base fresh | upsert:old upsert:old | a>begun b a",
    "mor bucket commit nbcc plan fresh | delete:bkt insert:bkt | b>begun a>placed b a",
    # Deletes of keys whose partition or bucket did not exist.
    "cow simple event single base fresh | delete_anywhere:prt upsert:prt | a>begun b a",
    "mor bloom commit occ empty stale | delete_anywhere:new insert:new | a>placed b>decided a b",
    "cow bucket event single base fresh | delete:bkt upsert:bkt | a>placed b a",
    "mor bucket event single base fresh | delete:bkt insert:bkt | a>begun b a",
    "cow bucket tie single base fresh | soft:bkt upsert:bkt | a>begun b a",
    "mor bucket commit single base fresh | erase:bkt bulk_insert:bkt | a>begun b a",
    # A column that is added or widened concurrently with a writer that does not know it.
    "cow simple event single base fresh | upsert+col:new insert:prt | a>begun b a | touch",
    "cow simple event single base fresh | insert+wide:new delete:old | a>commit b a | touch",
    "mor simple event single logs fresh | upsert+wide:new logcompact | a>commit b a | touch",
    "mor simple event single logs fresh | insert+wide:new compact | a>commit b a",
    "mor none event occ over fresh | bulk_insert+wide:old insert_overwrite:old | a>commit b a",
)


@pytest.mark.parametrize("line", LINES)
def test_the_table_is_the_serial_result_in_ledger_order(line: str) -> None:
    outcome = run_case(parsed(line))
    assert not outcome.wrong, "\n".join(outcome.wrong)
