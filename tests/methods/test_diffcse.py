"""DiffCSE's whole loss under every option, its texts read one at a time; the counts of its log."""

import copy
from itertools import chain

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, _reference, batch_of, make, tokens, total
from simcse_oracle import heads, info_nce
from tiny_models import WORDS, masked_lm
from transformers import AutoModelForMaskedLM

from stsbench.errors import StsbenchError
from stsbench.losses.tokens import corrective_lm, detections, replaced_tokens
from stsbench.losses.tokens import masked_lm as guessed
from stsbench.methods.diffcse.method import DiffCSE, ViewMaker
from stsbench.training.api.batch import IGNORED
from stsbench.training.modules.backbone import load_backbone

DRAWS = np.random.default_rng(2)
# of 2 to 8 words, none of them twice in a text, so that a changed copy tells what was changed
TEXTS = [text for text in (" ".join(DRAWS.permutation(WORDS)[: DRAWS.integers(1, 9)]) for _ in range(80)) if " " in text]
PAIRS = {"anchor": TEXTS[:3], "positive": TEXTS[4:7]}
PLAIN = {"sentence": TEXTS[:4]}
DATA = {"plain": PLAIN, "roberta": PLAIN, "documents": {"sentence": TEXTS[:9]}, "pairs": PAIRS,
        "quadruples": {**PAIRS, "negative": TEXTS[8:11], "negative2": TEXTS[12:15]}}
MEANS = ["all", "attended", "attended_without_specials"]
EDITS, GUESSED = {"edit_ratio": 0.4}, {"task": "conditional_mlm", "mask_ratio": 0.4}


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diffcse") / "generator"
    return masked_lm(folder, seed=12, copies=True, hidden_size=24, num_hidden_layers=2, intermediate_size=40)


@pytest.fixture(scope="module")
def robertas(tmp_path_factory):
    """An encoder and a generator."""
    place = tmp_path_factory.mktemp("robertas")
    small = {"seed": 12, "copies": True, "hidden_size": 24, "num_hidden_layers": 1}
    return masked_lm(place / "encoder", "roberta"), masked_lm(place / "generator", "roberta", **small)


def rows_of(folder, data="plain"):
    if data != "documents":
        return MemoryRows(folder, DATA[data])
    return MemoryRows(folder, DATA[data], documents=[0] * 5 + [1] * 4).at([3, 0, 7, 1])


def diffcse(folder, generator=None, *, dropout=0.0, **options):
    """The method in float64, its generator without dropout; no two of its parts have the same weights any more."""
    needed = options.get("operators") != ["delete"] and options.get("task") != "conditional_mlm"
    needed = needed and (options.get("rtd_weight", 1) > 0 or "augmented_as" in options)
    chosen = {"generator_mode": "eval", "generator": str(generator)} if generator is not None and needed else {}
    # at 0.05 sentences without dropout, whitened by BatchNorm, have a loss of 1e-10
    warm = {"temperature": 0.5} if options.get("contrastive", True) and options.get("similarity") != "dot" else {}
    method = make(DiffCSE, folder, {**chosen, **warm, **options}, dropout=dropout)
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in method.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn(weight.shape, generator=draw, dtype=torch.float64)
    return method


