"""The model checker as a fixture."""

from __future__ import annotations

import os

import pytest

from testkit.tlc import Tlc, find_tlc
from tidelock.core.errors import MissingExtra


@pytest.fixture(scope="session")
def tlc() -> Tlc:
    """Return the model checker; skip if there is none, and fail in continuous integration."""
    try:
        return find_tlc()
    except MissingExtra as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
