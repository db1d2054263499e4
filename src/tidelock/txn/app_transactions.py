"""Application transactions: idempotent batches of a pipeline (C78-C83). Pure.

A pipeline numbers its batches and commits the number, and the data it needs to continue, together
with the batch. The ledger accepts each number once, so a batch is applied at most once however
often it is retried, even by a process that was believed dead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

from tidelock.core.errors import InvalidInput
from tidelock.txn.footprint import Fields

T = TypeVar("T")

VERSION_MAX: Final = 2**63 - 1
DATA_CHARACTERS_MAX: Final = 65_536
"""Maximum size of an application transaction, which every reader of the ledger reads."""

APPLICATIONS_MAX: Final = 4_096
"""Number of applications whose last transaction is retained. The least recently used is dropped."""


def _accepts_application(kind: type[T]) -> type[T]:
    """Accept the deprecated keyword `application` of a class as `app_id`."""
    init: Callable[..., None] = kind.__init__

    @wraps(init)
    def accepting(self: object, *args: Any, **kwargs: Any) -> None:
        if "application" in kwargs:
            _warn_deprecated("the keyword 'application'")
            # `dataclasses.replace` also passes the current `app_id`.
            kwargs["app_id"] = kwargs.pop("application")
        init(self, *args, **kwargs)

    kind.__init__ = accepting  # type: ignore[method-assign]
    return kind


def _warn_deprecated(old: str) -> None:
    warnings.warn(
        f"{old} is deprecated and will be removed in the next minor release; use 'app_id'",
        DeprecationWarning,
        stacklevel=3,
    )


@_accepts_application
@dataclass(frozen=True, slots=True)
class AppTransaction:
    """Batch `version` of application `app_id`, with the data needed to start the next batch.

    `data` is a string, or a mapping of names to strings, which is also written to the commit's
    extra metadata.
    """

    app_id: str
    version: int
    data: str | Mapping[str, str] = ""

    def __post_init__(self) -> None:
        """Validate the fields. Raises: `InvalidInput`."""
        if not self.app_id:
            raise InvalidInput(
                "app_id: expected a name, got an empty string",
                hint="name the pipeline that writes the table",
            )
        if not 0 <= self.version <= VERSION_MAX:
            raise InvalidInput(
                f"version of {self.app_id!r}: expected a non-negative integer, got"
                f" {self.version!r}",
                hint="number the batches of the application",
            )
        texts = [self.data] if isinstance(self.data, str) else [*self.data, *self.data.values()]
        size = len(self.app_id) + sum(map(len, texts))
        if size > DATA_CHARACTERS_MAX:
            raise InvalidInput(
                f"the transaction of {self.app_id!r} has {size} characters, at most"
                f" {DATA_CHARACTERS_MAX} are allowed",
                hint="store large data in a file and put its name in the transaction",
            )

    @property
    def application(self) -> str:
        """The old name of `app_id`; deprecated."""
        _warn_deprecated("the attribute 'application'")
        return self.app_id

    @property
    def metadata(self) -> Mapping[str, str]:
        """The entries for the commit's extra metadata."""
        return {} if isinstance(self.data, str) else self.data


@dataclass(frozen=True, slots=True)
class AppliedTransaction:
    """An application transaction that was committed as `instant` at `completion`."""

    app_transaction: AppTransaction
    instant: str
    completion: str

    def covers(self, app_transaction: AppTransaction) -> bool:
        """Return whether the batch was already applied, or skipped for good."""
        return app_transaction.version <= self.app_transaction.version


def with_applied(
    app_transactions: Mapping[str, AppliedTransaction], applied: AppliedTransaction
) -> Mapping[str, AppliedTransaction]:
    """Return the last transactions with `applied` added as the most recently used."""
    name = applied.app_transaction.app_id
    remaining = {other: held for other, held in app_transactions.items() if other != name}
    if len(remaining) >= APPLICATIONS_MAX:
        del remaining[next(iter(remaining))]
    remaining[name] = applied
    return remaining


def with_previous(
    app_transactions: Mapping[str, AppliedTransaction],
    previous: Mapping[str, AppliedTransaction | None],
) -> Mapping[str, AppliedTransaction]:
    """Return the last transactions with those in `previous` set back; None removes one."""
    if not previous:
        return app_transactions
    remaining = {name: held for name, held in app_transactions.items() if name not in previous}
    return {**remaining, **{name: held for name, held in previous.items() if held is not None}}


def app_transaction_fields(app_transaction: AppTransaction) -> dict[str, Any]:
    """Return an application transaction as the JSON fields of an entry."""
    data = app_transaction.data
    fields: dict[str, Any] = {
        "application": app_transaction.app_id,
        "version": app_transaction.version,
    }
    if data != "":
        fields["data"] = data if isinstance(data, str) else dict(data)
    return fields


def app_transaction_of(fields: Fields, name: str) -> AppTransaction:
    """Return the application transaction in a field of an entry. Raises: `DataCorrupt`."""
    return _app_transaction(fields.nested(name))


def _app_transaction(fields: Fields) -> AppTransaction:
    data: str | Mapping[str, str] = ""
    if isinstance(fields.raw("data"), dict):
        held = fields.nested("data")
        data = {name: held.text(name) for name in held.values}
    elif fields.raw("data") is not None:
        data = fields.text("data")
    try:
        return AppTransaction(fields.text("application"), fields.integer("version"), data)
    except InvalidInput as error:
        raise fields.invalid(error.message) from error


def previous_fields(previous: Mapping[str, AppliedTransaction | None]) -> list[dict[str, Any]]:
    """Return the previous transactions of applications as the JSON fields of an entry."""
    return [
        {"application": name} if held is None else applied_fields(held)
        for name, held in previous.items()
    ]


def previous_of(fields: Fields, name: str) -> dict[str, AppliedTransaction | None]:
    """Return the previous transactions in an entry, None for none. Raises: `DataCorrupt`."""
    return {
        each.text("application"): applied_of(each) if "version" in each.values else None
        for each in fields.objects(name)
    }


def applied_fields(applied: AppliedTransaction) -> dict[str, Any]:
    """Return a committed application transaction as the JSON fields of a checkpoint."""
    at = {"instant": applied.instant, "completion": applied.completion}
    return {**app_transaction_fields(applied.app_transaction), **at}


def applied_of(fields: Fields) -> AppliedTransaction:
    """Return the committed application transaction in a checkpoint. Raises: `DataCorrupt`."""
    return AppliedTransaction(
        _app_transaction(fields), fields.time("instant"), fields.time("completion")
    )
