"""`tidelock serve`: the lock service, with the Dapr lock API over HTTP and gRPC."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.clock import SystemClock
from tidelock.base.errors import ConfigInvalid, InvalidInput, MissingExtra
from tidelock.base.ids import SystemIds
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output

if TYPE_CHECKING:
    from tidelock.lockservice.auth import Doorkeeper

_TOKEN_VARIABLES = ("TIDELOCK_API_TOKEN", "DAPR_API_TOKEN")

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URI",
        help="Where locks are kept: a folder, s3, gs or abfss."
        " [default: tidelock/lockservice in the user's state folder]",
        show_default=False,
    ),
]
Components = Annotated[
    Path | None,
    typer.Option(
        "--components",
        metavar="PATH",
        help="A Dapr component file, or a folder of them. Without: one store named lockstore.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
HttpPort = Annotated[int, typer.Option("--http-port", metavar="PORT", help="0: any free one.")]
GrpcPort = Annotated[int, typer.Option("--grpc-port", metavar="PORT", help="0: any free one.")]
AppId = Annotated[
    str, typer.Option("--app-id", metavar="ID", help="Part of every key, as in Dapr.")
]
AppHealthUrl = Annotated[
    str | None,
    typer.Option(
        "--app-health",
        metavar="URL",
        help="Asked every few seconds; while it fails, locks are not renewed.",
        show_default=False,
    ),
]
AppHealthEvery = Annotated[
    float, typer.Option("--app-health-interval", metavar="SECONDS", help="How often to ask.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--api-token-file",
        metavar="FILE",
        help="The API token that clients must send; or TIDELOCK_API_TOKEN, or DAPR_API_TOKEN.",
        show_default=False,
    ),
]
Principals = Annotated[
    Path | None,
    typer.Option(
        "--principals",
        metavar="FILE",
        help="JSON: clients with a token, a namespace and permissions each.",
        show_default=False,
    ),
]
AllowForce = Annotated[
    bool, typer.Option("--allow-force", help="Let clients without --principals force locks.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen on other addresses without token or TLS.")
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="A name by which clients without a token come here, beside the address. May be"
        " repeated.",
        show_default=False,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="Certificate chain.", show_default=False),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its private key.", show_default=False),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca",
        metavar="FILE",
        help="Authorities of client certificates, which are then required.",
        show_default=False,
    ),
]
AuditFile = Annotated[
    Path | None,
    typer.Option(
        "--audit-file",
        metavar="FILE",
        help="Append every grant, release and steal as a line of JSON, chained by hashes.",
        show_default=False,
    ),
]


def serve(
    *,
    store: Store = None,
    components: Components = None,
    host: Host = "127.0.0.1",
    http_port: HttpPort = 3500,
    grpc_port: GrpcPort = 50001,
    app_id: AppId = "",
    app_health: AppHealthUrl = None,
    app_health_interval: AppHealthEvery = 5.0,
    api_token_file: TokenFile = None,
    principals: Principals = None,
    allow_force: AllowForce = False,
    insecure: Insecure = False,
    name: Names = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    audit_file: AuditFile = None,
    as_json: options.Json = False,
) -> None:
    """Serve locks over HTTP and gRPC.

    Any program can then take locks: with curl, with a Dapr SDK, or with tidelock's own client. The
    default keeps its locks in a local folder and answers on this machine only.

    Ends with SIGTERM or Ctrl-C: who waits is told, streams end, other locks are left to expire.
    After a crash a restart on the same store knows every lock, and grants none of them twice.

        tidelock serve --store s3://lake/locks --api-token-file /run/secrets/token
    """
    try:
        from tidelock.lockservice.grpc import Credentials
        from tidelock.lockservice.health import AppHealth
        from tidelock.lockservice.server import Addresses, Serving, run
    except ImportError as error:
        raise MissingExtra(
            f"the lock service needs {error.name}", hint="pip install 'tidelock[serve]'"
        ) from error
    from tidelock.lockservice.specs import DEFAULT_NAME, OWN_TYPE, Spec, read_specs

    output = Output(as_json=as_json)
    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key go together")
    tls = Credentials(tls_cert, tls_key, tls_client_ca) if tls_cert and tls_key else None
    specs = [Spec(DEFAULT_NAME, OWN_TYPE)]
    if components is not None:
        specs = read_specs(components, app_id=app_id)
    serving = Serving(
        specs=specs,
        state_uri=store or _default_store(),
        door=_door(api_token_file, principals, allow_force=allow_force),
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        app_id=app_id,
        tls=tls,
        app_health=AppHealth(app_health, app_health_interval) if app_health else None,
        audit_file=audit_file,
        insecure=insecure,
        names=tuple(name or ()),
    )

    def ready(at: Addresses) -> None:
        facts = {"event": "serving", "host": at.host}
        ports = {"http_port": at.http_port, "grpc_port": at.grpc_port}
        says = Text(f"serving locks: HTTP on {at.host}:{at.http_port}, gRPC on port {at.grpc_port}")
        output.result({**facts, **ports, "stores": [spec.name for spec in specs]}, says)

    run(serving, clock=SystemClock(), ids=SystemIds(), ready=ready)


def _door(token_file: Path | None, principals: Path | None, *, allow_force: bool) -> Doorkeeper:
    from tidelock.lockservice import auth

    clock = SystemClock()
    if principals is not None:
        if token_file is not None:
            raise InvalidInput("--principals and --api-token-file exclude each other")
        return auth.Doorkeeper(clock, auth.read_principals(principals))
    token = _token(token_file)
    if token:
        return auth.Doorkeeper(clock, auth.single_token(token, may_force=allow_force))
    granted = auth.USUAL | {auth.Permission.FORCE} if allow_force else auth.USUAL
    return auth.Doorkeeper(clock, anybody=auth.Principal("anybody", "", granted))


def _token(token_file: Path | None) -> str:
    if token_file is None:
        return next((os.environ[name] for name in _TOKEN_VARIABLES if os.environ.get(name)), "")
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{token_file} cannot be read: {error}") from error
    if not token:
        raise ConfigInvalid(f"{token_file} is empty", hint="put a random token of 32 bytes into it")
    return token


def _default_store() -> str:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(base) / "tidelock" / "lockservice")
