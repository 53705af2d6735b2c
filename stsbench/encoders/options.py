"""Options of encoders, of their cache and of the processes that compute, alike on the command line and in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar

from stsbench.errors import EncoderError, UsageError
from stsbench.options import OptionGroup, Values, extensible, flag_name, option

ATTENTIONS = ("auto", "varlen", "padded", "eager")
DTYPES = ("float32", "bfloat16", "float16")
PROMPTS = ("none", "card", "mteb")
_DEVICES = {"auto", "cpu", "cuda", "hpu", "ipu", "meta", "mps", "mtia", "npu", "vulkan", "xla", "xpu"}  # torch's devices
STATED = Values(lambda prompt: prompt not in (None, "card"), "")  # a --prompt other than its default, None or card


@extensible("stsbench.encoder_options")
@dataclass(frozen=True, kw_only=True)
class EncoderOptions(OptionGroup):
    """Which encoder, how it reads a text and how it computes. None: what the model folder stores, else the default of its
    kind."""

    model: str = option(  # all that stands after --model, the kind included
        "", "Hub id, model folder, minilm, a run of `stsbench train`, lexical:token-set, lexical:tfidf, "
        "vectors:FILE.npz|DIR, words:GLOVE.txt, python:module:callable, or another KIND:ARGUMENT: `stsbench list encoders` "
        "names them.", required=True,
    )
    pooler: str | None = option(
        None, "How the tokens' states become one vector: cls, cls+dense, mean, cls_avg, first_last:embeddings, "
        "first_last:layer1, last2, max, mask, text_cnn, mean_cnn, last, weighted_mean, mean_padded:N. Default: what the "
        "model folder stores.", changes_vectors=True,
        renamed={"pooling": "pooler", "pooler_type": "pooler"},
    )
    template: str | None = option(
        None, "Text around each sentence, {} where it goes; [MASK] for the mask pooler.", changes_vectors=True,
        excludes={"prompt": STATED},
    )
    layer: int | None = option(
        None, "Which hidden state is pooled: 0 the embeddings, 1 the first layer's, -1 the last layer's behind the final "
        "norm, -2 the one before, without it. Default: -1.", changes_vectors=True, advanced=True,
    )
    full_stop: bool | None = option(
        None, "Put a full stop behind a text that ends in none of . ? \" ' (PromptBERT's evaluation). Default: what the "
        "model folder stores, else not.", changes_vectors=True, advanced=True,
    )
    max_length: int | None = option(
        None, "Token limit; default: what the model folder stores, else its positions.", least=1, changes_vectors=True,
        renamed={"max_seq_length": "max_length"},
    )
    normalize: bool | None = option(
        None, "Vectors of length 1, or as long as they come. Default: what the model folder stores.", changes_vectors=True,
    )
    truncate_dim: int | None = option(
        None, "Keep the first N numbers of each vector.", least=1, changes_vectors=True,
        renamed={"dim": "truncate_dim", "dimension": "truncate_dim", "matryoshka_dim": "truncate_dim"},
    )
    prompt: str | None = option(
        None, "Text before every text, '' for none; name:NAME: one that the model folder stores, e.g. name:query. Or by a "
        "text's role and task, card: the prompts of the model's card, stored in its folder or known of its Hub id; mteb: "
        "what mteb's loader of this model passes; none: no prompt anywhere. Default: card; of a server none.",
        metavar="TEXT|name:NAME|card|mteb|none", changes_vectors=True,
        renamed={"prompt_name": "prompt=name:NAME", "prompts": "prompt=card|mteb|none"},
    )
    route: str | None = option(
        None, "The way through a Router, or the adapter, that every text takes; default: by the protocol.", metavar="NAME",
        changes_vectors=True, renamed={"task": "route"}, advanced=True,
    )
    revision: str | None = option(
        None, "Branch, tag or commit of a Hub id.", changes_vectors=True, excludes={"model": "minilm"},
        why="it is one checkpoint, known by its digest", advanced=True,
    )
    trust_remote_code: bool = option(
        False, "Run Python code that lies in the model folder. Read it first.", changes_vectors=True,
    )
    device: str | None = option(
        None, "cpu, cuda, cuda:1, mps; auto: a model too large for one device is spread over all, the CPU's memory and the "
        "disk. Default: cuda where there is one, else cpu.",
    )
    dtype: str = option(
        "float32", "Precision in which the model computes.", choices=DTYPES, changes_vectors=True, renamed={
            "fp16": "dtype=float16", "half": "dtype=float16", "bf16": "dtype=bfloat16", "precision": "dtype",
            "torch_dtype": "dtype",
        },
    )
    batch_tokens: int | None = option(
        None, "Tokens a batch, for speed and memory: it changes no score.", least=1, advanced=True,
        renamed={"batch_size": "batch_tokens, which changes no score"},
    )
    attention: str = option(
        "auto", "How texts stand in a batch. auto: without padding where each then has the vector that it has alone, else "
        "padded. varlen: without padding. eager: padded, by transformers' plain attention.", choices=ATTENTIONS,
        advanced=True,
    )
    offline: bool = option(False, "Never touch the network.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device is not None and not _is_device(self.device):  # not checked later if all vectors are in the cache
            raise UsageError(f"--device {self.device} is none: cpu, cuda, cuda:1, mps or auto")

    @property
    def prompt_source(self) -> str | None:
        """Return the source of prompts that are chosen by a text's role and task, one of PROMPTS; None for a name, a text,
        or the default."""
        return self.prompt if self.prompt in PROMPTS else None

    @property
    def prompt_name(self) -> str | None:
        """Return the name of a stored prompt, or None."""
        kind, _, name = (self.prompt or "").partition(":")
        return name if kind == "name" and name.strip() == name != "" else None  # "name: " is a prompt's text

    @property
    def prompt_text(self) -> str | None:
        """Return the prompt whose text was given, or None."""
        return self.prompt if self.prompt_source is None and self.prompt_name is None else None

    def refuse_changes(self) -> None:
        """Raise EncoderError if an option is set that changes vectors: for kinds of encoders that have no such options."""
        for name in CHANGING:
            if getattr(self, name) != getattr(type(self), name):
                raise EncoderError(f"{spelled(name)} does not apply to {self.model}: it is for transformers only")

    def of_this_machine(self) -> EncoderOptions:
        """Return these options for an encoder that computes on this machine, where --prompt card is the default: it becomes
        None, so that kinds without prompts need not refuse it."""
        return replace(self, prompt=None) if self.prompt == "card" else self

    def refuse_kinds(self, kind: str) -> None:
        """Raise EncoderError if an option is set that only other kinds of encoders have."""
        for name in OF_KINDS:
            kinds = EncoderOptions.__dataclass_fields__[name].metadata["kinds"]
            if kind not in kinds and getattr(self, name) != getattr(type(self), name):
                raise EncoderError(f"{spelled(name)} does not apply to {self.model}: it is for {kinds[0]}:NAME")


def _is_device(word: str) -> bool:
    """Return whether a word names a device that may exist on some machine: one of torch's, or, where torch is loaded, one
    that a plug-in has registered."""
    kind, _, number = word.partition(":")
    if kind in _DEVICES and (not number or number.isdecimal()):
        return True
    if (torch := sys.modules.get("torch")) is None:
        return False
    try:
        torch.device(word)
    except RuntimeError:
        return False
    return True


def spelled(name: str) -> str:
    """Return the command-line flag of an encoder's option."""
    return flag_name(EncoderOptions.__dataclass_fields__[name])


