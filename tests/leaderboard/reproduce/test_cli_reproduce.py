"""`stsbench reproduce`: every table prints, only a row's very recipe or command counts as it, weights tell a model. Which
recipe or command makes a published row: what is stated, what equal figures say, and that no recipe is forgotten."""

import csv
import json
import shlex
import shutil
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import pytest
from board_runs import read_once  # noqa: F401  fixture
from clirun import cli, place  # noqa: F401 - fixtures
from run_edits import edit, rows_of, write_rows
from shipped_recipes import recipe

import stsbench
from stsbench.cli.eval import evaluate
from stsbench.cli.messages import print_result
from stsbench.data.sets.catalog import entry
from stsbench.display.markup import plain_markdown
from stsbench.encoders.forward.identity import folder_digest
from stsbench.encoders.options import CHANGING, spelled
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.records import Observed
from stsbench.evaluation.run_file import RUN, load_records, read_observations, write_run
from stsbench.leaderboard import papers
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.leaderboard.records.publications import load_publications
from stsbench.leaderboard.reproduce.api import PaperTable
from stsbench.leaderboard.reproduce.commands import commands, protocol_option
from stsbench.leaderboard.reproduce.runs import Run, _options, reproductions, table_columns
from stsbench.leaderboard.reproduce.table import Count, all_ways, count, find_rows, table_lines
from stsbench.leaderboard.reproduce.ways import Way, load_ways, resolve
from stsbench.training.recipes.recipe import resolved_yaml
from stsbench.training.recipes.recipes import load_recipe

ENTRIES, PUBLICATIONS = PUBLISHED.parent / "measured", load_publications()
ROWS = {row.id: row for each in PUBLICATIONS for row in each.rows}
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
UNTRAINED = ("--model", "google-bert/bert-base-uncased", "--pooler", "first_last:embeddings")
OTHERS = ("transfer*", "regression*", "retrieval*", "sick-r-mteb*")
MANY = (*OTHERS, "sts.sick*", *(f"sts.sts{year}*" for year in range(12, 17)))  # nearly all pairs
_read = cache(load_records)
ROW = "bert-whitening:2:2"  # a recipe, then `stsbench eval` with options
WAY = load_ways()[ROW]


def copied(name, target, number=0, without=MANY, **provenance):
    """The records of a committed entry's run, whose observations give its scores, as if of another training or command;
    each with what it observed, as `stsbench eval` writes it: a board's records share files."""
    source, items = sorted(path for path in (ENTRIES / name).iterdir() if path.is_dir())[number], []
    for path, record in _read(source):
        if not any(fnmatch(path.name, pattern) for pattern in without):
            record, seen = record.model_copy(deep=True), read_observations(path.parent, record)
            record.observations = Observed(sha256=observations_digest(seen))
            record.provenance |= provenance
            items.append((record, seen))
    write_run(target / RUN, items)
    return target


def trained(folder, made, number=0, dev=82.0, without=MANY, **summary):
    """A run folder of `stsbench train`, with the test of a committed one, and a dev score on the catalog's data."""
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(resolved_yaml(made), "utf-8")
    (folder / "train.json").write_text(json.dumps({
        "stage": None, "selected_by": "sts-b dev", "best": {"score": dev}, "after": 80.0,
        "dev_data": {"stsb/dev": entry("stsb/dev").digest}, **summary}), "utf-8")
    copied("minilm-mlm32-simcse", folder / "eval", number, without, recipe=f"{made.method}/{made.name}")


def asked(*names, board=None):
    """Row -> what --json says of it, of the tables or rows `names`."""
    rows = [row for name in names for row in find_rows(name, PUBLICATIONS)]
    lines = table_lines(PUBLICATIONS, rows, runs=Path("runs"), board=board, data_dir=None)
    return {line.row.id: json.loads(json.dumps(line.as_json())) for line in lines}


