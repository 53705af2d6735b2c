"""`--model cross-encoder:FOLDER` and `--similarity maxsim`, of any transformer's token vectors and of multi-vector folders:
scores are sentence-transformers' own, and stand beside no encoder's."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from clirun import cli, place  # noqa: F401 - fixtures
from refusal_places import PLACES
from sklearn.metrics import average_precision_score
from tiny_models import build, sentences

import stsbench
from stsbench import leaderboard
from stsbench.errors import StsbenchWarning
from stsbench.evaluation.run_file import read_observations

package = pytest.importorskip("sentence_transformers")
from sentence_transformers.util import maxsim_pairwise, mean_maxsim_pairwise  # noqa: E402

TEXTS = sentences(60, longest=9)
FIRST, SECOND = TEXTS[:30], TEXTS[30:]
GOLD = np.random.default_rng(0).permutation(30) / 6


@pytest.fixture
def folders(place):
    PLACES["cross-encoders"](place)


def scores(first, second):
    return package.CrossEncoder("one", device="cpu").predict(list(zip(first, second, strict=True)))


def compared(model, expected, **options):
    """The pairs' scores, and the record of them."""
    rows = list(zip(FIRST, SECOND, GOLD.tolist(), strict=True))
    result = stsbench.evaluate(model, sts=rows, resamples=0, no_cache=True, **options)
    [record] = result.records
    assert record.protocol.settings["similarity"] == expected and record.encoder.dimension == 0
    return read_observations(result.folder, record).arrays["similarity"], record


def test_scores_of_a_cross_encoder_are_the_library_s(folders):
    there, back = scores(FIRST, SECOND), scores(SECOND, FIRST)
    made, record = compared("cross-encoder:one", "cross-encoder")
    np.testing.assert_allclose(made, there, atol=1e-6)
    assert (record.encoder.spec["kind"], record.encoder.spec["options"]) == ("cross-encoder", {"activation": "Sigmoid"})
    made, _ = compared("cross-encoder:one", "symmetric-cross-encoder", similarity="symmetric-cross-encoder")
    np.testing.assert_allclose(made, (there + back) / 2, atol=1e-6)


def test_labelled_pairs_and_what_is_cut(folders):
    labels = (GOLD > 2.4).astype(int)
    rows = list(zip(FIRST, SECOND, labels.tolist(), strict=True))
    result = stsbench.evaluate("cross-encoder:one", pairs=rows, resamples=0)
    expected = 100 * average_precision_score(labels, scores(FIRST, SECOND))
    assert result.records[0].scores[0].value == pytest.approx(expected, abs=1e-6)
    with pytest.warns(StsbenchWarning, match="pairs were truncated to the model's limit of 6 tokens"):
        cut = stsbench.evaluate("cross-encoder:one", pairs=rows, resamples=0, max_length=6).records[0]
    tokenizer = package.CrossEncoder("one").tokenizer
    lengths = [len(tokenizer(*pair)["input_ids"]) for pair in zip(FIRST, SECOND, strict=True)]
    assert cut.counts == {"zero_vectors": 0, "truncated": sum(length > 6 for length in lengths)}


def test_no_row_is_ranked_among_encoders(folders, cli):
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


def both(a, b, c, d):
    return (mean_maxsim_pairwise(a, b) + mean_maxsim_pairwise(c, d)) / 2


SCORES = {"maxsim": maxsim_pairwise, "meanmaxsim": mean_maxsim_pairwise, "symmetric-maxsim": both}


def tokens_alone(folder, texts, prompt="", layer=-1):
    """Each text by itself, through transformers."""
    model, tokenizer = transformers.AutoModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [model(**tokenizer([prompt + text], return_tensors="pt"), output_hidden_states=True).hidden_states[layer][0]
                  for text in texts]
    return [torch.nn.functional.normalize(rows, dim=1) for rows in states]


@pytest.mark.parametrize(("similarity", "options"), [
    ("maxsim", {}), ("meanmaxsim", {"prompt": "the dog ", "layer": -2}), ("symmetric-maxsim", {})], ids=str)
def test_any_transformer_s_token_vectors(folder, similarity, options):
    a, b = (tokens_alone(folder, side, **options) for side in (FIRST, SECOND))
    score = SCORES[similarity]
    made, _ = compared(str(folder), similarity, similarity=similarity, pooler="mean", **options)
    np.testing.assert_allclose(made, score(*((a, b, b, a) if score is both else (a, b))), rtol=1e-6, atol=1e-6)


def test_a_multi_vector_folder_is_scored_as_its_library_does(tmp_path):
    model = package.MultiVectorEncoder(str(build(tmp_path / "bare")), device="cpu", prompts={"query": "a ", "document": "."})
    model.save_pretrained(str(tmp_path / "many"))
    sides = [encode(texts) for texts, encode in (
        (FIRST, model.encode_query), (SECOND, model.encode_document), (SECOND, model.encode_query),
        (FIRST, model.encode_document))]
    for similarity, score in SCORES.items():
        made, record = compared(f"multi-vector:{tmp_path / 'many'}", similarity, similarity=similarity, max_length=64)
        np.testing.assert_allclose(made, score(*(sides if score is both else sides[:2])), rtol=1e-6, atol=1e-6)
        assert record.encoder.spec["kind"] == "multi-vector" and record.counts["truncated"] == 0


def test_what_is_cut_counts(tmp_path):
    folder = build(tmp_path / "model")
    _, record = compared(str(folder), "maxsim", similarity="maxsim", pooler="mean", max_length=6)
    lengths = [[len(rows) for rows in tokens_alone(folder, side)] for side in (FIRST, SECOND)]
    assert record.counts["truncated"] == sum(max(pair) > 6 for pair in zip(*lengths, strict=True)) > 0


@pytest.mark.usefixtures("place")
def test_lengths_of_roles_half_precision_and_a_declared_similarity(tmp_path):
    model = package.MultiVectorEncoder(str(build(tmp_path / "bare")), device="cpu", similarity_fn_name="meanmaxsim",
                                       prompts={"query": "a ", "document": "a dog "})
    model[0].query_expansion, model[0].document_length = {"strategy": "fixed", "length": 6}, 9
    model.save_pretrained(str(tmp_path / "many"))
    name = f"multi-vector:{tmp_path / 'many'}"
    made, record = compared(name, "maxsim", similarity="maxsim", dtype="float16")
    library = package.MultiVectorEncoder(str(tmp_path / "many"), device="cpu", model_kwargs={"dtype": torch.float16})
    expected = maxsim_pairwise(library.encode_query(FIRST), library.encode_document(SECOND))
    np.testing.assert_allclose(made, expected, rtol=2e-3)
    assert (made != made.astype(np.float16)).any()  # as the library's, sums of many that are not rounded to 16 bits
    lengths = [[len(ids) for ids in library.tokenizer([prompt + text for text in side])["input_ids"]]
               for prompt, side in (("a ", FIRST), ("a dog ", SECOND))]
    cut = sum(query > 6 or document > 9 for query, document in zip(*lengths, strict=True))
    assert record.counts["truncated"] == cut and 0 < cut < 30 and record.encoder.spec["max_length"] == 6
    assert stsbench.load_encoder(name).traits.similarity == "meanmaxsim"
