"""Runs one command and kills it when the test process ends.

It runs as a script, with the command as its arguments and a pipe from the test process as its
standard input. The pipe closes when the test process ends for any reason, including SIGKILL, and
then the command is killed. A parent-death signal is bound to the *thread* that started the child,
and test processes have several; the warden has only one, so it can use the signal.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> int:
    """Run the command until it ends, the pipe closes or SIGTERM arrives; return its exit code."""
    libc = ctypes.CDLL(None)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)

    def die_with_warden() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    # The command gets an empty standard input: only the warden uses the pipe.
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_warden,  # noqa: PLW1509
    )
    while child.poll() is None:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready and signal.SIGTERM not in os.read(wake_read, 64) and 0 not in ready:
            continue
        # The data of a test server is discarded, so it needs no orderly shutdown.
        child.kill()
        child.wait()
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
