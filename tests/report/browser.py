"""A real Chromium, headless, spoken to over a pipe in its own protocol: no driver, no socket."""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import deque

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page at a time; ``complaints`` and ``requests`` gather what it did since ``open``."""

    def __init__(self, path):
        self.home = tempfile.TemporaryDirectory(
            prefix="wessl-chromium-", ignore_cleanup_errors=True
        )
        flags = [
            "--headless=new",
            "--no-sandbox",  # containers run tests as root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={self.home.name}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        (theirs_in, ours_out), (ours_in, theirs_out) = _pipe(), _pipe()
        # Chromium reads descriptor 3 and writes 4; only a shell puts them there portably.
        call = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", call, path, *flags],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.inward = ours_out, os.fdopen(ours_in, "rb")
        self.rest, self.number, self.session, self.events = b"", 0, None, deque()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        with contextlib.suppress(OSError):
            os.close(self.out)
        self.inward.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.home.cleanup()

    def _call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        while b"\0" not in self.rest:
            part = self.inward.read1(1 << 20)
            assert part, "Chromium ended"
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width=1200, height=900, dark=False, media=""):
        """Loads a file from disk and waits until it has loaded."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[theme])
        self.events.clear()
        self._call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 60
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            assert time.monotonic() < deadline, f"{path} did not load"
            self.events.append(self._receive())
        # An answer comes after everything that happened before the question.
        self.ask("document.readyState")

    def ask(self, expression):
        """The value of some JavaScript in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def point_at(self, selector, x=0.5, y=0.5):
        """Moves the mouse to a place in an element, as shares of its width and height."""
        place = self._place(selector, x, y)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", **place)

    def tap(self, selector, x=0.5, y=0.5):
        place = self._place(selector, x, y)
        self._call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[place])
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def _place(self, selector, x, y):
        box = self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height]; })()"
        )
        return dict(x=box[0] + x * box[2], y=box[1] + y * box[3])

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path):
        """The whole page, however long."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = dict(x=0, y=0, width=size["width"], height=min(size["height"], 16000), scale=1)
        image = self._call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(image["data"]))

    @property
    def complaints(self):
        """Errors and warnings of the console, and exceptions nobody caught."""
        found = []
        for event in self.events:
            details = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(details["exceptionDetails"]["text"])
            elif event["method"] == "Log.entryAdded":
                found.append(details["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(details["args"]))
        return found

    @property
    def requests(self):
        """Every address asked for that is not part of the page itself."""
        asked = [
            e["params"]["request"]["url"]
            for e in self.events
            if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith("data:")]


def _pipe():
    """Descriptors far from 3 and 4, which the browser's own must not overwrite."""
    read, write = os.pipe()
    far = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (read, write))
    os.close(read)
    os.close(write)
    return far
