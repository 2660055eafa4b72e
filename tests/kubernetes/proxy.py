"""A TCP proxy on loopback: `proxy.py PORT TARGET CUT`. While the file CUT exists, bytes stop in both directions, and
connections that were open stay open but silent, as behind a broken router."""

import os
import socket
import sys
import threading
import time

port, target, cut = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def copy(source, sink):
    try:
        while data := source.recv(65536):
            while os.path.exists(cut):
                time.sleep(0.1)
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(client):
    while os.path.exists(cut):
        time.sleep(0.1)
    try:
        server = socket.create_connection(("127.0.0.1", target), timeout=10)
        server.settimeout(None)
    except OSError:
        client.close()
        return
    threading.Thread(target=copy, args=(client, server), daemon=True).start()
    threading.Thread(target=copy, args=(server, client), daemon=True).start()


listener = socket.create_server(("127.0.0.1", port), backlog=64)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
