"""What carries requests: the official client's own library, without what the environment would change unasked, and with a
time by which all of an answer has to be there."""

from __future__ import annotations

import importlib
import threading
import time
from typing import Any

from stsbench.errors import EncoderError
from stsbench.extensions.server.address import Address, Proxy


class Deadline(threading.local):
    """until: by time.monotonic, for whatever this thread reads or writes."""

    until = float("inf")


def client_of(name: str, library: Any, address: Address, proxy: Proxy | None, deadline: Deadline, **hooks: Any) -> Any:
    """The HTTP client (httpx or httpx2) in which `library`, openai, sends requests. hooks: its event hooks.

    EncoderError: the proxy is of a kind that needs another package.
    """
    transport = importlib.import_module(library.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])
    try:
        carrier = transport.HTTPTransport(
            limits=transport.Limits(max_connections=None, max_keepalive_connections=None),
            proxy=None if proxy is None else transport.Proxy(proxy.url),
        )
    except (ImportError, ValueError, transport.InvalidURL) as error:
        if proxy is None:
            raise
        why = "needs the package socksio: pip install socksio" if isinstance(error, ImportError) else "is not understood"
        raise EncoderError(f"{name}: the proxy {proxy.shown} of {proxy.variable} {why}; NO_PROXY={address.host} goes "
                           "without it") from None
    carrier._pool._network_backend = _Network(carrier._pool, deadline)  # no other way leads to each read
    return library.DefaultHttpxClient(transport=carrier, trust_env=False, follow_redirects=False, event_hooks=hooks)


class _Network:
    """A pool's network, each of whose connections keeps to the deadline."""

    def __init__(self, pool: Any, deadline: Deadline) -> None:
        self._inner, self._deadline = pool._network_backend, deadline
        self._late = importlib.import_module(type(pool).__module__.partition(".")[0]).ReadTimeout

    def connect_tcp(self, *arguments: Any, **named: Any) -> Any:
        return _Stream(self._inner.connect_tcp(*arguments, **named), self._left)

    def _left(self, timeout: float | None) -> float:
        left = self._deadline.until - time.monotonic()
        if left <= 0:
            raise self._late("the time for an answer is over")
        return left if timeout is None else min(left, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Stream:
    def __init__(self, inner: Any, left: Any) -> None:
        self._inner, self._left = inner, left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return bytes(self._inner.read(max_bytes, self._left(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._left(timeout))

    def start_tls(self, *arguments: Any, **named: Any) -> Any:
        return _Stream(self._inner.start_tls(*arguments, **named), self._left)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
