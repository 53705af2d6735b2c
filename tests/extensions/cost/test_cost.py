"""What an encoder costs: the texts, the clock, the counts against transformers' own, and what a record keeps of it."""

import time
from statistics import mean, median

import numpy as np
import pytest
import torch
from toy_encoder import Toy, embed
from transformers import AutoModel, AutoTokenizer
from workers import in_this_process

import stsbench
from stsbench import load_encoder
from stsbench.encoders.base import Encoder, EncoderOptions
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.errors import EncoderError
from stsbench.evaluation.records import Cost, record_name
from stsbench.extensions.cost import measure as module
from stsbench.extensions.cost.measure import BLOCK, MOST, ROUNDS, TEMPLATES, cost_texts, in_words, measure_cost
from stsbench.extensions.devices.parallel import ParallelEncoder


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    monkeypatch.setattr(module, "_ROUND", 0.01)


class Sleepy(Toy):
    """Two milliseconds a text, in which the processor is free."""

    def run(self, texts, progress=None):
        time.sleep(0.002 * len(texts))
        return super().run(texts)


def test_the_texts_are_many_and_each_block_is_as_long_as_sts():
    texts = cost_texts(MOST)
    assert len(set(texts)) == len(texts) == MOST == 64 * len(TEMPLATES) and cost_texts(BLOCK) == texts[:BLOCK]
    lengths = [len(text.split()) for text in texts]
    assert 11 < mean(lengths) < 13 and np.quantile(lengths, [0.05, 0.5, 0.95]).tolist() == [5, 9.5, 28]
    means = [mean(lengths[start:start + BLOCK]) for start in range(0, MOST, BLOCK)]
    assert max(means) - min(means) < 1


def test_the_clock_and_the_processor(monkeypatch):
    encoder = Sleepy()
    cost = measure_cost(encoder)
    assert len(cost.seconds) == len(cost.cpu_seconds) == ROUNDS == 5
    assert cost.sentences_per_second == pytest.approx(cost.texts / median(cost.seconds), rel=1e-3)
    assert all(second >= 0.002 * cost.texts for second in cost.seconds) and cost.latency_seconds >= 0.002
    assert cost.busy and cost.model_copy(update={"cpu_seconds": cost.seconds}).busy is False
    calls = [len(texts) for texts in encoder.calls]
    assert calls[:6] == [1] * 6 and calls[-7:] == [cost.texts] * 6 + [BLOCK]  # warm-up before, and none of it counts
    assert cost.parameters is None and cost.tokens_per_second is None and (cost.width, cost.bytes_a_vector) == (3, 12)
    assert "sentences/s" in in_words(cost) and "12 bytes a vector" in in_words(cost)
    monkeypatch.setattr(module, "_ROUND", 0.1)
    assert measure_cost(Toy()).texts == MOST and cost.texts <= 10 * BLOCK  # a quick encoder gets more texts


def test_a_model_is_counted_as_transformers_counts_it_here_and_in_several_processes(folder):
    encoder = load_encoder(str(folder), EncoderOptions(pooler="mean"))
    cost = measure_cost(encoder)
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokens = sum(len(ids) for ids in tokenizer(cost_texts(cost.texts), truncation=True)["input_ids"])
    assert cost.parameters == model.num_parameters()
    assert cost.tokens_per_second == pytest.approx(tokens * cost.sentences_per_second / cost.texts, rel=1e-4)
    assert (cost.width, cost.bytes_a_vector) == (model.config.hidden_size, 4 * model.config.hidden_size)
    assert cost.device == "cpu" and cost.threads and cost.where == "process" and cost.machine.cores >= 1
    assert 1e7 < cost.memory_bytes < 1e11
    cut = measure_cost(load_encoder(str(folder), EncoderOptions(pooler="mean", truncate_dim=5)))
    assert (cut.width, cut.bytes_a_vector, cut.parameters) == (5, 20, cost.parameters)
    shared = measure_cost(ParallelEncoder(encoder, in_this_process(encoder, 2)))  # where only the clock tells
    assert (shared.where, shared.cpu_seconds, shared.memory_bytes) == ("processes", None, None)
    assert shared.parameters and shared.tokens_per_second and not shared.busy
    assert shared.processes == 2 and shared.threads and "in each of 2 processes" in in_words(shared)


