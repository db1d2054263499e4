"""Ledger entries and file groups for the output of the CLI and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable

from tidelock.core.formatting import fields_of, pluralize
from tidelock.txn import entries as e


def entry_facts(entry: e.LedgerEntry) -> dict[str, object]:
    """Return an entry for JSON output."""
    return {
        **fields_of(entry, "position", "time"),
        "kind": e.kind_name(entry.fact),
        "instant": getattr(entry.fact, "instant", None),
        "what": _what(entry),
        **fields_of(entry, "owner", "published"),
    }


def _what(entry: e.LedgerEntry) -> str:
    match entry.fact:
        case e.Commit(footprint=footprint) | e.ExternalCommit(footprint=footprint):
            count = len(footprint.written) + len(footprint.replaced)
            return f"{footprint.commit_kind}, {pluralize(count, 'file group')}"
        case e.Plan(action, targets):
            return f"{action}, {pluralize(len(targets), 'file group')}"
        case e.ImportPlan(action=action, targets=targets):
            return f"{action} of an external writer, {pluralize(len(targets), 'file group')}"
        case e.Claim(attempt=attempt):
            return f"attempt {attempt}"
        case e.Rollback(reason=reason):
            return reason
        case e.Boundary(position):
            return f"up to {position}"
        case e.PriorityTicket(groups=groups):
            return pluralize(len(groups), "file group")
        case e.PlanRollback(action, instants):
            return f"{action} of {', '.join(instants[:3])}" + (" ..." if instants[3:] else "")
        case e.ReleaseSavepoint():
            return "savepoint released"


def group_names(groups: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of file groups, sorted."""
    return sorted("/".join(filter(None, group)) for group in groups)
