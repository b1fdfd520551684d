"""A headless Chromium that a test drives through ChromeDriver's HTTP protocol."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Home": "\ue011", "End": "\ue010", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015"}


class Browser:
    """One session of ChromeDriver."""

    def __init__(self, port: int, profile: Path):
        self.port, self.path = port, ""
        options = {"args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.path = f"/session/{self.post('/session', capabilities={'alwaysMatch': wanted})['sessionId']}"

    def post(self, command: str, **given: Any) -> Any:
        """The value that a command returns."""
        return self.send("POST", command, given)

    def send(self, method: str, command: str, given: Any = None) -> Any:
        """The value that a request returns; an AssertionError if it fails."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, self.path + command, None if given is None else json.dumps(given))
            answer = connection.getresponse()
            value = json.loads(answer.read())["value"]
        finally:
            connection.close()
        assert answer.status == 200, value
        return value

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that `script` returns in the page."""
        return self.post("/execute/sync", script=script, args=[*arguments])

    def keys(self, selector: str, *names: str) -> None:
        """Presses keys of `KEYS` on an element."""
        found = self.post("/element", using="css selector", value=selector)[ELEMENT]
        self.post(f"/element/{found}/value", text="".join(KEYS[name] for name in names))

    def click(self, selector: str) -> None:
        """Clicks on the middle of an element."""
        found = self.post("/element", using="css selector", value=selector)[ELEMENT]
        self.post(f"/element/{found}/click")

    def value(self, name: str) -> float:
        """The unrounded number that the element `name` shows."""
        return float(self.run("return document.getElementById(arguments[0]).dataset.value", name))

    def text(self, name: str) -> str:
        """The text of the element `name`."""
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def log(self) -> list[Any]:
        """Lines of the console since the last call."""
        return self.post("/se/log", type="browser")


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A fresh browser with its profile in `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL) as driver:
        try:
            browser = connected(port, folder)
            yield browser
            browser.send("DELETE", "")
        finally:
            driver.terminate()


def connected(port: int, folder: Path) -> Browser:
    """A session, once ChromeDriver listens."""
    for _ in range(300):
        try:
            return Browser(port, folder)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise AssertionError("chromedriver does not listen after 30 seconds")
