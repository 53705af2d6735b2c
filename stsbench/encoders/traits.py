"""The traits of an encoder: what is known of it besides its spec. Its prompts, chosen by a text's role and task in mteb's
order of names, its similarity, and which test sets it has seen: those that it was fitted on (`fitted_on` in a spec:
ID@DIGEST, or ID+ID@DIGEST), those whose sentences it was trained on (`trained_on` in a record's provenance, e.g. sts12,
stsb), and those that share texts with its training text (`training_overlap`, also in the provenance).
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
# Sets that hold the sentences of another set: mteb's copies, STS-B in its second version, and STS-B with its translations.
SAME_SENTENCES = {
    FROM_MTEB + "STSBenchmark": "stsb/test", FROM_MTEB + "SICK-R": "sick-r/mteb", "stsb.v2/test": "stsb/test",
    "stsb-multi/test": "stsb/test",
}
# Sets whose tested sentences are, or include, those of another set.
_WITH_SENTENCES_OF = {
    "stsb/splits": "stsb/test", "sick-r/splits": "sick-r/test", "sick-e/splits": "sick-r/test", "sick-r/mteb": "sick-r/test",
}
_YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
STATE = "post_state"  # in a spec's options: the digest of a fitted post-processing


@dataclass(frozen=True)
class Traits:
    """What is known of an encoder besides its spec; an encoder built on another one passes all of it on.

    similarity: cosine, dot, euclidean or manhattan, by which the model's author compares vectors. prompts: name -> text,
    chosen by a text's role and task; empty where all texts have one prompt. default_prompt: the prompt of texts for which
    `prompts` has none, where the spec does not hold it. adapters: names of adapters, chosen by a text's task; default_route:
    the route of texts without a role, where queries and documents have their own. trained_on: the test data whose sentences
    the encoder was trained on, so that its scores on them are transductive; training_overlap: what its training texts share
    with test sets. libraries: installed packages whose version may change a vector. attention: the forward pass, as in
    EncoderOptions; the vectors of one that a user chose are cached apart. asks_task: whether the model itself takes a text's
    task as an input.
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
        """Return whether the role or the task of a text decides its prompt, or its route through the model."""
        return bool(self.prompts or self.adapters or self.default_route or self.asks_task)


@dataclass(frozen=True)
class TextTask:
    """The task that a text is encoded for. name: mteb's name of it where it has one, else ours; type: mteb's type, such as
    STS, Classification or Retrieval, "" where unknown; metadata: mteb's TaskMetadata, where mteb calls the encoder."""

    name: str = ""
    type: str = ""
    metadata: Any = field(default=None, compare=False, repr=False)


def prompt_name(prompts: Mapping[str, Any], task: TextTask, role: str | None) -> str | None:
    """Return the name of the prompt that mteb chooses (2.26, models/abs_encoder.py, get_prompt_name), or None.

    It is the first of {task}-{role}, {task}, {type}-{role}, {type}, {role} that `prompts` has.
    """
    names = [name for of in (task.name, task.type) if of for name in ([f"{of}-{role}", of] if role else [of])]
    return next((name for name in [*names, *([role] if role else [])] if name in prompts), None)


def reading(traits: Traits, task: TextTask, role: str | None) -> tuple[str | None, str | None]:
    """Return the arguments of `Encoder.for_role`, a role or adapter and a prompt, for texts of a task and a role.

    role: "query", "document" or None. The prompt is None where the encoder has none for these texts: a default prompt stays.
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
    # sentence-transformers gives every model a prompt for each role, empty if need be, so that no default prompt is used.
    return traits.default_prompt if role is None else ""


def reading_in_words(role: str, prompt: str, route: str | None) -> str:
    """Return a phrase that says how texts of a role ("text" for none) are read: query "query: " by query_tower."""
    shown = json.dumps(prompt, ensure_ascii=False) if prompt else "no prompt"
    return " ".join([*([] if role == "text" else [role]), shown, *([] if route in (None, role) else [f"by {route}"])])


def stated(prompts: Mapping[str, str]) -> dict[str, Any]:
    """Return prompts as a spec holds them: name -> text, or, for a mapping that makes its texts on demand, what decides
    them (`described`)."""
    described: dict[str, Any] = getattr(prompts, "described", None) or dict(prompts)
    return described


def named_source(texts: Sequence[str], source: str) -> str:
    """Return `source` as it is where it holds a digest (ID@DIGEST), else with the digest of `texts` appended: other texts
    may have the same name."""
    return source if "@" in source else f"{source}@{hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()}"


def fitted_sets(fitted_on: object) -> tuple[str, ...]:
    """Return the ids of the sets that `fitted_on` names, or its file's name; () where nothing was fitted."""
    return tuple(str(fitted_on).partition("@")[0].split("+")) if fitted_on else ()


def shortened(fitted_on: str) -> str:
    """Return ID@DIGEST with 12 digits of the digest, as messages print it."""
    ids, at, digest = fitted_on.partition("@")
    return ids + at + digest[:12]


def is_transductive(fitted_on: object, set_id: str) -> bool:
    """Return whether an encoder was fitted on the texts of a set, alone or with other splits of its data."""
    return set_id in fitted_sets(fitted_on)


def was_trained_on(trained_on: Collection[str], set_id: str) -> bool:
    """Return whether the sentences of a set, such as sts12/test or mteb's copy mteb:STS12, were among the training text.

    trained_on: names of data (sts12), which stand for all of their sets, or ids of sets (sick-r/mteb).
    """
    name = SAME_SENTENCES.get(set_id, set_id)
    return name in trained_on or name.removeprefix(FROM_MTEB).partition("/")[0].lower() in trained_on


@dataclass(frozen=True)
class SharedTexts:
    """The overlap of a training text with a test set. exact: how many of the set's `texts` distinct texts it holds verbatim;
    normalised: how many more it holds but for case and punctuation; rows: training rows that hold one of them."""

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
    """Return the overlap of each training text with a test set, where there is any.

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
    """Return the training texts whose overlap with a test set is not known. The arguments are those of `texts_shared`."""
    name = _compared_as(set_id)
    known = {name} if name == "sick-r/mteb" else {name, _WITH_SENTENCES_OF.get(name, name)}  # MTEB's has training pairs, too
    return [text["text"] for text in training_overlap if text.get("sample", False) != sample
            or not (known & {*text["none"]} or texts_shared([text], set_id, sample))]


def _compared_as(set_id: str) -> str:
    """Return the catalog's id of a set with the same sentences."""
    name = SAME_SENTENCES.get(set_id, set_id)
    year = name.removeprefix(FROM_MTEB).lower()
    return f"{year}/test" if name.startswith(FROM_MTEB) and year in _YEARS else name
