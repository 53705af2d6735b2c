"""Encoders that are not trained, as teachers: how alike they find the texts of a batch, which vectors they give them, and
RankCSE's terms for any contrastive method: its two views, and how teachers rank the batch's texts."""

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

_LEAST = 1e-8  # the smallest norm that is divided by
_BY_ROW = "teacher similarities"


class Teachers:
    """Any encoders, weighted. They read texts, not token ids, so that a teacher may have any vocabulary.

    They are no part of the method's weights: no checkpoint and no export holds them. A run knows them by fingerprint.
    """

    def __init__(
        self, models: Sequence[tuple[str, Mapping[str, Any], float]], option: str = "teachers", offline: bool = False
    ) -> None:
        """models: of each teacher its name as after --model, further arguments of `load_encoder`, and its weight."""
        self.models, self.option, self.offline = models, option, offline
        self.encoders: list[Encoder] = []

    def load(self, device: torch.device) -> None:
        """Read them, once, and have each encode a text: some load late, and draw random numbers then, which a run that was
        resumed would draw at another step. Here they are put back. Raises EncoderError, one line, that names the teacher."""
        if self.encoders:
            return
        name = str(device) if device.type in ("cuda", "mps") else "cpu"
        with forked():
            self.encoders = [self._loaded(model, settings, name) for model, settings, _ in self.models]

    def fingerprints(self) -> dict[str, str]:
        """Return teacher NUMBER, from 1 -> its fingerprint."""
        return {f"teacher {k}": encoder.identity.fingerprint() for k, encoder in enumerate(self.encoders, 1)}

    def notes(self) -> list[str]:
        """Return which they are and how they pool, a line each."""
        shares = self._shares()
        return [
            f"teacher {k}: {encoder.spec.name}, pooler {encoder.spec.pooler}, weight {share:g}"
            for k, (encoder, share) in enumerate(zip(self.encoders, shares, strict=True), 1)
        ]

    def with_dropout(self, seed: int) -> Teachers:
        """Return the same, loaded, with their dropout on, drawn from `seed`. Raises EncoderError, one line, for one
        without any."""
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
            # in float64: two equal texts then stand at one distance from every other
            total += share * _dense(vectors[: len(queries)] @ vectors[len(queries) :].T)
        return total.astype(np.float32)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 (n, D) vectors of n texts. One teacher's are as it gives them. Of several each is scaled to the
        length of the root of its weight, and they stand side by side: their cosines are then what `similarities` gives.

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
            if encoder.computes_in != "nothing":  # vectors that are stored are of the training text alone
                encoder.encode(["a"])
        except TypeError as error:
            raise StsbenchError(f"{self.option}: {model}: {error}") from error
        except EncoderError as error:
            raise EncoderError(f"{self.option}: {error}") from error
        return encoder

    def _read(self, encoder: Encoder, texts: list[str]) -> Any:
        """Return the vectors of texts. StsbenchError for one with NaN or infinity, which a loss would compare as any
        number."""
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
    """What `RankingOptions` add to a method's views and to its terms."""

    def __init__(self, options: RankingOptions, backbone: Backbone, section: str = "options") -> None:
        """Name the teachers, which are loaded when they are needed. section: where the options stand, for messages."""
        self.options, self.backbone, self.section = options, backbone, section
        models = [(teacher.model, teacher.settings, teacher.weight) for teacher in options.teachers]
        self.teachers = Teachers(models, f"{section}.teachers", backbone.offline)

    def inputs(self) -> dict[str, str]:
        """Return the teachers, by their fingerprints."""
        self._load()
        return self.teachers.fingerprints()

    def notes(self) -> list[str]:
        """Return which the teachers are."""
        self._load()
        return self.teachers.notes()

    def add_to(self, views: Views, rows: Examples) -> Views:
        """Return `views` of a global batch with the teachers' similarities (N, C) of its texts, a row's own share going with
        it.

        Of plain sentences C is N. Of anchors, positives and k hard negatives it is (1 + k) N: how near a row's anchor is to
        every positive, then to every hard negative. The teachers read the texts as the data give them, whatever the views
        change in them.
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
        """Return "ranking", by the teachers, and "consistency", of the two views; as `contrast` gathers and counts them.

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
