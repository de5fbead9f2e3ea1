"""A hub on loopback that answers as the real one does, and cuts, refuses and counts as a test wants."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """One repository, ``owner/model``, at one commit."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.lie: dict[str, str] = {}  # name: sha256 that is told instead of the right one
        self.cut_after = 0  # bytes after which an answer breaks off; 0: never
        self.cuts = 0  # how many answers are still to be cut
        self.refuse: dict[str, int] = {}  # "api" or a file name: status
        self.ranges = True
        self.asked: list[tuple[str, str]] = []  # path, range
        self.token = ""
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def fetched(self, name: str) -> list[str]:
        return [wanted for path, wanted in self.asked if path.endswith("/" + name)]


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        hub.asked.append((path, self.headers.get("Range", "")))
        name = path.partition(f"/resolve/{COMMIT}/")[2]
        key = name or "api"
        if key in hub.refuse:
            self._answer(hub.refuse[key], b'{"error":"no"}', {"Retry-After": "7"} if hub.refuse[key] == 429 else {})
        elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._answer(401, b"{}", {"X-Error-Code": "GatedRepo"} if not name else {})
        elif name in hub.files:
            self._file(hub.files[name])
        elif re.fullmatch(rf"/api/models/owner/model(/revision/(main|v1|{COMMIT}))?", path):
            self._answer(200, json.dumps(self._info()).encode(), {})
        else:
            code = "RevisionNotFound" if path.startswith("/api/models/owner/model/revision") else "RepoNotFound"
            self._answer(404, b"{}", {"X-Error-Code": code})

    def _info(self) -> dict[str, object]:
        siblings = []
        for name, data in self.hub.files.items():
            told: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": "b" * 40}
            if name.endswith((".gguf", ".safetensors")):
                sha = self.hub.lie.get(name) or hashlib.sha256(data).hexdigest()
                told["lfs"] = {"sha256": sha, "size": len(data), "pointerSize": 134}
            siblings.append(told)
        return {"id": "owner/model", "sha": COMMIT, "siblings": siblings, "tags": ["gguf", "license:apache-2.0"]}

    def _file(self, data: bytes) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if self.hub.ranges else None
        start = int(wanted[1]) if wanted else 0
        end = int(wanted[2]) + 1 if wanted and wanted[2] else len(data)
        body = data[start:end]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.hub.cuts and self.hub.cut_after < len(body):
            self.hub.cuts -= 1
            self.wfile.write(body[: self.hub.cut_after])
            self.close_connection = True
            return
        self.wfile.write(body)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(body)), "Content-Type": "application/json"} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
