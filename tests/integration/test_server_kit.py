"""How the test kit installs, starts and stops servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from testkit import plugin
from testkit.servers import Coordinates, RunningServer, ServerUnavailable, ToolCache, fetch_jars
from testkit.servers import cache as tool_cache
from testkit.servers.__main__ import main as install_command
from testkit.servers.cache import Installer
from testkit.servers.process import Launch, answers_http, answers_tcp, start
from tidelock.core.errors import InvalidInput

DEADLINE_S = 60.0
SERVE_FILES = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]


def file_server(_folder: Path, ports: Sequence[int]) -> Launch:
    return Launch(
        [*SERVE_FILES, str(ports[0])], ready=lambda: answers_http(ports[0], "/server.log")
    )


def poll(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_stopped_server_is_gone_with_its_files(tmp_path: Path) -> None:
    leftover = tmp_path / "socket"

    def plan(home: Path, ports: Sequence[int]) -> Launch:
        leftover.touch()
        launch = file_server(home, ports)
        return Launch(launch.command, ready=launch.ready, leftovers=[leftover])

    process, ports = start("files", plan, ports=1)
    assert process.home.is_dir()
    process.stop()
    process.stop()
    assert not answers_tcp(ports[0])
    assert not process.home.exists()
    assert not leftover.exists()


def test_server_outlives_the_thread_that_started_it() -> None:
    started: list[Callable[[], None]] = []
    ports: list[int] = []

    def run() -> None:
        process, chosen = start("files", file_server, ports=1)
        started.append(process.stop)
        ports.extend(chosen)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    try:
        assert answers_http(ports[0], "/server.log")
    finally:
        started[0]()


def test_server_dies_with_a_killed_test_process() -> None:
    program = """
