"""Whether a timeline is lawful, by the names of its files alone. Pure.

An action is requested, then inflight, then complete, once. Its completion comes after its request
and is no other action's: readers cut the history at completion times, so two that are equal could
not be told apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidelock.base.errors import InvalidInput
from tidelock.ops.validate.findings import Finding, problem, warning
from tidelock.store.contract import ObjectMeta
from tidelock.table.timeline.instant import Action, Instant, State, parse_instant, parse_time

CHECK = "timeline"


@dataclass(frozen=True, slots=True)
class TimelineFile:
    """A file in the timeline's folder; `instant` is None where the name is no instant's."""

    key: str
    size_bytes: int
    instant: Instant | None
    modified_epoch_ms: int | None = None


def timeline_file(meta: ObjectMeta) -> TimelineFile:
    """Return what a file of the timeline's folder is."""
    instant = parse_instant(meta.key.rpartition("/")[2])
    return TimelineFile(meta.key, meta.size_bytes, instant, meta.modified_epoch_ms)


def check_timeline(files: Sequence[TimelineFile]) -> Iterator[Finding]:
    """Yield what is wrong with the timeline."""
    for file in files:
        yield from _check_file(file)
    known = [(file, file.instant) for file in files if file.instant is not None]
    yield from _check_actions(known)
    yield from _check_completions(known)


def _check_file(file: TimelineFile) -> Iterator[Finding]:
    instant = file.instant
    if instant is None:
        # Hadoop's checksums of local files lie beside them.
        if not file.key.endswith(".crc"):
            yield warning(
                CHECK,
                file.key,
                "it is no instant; readers pass over it",
                "delete it once you know who left it",
            )
        return
    if not _is_time(instant.requested):
        yield problem(
            CHECK, file.key, f"{instant.requested} is no time", "remove or rename the instant"
        )
    if not instant.is_completed:
        return
    if file.size_bytes == 0:
        yield problem(
            CHECK,
            file.key,
            "a completed instant of zero bytes: nobody knows what it changed, and some readers"
            " refuse the whole table",
            "restore it from a copy",
        )
    if not instant.completion:
        yield warning(
            CHECK,
            file.key,
            "it has no completion time in its name, as old versions wrote it; readers take the"
            " time of the file, which a copy of the table changes",
            "upgrade the table with Apache Hudi",
        )
    elif not _is_time(instant.completion):
        yield problem(
            CHECK, file.key, f"{instant.completion} is no time", "restore the file by its name"
        )
    elif instant.completion <= instant.requested:
        yield problem(
            CHECK,
            file.key,
            "it completed before it was requested",
            "find out which writer's clock went back; its file slices may be cut wrongly",
        )


def _check_actions(known: Sequence[tuple[TimelineFile, Instant]]) -> Iterator[Finding]:
    """Check the states of each action, and that a request time is one action's."""
    by_time: defaultdict[str, defaultdict[Action, list[tuple[TimelineFile, Instant]]]]
    by_time = defaultdict(lambda: defaultdict(list))
    for file, instant in known:
        by_time[instant.requested][instant.action.completed].append((file, instant))
    for requested, actions in sorted(by_time.items()):
        # A savepoint has the time of the commit that it saves.
        owners = sorted(action for action in actions if action is not Action.SAVEPOINT)
        if len(owners) > 1:
            yield problem(
                CHECK,
                actions[owners[0]][0][0].key,
                f"{requested} was requested by {' and '.join(owners)}",
                "roll one of them back: readers tell writes apart by their request time",
            )
        for same in actions.values():
            yield from _check_states(same)


def _check_states(same: Sequence[tuple[TimelineFile, Instant]]) -> Iterator[Finding]:
    states = {instant.state for _, instant in same}
    done = [file for file, instant in same if instant.is_completed]
    first, action = same[0][0].key, same[0][1].action
    if len(done) > 1:
        yield problem(
            CHECK,
            done[0].key,
            f"it completed {len(done)} times: {', '.join(_name(file) for file in done)}",
            "keep the one whose files exist, and move the others away",
        )
    if State.REQUESTED in states or action is Action.SAVEPOINT:
        return
    if done:
        yield warning(
            CHECK,
            done[0].key,
            "its request is missing; readers do not need it, Hudi's archiving does",
            "nothing, unless a Java writer archives this table",
        )
    else:
        yield problem(
            CHECK,
            first,
            "it is inflight without a request: its plan is lost, and nobody can finish it",
            "roll it back",
        )


def _check_completions(known: Iterable[tuple[TimelineFile, Instant]]) -> Iterator[Finding]:
    by_completion: defaultdict[str, list[TimelineFile]] = defaultdict(list)
    for file, instant in known:
        if instant.is_completed and instant.completion:
            by_completion[instant.completion].append(file)
    for completion, files in sorted(by_completion.items()):
        if len(files) > 1:
            yield problem(
                CHECK,
                files[0].key,
                f"{', '.join(_name(file) for file in files)} all completed at {completion}; an"
                " incremental reader that stops there may have seen only some of them",
                "let incremental readers start again from before this time",
            )


def _is_time(time: str) -> bool:
    try:
        parse_time(time)
    except InvalidInput:
        return False
    return True


def _name(file: TimelineFile) -> str:
    return file.key.rpartition("/")[2]
