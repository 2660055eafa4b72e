"""A proxy on loopback in front of an API server, which answers in its place: `api_proxy.py PORT TARGET CERTIFICATE KEY ANSWER`.

While the file ANSWER has a status, such as 429, every request gets it, and every watch ends: with 410 by the event with which an
API server ends one. While it has `hold PART`, requests with that part in their path wait. Otherwise requests and answers pass
unchanged. `ANSWER.count` has the number of requests that were refused or held.
"""

import http.client
import json
import os
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, target, certificate, key, answer = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
# Headers about one connection only: the proxy's connection to the other side has its own.
OF_CONNECTION = {"connection", "content-length", "transfer-encoding", "keep-alive"}

upstream = ssl.create_default_context()
upstream.check_hostname = False
upstream.verify_mode = ssl.CERT_NONE
counting, refused = threading.Lock(), 0


def ordered():
    try:
        with open(answer, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def injected():
    text = ordered()
    return int(text) if text.isdigit() else 0


def is_held(path):
    text = ordered()
    return text.startswith("hold ") and text.removeprefix("hold ") in path


def status(code):
    message = f"the test answers {code}"
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": REASONS[code], "code": code}


def count():
    global refused
    with counting:
        refused += 1
        with open(f"{answer}.count.new", "w", encoding="utf-8") as file:
            file.write(str(refused))
        os.replace(f"{answer}.count.new", f"{answer}.count")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if is_held(self.path):
            count()
            while is_held(self.path):
                time.sleep(0.05)
        if code := injected():
            count()
            self.refuse(code)
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_CONNECTION}
        connection = http.client.HTTPSConnection("127.0.0.1", target, context=upstream)
        try:
            connection.request(self.command, self.path, body or None, headers)
            self.stream(connection, connection.getresponse())
        except OSError:
            self.close_connection = True
        finally:
            connection.close()

    def refuse(self, code):
        body = json.dumps(status(code)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, connection, response):
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in OF_CONNECTION:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        is_watch = "watch=" in self.path
        if is_watch:
            # The reader below waits for the server, so another thread ends it.
            threading.Thread(target=self.end_when_injected, args=(connection,), daemon=True).start()
        try:
            while data := response.read1(65536):
                self.chunk(data)
        except (OSError, http.client.HTTPException, ValueError):
            pass
        if is_watch and injected() == 410:
            self.chunk(json.dumps({"type": "ERROR", "object": status(410)}).encode() + b"\n")
        self.wfile.write(b"0\r\n\r\n")

    def end_when_injected(self, connection):
        while connection.sock is not None and not injected():
            time.sleep(0.1)
        if sock := connection.sock:
            try:
                sock.shutdown(2)
            except OSError:
                pass

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        """A client that went away is no error."""


server = Server(("127.0.0.1", port), Handler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(certificate, key)
# Each connection does its handshake in its own thread, so that a slow client doesn't delay others.
server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
