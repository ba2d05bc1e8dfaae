"""A stand-in for the Hugging Face hub on this machine: as much of its HTTP interface as moving files needs."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextlib.contextmanager
def hub():
    """Yields the server: ``server.url``, ``server.files`` by (repository, name), ``server.asked``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url, server.files, server.asked = f"http://127.0.0.1:{server.server_port}", {}, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self.read_chunks()
        self.server.asked.append(f"POST {self.path}")
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.answer({"url": f"{self.server.url}/{name}", "id": name, "name": name})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif re.fullmatch(r"/api/models/\S+/preupload/main\S*", self.path):
            asked = json.loads(body)["files"]
            self.answer({"files": [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked
            ]})  # fmt: skip
        elif match := re.fullmatch(r"/api/models/(\S+)/commit/main\S*", self.path):
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.files[match[1], entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            url = f"{self.server.url}/{match[1]}/commit/{COMMIT}"
            self.answer({"commitUrl": url, "commitOid": COMMIT, "success": True})
        else:
            self.answer({"error": "not found"}, 404)

    def read_chunks(self):
        data = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        return data

    def do_GET(self):
        self.send_file(whole=True)

    def do_HEAD(self):
        self.send_file(whole=False)

    def send_file(self, whole):
        self.server.asked.append(f"{self.command} {self.path}")
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/([^?]+)\S*", self.path)
        contents = self.server.files.get((match[1], match[2])) if match else None
        if contents is None:
            self.answer({"error": "not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(contents).hexdigest()}"'}
        self.answer(contents if whole else b"", 200, {**headers, "Content-Length": str(len(contents))})

    def answer(self, data, status=200, headers=()):
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **dict(headers)}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
