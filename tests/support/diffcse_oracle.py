"""DiffCSE made small, and its loss once more: text by text through transformers' own modules, loops over tokens, math."""

from __future__ import annotations

import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
import training_runs
from method_oracle import LIMIT, batch_of, make, tokens
from simcse_oracle import heads, naive_info_nce
from tiny_models import SHAPE, WORDS, tokenizer
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM
from written_once import written_once

from stsbench.methods.diffcse.method import DiffCSE

IGNORED = -100


def distinct(count, seed=0, longest=8):
    """Texts of 1 to `longest` words, none of them twice in a text, so that a changed copy tells what was changed."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.permutation(WORDS)[: rng.integers(1, longest + 1)]) for _ in range(count)]


TEXTS = [text for text in distinct(80, seed=2) if " " in text]
PLAIN = {"sentence": TEXTS[:4]}
DOCUMENTS = {"sentence": TEXTS[:9]}
PAIRS = {"anchor": TEXTS[:3], "positive": TEXTS[4:7]}
QUADRUPLES = {**PAIRS, "negative": TEXTS[8:11], "negative2": TEXTS[12:15]}


@written_once
def masked_lm(folder, family="bert", seed=11, copies=False, **shape):
    """A random masked LM of a family, with its head, and the family's tokenizer. shape: other sizes than SHAPE.

    copies: it mostly guesses the token that it sees, as trained ones do, and any other one at a mask.
    """
    torch.manual_seed(seed)
    tok = tokenizer(family)
    sizes = {**SHAPE, "vocab_size": len(tok), "pad_token_id": tok.pad_token_id, "initializer_range": 0.3, **shape}
    if family == "bert":
        model = BertForMaskedLM(BertConfig(max_position_embeddings=64, **sizes))
    else:
        model = RobertaForMaskedLM(RobertaConfig(max_position_embeddings=66, type_vocab_size=1, **sizes))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.1 if copies else 0.5)
            if copies and ("encoder" in name or "position" in name):
                weight *= 0.3
        if copies:
            transform = model.cls.predictions.transform if family == "bert" else model.lm_head
            torch.nn.init.eye_(transform.dense.weight)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("diffcse")


@pytest.fixture(scope="module")
def folder(place):
    """The encoder: 3 layers of width 32."""
    return masked_lm(place / "encoder")


@pytest.fixture(scope="module")
def generator(place):
    """A generator of other sizes."""
    return masked_lm(place / "generator", seed=12, copies=True, hidden_size=24, num_hidden_layers=2, intermediate_size=40)


def diffcse(folder, generator=None, *, dropout=0.0, pooler="cls", moved=True, **options):
    """The method in float64, its generator without dropout. moved: no two of its parts have the same weights any more."""
    needed = options.get("operators") != ["delete"] and options.get("task") != "conditional_mlm"
    chosen = {"generator_mode": "eval", "generator": str(generator)} if generator is not None and needed else {}
    # at 0.05 sentences without dropout, whitened by BatchNorm, have a loss of 1e-10
    warm = {"temperature": 0.5} if options.get("contrastive", True) and options.get("similarity") != "dot" else {}
    method = make(DiffCSE, folder, {**chosen, **warm, **options}, dropout=dropout, pooler=pooler)
    if moved:
        draw = torch.Generator().manual_seed(4)
        with torch.no_grad():
            for weight in method.parameters():
                if weight.requires_grad:
                    weight += 0.1 * torch.randn(weight.shape, generator=draw, dtype=torch.float64)
    return method


def small_run(place):
    """Values of a run of 7 steps, the last of 5 rows, with a generator of its own."""
    encoder = masked_lm(place / "encoder", num_hidden_layers=2)
    maker = masked_lm(place / "generator", seed=12, copies=True, hidden_size=24, num_hidden_layers=1)
    more = {"options.generator": str(maker), "training.epochs": 1}
    return training_runs.settings(encoder, training_runs.make_text(place, 65), **more)


class Naive:
    """The terms of one batch: {name: (mean, number of items)}, and in `found` what the detector told right."""

    def __init__(self, method, folder, generator=None):
        self.options, self.projector = method.options, method.projector
        self.encoder = _like(_loaded(folder).base_model, method.backbone.model.state_dict())
        self.generator = _loaded(generator or folder)
        self.mask = method.backbone.tokenizer.mask_token_id
        self.folder, self.auxiliary = folder, method.auxiliary
        self.found = [0, 0, 0, 0]  # right on replaced, replaced, right on original, original
        if self.auxiliary is not None:
            self.discriminator = _loaded(folder)
            if self.auxiliary.lm_head is not None:
                stray = self.discriminator.load_state_dict(self.auxiliary.lm_head.parts.state_dict(), strict=False)
                assert not stray.unexpected_keys
            _like(self.discriminator.base_model, self.auxiliary.discriminator.model.state_dict())

    def __call__(self, rows, views):
        options = self.options
        with torch.no_grad():
            if rows.roles == ("sentence",):
                own = [tokens(self.folder, rows.texts("sentence"))] * 2
                ahead = tokens(self.folder, rows.at(rows.following(1)).texts("sentence")) if rows.documents else None
            else:
                own, ahead = [tokens(self.folder, rows.texts(role)) for role in rows.roles], None
            assert [_lists(view) for view in views.tokens[: len(own)]] == own
            rest = [_lists(view) for view in views.tokens[len(own) :]]
            blocks, names = [], [name for name in views.extra if name.endswith(" labels")]
            for name in names:
                operator, sentence, _ = name.split()
                originals = own if sentence == "same" else [ahead] * len(own)
                originals = originals[:1] if options.augmented_as else originals
                copies, rest = rest[: len(originals)], rest[len(originals) :]
                labels = [_lists(view) for view in views.extra[name]]
                read = [[self.changed(operator, *row) for row in zip(*view, strict=True)]
                        for view in zip(copies, originals, labels, strict=True)]
                blocks.append((operator, sentence, originals, copies, labels, read))
            assert not rest
            encoded = [*own, *(blocks[0][5] if options.augmented_as else [])]
            raw = [self.encoder(input_ids=torch.tensor([row])).last_hidden_state[0, 0].tolist()
                   for view in encoded for row in view]
            projected = self.project(raw)
            terms = self.contrastive(projected, len(own[0])) if options.contrastive else {}
            if self.auxiliary is not None:
                first = projected if options.condition == "projected" else raw
                length = max(len(row) for view in views.tokens for row in view)
                for block in blocks:
                    terms |= self.task(first, length, *block)
        return terms

    def changed(self, operator, copy, original, labels):
        """What the generator makes of one masked or lengthened row, guessing from that row alone; a shortened one stays."""
        if operator == "delete" or self.options.task == "conditional_mlm":
            return copy
        scores = self.generator(input_ids=torch.tensor([copy])).logits[0].tolist()
        best = [max(range(len(row)), key=row.__getitem__) for row in scores]
        if operator == "insert":
            return [guess if token == self.mask else token for token, guess in zip(copy, best, strict=True)]
        if self.options.replace == "all":
            return [original[0], *best[1:]]
        return [guess if label != IGNORED else token for token, guess, label in zip(original, best, labels, strict=True)]

    def project(self, vectors):
        kind = self.options.projector
        if kind != "batchnorm":
            rows = [torch.tensor(row, dtype=torch.float64) for row in vectors]
            return heads(rows, self.projector.dense if kind == "tanh" else None)
        inner, outer = self.projector.inner.weight.tolist(), self.projector.outer.weight.tolist()
        scale, shift = self.projector.inner_norm.weight.tolist(), self.projector.inner_norm.bias.tolist()
        hidden = _normalised([[_dot(line, row) for line in inner] for row in vectors])
        hidden = [[max(a * x + b, 0.0) for a, x, b in zip(scale, row, shift, strict=True)] for row in hidden]
        return _normalised([[_dot(line, row) for line in outer] for row in hidden])

    def contrastive(self, vectors, n):
        how = {"temperature": self.options.temperature, "similarity": self.options.similarity}
        queries, keys, *others = [vectors[start : start + n] for start in range(0, len(vectors), n)]
        if self.options.augmented_as != "positive":
            return {"contrastive": (naive_info_nce(queries, keys, others, **how), n)}
        *negatives, augmented = others
        return {
            "contrastive": (naive_info_nce(queries, keys, negatives, **how), n),
            "contrastive_augmented": (naive_info_nce(queries, augmented, negatives, **how), n),
        }

    def read(self, row, vector, length):
        """(length, d): D's states of one row; padding is token 0, is read by nobody, and has states of its own."""
        bert = self.discriminator.base_model
        embedded = bert.embeddings(input_ids=torch.tensor([row + [0] * (length - len(row))])).clone()
        embedded[0, 0] = torch.tensor(vector, dtype=torch.float64)
        hidden = torch.zeros(1, 1, length, length, dtype=torch.float64)
        hidden[..., len(row) :] = torch.finfo(torch.float64).min
        return bert.encoder(embedded, attention_mask=hidden).last_hidden_state[0]

    def words(self, states):
        head = getattr(self.discriminator, "cls", None) or self.discriminator.lm_head
        return head(states).tolist()

    def task(self, first, length, operator, sentence, originals, copies, labels, read):
        name = ("" if operator == "replace" else f"_{operator}") + ("" if sentence == "same" else f"_{sentence}")
        task, n, lost, copied = self.options.task, len(copies[0]), [], []
        for v, view in enumerate(read):
            for i, row in enumerate(view):
                vector, original, label = first[v * n + i], originals[v][i], labels[v][i]
                states = self.read(row, vector, length)
                if task == "conditional_mlm":
                    for t, scores in enumerate(self.words(states)):
                        if t < len(row) and label[t] != IGNORED:
                            lost.append(_log_sum(scores) - scores[label[t]])
                elif task == "corrective_lm":
                    gate, words = self.auxiliary.gate, self.words(states)
                    ends = 1 if self.options.rtd_mean == "attended_without_specials" else 0
                    for t in range(1, len(row) - ends):
                        open_ = _dot(gate.weight[0].tolist(), states[t].tolist()) + gate.bias.item()
                        g, same = 1 / (1 + math.exp(-open_)), row[t] == original[t]
                        p = (1 - g) * math.exp(words[t][original[t]] - _log_sum(words[t])) + (g if same else 0.0)
                        lost.append(-math.log(p))
                        copied.append(-math.log(g if same else 1 - g))
                        self._note(not same, open_ < 0)
                else:
                    lost += self.detection(operator, states, row, copies[v][i], original)
        if task == "corrective_lm":
            mean, count = sum(copied) / len(copied), len(copied)
            return {f"corrective_lm{name}": (sum(lost) / len(lost), count), f"copy{name}": (mean, count)}
        return {("rtd" if task == "rtd" else task) + name: (sum(lost) / len(lost), len(lost))}

    def detection(self, operator, states, row, copy, original):
        """-log p of each counted token of one row."""
        detector, lost = self.auxiliary.detector, []
        rows = list(zip(detector.weight.tolist(), detector.bias.tolist(), strict=True))
        where = {token: place for place, token in enumerate(original)}
        for t, state in enumerate(states.tolist()):
            scores = [_dot(line, state) + bias for line, bias in rows]
            real = t < len(row)
            changed = False
            if real and operator == "replace":
                changed = row[t] != original[t]
            elif real and operator == "insert":
                changed = copy[t] == self.mask
            elif real and t > 0:
                changed = where[copy[t]] != where[copy[t - 1]] + 1
            ends = t == 0 or t >= len(row) - 1
            if {"all": True, "attended": real, "attended_without_specials": real and not ends}[self.options.rtd_mean]:
                lost.append(_log_sum(scores) - scores[int(changed)])
            if real:
                self._note(changed, scores[1] > scores[0])
        return lost

    def _note(self, changed, told):
        self.found[1 if changed else 3] += 1
        if changed == told:
            self.found[0 if changed else 2] += 1


