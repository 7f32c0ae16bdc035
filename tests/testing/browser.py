"""A real headless Chromium, driven through its debugging pipe: pages, what they log and request, pictures of them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local import screenshots


@dataclass
class Browser:
    """A browser with one tab.

    ``errors`` has what pages logged as errors, ``requests`` the addresses they asked for, ``failed`` why requests
    failed, ``dialogs`` what pages asked the person.
    """

    to: int
    back: int
    session: str = ""
    number: int = 0
    rest: bytes = b""
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def forget(self) -> None:
        """Forget what earlier pages did."""
        for told in (self.errors, self.requests, self.failed, self.dialogs):
            told.clear()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol; return its result."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self.number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']['message']}")
                result: dict[str, Any] = told["result"]
                return result
            self._note(told)

    def open(self, address: str, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        """Open a page in a window of a size and colour scheme, and wait until it is loaded."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=address)
        self._wait("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; promises are awaited."""
        told = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"])[:500])
        return told["result"].get("value")

    def until(self, expression: str, seconds: float = 60) -> bool:
        """Wait until a JavaScript expression is true, also if the page is loaded anew; tell whether it was."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.run(expression):
                    return True
            except RuntimeError:  # the page is just being left
                pass
            time.sleep(0.2)
        return False

    def picture(self, file: Path, whole: bool = True) -> None:
        """Write a picture of the page as PNG, from top to bottom if ``whole``."""
        told = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(told["data"]))

    def _wait(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self._note(self._next())

    def _note(self, told: dict[str, Any]) -> None:
        self.events.append(told)
        params = told.get("params", {})
        match told.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.errors.append(json.dumps(params["args"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(params["message"])
            case "Network.loadingFailed":
                if not params.get("canceled"):  # by leaving the page
                    self.failed.append(params.get("errorText", ""))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            block = os.read(self.back, 1 << 16)
            if not block:
                raise RuntimeError("The browser ended.")
            self.rest += block
        message, _, self.rest = self.rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told


@contextmanager
def browser(scratch: Path) -> Iterator[Browser]:
    """Start a browser whose profile is in a scratch directory, and end it."""
    program = screenshots.browser()
    assert program is not None
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    command = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={scratch}", "--disable-gpu"]
    command += ["--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage"]
    command += ["--hide-scrollbars", "--force-color-profile=srgb"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []

    def take() -> None:  # the pipe's ends are descriptors 3 and 4 in the browser
        low = [os.dup2(to_read, 30), os.dup2(back_write, 31)]
        os.dup2(low[0], 3)
        os.dup2(low[1], 4)

    process = subprocess.Popen(
        command, preexec_fn=take, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_read)
    os.close(back_write)
    item = Browser(to_write, back_read)
    try:
        target = item.send("Target.createTarget", url="about:blank")["targetId"]
        item.session = item.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            item.send(f"{domain}.enable")
        yield item
        item.session = ""
        item.send("Browser.close")
    finally:
        os.close(to_write)
        os.close(back_read)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
