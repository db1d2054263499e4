"""Headless Chromium for tests of pages, over its DevTools protocol.

The protocol uses two pipes, so there is no port to choose and no client library to install, and the
browser exits with this process.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testkit.servers.cache import ToolCache
from testkit.servers.chromium import PROGRAM, install
from testkit.servers.unavailable import ServerUnavailable

_RESPONSE_TIMEOUT_S = 120.0
_POLL_S = 0.05
_FLAGS = (
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
)


class PageError(AssertionError):
    """The page raised an error, or was not as expected."""


@dataclass(slots=True)
class Page:
    """One tab. Collects logged errors and violations of the security policy."""

    _browser: _Browser
    _session: str
    errors: list[str] = field(default_factory=list)

    def open(self, url: str) -> None:
        """Open a URL and wait until it is loaded."""
        # A URL that only differs in its fragment would not load a new document.
        for target in ("about:blank", url):
            self._call("Page.navigate", url=target)
            self.until(f"location.href === {json.dumps(target)}")
        self.until("document.readyState === 'complete'")

    def reload(self) -> None:
        """Reload the page."""
        self.run("window.old = true")
        self._call("Page.reload")
        self.until("!window.old && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return the value of an expression, awaited if it is a promise."""
        found = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            description = found["exceptionDetails"].get("exception", {}).get("description", "")
            raise PageError(f"{script}: {description}")
        return found["result"].get("value")

    def until(self, script: str, *, within_s: float = 90.0) -> Any:
        """Wait until an expression is true, and return its value."""
        end = time.monotonic() + within_s
        while not (value := self._run_or_none(script)):
            if time.monotonic() > end:
                body = self.run("document.body ? document.body.innerText : ''")
                raise PageError(f"{script} was not true within {within_s} s; the page:\n{body}")
            time.sleep(_POLL_S)
        return value

    def _run_or_none(self, script: str) -> Any:
        try:
            return self.run(script)
        except PageError as error:
            if "navigated" in str(error) or "context" in str(error):
                return None  # the page is navigating
            raise

    def click(self, selector: str) -> None:
        """Click the center of an element with the mouse, once it stays where it is."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.until(f"!!{element}")
        self.run(f"{element}.scrollIntoView({{block: 'center'}})")
        # Parts of a page that load late move the others.
        place = (
            f"((e) => {{ window.lastPlace = window.place; if (!e) return (window.place = '');"
            " const b = e.getBoundingClientRect();"
            " window.place = `${b.left + b.width / 2},${b.top + b.height / 2}`;"
            f" return window.place === window.lastPlace && window.place; }})({element})"
        )
        self.run("window.place = ''")
        box = [float(number) for number in self.until(place).split(",")]
        for kind in ("mousePressed", "mouseReleased"):
            at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self._call("Input.dispatchMouseEvent", type=kind, **at)

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key, such as Escape or Enter."""
        code = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=code)

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Set the preferred color scheme, light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> None:
        """Save a screenshot as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        found = self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        found = self._browser.call(method, params, self._session)
        self.errors += self._browser.errors
        self._browser.errors.clear()
        return found


@contextmanager
def browser(cache: ToolCache | None = None) -> Iterator[Page]:
    """Run a browser for the duration of a `with` block; yield its page.

    Raises: `ServerUnavailable` if Chromium cannot be installed.
    """
    root = install(cache or ToolCache.default())
    home = Path(tempfile.mkdtemp(prefix="tidelock-chromium-"))
    running = _Browser.start(root, home)
    try:
        yield running.page()
    finally:
        running.stop()
        shutil.rmtree(home, ignore_errors=True)


@dataclass(slots=True)
class _Browser:
    process: subprocess.Popen[bytes]
    send: int
    receive: int
    unread: bytes = b""
    number: int = 0
    errors: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, root: Path, home: Path) -> _Browser:
        to_read, to_send = os.pipe()
        from_read, from_send = os.pipe()
        libraries = sorted({str(path.parent) for path in root.glob("usr/lib/**/*.so*")})
        # The browser expects its pipes as descriptors 3 and 4, which this process may use.
        command = ["bash", "-c", 'eval "exec 3<&$IN 4>&$OUT"; exec "$0" "$@"']
        log = (home / "log").open("wb")
        try:
            process = subprocess.Popen(
                [*command, str(root / PROGRAM), *_FLAGS, f"--user-data-dir={home}", "about:blank"],
                env={
                    **os.environ,
                    "LD_LIBRARY_PATH": ":".join(libraries),
                    "IN": str(to_read),
                    "OUT": str(from_send),
                    "HOME": str(home),
                },
                pass_fds=(to_read, from_send),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        finally:
            log.close()
            os.close(to_read)
            os.close(from_send)
        return cls(process, to_send, from_read)

    def page(self) -> Page:
        targets = self.call("Target.getTargets", {})["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable", {}, attached["sessionId"])
        return page

    def call(self, method: str, params: dict[str, Any], session: str = "") -> Any:
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        os.write(self.send, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + _RESPONSE_TIMEOUT_S
        while True:
            message = self._next(end, method)
            if message.get("id") == self.number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']}")
                return message["result"]
            self._collect_errors(message)

    def stop(self) -> None:
        with suppress(OSError, PageError, ServerUnavailable):
            self.call("Browser.close", {})
        for pipe in (self.send, self.receive):
            os.close(pipe)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait(60)

    def _next(self, end: float, method: str) -> dict[str, Any]:
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.receive], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.receive, 1 << 20) if ready else b""
            if not data:
                raise ServerUnavailable(
                    "chromium",
                    reason=f"no response to {method} within {_RESPONSE_TIMEOUT_S:.0f} s",
                    how_to_install="it is installed; start it manually to see why",
                )
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _collect_errors(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        entry = params.get("entry", {})
        if message.get("method") == "Log.entryAdded" and entry.get("level") == "error":
            self.errors.append(f"{entry.get('text')} {entry.get('url', '')}")
