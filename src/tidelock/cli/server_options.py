"""Options, checks and steps that `tidelock serve`, `ui` and `metrics` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from tidelock.cli.options import flag, option
from tidelock.cli.output import Output
from tidelock.cli.signals import Stopping
from tidelock.core.errors import ConfigInvalid, InvalidInput, MissingExtra
from tidelock.core.system import SystemClock
from tidelock.storage.uri import open_store

if TYPE_CHECKING:
    from tidelock.dashboard.watch import TableWatch
    from tidelock.lock.server.asgi_server import TlsFiles
    from tidelock.lock.server.auth import Authenticator

Host = Annotated[str, option("--host ADDRESS", "Address to listen on.", show_default=True)]
Insecure = Annotated[bool, flag("--insecure", "Allow public addresses without token or TLS.")]
TlsCert = Annotated[Path | None, option("--tls-cert FILE", "Certificate chain.")]
TlsKey = Annotated[Path | None, option("--tls-key FILE", "Its private key.")]


def missing_extra(error: ImportError) -> MissingExtra:
    """Return the error for a server whose libraries are not installed."""
    return MissingExtra(
        f"this command requires {error.name}, which is not installed",
        hint="pip install 'tidelock[serve]'",
    )


def tls_files(
    certificate: Path | None, key: Path | None, client_ca: Path | None = None
) -> TlsFiles | None:
    """Return the TLS files; None without any. Raises: `InvalidInput` if one is missing."""
    from tidelock.lock.server.asgi_server import TlsFiles

    if (certificate is None) != (key is None):
        raise InvalidInput("--tls-cert and --tls-key: must be given together", hint="add the other")
    return TlsFiles(certificate, key, client_ca) if certificate and key else None


def principals_authenticator(
    principals: Path | None, token_file: Path | None, token_option: str
) -> Authenticator | None:
    """Return an authenticator for a principals file; None without one.

    Raises: `InvalidInput` if a token file is given as well; `ConfigInvalid`.
    """
    from tidelock.lock.server import auth

    if principals is None:
        return None
    if token_file is not None:
        raise InvalidInput(
            f"--principals and {token_option}: cannot be used together", hint="remove one of them"
        )
    return auth.Authenticator(SystemClock(), auth.read_principals(principals))


def read_token(path: Path) -> str:
    """Return the token in a file. Raises: `ConfigInvalid`."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigInvalid(
            f"{path}: cannot read the token: {error}", hint="check the path and its permissions"
        ) from error
    if not token:
        raise ConfigInvalid(f"{path}: the token is empty", hint="write 32 random bytes, as text")
    return token


def opened_watches(
    stack: ExitStack, uris: Sequence[str], settings: Mapping[str, object]
) -> list[TableWatch]:
    """Watch tables until the stack is closed. Raises: `NotFound` for a missing table."""
    from tidelock.dashboard.watch import TableWatch

    watches = []
    for uri in uris:
        store = stack.enter_context(closing(open_store(uri, settings)))
        watches.append(TableWatch(store, SystemClock(), settings=settings))
        _ = watches[-1].properties  # fail now if the table does not exist
    return watches


def serve_until_stopped(output: Output, facts: Mapping[str, object], text: str) -> None:
    """Report that a server is ready, and wait for a signal."""
    with Stopping() as stopping:
        stopping.record_only()
        output.result(facts, Text(text))
        stopping.wait(None)
