"""`--similarity maxsim`: sentence-transformers' values, of any transformer's token vectors and of multi-vector folders."""

import numpy as np
import pytest
from clirun import place  # noqa: F401 - fixture
from tiny_models import build, sentences

import stsbench
from stsbench.evaluation.run_file import read_observations

package = pytest.importorskip("sentence_transformers")
from sentence_transformers.util import maxsim_pairwise, mean_maxsim_pairwise  # noqa: E402

TEXTS = sentences(60, longest=9)
FIRST, SECOND = TEXTS[:30], TEXTS[30:]
GOLD = np.random.default_rng(0).permutation(30) / 6


def both(a, b, c, d):
    return (mean_maxsim_pairwise(a, b) + mean_maxsim_pairwise(c, d)) / 2


SCORES = {"maxsim": maxsim_pairwise, "meanmaxsim": mean_maxsim_pairwise, "symmetric-maxsim": both}


def measured(model, similarity, **options):
    rows = list(zip(FIRST, SECOND, GOLD.tolist(), strict=True))
    result = stsbench.evaluate(model, sts=rows, resamples=0, similarity=similarity, no_cache=True, **options)
    [record] = result.records
    assert record.protocol.settings["similarity"] == similarity and record.encoder.dimension == 0
    return read_observations(result.folder, record).arrays["similarity"], record


def tokens_alone(folder, texts, prompt="", layer=-1):
    """Each text by itself, through transformers."""
    import torch
    import transformers

    model, tokenizer = transformers.AutoModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [model(**tokenizer([prompt + text], return_tensors="pt"), output_hidden_states=True).hidden_states[layer][0]
                  for text in texts]
    return [torch.nn.functional.normalize(rows, dim=1) for rows in states]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("similarity", SCORES)
@pytest.mark.parametrize("options", [{}, {"prompt": "the dog ", "layer": -2}, {"attention": "padded"}], ids=str)
def test_any_transformer_s_token_vectors(tmp_path, similarity, options):
    folder = build(tmp_path / "model")
    texts = {key: options[key] for key in ("prompt", "layer") if key in options}
    a, b = (tokens_alone(folder, side, **texts) for side in (FIRST, SECOND))
    expected = SCORES[similarity](*((a, b, b, a) if similarity == "symmetric-maxsim" else (a, b)))
    made, _ = measured(str(folder), similarity, pooler="mean", **options)
    np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("similarity", SCORES)
def test_a_multi_vector_folder_is_scored_as_its_library_does(tmp_path, similarity):
    model = package.MultiVectorEncoder(str(build(tmp_path / "bare")), device="cpu", prompts={"query": "a ", "document": "."})
    model.save_pretrained(str(tmp_path / "many"))
    sides = [encode(texts) for texts, encode in (
        (FIRST, model.encode_query), (SECOND, model.encode_document), (SECOND, model.encode_query),
        (FIRST, model.encode_document))]
    expected = SCORES[similarity](*(sides if similarity == "symmetric-maxsim" else sides[:2]))
    made, record = measured(f"multi-vector:{tmp_path / 'many'}", similarity, max_length=64)
    np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)
    assert record.encoder.spec["kind"] == "multi-vector" and record.counts["truncated"] == 0


@pytest.mark.usefixtures("place")
def test_lengths_of_roles_half_precision_and_a_declared_similarity(tmp_path):
    import torch

    model = package.MultiVectorEncoder(str(build(tmp_path / "bare")), device="cpu", similarity_fn_name="meanmaxsim",
                                       prompts={"query": "a ", "document": "a dog "})
    model[0].query_expansion, model[0].document_length = {"strategy": "fixed", "length": 6}, 9
    model.save_pretrained(str(tmp_path / "many"))
    name = f"multi-vector:{tmp_path / 'many'}"
    made, record = measured(name, "maxsim", dtype="float16")
    library = package.MultiVectorEncoder(str(tmp_path / "many"), device="cpu", model_kwargs={"dtype": torch.float16})
    expected = maxsim_pairwise(library.encode_query(FIRST), library.encode_document(SECOND))
    np.testing.assert_allclose(made, expected, rtol=2e-3)
    assert (made != made.astype(np.float16)).any()  # as the library's, sums of many that are not rounded to 16 bits
    lengths = [[len(ids) for ids in library.tokenizer([prompt + text for text in side])["input_ids"]]
               for prompt, side in (("a ", FIRST), ("a dog ", SECOND))]
    cut = sum(query > 6 or document > 9 for query, document in zip(*lengths, strict=True))
    assert record.counts["truncated"] == cut and 0 < cut < 30 and record.encoder.spec["max_length"] == 6
    assert stsbench.load_encoder(name).traits.similarity == "meanmaxsim"


@pytest.mark.usefixtures("place")
def test_what_is_cut_counts(tmp_path):
    folder = build(tmp_path / "model")
    _, record = measured(str(folder), "maxsim", pooler="mean", max_length=6)
    lengths = [[len(rows) for rows in tokens_alone(folder, side)] for side in (FIRST, SECOND)]
    assert record.counts["truncated"] == sum(max(pair) > 6 for pair in zip(*lengths, strict=True)) > 0
