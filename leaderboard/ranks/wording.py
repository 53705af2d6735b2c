"""Titles, ids and descriptions of the board's tabs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from stsbench.data.sets.catalog import SEVERAL, further_source
from stsbench.data.sets.sets import path_name
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Protocol, load_protocol
from stsbench.evaluation.schema import Metric
from stsbench.leaderboard.records.publications import PRINTED

from .lines import ScoreLine, column_metric

AGGREGATIONS = {
    "all": "One correlation over all pairs of a year.",
    "mean": "The mean of the subsets' correlations.",
    "wmean": "The mean of the subsets' correlations, weighted by their pairs.",
    "unknown": "The source does not say how a year's subsets were pooled.",
}
TEXT_VERSIONS = {
    "senteval": "SentEval's tokenised text", "raw": "the Hub's raw text", "sample": "sample data", "own": "own files",
}

_DIGITS = len("own:") + 8  # characters of a user set's id that are shown where two sets have one name


def group_title(group: str) -> str:
    """Return the title of a group of tabs: that of a protocol, or of a kind of table that only papers print."""
    return PRINTED[group][0] if group in PRINTED else load_protocol(group).title


def group_about(group: str) -> str:
    """Return a sentence that describes the numbers of a group of tabs."""
    return PRINTED[group][1] if group in PRINTED else load_protocol(group).about


def metric_heading(metric: str, declared: Metric | None = None) -> str:
    """Return a metric as a heading: "Spearman", "recall@1"."""
    return (declared and declared.title) or (metric if "@" in metric else metric[:1].upper() + metric[1:])


def count_decimals(line: ScoreLine) -> int:
    """Return the number of decimals to show: the most of any column of which one end is better, else of any column."""
    metrics = [column_metric(line, column) for column in line.cells]
    return max(metric.digits for metric in [metric for metric in metrics if metric.better != "neither"] or metrics)


def finer_columns(line: ScoreLine) -> dict[str, int]:
    """Return column -> decimals, for columns shown with more than `count_decimals`, such as a threshold beside scores."""
    digits = count_decimals(line)
    return {column: more for column in line.cells if (more := column_metric(line, column).digits) > digits}


def form(line: ScoreLine) -> str:
    """Return how a line's settings and data differ from a protocol's defaults on the catalog's SentEval text; "" for none.

    It follows from the settings, whatever name the record gives them: a variant (`transfer:sklearn`, `geometry:dev`),
    changed settings, pairs left out, another text version, other data.
    """
    protocol = line.protocol
    kind = type(protocol)
    # The shortest description is chosen; on a tie the name of a variant is preferred to the list of its settings.
    parts = min((_changes(protocol, kind, word) for word in (*kind.variants, "")), key=len)
    if protocol.settings.get("without_overlap"):
        parts.append(f"without overlap with {', '.join(protocol.settings['without_overlap'])}")
    if line.user_set or line.language:
        parts.append(line.user_set or line.language)
    elif line.setting.text_version != "senteval":
        parts.append({"raw": "raw text", "own": "own files"}.get(line.setting.text_version, line.setting.text_version))
    if not line.known:
        parts.append("counts not mteb's" if line.language else "data not the catalog's")
    return ", ".join(parts)


def _changes(protocol: Protocol, kind: type[Protocol], word: str) -> list[str]:
    """Return the variant called `word` and the settings that differ from it, as in ["transfer:fast", "k 10"]."""
    default = _defaults(kind, word)
    unsaid = kind.cosmetic | {"without_overlap"}
    changed = [f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in protocol.settings.items()
               if key not in unsaid and (key not in default or default[key] != value)]
    plain_default = {key: value for key, value in _defaults(kind, "").items() if key not in unsaid}
    differs = {key: value for key, value in default.items() if key not in unsaid} != plain_default
    named = word and differs and not _only_form(protocol, kind)
    return [*([f"{kind.name}:{word}"] if named else []), *changed]


@cache
def _defaults(kind: type[Protocol], word: str) -> Mapping[str, Any]:
    """Return the settings of a protocol's variant; "" for the plain protocol."""
    return kind(kind.variants[word] if word else {}).settings


