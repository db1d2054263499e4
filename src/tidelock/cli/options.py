"""Arguments and options shared by commands, and the settings that result from them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tidelock.cli.lock_client import AnyLock, ProviderLock
from tidelock.cli.output import Output
from tidelock.core.clock import Clock
from tidelock.core.errors import ConfigInvalid, InvalidInput, NotFound, PermissionDenied
from tidelock.core.javaproperties import parse_properties
from tidelock.core.limits import PROPERTIES_BYTES_MAX, RENEWALS_PER_VALIDITY, VALIDITY_S_MIN
from tidelock.core.system import SystemClock
from tidelock.lock.client import lock, reject_unknown_keys
from tidelock.lock.config import PROVIDER, RENEW_S, VALIDITY_S, WAIT_TIME_MS, LockSettings
from tidelock.lock.lease import Lease
from tidelock.lock.providers import config
from tidelock.lock.providers.registry import SERVICE, class_path_of, is_storage, provider_name
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import canonical, open_store

_FILE = "file://"
_INCLUDE = "include"
_CHECK_PROPS = "check the path given with --props or `include`"


def read_properties(location: str, settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the settings in a properties file; the last of two equal keys wins, as in Java.

    `location` is a path or a URI; `settings` are those of the store of a URI. As in Hudi, a file
    may include another one in its folder and override its settings.
    Raises: `NotFound`, `PermissionDenied`, `ConfigInvalid`, `ResourceInvalid`, `Unsupported`.
    """
    files: list[str] = []
    found: dict[str, str] = {}
    uri = canonical(location)
    while uri:
        if uri in files:
            raise ConfigInvalid(
                f"properties files include each other: {' -> '.join([*files, uri])}",
                hint="remove one of the `include` lines",
            )
        files.append(uri)
        own = _read_one(uri, settings or {})
        included = own.pop(_INCLUDE, "")
        found = {**own, **found}
        path = included if "/" in included else f"{uri.rpartition('/')[0]}/{included}"
        uri = canonical(path) if included else ""
    return found


def _read_one(uri: str, settings: Mapping[str, object]) -> dict[str, str]:
    if uri.startswith(_FILE):
        body = _from_disk(Path(uri.removeprefix(_FILE)))
    else:
        body = _from_store(uri, settings)
    if len(body) > PROPERTIES_BYTES_MAX:
        raise ConfigInvalid(
            f"properties file {uri}: larger than {PROPERTIES_BYTES_MAX} bytes",
            hint="check that this is a properties file",
        )
    try:
        return parse_properties(_text(body))
    except ValueError as error:
        raise ConfigInvalid(f"properties file {uri}: {error}", hint="correct the file") from error