@pytest.mark.parametrize(("paper", "form"), [("simcse", "table"), ("consert-readme", "markdown")])
def test_every_row_of_a_paper_is_printed(capsys, place, paper, form):
    rows = next(each for each in PUBLICATIONS if each.paper.id == paper).rows
    lines = table_lines(PUBLICATIONS, rows, runs=Path("runs"), board=None, data_dir=None)
    print_result(PaperTable(paper, tuple(lines)), form)
    out, escape = capsys.readouterr().out, plain_markdown if form == "markdown" else str
    for row in rows:
        assert escape(f"{paper}:{row.heading.name}") in out and f"{row.row} {row.method}" in out
        assert all(f"{score:.{row.printed_decimals}f}" in out for score in row.scores if score is not None)
    assert "measured," not in out and "missing for " in out


def test_a_training_by_the_very_recipe_is_a_reproduction(cli, place):
    """Two seeds in one folder: their mean, its deviation, the difference; published and measured stand apart."""
    for number in range(2):
        changes = [f"seed={42 + number}", "data.file=elsewhere/wiki1m_for_simcse.txt"]
        made = load_recipe("simcse", "unsup-bert-base", changes)
        trained(place / "runs" / "mine" / f"seed-{42 + number}", made, number, 82.0 + number, OTHERS)
    actual = asked("simcse:5", "simcse:B.3:6", "simcse:1:1", "simcse:E.1:6", "diffcse:1:9")
    row = actual["simcse:5:7"]
    [measured] = row["measured"]
    assert measured["name"] == str(Path("runs") / "mine") and set(measured["scores"]) == {*TASKS, "Avg"}
    values = [row.value for run in sorted(place.glob("runs/mine/*/eval")) for path, record in load_records(run)
              for row in record.scores if path.name.startswith("sts.stsb-test")
              and (row.metric, row.aggregation) == ("spearman", "all")]
    assert measured["scores"]["STS-B"] == {"mean": pytest.approx(fmean(values)), "sd": pytest.approx(stdev(values)), "n": 2}
    assert row["published"]["STS-B"] == 76.85 and row["published"]["Avg"] == 76.25 and row["changed"] == []
    assert not any(other["measured"] for id, other in actual.items() if id.startswith("simcse:5:") and id != row["row"])
    lines = cli("reproduce", "simcse:5:7")[1].splitlines()
    at = next(at for at, line in enumerate(lines) if "measured, 2 seeds" in line)
    assert f"{fmean(values):.2f} ± {stdev(values):.2f}" in lines[at]
    assert "difference" in lines[at + 1] and f"{fmean(values) - 76.85:+.2f}" in lines[at + 1]
    # the same training under another table's protocol, and its dev score
    [other] = actual["simcse:B.3:6"]["measured"]
    assert other["scores"]["STS12"]["mean"] != measured["scores"]["STS12"]["mean"]
    assert actual["simcse:1:1"]["measured"][0]["scores"]["STS-B"] == {"mean": 82.5, "sd": pytest.approx(0.5**0.5), "n": 2}
    assert not actual["simcse:E.1:6"]["measured"]  # no transfer task was measured
    assert actual["diffcse:1:9"]["measured"] == row["measured"]  # the row is a copy of this one
    shutil.rmtree(place / "runs" / "mine" / "seed-43")
    path = place / "runs" / "mine" / "seed-42" / "train.json"
    said = json.loads(path.read_text("utf-8"))
    for summary in ({"selected_by": "sts-b dev (sample)"}, {"dev_data": {"stsb/dev": "0" * 64}},
                    {"best": None, "after": None}):  # a dev score of other data is none
        path.write_text(json.dumps({**said, **summary}), "utf-8")
        assert asked("simcse:1:1")["simcse:1:1"]["measured"] == []


