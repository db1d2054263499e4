"""Explanations of missed goals, from profiles, with possible improvements."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.lake import COMMITS

_AGED = """\
**Queries after changes.** Five upserts insert 1 % of the rows, and so add a second row group to
each file, which every query opens. Merging it with the first would encode all columns again, and
happens only once it is a quarter as large. In small tables, queries of a few tenths of a second
vary by more than that from run to run.
"""
WHY: Mapping[str, str] = {
    **{
        f"queries after 5 rounds of changes, {name}": _AGED
        for system, name in SYSTEMS.items()
        if system.startswith("tidelock")
    },
    "copy-on-write upsert of 10 % on Spark": """\
**Copy-on-write upserts.** Every file group is decoded and compared with the changes; columns in
which some row changed are encoded again, the others are copied. The limit decodes and encodes
everything, but looks up no keys, has no meta columns, flushes nothing to disk and commits nothing.
A faster upsert would read only the old values of changed rows, which a Parquet file without page
indexes does not allow.
""",
    "merge-on-read upsert of 1 % on Spark": """\
**Merge-on-read upserts.** The batch is read, and 16 log files are encoded as Avro, flushed to disk
and committed, on two cores. Fewer and larger file groups make it faster.
""",
    "bulk load on Spark": """\
**Bulk loads on Spark.** Rows are hashed, shuffled to their buckets and written with Hudi's five
meta columns; Spark's own writer does none of this.
""",
    "bulk load without Spark": """\
**Bulk loads without Spark.** All files are written in parallel, one column at a time, so no more
than one column is in memory besides the input. Apart from reading the input, over half of the CPU
time of a load into 16 buckets is encoding (22 columns where delta-rs has 17; the key as text and
the sequence number of each row are the larger ones), an eighth is moving rows to their buckets,
which delta-rs does not do, and a twentieth is hashing keys.
""",
    "upsert of 1 % without Spark": """\
**Upserts of 1 % into copy-on-write tables.** Random keys touch every row group, so the whole table
is decoded, here as in delta-rs; only the encoding of unchanged columns is saved. A delete saves
nothing, because removing a row encodes every column again. Merge-on-read (below) does not read the
table and is more than three times as fast.
""",
    f"snapshot read after {COMMITS} upserts": """\
**Reading many log files.** Base files are decoded by Arrow in Python workers and transferred to
Spark, which native Parquet avoids; decoding the log blocks is a third of the time of the merge. A
compaction removes the cost. A native reader of log files would have to be a JAR.
""",
    "16 appenders on a local disk": """\
**Many writers.** A commit is a data file, a ledger entry and the timeline files that Hudi's
readers need; data file, entry and completed instant are flushed to disk, with content and name.
Lance writes a data file and a manifest, and flushes neither: `strace` finds no `fsync` in fifty of
its appends. In a profile of one process on a disk in memory, 28 % of the CPU time is the data
file, 23 % the commit, 20 % cleaning and archiving after one commit in twenty, 11 % beginning the
write and 10 % assigning rows to files; reading the commits of others comes on top. Committing for
several writers at once would need a process that all of them talk to.
""",
    "8 appenders on S3": """\
**Writers on S3.** Eight appenders send 34 requests per batch, a single one 11 in sequence. 7 read
the entries of the others; 3 find the end of the ledger, and 4 check that its checkpoint is
unchanged; 4 archive a commit, one to read it and one for each of its files; one entry in three is
refused and created again. Client and server keep both cores busy. Fewer requests would need
entries that contain their predecessors, or batch deletes.
""",
    "4 upserters of the same keys": """\
**Writers of the same keys.** An upsert that conflicts is merged again with the new rows before it
commits; each commit has the costs described under "Many writers".
""",
}
