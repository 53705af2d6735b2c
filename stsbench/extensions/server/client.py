"""Requests for vectors to a server, by the openai client, with retries and with bounds on what an answer may hold."""

from __future__ import annotations

import base64
import email.utils
import importlib
import json
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import EncoderError
from stsbench.extensions.server.address import KEY, Address, Deadline, choose_proxy, make_client, without_secrets
from stsbench.wording import printable

MOST_NUMBERS = 65_536  # most dimensions of a vector
_DIGITS = 32  # most bytes of a number in JSON
TRIES = 8  # they take more than a minute, as rate limits are often per minute
QUICK = 3  # tries where the texts themselves may be the cause
SECONDS = 120.0  # timeout of one try
FIRST_WAIT, LONGEST_WAIT = 0.5, 300.0  # seconds: before the second try, doubled each time; most that a server may ask for
_AGAIN = (408, 429, 500, 502, 503, 504)
_WHATEVER = (401, 402, 404, 405, 407, 408, 429)  # statuses that do not depend on the texts
_SHOWN, _READ = 300, 8192  # most characters of a server's reason in a message; most bytes of it that are read
# Servers' messages for texts that are too long or too many; llama.cpp sends them with status 500.
_TOO_LONG = re.compile(
    r"context (length|size)|too (long|large)|less than \d+ tokens|max\w* (\w+ )*(length|tokens)|batch size", re.IGNORECASE
)
_LACKING = re.compile(r"input_type|\btask\b|required|missing", re.IGNORECASE)


class BadAnswerError(Exception):
    """An invalid answer that another try would not change; the message states the fault."""


class HalfAnswerError(BadAnswerError):
    """An answer that is cut off, or comes from another program."""


@dataclass(frozen=True)
class Answer:
    """A server's answer. vectors: float32 (n, d), possibly with NaN or infinity; tokens: the server's count, None without
    one; model, build: the server's names of the model and its version, "" without one."""

    vectors: NDArray[np.float32]
    tokens: int | None
    model: str = ""
    build: str = ""


def most_bytes(count: int, width: int | None) -> int:
    """Return the most bytes that an answer with `count` vectors may have. width: their dimensions, if known."""
    return count * ((width or MOST_NUMBERS) * _DIGITS + 4096) + 65_536


def read_answer(body: bytes, count: int) -> Answer:
    """Return the parsed answer for `count` texts. Raises BadAnswerError for missing vectors or different dimensions."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise HalfAnswerError("an answer that is not JSON, or half of one") from None
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadAnswerError(f"an answer without vectors: {stated(body)}")
    if len(items) != count:
        raise BadAnswerError(f"{len(items)} vectors for {count} texts")
    indices = [item.get("index") for item in items]
    if any(type(index) is not int for index in indices) or sorted(indices) != list(range(count)):
        raise BadAnswerError(f"vectors that are not numbered from 0 to {count - 1}, so that their texts are not known")
    rows = [_numbers(item.get("embedding")) for item in sorted(items, key=lambda item: item["index"])]
    widths = sorted({len(row) for row in rows})
    if len(widths) != 1 or not 0 < widths[0] <= MOST_NUMBERS:
        raise BadAnswerError(f"vectors of {' and '.join(map(str, widths[:3]))} numbers in one answer")
    named = [name if isinstance(name, str) else "" for name in map(answer.get, ("model", "system_fingerprint"))]
    return Answer(np.stack(rows), _tokens(answer.get("usage")), *named)


def stated(body: bytes) -> str:
    """Return the reason from the body of an error in one of the usual forms, else the whole body as text."""
    text = body.decode("utf-8", "replace")
    try:
        reason = json.loads(text)
    except (ValueError, RecursionError):
        return text
    while isinstance(reason, dict):
        reason = next((reason[key] for key in ("error", "message", "detail", "error_msg") if reason.get(key)), None)
    return reason if isinstance(reason, str) else text


def _numbers(written: Any) -> NDArray[np.float32]:
    """Return the vector from base64 of little-endian float32, or from a list of numbers, in which null is NaN."""
    try:
        if isinstance(written, str):
            return np.frombuffer(base64.b64decode(written, validate=True), "<f4").astype(np.float32)
        listed = [np.nan if number is None else number for number in written]
        with np.errstate(over="ignore"):  # the caller checks for infinity
            array = np.asarray(listed)
            numbers = array.astype(np.float32) if array.ndim == 1 and array.dtype.kind in "fi" else None
    except (ValueError, TypeError, OverflowError):
        numbers = None
    if numbers is None:
        raise BadAnswerError("an embedding that is neither a list of numbers nor base64 of float32")
    return numbers


def _tokens(usage: Any) -> int | None:
    """Return the server's count of tokens: those of the prompt, or else the total; None without one."""
    counts = [usage.get(name) for name in ("prompt_tokens", "total_tokens")] if isinstance(usage, dict) else []
    return next((count for count in counts if type(count) is int and 0 <= count < 2**53), None)


