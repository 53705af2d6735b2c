"""`load_encoder(...)` handed to mteb.evaluate: the scores of `to_mteb`, and those of the library's own model."""

import numpy as np
import pytest

library = pytest.importorskip("sentence_transformers")
from model_folders import declare, pooling, transformer  # noqa: E402
from registered_models import PROMPTS, retrieval_task, scored_pairs, scores_of_mteb, similarity_task  # noqa: E402

from stsbench import load_encoder, to_mteb  # noqa: E402
from stsbench.data.fetch.mteb import undisturbed  # noqa: E402


def test_a_folder_with_prompts(tmp_path):
    declare(transformer(tmp_path / "model"), pooling("mean"), settings={"prompts": PROMPTS})
    encoder = load_encoder(tmp_path / "model", device="cpu", offline=True)
    theirs = library.SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    with undisturbed() as package:
        assert isinstance(encoder, package.EncoderProtocol)
        assert not isinstance(encoder, package.SearchProtocol | package.CrossEncoderProtocol)
        tasks = [similarity_task(), retrieval_task()]
        direct, wrapped, expected = (scores_of_mteb(package, model, tasks) for model in (encoder, to_mteb(encoder), theirs))
    for one, two, three in zip(direct, wrapped, expected, strict=True):
        assert one["main_score"] == pytest.approx(two["main_score"], abs=1e-6)
        assert one["main_score"] == pytest.approx(three["main_score"], abs=1e-6)
        assert one == pytest.approx(two, abs=1e-5) and one == pytest.approx(three, abs=1e-5)


def test_encoders_without_a_model(tmp_path):
    first, second, _ = scored_pairs()
    texts = [*first, *second]
    np.savez(tmp_path / "v.npz", texts=np.array(texts), vectors=np.random.default_rng(1).normal(size=(len(texts), 8)))
    with undisturbed() as package:
        for name in ("lexical:token-set", f"vectors:{tmp_path / 'v.npz'}"):
            encoder = load_encoder(name)
            both = (encoder, to_mteb(encoder))
            direct, wrapped = (scores_of_mteb(package, model, [similarity_task()])[0] for model in both)
            assert direct == pytest.approx(wrapped, abs=1e-6) and direct["spearman"] != 0


def test_mteb_s_result_cache_knows_it_by_its_fingerprint():
    encoder = load_encoder("lexical:token-set")
    meta = encoder.mteb_model_meta
    assert meta.name == "stsbench/lexical-token-set" and meta.revision == f"stsbench-{encoder.spec.fingerprint()}"
    unnamed = load_encoder(lambda texts: np.ones((len(texts), 2)))
    assert unnamed.mteb_model_meta.revision != unnamed.mteb_model_meta.revision  # never answered from there


def test_other_callers_are_not_taken_for_mteb():
    encoder = load_encoder("lexical:token-set")
    assert encoder.encode(["a cat", "a dog"]).shape[0] == 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'hf_split'"):
        encoder.encode(["a cat"], hf_split="test")
