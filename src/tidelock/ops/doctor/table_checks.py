"""Who blocks what on a table, and why: writers that died, plans that wait or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidelock.base.errors import DataCorrupt, Kind, TidelockError
from tidelock.ops.cli.output import counted, duration
from tidelock.ops.doctor.findings import Cure, Finding, Level, fine, note, problem
from tidelock.ops.validate.findings import Finding as Flaw
from tidelock.ops.validate.findings import Severity
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.view import GroupId
from tidelock.table.timeline.active import ActiveTimeline
from tidelock.table.timeline.instant import Action
from tidelock.tableservice.overview import PendingService
from tidelock.txn.fold import Fold
from tidelock.txn.writers import Writer

_DAMAGED: Final = Kind.DATA_CORRUPT.exit_code
_OLD_MS: Final = 3_600_000
_SWEPT: Final = ("leftovers",)
_SHOWN: Final = 20


def check_stuck(writers: Sequence[Writer], fold: Fold) -> Iterator[Finding]:
    """Judge the writes that have begun and not ended."""
    dead = [each for each in writers if not each.alive and each.instant not in fold.plans]
    alive = [each for each in writers if each.alive]
    for writer in dead[:_SHOWN]:
        age = (
            "it has no heartbeat"
            if writer.age_ms is None
            else f"its last heartbeat was {duration(writer.age_ms)} ago"
        )
        decided = " though the ledger has decided it" if fold.is_settled(writer.instant) else ""
        where = f" from {writer.host}:{writer.pid}" if writer.host else ""
        yield note(
            "writers",
            f"{writer.action} {writer.instant}{where} never ended{decided}: {age}. Nothing after"
            " it is archived, and its files stay",
            "--fix rolls it back; the next clean does, too",
            cure=Cure.ROLL_BACK,
        )
    if not dead:
        yield fine("writers", f"{len(alive)} at work, none dead")


def check_plans(services: Sequence[PendingService], writers: Sequence[Writer]) -> Iterator[Finding]:
    """Judge the plans that wait."""
    for plan in services[:_SHOWN]:
        yield _plan(plan, writers)
    if not services:
        yield fine("plans", "none waits")


def _plan(plan: PendingService, writers: Sequence[Writer]) -> Finding:
    met = [w for w in writers if w.instant != plan.instant and w.groups & plan.groups]
    groups = counted(len(plan.groups), "file group")
    held = f"it holds {groups}: {_some(plan.groups)}" if plan.groups else ""
    with_whom = f"; {counted(len(met), 'running write')} there" if met else ""
    says = f"{plan.action} {plan.instant}, {duration(plan.age_ms)} old, {plan.next_step}; "
    says += f"{held or 'it holds no file group'}{with_whom}"
    if plan.alive:
        return fine("plans", says)
    if plan.removable and plan.state == "inflight":
        return note("plans", says, "--fix undoes it", Cure.ROLL_BACK)
    if not plan.ours and plan.age_ms > _OLD_MS:
        hint = (
            "run the Java service that planned it, or execute it here (tidelock.write.mixed=true)"
        )
        return note("plans", says, hint)
    if plan.age_ms > _OLD_MS:
        command = {"compaction": "compact", "clustering": "cluster"}.get(plan.action, plan.action)
        return note("plans", says, f"run `tidelock {command} URI execute`")
    return fine("plans", says)


def check_readable(timeline: ActiveTimeline) -> Iterator[Finding]:
    """Judge whether pending plans can be read: one that cannot stops every service after it."""
    readers: Mapping[Action, str] = {
        Action.COMPACTION: "compaction_plan",
        Action.LOG_COMPACTION: "compaction_plan",
        Action.CLUSTERING: "replace_request",
        Action.REPLACE_COMMIT: "replace_request",
    }
    broken = False
    for instant in timeline.pending(*readers):
        try:
            getattr(timeline, readers[instant.action])(instant)
        except DataCorrupt as error:
            broken = True
            yield problem(
                "plans",
                f"the plan {instant.requested} cannot be read: {error.message}",
                "restore the file from a copy; our plans lie in the ledger as well, and publishing"
                " writes them again once the broken file is deleted",
                exit_code=_DAMAGED,
            )
        except TidelockError:
            continue  # gone meanwhile
    if not broken:
        yield fine("plans", "all can be read")


def from_validation(found: Sequence[Flaw], void: frozenset[str]) -> Iterator[Finding]:
    """Return what a validation found as findings of an examination."""
    for flaw in found[:_SHOWN]:
        says = f"{flaw.object}: {flaw.what}"
        orphan = any(instant in flaw.object for instant in void)
        cure = Cure.SWEEP if flaw.check in _SWEPT or orphan else None
        if "is not on the timeline yet" in flaw.what:
            cure = Cure.PUBLISH
        if flaw.severity is Severity.PROBLEM:
            yield problem(flaw.check, says, flaw.next_step, exit_code=1, cure=cure)
        else:
            yield Finding(flaw.check, Level.NOTE, says, flaw.next_step, cure)
    if len(found) > _SHOWN:
        yield note("table", f"and {len(found) - _SHOWN} more", "see `tidelock table validate`")
    if not found:
        yield fine("table", "timeline, files and ledger agree")


def sweepable(store: ObjectStore, completed: frozenset[str]) -> list[str]:
    """Return the markers and heartbeats of completed writes."""
    return [
        meta.key
        for folder in (".hoodie/.temp/", ".hoodie/.heartbeat/")
        for meta in store.list(folder)
        if meta.key.removeprefix(folder).partition("/")[0] in completed
    ]


def _some(groups: frozenset[GroupId]) -> str:
    names = sorted("/".join(filter(None, group)) for group in groups)
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