def test_what_makes_a_training_no_reproduction(place):
    for name, change in (("batch", "training.batch_size=32"), ("precision", "precision=float32")):
        trained(place / "runs" / name, load_recipe("simcse", "unsup-bert-base", [change]))
    made = recipe("unsup-bert-base")
    edited = made.model_copy(update={"backbone": made.backbone.model_copy(update={"max_length": 64})})
    trained(place / "runs" / "edited", edited)  # under the recipe's own name
    trained(place / "runs" / "stage", made, stage="main")
    trained(place / "runs" / "eval", made)
    shutil.rmtree(place / "runs" / "eval" / "eval")
    copied("minilm-mlm32-simcse", place / "runs" / "eval" / "eval", recipe="simcse/other")
    (place / "runs" / "unfinished").mkdir()
    (place / "runs" / "unfinished" / "recipe.yaml").write_text(resolved_yaml(made), "utf-8")
    row = asked("simcse:5:7")["simcse:5:7"]
    assert row["measured"] == [] and [each.partition("base, ")[2] for each in row["changed"]] == [
        "training.batch_size", "backbone.max_length", "eval/ is not the test of this training", "precision", "a stage alone"]


def test_a_command_of_stsbench_eval(place):
    """By the very options that the row states, whatever its protocol and place; one more is another encoder."""
    base = ["stsbench", "eval", *UNTRAINED, "--protocol", "sts", "--output", "x"]
    copied("minilm-first-last", place / "runs" / "same", without=OTHERS, command=base)
    copied("minilm-mean", place / "runs" / "shorter", command=[*base, "--max-length", "32"])
    copied("minilm-cls", place / "runs" / "cls", command=[word if word != UNTRAINED[3] else "cls" for word in base])
    rows = asked("simcse:5", "sbert:1:2", "diffcse:11/alignment:1")
    assert [each["name"] for each in rows["simcse:5:2"]["measured"]] == [str(Path("runs") / "same")]
    assert set(rows["simcse:5:2"]["measured"][0]["scores"]) == {*TASKS, "Avg"}
    assert not any(row["measured"] for id, row in rows.items() if id.startswith("simcse") and id != "simcse:5:2")
    assert rows["sbert:1:2"]["measured"][0]["name"] == str(Path("runs") / "cls")
    geometry = rows["diffcse:11/alignment:1"]
    assert set(geometry["measured"][0]["scores"]) == {"STS-B"} and geometry["published"] == {"STS-B": 0.172}


def test_an_entry_of_a_board(place):
    """Which is trained by the recipe as it is now: its records hold the digest of its settings."""
    from stsbench.training.runs.finish import trained_as

    board, made = place / "board", recipe("unsup-bert-base")
    for number in range(2):
        copied("minilm-mlm32-simcse", board / "measured" / "mine" / str(number), number, OTHERS,
               recipe="simcse/unsup-bert-base", seed=number, **trained_as(made))
    copied("minilm-mlm32-simcse", board / "measured" / "old" / "0", 2, recipe="simcse/unsup-bert-base", settings="0" * 16)
    copied("minilm-mlm32-simcse", board / "measured" / "other" / "0", 2, recipe="simcse/unsup-bert-base-changed")
    row = asked("simcse:5:7", board=board)["simcse:5:7"]
    assert [(each["name"], each["scores"]["Avg"]["n"]) for each in row["measured"]] == [("mine on the board", 2)]
    assert row["changed"] == ["old on the board: simcse/unsup-bert-base, other settings than the recipe has now",
                              "other on the board: simcse/unsup-bert-base, changed"]


def test_what_is_missing(place):
    assert [each.partition(":")[0] for each in asked("simcse:5:7")["simcse:5:7"]["missing"]] == [
        "the model google-bert/bert-base-uncased", "training text wiki1m_for_simcse.txt", "data of STS-B dev",
        "a CUDA device for fp16", "data of STS12, STS13, STS14, STS15, STS16, STS-B, SICK-R"]
    tested = asked("simcse:5:2")["simcse:5:2"]["missing"]  # by `stsbench eval` alone
    assert tested[0].startswith("the model google-bert/bert-base-uncased")
    (place / "wiki1m_for_simcse.txt").write_text("a\n")
    (place / "google-bert" / "bert-base-uncased").mkdir(parents=True)
    assert len(asked("simcse:5:7")["simcse:5:7"]["missing"]) == 3
    rows = asked("simcse:5:1", "simcse:5:13")
    assert rows["simcse:5:13"]["missing"] == ["InferSent is not a method here, and no model that stsbench loads"]
    assert "word vectors glove.840B.300d.txt: there is no such file here" in rows["simcse:5:1"]["missing"]


