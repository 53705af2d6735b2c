"""Sentences on what records hold: encoder, training, data, protocol, scores, versions; and reports of them in Markdown or
LaTeX."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from stsbench.config import shorten
from stsbench.display.markup import PACKAGES, caption, plain_markdown
from stsbench.display.table import Table
from stsbench.display.tabular import Form
from stsbench.encoders.prompt.prompt import described
from stsbench.encoders.prompt.reading import described_reading, read_otherwise
from stsbench.encoders.traits import is_transductive, shortened
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import changed_settings
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.provenance import CHANGES
from stsbench.evaluation.records import Record
from stsbench.evaluation.schema import Metric
from stsbench.wording import counted, joined, visible

_AGGREGATIONS = {"all": "one score over all items of a task", "mean": "the mean of the scores of a task's subsets",
            "wmean": "the mean of the scores of a task's subsets, weighted by their items"}
_NAMED = ("stsbench", "torch", "transformers")  # the packages that a paper names
_SCORES = {"spearman": "Spearman's rank correlation", "pearson": "Pearson's correlation", "mse": "mean squared error"}
_TEXTS = {
    "senteval": "SentEval's text of the sets (text version senteval)", "raw": "the raw text of the sets (text version raw)",
    "sample": "the invented sentences of the sample inside stsbench", "own": "data of the user or of mteb, in no catalog",
}
_READ_BY_MODEL = ("transformers", "sentence-transformers")


@dataclass(frozen=True)
class Report:
    """What was measured and how, in paragraphs of plain text; then the results: a paragraph and a table each."""

    paragraphs: Sequence[str]
    results: Sequence[tuple[str, Table]]

    def text(self, form: Form = "markdown") -> str:
        """Return the report as Markdown, or as LaTeX that needs the packages booktabs and graphicx.

        Raises StsbenchError for another form.

        >>> from stsbench.extensions.reports.facts import Report
        >>> from stsbench.display.table import Column, Table
        >>> table = Table("scores x 100", [Column("task", ["STS-B"]), Column("A", [1])])
        >>> print(Report(["A is a_b."], [("A scores 1.", table)]).text())
        A is a_b.
        <BLANKLINE>
        A scores 1.
        <BLANKLINE>
        **Table 1.** scores x 100
        <BLANKLINE>
        | task | A |
        | --- | ---: |
        | STS-B | 1 |
        <BLANKLINE>
        """
        if form not in get_args(Form):
            raise StsbenchError(f"form={shorten(form)}: a report is 'markdown' or 'latex'")
        return self._latex() if form == "latex" else self._markdown()

    def _markdown(self) -> str:
        parts = [*map(plain_markdown, self.paragraphs)]
        for number, (paragraph, table) in enumerate(self.results, 1):
            grid = replace(table, title="", notes=()).markdown().rstrip("\n")
            parts += [plain_markdown(paragraph), f"**Table {number}.** {plain_markdown(table.title)}", grid]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _latex(self) -> str:
        parts = [caption(visible(text)) for text in self.paragraphs]
        for number, (paragraph, table) in enumerate(self.results, 1):
            parts += [caption(visible(paragraph)), replace(table, notes=(), label=f"report-{number}").latex()]
        return PACKAGES + "\n" + "\n\n".join(filter(None, parts))


def encoder_facts(records: Sequence[Record]) -> str:
    """Return how an encoder makes vectors: "pooler mean, no prompt, at most 512 tokens, vectors normalised, float32, ...".

    records: all of one encoder, or of its seeds. Its name may be a folder's or a short one: the weights' digest says which
    model it was. What an older record's spec lacks is named as not recorded.
    """
    spec, options = records[0].encoder.spec, records[0].encoder.spec.get("options") or {}
    if not records[0].encoder.dimension:
        return f"scores that another tool wrote ({records[0].data.origin}), of sha256 {records[0].encoder.fingerprint[:12]}"
    reads = spec.get("kind") in _READ_BY_MODEL or spec.get("pooler") is not None
    parts = [f"pooler {spec['pooler']}"] if spec.get("pooler") is not None else []
    if spec.get("template") is not None:
        parts.append(f"template “{spec['template']}”")
    if spec.get("prefix") is not None:
        parts.append(f"prompt “{spec['prefix']}”")
    parts += [*described(options), *described_reading(options)]
    by_task = any(any((record.provenance.get("prompts") or {}).values()) for record in records)
    prompted = by_task or {"prompt", "prompts"} & options.keys() or read_otherwise(options)
    if reads and not prompted and spec.get("template", "") is None and spec.get("prefix", "") is None:
        parts.append("no prompt")
    if spec.get("max_length") is not None:
        parts.append(f"at most {counted(spec['max_length'], 'token')}")
    if spec.get("normalize") is not None and reads:
        of_last = "" if spec.get("pooler") is not None else " at the end"  # only the last of a library's modules is known
        parts.append("vectors normalised" if spec["normalize"] else f"vectors not normalised{of_last}")
    if spec.get("post") is not None:
        parts.append(f"post-processed by {spec['post']}")
    parts.append(f"{records[0].encoder.dimension:,} dimensions")
    if spec.get("dtype"):
        parts.append(f"computed in {spec['dtype']}")
    weights = {str(record.encoder.spec.get("weights") or "") for record in records}
    if len(weights) == 1 and any(weights):  # seeds have weights of their own
        parts.append(f"weights of sha256 {weights.pop()[:12]}")
    lacking = {"pooler": "pooler", "prefix": "prompt", "max_length": "limit on length", "normalize": "normalisation",
               "dtype": "precision"}
    if reads and (unknown := [word for key, word in lacking.items() if key not in spec]):
        parts.append(f"not recorded: {joined(unknown)}")
    return ", ".join(parts)


def fitting_facts(records: Sequence[Record]) -> str:
    """Return what an encoder ("it") or its post-processing was fitted on, in a sentence; "" where nothing was fitted."""
    fitted = list(dict.fromkeys(shortened(str(on)) for record in records if (on := record.encoder.spec.get("fitted_on"))))
    if not fitted:
        return ""
    tested = [record for record in records if is_transductive(record.encoder.spec.get("fitted_on"), record.data.id)]
    caution = " These include the very texts that it is tested on (transductive)." if tested else ""
    by_set = ", set by set," if len(fitted) > 1 else ""
    return f"It was fitted{by_set} on the texts of {joined(fitted)}.{caution}"


def cut_texts(records: Sequence[Record]) -> str:
    """Return how many texts lost tokens to the limit, in a sentence; "" without a limit, or where no record counts them."""
    cut = [record.counts["truncated"] for record in records if "truncated" in record.counts]
    if not cut or records[0].encoder.spec.get("max_length") is None:
        return ""
    if len(cut) < len(records):
        return "Not all records say how many texts were cut at the limit."
    return f"It cut up to {counted(max(cut), 'text')} of a set at the limit." if max(cut) else "It cut no text at the limit."


def training_facts(runs: Sequence[Record]) -> list[str]:
    """Return what the records say of an encoder's training, in sentences: recipe, seeds, start, and texts shared with test
    sets.

    runs: one record of every run. Nothing for what is not trained, such as word counts.
    """
    first = runs[0].provenance
    if not any(first.get(key) is not None for key in ("recipe", "seed", "stage")):
        trained = runs[0].encoder.spec.get("kind") in _READ_BY_MODEL
        return ["The records do not say how it was trained."] if trained else []
    recipe = f"by the recipe {first['recipe']}" if first.get("recipe") else "by a recipe that is not recorded"
    stated = [run.provenance.get("seed") for run in runs]
    seeds = joined(map(str, sorted(seed for seed in set(stated) if seed is not None)))
    noun = "the seed" if len(set(stated)) == 1 else "the seeds"
    unknown = "; its seed is not recorded" if len(runs) == 1 else "; not every seed is recorded"
    lines = [f"It was trained {recipe}{unknown if None in stated else f' with {noun} {seeds}'}."]
    if on := first.get("trained_on"):
        lines.append(f"Its training text holds sentences of {joined(on)}.")
    lines += [_overlap(text) for text in first.get("training_overlap") or []]
    if not first.get("trained_on") and not first.get("training_overlap"):
        lines.append("Whether its training text shares sentences with the test sets is not recorded.")
    return [*lines, "Nor is how its checkpoint was chosen." if lines[-1].endswith("is not recorded.") else
            "How its checkpoint was chosen is not recorded."]


def _overlap(text: Mapping[str, Any]) -> str:
    """Return what a training text shares with test sets, in a sentence."""
    shared = [f"{name} ({counted(one['exact'] + one['normalised'], 'text')} of {one['texts']:,})"
              for name, one in text["shared"].items()]
    parts = [f"with {joined(shared)}"] if shared else []
    if text["none"]:
        parts.append(f"none with {joined(text['none'])}")
    if text["not_looked_for"]:
        parts.append(f"not looked for: {joined(text['not_looked_for'])}")
    how = f"Texts that its training text {text['text']} shares with test sets ({', '.join(text['looked_for'])})"
    return f"{how}: {'; '.join(parts)}."


def data_facts(records: Sequence[Record], items: int) -> str:
    """Return the text version and the counts, in a sentence. records: of one run, one for each set; items: that are
    scored."""
    texts = joined(dict.fromkeys(_TEXTS[record.data.text_version] for record in records))
    changed = [record.data.shown for record in records if not record.data.known]
    unlike = f" Not as in the catalog: {joined(changed)}." if changed else ""
    return f"The data are {texts}: {counted(items, 'scored item')} in {counted(len(records), 'set')}.{unlike}"


def protocol_facts(record: Record) -> str:
    """Return "Protocol sts, version 1 (similarity cosine).": every setting that changes a score, and which are not the
    default."""
    protocol = record.protocol
    kind = load_protocol(protocol.name)
    paper = "" if protocol.label.partition(":")[0] == protocol.name else f" as the preset {protocol.label} sets it"
    name = protocol.name if paper else protocol.label
    kept = {key: value for key, value in protocol.settings.items()
            if key not in kind.cosmetic | {kind.path_setting, "without_overlap"}}
    settings = ", ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in kept.items())
    changes = changed_settings(protocol)
    line = f"Protocol {name}{paper}, version {protocol.version}{f' ({settings})' if settings else ''}."
    if changes:
        line += f" Not the default: {changes}."
    if others := protocol.settings.get("without_overlap"):
        line += f" Left out are the pairs that share a sentence with {joined(others)}: this is not the published task."
    return line


def score_facts(metric: str, declared: Metric, aggregation: str | None) -> str:
    """Return "Scores are Spearman's rank correlation, x 100, over all pairs of a task.": metric, unit, direction,
    aggregation."""
    unit = ", x 100" if declared.scale == 100 else ""
    neither = ", of which neither end is better" if declared.better == "neither" else ""
    better = ", lower is better" if declared.lower else neither
    over = "" if aggregation is None else f"; aggregation {aggregation}"
    over += f": {_AGGREGATIONS[aggregation]}" if aggregation in _AGGREGATIONS else ""
    return f"Scores are {_SCORES.get(metric, metric)}{unit}{better}{over}."


def version_facts(records: Sequence[Record]) -> str:
    """By which versions, on which device and when these were measured: "with stsbench 0.1.0 (revision ...), ...". What no
    record names is said to be not recorded."""
    stated = [record.provenance for record in records]
    revisions = _unlike(one.get("git") for one in stated)
    at = joined(revision.removesuffix(CHANGES)[:12] + (" with uncommitted changes" if revision.endswith(CHANGES) else "")
                 for revision in revisions) if revisions else "not recorded"
    parts, which = [], "revisions" if len(revisions) > 1 else "revision"
    for package in _NAMED:
        if values := _unlike((one.get("versions") or {}).get(package) for one in stated):
            parts.append(f"{package} {joined(values)}{f' ({which} {at})' if package == 'stsbench' else ''}")
    devices = _unlike(one.get("device") for one in stated)
    days = sorted({record.created.date().isoformat() for record in records})
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    by = f"with {joined(parts)}" if parts else "with versions that are not recorded"
    return f"{by}, on {joined(devices) if devices else 'a device that is not recorded'}, {when}"


def _unlike(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value))
