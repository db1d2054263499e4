"""The terminal, lent to the command that is run, so that it can be typed at and suspended."""

from __future__ import annotations

import os
import signal


class Terminal:
    """The controlling terminal on standard input, if this process is in its foreground."""

    def __init__(self) -> None:
        """Look whether there is one to lend."""
        try:
            self._ours = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            self._ours = False

    def give_to(self, group: int) -> None:
        """Put the process group `group` into the foreground."""
        if self._ours and _set_foreground(group):
            # It may have reached for the terminal before it had it, and been stopped for that.
            os.killpg(group, signal.SIGCONT)

    def take_back(self) -> None:
        """Put this process's group into the foreground again."""
        if self._ours:
            _set_foreground(os.getpgrp())

    def suspend_with(self, status: int) -> bool:
        """After the command was stopped: suspend this process too, if a person did that.

        Returns, once continued, whether the command must be continued as well.
        """
        if not self._ours or os.WSTOPSIG(status) not in (signal.SIGTSTP, signal.SIGTTIN):
            return False
        self.take_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        return True


def _set_foreground(group: int) -> bool:
    # A background process that sets the foreground is sent TTOU, which would stop it.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(0, group)
    except (OSError, ProcessLookupError):
        return False
    finally:
        signal.signal(signal.SIGTTOU, before)
    return True
