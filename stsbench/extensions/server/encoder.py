"""`openai:NAME`: an encoder behind a server with OpenAI's API, whose model is checked with each batch of texts."""

from __future__ import annotations

import copy
import hashlib
import json
import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, EncoderSpec, Progress, Traits
from stsbench.encoders.options import CHANGING, spelled
from stsbench.encoders.probe import IDENTITY, NONE
from stsbench.encoders.prompt.task_prompts import Prompts, served_card
from stsbench.encoders.traits import ROLES
from stsbench.errors import EncoderError
from stsbench.extensions.server.address import KEY, choose_address, key_of_environment
from stsbench.extensions.server.client import QUICK, TRIES, Client, TextsError
from stsbench.extensions.server.identity import AGAIN, BY_SERVER_PROBE, FLOOR, TEXTS, Identity, make_identity
from stsbench.extensions.server.options import WIDTH, by_role, fields_in_words, read_fields, role_fields
from stsbench.wording import counted

if TYPE_CHECKING:
    from stsbench.extensions.server.options import EncoderServerOptions


MOST = 31  # texts per request, besides one of the probe: text-embeddings-inference takes 32
TOKENS = 16_384
_BYTES = 3  # bytes of UTF-8 per token, an estimate: English has 4 to 5, Chinese 3; the server's tokenizer is not known
_AROUND = 2  # special tokens per text

T = TypeVar("T")
_HONOURED = ("normalize", "truncate_dim", "prompt", "batch_tokens")
_REFUSED = tuple(name for name in (*CHANGING, "device", "attention") if name not in _HONOURED)