def _from_disk(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(PROPERTIES_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise NotFound(f"properties file {path}: not found", hint=_CHECK_PROPS) from error
    except PermissionError as error:
        raise PermissionDenied(
            f"properties file {path}: permission denied", hint="make it readable for this user"
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigInvalid(
            f"properties file {path}: cannot be read: {error}", hint=_CHECK_PROPS
        ) from error


def _from_store(uri: str, settings: Mapping[str, object]) -> bytes:
    folder, _, name = uri.rpartition("/")
    store = open_store(folder, settings)
    try:
        found = store.get(name, end=PROPERTIES_BYTES_MAX + 1)
    finally:
        store.close()
    if found is None:
        raise NotFound(f"properties file {uri}: not found", hint=_CHECK_PROPS)
    return found.body


def _text(body: bytes) -> str:
    """Decode as Java 9 and later do: UTF-8, or Latin-1 if it is not valid UTF-8."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("latin-1")


def option(declaration: str, help: str, **more: Any) -> Any:  # noqa: A002 - typer's name
    """Return an option, declared as its help shows it: `-O --option KEY=VALUE`.

    `more` is passed to typer. The help shows the default only with `show_default`; otherwise `help`
    states it where it matters.
    """
    *names, metavar = declaration.split(" ")
    return typer.Option(*names, metavar=metavar, help=help, **{"show_default": False, **more})


def flag(names: str, help: str) -> Any:  # noqa: A002 - typer's name
    """Return an option without a value; `names` is as in its help: `--yes -y`."""
    return typer.Option(*names.split(" "), help=help)


def argument(metavar: str, help: str) -> Any:  # noqa: A002 - typer's name
    """Return a positional argument whose default is not shown."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


Resource = Annotated[
    str,
    argument(
        "RESOURCE", "The base path of a table, or any other path or URI: file, s3, gs or abfss."
    ),
]
TableUri = Annotated[
    str, argument("URI", "The base path of the table: a path, or a URI with file, s3, gs or abfss.")
]
Props = Annotated[
    list[str] | None,
    option(
        "--prop KEY=VALUE",
        "A setting, by its hoodie.* or tidelock.* key. May be repeated; overrides --props.",
    ),
]
PropsFile = Annotated[
    str | None,
    option(
        "--props FILE",
        "A Java properties file with settings: a path, or a URI with file, s3, gs or abfss.",
    ),
]
_Service = Annotated[
    str | None,
    option(
        "--service URL", "Use the lock RESOURCE of the lock service at this URL (`tidelock serve`)."
    ),
]
Json = Annotated[bool, flag("--json", "Write JSON, one object per line.")]


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """The settings of a command, and the form of its output."""

    props: Props = None
    props_file: PropsFile = None
    as_json: Json = False

    def settings(self) -> dict[str, object]:
        """Return the settings of the file, overridden by single ones.

        Raises: `ConfigInvalid`, `NotFound`.
        """
        return given_settings(self.props, self.props_file)

    def target(self, uri: str, *, any_provider: bool = False) -> LockTarget:
        """Return the lock to work on; `any_provider` allows providers other than the storage lock.

        Raises: `ConfigInvalid`, `NotFound`.
        """
        settings = self.settings()
        reject_unknown_keys(settings)
        _refuse_other_provider(settings, any_provider=any_provider)
        return LockTarget(uri, settings, LockSettings.read(settings))

    @property
    def output(self) -> Output:
        """The output of the command."""
        return Output(as_json=self.as_json)


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(CommonOptions):
    """The options of a table service."""

    extra: Annotated[
        list[str] | None,
        option(
            "-O --option KEY=VALUE",
            "A setting of the service, by its hoodie.* key. May be repeated.",
        ),
    ] = None

    def settings(self) -> dict[str, object]:
        """Return the settings, overridden by those of `-O`."""
        return {**super().settings(), **key_values(self.extra, "-O")}


@dataclass(frozen=True, kw_only=True)
class ProviderOptions(CommonOptions):
    """The options of a lock command that accepts any provider."""

    service: _Service = None

    def settings(self) -> dict[str, object]:
        """Return the settings; `--service` names a provider."""
        found = super().settings()
        if self.service is not None:
            found |= {PROVIDER.key: SERVICE, config.SERVICE_URL.key: self.service}
        return found


@dataclass(frozen=True, kw_only=True)
class AcquireOptions(ProviderOptions):
    """The options of a command that acquires a lock."""

    wait: Annotated[
        float | None,
        option(
            "--wait SECONDS",
            "How long to wait for the lock; inf waits forever."
            f" [default: {WAIT_TIME_MS.key}, {WAIT_TIME_MS.required({}) / 1000:g} s]",
        ),
    ] = None
    no_wait: Annotated[bool, flag("--no-wait", "Try once and do not wait.")] = False
    # Declared again for their position in the help.
    service: _Service = None
    props: Props = None
    props_file: PropsFile = None
    validity: Annotated[
        int | None,
        option(
            "--validity SECONDS",
            f"How long the lock is valid without renewal; at least {VALIDITY_S_MIN}."
            f" [default: {VALIDITY_S.default}]",
        ),
    ] = None
    renew: Annotated[
        int | None,
        option(
            "--renew SECONDS",
            f"The renewal interval; at most a tenth of the validity. [default: {RENEW_S.default}]",
        ),
    ] = None

    def settings(self) -> dict[str, object]:
        """Return the settings, with those of the lease."""
        found = super().settings()
        if self.validity is not None:
            found[VALIDITY_S.key] = self.validity
            if self.service is not None:
                found[config.TTL_MS.key] = self.validity * 1000
            if self.renew is None and RENEW_S.value(found) == RENEW_S.default:
                found[RENEW_S.key] = max(
                    1, min(RENEW_S.required({}), self.validity // RENEWALS_PER_VALIDITY)
                )
        if self.renew is not None:
            found[RENEW_S.key] = self.renew
        return found

    def wait_s(self, target: LockTarget) -> float | None:
        """Return how long to wait for the lock; None waits forever."""
        if self.no_wait:
            if self.wait is not None:
                raise InvalidInput(
                    "--wait and --no-wait: cannot be used together", hint="remove one of them"
                )
            return 0.0
        if self.wait is None:
            return target.lock_settings.wait_time_ms / 1000
        return None if self.wait == float("inf") else self.wait


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer: parameters that are dataclasses are replaced by their fields.

    The fields of a subclass come before those of its base class.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _parameters(groups[name]) if name in groups else [parameter]

    @functools.wraps(command)
    def run(**values: object) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__doc__ = _help_text(command.__doc__ or "")
    return run


def _help_text(doc: str) -> str:
    """Return a docstring as help: indented blocks are marked with a backspace.

    The mark is click's: it does not wrap the lines of such a block.
    """
    return re.sub(r"\n\n(?=    )", "\n\n\b\n", inspect.cleandoc(doc))


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    defaults = {field.name: field.default for field in fields(group)}
    names = dict.fromkeys(name for each in group.__mro__ for name in inspect.get_annotations(each))
    for name in names:
        default = inspect.Parameter.empty if defaults[name] is MISSING else defaults[name]
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(name, kind, default=default, annotation=hints[name])


@dataclass(frozen=True, slots=True)
class LockTarget:
    """A resource and the settings of its lock."""

    uri: str
    settings: Mapping[str, object]
    lock_settings: LockSettings

    @property
    def lease(self) -> Lease:
        """The lease that all contenders for this lock use."""
        return self.lock_settings.lease

    @property
    def clock(self) -> Clock:
        """The clock of this machine."""
        return SystemClock()

    @contextmanager
    def store(self) -> Iterator[ObjectStore]:
        """Open the store whose root is the resource; close it at the end."""
        with closing(open_store(self.uri, self.settings)) as store:
            yield store

    @property
    def provider_lock(self) -> ProviderLock | None:
        """The lock of a provider other than the storage lock, if the settings name one."""
        if is_storage(provider_name(self.settings)):
            return None
        return ProviderLock(self.uri, self.settings)

    def lock(self) -> AnyLock:
        """Return the lock of the resource without acquiring it."""
        return self.provider_lock or lock(self.uri, settings=self.settings)


def key_values(pairs: Sequence[str] | None, option: str) -> dict[str, object]:
    """Parse the KEY=VALUE pairs of a repeated option. Raises: `ConfigInvalid`."""
    found: dict[str, object] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigInvalid(
                f"{option}: expected KEY=VALUE, got {pair!r}",
                hint=f"for example {option} hoodie.write.lock.wait_time_ms=10000",
            )
        found[key.strip()] = value
    return found


def given_settings(
    props: Sequence[str] | None, props_file: str | None, *, option: str = "--prop"
) -> dict[str, object]:
    """Return the settings of the file, overridden by those of `option`.

    Raises: `ConfigInvalid`, `NotFound`.
    """
    single = key_values(props, option)
    if props_file is None:
        return single
    return {**read_properties(props_file, single), **single}


def check_seconds(option: str, seconds: float | None, *, least: float = 0) -> None:
    """Raise `InvalidInput` if the value of an option is less than `least`."""
    if seconds is not None and not seconds >= least:
        raise InvalidInput(
            f"{option}: expected {least:g} or more seconds, got {seconds:g}",
            hint=f"use a value of {least:g} or more",
        )


def _refuse_other_provider(settings: Mapping[str, object], *, any_provider: bool) -> None:
    """Reject settings of a writer that uses another lock: this lock would not exclude it."""
    name = provider_name(settings)
    if name is None or is_storage(name):
        return
    class_path_of(name)
    if not any_provider:
        raise ConfigInvalid(
            f"{PROVIDER.key}: this command requires the storage lock, got {name!r}",
            hint="use run, acquire, status or force-release, which accept any provider",
        )
