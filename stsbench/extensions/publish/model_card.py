"""Write a run as a model card of the Hugging Face Hub: metadata with every score, and a page that describes them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from stsbench.data.sets import FROM_MTEB
from stsbench.data.sets.catalog import BY_ID
from stsbench.display.markup import card_text
from stsbench.encoders.prompt.prompt import described
from stsbench.encoders.traits import is_transductive, was_trained_on
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import declared_metric
from stsbench.evaluation.provenance import merge_overlap
from stsbench.evaluation.records import Record, ScoreRow, Scores
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.tables import AVERAGES, SAMPLE, format_score, interval, repeated_in_record
from stsbench.extensions.publish.model_index import Group, card_data, encoder_name, group_records, record_words
from stsbench.files import atomic_write, new_folder
from stsbench.wording import visible, without_paths

FILES = {"model-card": "README.md", "model-index": "model-index.yml"}
HOW = {"all": "one correlation over all pairs", "mean": "the mean over the subsets",
       "wmean": "that mean weighted by the subsets' sizes"}


def export_card(run: Path, output: Path, target: str) -> tuple[list[Path], dict[str, str]]:
    """Write one of FILES, by `target`, for a run into `output`, a new folder.

    Returns the file, and the records that gave no score with the reason. Raises StsbenchError when `output` holds
    anything, when the run was edited, and when it holds no score.
    """
    result = score_again(run)  # which refuses records and observations that were edited
    if not result.records:
        raise StsbenchError(f"{run} holds no score: {next(iter(result.failures.values()))}")
    text = card(result) if target == "model-card" else f"{card_data(result).to_yaml()}\n"
    with new_folder(output) as building, atomic_write(building / FILES[target]) as stream:
        stream.write(text)
    return [output / FILES[target]], result.failures


def card(result: Scores) -> str:
    """Return the whole card: metadata between two lines of ---, then Markdown."""
    from huggingface_hub import ModelCard

    return str(ModelCard(f"---\n{card_data(result).to_yaml()}\n---\n\n{body(result)}"))


def body(result: Scores) -> str:
    """Return the card's Markdown; names given by users are escaped."""
    groups = group_records(result)
    versions = {str(record.provenance.get("versions", {}).get("stsbench", "")) for record in result.records}
    day = max(record.created for record in result.records).date()
    sample = {group.text_version == "sample" for group in groups}
    warning = f"**{'Some of this is s' if False in sample else 'S'}{SAMPLE[1:]}.**\n\n" if True in sample else ""
    return "\n".join([
        f"# {card_text(encoder_name(result))}\n\n{warning}"
        f"Scores of this sentence encoder, measured with stsbench {card_text(', '.join(sorted(versions)))}, last on {day}. "
        "They are self-reported; each was recomputed from the stored observations when this card was written.\n",
        f"## The encoder\n\n{_encoder(result)}",
        "## Results\n\nScores are x 100 unless a line says otherwise; intervals are 95 %. The metadata above hold the same "
        "scores and those of every subset.\n",
        *map(_section, groups),
        *[f"Not scored: {card_text(name)}: {card_text(reason)}\n" for name, reason in result.failures.items()],
        "## What these numbers are not comparable with\n\n" + "".join(f"- {line}\n" for line in _limits(result, groups)),
        f"## How to repeat this\n\n{_repeat(result)}",
    ])


def _encoder(result: Scores) -> str:
    """Return a two-column table of all settings that determine a vector."""
    first = result.records[0].encoder
    spec = {**first.spec, "name": encoder_name(result)}
    fitted = _first_value((record.encoder.spec.get("fitted_on") for record in result.records), "each test set's own texts")
    options = spec.get("options") or {}
    known = {
        "name": spec["name"], "kind": spec["kind"], "pooler": spec.get("pooler"), "template": _quoted(spec.get("template")),
        "prompt": _quoted(spec.get("prefix")), "longest text, in tokens": spec.get("max_length"),
        "number format": spec.get("dtype"), "vectors scaled to length 1": "yes" if spec.get("normalize") else "no",
        "post-processing": spec.get("post"), "fitted on": fitted,
        **{name: without_paths(str(value)) for name, value in options.items()
           if name not in ("prompt", "prompts", "full_stop")},
        **{f"prompt {name!r}": _quoted(text) if isinstance(text, str) else without_paths(str(text))
           for name, text in (options.get("prompts") or {}).items()},
        "around the text": "; ".join(described(options)),
        "width of the vectors": _first_value(
            (record.encoder.dimension for record in result.records), "depends on the texts fitted on"
        ),
        "sha256 of the weights": spec.get("weights"), "sha256 of the tokenizer": spec.get("tokenizer"),
        "fingerprint of all this": _first_value(
            (record.encoder.fingerprint for record in result.records), "one a set, in the metadata"
        ),
    }
    return _table([("what", "value"), *((key, value) for key, value in known.items() if value not in (None, ""))], texts=2)


