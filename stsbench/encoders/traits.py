"""What is known of an encoder besides its spec. How its author reads and compares texts: its traits, and which of its
prompts stands before a text, chosen by the text's role and its task, in mteb's order of names. And which test sets it has
seen: what it was fitted on, as `fitted_on` in a spec says it (ID@DIGEST, or ID+ID@DIGEST), the data whose sentences it was
trained on, as `trained_on` in a record's provenance names them (sts12, stsb, ...), and what its training texts share with
them, as `training_overlap` there says it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stsbench.data.sets import FROM_MTEB

ROLES = ("query", "document")  # prompts of these names are known to every encoder; empty where none is stored
# jina-embeddings-v3's adapters by mteb's types of task, as mteb's loader of that model names them
ADAPTERS = {
    "STS": "text-matching", "BitextMining": "text-matching", "Summarization": "text-matching",
    "Classification": "classification", "MultilabelClassification": "classification",
    "PairClassification": "classification", "Clustering": "separation", "Reranking": "separation",
    "Retrieval-query": "retrieval.query", "Retrieval-document": "retrieval.passage",
}
# Sets of one set's sentences: what mteb loads, STS-B in its second version and beside its translations.
SAME_SENTENCES = {
    FROM_MTEB + "STSBenchmark": "stsb/test", FROM_MTEB + "SICK-R": "sick-r/mteb", "stsb.v2/test": "stsb/test",
    "stsb-multi/test": "stsb/test",
}
# Sets whose tested sentences are those of another one, or hold them.
_WITH_SENTENCES_OF = {
    "stsb/splits": "stsb/test", "sick-r/splits": "sick-r/test", "sick-e/splits": "sick-r/test", "sick-r/mteb": "sick-r/test",
}
_YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
STATE = "post_state"  # in a spec's options: the digest of what the fitting of a post-processing found


@dataclass(frozen=True)
class Traits:
    """What an encoder that is made of another one passes on whole: a trait is added here, and nowhere else.

    similarity: what the model's author compares vectors by, cosine, dot, euclidean or manhattan. prompts: name -> text, of
    which that of a text is chosen by its role and its task; none: one for all. default_prompt: the one
    before texts that `prompts` has none for, where the spec does not hold it. adapters: names, of which one is chosen by a
    text's task; default_route: the way of texts without a role, where queries and documents take other ways. trained_on: the
    test data whose sentences it was trained on, so that its scores there are transductive; training_overlap: what its
    training texts share with test sets. libraries: installed packages whose version may change a vector. attention: by which
    pass, as in EncoderOptions; its vectors are kept apart where the user chose one. asks_task: the model itself
    is told a text's task, whatever it makes of it.
    """

    similarity: str = "cosine"
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    adapters: tuple[str, ...] = ()
    default_route: str | None = None
    trained_on: tuple[str, ...] = ()
    training_overlap: tuple[Mapping[str, Any], ...] = ()
    libraries: tuple[str, ...] = ()
    attention: str = "auto"
    asks_task: bool = False

    @property
    def by_task(self) -> bool:
        """Return whether texts are read by role and task: behind other prompts, or by other ways through the model."""
        return bool(self.prompts or self.adapters or self.default_route or self.asks_task)


@dataclass(frozen=True)
class TextTask:
    """What a text is read for. name: mteb's name of the task where it has one, else ours; type: mteb's type of it, such as
    STS, Classification or Retrieval, "" where none is known; metadata: mteb's TaskMetadata, where mteb asks."""

    name: str = ""
    type: str = ""
    metadata: Any = field(default=None, compare=False, repr=False)


def prompt_name(prompts: Mapping[str, Any], task: TextTask, role: str | None) -> str | None:
    """Return the name of the prompt that mteb takes (2.26, models/abs_encoder.py, get_prompt_name); None where it takes
    none.

    In this order: {task}-{role}, {task}, {type}-{role}, {type}, {role}.
    """
    names = [name for of in (task.name, task.type) if of for name in ([f"{of}-{role}", of] if role else [of])]
    return next((name for name in [*names, *([role] if role else [])] if name in prompts), None)


def reading(traits: Traits, task: TextTask, role: str | None) -> tuple[str | None, str | None]:
    """Return how an encoder reads texts of a task in a role, "query", "document" or None: what `Encoder.for_role` is to be
    given.

    The second is None where the encoder has no prompt for them, so that its default prompt stays, if it has one.
    """
    if traits.adapters:
        by_task = ADAPTERS.get(prompt_name(ADAPTERS, task, role) or "")
        adapter = by_task if by_task in traits.adapters else None
        if adapter is not None and adapter in traits.prompts:
            return adapter, traits.prompts[adapter]
        return adapter, _chosen(traits, task, role)
    return role, _chosen(traits, task, role)


