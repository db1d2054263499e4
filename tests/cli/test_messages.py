"""The common error messages match the snapshot in `messages.txt`."""

from __future__ import annotations

import pytest

from tests.cli.messages import CASES, recorded, shown

_HINT = "if the new wording is intended, run: python -m tests.cli.messages"


def test_snapshot_has_at_least_fifty_messages() -> None:
    assert len(CASES) >= 50
    assert list(recorded()) == list(CASES), _HINT


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_message_matches_the_snapshot(name: str) -> None:
    assert shown(CASES[name]) == recorded()[name], _HINT
