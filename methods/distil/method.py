"""Distillation: a smaller encoder learns vectors, similarities or rankings of any other encoders, without labels."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.errors import StsbenchError
from stsbench.losses.ranking import cosines, row_loss, vector_loss, without_own
from stsbench.training.api.batch import Batch, Examples, Term, Views, gather, gather_columns
from stsbench.training.api.method import Method, Needs
from stsbench.training.api.teachers import Teachers
from stsbench.training.modules.backbone import Backbone

from .options import DistilOptions

_VECTORS, _SIMILARITIES = "teacher vectors", "teacher similarities"  # keys of Views.by_row


class Distil(Method):
    """Each row has one text. The student reads it tokenised and cut, the teachers, which are not trained, as it is."""

    Options = DistilOptions
    options: DistilOptions
    sample_settings = {  # noqa: RUF012 - as of the base
        "options.teachers": [{"model": "minilm"}], "backbone.layers": [1, 4],
    }

    def __init__(self, backbone: Backbone, options: DistilOptions) -> None:
        """Build the student and the projection. The teachers are loaded on first use."""
        super().__init__(backbone, options)
        models = [(teacher.model, teacher.settings, teacher.weight) for teacher in options.teachers]
        self.teachers = Teachers(models, "options.teachers", backbone.offline)
        compares = options.objective == "vectors"
        self.pca = PCA(options.center) if compares and options.projection in ("auto", "pca") else None
        self.linear = LinearProjection(backbone.vector_width) if compares and options.projection == "linear" else None
        self.seed = int(torch.randint(2**31, ()))  # draws rows for PCA; from the run's seed, equal in all processes
        self.kind: str | None = None  # the kind of projection, once the teachers' width is known
        self.width = 0  # of the teachers' vectors
        self.texts: list[str] | None = None  # texts for PCA, until it is fitted

    @classmethod
    def needs(cls, options: DistilOptions) -> Needs:
        """Return the needs: sentences; they are negatives of each other in contrastive, similarities and ranks alone."""
        return Needs(negatives=options.objective != "vectors" or options.loss == "contrastive")

    def prepare(self, rows: Any) -> None:
        """Draw the rows on which PCA is fitted."""
        if self.pca is None:
            return
        numbers = np.asarray(rows.rows)
        if len(numbers) > self.options.pca_texts:
            drawn = np.random.default_rng(self.seed).choice(len(numbers), self.options.pca_texts, replace=False)
            numbers = numbers[np.sort(drawn)]
        self.texts = rows.at(numbers).texts("sentence")

    def start_stage(self, stage: str) -> None:
        """Fit PCA, or initialise the linear projection; a resumed run then loads the stored one."""
        self._load()
        if self.linear is not None:
            self.linear.start(self.width)
        if self.kind == "pca":
            assert self.pca is not None
            if self.texts is None:
                raise StsbenchError("options.projection pca: PCA is fitted on the training text, which was not prepared")
            self.pca.fit(self.teachers.vectors(self.texts), self.backbone.vector_width)
            self.texts = None

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence, and by row the teachers' vectors or similarities."""
        self._load()
        texts = rows.texts("sentence")
        views = Views([self.read(rows, "sentence")])
        if self.options.objective == "vectors":
            views.by_row[_VECTORS] = [self.teachers.vectors(texts)]
        else:
            views.by_row[_SIMILARITIES] = [self.teachers.similarities(texts, texts)]
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return one term, named by options.objective."""
        objective = self.options.objective
        vectors = self.vectors(batch.ids, batch.mask)
        with torch.autocast(vectors.device.type, enabled=False):
            if objective == "vectors":
                return {objective: self._vector_term(vectors, batch)}
            return {objective: self._row_term(vectors, batch)}

    def inputs(self) -> dict[str, str]:
        """Return the teachers' fingerprints, and a digest of PCA's texts and settings."""
        self._load()
        inputs = self.teachers.fingerprints()
        if self.kind == "pca" and self.texts is not None:
            fit = [self.texts, self.backbone.vector_width, self.options.center, *inputs.values()]
            inputs["teacher PCA"] = hashlib.sha256(json.dumps(fit).encode()).hexdigest()
        return inputs

    def notes(self) -> list[str]:
        """Return lines that name the teachers and the projection between different widths."""
        self._load()
        lines = self.teachers.notes()
        if self.kind == "pca" and self.texts is not None:
            mean = "without" if self.options.center else "with"
            lines.append(
                f"teachers: {self.width} numbers to {self.backbone.vector_width} by PCA of {len(self.texts):,} texts of the "
                f"training text, {mean} their mean"
            )
        if self.kind == "linear":
            lines.append(f"student: {self.backbone.vector_width} numbers to {self.width} by a linear map, for the training")
        return lines

    def _vector_term(self, vectors: Tensor, batch: Batch) -> Term:
        """Return the loss between the student's and the teachers' vectors; contrastive uses those of all processes."""
        teachers, loss, count, start = batch.by_row[_VECTORS], self.options.loss, len(batch), 0
        if self.linear is not None:
            vectors = self.linear(vectors)
        if self.pca is not None and len(self.pca.components):
            teachers = self.pca(teachers)
        if loss == "contrastive":
            shares, mode = batch.shares, self.gather_mode
            teachers, start = gather(teachers, shares, mode), shares.start if mode == "exact" else 0
            if mode == "simcse":
                vectors, count = gather(vectors, shares, mode), shares.total
        return Term(vector_loss(vectors, teachers, loss, start, self.options.student_temperature), count)

    def _row_term(self, vectors: Tensor, batch: Batch) -> Term:
        """Return the loss on each row's cosines with all other rows of the batch, over processes by training.gather."""
        options, shares, mode = self.options, batch.shares, self.gather_mode
        every = gather(vectors, shares, mode)
        start, count = (shares.start if mode == "exact" else 0), len(vectors)
        if mode == "simcse":
            vectors, count = every, shares.total
        student = without_own(cosines(vectors, every), start)
        teacher = without_own(gather_columns(batch.by_row[_SIMILARITIES], shares, mode), start)
        value = row_loss(student, teacher, options.loss, options.teacher_temperature, options.student_temperature)
        return Term(value, count)

    def _load(self) -> None:
        """Load the teachers, and choose the projection by the width of their vectors."""
        self.teachers.load(next(self.backbone.parameters()).device)
        if self.options.objective == "vectors" and self.kind is None:
            self.width = self.teachers.width()
            self.kind = choose_projection(self.options, self.backbone.vector_width, self.width)


