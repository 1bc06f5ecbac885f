"""The server backend: start a server, send it requests, read its answers."""
