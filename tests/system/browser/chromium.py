"""Controls a headless Chromium with the DevTools protocol over a pipe, which needs no package and no port."""

import base64
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import time

PATIENCE = 60  # seconds to wait for an expected event


class Chromium:
    """One browser with one page. Every wait has a deadline."""

    @staticmethod
    def path():
        return shutil.which("chromium")

    def __init__(self, folder):
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._input = b""
        self._next_id = 0
        self._events = []
        self._log = open(pathlib.Path(folder) / "chromium.log", "wb")
        # Chromium reads commands from descriptor 3 and writes to descriptor 4. As root it runs only without its
        # sandbox. Only the page's own host resolves, so that a request to any other host fails and is reported.
        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}/profile", "--no-first-run",
                 "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-background-networking",
                 "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        argv = ["bash", "-c", 'exec "$@" 3<&"$0" 4>&"$0"', str(theirs.fileno()), self.path(), *flags]
        self._process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._log,
                                         stderr=self._log, start_new_session=True)
        theirs.close()
        self._target = self._session = None
        self.new_page()

    def close(self):
        try:
            self._browser_command("Browser.close")
            self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._socket.close()
            self._log.close()

    def resize(self, width, height, mobile=False, scale=1):
        self._command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                      mobile=mobile)

    def set_color_scheme(self, scheme):
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def new_page(self):
        """Replaces the page with an empty one, and drops its settings and events."""
        if self._target:
            self._browser_command("Target.closeTarget", targetId=self._target)
        self._target = self._browser_command("Target.createTarget", url="about:blank")["targetId"]
        attached = self._browser_command("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session, self._events = attached["sessionId"], []
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self._command(f"{domain}.enable")

    def open(self, url):
        self._command("Page.navigate", url=url)
        self.wait_for(f"location.href === {json.dumps(url)} && document.readyState === 'complete'", f"{url} to load")

    def evaluate(self, expression):
        result = self._command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression, what, patience=PATIENCE):
        """Waits until the expression is true, and returns its value."""
        deadline = time.monotonic() + patience
        while not (value := self.evaluate(expression)):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {patience} s for {what}; the page says:\n{self.text()}")
            self._pump(0.05)
        return value

    def text(self):
        return self.evaluate("document.body.innerText")

    def screenshot(self, path, whole_page=True):
        data = self._command("Page.captureScreenshot", format="png", captureBeyondViewport=whole_page)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def accessible_names(self, role):
        nodes = self._command("Accessibility.getFullAXTree")["nodes"]
        return [node.get("name", {}).get("value", "") for node in nodes
                if not node["ignored"] and node.get("role", {}).get("value") == role]

    def requests(self):
        """Returns the URLs of all requests of the page."""
        return [event["request"]["url"] for event in self._seen("Network.requestWillBeSent")]

    def errors(self):
        """Returns exceptions and complaints of scripts, and violations of the page's policy. Failed requests to a
        server are not included."""
        thrown = [event["exceptionDetails"].get("exception", {}).get("description", event["exceptionDetails"]["text"])
                  for event in self._seen("Runtime.exceptionThrown")]
        said = [str(event["args"]) for event in self._seen("Runtime.consoleAPICalled")]
        logged = [event["entry"]["text"] for event in self._seen("Log.entryAdded")
                  if event["entry"]["level"] == "error" and event["entry"]["source"] != "network"]
        return thrown + said + logged

    def _seen(self, method):
        self._pump(0)
        return [event["params"] for event in self._events if event["method"] == method]

    def _command(self, method, **params):
        return self._call({"method": method, "params": params, "sessionId": self._session})

    def _browser_command(self, method, **params):
        return self._call({"method": method, "params": params})

    def _call(self, message):
        self._next_id += 1
        message["id"] = self._next_id
        self._socket.sendall(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while (answer := self._receive(deadline - time.monotonic())) is None or answer.get("id") != self._next_id:
            if time.monotonic() > deadline:
                raise AssertionError(f"Chromium did not answer {message} within {PATIENCE} s")
        if "error" in answer:
            raise AssertionError(f"{message}: {answer['error']}")
        return answer["result"]

    def _pump(self, seconds):
        """Collects the events that arrive within the given time."""
        deadline = time.monotonic() + seconds
        while self._receive(max(0, deadline - time.monotonic())) is not None:
            pass

    def _receive(self, seconds):
        """Returns the next message, and keeps an event for later. Returns None if no message arrives in time."""
        while b"\0" not in self._input:
            if not select.select([self._socket], [], [], max(0, seconds))[0]:
                return None
            part = self._socket.recv(1 << 20)
            if not part:
                raise AssertionError("Chromium has ended; see its chromium.log")
            self._input += part
        text, self._input = self._input.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message and message.get("sessionId") == self._session:
            self._events.append(message)
        return message
