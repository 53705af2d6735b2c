"""The kind `openai`: texts go to a server in batches, and each answer has to be of the model that it was at the start."""

from __future__ import annotations

import copy
import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, EncoderSpec, Progress
from stsbench.encoders.options import CHANGING, SERVING, spelled
from stsbench.encoders.probe import IDENTITY, NONE
from stsbench.encoders.prompt.by_task import prompts_of
from stsbench.encoders.server.address import Address, address_of, key_of_environment
from stsbench.encoders.server.batches import at_once, batches
from stsbench.encoders.server.client import Client, TooLongError
from stsbench.encoders.server.identity import AGAIN, BY_SERVER_PROBE, FLOOR, TEXTS, Identity, identity_of
from stsbench.errors import EncoderError
from stsbench.wording import counted

_HONOURED = ("normalize", "truncate_dim", "prompt", "prompts", "batch_tokens", *SERVING)
_REFUSED = tuple(name for name in (*CHANGING, "device", "attention") if name not in _HONOURED)


class ServerEncoder(Encoder):
    """What a server computes, cut and normalised here where that is asked for. Nobody can see what it cuts of a text."""

    computes_in = "server"

    def __init__(self, model: str, options: EncoderOptions) -> None:
        """model: as the server calls it. EncoderError: an option does not apply, or the server does not answer."""
        self.name = options.model or f"openai:{model}"
        _check(self.name, options)
        key = key_of_environment()
        address = address_of(options.base_url, key)
        if options.offline and not address.local:
            raise EncoderError(f"{self.name} is computed by {address.host}, on the network: leave --offline out")
        self.options, self.address, self._prompt = options, address, options.prompt or ""
        self._client = Client(self.name, model, address, key, options.dimensions)
        self._identity = self._probed(model)
        width = self._identity.vectors.shape[1]
        self.dimension, self.engine = min(width, options.truncate_dim or width), f"the server at {address.url}"
        self.cacheable = self._identity.known
        self.notes = tuple(_notes(self.name, model, address, key, options, self._identity))
        self.spec = self._spec()

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """`openai:NAME`, NAME as the server calls its model."""
        return cls(argument, options)

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """The same model behind `prompt`; of roles a server knows nothing."""
        if prompt is None or prompt == self._prompt:
            return self
        other = copy.copy(self)
        other._prompt = prompt
        other.spec = replace(self.spec, prefix=prompt or None)
        return other

    @property
    def spent(self) -> Mapping[str, Any]:
        """Requests, tokens, money, and how near the probe has been to its vectors; since it was loaded."""
        counts, price = self._client.counts, self.options.price
        identity = self._identity
        probe = {"noise": identity.noise, "tolerance": identity.tolerance, "farthest": identity.farthest}
        cost = {} if price is None else {"price": price, "cost": counts.tokens * price / 1e6}
        return {"base_url": self.address.url, **asdict(counts), **cost, "probe": probe}

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d), rows of NaN among them where the server gives such.

        EncoderError, one line: it gives anything but n vectors, refuses a text, or is another model than when it was loaded.
        """
        written = [self._prompt + text for text in texts]
        vectors = np.zeros((len(texts), self._identity.vectors.shape[1]), dtype=np.float32)
        parts = batches(written, self.options.batch_tokens)

        def ask(rows: list[int], stopped: threading.Event) -> NDArray[np.float32]:
            return self._halved([written[row] for row in rows], lambda part: self._checked(part, stopped))

        for rows, part in at_once(parts, ask, self.options.requests):
            vectors[rows] = part
            if progress is not None:
                progress(len(rows))
        return Encoded(self._finished(vectors), np.zeros(len(texts), dtype=np.bool_))

    def _checked(self, texts: list[str], stopped: threading.Event) -> NDArray[np.float32]:
        """The vectors of a batch, which one text of the probe goes with."""
        number = self._identity.next_text()
        vectors = self._client.ask([*texts, TEXTS[number]], self._identity.vectors.shape[1], stopped).vectors
        if wrong := self._identity.check(number, vectors[-1]):
            raise EncoderError(f"{self.name}: {self.address.url} gives {wrong}: it is not the model that it was; the "
                               "vectors that came with it are dropped")
        return vectors[:-1]

    def _halved(self, texts: list[str], ask: Callable[[list[str]], NDArray[np.float32]]) -> NDArray[np.float32]:
        """ask(texts), in halves where the server refuses them: which text is too long, or that they are too many, shows
        there."""
        try:
            return ask(texts)
        except TooLongError as error:
            if len(texts) > 1:
                half = len(texts) // 2
                return np.concatenate([self._halved(texts[:half], ask), self._halved(texts[half:], ask)])
            shown = repr(texts[0] if len(texts[0]) <= 80 else texts[0][:77] + "...")
            raise EncoderError(f"{error}; the text, of {counted(len(texts[0]), 'character')}: {shown}") from None
        except EncoderError as error:
            if "" in texts and "answered 4" in str(error):
                raise EncoderError(f"{error}; one of the texts is empty, which some servers refuse") from None
            raise

    def _finished(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        cut = np.ascontiguousarray(vectors[:, :self.dimension])
        if not self.options.normalize:
            return cut
        with np.errstate(invalid="ignore"):
            return np.asarray(cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12), np.float32)

    def _probed(self, model: str) -> Identity:
        """Asked for its vectors of the texts of the probe, and once more in other batches."""
        whole = self._client.ask(TEXTS, None).vectors
        width, asked = whole.shape[1], self.options.dimensions
        if asked is not None and width != asked:
            raise EncoderError(f"--dimensions {asked}: {self.name} gives vectors of {width} numbers; --truncate-dim cuts "
                               "them here")
        if self.options.truncate_dim is not None and self.options.truncate_dim >= width:
            raise EncoderError(f"--truncate-dim {self.options.truncate_dim} cuts nothing: the vectors of {self.name} have "
                               f"{width} numbers; leave it out")
        again = [self._halved([*texts], lambda part: self._client.ask(part, width).vectors) for texts, _ in AGAIN]
        return identity_of(self.name, json.dumps([model, asked]), whole, again)

    def _spec(self) -> EncoderSpec:
        options: dict[str, Any] = {"dimensions": self.options.dimensions, "truncate_dim": self.options.truncate_dim}
        known = self._identity.known
        return EncoderSpec(
            name=self.name, kind="openai", prefix=self._prompt or None, normalize=bool(self.options.normalize),
            weights=self._identity.weights if known else hashlib.sha256(uuid.uuid4().bytes).hexdigest(),
            options={**{name: value for name, value in options.items() if value is not None},
                     IDENTITY: BY_SERVER_PROBE if known else NONE},
        )


def _check(name: str, options: EncoderOptions) -> None:
    """EncoderError for an option that a server does not honour."""
    for option in _REFUSED:
        if getattr(options, option) != getattr(EncoderOptions, option):
            raise EncoderError(f"{spelled(option)} does not apply to {name}: its server decides it")
    if options.prompts not in ("none", "card"):
        raise EncoderError(f"--prompts {options.prompts} does not apply to {name}: a server gets texts as they are, behind "
                           "--prompt TEXT")
    if options.price is not None and not 0 <= options.price < float("inf"):
        raise EncoderError(f"--price {options.price:g}: it is money for a million tokens, 0 or more")


def _notes(
    name: str, model: str, address: Address, key: str, options: EncoderOptions, identity: Identity
) -> list[str]:
    notes = [f"{name}: what {address.host} cuts of a long text it does not say, so that no text counts as truncated"]
    if key and not address.encrypted and not address.local:
        notes.append(f"warning: the key goes to {address.host} unencrypted: use https")
    if options.prompt is None and options.prompts == "card":
        known = prompts_of(model, "card", {})
        if any(known.by_name.values()) or known.default:
            notes.append(f"warning: {name}: the card of {model} puts prompts before texts; none is put here, as nobody "
                         "knows what the server puts: --prompt TEXT does, --prompts none says that there is to be none")
    if not identity.known:
        notes.append(f"warning: {name} has no identity: its vectors of the same texts differ by {identity.noise:.1e} "
                     "of their length between requests. They are not cached, and no two runs count as the same encoder")
    elif identity.tolerance > FLOOR:
        notes.append(f"warning: {name}: its vectors vary by {identity.noise:.1e} of their length between requests, so that "
                     f"a model nearer than {identity.tolerance:.1e} counts as this one, and is read from its cache")
    return notes
