"""Without each conflict rule an interleaving fails that passes with it.

The case of a rule is the simplest that was found by running drawn cases without the rule. The same
is tested for checks that are not rules: index lookups in log files, and of duplicate keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from testkit.interleaving.cases import parsed
from testkit.interleaving.runner import run_case
from tidelock.hudi.file_groups import FileSlice
from tidelock.operations.file_view import TableView
from tidelock.operations.write import TableWriter
from tidelock.txn import conflicts
from tidelock.txn.conflicts import Rule
from tidelock.txn.footprint import CommitKind

PLANTED = {
    "group": "cow simple event single base fresh | upsert:old upsert:old | a>begun b a",
    "gone": "cow simple event single base fresh | upsert:old insert_overwrite:old | a>placed b a",
    "key": "cow simple event single base fresh | upsert:prt upsert:prt | a>begun b a",
    "found": "cow simple event single base fresh | insert_new:old delete:old | a>begun b a",
    "read": "cow simple commit single base fresh | rewrite:new insert:prt | a>begun b a",
    "schema": "cow simple event single base fresh | upsert+col:new insert:prt | a>begun b a",
    "replan": "cow simple event single empty fresh"
    " | insert_overwrite_table:new insert_overwrite_table:new | a>placed b a",
    "base": "mor bucket event single logs fresh | bulk_insert:old compact | a>begun b a",
    # Readers that support log compactions skip replaced blocks; the others merge them as well.
    "log": "mor simple commit single logs fresh | upsert:old logcompact | a>begun b a",
    "preempt-log": "mor simple commit single logs fresh"
    " | logcompact upsert:old | b>begun a>claim b a",
    "preempt-base": "mor bucket event single logs fresh | compact bulk_insert:old | a>claim b a",
    "preempt": "cow simple event single base fresh | cluster upsert:old | a>claim b a",
    "preempt-schema": "mor simple event single logs fresh"
    " | compact upsert+col:prt | b>begun a>commit b a",
    "restored": "cow simple event single over fresh | upsert:old rollback | b>undo a>commit b a",
    # The compacted file has the column type that was rolled back.
    "preempt-restored": "mor simple event single plan fresh"
    " | upsert+wide:prt execute rollback | a b>writing c b",
    # A savepoint of a commit whose files are deleted before it completes.
    "refused": "cow simple event single base fresh | savepoint upsert:old clean | a>commit b c a",
}


AGAIN = (
    # The same rules for other operations, which once had wrong rows.
    ("base", "mor bucket event single logs fresh | insert_overwrite:old compact | a>begun b a"),
    (
        "group",
        "cow bucket event single base fresh | insert_overwrite:bkt- upsert:bkt- | a>begun b a",
    ),
    ("group", "mor bucket event nbcc base fresh | bulk_insert:bkt- bulk_insert:bkt- | a>begun b a"),
    ("group", "cow bucket event single base fresh | delete:bkt upsert:bkt | a>placed b a"),
    ("key", "cow simple event single base fresh | delete_anywhere:prt upsert:prt | a>begun b a"),
)


def test_every_rule_is_planted() -> None:
    assert set(PLANTED) == {rule.word for rule in conflicts.RULES}


@pytest.mark.parametrize(("word", "line"), [*PLANTED.items(), *AGAIN])
def test_without_a_rule_its_case_fails(
    word: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = parsed(line)
    assert run_case(case).wrong == []
    every = conflicts.rules_for

    def without(mine: CommitKind, other: CommitKind) -> tuple[Rule, ...]:
        return tuple(rule for rule in every(mine, other) if rule.word != word)

    monkeypatch.setattr(conflicts, "rules_for", without)
    assert run_case(case).wrong != []


@pytest.mark.parametrize("index", ["simple", "bloom"])
def test_an_index_that_reads_only_base_files_is_detected(
    index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = parsed(f"mor {index} event single plan fresh | upsert:gone execute upsert:gone | a b c")
    assert run_case(case).wrong == []

    def bases(view: TableView, pieces: Iterable[FileSlice]) -> tuple[FileSlice, ...]:
        del view
        return tuple(piece if piece.base is None else replace(piece, logs=()) for piece in pieces)

    monkeypatch.setattr(TableView, "searched", bases)
    assert run_case(case).wrong != []


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_missing_checks_for_duplicate_keys_are_detected(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = parsed(f"cow simple event single base fresh | {verb}:old insert:old | a>begun b a")
    assert run_case(case).wrong == []
    with monkeypatch.context() as unchecked:
        unchecked.setattr(conflicts, "_copies", lambda *_: [])
        assert run_case(case).wrong != []
    monkeypatch.setattr(TableWriter, "_keys_were_inserted", lambda *_: False)
    assert run_case(case).wrong != []
