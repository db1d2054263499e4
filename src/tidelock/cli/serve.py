"""`tidelock serve`: the lock service, with the Dapr lock API over HTTP and gRPC."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from tidelock.cli import options, server_options
from tidelock.cli.options import flag, option
from tidelock.cli.output import Output
from tidelock.core.system import SystemClock, SystemIds

if TYPE_CHECKING:
    from tidelock.lock.server.auth import Authenticator

_TOKEN_VARIABLES = ("TIDELOCK_API_TOKEN", "DAPR_API_TOKEN")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `tidelock serve`."""

    store: Annotated[
        str | None,
        option(
            "--store URI",
            "Where to store locks: a path, or a URI with s3, gs or abfss."
            " [default: tidelock/lockservice in the user's state folder]",
        ),
    ] = None
    components: Annotated[
        Path | None,
        option(
            "--components PATH",
            "Dapr component file, or a folder of them. [default: one store named lockstore]",
        ),
    ] = None
    host: server_options.Host = "127.0.0.1"
    http_port: Annotated[
        int, option("--http-port PORT", "HTTP port; 0 for any free one.", show_default=True)
    ] = 3500
    grpc_port: Annotated[
        int, option("--grpc-port PORT", "gRPC port; 0 for any free one.", show_default=True)
    ] = 50001
    app_id: Annotated[
        str, option("--app-id ID", "Prefix of every key, as in Dapr.", show_default=True)
    ] = ""
    app_health: Annotated[
        str | None,
        option(
            "--app-health URL",
            "Health check of the application; while it fails, locks are not renewed.",
        ),
    ] = None
    app_health_interval: Annotated[
        float,
        option("--app-health-interval SECONDS", "Interval of the health check.", show_default=True),
    ] = 5.0
    api_token_file: Annotated[
        Path | None,
        option(
            "--api-token-file FILE",
            "API token that clients must send. [env: TIDELOCK_API_TOKEN, DAPR_API_TOKEN]",
        ),
    ] = None
    principals: Annotated[
        Path | None,
        option(
            "--principals FILE",
            "JSON file of clients, each with a token, a namespace and permissions.",
        ),
    ] = None
    allow_force: Annotated[
        bool, flag("--allow-force", "Permit forced unlocks where --principals is not used.")
    ] = False
    insecure: server_options.Insecure = False
    name: Annotated[
        list[str] | None,
        option(
            "--name NAME",
            "Host name that clients without a token may use, besides the address. Repeatable.",
        ),
    ] = None
    tls_cert: server_options.TlsCert = None
    tls_key: server_options.TlsKey = None
    tls_client_ca: Annotated[
        Path | None,
        option("--tls-client-ca FILE", "CA of client certificates, which are then required."),
    ] = None
    audit_file: Annotated[
        Path | None,
        option(
            "--audit-file FILE",
            "Append every grant and release as a line of JSON, in a hash chain.",
        ),
    ] = None
    as_json: options.Json = False


def serve(*, given: ServeOptions) -> None:
    """Serve locks over HTTP and gRPC.

    Any program can acquire locks: with curl, with a Dapr SDK, or with the tidelock client. By
    default, locks are stored in a local folder and the service listens on this machine only.

    Stop it with SIGTERM or Ctrl-C: waiting clients get an error, streams end, and other locks
    expire. After a crash, a restart on the same store recovers every lock and grants none twice.

        tidelock serve --store s3://lake/locks --api-token-file /run/secrets/token
    """
    try:
        from tidelock.lock.server.health import AppHealth
        from tidelock.lock.server.process import BoundAddresses, ServerConfig, run
    except ImportError as error:
        raise server_options.missing_extra(error) from error
    from tidelock.lock.server.component import DEFAULT_NAME, OWN_TYPE, ComponentSpec, read_specs

    output = Output(as_json=given.as_json)
    specs = [ComponentSpec(DEFAULT_NAME, OWN_TYPE)]
    if given.components is not None:
        specs = read_specs(given.components, app_id=given.app_id)
    config = ServerConfig(
        specs=specs,
        state_uri=given.store or _default_store(),
        authenticator=_authenticator(given),
        host=given.host,
        http_port=given.http_port,
        grpc_port=given.grpc_port,
        app_id=given.app_id,
        tls=server_options.tls_files(given.tls_cert, given.tls_key, given.tls_client_ca),
        app_health=AppHealth(given.app_health, given.app_health_interval)
        if given.app_health
        else None,
        audit_file=given.audit_file,
        insecure=given.insecure,
        names=tuple(given.name or ()),
    )

    def ready(at: BoundAddresses) -> None:
        facts = {"event": "serving", "host": at.host}
        ports = {"http_port": at.http_port, "grpc_port": at.grpc_port}
        text = Text(f"serving locks: HTTP on {at.host}:{at.http_port}, gRPC on port {at.grpc_port}")
        output.result({**facts, **ports, "stores": [spec.name for spec in specs]}, text)

    run(config, clock=SystemClock(), ids=SystemIds(), ready=ready)


def _authenticator(given: ServeOptions) -> Authenticator:
    from tidelock.lock.server import auth

    known = server_options.principals_authenticator(
        given.principals, given.api_token_file, "--api-token-file"
    )
    if known is not None:
        return known
    clock = SystemClock()
    token = _token(given.api_token_file)
    if token:
        return auth.Authenticator(clock, auth.single_token(token, may_force=given.allow_force))
    permissions = auth.DEFAULT_PERMISSIONS
    if given.allow_force:
        permissions |= {auth.Permission.FORCE}
    return auth.Authenticator(clock, anonymous=auth.Principal("anybody", "", permissions))


def _token(token_file: Path | None) -> str:
    if token_file is not None:
        return server_options.read_token(token_file)
    return next((os.environ[name] for name in _TOKEN_VARIABLES if os.environ.get(name)), "")


def _default_store() -> str:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(base) / "tidelock" / "lockservice")
