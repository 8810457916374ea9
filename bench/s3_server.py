"""A server of S3's protocol on loopback, as a process of its own that counts its requests: moto's.

`python s3_server.py` serves until its standard input ends, and says first on which port.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KEYS = {"aws_access_key_id": "ferry", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
_COUNTS = "/ferryman-counts"


@dataclass(frozen=True)
class Server:
    """A server that runs, with an empty bucket."""

    address: str

    def uri(self, folder: str) -> str:
        options = f"endpoint_override={self.address}&scheme=http&region=us-east-1"
        return f"s3://ferry:secret@bucket/{folder}?{options}"

    def counts(self) -> Counter[str]:
        """Give how many requests of each kind there were."""
        with urllib.request.urlopen(f"http://{self.address}{_COUNTS}") as answer:
            return Counter(json.load(answer))


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Run a server."""
    import boto3

    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            running = Server(f"127.0.0.1:{int(process.stdout.readline())}")
            boto3.client("s3", endpoint_url=f"http://{running.address}", **KEYS).create_bucket(Bucket="bucket")
            yield running
        finally:
            process.kill()


def kind(environ: dict[str, Any]) -> str:
    """Name a request as bills do."""
    query = environ["QUERY_STRING"]
    if environ["REQUEST_METHOD"] == "GET" and ("list-type" in query or "prefix=" in query):
        return "LIST"
    if environ["REQUEST_METHOD"] == "POST" and "delete" in query:
        return "DELETE"
    return "COPY" if "HTTP_X_AMZ_COPY_SOURCE" in environ else str(environ["REQUEST_METHOD"])


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application, counts = DomainDispatcherApplication(create_backend_app), Counter[str]()

    def counted(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == _COUNTS:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(counts).encode()]
        counts[kind(environ)] += 1
        return application(environ, start_response)

    # One request at a time, as this server looks and then writes: what a real one does at once.
    running = make_server("127.0.0.1", 0, counted, threaded=False)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    print(running.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
