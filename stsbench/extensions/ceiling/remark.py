"""What a record says of a user's own pairs whose file holds the raw labels, too: how high a perfect model would score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stsbench.data.own.table import column_names
from stsbench.errors import DataError
from stsbench.evaluation.records import ScoreRow
from stsbench.extensions.ceiling.labels import measure_ceiling

LABELS = "labels"  # the column, whose cells hold several


def remarks(protocol: str, path: Path, scores: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence where a file of scored pairs has a column of raw labels, and whether a score is above what they
    allow; [] elsewhere."""
    try:
        if protocol != "sts" or not path.is_file() or LABELS not in column_names(path):
            return []
        ceiling = measure_ceiling(path)
    except DataError:
        return []
    above = [row for row in scores if row.metric == "spearman" and row.subset is None and row.value > ceiling.high][:1]
    doubt = "".join(f"; {row.value:.2f} is above it: were these labels trained on?" for row in above)
    expected = f"{ceiling.best:.1f} ({ceiling.low:.1f} to {ceiling.high:.1f})"
    return [f"{path.name}: a perfect model is expected to score {expected} against these labels, by how far their "
            f"annotators agree{doubt}"]
