"""Teachers, encoders that are not trained: their similarities and vectors of texts, and RankCSE's terms for any contrastive
method, ranking distillation from teachers and ranking consistency of two views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.base import Encoder
from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError, StsbenchError
from stsbench.losses.ranking import consistency, cosines, listmle, listnet, without_own
from stsbench.torch_random import forked
from stsbench.training.api.batch import Batch, Examples, Gathering, Term, Views, gather, gather_columns
from stsbench.training.api.options import RankingOptions
from stsbench.training.modules.backbone import Backbone

_LEAST = 1e-8  # smaller norms count as this when vectors are divided by them
_BY_ROW = "teacher similarities"


class Teachers:
    """Frozen encoders with weights. They read texts, not token ids, so that a teacher may have any vocabulary.

    They are not among the method's weights: checkpoints and exports leave them out, and a run records their fingerprints.
    """

    def __init__(
        self, models: Sequence[tuple[str, Mapping[str, Any], float]], option: str = "teachers", offline: bool = False
    ) -> None:
        """Name the teachers. models: each one's name as after --model, further arguments of `load_encoder`, and weight."""
        self.models, self.option, self.offline = models, option, offline
        self.encoders: list[Encoder] = []

    def load(self, device: torch.device) -> None:
        """Load the teachers, if they are not loaded, and encode a text: some draw random numbers at their first text, which
        would change a resumed run. Random states are restored. Raises EncoderError, one line with the teacher's name."""
        if self.encoders:
            return
        name = str(device) if device.type in ("cuda", "mps") else "cpu"
        with forked():
            self.encoders = [self._loaded(model, settings, name) for model, settings, _ in self.models]

    def fingerprints(self) -> dict[str, str]:
        """Return the teachers' fingerprints by name, "teacher 1" and so on."""
        return {f"teacher {k}": encoder.identity.fingerprint() for k, encoder in enumerate(self.encoders, 1)}

    def notes(self) -> list[str]:
        """Return a line for each teacher: its name, pooler and share of the weights."""
        shares = self._shares()
        return [
            f"teacher {k}: {encoder.spec.name}, pooler {encoder.spec.pooler}, weight {share:g}"
            for k, (encoder, share) in enumerate(zip(self.encoders, shares, strict=True), 1)
        ]

    def with_dropout(self, seed: int) -> Teachers:
        """Return the loaded teachers with dropout switched on, drawn from `seed`. Raises EncoderError, one line, for a
        teacher without dropout."""
        other = Teachers(self.models, self.option, self.offline)
        try:
            other.encoders = [encoder.with_dropout(seed) for encoder in self.encoders]
        except EncoderError as error:
            raise EncoderError(f"{self.option}: {error}") from error
        return other

    def similarities(self, queries: Sequence[str], others: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 (n, m), the weighted mean of the teachers' cosines between n and m texts."""
        total = np.zeros((len(queries), len(others)))
        for encoder, share in zip(self.encoders, self._shares(), strict=True):
            vectors = self._unit(encoder, [*queries, *others])
            # float64, as in float32 two equal texts may get different cosines with a third one
            total += share * _dense(vectors[: len(queries)] @ vectors[len(queries) :].T)
        return total.astype(np.float32)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 (n, D) vectors of n texts. A single teacher's vectors are unchanged. Those of several are scaled to
        the square root of the teacher's weight and concatenated, so that their cosines are those of `similarities`.

        Raises StsbenchError, one line, for a teacher whose vectors are sparse.
        """
        parts = []
        for encoder, share in zip(self.encoders, self._shares(), strict=True):
            alone = len(self.encoders) == 1
            vectors = self._read(encoder, list(texts)) if alone else self._unit(encoder, list(texts)) * share**0.5
            parts.append(self._checked_dense(encoder, vectors))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def width(self) -> int:
        """Return D, the width of `vectors`."""
        stored = [encoder.dimension if encoder.computes_in == "nothing" else None for encoder in self.encoders]
        return sum(
            width or self._checked_dense(encoder, self._read(encoder, ["a"])).shape[1]
            for encoder, width in zip(self.encoders, stored, strict=True)
        )

    def _checked_dense(self, encoder: Encoder, vectors: Any) -> Any:
        if hasattr(vectors, "toarray"):
            raise StsbenchError(
                f"{self.option}: {encoder.spec.name} gives sparse vectors, which no student can have: it can teach "
                "similarities and ranks"
            )
        return vectors

    def _loaded(self, model: str, settings: Mapping[str, Any], device: str) -> Encoder:
        try:
            encoder = load_encoder(model, **{"device": device, "offline": self.offline, **settings}).identified()
            if encoder.computes_in != "nothing":  # stored vectors exist for the training text only, not for "a"
                encoder.encode(["a"])
        except TypeError as error:
            raise StsbenchError(f"{self.option}: {model}: {error}") from error
        except EncoderError as error:
            raise EncoderError(f"{self.option}: {error}") from error
        return encoder

    def _read(self, encoder: Encoder, texts: list[str]) -> Any:
        """Return the vectors of texts. Raises StsbenchError for a vector with NaN or infinity, which the losses would not
        notice."""
        vectors = encoder.encode(texts)
        sums = _dense(vectors.sum(axis=1)).ravel()
        if not np.isfinite(sums).all():
            text = texts[int(np.argmin(np.isfinite(sums)))]
            raise StsbenchError(f"{self.option}: {encoder.spec.name} gives NaN or infinity for the text {text[:80]!r}")
        return vectors

    def _unit(self, encoder: Encoder, texts: list[str]) -> Any:
        vectors = self._read(encoder, texts).astype(np.float64)
        norms = np.sqrt(_dense((vectors.multiply(vectors) if hasattr(vectors, "multiply") else vectors * vectors).sum(1)))
        lengths = np.maximum(norms.reshape(-1, 1), _LEAST)
        return vectors.multiply(1 / lengths).tocsr() if hasattr(vectors, "multiply") else vectors / lengths

    def _shares(self) -> list[float]:
        total = sum(weight for *_, weight in self.models)
        return [weight / total for *_, weight in self.models]


def _dense(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values)


class Ranking:
    """RankCSE's additions to a method (`RankingOptions`): the teachers' similarities to its views, and two terms."""

    def __init__(self, options: RankingOptions, backbone: Backbone, section: str = "options") -> None:
        """Name the teachers, which are loaded when they are needed. section: the recipe's section, for messages."""
        self.options, self.backbone, self.section = options, backbone, section
        models = [(teacher.model, teacher.settings, teacher.weight) for teacher in options.teachers]
        self.teachers = Teachers(models, f"{section}.teachers", backbone.offline)

    def inputs(self) -> dict[str, str]:
        """Return the teachers' fingerprints by name, "teacher 1" and so on."""
        self._load()
        return self.teachers.fingerprints()

    def notes(self) -> list[str]:
        """Return a line for each teacher: its name, pooler and share of the weights."""
        self._load()
        return self.teachers.notes()

    def add_to(self, views: Views, rows: Examples) -> Views:
        """Return the views of a global batch with the teachers' similarities of its texts, (N, C), added to `by_row`.

        Columns: the N plain sentences; or, for anchors, positives and k hard negatives, the (1 + k) N positives and hard
        negatives that an anchor is compared with. The teachers read the texts of the data, without the views' changes.
        Raises StsbenchError, one line, for views that are not of one text a row.
        """
        if not self.options.teachers:
            return views
        if not views.of_rows:
            why = "rank rows, and a view of this method is of another row, which they do not read: leave them out"
            raise StsbenchError(f"{self.section}.teachers {why}")
        if len(views.tokens[0]) != len(rows.rows):
            why = "ranks rows, and this method makes other texts of them: leave it out"
            raise StsbenchError(f"{self.section}.teachers {why}")
        self._load()
        anchors, *others = [rows.texts(role) for role in rows.roles if role not in ("label", "score")]
        columns = [text for texts in (others or [anchors]) for text in texts]
        views.by_row[_BY_ROW] = [self.teachers.similarities(anchors, columns)]
        return views

    def terms(
        self, queries: Tensor, keys: Tensor, negatives: Sequence[Tensor], batch: Batch, mode: Gathering = "exact"
    ) -> dict[str, Term]:
        """Return the terms "ranking", by the teachers, and "consistency", of the two views, with the counts of `contrast`.

        queries, keys and each of `negatives`: (n, d), row by row this process's share.
        """
        options, shares = self.options, batch.shares
        n, width = queries.shape
        vectors = torch.cat([queries, keys, *negatives], dim=1)
        rows = gather(vectors, shares, mode).split(width, dim=1)
        start, count = (shares.start if mode == "exact" else 0), n
        if mode == "simcse":
            queries, keys, count = rows[0], rows[1], shares.total
        with torch.autocast(queries.device.type, enabled=False):
            blocks = [cosines(queries, block) / options.student_temperature for block in rows[1:]]
            terms = {}
            if options.teachers:
                if _BY_ROW not in batch.by_row:
                    raise StsbenchError(f"{self.section}.teachers: the batch lacks their similarities, which `views` adds")
                columns = gather_columns(batch.by_row[_BY_ROW], batch.shares, mode)
                value = self._ranking(torch.cat(blocks, dim=1), columns, start)
                terms["ranking"] = Term(value, count, options.gamma)
            if options.consistency != "none":
                back = cosines(keys, rows[0]) / options.student_temperature
                terms["consistency"] = Term(consistency(blocks[0], back, options.consistency), count, options.beta)
        return terms

    def _ranking(self, student: Tensor, teacher: Tensor, start: int) -> Tensor:
        options = self.options
        teacher = teacher.to(student.dtype) / options.teacher_temperature
        if options.self_column == "out" or (options.self_column == "auto" and options.loss == "listnet"):
            student, teacher = without_own(student, start), without_own(teacher, start)
        if options.loss == "listnet":
            return listnet(student, teacher)
        return listmle(student, teacher, eps=options.eps, ranks=options.ranks)

    def _load(self) -> None:
        self.teachers.load(next(self.backbone.parameters()).device)
