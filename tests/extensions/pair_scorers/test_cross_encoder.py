"""`--model cross-encoder:FOLDER`: scores are sentence-transformers' own, and stand beside no encoder's."""

from pathlib import Path

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401 - fixtures
from refusal_places import PLACES
from sklearn.metrics import average_precision_score
from tiny_models import sentences

import stsbench
from stsbench import leaderboard
from stsbench.errors import StsbenchWarning
from stsbench.evaluation.run_file import read_observations

CrossEncoder = pytest.importorskip("sentence_transformers").CrossEncoder
TEXTS = sentences(60, longest=7)
FIRST, SECOND = TEXTS[:30], TEXTS[30:]
GOLD = np.random.default_rng(0).permutation(30) / 6


@pytest.fixture(autouse=True)
def folders(place):
    PLACES["cross-encoders"](place)


def scores(first, second):
    return CrossEncoder("one", device="cpu").predict(list(zip(first, second, strict=True)))


@pytest.mark.parametrize(("options", "expected"), [
    ({}, lambda: scores(FIRST, SECOND)),
    ({"similarity": "symmetric-cross-encoder"}, lambda: (scores(FIRST, SECOND) + scores(SECOND, FIRST)) / 2),
])
def test_scores_are_the_library_s(options, expected):
    rows = list(zip(FIRST, SECOND, GOLD.tolist(), strict=True))
    result = stsbench.evaluate("cross-encoder:one", sts=rows, resamples=0, **options)
    [record] = result.records
    np.testing.assert_allclose(read_observations(result.folder, record).arrays["similarity"], expected(), atol=1e-6)
    assert record.protocol.settings["similarity"] == options.get("similarity", "cross-encoder")
    spec = record.encoder.spec
    assert (spec["kind"], spec["options"], record.encoder.dimension) == ("cross-encoder", {"activation": "Sigmoid"}, 0)


def test_labelled_pairs_and_what_is_cut():
    labels = (GOLD > 2.4).astype(int)
    rows = list(zip(FIRST, SECOND, labels.tolist(), strict=True))
    result = stsbench.evaluate("cross-encoder:one", pairs=rows, resamples=0)
    expected = 100 * average_precision_score(labels, scores(FIRST, SECOND))
    assert result.records[0].scores[0].value == pytest.approx(expected, abs=1e-6)
    with pytest.warns(StsbenchWarning, match="pairs were truncated to the model's limit of 6 tokens"):
        cut = stsbench.evaluate("cross-encoder:one", pairs=rows, resamples=0, max_length=6).records[0]
    tokenizer = CrossEncoder("one").tokenizer
    lengths = [len(tokenizer(*pair)["input_ids"]) for pair in zip(FIRST, SECOND, strict=True)]
    assert cut.counts == {"zero_vectors": 0, "truncated": sum(length > 6 for length in lengths)}


def test_no_row_is_ranked_among_encoders(cli):
    rows = (f"{a},{b},{score}\n" for a, b, score in zip(FIRST, SECOND, GOLD, strict=True))
    Path("own.csv").write_text("sentence1,sentence2,score\n" + "".join(rows))
    code, _, err = cli("eval", "--model", "cross-encoder:one", "--protocol", "sts:own.csv,geometry", "--output", "pair")
    assert code == 0 and "left out: geometry: cross-encoder:one gives no vectors" in err
    cli("eval", "--model", "lexical:token-set", "--protocol", "sts:own.csv", "--output", "set")
    code, out, err = cli("compare", "set", "pair")
    assert code == 1 and 'similarity is "cosine" in A and "cross-encoder" in B' in out + err
    leaderboard.init("board")
    for run in ("pair", "set"):
        leaderboard.add(run, run, board="board", method=run, backbone="none", setting="unsup")
    board = leaderboard.load("board")
    tabs = [tuple(row.id for row in tab.measured) for tab in board.tabs]
    assert tabs == [("set",), ("set",), ("pair",), ("pair",)]  # a page names the best of the first
