"""Where a server is, and the key that it asks for: the one from an option, the other from the environment alone."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from stsbench.errors import EncoderError
from stsbench.wording import printable

KEY = "OPENAI_API_KEY"
_DEFAULT = "https://api.openai.com/v1"
_SHORTEST = 4  # characters of a key that is looked for in what a server says: "a" would be in every word


@dataclass(frozen=True)
class Address:
    """url: without a slash at its end, and without anything that could be a key; host: of it; encrypted: by TLS."""

    url: str
    host: str
    encrypted: bool

    @property
    def local(self) -> bool:
        """Whether this machine is meant."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def address_of(asked: str | None, key: str) -> Address:
    """What --base-url says, else the variable OPENAI_BASE_URL, else OpenAI's own.

    EncoderError, one line, which never repeats what may hold a key: a user name, a password, a query or the key stands in
    it, or it is no address.
    """
    name = "--base-url" if asked is not None else "OPENAI_BASE_URL"
    text = asked if asked is not None else os.environ.get("OPENAI_BASE_URL") or _DEFAULT
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port  # a port that is none raises here
    except ValueError:
        raise EncoderError(f"{name} cannot be read as an address: write http://HOST:PORT/v1") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment or _holds(text, key):
        raise EncoderError(f"{name} holds a user name, a password, a query or a key, and records keep the address: leave it "
                           f"out; a key comes from the variable {KEY} alone")
    if parts.scheme not in ("http", "https") or not host or printable(text) != text or text.split() != [text]:
        raise EncoderError(f"{name} {printable(text)!r} is no address of a server: write http://HOST:PORT/v1")
    return Address(_without_slash(parts), host, parts.scheme == "https")


def key_of_environment() -> str:
    """The key in the variable, "" without one. EncoderError, which does not repeat it: no header could hold it."""
    key = os.environ.get(KEY, "")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise EncoderError(f"the variable {KEY} holds a blank, a line's end or a letter beyond ASCII: no key does")
    return key


def without_key(text: str, key: str) -> str:
    """`text` with *** where it repeats the key."""
    return text.replace(key, "***") if _holds(text, key) else text


def _holds(text: str, key: str) -> bool:
    return len(key) >= _SHORTEST and key in text


def _without_slash(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