def _only_form(protocol: Protocol, kind: type[Protocol]) -> bool:
    """Return whether a user's data can be measured under one variant only, which then needs no name (retrieval: keep)."""
    if protocol.user_path is None:
        return False
    try:
        kind({kind.path_setting: path_name(protocol.user_path)})
    except StsbenchError:
        return True
    return False


def title(line: ScoreLine) -> str:
    """Return the title of a line's tab: "Spearman, all" and its `form`, which comes first for users' sets and languages."""
    setting = line.setting
    if line.protocol.metrics_across:
        base = "" if line.user_set else ", ".join(line.protocol.tasks())
    else:
        base = metric_heading(setting.metric, line.protocol.metric(setting.metric))
    if line.part:  # without subsets there is one correlation, and no aggregation to name
        return ", ".join(filter(None, (form(line), base, setting.aggregation if line.subsets else "")))
    return ", ".join(filter(None, (base, setting.aggregation, form(line))))


def slug(line: ScoreLine) -> str:
    """Return the id of a line's tab, as in the page's address: "sts-spearman-all"."""
    setting = line.setting
    return plain("-".join(filter(None, (setting.protocol, setting.metric, setting.aggregation, form(line)))))


def plain(text: str) -> str:
    """Return the text in lower case, with each run of characters other than a-z and 0-9 replaced by a dash."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def about(line: ScoreLine) -> str:
    """Return sentences that describe a tab's numbers: the protocol, the aggregation, the data or text version."""
    setting = line.setting
    pooled = AGGREGATIONS.get(setting.aggregation or "", "")
    if line.part:
        pooled = pooled.replace(" of a year", " of all languages" if line.language else "") if line.subsets else ""
    sentences = [line.protocol.about, pooled]
    if line.user_set:
        others = f" (the same data were also called {', '.join(line.names[1:])})" if line.names[1:] else ""
        source = further_source(line.part)
        what = f"{source.about} ({source.citation})" if source else f"a file of one's own{others}"
        sentences.append(f"Data: {line.user_set}, {what}.")
    elif line.language:
        sentences.append("Data: all sets of that language that were measured." if line.language != SEVERAL else
                         "Data: sets of several languages; each language has a table of its own.")
    else:
        sentences.append(f"Text: {TEXT_VERSIONS.get(setting.text_version, setting.text_version)}.")
    return " ".join(filter(None, sentences))


def name_user_sets(lines: Iterable[ScoreLine]) -> None:
    """Give a user's data one name on the whole board: the commonest name of the measured files with this content. If files
    of other content have the same name under one protocol, digits of the content's digest are added.

    A column that is named after the file gets the name of its metric, since the tab's title names the file.
    """
    of_users = [line for line in lines if line.user_set]
    counted: dict[tuple[str, str], Counter[str]] = {}
    for line in of_users:
        counted.setdefault((line.setting.protocol, line.part), Counter())[line.user_set] += 1
    chosen = {key: min((-times, name) for name, times in names.items())[1] for key, names in counted.items()}
    taken = Counter((protocol, name) for (protocol, _), name in chosen.items())
    for line in of_users:
        key = line.setting.protocol, line.part
        name, before = chosen[key], line.user_set
        shown = name if taken[key[0], name] == 1 else f"{name} ({line.part[:_DIGITS]})"
        if not line.protocol.metrics_across:
            _rename(line, before, metric_heading(line.setting.metric, line.protocol.metric(line.setting.metric)))
        line.subsets = {(shown if task == before else task, part): cell for (task, part), cell in line.subsets.items()}
        line.names = shown, *sorted(counted[key].keys() - {name})


def _rename(line: ScoreLine, before: str, column: str) -> None:
    parts: tuple[dict[str, Any], ...] = (line.cells, line.draws, line.digests, line.cut, line.seeds)
    for by_column in parts:
        if before in by_column:
            by_column[column] = by_column.pop(before)
