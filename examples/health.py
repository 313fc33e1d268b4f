"""A consumer with an HTTP endpoint for the probes of Kubernetes, in the standard library.

    python examples/health.py BOOTSTRAP TOPIC [PORT] [GROUP]

``/live`` answers 200 while the process should be left running, ``/ready`` while the consumer is in its group, and both
answer 503 otherwise; the body is the whole `ConsumerHealth` as JSON. Ends with Ctrl-C.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import msgspec

from kip848_client import Consumer


def serve(consumer: Consumer, port: int) -> ThreadingHTTPServer:
    """Answer probes on a thread of their own: health() may be called on any, and never waits."""

    class Probes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            health = consumer.health()
            good = {"/live": health.live, "/ready": health.ready}.get(self.path)
            body = msgspec.json.encode(health)
            self.send_response(404 if good is None else 200 if good else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A probe every few seconds is nothing to log."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Probes)  # in a container: "0.0.0.0"
    Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server


def main(bootstrap: str, topic: str, port: str = "8080", group: str = "orders") -> None:
    conf = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with Consumer(conf) as consumer, serve(consumer, int(port)) as server:
        print("probes on port", server.server_port, flush=True)
        consumer.subscribe([topic])
        try:
            for record in consumer:
                print("handled", record.offset(), flush=True)
        finally:
            server.shutdown()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        print("left")
