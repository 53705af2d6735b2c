"""What a tab is called and what is said about it."""

from __future__ import annotations

import re

from stsbench.forms import changed_settings
from stsbench.leaderboard.lines import Line, metrics_across
from stsbench.records import PLAIN, ProtocolIdentity

GROUPS = {
    "sts": "STS", "regression": "Regression", "transfer": "Transfer", "retrieval": "Retrieval", "geometry": "Geometry",
    "mteb": "MTEB", "dev": "Ablations", "few-labels": "Few labels", "cost": "Cost",
}  # fmt: skip
METRICS = {"f1": "F1", "mse": "MSE", "mrr": "MRR", "cosine_spearman": "Spearman of cosines"}
LOWER = {"mse", "alignment", "uniformity", "minutes", "memory", "parameters"}
ABOUT = {
    "sts": "Cosine of two sentences' vectors against human scores; nothing is trained.",
    "regression": "SentEval's trained head on [|u - v| ; u * v]: relatedness (STS-B, SICK-R) or entailment (SICK-E).",
    "transfer": "SentEval's probe: a logistic regression on frozen vectors.",
    "retrieval": "Is a sentence's paraphrase among its nearest neighbours? STS-B test's 97 pairs with the highest score.",
    "geometry": "Where STS-B's sentences lie on the unit sphere.",
    "mteb": "Scored by mteb's own evaluators. On SentEval's text these are not MTEB's leaderboard scores.",
}
AGGREGATIONS = {
    "all": "One correlation over all pairs of a year.",
    "mean": "The mean of the subsets' correlations.",
    "wmean": "The mean of the subsets' correlations, weighted by their pairs.",
    "unknown": "The source does not say how a year's subsets were pooled.",
}
VIEWS = {"senteval": "SentEval's tokenised text", "raw": "the Hub's raw text", "sample": "sample data", "own": "own files"}


def named(metric: str) -> str:
    """A metric as a heading: "Spearman", "recall@1"."""
    return METRICS.get(metric, metric if "@" in metric else metric[:1].upper() + metric[1:])


def lower_is_better(metric: str) -> bool:
    """Whether a smaller score is a better one."""
    return metric in LOWER


def digits_of(line: Line) -> int:
    """Decimals that are shown: two for scores x 100, three for plain numbers."""
    columns = line.cells if metrics_across(line.protocol) else [line.setting.metric]
    return 3 if any(column in PLAIN for column in columns) else 2


def form(line: Line) -> str:
    """What is unusual about the setting: the protocol's form, changed settings, another text view; "" for the default."""
    identity = ProtocolIdentity(
        name=line.protocol.name, label=line.label, version=line.protocol.version, settings=line.protocol.settings
    )
    own = line.label if line.protocol.labels_variants and line.label != line.protocol.name else ""
    view = "" if line.setting.view == "senteval" else f"{line.setting.view} text" if line.setting.view == "raw" else (
        line.setting.view)  # fmt: skip
    without = line.protocol.settings.get("without_overlap")
    left_out = f"without overlap with {', '.join(without)}" if without else ""
    other = "" if line.known else "data not the catalog's"
    return ", ".join(filter(None, (own, changed_settings(identity), left_out, view, other)))


def title(line: Line) -> str:
    """"Spearman, all", with what is unusual behind it."""
    setting = line.setting
    base = "" if metrics_across(line.protocol) else named(setting.metric)
    return ", ".join(filter(None, (base, setting.aggregation, form(line)))) or "STS-B"


def slug(line: Line) -> str:
    """A tab's name in an address: "sts-spearman-all"."""
    setting = line.setting
    metric = "" if metrics_across(line.protocol) else setting.metric
    return plain("-".join(filter(None, (setting.protocol, metric, setting.aggregation, form(line)))))


def plain(text: str) -> str:
    """Small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def about(line: Line) -> str:
    """One or two sentences on what the numbers are."""
    setting = line.setting
    said = [ABOUT.get(setting.protocol, ""), AGGREGATIONS.get(setting.aggregation or "", "")]
    said.append(f"Text: {VIEWS.get(setting.view, setting.view)}.")
    return " ".join(filter(None, said))
