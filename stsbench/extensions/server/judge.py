"""`judge:NAME`: LLM as a judge, a chat model behind a server that scores each pair of texts with a number."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, EncoderSpec, Progress
from stsbench.encoders.options import CHANGING, spelled
from stsbench.encoders.probe import IDENTITY
from stsbench.encoders.similarity import Compared
from stsbench.errors import EncoderError
from stsbench.extensions.server.address import KEY, choose_address, key_of_environment
from stsbench.extensions.server.client import Answer, BadAnswerError, Client, HalfAnswerError, stated
from stsbench.extensions.server.encoder import at_once
from stsbench.extensions.server.options import read_fields, role_fields
from stsbench.wording import counted

if TYPE_CHECKING:
    from stsbench.extensions.server.options import EncoderServerOptions

_SLOT = re.compile(r"\{([ab])\}")
_WORD = re.compile(r"[^\s:=*\"'()\[\]]*\d[^\s:=*\"'()\[\]]*")  # with a digit
_NUMBER = re.compile(r"([-+\u2212]?(?:\d+(?:\.\d+)?|\.\d+))[.,;!?]?", re.ASCII)
RULE = "the only word of the answer with a digit, a decimal number"  # how answers are parsed; part of records
_MOST_BYTES = 1 << 22


@dataclass(frozen=True)
class Reply(Answer):
    """The answer of a chat model. content: the answer's text."""

    content: str = ""


class ChatClient(Client):
    """Sends requests to a chat model, one text each."""

    def _answer(self, texts: Sequence[str], width: int | None, fields: Mapping[str, Any]) -> Answer:
        body = self._body(self._client.chat.completions, _MOST_BYTES, {"temperature": 0, **fields},
                          messages=[{"role": "user", "content": texts[0]}])
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise HalfAnswerError("an answer that is not JSON, or half of one") from None
        try:
            content, end = answer["choices"][0]["message"]["content"], answer["choices"][0].get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError):
            content, end = None, None
        if end == "length":
            raise BadAnswerError("an answer that was cut (finish_reason length): let it be longer, by --extra-body")
        if not isinstance(content, str):
            raise BadAnswerError(f"an answer without a text: {stated(body)}")
        model, build = (name if isinstance(name, str) else "" for name in map(answer.get, ("model", "system_fingerprint")))
        usage = answer.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
        count = tokens if type(tokens) is int and tokens >= 0 else None
        return Reply(np.zeros((1, 0), np.float32), count, model, build, content)


def read_number(answer: str) -> float | None:
    """Return the number in an answer by RULE; None for no number, several, a fraction, a percentage or a unit.

    >>> [read_number(text) for text in ("Score: 4.", "**.5**", "\u22121.5", "4/5", "80%", "1,5", "GPT-4 says 3")]
    [4.0, 0.5, -1.5, None, None, None, None]
    """
    words = _WORD.findall(answer)
    match = _NUMBER.fullmatch(words[0]) if len(words) == 1 else None
    return None if match is None else float(match[1].replace("\u2212", "-"))


