"""Starts watchet, a Kubernetes-compatible API server, for tests.

With pytest, use the fixture `watchet`; otherwise::

    with watchet.Server() as server:
        api = kubernetes.client.CoreV1Api(server.client())
"""

from watchet.server import Server, StartError, binary

__all__ = ["Server", "StartError", "binary"]
