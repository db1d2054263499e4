"""Each rule of conflict that is taken away makes an interleaving wrong, which is right with it.

A case for a rule is the plainest that was found by running drawn cases without the rule. The same
holds for looks at files that are no rules: of the index, and of writes for copies of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tidelock.operation.view import TableView
from tidelock.operation.writer import TableWriter
from tidelock.table.filegroup.slice import FileSlice
from tidelock.testing.interleaving.cases import parsed
from tidelock.testing.interleaving.runner import run_case
from tidelock.txn import conflict, rules
from tidelock.txn.conflict import Rule
from tidelock.txn.footprint import Deed

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
    # Readers that know log compactions skip what they replaced; those that do not merge it too.
    "log": "mor simple commit single logs fresh | upsert:old logcompact | a>begun b a",
    "yield-log": "mor simple commit single logs fresh"
    " | logcompact upsert:old | b>begun a>claim b a",
    "yield-base": "mor bucket event single logs fresh | compact bulk_insert:old | a>claim b a",
    "yield": "cow simple event single base fresh | cluster upsert:old | a>claim b a",
    "yield-schema": "mor simple event single logs fresh"
    " | compact upsert+col:prt | b>begun a>commit b a",
    "restored": "cow simple event single over fresh | upsert:old rollback | b>undo a>commit b a",
    # The type that was taken back is that of the compacted file.
    "give-way": "mor simple event single plan fresh"
    " | upsert+wide:prt execute rollback | a b>writing c b",
    # A savepoint of a commit whose files are deleted before it is there.
    "refused": "cow simple event single base fresh | savepoint upsert:old clean | a>commit b c a",
}


AGAIN = (
    # The same rules for other operations, where wrong rows were found once.
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
    assert set(PLANTED) == {rule.word for rule in conflict.RULES}


@pytest.mark.parametrize(("word", "line"), [*PLANTED.items(), *AGAIN])
def test_a_rule_that_is_taken_away_is_missed(
    word: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = parsed(line)
    assert run_case(case).wrong == []
    every = conflict.rules_for

    def without(mine: Deed, other: Deed) -> tuple[Rule, ...]:
        return tuple(rule for rule in every(mine, other) if rule.word != word)

    monkeypatch.setattr(conflict, "rules_for", without)
    assert run_case(case).wrong != []


@pytest.mark.parametrize("index", ["simple", "bloom"])
def test_an_index_that_looks_only_into_base_files_is_found(
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
def test_copies_of_keys_that_are_not_looked_for_are_found(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = parsed(f"cow simple event single base fresh | {verb}:old insert:old | a>begun b a")
    assert run_case(case).wrong == []
    with monkeypatch.context() as unasked:
        unasked.setattr(rules, "_copies", lambda *_: [])
        assert run_case(case).wrong != []
    monkeypatch.setattr(TableWriter, "_has_copies", lambda *_: False)
    assert run_case(case).wrong != []
