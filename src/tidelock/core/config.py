"""The configuration catalogue: every `hoodie.*` and `tidelock.*` key, declared once.

A key is declared with `ConfigSection.declare` in the module that reads it, with its type, default,
aliases and meaning. Hudi keys that nothing reads are in `tidelock.core.unsupported_keys`, each with
the reason why it is ignored or refused. `find` looks a name up in both. `docs/configuration.md` and
`tidelock config` are generated from the catalogue.

Values come from a plain mapping (a properties file, Spark options, keyword arguments) and may be
strings or typed.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from tidelock.core import unsupported_keys
from tidelock.core.errors import ConfigInvalid
from tidelock.core.formatting import alternatives
from tidelock.core.unsupported_keys import HudiKey, KeySupport

logger = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

CUSTOM_PROVIDER_PREFIX = "tidelock.lock.provider."
"""Keys below this prefix belong to a user's own lock provider and are passed on unchecked."""


class ConfigSection(StrEnum):
    """The sections of the catalogue, in the order of the documentation."""

    LOCK = "Lock"
    ALERTS = "Alerts"
    AZURE = "Azure"
    DYNAMODB_LOCK = "DynamoDB lock"
    FILES = "Files"
    FILESYSTEM_LOCK = "Filesystem lock"
    GCS = "GCS"
    HIVE_LOCK = "Hive metastore lock"
    INDEXES = "Indexes"
    KUBERNETES_LOCK = "Kubernetes lock"
    LOCK_SERVICE = "Lock service client"
    METRICS = "Metrics"
    REDIS_LOCK = "Redis lock"
    S3 = "S3"
    SQL = "SQL"
    SPARK_READS = "Spark reads"
    STATE_STORE_LOCK = "State store lock"
    STORES = "Stores"
    STREAMER = "Streamer"
    STREAMING_READS = "Streaming reads"
    STREAMING_WRITES = "Streaming writes"
    SERVICES = "Table services"
    TABLES = "Tables"
    TRANSACTIONS = "Transactions"
    WRITES = "Writes"
    ZOOKEEPER_LOCK = "ZooKeeper lock"
    ETCD_LOCK = "etcd lock"

    def declare(
        self,
        key: str,
        doc: str,
        *,
        default: T | None = None,
        parse: Callable[[str], T] | None = None,
        aliases: tuple[str, ...] = (),
        secret: bool = False,
        choices: Iterable[str] = (),
    ) -> ConfigKey[T]:
        """Add a key of this section to the catalogue and return it.

        Without `parse`, values have the type of the default. Raises: `ConfigInvalid` if the name or
        an alias is declared already.
        """
        if isinstance(default, StrEnum) and parse is None:
            choices = type(default)
        declared = ConfigKey(
            key,
            parse or _parser_of(default),
            default,
            doc,
            self,
            aliases,
            secret,
            tuple(str(each) for each in choices),
        )
        for name in declared.names:
            if name in _catalogue:
                raise ConfigInvalid(f"{name} is declared twice")
            _catalogue[name] = declared
        return declared