def check(method, rows, naive, *, seed=0, more_padding=0):
    """Every term of one batch, its number of items and its weight against the loops; the terms."""
    views = method.views(rows, np.random.default_rng(seed))
    terms = method(batch_of(method, rows, seed=seed, more_padding=more_padding))
    expected = naive(rows, views)
    assert {name: term.count for name, term in terms.items()} == {name: count for name, (_, count) in expected.items()}
    for name, term in terms.items():
        assert term.value.item() == pytest.approx(expected[name][0], rel=1e-9, abs=1e-11), name
        assert term.weight == (1 if name.startswith("contrastive") else method.options.rtd_weight)
    return terms


def accuracies(found):
    """What the log says of these four counts."""
    right_replaced, replaced, right_original, original = found
    return {
        "detection_accuracy": (right_replaced + right_original) / (replaced + original),
        "replaced_accuracy": right_replaced / replaced, "original_accuracy": right_original / original,
        "replaced_share": replaced / (replaced + original),
    }


@cache
def _read(folder):
    return AutoModelForMaskedLM.from_pretrained(folder).double().eval()


def _loaded(folder):
    """A masked LM of its own, in float64, without dropout."""
    return copy.deepcopy(_read(folder))


def _like(model, weights):
    model.load_state_dict(weights)
    return model


def _lists(view):
    rows = [list(map(int, row)) for row in view]
    assert all(len(row) <= LIMIT for row in rows)
    return rows


def _normalised(rows):
    """Each column minus its mean over the standard deviation, as BatchNorm has it."""
    columns = []
    for column in zip(*rows, strict=True):
        mean = sum(column) / len(column)
        spread = sum((x - mean) ** 2 for x in column) / len(column)
        columns.append([(x - mean) / math.sqrt(spread + 1e-5) for x in column])
    return [list(row) for row in zip(*columns, strict=True)]


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def _log_sum(scores):
    top = max(scores)
    return top + math.log(sum(math.exp(score - top) for score in scores))
