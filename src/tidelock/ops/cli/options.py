"""The arguments and options that commands share, and the settings they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import ConfigInvalid, InvalidInput
from tidelock.lock.config import PROVIDER, RENEW_S, VALIDITY_S, LockSettings
from tidelock.lock.lease import Lease
from tidelock.lock.opening import lock, refuse_unknown
from tidelock.lockproviders import keys
from tidelock.lockproviders.registry import SERVICE, is_storage, place_of, provider_name
from tidelock.ops.cli.anylock import AnyLock, ProviderLock
from tidelock.ops.cli.properties import read_properties
from tidelock.store.contract import ObjectStore
from tidelock.store.uri import open_store

Resource = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="A table's base path, or any other path or URI: file, s3, gs or abfss.",
        show_default=False,
    ),
]
TableUri = Annotated[
    str,
    typer.Argument(
        metavar="URI",
        help="A table's base path: a path, or a URI with file, s3, gs or abfss.",
        show_default=False,
    ),
]
Props = Annotated[
    list[str] | None,
    typer.Option(
        "--prop",
        metavar="KEY=VALUE",
        help="A setting by Hudi's name or ours. May be repeated; wins over --props.",
        show_default=False,
    ),
]
PropsFile = Annotated[
    str | None,
    typer.Option(
        "--props",
        metavar="FILE",
        help="A Java properties file with settings: a path, or a URI with file, s3, gs or abfss.",
        show_default=False,
    ),
]
Validity = Annotated[
    int | None,
    typer.Option(
        "--validity",
        metavar="SECONDS",
        help="How long the lock is valid without renewal: 10 or more. [default: 300]",
        show_default=False,
    ),
]
Renew = Annotated[
    int | None,
    typer.Option(
        "--renew",
        metavar="SECONDS",
        help="How often it is renewed: at most a tenth of the validity. [default: 30]",
        show_default=False,
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        help="How long to wait for the lock; inf waits for ever."
        " [default: hoodie.write.lock.wait_time_ms, 60 s]",
        show_default=False,
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="URL",
        help="Take the lock RESOURCE of the lock service there (`tidelock serve`).",
        show_default=False,
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Try once, do not wait.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, one object to a line.")]


@dataclass(frozen=True, slots=True)
class Target:
    """A resource and the settings to reach its lock with."""

    uri: str
    settings: Mapping[str, object]
    read: LockSettings

    @property
    def lease(self) -> Lease:
        """The terms that contenders for this lock agree on."""
        return self.read.lease

    @property
    def clock(self) -> Clock:
        """The clock of this machine."""
        return SystemClock()

    def store(self) -> ObjectStore:
        """Open the store whose root is the resource."""
        return open_store(self.uri, self.settings)

    @property
    def elsewhere(self) -> ProviderLock | None:
        """The lock of another provider than the storage lock, if the settings name one."""
        if is_storage(provider_name(self.settings)):
            return None
        return ProviderLock(self.uri, self.settings)

    def lock(self) -> AnyLock:
        """Return the lock of the resource, not yet acquired."""
        return self.elsewhere or lock(self.uri, settings=self.settings)

    def wait_s(self, wait: float | None, *, no_wait: bool) -> float | None:
        """Return how long to wait for the lock; None is for ever."""
        if no_wait:
            if wait is not None:
                raise InvalidInput("--wait and --no-wait exclude each other")
            return 0.0
        if wait is None:
            return self.read.wait_time_ms / 1000
        return None if wait == float("inf") else wait


def given_settings(
    props: Sequence[str] | None, props_file: str | None, *, option: str = "--prop"
) -> dict[str, object]:
    """Return the settings of the file, overlaid by those of `--prop`, or what it is called.

    Raises: `ConfigInvalid`, `NotFound`.
    """
    single: dict[str, object] = {}
    for prop in props or ():
        name, found, value = prop.partition("=")
        if not found or not name.strip():
            raise ConfigInvalid(f"{option} {prop!r} is not KEY=VALUE")
        single[name.strip()] = value
    if props_file is None:
        return single
    return {**read_properties(props_file, single), **single}


def target(
    uri: str,
    props: Sequence[str] | None,
    props_file: str | None,
    validity: int | None = None,
    renew: int | None = None,
    *,
    any_provider: bool = False,
    service: str | None = None,
) -> Target:
    """Put the settings together: the file, then `--prop`, then the options of their own.

    With `any_provider` the settings may name another one than the storage lock; `service` does.
    Raises: `ConfigInvalid`, `NotFound`.
    """
    settings = given_settings(props, props_file)
    if service is not None:
        settings |= {PROVIDER.key: SERVICE, keys.SERVICE_URL.key: service}
        if validity is not None:
            settings[keys.TTL_MS.key] = validity * 1000
    if validity is not None:
        settings[VALIDITY_S.key] = validity
        if renew is None and RENEW_S.value(settings) == RENEW_S.default:
            settings[RENEW_S.key] = max(1, min(30, validity // 10))
    if renew is not None:
        settings[RENEW_S.key] = renew
    refuse_unknown(settings)
    _refuse_other_provider(settings, any_provider=any_provider)
    return Target(uri, settings, LockSettings.read(settings))


def _refuse_other_provider(settings: Mapping[str, object], *, any_provider: bool) -> None:
    """Refuse settings of a writer that locks elsewhere: this lock would keep nobody out."""
    name = provider_name(settings)
    if name is None or is_storage(name):
        return
    place_of(name)
    if not any_provider:
        raise ConfigInvalid(
            f"{PROVIDER.key} = {name!r} is not the storage lock, which this command is about",
            hint="run, acquire, status and force-release take any provider",
        )
