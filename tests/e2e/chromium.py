"""A headless Chromium of the system, spoken to over a pair of pipes: no driver, no library, no port.

The DevTools protocol is JSON with a zero byte after each message (`--remote-debugging-pipe`, descriptors 3 and 4).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from tests.needs import lacking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = dict[str, Any]  # Any: what the browser says

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
WITHIN: Final = 30.0
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests run as root, and only open pages of our own
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


def find() -> str:
    """Return the browser's path."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        lacking("Chromium (tools/packages installs it)")
    return found


class Chromium:
    """One browser process with a profile of its own."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="pinfold-chromium-")
        theirs, self._write = _pipe()
        self._read, back = _pipe()
        program = find()
        # Descriptors above 9 do not collide with the two that the browser expects.
        actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_DUP2, theirs, 3), (os.POSIX_SPAWN_DUP2, back, 4)]
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        arguments = [program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._pid = os.posix_spawn(program, arguments, os.environ, file_actions=actions, setsid=True)
        os.close(theirs)
        os.close(back)
        self._buffer = b""
        self._number = 0
        self.events: list[JSON] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, AssertionError):
            self.call("Browser.close")
        end = time.monotonic() + WITHIN
        while time.monotonic() < end:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                break
            time.sleep(0.02)
        else:
            os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **parameters: object) -> JSON:
        """Call a method and return its result; events that come meanwhile are kept."""
        self._number += 1
        message: JSON = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        for answer in self._messages(WITHIN):
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: JSON = answer["result"]
                return result
        raise AssertionError(f"{method}: no answer")

    def drain(self) -> None:
        """Take in the events that have come."""
        for _ in self._messages(0):
            pass

    def _messages(self, within: float) -> Iterator[JSON]:
        end = time.monotonic() + within
        while True:
            while b"\0" in self._buffer:
                line, self._buffer = self._buffer.split(b"\0", 1)
                message: JSON = json.loads(line)
                if "id" not in message:
                    self.events.append(message)
                yield message
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                return
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has gone"
            self._buffer += piece

    def open(self, width: int = 1280, height: int = 800, *, dark: bool = False, calm: bool = True) -> Tab:
        """Return a tab with an empty page of this size."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, context)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        # Of the thread alone: what else the machine does is not the page's time.
        tab.call("Performance.enable", timeDomain="threadTicks")
        tab.resize(width, height)
        features = {"prefers-color-scheme": "dark" if dark else "light"}
        if calm:
            features["prefers-reduced-motion"] = "reduce"
        tab.call("Emulation.setEmulatedMedia", features=[{"name": n, "value": v} for n, v in features.items()])
        return tab


class Tab:
    """A page of the browser."""

    def __init__(self, browser: Chromium, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context

    def call(self, method: str, **parameters: object) -> JSON:
        """Call a method of the protocol for this page."""
        return self._browser.call(method, self._session, **parameters)

    def close(self) -> None:
        """Close the page and forget all it kept."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def go(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:  # noqa: ANN401 - any value of JavaScript
        """Return the value of an expression, waiting for promises."""
        said = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def until(self, condition: str, within: float = 60.0) -> float:
        """Wait until an expression is true, also on a busy machine; return how many seconds that took."""
        begun = time.monotonic()
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < begun + within, f"it does not come: {condition}"
            time.sleep(0.005)
        return time.monotonic() - begun

    def key(self, key: str, text: str = "") -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        text = "\r" if key == "Enter" else text
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def write(self, text: str) -> None:
        """Type text into what has the focus."""
        self.call("Input.insertText", text=text)

    def point(self, selector: str) -> None:
        """Move the pointer to the middle of an element."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Click on an element."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _middle(self, selector: str) -> tuple[float, float]:
        place = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{place}.scrollIntoView({{block: 'nearest'}})")
        box = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({place}.getBoundingClientRect())")
        return box[0], box[1]

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        more: JSON = {"captureBeyondViewport": whole}
        if whole:
            size = self.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
            more["clip"] = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def events(self, method: str) -> list[JSON]:
        """Return the parameters of all events of a kind that this page has sent."""
        self._browser.drain()
        found = [e for e in self._browser.events if e["method"] == method and e.get("sessionId") == self._session]
        return [event["params"] for event in found]

    def complaints(self) -> list[str]:
        """Return what the console shows of errors and warnings, and of uncaught exceptions."""
        said = [json.dumps(call["args"]) for call in self.events("Runtime.consoleAPICalled") if call["type"] != "log"]
        said += [call["exceptionDetails"]["text"] for call in self.events("Runtime.exceptionThrown")]
        logged = [call["entry"] for call in self.events("Log.entryAdded")]
        return said + [f"{entry['text']} {entry.get('url', '')}" for entry in logged]

    def requested(self) -> list[str]:
        """Return the addresses of all requests."""
        return [sent["request"]["url"] for sent in self.events("Network.requestWillBeSent")]

    def watch(self, selector: str, attribute: str) -> None:
        """Take down what an attribute of an element becomes, and when; `seen` tells."""
        self.run(
            f"window.became = new Map(), new MutationObserver(([change]) => became.set(change.target"
            f".getAttribute({json.dumps(attribute)}), Date.now() / 1000)).observe(document.querySelector("
            f"{json.dumps(selector)}), {{attributeFilter: [{json.dumps(attribute)}]}})"
        )

    def seen(self, value: str) -> float:
        """Wait until a watched attribute has a value; return when it got it last, by the clock, as the page saw it."""
        self.until(f"became.has({json.dumps(value)})")
        return float(self.run(f"became.get({json.dumps(value)})"))

    def metric(self, name: str) -> float:
        """Return a figure of the page's performance."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == name))


def _pipe() -> tuple[int, int]:
    """Return the two ends of a pipe, with numbers that no child expects for something else."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