def normalised(rows):
    """Each column minus its mean over the standard deviation, as BatchNorm has it."""
    return (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt()


def matrix(rows, length, value):
    return torch.tensor([[*map(int, row), *[value] * (length - len(row))] for row in rows])


class Naive:
    """The terms of one batch, {name: (mean, number of items)}, and in `counts` what the detector told right."""

    def __init__(self, method, folder, generator=None):
        self.options, self.projector, self.auxiliary = method.options, method.projector, method.auxiliary
        self.folder, self.mask = folder, method.backbone.tokenizer.mask_token_id
        whole, self.generator = (_reference(AutoModelForMaskedLM, each) for each in (folder, generator or folder))
        self.encoder = copy.deepcopy(whole).base_model
        self.encoder.load_state_dict(method.backbone.model.state_dict())
        self.counts = None  # right on replaced, replaced, right on original, original
        if self.auxiliary is not None:
            self.discriminator = copy.deepcopy(whole)
            if self.auxiliary.lm_head is not None:
                stray = self.discriminator.load_state_dict(self.auxiliary.lm_head.parts.state_dict(), strict=False)
                assert not stray.unexpected_keys
            self.discriminator.base_model.load_state_dict(self.auxiliary.discriminator.model.state_dict())

    @torch.no_grad()
    def __call__(self, rows, views):
        options, n = self.options, len(rows.rows)
        own = [tokens(self.folder, rows.texts(role)) for role in rows.roles] * (1 if len(rows.roles) > 1 else 2)
        ahead = tokens(self.folder, rows.at(rows.following(1)).texts("sentence")) if rows.documents else None
        read = [[list(map(int, row)) for row in view] for view in views.tokens]
        length = max(len(row) for view in read for row in view)
        assert read[: len(own)] == own and length <= LIMIT
        rest, blocks = read[len(own) :], []
        for name in [name for name in views.extra if name.endswith(" labels")]:
            operator, sentence, _ = name.split()
            originals = (own if sentence == "same" else [ahead] * len(own))[: 1 if options.augmented_as else None]
            parts, rest = rest[: len(originals)], rest[len(originals) :]
            block = list(zip(*(chain.from_iterable(each) for each in (parts, originals, views.extra[name])), strict=True))
            for copy_of, original, labels in block if operator == "replace" else ():  # the labels are what stood there
                assert list(np.where(labels == IGNORED, original, labels)) == list(original)
                assert list(np.where(labels == IGNORED, copy_of, original)) == list(original)
            blocks.append((operator, sentence, block, [self.changed(operator, *row) for row in block]))
        assert not rest
        encoded = [*chain.from_iterable(own), *(blocks[0][3] if options.augmented_as else [])]
        raw = torch.stack([self.encoder(torch.tensor([row])).last_hidden_state[0, 0] for row in encoded])
        projected = self.project(raw)
        terms = self.contrastive(*projected.split(n)) if options.contrastive else {}
        for block in blocks if self.auxiliary is not None else ():
            terms |= self.task(projected if options.condition == "projected" else raw, length, *block)
        return {name: (float(value), count) for name, (value, count) in terms.items()}

    def changed(self, operator, copy, original, labels):
        """What the generator makes of one masked or lengthened row, guessing from that row alone; a shortened one stays."""
        if operator == "delete" or self.options.task == "conditional_mlm":
            return copy
        best = self.generator(torch.tensor([copy])).logits[0].argmax(1).tolist()
        if operator == "insert":
            return [guess if token == self.mask else token for token, guess in zip(copy, best, strict=True)]
        if self.options.replace == "all":
            return [original[0], *best[1:]]
        return [guess if label != IGNORED else token for token, guess, label in zip(original, best, labels, strict=True)]

    def project(self, vectors):
        if self.options.projector != "batchnorm" or self.projector is None:
            return heads(vectors, None if self.projector is None else self.projector.dense)
        inner, norm = self.projector.inner.weight, self.projector.inner_norm
        hidden = (normalised(vectors @ inner.T) * norm.weight + norm.bias).clamp(min=0)
        return normalised(hidden @ self.projector.outer.weight.T)

    def contrastive(self, queries, keys, *others):
        how, n = {"temperature": self.options.temperature, "similarity": self.options.similarity}, len(queries)
        if self.options.augmented_as != "positive":
            return {"contrastive": (info_nce(queries, keys, *others, **how), n)}
        *negatives, augmented = others
        pairs = {"contrastive": keys, "contrastive_augmented": augmented}
        return {name: (info_nce(queries, positive, *negatives, **how), n) for name, positive in pairs.items()}

    def states(self, row, vector, length):
        """(length, d): D's states of one row; padding is token 0, is read by nobody, and has states of its own."""
        bert = self.discriminator.base_model
        embedded = bert.embeddings(input_ids=matrix([row], length, 0)).clone()
        embedded[0, 0] = vector
        hidden = torch.zeros(1, 1, length, length, dtype=torch.float64)
        hidden[..., len(row) :] = torch.finfo(torch.float64).min
        return bert.encoder(embedded, attention_mask=hidden).last_hidden_state[0]

    def task(self, first, length, operator, sentence, block, read):
        name = ("" if operator == "replace" else f"_{operator}") + ("" if sentence == "same" else f"_{sentence}")
        states = torch.stack([self.states(row, vector, length) for row, vector in zip(read, first, strict=False)])
        head = getattr(self.discriminator, "cls", None) or getattr(self.discriminator, "lm_head", None)
        if self.options.task == "conditional_mlm":
            targets = matrix([label for *_, label in block], length, IGNORED)
            chosen = targets != IGNORED
            return {f"conditional_mlm{name}": (guessed(head(states[chosen]), targets[chosen]), int(chosen.sum()))}
        differs = matrix([self.differs(operator, row, *texts) for row, texts in zip(read, block, strict=True)], length, 0)
        place, last = torch.arange(length), torch.tensor([[len(row) - 1] for row in read])
        real, inner = place <= last, (place > 0) & (place < last)
        if self.options.task == "corrective_lm":
            counted = inner if self.options.rtd_mean == MEANS[2] else real & (place > 0)
            gate = self.auxiliary.gate(states)[counted].squeeze(-1)
            places = [matrix(rows, length, 0)[counted] for rows in (read, [original for _, original, _ in block])]
            self.note(detections(torch.stack([gate, -gate], 1), differs[counted], counted[counted]))
            words, copied = corrective_lm(head(states[counted]), gate, *places)
            return {f"corrective_lm{name}": (words, len(gate)), f"copy{name}": (copied, len(gate))}
        counted = {"all": torch.ones_like(real), "attended": real, MEANS[2]: inner}[self.options.rtd_mean]
        logits = self.auxiliary.detector(states)
        self.note(detections(logits, differs, real))
        return {f"rtd{name}": (replaced_tokens(logits, differs, counted), int(counted.sum()))}

    def differs(self, operator, row, copy, original, _):
        if operator == "replace":
            return [token != other for token, other in zip(row, original, strict=True)]
        if operator == "insert":
            return [token == self.mask for token in copy]
        where = {token: place for place, token in enumerate(original)}
        return [place > 0 and where[token] != where[copy[place - 1]] + 1 for place, token in enumerate(copy)]

    def note(self, counts):
        self.counts = counts if self.counts is None else self.counts + counts


def check(method, rows, naive, *, seed=0):
    """Every term of one batch, its number of items and its weight; every trained weight has a gradient."""
    options, views = method.options, method.views(rows, np.random.default_rng(seed))
    assert views.one_length == (method.auxiliary is not None and (options.task, options.rtd_mean) == ("rtd", MEANS[0]))
    batch, expected = batch_of(method, rows, seed=seed), naive(rows, views)
    terms = method(batch)
    assert {name: term.count for name, term in terms.items()} == {name: count for name, (_, count) in expected.items()}
    assert all(terms[name].count == count for name, count in method.counts(batch).items())
    for name, term in terms.items():
        assert term.value.item() == pytest.approx(expected[name][0], rel=1e-9, abs=1e-11), name
        assert term.weight == (1 if name.startswith("contrastive") else method.options.rtd_weight)
    total(terms).backward()  # else several processes would wait for a weight in vain
    assert all((weight.grad is not None) == weight.requires_grad for weight in method.parameters())
    return terms


@pytest.mark.parametrize(("data", "options"), [
    ("plain", {"rtd_mean": MEANS[2], "operators": ["delete"], "projector": "none", **EDITS}),
    ("plain", {"operators": ["delete", "insert", "replace"], "combine": "choice", "rtd_mean": MEANS[1], **EDITS}),
    ("plain", {"masked": 0.3, "random": 0.4, "mask_ratio": 0.6, "replace": "masked", "rtd_mean": MEANS[2]}),
    ("roberta", {}),  # whose padding is token 0 to the discriminator, too, and in the loss
    ("plain", {"condition": "raw", "projector": "tanh", "similarity": "dot", "rtd_weight": 1.0}),
    ("documents", {"sentence": "same+next", "operators": ["insert", "replace", "delete"], **EDITS}),
    ("quadruples", {"view": "given", "operators": ["replace", "delete"], **EDITS}),
    ("documents", {"task": "corrective_lm", "sentence": "next", "rtd_mean": MEANS[2]}),
    ("plain", {"task": "corrective_lm", "replace": "masked", "contrastive": False})], ids=str)
def test_the_loss_of_detection_and_correction(folder, generator, robertas, data, options):
    folder, generator = robertas if data == "roberta" else (folder, generator)
    method = diffcse(folder, generator, **options)
    naive = Naive(method, folder, generator)
    check(method, rows_of(folder, data), naive)
    right_replaced, replaced, right_original, original = naive.counts.tolist()
    assert min(replaced, original) > 0
    every = replaced + original
    assert method.metrics() == {
        "detection_accuracy": (right_replaced + right_original) / every, "replaced_share": replaced / every,
        "replaced_accuracy": right_replaced / replaced, "original_accuracy": right_original / original}
    assert list(method.inputs()) == ([] if options.get("operators") == ["delete"] else ["generator"])


@pytest.mark.parametrize(("data", "options"), [
    ("plain", {**GUESSED, "condition": "raw"}), ("documents", {**GUESSED, "sentence": "same+next", "contrastive": False}),
    ("pairs", {"rtd_weight": 0, "view": "given"}),
    ("quadruples", {"rtd_weight": 0, "augmented_as": "positive", "view": "given"}),
    ("plain", {"rtd_weight": 0, "augmented_as": "negative", "operators": ["delete"], "projector": "none", **EDITS}),
], ids=str)
def test_the_loss_without_a_detector(folder, generator, data, options):
    """Masked words guessed, no auxiliary term at all, or the changed sentence as a further view."""
    method = diffcse(folder, generator, **options)
    terms = check(method, rows_of(folder, data), Naive(method, folder, generator))
    assert method.metrics() == {} and all(term.count > 0 for term in terms.values())
    assert (method.view_vectors(batch_of(method, rows_of(folder, data))) is None) == ("contrastive" in options)
    assert (method.auxiliary is None) == ("rtd_weight" in options)
    if options.get("rtd_weight") == 0 and "augmented_as" not in options:
        assert method.changer is None and method.inputs() == {} and method.notes() == []


def test_padding_is_part_of_the_mean_over_all_positions_only(folder, generator):
    for mean in MEANS:
        method, rows = diffcse(folder, generator, rtd_mean=mean), rows_of(folder)
        short, long = (method(batch_of(method, rows, more_padding=columns)) for columns in (0, 5))
        assert long["contrastive"].value.item() == pytest.approx(short["contrastive"].value.item(), rel=1e-9)
        same = long["rtd"].value.item() == pytest.approx(short["rtd"].value.item(), rel=1e-9)
        assert same == (mean != "all") and (long["rtd"].count - short["rtd"].count) == (2 * 4 * 5 if mean == "all" else 0)


def test_what_is_missing_where_it_is_needed_or_of_another_width_is_refused(folder, generator):
    """A next sentence, a mask token; vectors of another width than the discriminator's."""
    with pytest.raises(StsbenchError):
        diffcse(folder, sentence="next").views(rows_of(folder, "documents").at([0, 8]), np.random.default_rng(0))
    bare = load_backbone(folder, "bare", max_length=LIMIT)
    bare.name, bare.tokenizer.mask_token = "bare", None
    for operator in ("replace", "insert"):
        with pytest.raises(StsbenchError, match=rf"options\.operators {operator} needs a mask token, .* bare has none"):
            ViewMaker(bare, DiffCSE.Options(operators=["delete", operator]))
    assert ViewMaker(bare, DiffCSE.Options(operators=["delete"])) and ViewMaker(bare, DiffCSE.Options(rtd_weight=0))

    method = diffcse(folder, generator, projector="none")
    method.backbone.pooled = lambda ids, mask: torch.zeros(len(ids), 15, dtype=torch.float64)
    with pytest.raises(StsbenchError):
        method(batch_of(method, rows_of(folder)))