CHANGING = tuple(entry.name for entry in fields(EncoderOptions) if entry.metadata["changes_vectors"])
OF_KINDS = tuple(entry.name for entry in fields(EncoderOptions) if entry.metadata["kinds"])  # other kinds refuse them


class CoreArguments(TypedDict, total=False):
    """EncoderOptions as keyword arguments, for editors and type checkers; a test compares the two."""

    pooler: str | None
    template: str | None
    layer: int | None
    full_stop: bool | None
    max_length: int | None
    normalize: bool | None
    truncate_dim: int | None
    prompt: str | None
    route: str | None
    revision: str | None
    trust_remote_code: bool
    device: str | None
    dtype: str
    batch_tokens: int | None
    attention: str
    offline: bool


@dataclass(frozen=True, kw_only=True)
class CacheOptions(OptionGroup):
    """Where vectors are kept."""

    cache_dir: Path | None = option(None, "Embedding cache folder.", flag="--cache", advanced=True)
    cache_limit: float = option(20.0, "Embedding cache limit, GB.", least=0, advanced=True)
    no_cache: bool = option(False, "Neither read nor write cached embeddings.", excludes=("cache_dir",), advanced=True)


Work = TypeVar("Work")
Result = TypeVar("Result")
Computed = TypeVar("Computed")  # an encoder
Task = Callable[[Any, Work, Callable[[int], None]], Result]  # takes the encoder, a piece of work and what counts its texts


class Runner(Protocol):
    """Runs tasks in other processes; a task is a function of a module, sent by its name."""

    def run(
        self, task: Task[Work, Result], jobs: Iterable[Work], progress: Callable[[int], None] | None = None
    ) -> Iterator[Result]:
        """Yield task(encoder, job, progress) for every job, in the order in which they end."""


@extensible("stsbench.process_options")
@dataclass(frozen=True, kw_only=True)
class ProcessOptions(OptionGroup):
    """Which processes compute vectors: this one alone, unless an extension's options override these methods."""

    def runner(self, encoder: Any, options: EncoderOptions) -> AbstractContextManager[Runner | None]:
        """Return a context manager of what runs tasks in other processes, or of None where this process runs them. options:
        the encoder's, with model "" where the caller passed a loaded encoder."""
        return nullcontext()

    def computed(self, encoder: Computed, options: EncoderOptions) -> AbstractContextManager[Computed]:
        """Return a context manager of the encoder, or of a copy that computes in other processes until the block ends."""
        return nullcontext(encoder)

    @classmethod
    def of_torchrun(cls, count: int, words: Sequence[str]) -> dict[str, Any]:
        """Return the values of these options for a command that torchrun started `count` times with these words."""
        return {}
