"""Many writers on one lakehouse table, safely, with nothing to run but the storage itself."""

from importlib import import_module
from typing import TYPE_CHECKING

from tidelock.base.errors import TidelockError
from tidelock.lock.adriver import AsyncLock
from tidelock.lock.driver import Lock
from tidelock.lock.opening import lock
from tidelock.lock.state import Standing

if TYPE_CHECKING:
    from tidelock.operation.table import Table

__all__ = ["AsyncLock", "Lock", "Standing", "Table", "TidelockError", "lock"]

# Who only locks does not pay for Arrow.
_ON_DEMAND = {"Table": "tidelock.operation.table"}


# Hidden from type checkers, to whom it would say that the package has every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a name when it is first asked for."""
        if name not in _ON_DEMAND:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_ON_DEMAND[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
