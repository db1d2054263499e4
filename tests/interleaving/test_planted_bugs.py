"""Each rule of conflict that is taken away makes an interleaving wrong, which is right with it.

A case for a rule is the plainest that was found by running drawn cases without the rule. For the
rules that are not here no such case was found.
"""

from __future__ import annotations

import pytest

from tidelock.testing.interleaving.cases import parsed
from tidelock.testing.interleaving.runner import run_case
from tidelock.txn import conflict
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
    "yield-base": "mor bucket event single logs fresh | compact bulk_insert:old | a>claim b a",
    "yield": "cow simple event single base fresh | cluster upsert:old | a>claim b a",
}


@pytest.mark.parametrize("word", PLANTED)
def test_a_rule_that_is_taken_away_is_missed(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = parsed(PLANTED[word])
    assert run_case(case).wrong == []
    assert word in {rule.word for rule in conflict.RULES}
    every = conflict.rules_for

    def without(mine: Deed, other: Deed) -> tuple[Rule, ...]:
        return tuple(rule for rule in every(mine, other) if rule.word != word)

    monkeypatch.setattr(conflict, "rules_for", without)
    assert run_case(case).wrong != []
