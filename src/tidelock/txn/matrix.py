"""The conflict matrix as a page of the documentation. Pure."""

from __future__ import annotations

from typing import Final

from tidelock.txn.conflict import RULES, Then, rules_for
from tidelock.txn.footprint import Deed

_HEAD: Final = """# Which commits get in each other's way

Generated from the rules in the code by `make docs`.

Two transactions commute if neither determines what the other determines or depends on: file
groups written, created, appended to or replaced; buckets, keys and partitions whose absence was
relied on; the schema; the plan that is executed. Of two that do not commute, the later one in the
ledger must have read the earlier one's result and have the later request time, because Hudi's
readers order the versions of a file group, the log files of a slice and the table's schemas by
request time. A writer has not read what was committed since it read the table, so every overlap
with such a commit is a conflict: the write is made again under a new instant, or gives way if it
is a table service. The rules below follow from what each kind of commit can do; the exceptions
stand at the end, each with its proof.

A row is the operation that wants to commit, a column one that was committed
since the row's writer read the table. An empty cell: nothing is looked at, both stand. Otherwise
the cell names what is looked for; nothing found, and both stand.

"""

EXCEPTIONS: Final = """
## Exceptions

- **A log file after a compaction stands.** A compaction keeps every row, and readers put a log
  file into the slice by its completion time. The log completes after the compaction was
  requested, so it lies on top of the compacted base file.
- **A base file after a compaction or log compaction with an earlier request time stands.** It was
  merged from the files that the service rewrote, so it has the same rows, and its later request
  time puts it above the result. (A merged log block that completed after that request time would
  lie on top of it: that is `log`.)
- **A compaction after log files stands.** They completed after its plan, so they lie on top of
  its result.
- **Log files of two non-blocking writers stand when the later commit has the later request.**
  Neither has read the file group, and readers apply the log files of a slice in the order of
  request times, which then is the order of the ledger, for equal ordering values and deletes too.
  In the other order the files are compared: where no key is in both, or the ordering values of
  every common key differ, the order does not matter. Otherwise the later commit is written again.
  So are rows after a delete of the same key without an ordering value, which may be older than the
  row that it deleted: in a log file they would bring that row back. A commit says whether it
  deletes, whatever its operation, and its files are compared if it does.
- **An overwrite lists file groups that came meanwhile instead of being written again.** Its rows
  depend on nothing that was there. A replaced file group is hidden from every reader of a
  snapshot from the completion on, whichever request time is the later. With a bucket index an
  overwrite writes the buckets themselves, and is written again.
- **Plain inserts into file groups of their own stand beside each other.** They depend on no key.
  A keyed write after one looks its keys up in the new files, and is written again only if one is
  there (`key`). Where the ledger does not name new keys, they are compared in the files as well.
  A write that appends to log files compares its keys with all new ones: it may have found a key
  where only the base file still holds it.
- **Clean, archive and roll-backs of what never completed stand beside everything.** They remove
  only what no snapshot shows. No savepoint, restore or roll-back of a commit comes between the plan
  of a clean and its end: the ledger takes none while the plan is pending, and no plan that was made
  before one of them. What a clean deletes is gone when it is judged, so giving way to somebody
  without a ledger would save nothing, and leave its plan for ever.
- **A table service that was claimed after a restore or roll-back of a commit stands.** What it was
  planned on completed before its plan, and what was taken back completed later, or the plan would
  have gone with it. No claim comes between such a decision and its end, so everything else has been
  read after that.
"""
"""Where an overlap is no conflict, and why. The interleaving tests check each against an oracle."""

_THEN: Final = {
    Then.REBASE: "the file groups are written again on top of the other commit",
    Then.RERUN: "the statement runs again on the table as it is",
    Then.REPLAN: "the list of replaced file groups is made again; the data stands",
    Then.YIELD: "the table service gives way",
    Then.REFUSE: "refused",
}


def matrix_page() -> str:
    """Return the matrix and what its words mean."""
    deeds = tuple(Deed)
    lines = [_HEAD]
    lines.append("| commits \\ committed | " + " | ".join(deeds) + " |\n")
    lines.append("|---" * (len(deeds) + 1) + "|\n")
    for mine in deeds:
        cells = (" ".join(f"`{rule.word}`" for rule in rules_for(mine, other)) for other in deeds)
        lines.append(f"| {mine} | " + " | ".join(cells) + " |\n")
    lines.append("\n| word | what is looked for | what follows |\n|---|---|---|\n")
    by_word = {rule.word: rule for rule in RULES}
    lines += [
        f"| `{word}` | {rule.sentence} | {_THEN[rule.then]} |\n" for word, rule in by_word.items()
    ]
    lines.append(EXCEPTIONS)
    return "".join(lines)
