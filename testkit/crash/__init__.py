"""Crash tests: SIGKILL at every storage request and write system call of local store and lock.

A victim is a real process that is killed. The replies it received, and the request it was sending,
determine what an inspector process may find afterwards: the old object or the new one, byte for
byte.
"""

from testkit.crash.harness import Harness, Report
from testkit.crash.strace import Injection, Strace, StraceUnavailable, find_strace

__all__ = ["Harness", "Injection", "Report", "Strace", "StraceUnavailable", "find_strace"]
