"""A minimal lock provider as a user would write one, with only the documented protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tidelock.core.errors import HoldingLost
from tidelock.core.telemetry import Metrics
from tidelock.lock.provider import Features, Holder
from tidelock.lock.state import Standing


class FolderLock:
    """A lock whose holder is the process that created a folder."""

    def __init__(
        self, settings: Mapping[str, object], metrics: Metrics | None, *, bind_thread: bool
    ) -> None:
        del metrics, bind_thread
        name = str(settings.get("tidelock.lock.resource") or settings["hoodie.table.name"])
        self.folder = Path(str(settings["tidelock.lock.provider.folder"])) / name
        self.held = False

    def features(self) -> Features:
        return Features(force_release=True)

    def try_lock(self, wait_ms: float) -> bool:
        del wait_ms
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            return self.held
        (self.folder / "owner").write_text(str(os.getpid()))
        self.held = True
        return True

    def unlock(self) -> None:
        if self.held:
            self.held = False
            self.force_release()

    def check(self) -> int:
        if not self.held or not self.folder.exists():
            raise HoldingLost("the folder is gone")
        return 0

    @property
    def state(self) -> Standing:
        return Standing.HELD if self.held else Standing.FREE

    def on_lost(self, callback: Callable[[str], None]) -> None:
        del callback

    def holder(self) -> Holder | None:
        owner = self.folder / "owner"
        return Holder(owner.read_text()) if owner.exists() else None

    def force_release(self) -> bool:
        if not self.folder.exists():
            return False
        (self.folder / "owner").unlink(missing_ok=True)
        self.folder.rmdir()
        return True

    def close(self) -> None:
        self.unlock()


class HalfALock:
    """Not a provider: it lacks most of the protocol, and accepts no settings."""

    def try_lock(self, wait_ms: float) -> bool:
        return wait_ms > 0
