"""Results that were kept as JSON, as the values they were."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def loaded(kind: type[T], told: dict[str, Any]) -> T:
    """Return the dataclass whose fields `told` has; those it lacks keep their defaults."""
    hints = get_type_hints(kind)
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    given = {name: _value(hints[name], value) for name, value in told.items() if name in known}
    return kind(**given)


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, tuple):
        made = [_value(arguments[0], each) for each in value]
        return made if origin is list else tuple(made)
    if origin is types.UnionType:
        return _value(next(each for each in arguments if each is not types.NoneType), value)
    return loaded(kind, value) if is_dataclass(kind) and isinstance(kind, type) else value
