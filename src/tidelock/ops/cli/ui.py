"""`tidelock ui`: a page that shows tables at work, served from this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.clock import SystemClock
from tidelock.base.errors import ConfigInvalid, InvalidInput
from tidelock.base.ids import SystemIds
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output
from tidelock.ops.cli.stopping import Stopping
from tidelock.store.uri import open_store

if TYPE_CHECKING:
    from tidelock.lockservice.auth import Doorkeeper
    from tidelock.ops.ui.routes import Dashboard, Shown

Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="URI...",
        help="Base paths of tables: paths, or URIs with file, s3, gs or abfss.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
Port = Annotated[int, typer.Option("--port", metavar="PORT", help="0: any free one.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="HOST",
        help="A name by which browsers come here, beside the address. May be repeated.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A token of an operator, who may then act. Without it the page only shows.",
        show_default=False,
    ),
]
Principals = Annotated[
    Path | None,
    typer.Option(
        "--principals",
        metavar="FILE",
        help="JSON: people with a token each, and read, force or admin for permissions.",
        show_default=False,
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen on other addresses without token or TLS.")
]
TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="Certificate chain.", show_default=False),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its private key.", show_default=False),
]


def ui(
    tables: Tables,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8410,
    name: Names = None,
    token_file: TokenFile = None,
    principals: Principals = None,
    insecure: Insecure = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Serve a page that shows tables at work: timeline, writers, lock, plans, conflicts, files.

    It reads only what changed, and nothing while nobody looks. With a token an operator may cancel
    a plan, release a lock and run a service there; without one the page changes nothing.

    Other addresses than this machine's need a token and TLS; then looking needs the token, too.
    Ends with Ctrl-C.

        tidelock ui s3://lake/orders s3://lake/customers
    """
    from tidelock.lockservice.auth import is_loopback
    from tidelock.ops.ui.serving import Place, served

    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key go together")
    door = _door(token_file, principals)
    public = not is_loopback(host)
    if public and not insecure and (door is None or tls_cert is None):
        raise ConfigInvalid(
            f"--host {host} can be reached from elsewhere, which needs a token and TLS",
            hint="give --token-file or --principals, --tls-cert and --tls-key; or --insecure",
        )
    settings = options.given_settings(props, props_file)
    place = Place(host, port, tuple(name or ()), tls_cert, tls_key)
    output = Output(as_json=as_json)
    with ExitStack() as stack:
        shown = [_opened(stack, uri, settings) for uri in tables]
        dashboard = _dashboard(shown, door, looks_freely=not public or insecure)
        url = stack.enter_context(served(dashboard, place))
        stopping = stack.enter_context(Stopping())
        stopping.note_only()
        says = Text(f"{url}  shows {len(shown)} tables; Ctrl-C ends it")
        output.result({"event": "serving", "url": url, "acts": door is not None}, says)
        stopping.wait(None)


def _opened(stack: ExitStack, uri: str, settings: Mapping[str, object]) -> Shown:
    from tidelock.ops.ui.acting import Hands
    from tidelock.ops.ui.layout import Layout
    from tidelock.ops.ui.routes import Shown
    from tidelock.ops.ui.watching import TableWatch

    clock = SystemClock()
    store = open_store(uri, settings)
    stack.callback(store.close)
    watch = TableWatch(store, clock, settings=settings)
    _ = watch.properties  # a table that is not there is an error now, not on the page
    return Shown(watch, Layout(watch), Hands(watch, clock, settings))


def _dashboard(shown: list[Shown], door: Doorkeeper | None, *, looks_freely: bool) -> Dashboard:
    from tidelock.ops.ui.routes import Dashboard
    from tidelock.ops.ui.sessions import Sessions

    ids = SystemIds()
    sessions = Sessions(SystemClock(), ids, door, looks_freely=looks_freely)
    return Dashboard(shown, sessions, ids.uuid())


def _door(token_file: Path | None, principals: Path | None) -> Doorkeeper | None:
    from tidelock.lockservice import auth

    clock = SystemClock()
    if principals is not None:
        if token_file is not None:
            raise InvalidInput("--principals and --token-file exclude each other")
        return auth.Doorkeeper(clock, auth.read_principals(principals))
    if token_file is None:
        return None
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{token_file} cannot be read: {error}") from error
    if not token:
        raise ConfigInvalid(f"{token_file} is empty", hint="put a random token of 32 bytes into it")
    operator = auth.Principal("operator", "", frozenset({auth.Permission.ADMIN}))
    return auth.Doorkeeper(clock, {auth.token_hash(token): operator})