def _first_value(values: Iterable[object], several: str) -> object:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else several


def _quoted(text: object) -> str | None:
    """Return a text with visible blanks and line breaks, as they change vectors."""
    return json.dumps(text, ensure_ascii=False) if text else None


def _section(group: Group) -> str:
    """Return a protocol's table and what it is of."""
    about = (sys.modules[type(group.protocol).__module__].__doc__ or "").partition("\n")[0]
    lines = [card_text(about), f"Protocol {card_text(group.identity.name)}, version {group.identity.version}."]
    if group.changed:
        changed = json.dumps(group.changed, ensure_ascii=False)[1:-1]
        lines.append(f"Settings that are not the usual ones: {card_text(changed)}.")
    by_task = {record.scores[0].task: "; ".join(record_words(record)) for record in group.records}
    if len(set(by_task.values())) == 1:
        lines.append(f"Data: {card_text(*set(by_task.values()))}.")
    else:
        lines += [f"Data of {card_text(task)}: {card_text(on)}." for task, on in by_task.items()]
    lines += dict.fromkeys(f"{card_text(line)}." for record in group.records if (line := repeated_in_record(record)))
    remarks = (line for record in group.records for line in record.provenance.get("remarks", ()))
    lines += dict.fromkeys(f"{card_text(line)}." for line in remarks)
    rows = [row for record in group.records for row in record.scores] + group.summaries
    if bare := list(dict.fromkeys(row.metric for row in rows if declared_metric(row).scale == 1)):
        lines.append(f"Not x 100: {card_text(', '.join(bare))}.")
    if errors := list(dict.fromkeys(row.metric for row in rows if declared_metric(row).lower)):
        lines.append(f"Lower is better: {card_text(', '.join(errors))}.")
    sample = f" ({SAMPLE})" if group.text_version == "sample" else ""
    return f"### {card_text(group.identity.label)}{sample}\n\n{' '.join(filter(None, lines))}\n\n{_scores(rows)}"


def _scores(rows: Sequence[ScoreRow]) -> str:
    """Return tasks across, the averages last; for one task metrics down. Subsets only of what is not also given as a
    whole."""
    whole = {(row.task, row.metric) for row in rows if row.subset is None}
    kept = [row for row in rows if row.task != "Avg-full" and (row.subset is None or (row.task, row.metric) not in whole)]
    tasks = list(dict.fromkeys(row.task for row in kept))
    tasks = [task for task in tasks if task not in AVERAGES] + [task for task in tasks if task in AVERAGES]
    if len(tasks) == 1:
        lines = [(_row_name(row), format_score(row), interval(row), row.n) for row in kept]
        return _table([(tasks[0], "score", "interval", "items"), *lines])
    cells = {(row.task, _row_name(row)): row for row in kept}
    names = list(dict.fromkeys(_row_name(row) for row in kept))
    grid: list[list[str]] = [["", *tasks]]
    for name in names:
        of_metric = [cells.get((task, name)) for task in tasks]
        grid.append([name, *(format_score(row) if row else "" for row in of_metric)])
        if name == names[0]:
            if any(row and row.low is not None for row in of_metric):
                grid.append(["its interval", *(interval(row) if row else "" for row in of_metric)])
            grid.append(["items", *(str(row.n) if row else "" for row in of_metric)])
    return _table(grid)


def _row_name(row: ScoreRow) -> str:
    name = f"{row.metric}, {row.subset}" if row.subset else row.metric
    return f"{name} ({row.aggregation})" if row.aggregation else name


