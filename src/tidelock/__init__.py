"""Many writers on one lakehouse table, safely, with nothing to run but the storage itself."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

from tidelock.core.errors import TidelockError
from tidelock.lock.alerts import Alert, AlertKind, on_alert
from tidelock.lock.async_client import AsyncLock
from tidelock.lock.client import Lock, lock
from tidelock.lock.state import Standing

if TYPE_CHECKING:
    from tidelock.lock.server.async_client import AsyncLockClient
    from tidelock.lock.server.client import ServiceLockProvider
    from tidelock.spark.session import enable, sql
    from tidelock.table import Table
    from tidelock.txn.app_transactions import AppTransaction

    Mark = AppTransaction  # deprecated, as in `_DEPRECATED`

__all__ = [
    "Alert",
    "AlertKind",
    "AppTransaction",
    "AsyncLock",
    "AsyncLockClient",
    "Lock",
    "ServiceLockProvider",
    "Standing",
    "Table",
    "TidelockError",
    "enable",
    "lock",
    "on_alert",
    "sql",
]

# Loaded on first use: a program that only locks does not import Arrow.
_ON_DEMAND = {
    "AppTransaction": "tidelock.txn.app_transactions",
    "AsyncLockClient": "tidelock.lock.server.async_client",
    "ServiceLockProvider": "tidelock.lock.server.client",
    "Table": "tidelock.table",
    "enable": "tidelock.spark.session",
    "sql": "tidelock.spark.session",
}

# Old public names, kept for one minor release.
_DEPRECATED = {"Mark": "AppTransaction"}


# Hidden from type checkers, which would otherwise accept any attribute of the package.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        if name in _DEPRECATED:
            current = _DEPRECATED[name]
            warnings.warn(
                f"tidelock.{name} is deprecated and will be removed in the next minor release;"
                f" use tidelock.{current}",
                DeprecationWarning,
                stacklevel=2,
            )
            name = current
        if name not in _ON_DEMAND:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_ON_DEMAND[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
