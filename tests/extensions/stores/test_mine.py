"""Hard negatives against sentence-transformers' mine_hard_negatives, a loop, and by a guide; and as rows of a training."""

import json
import math

import numpy as np
import pytest
from clirun import cli  # noqa: F401 - fixture
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives
from tiny_models import build, sentences

from stsbench.data.own.sets import read_triplets
from stsbench.errors import DataError, StsbenchError, UsageError
from stsbench.extensions.stores.mine import mine_negatives as mine

TEXTS = sentences(60, seed=4)
PAIRS = [*zip(TEXTS[:24], TEXTS[24:48], strict=True), *zip(TEXTS[:5], TEXTS[40:45], strict=True)]  # five have two positives
FURTHER = TEXTS[48:]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("mine")
    build(place / "tiny")
    (place / "further.txt").write_text("\n".join(FURTHER) + "\n", "utf-8")
    return place


def found(rows):
    return [(row["anchor"], row["positive"], row["negative"]) for row in rows]


@pytest.mark.parametrize("options", [
    {"num_negatives": 2, "range_min": 3, "absolute_margin": 0.02}, {"range_max": 9, "num_negatives": 4},
    {"relative_margin": 0.03, "num_negatives": 5}, {"max_score": 0.97, "min_score": 0.9, "range_min": 1},
])
def test_negatives_are_those_of_sentence_transformers(place, options):
    names = {"num_negatives": "negatives", "range_min": "skip", "range_max": "depth"}
    ours = mine(str(place / "tiny"), PAIRS, corpus=place / "further.txt", pooler="mean", device="cpu", no_cache=True,
                **{names.get(name, name): value for name, value in options.items()})
    data = Dataset.from_dict({"anchor": [a for a, _ in PAIRS], "positive": [p for _, p in PAIRS]})
    model = SentenceTransformer(str(place / "tiny"), device="cpu")
    theirs = mine_hard_negatives(data, model, corpus=FURTHER, verbose=False, output_scores=True, **options)
    assert found(ours) == found(theirs) and len(ours) > 15
    scores = np.array([[row["positive_cosine"], row["cosine"]] for row in ours])
    assert np.abs(scores - np.array(theirs["scores"])).max() < 1e-5


def test_a_guide_leaves_out_what_it_finds_too_near(place):
    options = {"pooler": "mean", "device": "cpu", "no_cache": True, "negatives": 48, "depth": 48}
    every = mine(str(place / "tiny"), PAIRS, **options)
    kept = mine(str(place / "tiny"), PAIRS, guide="lexical:token-set", absolute_margin=0.01, **options)
    words = {text: set(text.split()) for text in TEXTS}

    def cosine(a, b):
        return len(words[a] & words[b]) / math.sqrt(len(words[a]) * len(words[b]))

    lowest = {anchor: min(cosine(anchor, p) for a, p in PAIRS if a == anchor) for anchor, _ in PAIRS}
    assert found(kept) == [row for row in found(every) if cosine(row[0], row[2]) <= lowest[row[0]] - 0.01]
    assert 0 < len(kept) < len(every)
    assert kept.counts["candidates above absolute_margin"] == 24 * 24 - 29 - len({(a, n) for a, _, n in found(kept)})


def test_random_negatives_are_of_the_same_window_and_go_by_the_seed(place):
    options = {"pooler": "mean", "device": "cpu", "no_cache": True, "negatives": 2, "depth": 8}
    every = found(mine(str(place / "tiny"), PAIRS, **{**options, "negatives": 8}))
    drawn = [found(mine(str(place / "tiny"), PAIRS, draw="random", seed=seed, **options)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {*drawn[0]} <= {*every} and len(drawn[0]) == 2 * len(PAIRS)


def test_the_command_writes_rows_that_are_read_as_triplets(place, tmp_path, cli):
    (tmp_path / "pairs.csv").write_text("anchor,positive\n" + "".join(f"{a},{p}\n" for a, p in PAIRS), "utf-8")
    words = ("mine", "--model", place / "tiny", "--pooler", "mean", "--device", "cpu", "--data", tmp_path / "pairs.csv")
    code, out, err = cli(*words, "--negatives", 1, "--output", tmp_path / "triplets.jsonl")
    assert code == 0 and "triplets" in out and f"{len(PAIRS)} triplets" in err
    rows = [json.loads(line) for line in (tmp_path / "triplets.jsonl").read_text("utf-8").splitlines()]
    assert found(rows) == found(mine(str(place / "tiny"), tmp_path / "pairs.csv", negatives=1, pooler="mean", device="cpu"))
    assert read_triplets(tmp_path / "triplets.jsonl").negative == tuple(row["negative"] for row in rows)


def test_a_guide_without_a_bound_has_no_effect(place):
    with pytest.raises(UsageError, match="give one of --absolute-margin, --relative-margin, --max-score, --min-score"):
        mine("lexical:token-set", PAIRS, guide="lexical:token-set")
    with pytest.raises(UsageError, match="--depth 3 leaves no 3 negatives behind --skip 1"):
        mine("lexical:token-set", PAIRS, depth=3, skip=1)


def test_texts_that_differ_by_white_space_are_one_and_blank_ones_none(tmp_path):
    (tmp_path / "pairs.csv").write_text("anchor,positive\na cat naps,the  cat sat\na dog barks, the dog barked \n ,x\ny,\n")
    (tmp_path / "corpus.txt").write_text("the cat sat\n\n the dog barked\na cat naps\nthe bird sang\n")
    mined = mine("lexical:token-set", tmp_path / "pairs.csv", corpus=tmp_path / "corpus.txt", negatives=9)
    assert {row["positive"] for row in mined} == {"the  cat sat", " the dog barked "}
    assert sorted((row["anchor"], " ".join(row["negative"].split())) for row in mined) == [
        ("a cat naps", "the bird sang"), ("a cat naps", "the dog barked"),
        ("a dog barks", "a cat naps"), ("a dog barks", "the bird sang"), ("a dog barks", "the cat sat"),
    ]
    (tmp_path / "blank.csv").write_text("anchor,positive\n\n\n")
    for file, said in (("blank.csv", "holds no pair of texts"), ("corpus.txt", "need the columns anchor and positive")):
        with pytest.raises(DataError, match=said):
            mine("lexical:token-set", tmp_path / file)
    with pytest.raises(DataError, match="no text is a negative"):
        mine("lexical:token-set", [("a", "b")])
    with pytest.raises(StsbenchError, match=r"^--guide: \./nope: "):
        mine("lexical:token-set", PAIRS, guide="./nope", max_score=0.5)
