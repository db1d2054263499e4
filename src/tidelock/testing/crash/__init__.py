"""kill -9 around every effect and every write-class system call of the local store and the lock.

A victim is a real process that dies of a real SIGKILL. What it had been told before, and what it
was about to do, bounds what a newcomer may find: the old object or the new one, byte for byte.
"""

from tidelock.testing.crash.harness import Harness, Report
from tidelock.testing.crash.strace import Injection, Strace, StraceUnavailable, find_strace

__all__ = ["Harness", "Injection", "Report", "Strace", "StraceUnavailable", "find_strace"]
