"""DiffAug made small, its batches, and the comparison of one with the oracle: values and every gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffaug_oracle import TEMPLATES, build, ids_of, oracle_of, tokenizer_of
from method_oracle import LIMIT, MemoryRows, make
from tiny_models import sentences

from stsbench.methods.diffaug.method import DiffAug
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

# no token, one, the mask token, more than fit, and others
TEXTS = ["", "cat", "the big cat plays a red guitar in the blue park with food .", "the {mask} runs", *sentences(20, 7, 9)]
PIECES = LIMIT - 2
PLAIN = {"sentence": [TEXTS[i] for i in (4, 0, 2, 5)]}
PAIRS = {"anchor": [TEXTS[i] for i in (4, 2, 1)], "positive": [TEXTS[i] for i in (6, 3, 7)]}
TRIPLETS = {**PAIRS, "negative": [TEXTS[i] for i in (0, 8, 9)]}
QUADRUPLES = {**TRIPLETS, "negative2": [TEXTS[i] for i in (10, 11, 12)]}
NLI = {"anchor": [TEXTS[i] for i in (13, 2, 14, 1)], "positive": [TEXTS[i] for i in (15, 3, 16, 17)],
       "negative": [TEXTS[i] for i in (18, 19, 0, 20)]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """family -> folder."""
    place = tmp_path_factory.mktemp("diffaug")
    return {family: build(place / family, family) for family in TEMPLATES}


def with_mask(method, texts):
    """The texts, their mask token that of the model."""
    return [text.replace("{mask}", method.backbone.tokenizer.mask_token) for text in texts]


class Texts(MemoryRows):
    """Rows in memory, their mask token that of the model."""

    def __init__(self, folder, texts, rows=None):
        mask = tokenizer_of(folder).mask_token
        super().__init__(folder, {role: [text.replace("{mask}", mask) for text in own] for role, own in texts.items()}, rows)

    def __len__(self):
        return len(self.rows)

    def ids(self, role):
        found = (ids_of(self.folder, text) for text in self.texts(role))
        return [np.array([*row[:-1][: LIMIT - 1], row[-1]], np.int32) for row in found]

    def at(self, rows):
        return Texts(self.folder, self.all, rows)


def diffaug(folder, family, *, stage="joint", dropout=0.0, engine="auto", **options):
    """The method in a stage, float64, in train mode; everything with_rows the model is far from zero."""
    options = {"template": TEMPLATES[family], "prefix_length": 2, **options}
    if options.get("module", "prefix") != "prefix":
        del options["prefix_length"]
    method = make(DiffAug, folder, options, dropout=dropout, pooler="mask")
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if not name.startswith("backbone.") or ".lora_" in name:
                weight.normal_(std=0.3)
    method.backbone.engine = engine
    method.start_stage(stage)
    return method


def batch_for(method, rows, labelled=None, padding=0):
    """The whole batch for one process: of labelled rows only where the stage has them. padding: columns more."""
    tok, labelled_only = method.backbone.tokenizer, method.stage == "prefix"
    views = (method.labelled_views if labelled_only else method.views)(rows, np.random.default_rng(0))
    batch = to_batch(views, Shares((len(rows.rows),)), tok.pad_token_id, torch.device("cpu"))
    batch.labelled_only = labelled_only
    batch.ids = torch.nn.functional.pad(batch.ids, (0, padding), value=tok.pad_token_id)
    batch.mask = torch.nn.functional.pad(batch.mask, (0, padding))
    if labelled is not None:
        both = method.labelled_views(labelled, np.random.default_rng(0))
        batch.labelled = to_batch(both, Shares((len(labelled.rows),)), tok.pad_token_id, torch.device("cpu"))
    return batch


def expected_terms(oracle, options, stage, rows, labelled=None):
    """Name -> value, weight."""
    if stage == "prefix":
        return {"nli": (oracle.cross_entropy(rows.all, PIECES), 1.0)}
    texts = list(rows.all.values())
    value = oracle.contrastive(
        texts * 2 if len(texts) == 1 else texts, PIECES, temperature=options.temperature, similarity=options.similarity,
        denoise=options.denoise, offset=options.denoise_offset, zero=options.denoise_start == "zero",
    )
    found = {"contrastive": (value, 1.0)}
    if options.aux_weight:
        found["nli"] = (oracle.cross_entropy(labelled.all, PIECES), options.aux_weight)
    return found


def check(method, folder, family, data, labelled=None, padding=3):
    """Values and gradients against the oracle's; the parameters that have a gradient."""
    rows = Texts(folder, data)
    with_rows = Texts(folder, labelled) if labelled else None
    oracle, weights = oracle_of(method, folder, family)
    expected = expected_terms(oracle, method.options, method.stage, rows, with_rows)
    terms = method(batch_for(method, rows, with_rows, padding))
    assert {name: term.weight for name, term in terms.items()} == {name: weight for name, (_, weight) in expected.items()}
    for name, (value, _) in expected.items():
        assert terms[name].value.item() == pytest.approx(value.item(), rel=1e-8, abs=1e-8)
    sum(term.weight * term.value for term in terms.values()).backward()
    sum(weight * value for value, weight in expected.values()).backward()
    seen = set()
    for name, weight in method.named_parameters():
        if not weight.requires_grad:
            assert weight.grad is None, name
            continue
        wanted = weights[name].grad
        if weight.grad is None:
            assert wanted is None or not wanted.any(), name
            continue
        seen.add(name)
        wanted = torch.zeros_like(weight) if wanted is None else wanted
        assert (weight.grad - wanted).abs().max() < 1e-7 * max(1.0, float(wanted.abs().max())), name
    return terms, seen
