"""Relay of a cloud's notices on a rented machine, run as root by its lease script.

Only root may reach the metadata service there, which hands out the machine's identity. What runs
cells must know that the machine will be taken away, so this passes on those questions, and no
others. It runs by the machine's own Python, 3.7 or later, with the standard library alone.
``python3 notice_relay.py FILE PARENT`` listens on a port of the loopback, writes its origin to
FILE, and ends with the process PARENT.
"""

import os
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVICE = "http://169.254.169.254"
ALLOWED = (
    "PUT /latest/api/token",  # worth nothing to who may not reach the service
    "GET /latest/meta-data/spot/instance-action",
    "GET /latest/meta-data/events/recommendations/rebalance",
    "GET /computeMetadata/v1/instance/preempted",
    "GET /metadata/scheduledevents",
    "POST /metadata/scheduledevents",
)
HEADERS = ("x-aws-ec2-metadata-", "metadata")
SECONDS = 70  # Google keeps a question for a minute
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Relay(BaseHTTPRequestHandler):
    """One question."""

    def answer(self):
        """Pass a question on if it is about notices, and the answer back."""
        if f"{self.command} {self.path.partition('?')[0]}" not in ALLOWED:
            self.send_error(403, "Not about notices")
            return
        kept = {k: v for k, v in self.headers.items() if k.lower().startswith(HEADERS)}
        size = min(int(self.headers.get("Content-Length") or 0), 65536)
        body = self.rfile.read(size) if size else None
        request = urllib.request.Request(SERVICE + self.path, body, kept, method=self.command)
        try:
            found = direct.open(request, timeout=SECONDS)
            status = found.status
        except urllib.error.HTTPError as error:
            found, status = error, error.code
        except OSError as error:
            self.send_error(504, str(error))
            return
        text = found.read()
        self.send_response(status)
        if found.headers.get("ETag"):
            self.send_header("ETag", found.headers["ETag"])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = answer

    def log_message(self, format, *args):
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Listens as long as the script that started it."""

    daemon_threads = True

    def service_actions(self):
        """End with the script of the lease, which starts another one."""
        if os.getppid() != int(sys.argv[2]):
            os._exit(0)


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Relay)
    with open(sys.argv[1] + ".partial", "w") as file:
        file.write(f"http://127.0.0.1:{server.server_port}")
    os.chmod(sys.argv[1] + ".partial", 0o644)
    os.replace(sys.argv[1] + ".partial", sys.argv[1])
    server.serve_forever()
