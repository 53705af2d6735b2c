"""RankCSE's terms for any contrastive method: its two views, and how teachers rank the batch's texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.gathering import Gathering, gather
from stsbench.training.api.ranking_options import RankingOptions
from stsbench.training.api.teachers import Teachers, compared
from stsbench.training.losses.ranking import consistency, cosines, listmle, listnet, without_own
from stsbench.training.modules.backbone import Backbone

_BY_ROW = "teacher similarities"


class Ranking:
    """What `RankingOptions` add to a method's views and to its terms."""

    def __init__(self, options: RankingOptions, backbone: Backbone, section: str = "options") -> None:
        """Name the teachers, which are loaded when they are needed. section: where the options stand, for messages."""
        self.options, self.backbone, self.section = options, backbone, section
        models = [(teacher.model, teacher.settings, teacher.weight) for teacher in options.teachers]
        self.teachers = Teachers(models, f"{section}.teachers", getattr(backbone, "offline", False))

    def inputs(self) -> dict[str, str]:
        """The teachers, by their fingerprints."""
        self._load()
        return self.teachers.fingerprints()

    def notes(self) -> list[str]:
        """Which the teachers are."""
        self._load()
        return self.teachers.notes()

    def add_to(self, views: Views, rows: Examples) -> Views:
        """`views` of a global batch with the teachers' similarities (N, C) of its texts, a row's own share going with it.

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
        """"ranking", by the teachers, and "consistency", of the two views; as `contrast` gathers and counts them.

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
                value = self._ranking(torch.cat(blocks, dim=1), self._columns(batch, mode), start)
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

    def _columns(self, batch: Batch, mode: Gathering) -> Tensor:
        """The teachers' similarities of the rows that the loss is of, to the columns that it compares them with."""
        if _BY_ROW not in batch.by_row:
            raise StsbenchError(f"{self.section}.teachers: the batch lacks their similarities, which `views` adds")
        return compared(batch.by_row[_BY_ROW], batch.shares, mode)

    def _load(self) -> None:
        self.teachers.load(next(self.backbone.parameters()).device)
