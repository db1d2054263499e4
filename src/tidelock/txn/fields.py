"""Fields of the ledger's JSON objects: read strictly, or `DataCorrupt`. Pure."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tidelock.base.errors import DataCorrupt, RecordFromFuture
from tidelock.table.filegroup.view import GroupId
from tidelock.txn.footprint import Deed, Footprint, NewKeys

_TIME: Final = re.compile(r"\d{14}(\d{3})?", re.ASCII)
_WHOLE_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object and where it was found. Raises (all): `DataCorrupt`."""

    values: Mapping[str, Any]
    where: str

    @classmethod
    def parse(cls, body: bytes, where: str) -> Self:
        """Return the object in `body`."""
        try:
            values = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise DataCorrupt(f"{where} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise DataCorrupt(f"{where} is not a JSON object")
        return cls(values, where)

    def raw(self, name: str) -> Any:
        """Return the value; None if there is none."""
        return self.values.get(name)

    def text(self, name: str) -> str:
        """Return a text."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def time(self, name: str) -> str:
        """Return an instant's time."""
        value = self.text(name)
        if not _TIME.fullmatch(value):
            raise self._wrong(name, "an instant's time")
        return value

    def whole(self, name: str) -> int:
        """Return a whole number that is not negative."""
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _WHOLE_MAX:
            raise self._wrong(name, "a whole number")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; an absent one is empty."""
        value = self.values.get(name, [])
        # By type, since an entry may name thousands of keys and every writer reads every entry.
        if not isinstance(value, list) or not {*map(type, value)} <= {str}:
            raise self._wrong(name, "a list of texts")
        return value

    def times(self, name: str) -> list[str]:
        """Return a list of instants' times; an absent one is empty."""
        value = self.texts(name)
        if not all(_TIME.fullmatch(each) for each in value):
            raise self._wrong(name, "a list of instants' times")
        return value

    def objects(self, name: str) -> list[Fields]:
        """Return a list of objects."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._wrong(name, "a list of objects")
        return [Fields(each, f"{self.where}, {name}") for each in value]

    def below(self, name: str) -> Fields:
        """Return the object in a field."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return Fields(value, f"{self.where}, {name}")

    def groups(self, name: str) -> frozenset[GroupId]:
        """Return file groups; an absent field has none."""
        if name not in self.values:
            return frozenset()
        held = self.below(name)
        return frozenset(
            (partition, file_id) for partition in held.values for file_id in held.texts(partition)
        )

    def footprint(self, name: str) -> Footprint:
        """Return a footprint."""
        held = self.below(name)
        deed = held.text("deed")
        if deed not in _DEEDS:
            raise RecordFromFuture(
                f"{held.where} names the deed {deed!r}, which this release does not know",
                hint="upgrade tidelock on this machine",
            )
        inserts = held.below("inserts") if "inserts" in held.values else Fields({}, held.where)
        return Footprint(
            deed=_DEEDS[deed],
            touched=held.groups("touched"),
            appended=held.groups("appended"),
            created=held.groups("created"),
            replaced=held.groups("replaced"),
            intents=None if held.raw("wholeTable") is True else frozenset(held.texts("intents")),
            inserts={p: _new_keys(inserts.below(p)) for p in inserts.values},
            nonblocking=held.raw("nonblocking") is True,
            # Releases that did not say it may have deleted with any operation.
            deletes="appended" in held.values and held.raw("deletes") is not False,
            bucketed=held.raw("bucketed") is True,
            everything=held.raw("everything") is True,
        )

    def broken(self, problem: str) -> DataCorrupt:
        """Return the error for an object whose fields do not go together."""
        return DataCorrupt(f"{self.where}: {problem}")

    def _wrong(self, name: str, wanted: str) -> DataCorrupt:
        shown = repr(self.values.get(name))
        return DataCorrupt(f"{self.where}: {name} = {shown[:80]} is not {wanted}")


def encode_groups(groups: Iterable[GroupId]) -> dict[str, list[str]]:
    """Return file groups as file ids by partition, sorted."""
    by_partition: defaultdict[str, list[str]] = defaultdict(list)
    for partition, file_id in sorted(groups):
        by_partition[partition].append(file_id)
    return dict(by_partition)


def encode_footprint(footprint: Footprint) -> dict[str, Any]:
    """Return a footprint's fields; those that say nothing are left out."""
    fields: dict[str, Any] = {"deed": footprint.deed.value}
    for name in ("touched", "appended", "created", "replaced"):
        groups: frozenset[GroupId] = getattr(footprint, name)
        if groups:
            fields[name] = encode_groups(groups)
    if footprint.intents is None:
        fields["wholeTable"] = True
    elif footprint.intents:
        fields["intents"] = sorted(footprint.intents)
    if footprint.inserts:
        fields["inserts"] = {p: _key_fields(new) for p, new in sorted(footprint.inserts.items())}
    if footprint.appended:
        fields["deletes"] = footprint.deletes
    for name in ("nonblocking", "bucketed", "everything"):
        if getattr(footprint, name):
            fields[name] = True
    return fields


def _new_keys(fields: Fields) -> NewKeys:
    keys = None if fields.raw("keys") is None else frozenset(fields.texts("keys"))
    return NewKeys(keys, tuple(fields.texts("files")))


def _key_fields(new: NewKeys) -> dict[str, Any]:
    keys = None if new.keys is None else sorted(new.keys)
    return {"keys": keys, "files": list(new.files)} if new.files else {"keys": keys}


_DEEDS: Final[Mapping[str, Deed]] = {deed.value: deed for deed in Deed}
