"""An admin server on loopback with responses that a test sets."""

import http.server
import threading


class ScriptedAdmin:
    """Serves the given page. `metrics` and `workers` are texts; `workers` is None for "not found"."""

    def __init__(self, page):
        self.metrics, self.workers, self.health = "", None, "ok"
        self.asked = []
        script = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                script.asked.append(self.path)
                status, text = script.answer(self.path, page)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8" if self.path == "/" else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}/"

    def answer(self, path, page):
        if path == "/":
            return 200, page
        if path == "/metrics":
            return 200, self.metrics
        if path == "/healthz":
            return (200 if self.health == "ok" else 503), self.health
        if path == "/workers.json" and self.workers is not None:
            return 200, self.workers
        return 404, "not found"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
