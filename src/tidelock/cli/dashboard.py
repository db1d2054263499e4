"""`tidelock ui`: serves the dashboard."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tidelock.cli import options, server_options
from tidelock.cli.options import argument, option
from tidelock.core.system import SystemClock, SystemIds

if TYPE_CHECKING:
    from tidelock.lock.server.auth import Authenticator


@dataclass(frozen=True, kw_only=True)
class DashboardOptions(options.CommonOptions):
    """The options of `tidelock ui`."""

    host: server_options.Host = "127.0.0.1"
    port: Annotated[int, option("--port PORT", "Port; 0 for any free one.", show_default=True)] = (
        8410
    )
    name: Annotated[
        list[str] | None,
        option("--name HOST", "Host name that browsers may use, besides the address. Repeatable."),
    ] = None
    token_file: Annotated[
        Path | None,
        option(
            "--token-file FILE",
            "Token that lets an operator act. Without it the dashboard is read-only.",
        ),
    ] = None
    principals: Annotated[
        Path | None,
        option(
            "--principals FILE",
            "JSON file of operators, each with a token and permissions: read, force, admin.",
        ),
    ] = None
    insecure: server_options.Insecure = False
    tls_cert: server_options.TlsCert = None
    tls_key: server_options.TlsKey = None


def ui(
    tables: Annotated[
        list[str],
        argument("URI...", "Base paths of tables: paths, or URIs with file, s3, gs or abfss."),
    ],
    *,
    given: DashboardOptions,
) -> None:
    """Serve a dashboard of tables.

    It shows their timelines, writers, locks, plans, conflicts and files.

    It reads only changes, and only while a page is open. With a token, an operator may cancel a
    plan, release a lock and run a service; without one, the dashboard is read-only.

    Addresses other than this machine's need a token and TLS; reading then needs the token as well.
    Stop it with Ctrl-C.

        tidelock ui s3://lake/orders s3://lake/customers
    """
    try:
        from tidelock.dashboard.app import Dashboard, ListenAddress, ShownTable, served
        from tidelock.lock.server.asgi_server import check_exposure
    except ImportError as error:
        raise server_options.missing_extra(error) from error
    from tidelock.dashboard.actions import ActionRunner
    from tidelock.dashboard.details import TableLayout
    from tidelock.dashboard.sessions import Sessions
    from tidelock.lock.server.auth import is_loopback

    tls = server_options.tls_files(given.tls_cert, given.tls_key)
    authenticator = _authenticator(given.token_file, given.principals)
    acts = authenticator is not None
    if not given.insecure:
        hint = "--token-file or --principals"
        check_exposure(given.host, requires_token=acts, tls=tls, hint=hint)
    settings, clock, ids = given.settings(), SystemClock(), SystemIds()
    sessions = Sessions(
        clock, ids, authenticator, public_reads=is_loopback(given.host) or given.insecure
    )
    with ExitStack() as stack:
        shown = [
            ShownTable(watch, TableLayout(watch), ActionRunner(watch, clock, settings))
            for watch in server_options.opened_watches(stack, tables, settings)
        ]
        address = ListenAddress(given.host, given.port, tuple(given.name or ()), tls)
        url = stack.enter_context(served(Dashboard(shown, sessions, ids.uuid()), address))
        server_options.serve_until_stopped(
            given.output,
            {"event": "serving", "url": url, "acts": acts},
            f"{url}  shows {len(shown)} tables; press Ctrl-C to stop",
        )


def _authenticator(token_file: Path | None, principals: Path | None) -> Authenticator | None:
    from tidelock.lock.server import auth

    known = server_options.principals_authenticator(principals, token_file, "--token-file")
    if known is not None or token_file is None:
        return known
    operator = auth.Principal("operator", "", frozenset({auth.Permission.ADMIN}))
    token = server_options.read_token(token_file)
    return auth.Authenticator(SystemClock(), {auth.token_hash(token): operator})