def test_forms_of_a_table(cli, place):
    code, out, _ = cli("reproduce", "diffaug:2", "--format", "markdown", "--json", "rows.json")
    assert code == 0 and "| 2 | PromptBERT joint, BERT-base | published | 78.54 | 79.26 ± 0.3 |" in out
    assert "    1 SimCSE joint, BERT-base\n\n    stsbench train simcse --recipe unsup-bert-base " in out
    assert len(json.loads((place / "rows.json").read_text())) == 6
    trained(place / "runs" / "mine", recipe("unsup-bert-base"))
    out = cli("reproduce", "simcse:5:7", "--format", "latex")[1]
    assert out.count(" \\\\\n") == 4 and "SimCSE, BERT-base & published & 68.40" in out
    assert "% 7 SimCSE, BERT-base\n% stsbench train simcse --recipe unsup-bert-base" in out
    assert "\\label{tab:simcse:5}" in out
    rows = list(csv.DictReader(cli("reproduce", "simcse:5:7", "--format", "csv")[1].splitlines()))
    assert len(rows) == 9 and not any(row["published"] and row["measured"] for row in rows)
    assert next(row for row in rows if row["column"] == "STS-B")["published"] == "76.85"
    assert {row["n"] for row in rows if row["name"]} == {"1"}
    made = stsbench.reproduce("simcse:5:7", runs=place / "runs")
    [row] = json.loads(cli("reproduce", "simcse:5:7", "--json", "-")[1])
    frame = made.to_pandas()
    assert row["measured"] and {line.column: line.measured for line in frame[frame.name.notna()].itertuples()} == {
        column: mean["mean"] for column, mean in row["measured"][0]["scores"].items()}
    assert "1 measured here" in repr(made) and "difference" in str(made) and "measured" in made._repr_html_()
    # An edited record is refused.
    run = place / "runs" / "mine" / "eval"
    name = next(row.name for row in rows_of(run) if row.name.startswith("sts.stsb"))
    edit(run, lambda row: row.record["scores"][0].update(value=row.record["scores"][0]["value"] + 1), name)
    code, out, err = cli("reproduce", "simcse:5:7", "--json", "-")
    assert (code, out) == (1, "") and "was edited" in err and len(err.splitlines()) == 1


def test_the_papers_are_the_command_s(cli):
    frame = papers().to_pandas()
    assert [*frame.name] == [publication.paper.id for publication in PUBLICATIONS]
    total = cli("reproduce")[1].splitlines()[-1].split()
    assert total[1:] == [str(frame[name].sum()) for name in ("rows", "by_recipe", "by_eval", "not_here")]
    assert frame["rows"].sum() == sum(len(each.rows) for each in PUBLICATIONS)
    tables = papers("diffcse")
    out = cli("reproduce", "diffcse")[1]
    assert all(f"{name} " in out for name in tables.to_pandas().name) and "diffcse:11/sts" in repr(tables)
    assert str(tables).count("\n") == len(tables.rows) + 2


def evaluated(target, model, number, *further):
    """A run of `stsbench eval` by the row's options, on the weights of a committed run."""
    command = ["stsbench", "eval", "--model", str(model), *shlex.split(WAY.eval), *further, "--protocol", "sts:wmean"]
    return copied("minilm-mlm32-simcse", target, number, recipe=None, command=command)


