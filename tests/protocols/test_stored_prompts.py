"""The prompts that a model's author stored: mteb's tasks and a user's retrieval read texts as sentence-transformers does."""

import json

import numpy as np
import pytest
from datasets import Dataset
from tiny_models import add_modules, build
from torch.utils.data import DataLoader

from stsbench.data.fetch.mteb import undisturbed
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.mteb import MtebEncoder
from stsbench.encoders.load import load_encoder
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.run_file import read_observations

MEAN = {"pooling_mode": "mean"}
PROMPTS = {
    "query": "the dog : ", "document": "a man : ", "STS": "the cat and ", "STSBenchmark": "on the mat ", "other": "a ",
}
WORDS = ("the cat sat on the mat", "a dog", "the man eats", "a man sat on the mat and the dog")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("prompts")
    add_modules(build(place), MEAN, prompts=PROMPTS, default_prompt_name="other", similarity_fn_name="dot")
    (place / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64}))
    return place


@pytest.fixture(scope="module")
def library(folder):
    module = pytest.importorskip("sentence_transformers")
    return module.SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.mark.parametrize(("task", "side"), [
    ("STSBenchmark", None), ("STS12", "query"), ("SciFact", "query"), ("SciFact", "document"),
    ("Banking77Classification", None),
])
def test_a_text_is_read_as_mteb_has_the_library_read_it(folder, library, task, side):
    ours = MtebEncoder(Embed(load_encoder(str(folder), device="cpu", offline=True)))
    with undisturbed() as mteb:
        from mteb.models import SentenceTransformerEncoderWrapper
        from mteb.types import PromptType

        metadata = mteb.get_task(task).metadata
        theirs = SentenceTransformerEncoderWrapper(library, "stsbench/it")
        about = {"task_metadata": metadata, "hf_split": "test", "hf_subset": "default",
                 "prompt_type": None if side is None else PromptType(side)}
        expected = theirs.encode(DataLoader(Dataset.from_dict({"text": list(WORDS)}), batch_size=3), **about)
        vectors = ours.encode([{"text": list(WORDS)}], **about)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
        np.testing.assert_allclose(ours.similarity(vectors, vectors), library.similarity(vectors, vectors), rtol=1e-4)
    plain = library.encode(list(WORDS), prompt="")
    # each of these has a prompt of its own but Banking77Classification's texts without a side, which have the default one
    assert np.abs(plain - vectors).max() > 1e-3


def test_a_prompt_of_the_user_s_own_is_before_every_text(folder, library):
    ours = MtebEncoder(Embed(load_encoder(str(folder), device="cpu", offline=True, prompt="man ")))
    with undisturbed() as mteb:
        about = {"task_metadata": mteb.get_task("SciFact").metadata, "hf_split": "", "hf_subset": "", "prompt_type": "query"}
        vectors = ours.encode([{"text": list(WORDS)}], **about)
    np.testing.assert_allclose(vectors, library.encode(list(WORDS), prompt="man "), atol=1e-5)
    assert not ours.prompted


def test_texts_that_a_prompt_makes_too_long_are_counted(folder, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "queries.tsv").write_text("q0\ta dog\n")
    (own / "corpus.tsv").write_text("d0\tdog cat\nd1\tmat\n")
    (own / "relevance.tsv").write_text("q0\td0\n")
    result = evaluate(str(folder), output=tmp_path / "run", protocols=[f"retrieval:{own}"], resamples=0, no_cache=True,
                      device="cpu", offline=True, max_length=6)
    stored = read_observations(result.folder, result.records[0])
    assert "1 queries were truncated behind their prompt" in stored.names["notes"]
