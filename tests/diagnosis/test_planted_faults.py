"""Each planted fault is named, and nothing else; what no part of A explains is named by nothing."""

from __future__ import annotations

import shutil

import numpy as np
import planted
import pytest
import torch
from model_folders import dense, normalize, tokenizer
from planted import LIMIT, PROMPT, Naive, bert
from tiny_decoders import decoder_folder
from tiny_models import sentences
from tokenizers import pre_tokenizers

import stsbench
from stsbench.diagnosis.parity import parity
from stsbench.diagnosis.texts import TEXTS

TINY = {"long": 8, "no blanks": 2}
PROBE = [text for kind, group in TEXTS.items() for text in group[: TINY.get(kind, 5)]]


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Folders of models, made once."""
    root = tmp_path_factory.mktemp("planted")
    made = {"plain": bert(root / "plain")}
    made["dense"] = bert(root / "dense", dense(10), normalize())
    made["prompt"] = bert(root / "prompt", prompts={"query": PROMPT}, default_prompt_name="query")
    made["half"] = planted.overflowing(root / "half")
    made["revision"] = planted.moved_weights(made["plain"], root / "revision")
    made["llama"] = decoder_folder(root / "llama", ends="bos")
    made["adapted"] = planted.adapter(root / "adapted", made["plain"])
    return made


def told(a, b, **how):
    """The causes by kind."""
    result = parity(a, b, texts=PROBE, **how)
    assert result.verdict != "equal" and not result.equal
    causes = result.explanation.causes
    assert all(cause.certain for cause in causes if cause.kind != "precision")
    return {cause.kind: str(cause) for cause in causes}, result


def test_pooling(homes):
    causes, _ = told(homes["plain"], Naive(homes["plain"], pool=lambda states: states[0]))
    assert causes == {"pooling": "pooling is cls instead of mean"}


def test_a_missing_dense_layer_is_another_dimension(homes):
    causes, result = told(homes["dense"], Naive(homes["plain"]))
    assert list(causes) == ["module"] and "Dense" in causes["module"] and result.verdict == "of different dimensions"


def test_a_missing_dense_layer_of_the_same_width(homes, tmp_path):
    folder = bert(tmp_path / "square", dense(planted.WIDTH), normalize())
    causes, result = told(folder, Naive(folder))
    assert list(causes) == ["module"] and "Dense" in causes["module"] and result.verdict == "different"


def test_no_prompt(homes):
    assert told(homes["prompt"], Naive(homes["prompt"]))[0] == {"prompt": f"the prompt {PROMPT!r} is left out"}


def test_the_prompt_twice(homes):
    causes, _ = told(homes["prompt"], Naive(homes["prompt"], prompt=PROMPT * 2))
    assert causes == {"prompt": f"the prompt {PROMPT!r} stands before a text twice"}


@pytest.mark.parametrize("limit", [128, 131])
def test_truncation(homes, limit):
    causes, result = told(homes["plain"], Naive(homes["plain"], limit=limit))
    assert causes == {"truncation": f"texts are cut at {limit} tokens instead of {LIMIT}"}
    assert 0 < sum(result.cosines < 1 - 1e-8) < len(PROBE)


def test_a_longer_limit(homes):
    causes, _ = told(homes["plain"], Naive(homes["plain"], limit=256))
    assert causes == {"truncation": f"texts are cut at 256 tokens instead of {LIMIT}"}


def test_no_normalisation(homes):
    causes, result = told(homes["plain"], Naive(homes["plain"], head=lambda vector: vector))
    assert causes == {"normalisation": "vectors are not normalised at the end"} and result.verdict == "equal up to scale"


def test_float16_that_overflows(homes):
    causes, result = told(homes["half"], Naive(homes["half"], model=Naive(homes["half"]).model.half()))
    lost = int((~np.isfinite(result.b).all(1)).sum())
    assert 0 < lost < len(PROBE) and list(causes) == ["precision"]
    assert "computed in float16" in causes["precision"] and f"it overflows: {lost} text" in causes["precision"]


def test_another_tokenizer(homes, tmp_path):
    other = shutil.copytree(homes["plain"], tmp_path / "other")
    tok = tokenizer()
    tok.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tok.save_pretrained(other)
    causes, result = told(homes["plain"], other)
    assert causes == {"tokenizer": "the tokenizer is another one"}
    assert 0 < (result.cosines < 1 - 1e-8).sum() < len(PROBE)


def test_special_tokens_that_are_read_as_words(homes):
    naive = Naive(homes["plain"], reads={"split_special_tokens": True})
    assert told(homes["plain"], naive)[0] == {"tokenizer": "the tokenizer reads special tokens in a text as words"}


def test_a_missing_bos(homes):
    asked = {"a_options": {"pooler": "last"}}
    naive = Naive(homes["llama"], 1024, drop_first=True, pool=lambda states: states[-1], head=lambda vector: vector)
    texts = [text for text in PROBE if text.strip()]
    result = parity(homes["llama"], naive, texts=texts, **asked)
    assert result.causes == ("<s> before a text is missing",)


def test_lower_casing(homes):
    assert told(homes["plain"], Naive(homes["plain"], lower=True))[0] == {"case": "texts are lower-cased"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_int8(homes):
    causes, _ = told(homes["plain"], Naive(homes["plain"], model=planted.quantised(homes["plain"])))
    assert list(causes) == ["precision"] and causes["precision"].startswith("consistent with: int8 weights")


def test_another_revision(homes):
    causes, _ = told(homes["plain"], homes["revision"])
    assert list(causes) == ["weights"] and "tensors differ" in causes["weights"]


def test_another_revision_behind_a_function_is_what_is_left(homes):
    causes, result = told(homes["plain"], Naive(homes["revision"]))
    assert not causes and "nothing that was tried explains it" in str(result)
    assert "another revision" in str(result) and len(result.explanation.tried) > 20


def test_swapped_rows(homes):
    def swapped(texts):
        vectors = Naive(homes["plain"])(texts)
        return vectors[[1, 0, *range(2, len(texts) - 3), *(len(texts) - k for k in (1, 2, 3))]]

    causes, _ = told(homes["plain"], swapped)
    assert causes == {"order": "rows stand in another order (4 rows, such as 2 for 1, 1 for 2, 60 for 58)"}


def test_an_adapter_that_is_not_applied(homes):
    naive = Naive(homes["plain"], head=lambda vector: vector)
    causes, _ = told(homes["adapted"], naive, a_options={"pooler": "mean", "max_length": LIMIT})
    assert causes == {"adapter": "the adapter is not applied"}


def test_a_post_processing_that_is_left_out(homes, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(sentences(80)), "utf-8")
    fitted = stsbench.fit("whitening", homes["plain"], texts, tmp_path / "white")
    assert told(fitted, homes["plain"])[0] == {"post-processing": "the post-processing whitening is left out"}


def test_two_faults(homes):
    naive = Naive(homes["prompt"], pool=lambda states: states.amax(0))
    assert set(told(homes["prompt"], naive)[0]) == {"prompt", "pooling"}
    cut = Naive(homes["plain"], limit=131, pool=lambda states: states[0], head=lambda vector: vector)
    assert set(told(homes["plain"], cut)[0]) == {"truncation", "pooling", "normalisation"}


def test_a_fault_and_a_rounding(homes):
    model = Naive(homes["plain"]).model.to(torch.bfloat16)
    causes, _ = told(homes["plain"], Naive(homes["plain"], model=model, pool=lambda states: states[0]))
    assert set(causes) == {"pooling", "precision"} and "bfloat16" in causes["precision"]