@dataclass(frozen=True, slots=True)
class ConfigKey(Generic[T]):
    """One key: its name, type, default, meaning, and the section it is documented in.

    `choices` are the values it takes, if there are only a few.
    """

    key: str
    parse: Callable[[str], T]
    default: T | None
    doc: str
    section: ConfigSection
    aliases: tuple[str, ...] = ()
    secret: bool = False
    choices: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.key, *self.aliases)

    @property
    def type_name(self) -> str:
        """The type of its values, as the documentation names it."""
        return _TYPES.get(self.parse, "string")

    @property
    def default_text(self) -> str:
        """The default as it is written in a properties file; "" if there is none."""
        match self.default:
            case None:
                return ""
            case bool() as flag:
                return str(flag).lower()
            case tuple() as parts:
                return ",".join(map(str, parts))
            case other:
                return str(other)

    def value(self, settings: Mapping[str, object]) -> T | None:
        """Return the value in `settings`, or the default.

        The key itself takes precedence over its aliases; among those the first one set wins.
        """
        for name in self.names:
            raw = settings.get(name)
            if raw is None:
                continue
            if name != self.key:
                logger.warning("%s is the old name of %s", name, self.key)
            return self._parsed(name, raw)
        return self.default

    def explicit(self, settings: Mapping[str, object]) -> T | None:
        """Return the value that is set under the key's own name; None if it is not set."""
        raw = settings.get(self.key)
        return None if raw is None else self._parsed(self.key, raw)

    def required(self, settings: Mapping[str, object]) -> T:
        """Return the value, or raise `ConfigInvalid` if there is none."""
        value = self.value(settings)
        if value is None:
            raise ConfigInvalid(
                f"{self.key}: required, not set",
                hint=f"set {self.key}=… in the options or the properties file:"
                f" {self.doc.partition('; default:')[0]}",
            )
        return value

    def positive(self, settings: Mapping[str, object]) -> T:
        """Return the value of a numeric key, or raise `ConfigInvalid` if it is less than 1."""
        value = self.required(settings)
        if isinstance(value, int) and value < 1:
            raise ConfigInvalid(
                f"{self.key}: expected a positive integer, got {value}",
                hint=f"set {self.key} to 1 or more: {self.doc}",
            )
        return value

    def member(self, kind: type[E], settings: Mapping[str, object]) -> E:
        """Return the value as a member of `kind`. Raises: `ConfigInvalid`."""
        value = str(self.required(settings))
        if value not in set(kind):
            raise self.unknown_value(value, kind)
        return kind(value)

    def unknown_value(self, value: object, choices: Iterable[str] = ()) -> ConfigInvalid:
        """Return the error for a value that is none of the choices."""
        known = tuple(choices or self.choices)
        return ConfigInvalid(
            f"{self.key}: expected one of {', '.join(known)}, got {str(value)!r}",
            hint=f"use {alternatives(known)}",
        )

    def _parsed(self, name: str, raw: object) -> T:
        text = str(raw).strip()
        try:
            return self.parse(text)
        except ValueError as error:
            found = "a value that is not shown" if self.secret else repr(text)
            raise ConfigInvalid(
                f"{name}: expected {self._expected()}, got {found}", hint=self._correction()
            ) from error

    def _expected(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return _EXPECTED.get(self.type_name, "a valid value")

    def _correction(self) -> str:
        if self.choices:
            return f"use {alternatives(self.choices)}"
        if self.type_name in _EXPECTED:
            return f"set {self.key} to {_EXPECTED[self.type_name]}: {self.doc}"
        return f"correct {self.key}: {self.doc}"


def boolean(text: str) -> bool:
    """Parse `true` or `false` in any case, as Java does. Unlike Java, reject any other text."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def comma_list(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def choice(kind: type[E]) -> Callable[[str], E]:
    """Return a parser of the members of `kind` by value, in any case."""
    members = {each.value.upper(): each for each in kind}

    def parse(text: str) -> E:
        try:
            return members[text.upper()]
        except KeyError:
            raise ValueError(text) from None

    return parse


def _parser_of(default: object) -> Callable[[str], Any]:
    match default:
        case bool():
            return boolean
        case StrEnum():
            return choice(type(default))
        case int() | float() | str():
            return type(default)
        case _:
            raise TypeError(f"expected a parser, or a default with a simple type, got {default!r}")


_TYPES: dict[object, str] = {
    int: "integer",
    boolean: "boolean",
    float: "number",
    comma_list: "list",
}
_EXPECTED = {"integer": "an integer", "boolean": "true or false", "number": "a number"}
_catalogue: dict[str, ConfigKey[Any]] = {}


def declared_keys() -> Iterator[ConfigKey[Any]]:
    """Yield every declared key once, by name."""
    for name in sorted(_catalogue):
        if _catalogue[name].key == name:
            yield _catalogue[name]


def declared_names() -> frozenset[str]:
    """Return the names of all declared keys, with their aliases."""
    return frozenset(_catalogue)


def find(name: str) -> ConfigKey[Any] | HudiKey | None:
    """Return the catalogue's entry of a key or alias; None if the name is unknown."""
    return _catalogue.get(name) or unsupported_keys.find(name)


def support(name: str) -> KeySupport | None:
    """Return whether a key is honoured, ignored or refused; None if the name is unknown."""
    found = find(name)
    if isinstance(found, ConfigKey):
        return KeySupport.HONOURED
    return None if found is None else found.support


def known_names() -> frozenset[str]:
    """Return the names of all declared keys with their aliases, and those of other Hudi keys."""
    return declared_names() | unsupported_keys.hudi_names()


def near_misses(name: str, *, count: int = 3, cutoff: float = 0.75) -> list[str]:
    """Return the declared names that are most similar to `name`, best match first."""
    return difflib.get_close_matches(name, _catalogue, n=count, cutoff=cutoff)


_MISSPELT: Final = 0.85
"""The least similarity of a misspelt name; names of different keys differ by more."""
_EQUALLY_NEAR: Final = 0.03


def corrections(name: str) -> list[str]:
    """Return the known names that `name` may be a misspelling of, best match first.

    Case is ignored. There is more than one only if they are about as similar as the best one.
    """
    by_lower = {each.lower(): each for each in sorted(known_names())}
    found = difflib.get_close_matches(name.lower(), by_lower, cutoff=_MISSPELT)
    nearness = {each: difflib.SequenceMatcher(None, each, name.lower()).ratio() for each in found}
    best = max(nearness.values(), default=0.0)
    return [by_lower[each] for each in found if nearness[each] > best - _EQUALLY_NEAR]


def unknown_key(name: str, near: Iterable[str]) -> ConfigInvalid:
    """Return the error for a name that is not in the catalogue."""
    names = " or ".join(near)
    hint = f"did you mean {names}?" if names else "see docs/configuration.md"
    return ConfigInvalid(f"unknown setting {name}", hint=hint)


def check_values(settings: Mapping[str, object]) -> None:
    """Reject values of the wrong type, and Hudi keys that ask for an unsupported feature.

    Keys without effect are logged once per process. Raises: `ConfigInvalid`.
    """
    for name, value in settings.items():
        match find(name):
            case ConfigKey() as key:
                if value is not None:
                    key.value({key.key: value})
            case HudiKey(support=KeySupport.REFUSED) as key:
                if not key.allows(value, settings):
                    raise ConfigInvalid(f"{name} = {value}: {key.reason}", hint=key.hint)
            case HudiKey() as key:
                warn_no_effect(name, key.reason)
            case None:
                pass


_warned: set[str] = set()


def warn_no_effect(name: str, reason: str) -> None:
    """Log that a key has no effect, once per process."""
    if name not in _warned:
        _warned.add(name)
        logger.warning("%s has no effect here: %s", name, reason)


def unknown_keys(settings: Mapping[str, object], *, prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return each unknown key below `prefixes` with the most similar declared name, or ""."""
    return {
        name: next(iter(near_misses(name, count=1)), "")
        for name in settings
        if name.startswith(prefixes)
        and not name.startswith(CUSTOM_PROVIDER_PREFIX)
        and find(name) is None
    }