def test_other_kinds(folder, tmp_path):
    words = load_encoder("lexical:token-set")
    cost = measure_cost(words)
    assert words.run(["a b"]).vectors.shape == (1, 2)  # its vocabulary holds nothing of the probe
    assert (cost.width, cost.parameters, cost.threads, cost.device) == (None, 0, None, "cpu")
    sparse = load_encoder("lexical:token-set").run(cost_texts(BLOCK)).vectors
    assert cost.bytes_a_vector == 8 * sparse.nnz / BLOCK
    assert measure_cost(load_encoder("lexical:tfidf")).parameters == 0
    np.savez(tmp_path / "v.npz", texts=np.array(["a"]), vectors=np.ones((1, 3)))
    assert measure_cost(load_encoder(f"vectors:{tmp_path / 'v.npz'}")) is None
    with pytest.raises(EncoderError, match="raised ValueError"):
        measure_cost(load_encoder(lambda texts: [][0] if len(texts) < 0 else (_ for _ in ()).throw(ValueError("no"))))


def test_post_processing_is_measured_where_it_is_fitted_once():
    base, chain = Toy(), Chain.parse("whitening:dimensions=2")
    free = PostProcessed(base, chain)
    cost = measure_cost(free)
    assert cost.without == free.spec.post and cost.width == 3
    fitted = free.fit([f"text {i * 7919 % 1000} {'x' * (i % 9)}" for i in range(40)], "some")
    cost = measure_cost(fitted)
    assert cost.without is None and (cost.width, cost.bytes_a_vector) == (2, 8)
    assert base.calls  # the base computed, whatever was kept


def run(model, folder, **more):
    return stsbench.evaluate(model, output=folder, sample=True, tasks="STS-B", resamples=0, **more)


def test_a_record_keeps_it_and_nothing_else_changes(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = [run(str(folder), tmp_path / name, pooler="mean", cache_dir=tmp_path / "cache", cost=cost)
            for name, cost in (("plain", False), ("cost", True))]  # the second finds every vector in the cache
    (plain,), (record,) = (stsbench.load_records(result.folder) for result in made)
    plain, record = plain[1], record[1]
    assert "cost" not in plain.provenance and record_name(plain) == record_name(record)
    assert (plain.scores, plain.encoder, plain.observations) == (record.scores, record.encoder, record.observations)
    cost = Cost.model_validate(record.provenance["cost"])
    assert cost.model_dump(exclude_none=True) == record.provenance["cost"]
    assert cost.first_vector_seconds > 0 and cost.parameters


def test_an_encoder_that_fails_on_the_probe_is_measured_all_the_same(tmp_path):
    class Picky(Toy):
        def run(self, texts, progress=None):
            if any("peeling" in text for text in texts):
                raise EncoderError("toy: no peeling")
            return embed(texts)

    with pytest.warns(stsbench.errors.StsbenchWarning, match="its cost is not recorded: toy: no peeling"):
        result = run(Picky(), tmp_path / "picky", cost=True)
    assert result.rows and "cost" not in result.records[0].provenance
    assert isinstance(Picky(), Encoder)


def test_of_an_accelerator_the_name_and_torchs_peak_are_kept(monkeypatch):
    class Far(Toy):
        device = torch.device("cuda", 1)

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Some GPU {device.index}")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1000 * device.index)
    cost = measure_cost(Far())
    assert (cost.device, cost.cuda_memory_bytes, cost.busy) == ("Some GPU 1", 1000, False)
    assert "1.0 kB on the device" in in_words(cost) and "(Some GPU 1, " in in_words(cost)
