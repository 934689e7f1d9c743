"""The page of a preference study, served by the standard library.

The page does not reveal which candidate made a picture: files have random names, and a vote is a position, which the server
maps to a candidate. A vote is on disk before the response is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from efdm.errors import SettingError
from efdm.style.study import Study

PAGE = Path(__file__).with_name("study.html")
MAX_BODY = 4096  # bytes
RATER = re.compile(r"[\w.@-]{1,64}")


class _Handler(BaseHTTPRequestHandler):
    study: Study
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a request after which a connection is closed

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/":
            self._send(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        elif url.path == "/next":
            self._answer({"rater": parse_qs(url.query).get("rater", [""])[0]}, voted=False)
        elif (file := url.path.removeprefix("/pictures/")) in self.study.files:
            self._send(200, (self.study.folder / "pictures" / file).read_bytes(), "image/png", "private, max-age=86400")
        else:
            self._send(404, b"not found")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != "/vote" or not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True  # the body is not read
            self._send(404 if self.path != "/vote" else 413, b"expected a vote")
            return
        try:
            self._answer(json.loads(self.rfile.read(int(length))), voted=True)
        except (ValueError, KeyError, TypeError) as error:
            self._send(400, f"not a vote: {error}".encode())

    def _answer(self, request: Any, *, voted: bool) -> None:
        """Store the vote, if there is one, and send the next item of the rater."""
        rater = request["rater"]
        if not isinstance(rater, str) or not RATER.fullmatch(rater):
            self._send(400, b"rater must be 1 to 64 letters, digits or . _ @ -")
            return
        if voted:
            seconds = request.get("seconds")
            self.study.vote(
                rater, int(request["item"]), int(request["position"]), None if seconds is None else float(seconds)
            )
        number = self.study.next_item(rater)
        answer: dict[str, Any] = {"item": number, "done": self.study.count(rater), "total": len(self.study.items)}
        if number is not None:
            item = self.study.items[number]
            answer |= {"content": item.content_file, "style": item.style_file}
            answer["options"] = [item.outputs[label] for label in self.study.order(rater, number)]
        self._send(200, json.dumps(answer).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", cache: str = "no-store") -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": cache}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a line per picture would hide the address."""


@contextmanager
def serving_study(study: Study, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve a study in a background thread and yield its address. Port 0 selects a free port."""
    try:
        server = ThreadingHTTPServer((host, port), type("Handler", (_Handler,), {"study": study}))
    except OSError as error:
        raise SettingError(f"cannot listen on {host}:{port} ({error.strerror}); choose another port", "port") from error
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