def _chosen(traits: Traits, task: TextTask, role: str | None) -> str | None:
    if not traits.prompts:
        return None
    if (name := prompt_name(traits.prompts, task, role)) is not None:
        return traits.prompts[name]
    # In sentence-transformers every model has a prompt of each role, if only an empty one: no default prompt then.
    return traits.default_prompt if role is None else ""


def reading_in_words(role: str, prompt: str, route: str | None) -> str:
    """Return how texts of a role ("text" for none) are read, for people: query "query: " by query_tower."""
    shown = json.dumps(prompt, ensure_ascii=False) if prompt else "no prompt"
    return " ".join([*([] if role == "text" else [role]), shown, *([] if route in (None, role) else [f"by {route}"])])


def stated(prompts: Mapping[str, str]) -> dict[str, Any]:
    """Return prompts as a spec holds them: texts by name, or, of those that are made when they are asked for, what
    decides them."""
    described: dict[str, Any] = getattr(prompts, "described", None) or dict(prompts)
    return described


def named_source(texts: Sequence[str], source: str) -> str:
    """Return `source` as it is where it names a digest (ID@DIGEST), else with that of the texts: a name alone may be of
    others."""
    return source if "@" in source else f"{source}@{hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()}"


def fitted_sets(fitted_on: object) -> tuple[str, ...]:
    """Return the ids of the sets, or the file's name; () where nothing was fitted."""
    return tuple(str(fitted_on).partition("@")[0].split("+")) if fitted_on else ()


def shortened(fitted_on: str) -> str:
    """Return ID@DIGEST with 12 digits of the digest, as messages print it."""
    ids, at, digest = fitted_on.partition("@")
    return ids + at + digest[:12]


def is_transductive(fitted_on: object, set_id: str) -> bool:
    """Return whether the very texts of a set were fitted on, alone or with the other splits of its data."""
    return set_id in fitted_sets(fitted_on)


def was_trained_on(trained_on: Collection[str], set_id: str) -> bool:
    """Return whether the sentences of a set were among the training text: of sts12/test, or of mteb:STS12, which mteb loads.

    trained_on: data (sts12), which stand for all of their sets, or one set (sick-r/mteb).
    """
    name = SAME_SENTENCES.get(set_id, set_id)
    return name in trained_on or name.removeprefix(FROM_MTEB).partition("/")[0].lower() in trained_on


@dataclass(frozen=True)
class SharedTexts:
    """What one training text shares with one test set: distinct test texts that it holds as they stand, and those that it
    holds but for case and punctuation, of `texts`; and the training rows that hold one."""

    training: str
    test: str
    texts: int
    exact: int
    normalised: int
    rows: int

    def __str__(self) -> str:
        either = self.exact + self.normalised
        return (f"{self.training} holds {either:,} of the {self.texts:,} texts of {self.test}, {self.exact:,} as they stand "
                f"and {self.normalised:,} but for case and punctuation")


def texts_shared(training_overlap: Iterable[Mapping[str, Any]], set_id: str, sample: bool = False) -> list[SharedTexts]:
    """Return what each training text shares with a test set, of those that share anything.

    training_overlap: as a record's provenance has it; set_id: sts12/test, or mteb:STS12; sample: whether the set is that
    of the package's sample, which has the same name.

    >>> overlap = {"text": "notes.txt", "shared": {"mr": {"texts": 10662, "exact": 2, "normalised": 1, "rows": 3}}}
    >>> print(*texts_shared([overlap], "mr"))
    notes.txt holds 3 of the 10,662 texts of mr, 2 as they stand and 1 but for case and punctuation
    """
    name = _compared_as(set_id)
    name = _WITH_SENTENCES_OF.get(name, name)
    return [SharedTexts(text["text"], name, **text["shared"][name]) for text in training_overlap
            if name in text["shared"] and text.get("sample", False) == sample]


def texts_not_compared(training_overlap: Iterable[Mapping[str, Any]], set_id: str, sample: bool = False) -> list[str]:
    """Return the training texts of which nobody knows whether they share anything with a test set. The arguments are
    those of `texts_shared`."""
    name = _compared_as(set_id)
    known = {name} if name == "sick-r/mteb" else {name, _WITH_SENTENCES_OF.get(name, name)}  # it has training pairs, too
    return [text["text"] for text in training_overlap if text.get("sample", False) != sample
            or not (known & {*text["none"]} or texts_shared([text], set_id, sample))]


def _compared_as(set_id: str) -> str:
    """Return the catalog's id of a set with the same sentences."""
    name = SAME_SENTENCES.get(set_id, set_id)
    year = name.removeprefix(FROM_MTEB).lower()
    return f"{year}/test" if name.startswith(FROM_MTEB) and year in _YEARS else name