import sys, time
sys.path[:0] = sys.argv[1:]
from test_server_kit import file_server
from testkit.servers.process import start
process, ports = start("files", file_server, ports=1)
print(ports[0], process.home, flush=True)
time.sleep(60)
"""
    here = str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", program, here, *sys.path], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        port, folder = child.stdout.readline().split()
        assert answers_tcp(int(port))
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert poll(lambda: not answers_tcp(int(port)))
    # No process was left to remove the directory.
    (Path(folder) / "server.log").unlink()
    Path(folder).rmdir()


def test_forked_child_does_not_stop_the_server_of_its_parent() -> None:
    process, ports = start("files", file_server, ports=1)
    try:
        child = os.fork()
        if child == 0:
            process.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert answers_http(ports[0], "/server.log")
    finally:
        process.stop()


def test_server_that_exits_shows_the_end_of_its_log() -> None:
    def plan(_folder: Path, _ports: Sequence[int]) -> Launch:
        return Launch([sys.executable, "-c", "exit('no such disk')"], ready=lambda: False)

    with pytest.raises(ServerUnavailable, match=r"(?s)broken is not.*code 1 .*no such disk"):
        start("broken", plan, ports=1)


def test_server_that_never_becomes_ready_times_out() -> None:
    def plan(_folder: Path, _ports: Sequence[int]) -> Launch:
        return Launch([sys.executable, "-c", "import time; time.sleep(60)"], ready=lambda: False)

    with pytest.raises(ServerUnavailable, match="was not ready"):
        start("mute", plan, ports=1, deadline_s=0.1)


@pytest.mark.parametrize(
    "says",
    [
        "bind: address already in use",
        "Port allocation failed: port 5 for S3 is not available on 127.0.0.1 and cannot be used",
    ],
)
def test_port_conflict_is_retried(says: str) -> None:
    tried: list[Sequence[int]] = []

    def plan(folder: Path, ports: Sequence[int]) -> Launch:
        tried.append(ports)
        if len(tried) == 1:
            return Launch([sys.executable, "-c", f"exit({says!r})"], ready=lambda: False)
        return file_server(folder, ports)

    process, ports = start("files", plan, ports=1)
    process.stop()
    assert tried[1:] == [ports]


def test_cache_installs_once_for_many_threads(tmp_path: Path) -> None:
    cache = ToolCache(tmp_path)
    installed: list[Path] = []
    seen: list[str] = []

    def install(target: Path) -> None:
        installed.append(target)
        (target / "tool").write_text("complete")

    barrier = threading.Barrier(8)

    def use() -> None:
        barrier.wait()
        seen.append((cache.tool("tool", "1", install) / "tool").read_text())

    threads = [threading.Thread(target=use) for _ in range(barrier.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["complete"] * barrier.parties
    assert len(installed) == 1
    assert sorted(path.name for path in (tmp_path / "tools" / "tool").iterdir()) == ["1", "1.lock"]


def test_cache_publishes_nothing_after_a_failed_installation(tmp_path: Path) -> None:
    cache = ToolCache(tmp_path)

    def fail(target: Path) -> None:
        (target / "half").touch()
        raise ServerUnavailable("tool", reason="no compiler", how_to_install="install one")

    with pytest.raises(ServerUnavailable, match=r"no compiler \(install one\)"):
        cache.tool("tool", "1", fail)
    assert cache.tool("tool", "1", lambda target: (target / "whole").touch()).is_dir()
    assert [path.name for path in (tmp_path / "tools/tool/1").iterdir()] == ["whole"]


def test_failed_download_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_cache, "_DOWNLOAD_PAUSE_S", 0.0)
    installer = Installer("tool", how_to_install="install one")
    twice = "echo >>tried; [ $(wc -l <tried) = 2 ] && echo fetched"
    assert installer.download(["sh", "-c", twice], cwd=tmp_path) == "fetched\n"
    with pytest.raises(ServerUnavailable, match="failed"):
        installer.download(["sh", "-c", "echo >>failed; exit 1"], cwd=tmp_path)
    assert (tmp_path / "failed").read_text() == "\n" * 3


def test_cache_root_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOCK_CACHE", str(tmp_path))
    assert ToolCache.default() == ToolCache(tmp_path)
    monkeypatch.delenv("TIDELOCK_CACHE")
    assert ToolCache.default().root == Path.home() / ".cache" / "tidelock"


@pytest.mark.parametrize(
    ("ci", "optional", "outcome"),
    [
        ("", False, pytest.skip.Exception),
        ("true", False, pytest.fail.Exception),
        ("true", True, pytest.skip.Exception),
    ],
)
def test_missing_server_skips_locally_and_fails_in_continuous_integration(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException], *, optional: bool
) -> None:
    monkeypatch.setenv("CI", ci)
    missing = ServerUnavailable("minio", reason="no Go", how_to_install="install Go")

    def serve() -> AbstractContextManager[RunningServer]:
        raise missing

    with pytest.raises(outcome, match=re.escape(str(missing))):
        next(plugin._served(serve, optional=optional))


def test_install_command_names_the_servers_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert install_command(["mongodb"]) == 2
    assert "unknown: mongodb; known: seaweedfs," in capsys.readouterr().out


def test_install_command_reports_each_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert install_command(["seaweedfs"]) == 0
    assert re.fullmatch(r"seaweedfs +\d+\.\d s  ready\n", capsys.readouterr().out)


@pytest.mark.parametrize("text", ["", "a:b", "a:b:c:d", "a::c"])
def test_coordinates_need_three_parts(text: str) -> None:
    with pytest.raises(InvalidInput, match="group:artifact:version"):
        Coordinates.parse(text)


def test_jars_are_resolved_with_dependencies_and_without_exclusions() -> None:
    simple = Coordinates.parse("org.slf4j:slf4j-simple:2.0.16")
    alone = Coordinates(simple.group, simple.artifact, simple.version, ("org.slf4j:slf4j-api",))
    try:
        jars, fewer = fetch_jars([simple]), fetch_jars([alone])
    except ServerUnavailable as error:
        pytest.skip(str(error))
    assert [jar.name for jar in jars] == ["slf4j-api-2.0.16.jar", "slf4j-simple-2.0.16.jar"]
    assert [jar.name for jar in fewer] == ["slf4j-simple-2.0.16.jar"]
