"""The settings of partition TTL, under Hudi's keys with Hudi's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.errors import ConfigInvalid
from tidelock.tableservice.ttl.plan import Expiry, Measure

_GROUP: Final = "Table services"

TTL_INLINE = declare(
    ConfigKey(
        "hoodie.partition.ttl.inline",
        boolean,
        default=False,
        doc="delete expired partitions when the table is cleaned after writes",
        group=_GROUP,
    )
)
TTL_STRATEGY = declare(
    ConfigKey(
        "hoodie.partition.ttl.management.strategy.type",
        str,
        default=Measure.LAST_WRITE.value,
        doc=f"what the age of a partition is counted from: {', '.join(Measure)}",
        group=_GROUP,
    )
)
TTL_STRATEGY_CLASS = declare(
    ConfigKey(
        "hoodie.partition.ttl.strategy.class",
        str,
        default="",
        doc="one of Hudi's classes for the same, `KeepByTimeStrategy` or"
        " `KeepByCreationTimeStrategy`; goes before the type",
        group=_GROUP,
    )
)
TTL_DAYS = declare(
    ConfigKey(
        "hoodie.partition.ttl.strategy.days.retain",
        int,
        default=-1,
        doc="days after which a partition is expired; below 1 none ever is",
        group=_GROUP,
    )
)
TTL_SELECTED = declare(
    ConfigKey(
        "hoodie.partition.ttl.strategy.partition.selected",
        str,
        default="",
        doc="partitions that may expire, separated by commas; all if there are none",
        group=_GROUP,
    )
)
TTL_MOST = declare(
    ConfigKey(
        "hoodie.partition.ttl.strategy.max.delete.partitions",
        int,
        default=1000,
        doc="partitions that one run deletes at most",
        group=_GROUP,
    )
)

_CLASSES: Final = {
    "KeepByTimeStrategy": Measure.LAST_WRITE,
    "KeepByCreationTimeStrategy": Measure.CREATION,
}


def expiry(settings: Mapping[str, object]) -> Expiry | None:
    """Return when partitions expire; None if they never do. Raises: `ConfigInvalid`."""
    measure = _measure(settings)
    days, most = TTL_DAYS.required(settings), TTL_MOST.required(settings)
    if most < 1:
        raise ConfigInvalid(f"{TTL_MOST.key} = {most} would delete nothing", hint="use 1 or more")
    if days < 1:
        return None
    chosen = (part.strip() for part in TTL_SELECTED.required(settings).split(","))
    return Expiry(measure, days, frozenset(part for part in chosen if part), most)


def _measure(settings: Mapping[str, object]) -> Measure:
    given = TTL_STRATEGY_CLASS.required(settings)
    if given:
        name = given.rpartition(".")[2]
        if name not in _CLASSES:
            raise ConfigInvalid(
                f"{TTL_STRATEGY_CLASS.key} = {given} is not known",
                hint=f"use {', '.join(_CLASSES)}",
            )
        return _CLASSES[name]
    kind = TTL_STRATEGY.required(settings).upper()
    measures = {each.value: each for each in Measure}
    if kind not in measures:
        raise ConfigInvalid(
            f"{TTL_STRATEGY.key} = {kind} is not known", hint=f"use {', '.join(Measure)}"
        )
    return measures[kind]
