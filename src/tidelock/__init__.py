"""Many writers on one lakehouse table, safely, with nothing to run but the storage itself."""

from importlib import import_module
from typing import TYPE_CHECKING

from tidelock.base.errors import TidelockError
from tidelock.lock.adriver import AsyncLock
from tidelock.lock.alerting import Alert, AlertKind, on_alert
from tidelock.lock.driver import Lock
from tidelock.lock.opening import lock
from tidelock.lock.state import Standing

if TYPE_CHECKING:
    from tidelock.lockservice.aclient import AsyncLockClient
    from tidelock.lockservice.client import ServiceLockProvider
    from tidelock.pipeline.datasource.hook import enable
    from tidelock.pipeline.sql.session import sql
    from tidelock.tableservice.table import Table
    from tidelock.txn.mark import Mark

__all__ = [
    "Alert",
    "AlertKind",
    "AsyncLock",
    "AsyncLockClient",
    "Lock",
    "Mark",
    "ServiceLockProvider",
    "Standing",
    "Table",
    "TidelockError",
    "enable",
    "lock",
    "on_alert",
    "sql",
]

# Who only locks does not pay for Arrow.
_ON_DEMAND = {
    "AsyncLockClient": "tidelock.lockservice.aclient",
    "Mark": "tidelock.txn.mark",
    "ServiceLockProvider": "tidelock.lockservice.client",
    "Table": "tidelock.tableservice.table",
    "enable": "tidelock.pipeline.datasource.hook",
    "sql": "tidelock.pipeline.sql.session",
}


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