def test_a_trained_model_that_is_tested_by_the_rows_options(place):
    """Seeds of one training are one measurement, each model once; without the test it is said what is not there."""
    runs, board, mine = place / "runs", place / "board", str(Path("runs") / "mine")
    for number in range(2):
        trained(runs / "mine" / f"seed-{number}", recipe("nli-bert-base-whitening", "sbert"), number)
    row = asked(ROW)[ROW]
    assert row["measured"] == []
    assert row["changed"] == [f"{mine}: sbert/nli-bert-base-whitening, not tested with {WAY.eval}"]
    # A test on the board of a training here.
    evaluated(board / "measured" / "white" / "0", "elsewhere", 0)
    assert [each["name"] for each in asked(ROW, board=board)[ROW]["measured"]] == [mine]
    (board / "measured" / "white" / "entry.yaml").write_text("prompt_of: other\n")
    assert asked(ROW, board=board)[ROW]["measured"] == []  # behind a prompt it is no test of the method
    for number in range(2):
        evaluated(runs / f"white-{number}", runs / "mine" / f"seed-{number}", number)
    evaluated(runs / "again", "elsewhere", 0)
    evaluated(runs / "other-options", "elsewhere", 1, "--dtype", "bf16")
    evaluated(runs / "other-model", "elsewhere", 2)
    row = asked(ROW)[ROW]
    [measured] = row["measured"]
    assert measured["name"] == mine and row["changed"] == []
    assert {score["n"] for score in measured["scores"].values()} == {2}
    # The model of a training without a test: its exported folder is what `stsbench eval` read.
    for name in ("white-0", "white-1", "again", "mine/seed-0/eval"):
        shutil.rmtree(runs / name)
    run = runs / "mine" / "seed-0"
    (run / "best").mkdir()
    (run / "best" / "config.json").write_text("{}")
    rows = rows_of(evaluated(run / "white", run, 0))
    for row in rows:
        row.record["encoder"]["spec"] |= {"weights": folder_digest(run / "best"), "tokenizer": ""}
    write_rows(run / "white", rows)
    [measured] = asked(ROW)[ROW]["measured"]
    assert {score["n"] for score in measured["scores"].values()} == {1}


def test_a_model_is_known_by_its_weights(place):
    """Where a record of the name tells which they are."""
    command = ["stsbench", "eval", "--model", "./bert", "--pooler", "first_last:embeddings", "--protocol", "sts"]
    copied("minilm-first-last", place / "runs" / "folder", command=command)
    assert asked("simcse:5:2")["simcse:5:2"]["measured"] == []
    name = ["stsbench", "eval", "--model", "google-bert/bert-base-uncased", "--pooler", "cls"]
    copied("minilm-cls", place / "board" / "measured" / "other" / "0", command=name)
    [measured] = asked("simcse:5:2", board=place / "board")["simcse:5:2"]["measured"]
    assert measured["name"] == str(Path("runs") / "folder")


@pytest.fixture(scope="module")
def ways():
    return all_ways()[1]


def test_every_stated_command_is_one_of_stsbench_eval(ways):
    options = {word for option in evaluate.params for word in option.opts} | {"--post", "--fit-on"}  # may be to come
    for id, way in ways.items():
        for command in commands(ROWS[id], way, None):
            words = shlex.split(command)
            assert words[0] == "stsbench" and words[1] in ("train", "eval")
            if words[1] == "eval":
                assert {word for word in words if word.startswith("--")} <= options, command
                assert words[-2:] == ["--protocol", protocol_option(ROWS[id].heading)]
    # A copied row is made as its original, and one without its recipe not.
    for copy, original in {"diffcse:1:9": "simcse:5:7", "sarcse:1:2": "simcse:5:9", "diffaug:1:7": "diffcse:1:11",
                           "simcse:B.3:3": "bert-flow:2:4", "simcse:C.1:1": "simcse:5:3"}.items():
        assert (ways[copy].recipe, ways[copy].eval) == (ways[original].recipe, ways[original].eval), copy
        assert ways[copy].note == f"the figures of {original}"
    stated = {"bert-flow:3:1": Way(recipe="unheard/of"), "simcse:5:7": Way(recipe="simcse/unsup-bert-base"),
              "simcse:5:2": Way(eval="--model minilm"), "simcse:5:5": Way(missing="x")}
    counted = count([ROWS[id] for id in stated], stated)
    assert counted == Count(4, 1, 1) and counted.without == 2


