"""`tidelock lock audit`: Hudi's audit log of a lock, switched, shown, validated and cleared."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.errors import InvalidInput
from tidelock.lock import audit_trail as trail
from tidelock.lock.audit import AUDIT_FOLDER, AUDIT_SWITCH_KEY, is_enabled
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns, duration, facts, moment
from tidelock.store.contract import ObjectStore


class Action(Enum):
    """What to do with the audit log."""

    ENABLE = "enable"
    DISABLE = "disable"
    STATUS = "status"
    VALIDATE = "validate"
    CLEANUP = "cleanup"
    SHOW = "show"


Act = Annotated[
    Action,
    typer.Argument(
        metavar="|".join(action.value for action in Action), help="What to do.", show_default=False
    ),
]
KeepFiles = Annotated[
    bool | None,
    typer.Option(
        "--keep-files/--delete-files",
        help="disable: what becomes of the audit files. [default: keep-files]",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="cleanup: only say what would go.")]
AgeDays = Annotated[
    int | None,
    typer.Option(
        "--age-days",
        metavar="DAYS",
        help="cleanup: delete what was not modified for this long. [default: 7]",
        show_default=False,
    ),
]

_STYLES = {
    trail.Verdict.PASSED: "bold green",
    trail.Verdict.WARNING: "bold yellow",
    trail.Verdict.FAILED: "bold red",
    trail.Verdict.ERROR: "bold red",
}


def audit(
    resource: options.Resource,
    action: Act,
    *,
    keep_files: KeepFiles = None,
    dry_run: DryRun = False,
    age_days: AgeDays = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Switch, show, validate or clear the audit log.

    The log is Hudi's: its holders and ours write the same files.

    validate ends with 0 for PASSED and WARNING, 1 for FAILED, and for ERROR with the code of what
    went wrong. Windows are compared by the holders' own clocks, as in Hudi.

        tidelock lock audit s3://lake/orders validate
    """
    if keep_files is not None and action is not Action.DISABLE:
        raise InvalidInput("--keep-files and --delete-files belong to disable")
    if (dry_run or age_days is not None) and action is not Action.CLEANUP:
        raise InvalidInput("--dry-run and --age-days belong to cleanup")
    target = options.target(resource, props, props_file)
    output = Output(as_json=as_json)
    store = target.store()
    try:
        match action:
            case Action.ENABLE:
                trail.set_enabled(store, enabled=True)
                _say_switched(store, output, "enabled")
            case Action.DISABLE:
                trail.set_enabled(store, enabled=False)
                deleted = trail.delete_all(store) if keep_files is False else []
                _say_switched(store, output, "disabled", deleted)
            case Action.STATUS:
                _status(store, output)
            case Action.VALIDATE:
                _validate(store, target.lease.drift_ms, output)
            case Action.CLEANUP:
                _clean_up(store, target, output, 7 if age_days is None else age_days, dry=dry_run)
            case Action.SHOW:
                _show(store, output)
    finally:
        store.close()


def _say_switched(
    store: ObjectStore, output: Output, state: str, deleted: list[str] | None = None
) -> None:
    switched = {"resource": store.uri, "audit_state": state, "files_deleted": len(deleted or [])}
    output.result(switched, f"{store.uri}  audit {state}")
    if deleted:
        output.remark(f"  audit files deleted: {len(deleted)}")
    output.remark(Text("  holders look at the switch when they next acquire", style="dim"))


def _status(store: ObjectStore, output: Output) -> None:
    enabled = is_enabled(store)
    files = sum(1 for _ in trail.audit_files(store))
    switch, folder = f"{store.uri}/{AUDIT_SWITCH_KEY}", f"{store.uri}/{AUDIT_FOLDER}"
    shown = {
        "resource": store.uri,
        "audit_enabled": enabled,
        "config_path": switch,
        "audit_folder_path": folder,
        "files": files,
    }
    rows: list[tuple[str, str | Text]] = [
        ("audit", "on" if enabled else "off"),
        ("switch", switch),
        ("files", f"{files} in {folder}"),
    ]
    output.result(shown, *facts(rows))


def _validate(store: ObjectStore, drift_ms: int, output: Output) -> None:
    validation = trail.validate(store, drift_ms=drift_ms)
    if validation.cause is not None and not output.as_json:
        raise validation.cause
    shown = {
        "resource": store.uri,
        "validation_result": validation.verdict.value,
        "transactions_validated": validation.holdings,
        "issues_found": validation.issues_found,
        "issues": [
            {
                "severity": "ERROR" if issue.is_error else "WARNING",
                "message": issue.says,
                "within_drift": issue.within_drift,
            }
            for issue in validation.issues
        ],
    }
    headline = Text.assemble(
        (validation.verdict.value, _STYLES[validation.verdict]),
        f"  holdings: {validation.holdings}, issues: {max(0, validation.issues_found)}",
    )
    lines = [
        Text.assemble(
            ("  error    ", "red") if issue.is_error else ("  warning  ", "yellow"), issue.says
        )
        for issue in validation.issues
    ]
    output.result(shown, headline, *lines)
    if validation.cause is not None:
        raise typer.Exit(validation.cause.kind.exit_code)
    if validation.verdict is trail.Verdict.FAILED:
        raise typer.Exit(1)


def _clean_up(
    store: ObjectStore, target: options.Target, output: Output, age_days: int, *, dry: bool
) -> None:
    keys = trail.clean_up(store, target.clock, age_days=age_days, dry_run=dry)
    shown = {
        "resource": store.uri,
        "files_cleaned": 0 if dry else len(keys),
        "files_found": len(keys),
        "dry_run": dry,
        "age_days": age_days,
        "files": keys,
    }
    verb = "would be deleted" if dry else "deleted"
    says = f"audit files not modified for {age_days} days, {verb}: {len(keys)}"
    output.result(shown, says, *(f"  {key}" for key in keys))


def _show(store: ObjectStore, output: Output) -> None:
    rows: list[tuple[str, ...]] = []
    shown: list[dict[str, object]] = []
    for meta in trail.audit_files(store):
        holding = trail.read_holding(store, meta.key)
        if holding is None:
            shown.append({"file": meta.key, "readable": False})
            rows.append(("", "", "", "cannot be read", meta.key.rpartition("/")[2]))
            continue
        shown.append(
            {
                "file": meta.key,
                "readable": True,
                "owner": holding.owner,
                "began_epoch_ms": holding.began_epoch_ms,
                "ended_epoch_ms": holding.ended_epoch_ms,
                "renewals": holding.renewals,
                "released": holding.was_released,
                "lines_skipped": holding.lines_skipped,
            }
        )
        rows.append(
            (
                moment(holding.began_epoch_ms),
                duration(holding.ended_epoch_ms - holding.began_epoch_ms),
                str(holding.renewals),
                "released" if holding.was_released else "no end written",
                holding.owner,
            )
        )
    headings = ("began", "held for", "renewals", "ended", "owner")
    human = columns(headings, rows) if rows else [Text(f"{store.uri} has no audit files")]
    output.result({"resource": store.uri, "holdings": shown}, *human)
