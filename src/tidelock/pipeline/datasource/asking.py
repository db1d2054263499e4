"""Teaching PySpark's readers and writers a format: their calls are remembered, their ends are ours.

What was said to a reader or a writer (`format`, `option`, `mode`, ...) lies in the JVM, where it
cannot be asked for. So it is written down on the way, and who says `load`, `save` or `start` for
this format comes here with all of it; every other format goes where it went.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from tidelock.pipeline.datasource.options import FORMAT

_ASKED: Final = "_tidelock_asked"
_TAUGHT: Final = "_tidelock_taught"

End = Callable[..., Any]
"""What ends a chain of calls: takes the reader or writer, then what the original takes."""


@dataclass(slots=True)
class Asked:
    """What was said to one reader or writer."""

    format: str | None = None
    options: dict[str, object] = field(default_factory=dict)
    mode: str | None = None
    schema: Any = None
    partitions: tuple[str, ...] | None = None

    @property
    def is_ours(self) -> bool:
        """Tell whether the format is ours."""
        return self.format is not None and self.format.lower() == FORMAT

    @property
    def given(self) -> dict[str, object]:
        """The options that have a value."""
        return {key: value for key, value in self.options.items() if value is not None}


def asked_of(self: Any) -> Asked:
    """Return what was said to a reader or writer so far."""
    found: Asked | None = self.__dict__.get(_ASKED)
    if found is None:
        found = self.__dict__[_ASKED] = Asked()
    return found


def teach(kind: type, ends: Mapping[str, End], *, holds_back_partitions: bool = False) -> None:
    """Let a class of PySpark's remember what it is told, and end in `ends`; once is enough.

    With `holds_back_partitions` the original `partitionBy` is called only once the format is known
    not to be ours: a stream to a function may not be partitioned.
    """
    if kind.__dict__.get(_TAUGHT):
        return
    for name in ("format", "option", "options", "mode", "outputMode", "schema"):
        if hasattr(kind, name):
            setattr(kind, name, _remembering(name, getattr(kind, name)))
    partition_by = getattr(kind, "partitionBy", None)
    if partition_by is not None:
        patched = _partitioning(partition_by, passed_on=not holds_back_partitions)
        setattr(kind, "partitionBy", patched)  # noqa: B010 - as the others
    held = partition_by if holds_back_partitions else None
    for name, ours in ends.items():
        setattr(kind, name, _ending(getattr(kind, name), ours, held))
    setattr(kind, _TAUGHT, True)


def _remembering(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        asked = asked_of(self)
        match name:
            case "format":
                asked.format = args[0] if args else kwargs["source"]
            case "option":
                key, value = (*args, *kwargs.values())
                asked.options[key] = value
            case "options":
                asked.options.update(kwargs)
            case "schema":
                asked.schema = args[0] if args else kwargs["schema"]
            case _:
                (asked.mode,) = (*args, *kwargs.values())
        return result

    return call


def _partitioning(original: Callable[..., Any], *, passed_on: bool) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *names: Any) -> Any:
        asked = asked_of(self)
        listed = names[0] if len(names) == 1 and isinstance(names[0], list | tuple) else names
        asked.partitions = tuple(listed)
        return original(self, *names) if passed_on else self

    return call


def _ending(
    original: Callable[..., Any], ours: End, partition_by: Callable[..., Any] | None
) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("format")
        if named is not None:
            self.format(named)
        asked = asked_of(self)
        if asked.is_ours:
            return ours(self, *args, **{key: kwargs[key] for key in kwargs if key != "format"})
        if partition_by is not None and asked.partitions is not None:
            partition_by(self, *asked.partitions)
        return original(self, *args, **kwargs)

    return call