def estimated_tokens(text: str) -> int:
    """Return an estimate of a text's number of tokens, from its bytes."""
    return -(-len(text.encode()) // _BYTES) + _AROUND


def batches(texts: Sequence[str], tokens: int | None = None) -> list[list[int]]:
    """Return batches of positions in `texts`, of at most MOST texts and an estimated `tokens` tokens, the longest texts
    first; a text of more tokens is alone in its batch."""
    sizes, most = [estimated_tokens(text) for text in texts], tokens or TOKENS
    parts: list[list[int]] = []
    room = 0
    for row in sorted(range(len(texts)), key=lambda row: -sizes[row]):
        if not parts or len(parts[-1]) == MOST or sizes[row] > room:
            parts.append([])
            room = most
        parts[-1].append(row)
        room -= sizes[row]
    return parts


def at_once(
    jobs: Sequence[Any], work: Callable[[Any, threading.Event], T], count: int
) -> Iterator[tuple[Any, T]]:
    """Yield (job, result of `work`) for every job, run by `count` threads, in the order of completion.

    The first error, or closing the iterator, stops all jobs by setting the event that `work` gets. The threads are daemons,
    so that Ctrl-C does not wait for a slow server.
    """
    todo, lock, stopped = iter(jobs), threading.Lock(), threading.Event()
    done: queue.Queue[tuple[Any, Any, BaseException | None]] = queue.Queue()

    def working() -> None:
        while not stopped.is_set():
            with lock:
                job = next(todo, None)
            if job is None:
                return
            try:
                done.put((job, work(job, stopped), None))
            except BaseException as error:  # raised in the consumer's thread
                done.put((job, None, error))
                return

    for _ in range(min(count, len(jobs))):
        threading.Thread(target=working, daemon=True).start()
    try:
        for _ in jobs:
            job, made, error = done.get()
            if error is not None:
                raise error
            yield job, made
    finally:
        stopped.set()


class ServerEncoder(Encoder):
    """An encoder behind a server; vectors are cut and normalised here if asked for. Truncation of texts is not visible."""

    usage = "openai:NAME: a model behind a server (--base-url URL, extra server)"
    computes_in = "server"

    def __init__(self, model: str, options: EncoderServerOptions) -> None:
        """Probe the model `model` of the server. Raises EncoderError for an option without effect, or without an answer."""
        self.name = options.model or f"openai:{model}"
        _check(self.name, options)
        key = key_of_environment()
        address = choose_address(options.base_url, key)
        if options.offline and not address.local:
            raise EncoderError(f"{self.name} is computed by {address.host}, on the network: leave --offline out")
        self.options, self.address, self.model = options, address, model
        self._extra = read_fields(options.extra_body)
        if len(key) > 7 and key in json.dumps(self._extra):  # a shorter one is a placeholder, not a secret
            raise EncoderError(f"--extra-body holds the key of {KEY}, and records keep the fields: leave it out")
        self._width = self._extra.pop(WIDTH, None)  # kept apart, as fingerprints hold it apart
        self._fields: Mapping[str, Any] = role_fields(self._extra, None)
        self._client = Client(self.name, model, address, key, self._width)
        self._identities: dict[str, Identity] = {}  # by the request's further fields, as JSON
        self._identity = self._identified()
        width = self._identity.vectors.shape[1]
        self.dimension, self.engine = min(width, options.truncate_dim or width), f"the server at {address.url}"
        self.cacheable = self._identity.known
        prompts = self._chosen_prompts()
        self.traits, self._prompt = Traits(prompts=prompts.by_name), prompts.default
        self.notes = tuple(self._noted(key))
        self.spec = self._spec()

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder `openai:NAME`, where NAME is the server's name of the model."""
        return cls(argument, cast("EncoderServerOptions", options))

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return the same model for texts of a role, with the role's prompt, or `prompt`, and the role's fields."""
        if prompt is None and self.prompts:
            prompt = self.prompts.get(role or "", "" if role in ROLES else None)
        return self._reading(self._prompt if prompt is None else prompt, role_fields(self._extra, role))

    def with_prompt(self, prompt: str) -> Encoder:
        """Return the same model with one prompt for all texts; fields still depend on the role."""
        other = copy.copy(self._reading(prompt, self._fields))
        other.traits = Traits()
        return other

    def _reading(self, prompt: str, fields: Mapping[str, Any]) -> ServerEncoder:
        if (prompt, fields) == (self._prompt, self._fields):
            return self
        other = copy.copy(self)
        other._prompt, other._fields = prompt, fields
        other._identity = other._identified()
        other.cacheable, other.spec = other._identity.known, other._spec()
        other.notes = tuple(dict.fromkeys([*self.notes, *other._doubts()]))
        return other

    @property
    def identity(self) -> EncoderSpec:
        """Return the spec that records hold, with prompts and fields by role."""
        named = super().identity
        if not any(map(by_role, self._extra.values())):
            return named
        return replace(named, options={**named.options, "extra_body": self._extra})

    @property
    def spent(self) -> Mapping[str, Any]:
        """Return since loading: numbers of requests and tokens, cost, the server's names of model and version, and the
        probe's noise, tolerance and largest distance."""
        counts, price = self._client.counts, self.options.price
        named = (("model", self._client.answering), ("system_fingerprint", ", ".join(sorted(self._client.builds))))
        probe = {name: max(getattr(identity, name) for identity in self._identities.values())
                 for name in ("noise", "tolerance", "farthest")}
        cost = {} if price is None else {"price": price, "cost": counts.tokens * price / 1e6}
        names = {key: name for key, name in named if name}
        return {"base_url": self.address.url, **names, **asdict(counts), **cost, "probe": probe}

    def spent_in_words(self) -> str:
        """Return `spent` as one line."""
        spent = self.spent
        again = f" ({spent['retries']:,} of them a second time or later)" if spent["retries"] else ""
        tokens = counted(spent["tokens"], "token")
        if spent["uncounted"]:
            tokens += f", those of {counted(spent['uncounted'], 'answer')} not counted by the server"
        cost = f", cost {spent['cost']:.6g} at {spent['price']:g} a million" if "cost" in spent else ""
        probe = spent["probe"]
        return (f"{self.name}: {counted(spent['requests'], 'request')}{again}, {tokens}{cost}; the probe moved by at most "
                f"{probe['farthest']:.1e} (allowed {probe['tolerance']:.1e})")

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d) vectors, which may hold NaN if the server's do.

        Raises EncoderError, one line, where the server does not return n vectors, refuses a text, or runs another model than
        at loading.
        """
        written = [self._prompt + text for text in texts]
        vectors = np.zeros((len(texts), self._identity.vectors.shape[1]), dtype=np.float32)
        parts = batches(written, self.options.batch_tokens)

        def ask(rows: list[int], stopped: threading.Event) -> NDArray[np.float32]:
            return self._halved([written[row] for row in rows], stopped, self._checked)

        for rows, part in at_once(parts, ask, self.options.requests):
            vectors[rows] = part
            if progress is not None:
                progress(len(rows))
        return Encoded(self._finished(vectors), np.zeros(len(texts), dtype=np.bool_))

    def _checked(self, texts: list[str], stopped: threading.Event, tries: int) -> NDArray[np.float32]:
        """Return the vectors of a batch, sent with one text of the probe. Raises EncoderError if that has changed."""
        number = self._identity.next_text()
        batch, vectors = [*texts, TEXTS[number]], None
        try:
            vectors = self._request(batch, stopped, tries) if self._client.most_texts else None
        except TextsError as error:
            if len(texts) > 1 or error.again:
                raise
        if vectors is None:  # the server takes one text per request
            vectors = self._joined([self._request([text], stopped, tries) for text in batch])
            self._client.most_texts = 0
        if wrong := self._identity.check(number, vectors[-1]):
            raise EncoderError(f"{self.name}: {self.address.url} gives {wrong}: it is not the model that it was; the "
                               "vectors that came with it are dropped")
        return vectors[:-1]

    def _request(self, texts: Sequence[str], stopped: threading.Event, tries: int) -> NDArray[np.float32]:
        again = tries != QUICK  # only repeated requests have another number of tries
        width = next((identity.vectors.shape[1] for identity in self._identities.values()), None)
        return self._client.ask(texts, width, stopped, fields=self._fields, tries=tries, again=again).vectors

    def _halved(
        self, texts: list[str], stopped: threading.Event,
        ask: Callable[[list[str], threading.Event, int], NDArray[np.float32]], tries: int = QUICK,
    ) -> NDArray[np.float32]:
        """Return the vectors of texts, sent in halves where the server fails at them, to find the text at fault or a size
        that it takes. If it fails at a harmless text as well, the texts are not the cause: it is asked again, or raises."""
        failed = None
        if len(texts) <= max(1, self._client.most_texts):
            try:
                return ask(texts, stopped, tries)
            except TextsError as error:
                failed = error
            if not self._answers(stopped):
                if failed.again:
                    return ask(texts, stopped, TRIES)
                raise failed
            if len(texts) == 1:
                which = counted(len(texts[0]), "character") if texts[0] else "no character, which some servers refuse"
                raise EncoderError(f"{failed}; the text, of {which}: '{self._client.shown(texts[0], 77)}'")
        half = len(texts) // 2
        again = [tries if failed is None else 1 if size > 1 else TRIES - QUICK for size in (half, len(texts) - half)]
        parts = [self._halved(part, stopped, ask, times)
                 for part, times in zip((texts[:half], texts[half:]), again, strict=True)]
        if failed is not None:  # the halves passed, so there were too many texts, unless the failure was temporary
            self._client.halved += 1 if failed.again else 2
            if self._client.halved > 1:
                self._client.most_texts = min(self._client.most_texts, len(texts) - half)
        return self._joined(parts)

    def _joined(self, parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise EncoderError(f"{self.name}: the server gives vectors of {widths[0]} numbers in one answer, and of "
                               f"{widths[1]} in another")
        return np.concatenate(parts)

    def _answers(self, stopped: threading.Event) -> bool:
        """Return whether the server returns a vector for a harmless text."""
        try:
            made = self._request(TEXTS[:1], stopped, 1)
        except EncoderError:
            return False
        return all(identity.vectors.shape[1] == made.shape[1] for identity in self._identities.values())

    def _finished(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        cut = np.ascontiguousarray(vectors[:, :self.dimension])
        if not self.options.normalize:
            return cut
        with np.errstate(invalid="ignore"):
            return np.asarray(cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12), np.float32)

    def _identified(self) -> Identity:
        """Return the model's identity with the present fields, probed once for each set of fields."""
        key = json.dumps(self._fields, sort_keys=True)
        if key not in self._identities:
            made = self._probed()
            first = next(iter(self._identities.values()), made)
            if made.vectors.shape[1] != first.vectors.shape[1]:
                raise EncoderError(f"{self.name}: vectors of {made.vectors.shape[1]} numbers with the fields {key}, and of "
                                   f"{first.vectors.shape[1]} with those of other texts")
            self._identities[key] = made
        return self._identities[key]

    def _probed(self) -> Identity:
        """Return a new identity from the vectors of the probe's texts, requested twice, in different batches."""
        stopped = threading.Event()
        whole = self._halved([*TEXTS], stopped, self._request)
        width, asked = whole.shape[1], self._width
        if asked is not None and width != asked:
            raise EncoderError(f"--extra-body: dimensions {asked}: {self.name} gives vectors of {width} numbers; "
                               "--truncate-dim cuts them here")
        if self.options.truncate_dim is not None and self.options.truncate_dim >= width:
            raise EncoderError(f"--truncate-dim {self.options.truncate_dim} cuts nothing: the vectors of {self.name} have "
                               f"{width} numbers; leave it out")
        again = [self._halved([*texts], stopped, self._request) for texts, _ in AGAIN]
        return make_identity(self.name, json.dumps([self.model, asked, *([self._fields] if self._fields else [])],
                                                 sort_keys=True), whole, again)

    def _spec(self) -> EncoderSpec:
        options: dict[str, Any] = {WIDTH: self._width, "truncate_dim": self.options.truncate_dim,
                                   "extra_body": self._fields or None}
        known = self._identity.known
        return EncoderSpec(
            name=self.name, kind="openai", prefix=self._prompt or None, normalize=bool(self.options.normalize),
            weights=self._identity.weights if known else hashlib.sha256(uuid.uuid4().bytes).hexdigest(),
            options={**{name: value for name, value in options.items() if value is not None},
                     IDENTITY: BY_SERVER_PROBE if known else NONE},
        )

    def _card(self) -> Prompts | None:
        """Return the prompts of the model's card, by the model's requested name or its name in answers; None if unknown."""
        return served_card(self.model) or served_card(self._client.answering)

    def _chosen_prompts(self) -> Prompts:
        """Return the prompts that the options ask for. Raises EncoderError for `card` where no card is known."""
        options = self.options
        if options.prompt == "card":
            if (card := self._card()) is None:
                raise EncoderError(f"--prompt card: no prompts of a card are known for {self.model}: give --prompt TEXT, "
                                   "--query-prompt and --document-prompt, or leave it out")
            return card
        every = options.prompt_text or ""
        by_name = {role: every if asked is None else asked
                   for role, asked in zip(ROLES, (options.query_prompt, options.document_prompt), strict=True)}
        return Prompts(by_name if set(by_name.values()) != {every} else {}, every)

    def _noted(self, key: str) -> Iterator[str]:
        """Yield notes and warnings for the user, on truncation, encryption, proxy, model's name, fields and prompts."""
        name, address, answering = self.name, self.address, self._client.answering
        yield f"{name}: what {address.host} cuts of a long text it does not say, so that no text counts as truncated"
        if key and not address.encrypted and not address.local:
            yield f"warning: the key goes to {address.host} unencrypted: use https"
        if proxy := self._client.proxy:
            yield f"{name}: requests go by the proxy {proxy.shown} of {proxy.variable}"
        if answering and answering.removesuffix(":latest") != self.model.removesuffix(":latest"):
            yield f"warning: {name}: its answers come from a model that {address.host} calls {answering}"
        if any(map(by_role, self._extra.values())):
            yield f"{name}: fields of its requests: {fields_in_words(self._extra)}"
        asked = (self.options.prompt, self.options.query_prompt, self.options.document_prompt)
        if asked == (None,) * 3 and self._card():
            yield (f"warning: {name}: the card of {self.model} puts prompts before texts; none is put here, as nobody knows "
                   "what the server puts: --prompt card or --prompt TEXT does, --prompt none says that none is to be")
        yield from self._doubts()

    def _doubts(self) -> Iterator[str]:
        """Yield warnings on a noisy identity."""
        name, identity = self.name, self._identity
        if not identity.known:
            yield (f"warning: {name} has no identity: its vectors of the same texts differ by {identity.noise:.1e} of their "
                   "length between requests. They are not cached, and no two runs count as the same encoder")
        elif identity.tolerance > FLOOR:
            yield (f"warning: {name}: its vectors vary by {identity.noise:.1e} of their length between requests, so that "
                   f"a model nearer than {identity.tolerance:.1e} counts as this one, and is read from its cache")


def _check(name: str, options: EncoderServerOptions) -> None:
    """Raise EncoderError for an option that a server does not honour."""
    for option in _REFUSED:
        if getattr(options, option) != getattr(EncoderOptions, option):
            raise EncoderError(f"{spelled(option)} does not apply to {name}: its server decides it")
    if options.prompt_source == "mteb" or options.prompt_name is not None:
        raise EncoderError(f"--prompt {options.prompt} does not apply to {name}: a server gets texts as they are, behind "
                           "--prompt TEXT, --query-prompt, --document-prompt or --prompt card")
