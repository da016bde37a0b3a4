"""A real browser, driven over WebDriver (W3C): Debian's ``chromium`` and ``chromium-driver``, no library between."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
MISSING: Final = (
    None if _BROWSER and _DRIVER else "no chromium and chromedriver here: apt-get install chromium chromium-driver"
)
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"
_PATIENCE_S: Final = 60.0
_STARTS: Final = 20


class Chromium:
    """One window."""

    def __init__(self, log: Path, *, size: tuple[int, int] = (1280, 900)) -> None:
        assert _DRIVER is not None
        self._log = log.open("a+")
        self._driver, port = self._started(_DRIVER)
        self._url = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += [f"--window-size={size[0]},{size[1]}"]
        wanted = {
            "goog:chromeOptions": {"binary": _BROWSER, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _started(self, driver: str) -> tuple[subprocess.Popen[str], int]:
        """The driver takes a free IPv4 port and then the same IPv6 port. It exits if that port is in use."""
        for _ in range(_STARTS):
            started = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=self._log, text=True)
            assert started.stdout is not None
            for line in started.stdout:
                if "on port" in line and "started" in line:
                    return started, int(line.rstrip(". \n").rpartition(" ")[2])
            started.wait()
        self._log.seek(0)
        raise AssertionError(f"chromedriver has ended: {self._log.read()}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()[:600]}") from None

    def open(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": url})

    def prefer(self, *, dark: bool) -> None:
        """Set the color scheme that the user prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._emulate("setEmulatedMedia", {"features": [feature]})

    def narrow(self, width: int | None) -> None:
        """Set the width of the window, for example to that of a phone. None: the original width."""
        if width is None:
            self._emulate("clearDeviceMetricsOverride", {})
        else:
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            self._emulate("setDeviceMetricsOverride", size)

    def _emulate(self, what: str, settings: dict[str, Any]) -> None:
        order = {"cmd": f"Emulation.{what}", "params": settings}
        self._ask("POST", f"{self._session}/goog/cdp/execute", order)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a function body in the page and return its result."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str, what: str, *, patience_s: float = _PATIENCE_S) -> Any:
        """Return the value of the script as soon as it is true."""
        limit = time.monotonic() + patience_s
        while not (found := self.run(script)):
            if time.monotonic() > limit:
                raise AssertionError(
                    f"not within {patience_s:.0f} s: {what}\n{self.text()[:3000]}\n{self.complaints()}"
                )
            time.sleep(0.02)
        return found

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def press(self, *keys: str) -> None:
        """Type characters, or WebDriver's codes, into the focused element."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, selector: str) -> None:
        found = self._ask("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"{self._session}/element/{found[_ELEMENT]}/click", {})

    def complaints(self) -> list[str]:
        """Return the page's console output since the last call: errors, refused resources."""
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries]

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def close(self) -> None:
        closing: list[Callable[[], object]] = [lambda: self._ask("DELETE", self._session), self._driver.terminate]
        for step in closing:
            try:
                step()
            except (OSError, AssertionError):
                continue
        self._driver.wait(20)
        if self._driver.stdout is not None:
            self._driver.stdout.close()
        self._log.close()