class Judge(Encoder):
    """A chat model with a prompt, identified by its name, address, prompt and the fields of its requests.

    Answers are kept in the folder of the embedding cache, so that an interrupted run requests only the missing ones.
    """

    usage = "judge:NAME: a chat model that is asked about each pair (--judge-prompt FILE, --base-url URL, extra server)"
    text_similarities = ("judge",)
    computes_in = "server"
    cacheable = False

    def __init__(self, model: str, options: EncoderServerOptions) -> None:
        """Read the prompt for the server's `model`. Raises EncoderError without one, and for an option without effect."""
        self.name = options.model or f"judge:{model}"
        for option in (*CHANGING, "device", "attention", "batch_tokens"):
            if getattr(options, option) != getattr(EncoderOptions, option):
                raise EncoderError(f"{spelled(option)} does not apply to {self.name}: its server decides it")
        self.prompt, key = _read_prompt(self.name, options.judge_prompt), key_of_environment()
        self.address, self.options = choose_address(options.base_url, key), options
        self._fields = role_fields(read_fields(options.extra_body), None)
        if options.offline and not self.address.local:
            raise EncoderError(f"{self.name} is computed by {self.address.host}, on the network: leave --offline out")
        if len(key) > 7 and key in json.dumps([self._fields, self.prompt]):
            raise EncoderError(f"--extra-body or --judge-prompt holds the key of {KEY}, and records keep both: leave it out")
        self._client, self._folder = ChatClient(self.name, model, self.address, key), None
        asked = {"model": model, "question": self.prompt, "number": RULE, "fields": {"temperature": 0, **self._fields}}
        digest = hashlib.sha256(json.dumps([self.address.url, asked], sort_keys=True).encode()).hexdigest()
        self.spec = EncoderSpec(self.name, "judge", digest, options={**asked, IDENTITY: "name and address"})

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder `judge:NAME`, where NAME is the server's name of the model."""
        return cls(argument, cast("EncoderServerOptions", options))

    def use_cache(self, cache: Any) -> None:
        """Keep answers in the folder of the embedding cache; nowhere where `cache` is None."""
        self._folder = None if cache is None else cache.folder / "answers"

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Raise EncoderError, as a judge has no vectors."""
        raise EncoderError(f"{self.name} gives no vector of a text: it scores pairs (--similarity judge)")

    @property
    def spent(self) -> Mapping[str, Any]:
        """Return since loading: numbers of requests and tokens, cost, and the server's names of model and version."""
        price, counts = self.options.price, self._client.counts
        cost = {} if price is None else {"price": price, "cost": counts.tokens * price / 1e6}
        names = {"model": self._client.answering, "system_fingerprint": ", ".join(sorted(self._client.builds))}
        return {"base_url": self.address.url, **{key: name for key, name in names.items() if name}, **asdict(counts), **cost}

    def spent_in_words(self) -> str:
        """Return the numbers of requests and tokens as one line."""
        return f"{self.name}: {counted(self.spent['requests'], 'request')}, {counted(self.spent['tokens'], 'token')}"

    def compare(self, first: Sequence[str], second: Sequence[str]) -> Compared:
        """Return the model's scores of n pairs. Raises EncoderError, one line, where the server fails, or an answer does not
        hold exactly one number."""
        asked = [self._question({"a": a, "b": b}) for a, b in zip(first, second, strict=True)]
        numbers, strays = self._stored_answers(), dict[str, str]()

        def ask(text: str, stopped: threading.Event) -> str:
            return cast(Reply, self._client.ask([text], None, stopped, fields=self._fields)).content

        todo = [text for text in dict.fromkeys(asked) if _digest(text) not in numbers]
        for text, answer in at_once(todo, ask, self.options.requests):
            if (number := read_number(answer)) is None:
                strays[text] = answer
            else:
                self._keep(_digest(text), number, answer, numbers)
        if strays:
            first, answer = next(iter(strays.items()))
            raise EncoderError(f"{self.name}: {len(strays)} of {len(set(asked))} answers do not hold one number, as of pair "
                               f"{asked.index(first) + 1}: '{self._client.shown(answer, 77)}'; --judge-prompt is to ask for "
                               "a number alone")
        return Compared(np.array([numbers[_digest(text)] for text in asked], np.float64), np.zeros(len(asked), np.bool_))

    def _question(self, pair: Mapping[str, str]) -> str:
        return _SLOT.sub(lambda slot: pair[slot[1]], self.prompt)

    def _file(self) -> Path | None:
        return None if self._folder is None else self._folder / f"{self.spec.weights}.jsonl"

    def _stored_answers(self) -> dict[str, float]:
        """Return digest of a question -> number, from earlier runs; lines cut by an interruption are skipped.

        The model's name in those answers becomes the expected one, as another model may now have the requested name.
        """
        file, numbers = self._file(), dict[str, float]()
        for line in file.read_text("utf-8").splitlines() if file is not None and file.is_file() else ():
            try:
                digest, number, _, *answering = json.loads(line)
                numbers[digest] = float(number)
                self._client.answering = self._client.answering or str(*answering)
            except (ValueError, TypeError):
                continue
        return numbers

    def _keep(self, digest: str, number: float, answer: str, numbers: dict[str, float]) -> None:
        numbers[digest] = number
        if (file := self._file()) is None:
            return
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as stream:  # begins with a line break, as the last line may have been cut
                stream.write(f"\n{json.dumps([digest, number, answer, self._client.answering])}\n")
        except OSError as error:
            why = error.strerror or error
            raise EncoderError(f"cannot keep an answer in {file}: {why}; --no-cache keeps none") from error


def compare(encoder: Encoder, first: Sequence[str], second: Sequence[str]) -> Compared:
    """Return a judge's scores of n pairs. Raises EncoderError for another encoder."""
    if not isinstance(encoder, Judge):
        raise EncoderError(f"--similarity judge is for --model judge:NAME, and {encoder.spec.name} is none")
    return encoder.compare(first, second)


def _read_prompt(name: str, file: str | Path | None) -> str:
    if file is None:
        raise EncoderError(f"{name} needs --judge-prompt FILE: what it is asked of a pair, with {{a}} and {{b}} for its "
                           "texts")
    try:
        prompt = Path(file).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EncoderError(f"cannot read --judge-prompt {file}: {getattr(error, 'strerror', None) or error}") from error
    if missing := sorted({"a", "b"} - set(_SLOT.findall(prompt))):
        raise EncoderError(f"--judge-prompt {file} lacks {{{missing[0]}}}: {{a}} and {{b}} stand for the texts of a pair")
    return prompt


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
