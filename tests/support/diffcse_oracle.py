"""DiffCSE's loss in loops over tokens."""

import copy
import math
from functools import cache

import torch
from method_oracle import LIMIT, tokens
from simcse_oracle import heads, naive_info_nce
from transformers import AutoModelForMaskedLM

from stsbench.training.api.batch import IGNORED


@cache
def _read(folder):
    return AutoModelForMaskedLM.from_pretrained(folder).double().eval()


def _loaded(folder):
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


class Naive:
    """The terms of one batch: {name: (mean, number of items)}, and in `found` what the detector told right."""

    def __init__(self, method, folder, generator=None):
        self.options, self.projector = method.options, method.projector
        self.encoder = _like(_loaded(folder).base_model, method.backbone.model.state_dict())
        self.generator = _loaded(generator or folder)
        self.mask = method.backbone.tokenizer.mask_token_id
        self.folder, self.auxiliary = folder, method.auxiliary
        self.counts = [0, 0, 0, 0]  # right on replaced, replaced, right on original, original
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

    def _note(self, changed, detected):
        self.counts[1 if changed else 3] += 1
        if changed == detected:
            self.counts[0 if changed else 2] += 1
