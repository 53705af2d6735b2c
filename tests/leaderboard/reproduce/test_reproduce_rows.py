"""Which recipe or command makes a published row: what is stated, what equal figures say, and that no recipe is forgotten."""

import shlex

import pytest

from stsbench.cli.eval import evaluate
from stsbench.encoders.options import CHANGING, spelled
from stsbench.leaderboard.records.publications import load_publications
from stsbench.leaderboard.reproduce.commands import commands, protocol_option
from stsbench.leaderboard.reproduce.runs import Run, _options, reproductions, table_columns
from stsbench.leaderboard.reproduce.table import Count, all_ways, count
from stsbench.leaderboard.reproduce.ways import Way, resolve

TO_COME = {"--post", "--fit-on"}  # of `stsbench eval`, where post-processing is not there yet


@pytest.fixture(scope="module")
def ways():
    return all_ways()[1]


@pytest.fixture(scope="module")
def rows():
    return {row.id: row for each in load_publications() for row in each.rows}


def test_every_stated_command_is_one_of_stsbench_eval(ways, rows):
    options = {word for option in evaluate.params for word in option.opts} | TO_COME
    for id, way in ways.items():
        for command in commands(rows[id], way, None):
            words = shlex.split(command)
            assert words[0] == "stsbench" and words[1] in ("train", "eval")
            if words[1] == "eval":
                assert {word for word in words if word.startswith("--")} <= options, command
                assert words[-2:] == ["--protocol", protocol_option(rows[id].heading)]


def test_a_copied_row_is_made_as_its_original(ways):
    for copy, original in {"diffcse:1:9": "simcse:5:7", "sarcse:1:2": "simcse:5:9", "diffaug:1:7": "diffcse:1:11",
                           "simcse:B.3:3": "bert-flow:2:4", "simcse:C.1:1": "simcse:5:3"}.items():
        assert (ways[copy].recipe, ways[copy].eval) == (ways[original].recipe, ways[original].eval), copy
        assert ways[copy].note == f"the figures of {original}"


def test_a_row_is_found_by_the_recipe_that_holds_its_figures(rows):
    """As those of methods that state nothing; a single figure has to be of the paper that the recipe cites."""
    found = resolve(load_publications(), {})
    assert found["simcse:5:7"].recipe == found["diffcse:1:9"].recipe == "simcse/unsup-bert-base"
    assert found["sarcse:2:1"].recipe == "simcse/unsup-roberta-base-batch-32"
    assert found["diffaug:1:11"].recipe == "diffaug/bert-base-semi-released"
    assert found["diffcse:7:2"].recipe == "diffcse/mask-0.20"  # 84.04, once in the paper
    assert "simcse:7:3" not in found  # 86.2 is held by several recipes of the paper
    assert "diffaug:3/sts:2" not in found  # 82.5 is SimCSE's own
    assert found["diffaug:2:1"].recipe["10 %"] == "simcse/unsup-bert-base-joint-labels-10"
    assert "simcse:5:13" not in found


def test_a_recipe_that_is_not_there_makes_no_row(rows):
    chosen = [rows["bert-flow:3:1"], rows["simcse:5:7"], rows["simcse:5:2"], rows["simcse:5:5"]]
    stated = {"bert-flow:3:1": Way(recipe="unheard/of"), "simcse:5:7": Way(recipe="simcse/unsup-bert-base"),
              "simcse:5:2": Way(eval="--model minilm"), "simcse:5:5": Way(missing="x")}
    assert count(chosen, stated) == Count(4, 1, 1) and count(chosen, stated).without == 2


def test_commands_have_what_a_row_says(ways, rows, tmp_path):
    def said(id):
        return commands(rows[id], ways[id], tmp_path)

    data = f"--data-dir {tmp_path}"
    assert said("simcse:E.1:18") == [
        f"stsbench train simcse --recipe sup-roberta-base --data nli_for_simcse.csv --eval transfer {data}"
    ]
    assert said("simcse:3:3") == [
        f"stsbench train simcse --recipe unsup-bert-base-dropout-0.05 --data wiki1m_for_simcse.txt {data}"
    ]
    assert "--eval sts:wmean" in said("simcse:B.3:6")[0] and "--eval transfer" in said("diffcse:3/transfer:2")[0]
    assert "--seeds 10" in said("promptbert-readme:README:1")[0] and "--seeds 3" in said("diffaug:1:11")[0]
    assert said("diffaug:7:3")[1].endswith(f"--labelled nli_for_simcse.csv --subsets 5 --seeds 3 --eval sts:all {data}")
    none, *few, every = said("diffaug:2:2")
    assert "--seeds" not in none and all("--subsets 5 --seeds 3" in line for line in few)
    assert "unsup-promptbert-base-joint " in every and "--seeds 3" in every and "--subsets" not in every
    assert len(said("simcse:2:1")) == 2  # one encoder, two encoders
    assert "'This sentence : \"{}\" means [MASK].'" in said("promptbert-readme:run.sh:1")[0]
    both = Way(recipe="simcse/sup-bert-base", eval="--pooler first_last:layer1 --post whitening --fit-on target")
    trained, tested = commands(rows["simcse:5:17"], both, None)
    assert trained.endswith("--output RUN") and "--eval" not in trained
    assert tested == ("stsbench eval --model RUN --pooler first_last:layer1 --post whitening --fit-on target "
                      "--protocol sts:all")


def test_a_released_checkpoint_is_a_second_way_to_a_row(ways, rows):
    row, way = rows["simcse:5:10"], ways["simcse:5:10"]
    trained, tested = commands(row, way, None)
    assert trained.startswith("stsbench train declutr --recipe roberta-base-released --data openwebtext.txt")
    assert tested == "stsbench eval --model johngiorgi/declutr-base --pooler mean --protocol sts:all"
    scores = {("sts", "all", "spearman", task): 50.0 for task in table_columns(row)[:-1]}
    command = tuple(shlex.split(f"{tested} --data-dir x"))
    runs = [Run("trained", "declutr/roberta-base-released", scores=scores), Run("tested", command=command, scores=scores),
            Run("changed", "declutr/roberta-base-released", ("seed",), scores=scores),
            Run("other", command=(*command, "--post", "whitening"), scores=scores)]
    assert [each.name for each in reproductions(row, way, runs)] == ["trained", "tested"]


def test_an_option_that_changes_a_vector_makes_another_encoder():
    plain = ["stsbench", "eval", "--model", "m"]
    for name in {*CHANGING} - {"trust_remote_code"}:
        assert _options([*plain, spelled(name), "1"]) != _options(plain) == {"--model": "m"}, name
