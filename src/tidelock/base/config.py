"""Configuration keys: typed, with Hudi's names, defaults and aliases.

A key is declared once, beside the code that reads it, with `declare`. Values come from a plain
mapping (a properties file, Spark options, keyword arguments) and may be strings or typed.
`docs/configuration.md` is generated from the registry.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from tidelock.base import hudikeys
from tidelock.base.errors import ConfigInvalid

logger = logging.getLogger(__name__)

T = TypeVar("T")

OWN_PREFIX = "tidelock.lock.provider."
"""Settings below this are those of a user's own lock provider; nobody else knows their names."""


@dataclass(frozen=True, slots=True)
class ConfigKey(Generic[T]):
    """One setting: its name, how to read it, what it is when absent."""

    key: str
    parse: Callable[[str], T]
    default: T | None
    doc: str
    aliases: tuple[str, ...] = ()
    secret: bool = False
    group: str = ""

    def value(self, settings: Mapping[str, object]) -> T | None:
        """Return the value in `settings`, or the default.

        The key itself wins over its aliases; among those the first one set wins.
        """
        for name in (self.key, *self.aliases):
            raw = settings.get(name)
            if raw is None:
                continue
            if name != self.key:
                logger.warning("%s is the old name of %s", name, self.key)
            return self._parsed(name, raw)
        return self.default

    def required(self, settings: Mapping[str, object]) -> T:
        """Return the value, or raise `ConfigInvalid` when there is none."""
        value = self.value(settings)
        if value is None:
            raise ConfigInvalid(
                f"Property {self.key} does not exist!", hint=f"set {self.key}: {self.doc}"
            )
        return value

    def _parsed(self, name: str, raw: object) -> T:
        text = str(raw).strip()
        try:
            return self.parse(text)
        except ValueError as error:
            shown = "***" if self.secret else repr(text)
            raise ConfigInvalid(
                f"{name} = {shown} is not {_wanted(self.parse)}", hint=f"{name}: {self.doc}"
            ) from error


def boolean(text: str) -> bool:
    """Read `true` or `false` as Java does, but refuse anything else."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


_WANTED: dict[object, str] = {int: "a whole number", boolean: "true or false", float: "a number"}


def _wanted(parse: object) -> str:
    return _WANTED.get(parse, "valid")


_registry: dict[str, ConfigKey[Any]] = {}


def declare(key: ConfigKey[T]) -> ConfigKey[T]:
    """Enter `key` into the registry and return it."""
    for name in (key.key, *key.aliases):
        if name in _registry:
            raise ConfigInvalid(f"{name} is declared twice")
        _registry[name] = key
    return key


def declared() -> Iterator[ConfigKey[Any]]:
    """Yield every declared key once, by name."""
    for name in sorted(_registry):
        if _registry[name].key == name:
            yield _registry[name]


class Effect(StrEnum):
    """What a setting of Hudi's comes to here."""

    HONOURED = "honoured"
    HARMLESS = "harmless"
    REFUSED = "refused"


def effect(name: str) -> Effect | None:
    """Return what becomes of a setting by its name; None for one that nobody knows."""
    if name in _registry:
        return Effect.HONOURED
    if hudikeys.refusal(name) is not None:
        return Effect.REFUSED
    return None if hudikeys.harmless(name) is None else Effect.HARMLESS


def check_values(settings: Mapping[str, object]) -> None:
    """Refuse values that cannot be read, and settings of Hudi's that ask for what is not done here.

    What has no effect is logged once in the life of the process. Raises: `ConfigInvalid`.
    """
    for name, value in settings.items():
        key = _registry.get(name)
        if key is not None:
            if value is not None:
                key.value({key.key: value})
            continue
        refused = hudikeys.refusal(name)
        if refused is not None and not refused.allows(value, settings):
            raise ConfigInvalid(f"{name} = {value}: {refused.why}", hint=refused.hint)
        why = None if refused else hudikeys.harmless(name)
        if why is not None:
            say_once(name, why)


_said: set[str] = set()


def say_once(name: str, why: str) -> None:
    """Log that a setting has no effect, unless this process has said so before."""
    if name not in _said:
        _said.add(name)
        logger.warning("%s has no effect here: %s", name, why)


def unknown_keys(settings: Mapping[str, object], *, prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return each key below `prefixes` that nobody knows, with the nearest declared name, or ""."""
    unknown: dict[str, str] = {}
    settings = {name: value for name, value in settings.items() if not name.startswith(OWN_PREFIX)}
    for name in settings:
        if not name.startswith(prefixes) or effect(name) is not None:
            continue
        near = difflib.get_close_matches(name, _registry, n=1, cutoff=0.75)
        unknown[name] = near[0] if near else ""
    return unknown