def _limits(result: Scores, groups: Sequence[Group]) -> Iterable[str]:
    """Yield cautions on how these scores differ from others of the same name."""
    records = result.records
    text_versions = {record.data.text_version for record in records}
    tasks = {row.task for record in records for row in record.scores}
    if "sample" in text_versions:
        yield "Anything published: the sample is a small set of sentences inside stsbench, there to try the program out."
    if "senteval" in text_versions:
        yield "Scores on the raw text of the same sets, MTEB's among them: SentEval's text is tokenised."
    if "raw" in text_versions:
        yield "Scores on SentEval's tokenised text, which is what most papers' tables of these tasks are on."
    if strange := _ids(record for record in records if not record.data.known and record.data.text_version != "own"):
        yield f"Any other result: the files of {strange} are not those that the catalog knows."
    unlisted = (record for record in records if record.data.text_version == "own")
    if ids := _ids(record for record in unlisted if not (record.data.id.startswith(FROM_MTEB) or record.data.id in BY_ID)):
        yield f"Anything not measured on the same data: {ids} is the user's own."
    if sets := {str(other) for record in records for other in record.protocol.settings.get("without_overlap") or ()}:
        others = card_text(", ".join(sorted(sets)))
        yield f"The published STS tasks: pairs that share a sentence with {others} were left out."
    if hows := sorted({row.aggregation for record in records for row in record.scores if row.aggregation in HOW} - {None}):
        yield "Each other, across aggregations: " + "; ".join(f"{how} is {HOW[how]}" for how in map(str, hows)) + "."
    if {"SICK-R", "SICK-R-MTEB"} <= tasks:
        yield "SICK-R with SICK-R-MTEB: 4,927 test pairs against all 9,927, which MTEB calls SICK-R."
    yield from dict.fromkeys(line for group in groups for line in group.protocol.cautions(group.records))
    if any(is_transductive(record.encoder.spec.get("fitted_on"), record.data.id) for record in records):
        yield "Encoders that never saw the test sets: this one was fitted on the very texts it is tested on (transductive)."
    if any(was_trained_on(record.provenance.get("trained_on", ()), record.data.id) for record in records):
        yield "Encoders that never saw the test sets: this one was trained on sentences of them (transductive)."
    overlap = merge_overlap(records)
    for line in map(card_text, replace(overlap, unknown={}).sentences()):
        yield f"Encoders that never saw the test texts: this one was {line}."
    for line in map(card_text, replace(overlap, shared={}).sentences()):
        yield f"Encoders that are known not to have seen the test texts: this one was {line}."
    for title in dict.fromkeys(group.protocol.title for group in groups if group.protocol.averaged and not group.summaries):
        yield f"The {title} average: it is the mean of all its tasks, and not all of them were measured here."


def _ids(records: Iterable[Record]) -> str:
    return card_text(", ".join(dict.fromkeys(record.data.shown for record in records)))


def _repeat(result: Scores) -> str:
    commands = dict.fromkeys(_command(record.provenance.get("command") or ()) for record in result.records)
    lines = [line for line in commands if line]
    parts = []
    if lines:
        fence = "`" * max(3, *(len(run) + 1 for line in lines for run in re.findall("`*", line)))
        block = "\n".join([f"{fence}sh", *lines, fence])
        parts.append(f"{block}\n\nOf paths only the last part is given.\n")
    if "" in commands:
        parts.append("Measured from Python, by `stsbench.evaluation.api.evaluate`.\n")
    keys = ("python", "device", "git", "versions")
    used = dict.fromkeys(json.dumps([record.provenance.get(key) for key in keys]) for record in result.records)
    for python, device, git, versions in map(json.loads, used):
        setup = [f"Python {python}", *(f"{name} {number}" for name, number in (versions or {}).items()), f"on {device}"]
        commit = f"; stsbench at commit {card_text(git)}" if git else ""
        parts.append(f"Measured with {card_text(', '.join(setup))}{commit}.\n")
    return "\n".join(parts)


def _command(words: Sequence[str]) -> str:
    """Return a command to paste. A template may hold anything that looks like a path, and is left as it is."""
    kept = [
        word if before == "--template" or word.startswith("--template=") else without_paths(word)
        for before, word in zip(["", *words], words, strict=False)
    ]
    return shlex.join(visible(word) for word in kept)


def _table(lines: Sequence[Sequence[object]], texts: int = 1) -> str:
    """Return a Markdown table, its first line the header; numbers stand to the right of `texts` columns of text."""
    rule = ["---"] * texts + ["---:"] * (len(lines[0]) - texts)
    head, *rest = [[card_text(cell) for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rest))
