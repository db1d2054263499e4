"""Options of the data source."""

from __future__ import annotations

from tidelock.cli.config import load_catalogue
from tidelock.core.config import find, known_names
from tidelock.spark.options import canonical_options


def test_case_of_every_known_key_is_restored() -> None:
    load_catalogue()
    known = known_names()
    assert any(name != name.lower() for name in known)
    restored = canonical_options({name.lower(): "1" for name in known})
    assert set(restored) == known
    assert [name for name in restored if find(name) is None] == []


def test_unknown_name_is_passed_on_as_given() -> None:
    assert canonical_options({"Other": "1"}) == {"Other": "1"}