class TextsError(EncoderError):
    """A failed request for which its texts may be the cause. again: another try may succeed."""

    def __init__(self, line: str, again: bool) -> None:
        super().__init__(line)
        self.again = again


@dataclass
class Counts:
    """Counts since the encoder was loaded. tokens: by the server's count; uncounted: answers without such a count."""

    requests: int = 0
    retries: int = 0
    tokens: int = 0
    uncounted: int = 0


class _StatusError(Exception):
    def __init__(self, status: int, headers: Any, text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


@dataclass(frozen=True)
class _Fault:
    """Why a try failed. again: another try may succeed; wait: seconds that the server asks for; texts: may be the cause."""

    line: str
    again: bool = False
    wait: float | None = None
    texts: bool = False
    encoding: bool = False  # the server refuses base64


class Client:
    """Sends requests for vectors of one model; thread-safe."""

    def __init__(self, name: str, model: str, address: Address, key: str, dimensions: int | None = None) -> None:
        """Make the HTTP client. name: of the encoder, for messages. Raises EncoderError where openai is not installed."""
        try:
            import openai
        except ImportError:
            raise EncoderError(f"{name} needs the package openai: pip install 'stsbench[server]'") from None
        self.proxy, self._deadline = choose_proxy(address), Deadline()
        http = make_client(name, openai, address, self.proxy, self._deadline,
                         response=[_refuse],
                         request=[] if key else [lambda request: request.headers.pop("Authorization", None)])
        self._transport = importlib.import_module(type(http).__mro__[1].__module__.partition(".")[0])  # httpx or httpx2
        self._library = openai
        self._client = openai.OpenAI(api_key=key or "none", base_url=address.url, max_retries=0, http_client=http)
        self.name, self.address, self.counts = name, address, Counts()
        self._model, self._key = model, key
        self.answering, self.builds = "", set[str]()  # names of the model and of its versions in the answers
        self.most_texts, self.halved = 2**31, 0  # most texts per request, lowered when more are refused or fail twice
        self._asked: dict[str, Any] = {} if dimensions is None else {"dimensions": dimensions}
        self._encoding = "base64"
        self._lock = threading.Lock()
        self._resume = 0.0  # time.monotonic() before which no thread sends: a rate limit is reported to one of them alone
        self._answered = False

    def ask(
        self, texts: Sequence[str], width: int | None, stopped: threading.Event | None = None, *,
        fields: Mapping[str, Any] = MappingProxyType({}), tries: int = TRIES, again: bool = False,
    ) -> Answer:
        """Return the vectors of n texts. width: their dimensions, if known; fields: further fields of the request; tries:
        most tries where the texts may be the cause of a failure; again: the request repeats an earlier one.

        Raises EncoderError, one line, without a valid answer; TextsError where the texts may be the cause.
        """
        stopped, attempt = stopped or threading.Event(), 0
        with self._lock:
            self.counts.retries += again
        while True:
            self._pause(stopped)
            made = self._tried(texts, width, fields)
            if isinstance(made, Answer):
                return made
            if made.encoding and self._encoding == "base64":
                self._encoding = "float"
                continue
            attempt += 1
            if not made.again or attempt >= (tries if made.texts else TRIES):
                times = f" (in {attempt} tries)" if made.again and attempt > 1 else ""
                way = "" if self.proxy is None else f"by the proxy {self.proxy.shown} of {self.proxy.variable} "
                line = f"{self.name}: {self.address.url} {way}{made.line}{times}"
                raise (TextsError(line, made.again) if made.texts else EncoderError(line)) from None
            self._wait(attempt, made.wait, stopped)

    def _tried(self, texts: Sequence[str], width: int | None, fields: Mapping[str, Any]) -> Answer | _Fault:
        with self._lock:
            self.counts.requests += 1
        try:
            answer = self._answer(texts, width, fields)
        except Exception as error:  # of any library below: no message may pass on the key
            return self._fault(error)
        model, build = self.shown(answer.model), self.shown(answer.build)
        with self._lock:
            self._answered = True
            self.counts.tokens += answer.tokens or 0
            self.counts.uncounted += answer.tokens is None
            self.answering = self.answering or model
            self.builds |= {build} - {""}
        if model not in ("", self.answering):
            return _Fault(f"says that {model} answers, and {self.answering} before: several models are behind one address, "
                          "and vectors of two are not compared")
        return answer

    def _answer(self, texts: Sequence[str], width: int | None, fields: Mapping[str, Any]) -> Answer:
        """Send one request, and return its answer."""
        body = self._body(self._client.embeddings, most_bytes(len(texts), width), fields, input=list(texts),
                          encoding_format=self._encoding, **self._asked)
        return read_answer(body, len(texts))

    def _body(self, resource: Any, most: int, fields: Mapping[str, Any], **request: Any) -> bytes:
        """Send a request to the library's `resource`, and return the answer's body. Raises BadAnswerError beyond `most`
        bytes."""
        body = bytearray()
        self._deadline.until = time.monotonic() + SECONDS  # for the whole answer, headers included
        timeout = self._library.Timeout(SECONDS, connect=min(SECONDS, 10.0))
        create = resource.with_streaming_response.create
        with create(model=self._model, timeout=timeout, extra_body=dict(fields) or None, **request) as response:
            for part in response.iter_bytes():
                body += part
                if len(body) > most:
                    raise BadAnswerError(f"an answer of more than {most:,} bytes")
        return bytes(body)

    def _fault(self, error: BaseException) -> _Fault:
        cause = error.__cause__ if isinstance(error.__cause__, _StatusError) else error
        if isinstance(cause, _StatusError):
            return self._refused(cause)
        if isinstance(cause, BadAnswerError):
            return _Fault(f"gave {self.shown(str(cause))}", again=isinstance(cause, HalfAnswerError), texts=True)
        if isinstance(cause, self._library.APITimeoutError | self._transport.TimeoutException | TimeoutError):
            connecting = type(cause.__cause__ or cause).__name__ == "ConnectTimeout"
            return _Fault(f"did not answer within {SECONDS:g} s", again=self._answered or not connecting)
        if isinstance(cause, self._library.APIConnectionError | self._transport.RequestError | OSError):
            reason = cause.__cause__ if isinstance(cause, self._library.APIConnectionError) and cause.__cause__ else cause
            kind = type(reason).__name__
            if kind == "ProxyError" or (kind == "ConnectError" and not self._answered):
                doubt = ("does the server run, and is --base-url its address with its path, often /v1?" if self.proxy is None
                         else f"does the proxy run, and does it let you? NO_PROXY={self.address.host} goes without it")
                return _Fault(f"cannot be reached ({self.shown(str(reason))}): {doubt}")
            return _Fault(f"closed the connection ({self.shown(f'{kind}: {reason}')})", again=True,
                          texts=kind != "ConnectError")
        return _Fault(f"could not be asked ({self.shown(f'{type(cause).__name__}: {cause}')})")

    def _refused(self, error: _StatusError) -> _Fault:
        status, reason = error.status, self.shown(stated(error.text.encode()))
        if 300 <= status < 400:
            target = self.shown(re.sub(r"[?#].*|(?<=//)[^/]*@", "", str(error.headers.get("location", ""))))
            return _Fault(f"sends requests on to {target or 'nowhere'} (status {status}), and a key goes to no other: "
                          "give that address as --base-url")
        line = f"answered {status}: {reason or 'no reason'}"
        if status in (401, 403):
            line += f"; the key is the variable {KEY}, which is {'set' if self._key else 'not set'}"
        if status in (400, 422) and _LACKING.search(error.text):
            line += "; --extra-body puts further fields into a request, by role where that matters"
        if status == 407 and self.proxy is not None:
            line += f"; NO_PROXY={self.address.host} goes without it"
        too_long = status == 413 or (status in (400, 422, 500) and bool(_TOO_LONG.search(error.text)))
        again = status in _AGAIN and not too_long and "insufficient_quota" not in error.text
        wait = retry_after(error.headers.get("retry-after")) if again else None
        if wait is not None and wait > LONGEST_WAIT:
            return _Fault(f"{line}; it asks to wait {wait:,.0f} s: start again then, what is in the cache is kept")
        encoding = status in (400, 422) and re.search("encoding_format|base64", error.text) is not None
        return _Fault(line, again, wait, status not in _WHATEVER and wait is None, encoding)

    def shown(self, text: str, most: int = _SHOWN) -> str:
        """Return a message of a server or a library, or a text, as one line that is safe for a terminal and without the
        key."""
        secrets = () if self.proxy is None else self.proxy.secrets
        line = printable(without_secrets(" ".join(text.split())[:_READ], self._key, *secrets))
        return line if len(line) <= most else line[:most] + "..."

    def _wait(self, attempt: int, seconds: float | None, stopped: threading.Event) -> None:
        """Wait before the next try: all threads as long as the server asks, this one by exponential backoff with jitter."""
        with self._lock:
            self.counts.retries += 1
            if seconds:
                self._resume = max(self._resume, time.monotonic() + seconds)
        stopped.wait(FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.75, 1.25))

    def _pause(self, stopped: threading.Event) -> None:
        while not stopped.is_set() and (left := self._resume - time.monotonic()) > 0:
            stopped.wait(left)
        if stopped.is_set():
            raise EncoderError(f"{self.name}: stopped")


def retry_after(header: str | None) -> float | None:
    """Return the seconds to wait by a Retry-After header, a number of seconds or an HTTP date; None without a valid one."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


def _refuse(response: Any) -> None:
    """Raise an error status before the client reads the whole body."""
    if response.status_code < 300:
        return
    text = b""
    for part in response.iter_bytes():
        text += part[:_READ]
        if len(text) >= _READ:
            text = re.sub(rb"\S{1,512}$", b"", text[:_READ])  # a cut word may be a part of the key
            break
    raise _StatusError(response.status_code, response.headers, text.decode("utf-8", "replace"))
