"""What an extension's option may put in the place of prompt and pooler, with one that reads each text twice."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from tiny_models import build, sentences

from stsbench import load_encoder, registry
from stsbench.encoders.options import EncoderOptions
from stsbench.encoders.prompt.prompt import described
from stsbench.encoders.prompt.reading import (
    READINGS,
    Pass,
    Reader,
    Reading,
    ReadingOption,
    described_reading,
    read_otherwise,
)
from stsbench.encoders.prompt.template import Template, Tokeniser
from stsbench.errors import EncoderError
from stsbench.evaluation.announce import described_encoder
from stsbench.options import option

TEXTS = [*sentences(7, seed=2), ""]


@dataclass(frozen=True)
class Twice(Reading):
    """The mean of what two templates give, each pooled by the mean."""

    option: ClassVar[str] = "twice"
    word: str
    layer: int = -1
    pooler: str = "mean"
    template: None = None
    bidirectional: bool = False

    def spec_options(self):
        return {"twice": self.word, "layer": self.layer, "words": ["", self.word], "how": {"mean": True}}


class MeanPass(Pass):
    def __init__(self, forward, factor):
        self.forward, self.factor = forward, factor

    def marks(self, order, put):
        return put(torch.from_numpy(np.full(len(order), self.factor, dtype=np.float32)))

    def __call__(self, ids, groups, marks):
        state, start, means = self.forward(ids, groups, (-1,))[0], 0, []
        for texts, length in groups:
            means.append(state[start:start + texts * length].unflatten(0, (texts, length)).mean(1))
            start += texts * length
        return torch.cat(means) * marks[:, None]


class TwiceReader(Reader):
    passes = 2

    def __init__(self, reading, model, tokenizer, name, limit, limit_name):
        self.tokenisers = [Tokeniser(tokenizer, limit, Template(before, "")) for before in ("", f"{reading.word} ")]

    def __call__(self, texts):
        return self.tokenisers[0](texts)

    def read(self, forward, texts, compute):
        ids, cut = zip(*(tokenise(texts) for tokenise in self.tokenisers), strict=True)
        return sum(compute(rows, MeanPass(forward, 0.5)) for rows in ids), cut[0] | cut[1]

    def check(self, forward, ids):
        assert len(ids) == 2


class TwiceOption(ReadingOption):
    reader = TwiceReader

    @staticmethod
    def reading(options):
        if options.template is not None:
            raise EncoderError("--twice excludes --template")
        return Twice(options.twice)

    @staticmethod
    def described(options):
        return [f"twice, behind {options['twice']}"]


@dataclass(frozen=True, kw_only=True)
class Options(EncoderOptions):
    """With what the extension adds."""

    twice: str | None = option(None, "")


@pytest.fixture
def registered(monkeypatch):
    points, known = registry._points, SimpleNamespace(load=lambda: TwiceOption, value="twice")
    monkeypatch.setattr(registry, "_points", lambda group: {"twice": known} if group == READINGS else points(group))


@pytest.fixture
def folder(tmp_path):
    return str(build(tmp_path / "model"))


def read(folder, **more):
    return load_encoder(folder, Options(**{"twice": "a cat", **more}))


def test_vectors_are_the_reading_s(registered, folder):
    plain, behind = (
        load_encoder(folder, Options(pooler="mean", prompt=prompt)).encode(TEXTS) for prompt in (None, "a cat ")
    )
    encoder = read(folder, batch_tokens=20)
    done = []
    assert np.abs(encoder.run(TEXTS, done.append).vectors - (plain + behind) / 2).max() < 1e-5 and sum(done) == len(TEXTS)
    assert encoder.counts(TEXTS).tokens == load_encoder(folder, Options(pooler="mean")).counts(TEXTS).tokens
    cut = read(folder, normalize=True, truncate_dim=4).encode(TEXTS)
    assert cut.shape == (len(TEXTS), 4) and np.abs(np.linalg.norm(cut, axis=1) - 1).max() < 1e-6


def test_the_spec_says_it_and_words_come_from_the_extension(registered, folder):
    encoder = read(folder)
    options = encoder.spec.options
    assert encoder.spec.pooler == "mean" and options == Twice("a cat").spec_options()
    assert encoder.spec.fingerprint() != read(folder, twice="a dog").spec.fingerprint()
    assert described_reading(options) == ["twice, behind a cat"] and not described(options)
    assert described_reading(options, brief=True) == ["twice a cat", "layer -1"]
    line = described_encoder(encoder)
    assert ", twice, behind a cat, max length" in line and "no prompt" not in line


def test_without_the_extension_its_options_are_shown_as_they_stand(folder):
    options = Twice("a cat").spec_options()
    shown = ["twice a cat", 'words ["", "a cat"]', 'how {"mean": true}']
    assert described_reading(options) == [*shown, "last layer, normed"] and not described(options)
    assert described_reading(options, brief=True) == [*shown, "layer -1"]
    spec = {"kind": "transformers", "pooler": "mean", "template": None, "prefix": None, "options": options}
    record = SimpleNamespace(encoder=SimpleNamespace(spec=spec, dimension=8), provenance={})
    facts = pytest.importorskip("stsbench.extensions.reports.facts")
    assert "twice a cat" in facts.encoder_facts([record]) and "no prompt" not in facts.encoder_facts([record])


def test_of_a_plain_layer_nothing_else_is_said(folder):
    options = load_encoder(folder, pooler="mean", layer=0, full_stop=True, truncate_dim=4).spec.options
    assert described_reading(options) == ["hidden state 0 (embeddings), not normed"] and not read_otherwise(options)
    assert described_reading(options, brief=True) == ["layer 0"] and described_reading({}) == []


def test_options_that_exclude_it_are_the_extension_s(registered, folder):
    with pytest.raises(EncoderError, match="--twice excludes --template"):
        read(folder, template="It {} .")
