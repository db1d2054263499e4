"""The Kubernetes API server, built from source, with an etcd.

The build takes ten minutes and needs a Go toolchain, so it is started explicitly:
`python -m testkit.servers kubernetes`. Without it, the tests of Leases run only on
`testkit.servers.lease_api`.
"""

from __future__ import annotations

import re
import secrets
import shutil
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from testkit.servers.cache import Installer, ToolCache
from testkit.servers.etcd import etcd
from testkit.servers.go import toolchain
from testkit.servers.process import HOST, Launch, ServerProcess, start
from testkit.servers.unavailable import ServerUnavailable

VERSION = "1.34.4"
_MODULE = "k8s.io/kubernetes"
_PROGRAM = f"{_MODULE}/cmd/kube-apiserver"
_PEER = Path(__file__).parent / "lease_peer.go"
_BUILD_DEADLINE_S = 2_400.0
_NEEDS_GO = (1, 24)


@dataclass(frozen=True, slots=True)
class KubernetesServer:
    """A running API server: its URL, and the files with its CA certificate and a token."""

    name: str
    endpoint: str
    ca_file: Path
    token_file: Path
    lease_peer: Path
    """The program that acquires a Lease with client-go's leader election."""

    process: ServerProcess

    def stop(self) -> None:
        """Kill the server and remove its data."""
        self.process.stop()


def install(cache: ToolCache) -> Path:
    """Return the folder with `kube-apiserver` and `lease-peer`. The first build takes minutes."""
    installer = Installer(
        "kubernetes", how_to_install="install Go 1.24 or later; the build takes ten minutes"
    )

    def build(target: Path) -> None:
        go = toolchain(cache, installer, _NEEDS_GO)
        work = target / "work"
        work.mkdir()
        env = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        (work / "go.mod").write_text(f"module build\n\ngo 1.24.0\n\nrequire {_MODULE} v{VERSION}\n")
        listed = installer.download(
            [go, "mod", "download", "-json", f"{_MODULE}@v{VERSION}"], cwd=work, env=env
        )
        own = re.search(r'"GoMod": "([^"]+)"', listed)
        if own is None:
            raise installer.unavailable("the module cache does not contain its go.mod")
        # The parts of Kubernetes are separate modules, which it replaces by folders of its tree.
        own_parts = re.compile(r"^\s+(k8s\.io/[a-z-]+) => \./staging", re.MULTILINE)
        parts = own_parts.findall(Path(own[1]).read_text())
        with (work / "go.mod").open("a") as module:
            minor = VERSION.removeprefix("1.")
            module.writelines(f"replace {part} => {part} v0.{minor}\n" for part in parts)
        shutil.copy(_PEER, work / "main.go")
        command: list[str | Path] = [go, "build", "-mod=mod", "-trimpath", "-ldflags=-s -w"]
        for name, program in (("kube-apiserver", _PROGRAM), ("lease-peer", ".")):
            installer.run(
                [*command, "-o", target / name, program],
                cwd=work,
                env=env,
                deadline_s=_BUILD_DEADLINE_S,
            )

    return cache.tool("kubernetes", VERSION, build)


@contextmanager
def kubernetes(cache: ToolCache | None = None) -> Iterator[KubernetesServer]:
    """Run an API server and its etcd for the duration of the block."""
    kept = cache or ToolCache.default()
    home = kept.installed("kubernetes", VERSION)
    if home is None:
        raise ServerUnavailable(
            "kubernetes",
            reason="its API server has not been built on this machine",
            how_to_install="run `python -m testkit.servers kubernetes` (ten minutes)",
        )
    binary = home / "kube-apiserver"
    installer = Installer("kubernetes", how_to_install="install openssl")
    with ExitStack() as stack:
        behind = stack.enter_context(etcd(kept))
        token = secrets.token_hex(16)

        def plan(home: Path, ports: Sequence[int]) -> Launch:
            (home / "tokens.csv").write_text(f'{token},tester,1,"system:masters"\n')
            (home / "token").write_text(token)
            key = home / "account.key"
            installer.run(["openssl", "genrsa", "-out", key, "2048"])
            options = {
                "etcd-servers": behind.endpoint,
                "bind-address": HOST,
                "advertise-address": HOST,
                "secure-port": ports[0],
                "cert-dir": home / "certs",
                "token-auth-file": home / "tokens.csv",
                "authorization-mode": "RBAC",
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": key,
                "service-account-signing-key-file": key,
                "service-cluster-ip-range": "10.0.0.0/24",
                "disable-admission-plugins": "ServiceAccount",
            }
            flags = [f"--{name}={value}" for name, value in options.items()]
            return Launch([binary, *flags], ready=lambda: _is_ready(home, ports[0], token))

        process, ports = start("kubernetes", plan, ports=1)
        stack.callback(process.stop)
        yield KubernetesServer(
            f"kube-apiserver {VERSION}",
            f"https://{HOST}:{ports[0]}",
            process.home / "certs" / "apiserver.crt",
            process.home / "token",
            home / "lease-peer",
            process,
        )


def _is_ready(home: Path, port: int, token: str) -> bool:
    """Return whether the default namespace exists, which the server creates when it is ready."""
    authority = home / "certs" / "apiserver.crt"
    if not authority.is_file():
        return False
    try:
        context = ssl.create_default_context(cafile=str(authority))
        connection = HTTPSConnection(HOST, port, timeout=2.0, context=context)
        try:
            path = "/api/v1/namespaces/default"
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            ready = connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, HTTPException):
        return False
    return ready
