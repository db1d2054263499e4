"""What the profile of a goal that is missed shows, and what would be needed; by the goal."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.lake import COMMITS

_AGED = """\
**Queries after changes.** Five upserts add 1 % of the rows, and to each file a second row group of
what they inserted, which every query opens; joining it to the first costs encoding all columns, and
is left until it is a quarter as large. In small tables queries of a few tenths of a second also
differ by more than that from one run to the next.
"""
WHY: Mapping[str, str] = {
    **{
        f"queries after 5 rounds of changes, {name}": _AGED
        for system, name in SYSTEMS.items()
        if system.startswith("tidelock")
    },
    "copy-on-write upsert of 10 % on Spark": """\
**Copy-on-write upserts.** Every file group is decoded and compared with the changes, and of its
columns those are encoded again in which some row changed; the others are copied. The limit decodes
and encodes everything, but looks up no keys, has no columns of Hudi's, flushes nothing to disk and
commits nothing. Less would need the old values of changed rows alone, which a Parquet file without
page indexes does not give.
""",
    "merge-on-read upsert of 1 % on Spark": """\
**Merge-on-read upserts.** The batch is read, and 16 log files are encoded as Avro, flushed to disk
and named in a commit, on two cores. Fewer and larger file groups make it shorter.
""",
    "bulk load on Spark": """\
**Bulk loads on Spark.** Rows are hashed, moved to their buckets and written with Hudi's five
columns, none of which Spark's own writer does.
""",
    "bulk load without Spark": """\
**Bulk loads without Spark.** All files are written side by side, a column at a time, so beside the
input no more than a column is in memory. Beside reading the input, over half of the CPU time of a
load into 16 buckets is encoding (22 columns where delta-rs has 17; the key as text and the sequence
number of each row are the larger ones), an eighth is moving rows to their buckets, which delta-rs
leaves where they are, and a twentieth is hashing keys.
""",
    "upsert of 1 % without Spark": """\
**Upserts of 1 % into copy-on-write tables.** Random keys touch every row group, so the whole table
is decoded, here as in delta-rs; what is saved is encoding columns that did not change. A delete
saves nothing: where a row goes, every column is encoded again. Three times as fast is who does not
read the table: merge-on-read, below.
""",
    f"snapshot read after {COMMITS} upserts": """\
**Reading many log files.** Base files are decoded by Arrow in Python workers and carried to Spark,
which native Parquet need not be; the log blocks themselves, decoded together, are a third of the
kernel's time. A compaction ends it. A native reader of log files would have to be a jar.
""",
    "16 appenders on a local disk": """\
**Many writers.** A commit here is a data file, an entry in the ledger and the files of a timeline
that Hudi's readers know; data file, entry and completed instant are flushed to disk, the bytes and
the name of each. Lance writes a data file and a manifest, and flushes neither: `strace` finds no
`fsync` in fifty of its appends. Profiled in one process that appends as if among others, on a
disk in memory, 28 % of the CPU time is the data file, 23 % the commit, 20 % cleaning and archiving
the timeline after one commit in twenty, 11 % the announcement and 10 % placing the rows; reading
what others append comes on top. Committing for several writers at once would need a process
that all of them talk to.
""",
    "8 appenders on S3": """\
**Writers on S3.** Eight appenders send 34 requests for a batch, where a lone one has 11 in a row. 7
read what the others appended, an entry each; 3 find the ledger's end, and 4 ask whether its
checkpoint is still the same; 4 archive a commit, one to read it and one for each of its files; one
entry in three is refused and made again. Both cores are busy with them, client and server. Less
would need entries that carry those before them, or deleting many objects by one request.
""",
    "4 upserters of the same keys": """\
**Writers of the same keys.** An upsert that was overtaken merges again on what the other wrote, and
commits then; and each commit takes what the paragraph on many writers says.
""",
}