def test_a_row_is_found_by_the_recipe_that_holds_its_figures():
    """As those of methods that state nothing; a single figure has to be of the paper that the recipe cites."""
    actual = resolve(PUBLICATIONS, {})
    assert actual["simcse:5:7"].recipe == actual["diffcse:1:9"].recipe == "simcse/unsup-bert-base"
    assert actual["sarcse:2:1"].recipe == "simcse/unsup-roberta-base-batch-32"
    assert actual["diffaug:1:11"].recipe == "diffaug/bert-base-semi-released"
    assert actual["diffcse:7:2"].recipe == "diffcse/mask-0.20"  # 84.04, once in the paper
    assert "simcse:7:3" not in actual  # 86.2 is held by several recipes of the paper
    assert "diffaug:3/sts:2" not in actual  # 82.5 is SimCSE's own
    assert actual["diffaug:2:1"].recipe["10 %"] == "simcse/unsup-bert-base-joint-labels-10"
    assert "simcse:5:13" not in actual


def test_commands_have_what_a_row_says(ways, tmp_path):
    def said(id):
        return commands(ROWS[id], ways[id], tmp_path)

    data = f"--data-dir {tmp_path}"
    for id, options in (("simcse:E.1:18", "--recipe sup-roberta-base --data nli_for_simcse.csv --eval transfer"),
                        ("simcse:3:3", "--recipe unsup-bert-base-dropout-0.05 --data wiki1m_for_simcse.txt")):
        assert said(id) == [f"stsbench train simcse {options} {data}"]
    assert "--eval sts:wmean" in said("simcse:B.3:6")[0] and "--eval transfer" in said("diffcse:3/transfer:2")[0]
    assert "--seeds 10" in said("promptbert-readme:README:1")[0] and "--seeds 3" in said("diffaug:1:11")[0]
    assert said("diffaug:7:3")[1].endswith(f"--labelled nli_for_simcse.csv --subsets 5 --seeds 3 --eval sts:all {data}")
    none, *few, every = said("diffaug:2:2")
    assert "--seeds" not in none and all("--subsets 5 --seeds 3" in line for line in few)
    assert "unsup-promptbert-base-joint " in every and "--seeds 3" in every and "--subsets" not in every
    assert len(said("simcse:2:1")) == 2  # one encoder, two encoders
    assert "'This sentence : \"{}\" means [MASK].'" in said("promptbert-readme:run.sh:1")[0]
    options = "--pooler first_last:layer1 --post whitening --fit-on target"
    trained, tested = commands(ROWS["simcse:5:17"], Way(recipe="simcse/sup-bert-base", eval=options), None)
    assert trained.endswith("--output RUN") and "--eval" not in trained
    assert tested == f"stsbench eval --model RUN {options} --protocol sts:all"
    # A released checkpoint is a second way to a row.
    row, way = ROWS["simcse:5:10"], ways["simcse:5:10"]
    trained, tested = commands(row, way, None)
    assert trained.startswith("stsbench train declutr --recipe roberta-base-released --data openwebtext.txt")
    assert tested == "stsbench eval --model johngiorgi/declutr-base --pooler mean --protocol sts:all"
    scores = {("sts", "all", "spearman", task): 50.0 for task in table_columns(row)[:-1]}
    command = tuple(shlex.split(f"{tested} --data-dir x"))
    runs = [Run("trained", "declutr/roberta-base-released", scores=scores), Run("tested", command=command, scores=scores),
            Run("changed", "declutr/roberta-base-released", ("seed",), scores=scores),
            Run("other", command=(*command, "--post", "whitening"), scores=scores)]
    assert [each.name for each in reproductions(row, way, runs)] == ["trained", "tested"]
    # An option that changes a vector makes another encoder.
    plain = ["stsbench", "eval", "--model", "m"]
    for name in {*CHANGING} - {"trust_remote_code"}:
        assert _options([*plain, spelled(name), "1"]) != _options(plain) == {"--model": "m"}, name
