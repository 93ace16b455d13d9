"""Headless Chromium through its WebDriver, where Debian's chromium and chromium-driver are. Standard library only."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.request

from cluster import PATIENCE_SECONDS, wait_for
from run_tests import Skip

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the W3C's name of an element's id


class Browser:
    """One window. Ends its processes with stop()."""

    def __init__(self, *flags, width=1200, height=900):
        for program in ("chromium", "chromedriver"):
            if shutil.which(program) is None:
                raise Skip(f"no Chromium: {program} is not there (apt-get install chromium chromium-driver)")
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        log = pathlib.Path(self.folder, "driver.log")
        with open(log, "wb") as output:
            self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=output, stderr=output,
                                           env={**os.environ, "HOME": self.folder})
        try:
            started = wait_for("chromedriver's port", lambda: re.search(r"on port (\d+)\.", log.read_text()))
            self.url = f"http://127.0.0.1:{started[1]}/session"
            self.url += "/" + self.ask("POST", "", {"capabilities": {"alwaysMatch": {
                "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {"args": [
                    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                    "--disable-sync", f"--user-data-dir={self.folder}/profile", f"--window-size={width},{height}",
                    *flags]}}}})["sessionId"]
        except BaseException:
            self.driver.kill()
            raise

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()[:500]}") from None

    def open(self, address):
        self.ask("POST", "/url", {"url": address})

    def run(self, script, *arguments):
        """What the script returns; `arguments` are its arguments[0], ..."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def element(self, selector):
        found = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        return "/element/" + found[ELEMENT]

    def type(self, selector, text):
        """As a keyboard does; "\\ue007" is Enter."""
        self.ask("POST", self.element(selector) + "/value", {"text": text})

    def click(self, selector):
        self.ask("POST", self.element(selector) + "/click", {})

    def text(self, selector):
        """What a person sees of it."""
        return self.ask("GET", self.element(selector) + "/text")

    def wait_for_text(self, selector, part):
        return wait_for(f"{part!r} in {selector}", lambda: part in self.text(selector))

    def problems(self):
        """What the browser complained of: errors of scripts, and what the policy stopped."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})
                if entry["level"] == "SEVERE"]

    def colours(self, scheme):
        """"light" or "dark"."""
        self.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]}})

    def screenshot(self, name):
        """Into the folder that Bazel keeps of a test, where there is one."""
        import base64
        folder = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
        if folder:
            pathlib.Path(folder, name + ".png").write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))

    def stop(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.kill()
            self.driver.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