class _Sized(nn.Module):
    """A module that takes the shapes of stored weights and buffers, as the teachers' width is unknown until they load."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        for name, value in [*self.named_parameters(recurse=False), *self.named_buffers(recurse=False)]:
            stored = state_dict.get(f"{prefix}{name}")
            if stored is not None and stored.shape != value.shape:
                new = value.new_empty(stored.shape)
                setattr(self, name, nn.Parameter(new) if isinstance(value, nn.Parameter) else new)
        super()._load_from_state_dict(state_dict, prefix, *more)


class PCA(_Sized):
    """Projection on the first k principal components of the teachers' vectors. Stored in checkpoints, not exported."""

    mean: Tensor  # (D,)
    components: Tensor  # (k, D), rows of length 1 by falling variance

    def __init__(self, center: bool) -> None:
        """center: whether to subtract the mean of the vectors that PCA was fitted on."""
        super().__init__()
        self.center = center
        self.register_buffer("mean", torch.zeros(0))
        self.register_buffer("components", torch.zeros(0, 0))

    def fit(self, vectors: NDArray[np.float32], k: int) -> None:
        """Fit k components of `vectors` (n, D). Raises StsbenchError, one line, where n is below k."""
        if len(vectors) < k:
            raise StsbenchError(
                f"options.projection pca: {k} components need as many texts at least, and there are {len(vectors)}: set it "
                "to linear, or train on more text"
            )
        mean, components = principal_components(vectors, k)
        like = self.mean
        self.mean = torch.from_numpy(mean).to(like)
        self.components = torch.from_numpy(components).to(like)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (n, k) projections of (n, D) vectors."""
        vectors = vectors.to(self.components.dtype)
        product: Tensor = ((vectors - self.mean) if self.center else vectors) @ self.components.T
        return product


class LinearProjection(_Sized):
    """W x + b, the student's vectors at the teachers' width. Trained with it, stored in checkpoints, not exported."""

    def __init__(self, width: int) -> None:
        """width: of the student's vectors."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, width))
        self.bias = nn.Parameter(torch.zeros(0))

    def start(self, width: int) -> None:
        """Draw weights for the teachers' width, as nn.Linear does, from torch's global generator."""
        linear = nn.Linear(self.weight.shape[1], width)  # on the CPU: the same numbers on every device
        self.weight = nn.Parameter(linear.weight.detach().to(self.weight))
        self.bias = nn.Parameter(linear.bias.detach().to(self.bias))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (n, D) projections of (n, d) vectors."""
        return nn.functional.linear(vectors.to(self.weight.dtype), self.weight, self.bias)


def choose_projection(options: DistilOptions, student: int, teachers: int) -> str:
    """Return pca, linear or none for these widths. Raises StsbenchError, one line, if options.projection excludes them."""
    kind = options.projection
    if kind == "auto" and teachers >= student:
        kind = "pca" if teachers > student else "none"
    if kind == "linear" or (kind == "pca" and teachers >= student) or (kind == "none" and teachers == student):
        return kind
    advice = "pca or linear" if teachers > student else "linear"
    raise StsbenchError(
        f"options.projection {options.projection}: the teachers have {teachers} numbers and the student {student}; "
        f"set it to {advice}"
    )


def principal_components(vectors: NDArray[Any], k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean (D,) of (n, D) vectors, and their first k principal components (k, D), both float64; k <= n, D.

    Components are eigenvectors of the covariance in float64. The entry of a component with the largest absolute value is
    positive, as in scikit-learn's PCA.
    """
    mean = vectors.mean(0, dtype=np.float64)
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), 4096):  # in parts, to avoid a second copy of all vectors
        part = vectors[start : start + 4096] - mean
        covariance += part.T @ part
    _, eigenvectors = np.linalg.eigh(covariance)
    components = eigenvectors.T[::-1][:k]
    largest = components[np.arange(k), np.abs(components).argmax(1)]
    return mean, components * np.where(largest < 0, -1.0, 1.0)[:, None]
