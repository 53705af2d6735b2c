"""Train-test contamination: whether an entry's encoder was trained on sentences or labels of a test set (yes, no, unknown).

An answer follows from a record, from a statement in the entry, or from a training text that the makers name. Where none of
these shows anything, the answer is unknown, never no.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stsbench.encoders.traits import fitted_sets, texts_not_compared, texts_shared, was_trained_on
from stsbench.errors import StsbenchError
from stsbench.evaluation.records import Record
from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.leaderboard.records.statements import ALL, STSB_DEV, training_texts

from .board import Answer, Exposure

_UNSTATED = Exposure("unknown", "")


def set_name(name: str) -> str:
    """Return the data set that a split belongs to: "sts12" for "sts12/test"."""
    return name.partition("/")[0]


def is_transductive(record: Record, set_id: str) -> bool:
    """Return whether the encoder was fitted or trained on sentences of the data set that `set_id` belongs to."""
    fitted = map(set_name, fitted_sets(record.encoder.spec.get("fitted_on")))
    return set_name(set_id) in fitted or was_trained_on(record.provenance.get("trained_on", ()), set_id)


def merge(parts: Iterable[Exposure]) -> Exposure:
    """Return the joint answer of all parts of a training, or of all sets of an average: yes if any is yes, no if all are
    no, else unknown, with the reasons of the parts that have this answer.

    >>> merge([Exposure("no", "nothing is trained"), Exposure("yes", "fitted on its texts")]).answer
    'yes'
    """
    every = list(parts)
    answers = {part.answer for part in every}
    answer: Answer = "yes" if "yes" in answers else "no" if answers == {"no"} else "unknown"
    return Exposure(answer, "; ".join(dict.fromkeys(part.why for part in every if part.answer == answer and part.why)))


class Exposures:
    """Whether the entries of a board were trained on test sets: an `Exposure` per entry and set."""

    def __init__(self, entries: Iterable[LoadedEntry]) -> None:
        self._entries = {loaded.id: loaded for loaded in entries}
        self._known: dict[tuple[str, str, bool], Exposure] = {}
        self._trainings = {name: _trainings(loaded) for name, loaded in self._entries.items()}
        self._by_digest = {digest: text.overlap for text in training_texts().values() for digest in text.digests}

    def answer(self, name: str, set_id: str, sample: bool = False, after: Sequence[str] = ()) -> Exposure:
        """Return whether an entry was trained on a set. sample: of the package's sample; after: entries that start from it.

        Raises StsbenchError where an entry starts from none of the board's, or from itself.
        """
        if name in after or name not in self._entries:
            why = "starts from itself" if name in after else "is no entry of this board"
            raise StsbenchError(f"measured/{after[-1]}/entry.yaml: starts_from: {name} {why}: name the entry of its weights")
        key = name, set_id, sample
        if key not in self._known:
            self._known[key] = merge(self._parts(self._entries[name], set_id, sample, (*after, name)))
        return self._known[key]

    def by_columns(
        self, name: str, columns: Mapping[str, str], sample: bool, lead: str, averaged: Sequence[str],
    ) -> dict[str, Exposure]:
        """Return column -> answer, also for the lead column where it is an average. columns: column -> id of its set."""
        answers = {column: self.answer(name, set_id, sample) for column, set_id in columns.items()}
        if lead not in answers and averaged:
            of_tasks = {task: answers.get(task, _UNSTATED) for task in averaged}
            answer = merge(of_tasks.values()).answer
            tasks = [task for task, one in of_tasks.items() if one.answer == answer]
            answers[lead] = Exposure(answer, f"of {', '.join(tasks)}" if len(set(of_tasks.values())) > 1 else
                                     of_tasks[tasks[0]].why)
        return answers

    def _parts(self, loaded: LoadedEntry, set_id: str, sample: bool, after: Sequence[str]) -> list[Exposure]:
        """Return an answer for each known part of the encoder's training."""
        entry, texts = loaded.entry, training_texts()
        stated = entry.statements.get(set_name(set_id), entry.statements.get(ALL))
        named = [*entry.trained_on, *([STSB_DEV] if "dev-selected" in entry.flags else [])]
        parts = [_of_text(texts[text].overlap, set_id, sample) for text in named]
        parts = [part for part in parts if part.answer == "yes"]  # of a text used in part, a no proves nothing
        if entry.starts_from is not None:
            parts.append(self.answer(entry.starts_from, set_id, sample, after))
        if stated is not None:
            parts.append(Exposure(stated.answer, f"{stated.by} ({stated.shown})"))
        if (stated is None and entry.starts_from is None) or "transductive" in entry.flags:
            parts.append(_UNSTATED)  # there is no complete list of its training texts
        for training in self._trainings[loaded.id]:
            parts += self._of_training(training, set_id, sample)
        records = (item.record for run in loaded.runs for item in run.records)
        if any(record.data.id == set_id and is_transductive(record, set_id) for record in records):
            parts.append(Exposure("yes", "fitted or trained on its texts, by its record"))
        return parts

    def _of_training(self, stated: Mapping[str, Any], set_id: str, sample: bool) -> list[Exposure]:
        """Return the answers that follow from a record's description of the encoder's training."""
        overlaps = list(stated["training_overlap"] or ())
        digests = {*(stated["data"] or {}).values()} - {text.get("digest") for text in overlaps}
        overlaps += [self._by_digest[digest] for digest in sorted(digests & self._by_digest.keys())]
        parts = [_of_text(text, set_id, sample) for text in overlaps]
        if digests - self._by_digest.keys():
            parts.append(Exposure("unknown", "a training text that was not compared with the set"))
        if stated["teachers"]:
            parts.append(Exposure("unknown", "taught by an encoder whose training is not stated"))
        return parts


def _trainings(loaded: LoadedEntry) -> list[dict[str, Any]]:
    """Return the distinct descriptions of the encoder's training in an entry's records."""
    stated = [{key: item.record.provenance.get(key) for key in ("training_overlap", "data", "teachers")}
              for run in loaded.runs for item in run.records]
    return list({repr(one): one for one in stated}.values())


def _of_text(text: Mapping[str, Any], set_id: str, sample: bool) -> Exposure:
    """Return the answer that follows from one training text, an item of a record's `training_overlap`."""
    title = text["text"]
    if shared := texts_shared([text], set_id, sample):
        return Exposure("yes", f"{title} ({shared[0].exact + shared[0].normalised:,} of {shared[0].texts:,} texts)")
    if texts_not_compared([text], set_id, sample):
        return Exposure("unknown", f"{title}, which was not compared with the set")
    return Exposure("no", f"{title}: none of its texts")
