"""`tidelock lock audit`: enable, show, validate and clean up Hudi's audit log of a lock."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.options import argument, flag, option
from tidelock.cli.output import Output, columns, facts
from tidelock.core.errors import InvalidInput
from tidelock.core.formatting import duration, fields_of, format_epoch_ms
from tidelock.lock import audit as audit_log
from tidelock.lock.audit import AUDIT_FOLDER, AUDIT_SWITCH_KEY, is_enabled
from tidelock.storage.contract import ObjectStore


class AuditAction(Enum):
    """An action on the audit log."""

    ENABLE = "enable"
    DISABLE = "disable"
    STATUS = "status"
    VALIDATE = "validate"
    CLEANUP = "cleanup"
    SHOW = "show"


_STYLES = {
    audit_log.AuditVerdict.PASSED: "bold green",
    audit_log.AuditVerdict.WARNING: "bold yellow",
    audit_log.AuditVerdict.FAILED: "bold red",
    audit_log.AuditVerdict.ERROR: "bold red",
}


def audit(
    resource: options.Resource,
    action: Annotated[
        AuditAction, argument("|".join(action.value for action in AuditAction), "The action.")
    ],
    *,
    keep_files: Annotated[
        bool | None,
        typer.Option(
            "--keep-files/--delete-files",
            help="disable: keep or delete the audit files. [default: keep-files]",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "cleanup: only show what would be deleted.")
    ] = False,
    age_days: Annotated[
        int | None,
        option(
            "--age-days DAYS", "cleanup: delete files not modified for this many days. [default: 7]"
        ),
    ] = None,
    given: options.CommonOptions,
) -> None:
    """Manage the audit log of a lock.

    The action is to enable, disable, show, validate or clean up the log, or to show its status.
    The format is Hudi's: holders of Hudi and of tidelock write the same files. validate compares
    the periods by the clocks of the holders, as Hudi does.

    Exit status of validate: 0 for PASSED and WARNING, 1 for FAILED, for ERROR that of the error.

        tidelock lock audit s3://lake/orders validate
    """
    if keep_files is not None and action is not AuditAction.DISABLE:
        raise InvalidInput(
            f"--keep-files and --delete-files: can only be used with disable, got {action.value}",
            hint="remove the option",
        )
    if (dry_run or age_days is not None) and action is not AuditAction.CLEANUP:
        raise InvalidInput(
            f"--dry-run and --age-days: can only be used with cleanup, got {action.value}",
            hint="remove the option",
        )
    target = given.target(resource)
    output = given.output
    with target.store() as store:
        match action:
            case AuditAction.ENABLE:
                audit_log.set_enabled(store, enabled=True)
                _show_switched(store, output, "enabled")
            case AuditAction.DISABLE:
                audit_log.set_enabled(store, enabled=False)
                deleted = audit_log.delete_all(store) if keep_files is False else []
                _show_switched(store, output, "disabled", deleted)
            case AuditAction.STATUS:
                _status(store, output)
            case AuditAction.VALIDATE:
                _validate(store, target.lease.drift_ms, output)
            case AuditAction.CLEANUP:
                _clean_up(store, target, output, 7 if age_days is None else age_days, dry=dry_run)
            case AuditAction.SHOW:
                _show(store, output)


def _show_switched(
    store: ObjectStore, output: Output, state: str, deleted: list[str] | None = None
) -> None:
    switched = {"resource": store.uri, "audit_state": state, "files_deleted": len(deleted or [])}
    output.result(switched, f"{store.uri}  audit {state}")
    if deleted:
        output.remark(f"  audit files deleted: {len(deleted)}")
    output.remark(Text("  holders read the switch at their next acquisition", style="dim"))


def _status(store: ObjectStore, output: Output) -> None:
    enabled = is_enabled(store)
    files = sum(1 for _ in audit_log.audit_files(store))
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
    validation = audit_log.validate(store, drift_ms=drift_ms)
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
                "message": issue.message,
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
            ("  error    ", "red") if issue.is_error else ("  warning  ", "yellow"), issue.message
        )
        for issue in validation.issues
    ]
    output.result(shown, headline, *lines)
    if validation.cause is not None:
        raise typer.Exit(validation.cause.kind.exit_code)
    if validation.verdict is audit_log.AuditVerdict.FAILED:
        raise typer.Exit(1)


def _clean_up(
    store: ObjectStore, target: options.LockTarget, output: Output, age_days: int, *, dry: bool
) -> None:
    keys = audit_log.clean_up(store, target.clock, age_days=age_days, dry_run=dry)
    shown = {
        "resource": store.uri,
        "files_cleaned": 0 if dry else len(keys),
        "files_found": len(keys),
        "dry_run": dry,
        "age_days": age_days,
        "files": keys,
    }
    verb = "would be deleted" if dry else "deleted"
    message = f"audit files not modified for {age_days} days, {verb}: {len(keys)}"
    output.result(shown, message, *(f"  {key}" for key in keys))


def _show(store: ObjectStore, output: Output) -> None:
    rows: list[tuple[str, ...]] = []
    shown: list[dict[str, object]] = []
    for meta in audit_log.audit_files(store):
        holding = audit_log.read_holding(store, meta.key)
        if holding is None:
            shown.append({"file": meta.key, "readable": False})
            rows.append(("", "", "", "cannot be read", meta.key.rpartition("/")[2]))
            continue
        shown.append(
            {
                "file": meta.key,
                "readable": True,
                **fields_of(holding, "owner", "began_epoch_ms", "ended_epoch_ms", "renewals"),
                "released": holding.was_released,
                "lines_skipped": holding.lines_skipped,
            }
        )
        rows.append(
            (
                format_epoch_ms(holding.began_epoch_ms),
                duration(holding.ended_epoch_ms - holding.began_epoch_ms),
                str(holding.renewals),
                "released" if holding.was_released else "no end recorded",
                holding.owner,
            )
        )
    headings = ("began", "held for", "renewals", "ended", "owner")
    human = columns(headings, rows) if rows else [Text(f"{store.uri} has no audit files")]
    output.result({"resource": store.uri, "holdings": shown}, *human)
