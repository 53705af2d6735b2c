"""A server's address and proxy, the HTTP client with a deadline for each answer, and keys kept out of messages."""

from __future__ import annotations

import base64
import importlib
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from stsbench.errors import EncoderError
from stsbench.wording import printable

KEY = "OPENAI_API_KEY"
_DEFAULT = "https://api.openai.com/v1"
_SHORTEST = 4  # characters of the shortest key that is hidden in messages, as "a" would hide a part of every word
_PART = 8  # characters of a longer key that no message may repeat
_SCHEMES = ("http", "https", "socks5", "socks5h")  # schemes of a proxy


@dataclass(frozen=True)
class Address:
    """The address of a server. url: without a slash at its end or anything that could be a key; encrypted: by TLS."""

    url: str
    host: str
    encrypted: bool

    @property
    def local(self) -> bool:
        """Return whether the host is this machine, in any spelling: 127.1 is 127.0.0.1, and 0.0.0.0 is local, too."""
        host = self.host.rstrip(".").lower()
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            try:
                ip = ipaddress.ip_address(socket.inet_aton(host))
            except (OSError, ValueError):
                return host == "localhost" or host.endswith(".localhost")
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return ip.is_loopback or ip.is_unspecified


@dataclass(frozen=True)
class Proxy:
    """A proxy. url: as in the environment, maybe with a password; shown: the url without it; variable: the environment
    variable that names it; secrets: texts that no message may repeat."""

    url: str
    shown: str
    variable: str
    secrets: tuple[str, ...]


def choose_address(address: str | None, key: str) -> Address:
    """Return the address of --base-url, else of the variable OPENAI_BASE_URL, else OpenAI's.

    Raises EncoderError, one line, for an invalid address, or one with a user name, a password, a query or the key, which the
    message does not repeat.
    """
    name = "--base-url" if address is not None else "OPENAI_BASE_URL"
    text = address if address is not None else os.environ.get("OPENAI_BASE_URL") or _DEFAULT
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port  # raises ValueError for an invalid port
    except ValueError:
        raise EncoderError(f"{name} cannot be read as an address: write http://HOST:PORT/v1") from None
    right = parts.scheme in ("http", "https") and bool(host) and printable(text) == text and text.split() == [text]
    keyed = len(key) >= _SHORTEST and (key in text or quote(key, safe="") in text)
    if "@" in (parts.netloc if right else text) or parts.query or parts.fragment or keyed:
        raise EncoderError(f"{name} holds a user name, a password, a query or a key, and records keep the address: leave it "
                           f"out; a key comes from the variable {KEY} alone")
    if not right or host is None:
        raise EncoderError(f"{name} {printable(text)!r} is no address of a server: write http://HOST:PORT/v1")
    return Address(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", host, parts.scheme == "https")


def key_of_environment() -> str:
    """Return the environment's key, "" without one. Raises EncoderError, which hides the key, if no header can hold it."""
    key = os.environ.get(KEY, "")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise EncoderError(f"the variable {KEY} holds a blank, a line's end or a letter beyond ASCII: no key does")
    return key


def choose_proxy(address: Address) -> Proxy | None:
    """Return the proxy that the environment names for an address; None for this machine, and where NO_PROXY names the host.

    Raises EncoderError, one line, for an invalid proxy, which the message does not repeat.
    """
    proxies = {} if address.local else getproxies()
    kind = next((kind for kind in ("https" if address.encrypted else "http", "all") if proxies.get(kind)), None)
    if kind is None or _spared(address, proxies.get("no", "")):
        return None
    named = (name for name in (f"{kind}_proxy", f"{kind}_proxy".upper()) if os.environ.get(name))
    variable = next(named, "the system's settings")
    url = proxies[kind] if "://" in proxies[kind] else f"http://{proxies[kind]}"
    try:
        parts = urlsplit(url)
        right = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0 and url.split() == [url]
    except ValueError:
        right = False
    if not right:
        raise EncoderError(f"the proxy of {variable} is no address of one: write http://HOST:PORT or socks5://HOST:PORT; "
                           f"NO_PROXY={address.host} goes without it")
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    secret = parts.password or parts.username or ""  # a token may be given as the user name
    return Proxy(url, printable(shown), variable, (secret, unquote(secret)))


def _spared(address: Address, hosts: str) -> bool:
    """Return whether NO_PROXY, `hosts`, names the host, by its name, a suffix of it, its IP address or a network."""
    entries = [entry.strip() for entry in hosts.split(",")]
    if "*" in entries or proxy_bypass(urlsplit(address.url).netloc):
        return True
    for entry in entries:
        if entry.startswith("*.") and address.host.endswith(entry[1:]):
            return True
        try:
            if ipaddress.ip_address(address.host) in ipaddress.ip_network(entry.strip("[]"), strict=False):
                return True
        except ValueError:
            continue
    return False


def without_secrets(text: str, *secrets: str) -> str:
    """Return `text` with *** in place of a secret or eight characters of it: plain, quoted for a URL, in base64 or in hex,
    also if interrupted by blanks."""
    positions = [position for position, letter in enumerate(text) if letter.isprintable() and letter != " "]
    letters = "".join(text[position] for position in positions)
    hidden: set[int] = set()
    for form, size in (form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)):
        parts = {form[start : start + size] for start in range(len(form) - size + 1)}
        for start in range(len(letters) - size + 1):
            if letters[start : start + size] in parts:
                hidden.update(range(positions[start], positions[start + size - 1] + 1))
    return "".join(letter if position not in hidden else "***" if position - 1 not in hidden else ""
                   for position, letter in enumerate(text))


def _forms(secret: str) -> Iterator[tuple[str, int]]:
    """Yield each form in which a secret may be written, with the length of a part that must not be shown."""
    size, raw = min(len(secret), _PART), secret.encode()
    for form in {secret, quote(secret, safe="")}:
        yield form, min(len(form), size)
    for every in ("%{:02x}", "%{:02X}", "{:02x}", "{:02X}", "\\u{:04x}", "\\u{:04X}"):
        form = "".join(every.format(byte) for byte in raw)
        yield form, size * len(form) // len(raw)
    for before, shared in ((0, 0), (1, 2), (2, 3)):  # base64 differs with the secret's position modulo 3
        form = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")[shared:-1]
        if len(form) >= _SHORTEST:
            yield form, min(len(form), _PART)
            yield form.translate(str.maketrans("+/", "-_")), min(len(form), _PART)


class Deadline(threading.local):
    """A thread's deadline for reading and writing. until: by time.monotonic."""

    until = float("inf")


def make_client(name: str, library: Any, address: Address, proxy: Proxy | None, deadline: Deadline, **hooks: Any) -> Any:
    """Return the HTTP client (httpx or httpx2) with which `library`, openai, sends requests. hooks: its event hooks.

    Raises EncoderError for a proxy of a kind that needs another package.
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
    carrier._pool._network_backend = _Network(carrier._pool, deadline)  # no public option bounds each read
    return library.DefaultHttpxClient(transport=carrier, trust_env=False, follow_redirects=False, event_hooks=hooks)


class _Network:
    """Wraps a connection pool's network backend such that every connection keeps the deadline."""

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
