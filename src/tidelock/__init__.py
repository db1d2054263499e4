"""Many writers on one lakehouse table, safely, with nothing to run but the storage itself."""

from tidelock.base.errors import TidelockError
from tidelock.lock.adriver import AsyncLock
from tidelock.lock.driver import Lock
from tidelock.lock.opening import lock
from tidelock.lock.state import Standing

__all__ = ["AsyncLock", "Lock", "Standing", "TidelockError", "lock"]
