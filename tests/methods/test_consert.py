"""ConSERT's views against its equations, text by text: numbers are set to 0 in loops by what was drawn, layers are
transformers'. What its terms make of them: test_terms.py. Sentence-BERT's classifier, and a run on a file of scores.
Mirror-BERT's spans by loops over characters, and its loss on what they make of texts."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from info_nce_oracle import naive_nt_xent
from method_oracle import MemoryRows, _reference, batch_of, grown, make, tokens, total
from transformers import AutoModel

import stsbench
from stsbench import losses
from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError, StsbenchError
from stsbench.methods.consert.method import ConSERT
from stsbench.methods.mirrorbert.method import MirrorBERT, mask_spans
from stsbench.methods.sbert.method import SBERT
from stsbench.training.api.batch import Shares
from stsbench.training.modules.soft_prompt import head_factors
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train as run

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
LENGTHS = [9, 4, 10, 5, 3]  # in tokens, special ones included
LABELS = [2, 0, 1, 1, 0]
START = {"bert": 0, "roberta": 2}  # the position id of a text's first token
RATES = {"none": None, "shuffle": None, "token_cutoff": 0.3, "feature_cutoff": 0.3, "dropout": 0.2, "span": 0.5}


def rows_of(folder, labelled=False):
    if not labelled:
        return MemoryRows(folder, {"sentence": TEXTS})
    others = tiny_models.sentences(len(TEXTS), longest=6, seed=3)
    return MemoryRows(folder, {"premise": TEXTS, "hypothesis": others}, values=LABELS)


def consert(folder, pooler="mean", **options):
    """In float64 and train mode; with the classifier where there is one."""
    method = make(ConSERT, folder, options, pooler=pooler)
    if method.classifier is not None:
        torch.manual_seed(5)
        method.classifier.set_shape(method.backbone.width, 3)
        method.double()
    return method


def batch_for(method, labelled=False, seed=0, more_padding=2):
    """(a batch, the views it was made of), padded by columns that no text needs."""
    rows = rows_of(method.backbone.folder, labelled)
    views = (method.labelled_views if labelled else method.views)(rows, np.random.default_rng(seed))
    pad, grow = method.backbone.tokenizer.pad_token_id, torch.nn.functional.pad
    batch = grown(method, to_batch(views, Shares((len(TEXTS),)), pad, torch.device("cpu")), more_padding)
    batch.labelled_only = labelled
    batch.by_row = {  # elements of padding: whatever they are, nothing reads them
        name: grow(values, (0, 0, 0, more_padding), value=True) if values.ndim == 3 else values
        for name, values in batch.by_row.items()}
    return batch, views


def embedded(folder, ids, positions=None):
    """(1, n, d) the embedding output of one text. positions: ids, or None for the model's own."""
    positions = [START[folder.name] + index for index in range(len(ids))] if positions is None else positions
    return _reference(AutoModel, folder).embeddings(
        input_ids=torch.tensor([list(map(int, ids))]), position_ids=torch.tensor([positions])).detach()


def pooled(folder, states, pooler="mean"):
    """(d,) the vector of one text from its embeddings (1, n, d)."""
    hidden = _reference(AutoModel, folder).encoder(states).last_hidden_state[0]
    return {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}[pooler]


def vectors(folder, views, slot, name, pooler):
    """(v * n, d) of one view of all texts, by what was drawn for it."""
    rows = []
    for text, row in ((text, row) for text in range(len(views.tokens)) for row in range(len(TEXTS))):
        ids = views.extra[f"{slot} ids"][text][row] if name == "span" else views.tokens[text][row]
        order = views.extra[f"{slot} order"][text][row] if name == "shuffle" else range(len(ids))
        states = embedded(folder, ids, [START[folder.name] + int(index) for index in order])
        for index in range(len(ids)):
            for feature in range(states.shape[2]):
                if ((name == "token_cutoff" and views.extra[f"{slot} cut"][text][row][index])
                        or (name == "feature_cutoff" and views.by_row[f"{slot} cut"][text][row][feature])
                        or (name == "dropout" and views.by_row[f"{slot} cut"][text][row][index][feature])):
                    states[0, index, feature] = 0
        rows.append(pooled(folder, states, pooler).detach())
    return torch.stack(rows)


@pytest.mark.parametrize(("family", "name", "pooler"), [
    (number % 2, name, ("mean", "cls", "max")[number % 3]) for number, name in enumerate(RATES)])
def test_a_view_is_what_given_positions_and_zeroed_entries_make_it(encoders, family, name, pooler):
    """In turn of a stage of plain sentences, and of one of labelled pairs."""
    folder, rate = encoders[list(START)[family]], RATES[name]
    stage = ("unsup", "joint")[family]
    options = {"views": ("none", name), "rates": (None, rate)}
    if stage == "joint":
        options = {"setting": "joint", **{f"joint_{key}": value for key, value in options.items()}}
    method = consert(folder, pooler, **options)
    batch, views = batch_for(method, stage == "joint")
    expected = [vectors(folder, views, slot, kind, pooler) for slot, kind in (("first", "none"), ("second", name))]
    for method.backbone.engine in ("packed", "padded"):
        with torch.no_grad():
            actual = [method._view(batch, slot, stage) for slot in ("first", "second")]
        assert max(float((one - other).abs().max()) for one, other in zip(actual, expected, strict=True)) < 1e-10
    assert ((actual[1] - actual[0]).abs().max(1).values > 1e-4).sum() >= (3 if name != "none" else 0)


def draws(folder, name, rate, count):
    """[draw] -> what was drawn for the second view of the texts."""
    method = consert(folder, views=("none", name), rates=(None, rate))
    every = [method.views(rows_of(folder), np.random.default_rng(seed)) for seed in range(count)]
    return [(views.extra | views.by_row)[f"second {'ids' if name == 'span' else 'cut'}"][0] for views in every]


def test_counts_are_rounded_down_and_every_place_may_be_cut(encoders):
    folder, rate = encoders["bert"], 0.7
    assert [len(row) for row in tokens(folder, TEXTS)] == LENGTHS
    chosen = draws(folder, "token_cutoff", rate, 40)
    for row, length in enumerate(LENGTHS):
        assert all(sum(cut[row]) == int(length * rate) for cut in chosen)
    assert all(any(cut[row][index] for cut in chosen) for row in (0, 2) for index in (0, -1))  # special tokens among them
    features = draws(folder, "feature_cutoff", rate, 2)
    assert all(part.sum(1).tolist() == [int(32 * rate)] * 5 for part in features)
    assert len({tuple(row) for part in features for row in part.tolist()}) == 10  # each row and each draw its own
    for part in draws(folder, "dropout", rate, 3):
        assert part.sum((1, 2)).tolist() == [int(length * 32 * rate) for length in LENGTHS]
        assert not any(part[row, length:].any() for row, length in enumerate(LENGTHS))
    for part in draws(folder, "span", rate, 10):
        for text, row in zip(tokens(folder, TEXTS), part, strict=True):
            kept = np.flatnonzero(row)  # no token of a text is 0 here
            assert len(kept) == max(int(len(text) * (1 - rate)), 1) == kept[-1] - kept[0] + 1
            assert [text[index] for index in kept] == row[kept].tolist()


def test_the_adversarial_view_is_a_step_along_the_gradient_of_the_cross_entropy(encoders):
    folder = encoders["roberta"]
    method = consert(folder, setting="joint", joint_views=("none", "adversarial"), joint_rates=(None, None),
                     adversarial_norm=0.4)
    batch, views = batch_for(method, labelled=True)
    linear = method.classifier.linear
    starts = [[embedded(folder, row).requires_grad_() for row in part] for part in views.tokens]
    u, v = (torch.stack([pooled(folder, start) for start in part]) for part in starts)
    logits = torch.cat([u, v, (u - v).abs()], 1) @ linear.weight.detach().T + linear.bias.detach()
    loss = torch.stack([-logits[row].log_softmax(0)[label] for row, label in enumerate(LABELS)]).mean()
    loss.backward()
    expected = float(loss.detach())
    for part, first in zip(starts, (u, v), strict=True):
        second = []
        for start in part:
            step = start.grad / (start.grad.square().sum(2, keepdim=True).sqrt() + 1e-10)
            second.append(pooled(folder, start.detach() + 0.4 * step).detach())
        expected += 0.15 * float(naive_nt_xent(first.detach(), torch.stack(second), 0.1).mean())
    for method.backbone.engine in ("packed", "padded"):
        assert abs(float(total(method(batch)).detach()) - expected) < 1e-8
        with torch.no_grad():  # as held-out rows are scored
            assert abs(float(total(method(batch)).detach()) - expected) < 1e-8


@pytest.mark.parametrize("setting", ["unsup", "sup", "joint-unsup"])
def test_a_setting_names_its_stages_which_train_the_classifier_but_for_unsup(encoders, setting):
    method = consert(encoders["bert"], setting=setting)
    assert ConSERT.stages_for(method.options) == tuple(setting.split("-"))
    assert (method.classifier is None) == (setting == "unsup")
    assert method.inference().pooler == "last2" and method.dev_inference().pooler == "mean"
    for stage in ConSERT.stages_for(method.options):
        assert MethodPlan(ConSERT, method.options).labelled(stage) == ("none" if stage == "unsup" else "only")
        method.start_stage(stage)
        weights = [weight.requires_grad for weight in method.classifier.parameters()] if method.classifier else []
        assert set(weights) <= {stage != "unsup"}
        assert all(weight.requires_grad for weight in method.backbone.parameters())


def test_a_run_on_the_sentences_of_sts_says_so_wherever_it_is_read(encoders, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = {"backbone.model": str(encoders["bert"]), "training.max_steps": 1,
              "selection.by": "none", "precision": "float32", "backbone.max_length": 12, "training.batch_size": 16}
    summary = stsbench.train("consert", output=tmp_path / "run", settings=values, device="cpu", sample=True)
    assert summary["data"]["unsup"]["file"] == "sts-texts-sample.txt" and summary["data"]["unsup"]["rows"] == 950
    assert summary["data"]["unsup"]["texts_of"][:2] == ["sts12", "sts13"]
    best = tmp_path / "run" / "best"
    encoder = load_encoder(str(best))
    assert any("transductive" in line for line in encoder.notes)
    assert {"sts12", "stsb", "sick-r"} <= set(encoder.traits.trained_on)
    pytest.importorskip("stsbench.extensions.publish")  # which writes the card
    assert "transductive" in (best / "README.md").read_text("utf-8")


def test_as_many_classes_as_the_data_have_labels(folder):
    method = make(SBERT, folder, {"objective": "nli"}, pooler="mean")
    rows = MemoryRows(folder, {"premise": ["cat"], "hypothesis": ["cat"]}, values=[0])
    rows.store = SimpleNamespace(label_names=("contradiction", "entailment"))
    method.prepare_labelled(rows)
    assert method.classifier.linear.weight.shape[0] == 2
    rows.store.label_names = ("entailment",)
    with pytest.raises(StsbenchError, match="1 label"):
        make(SBERT, folder, {"objective": "nli"}, pooler="mean").prepare_labelled(rows)


def test_the_classifier_has_no_part_in_the_second_stage(folder):
    method = make(SBERT, folder, {"objective": "nli-sts"}, pooler="mean")
    method.classifier.set_shape(method.backbone.vector_width, 3)
    for stage in ("nli", "sts"):
        method.start_stage(stage)
        assert {weight.requires_grad for weight in method.classifier.parameters()} == {stage == "nli"}
    assert all(weight.requires_grad for weight in method.backbone.parameters())


def test_a_file_of_ones_own(folder, tmp_path, monkeypatch):
    """A header sentence1, sentence2, score needs no data.columns; scores from 0 to 1 on a scale to 5 are told of."""
    texts, file, said = tiny_models.sentences(20, longest=9, seed=8), tmp_path / "mine.tsv", []
    rows = [f"{texts[i]}\t{texts[10 + i]}\t{i / 10}" for i in range(10)]
    file.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    settings = {"backbone.model": str(folder), "backbone.max_length": 16, "data.file": str(file), "training.max_steps": 1,
                "selection.by": "none"}
    recipe = load_recipe("sbert", "stsb-bert-base", [], settings)
    run(TrainOptions(recipe, tmp_path / "run", device="cpu", sample=True), said.append)
    assert [line for line in said if line.startswith("warning") and "warm-up" not in line] == [
        "warning: mine.tsv: no score is above 0.9, and sbert is told that they go from 0 to 5"]


# Mirror-BERT ---------------------------------------------------------------------------------------------------
OTHERS = ["a man in a park", "the small dog runs with the cat in the park", "big", "food", "red cat means : blue dog"]
MASK = {"bert": "[MASK]", "roberta": "<mask>"}
SPAN = {"span_chars": 3, "min_chars": 6}


def mirrorbert(folder, pooler="mean_padded:12", dropout=0.0, **options):
    return make(MirrorBERT, folder, {**SPAN, **options}, pooler=pooler, dropout=dropout)


def masked(texts, mask, seed=0, size=3, least=6, first=False):
    """The texts of the second view, character by character; the numbers are those that a generator of `seed` draws."""
    result = []
    for text, draw in zip(texts, np.random.default_rng(seed).random(len(texts)), strict=True):
        if len(text) < least or len(text) <= size:
            result.append(text)
            continue
        start = int(np.floor(draw * (len(text) - size)))
        if first:
            span = text[start : start + size]
            start = next(place for place in range(len(text)) if text[place : place + size] == span)
        before = "".join(char for place, char in enumerate(text) if place < start)
        after = "".join(char for place, char in enumerate(text) if place >= start + size)
        result.append(before + " " + mask + " " + after)
    return result


def loss_of(method, rows, second, kept=(None, None)):
    """The loss is NT-Xent of the first texts and `second`, read by the backbone, its heads tested in test_packed.py."""
    first = rows.texts(rows.roles[0])
    batch = batch_of(method, rows, more_padding=2)
    assert [ids[: int(mask.sum())].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)] == [
        list(ids) for texts in (first, second) for ids in method.backbone.tokenise(texts)]
    views = []
    for number, heads in enumerate(kept):
        part = slice(number * len(batch), (number + 1) * len(batch))
        factors = None if heads is None else head_factors(torch.from_numpy(heads), torch.float64)
        views.append(method.backbone.pooled(batch.ids[part], batch.mask[part], heads=factors))
    terms = method(batch)
    assert set(terms) == {"contrastive"} and terms["contrastive"].count == len(TEXTS)
    assert abs(total(terms) - losses.mirrorbert(*views)) < 1e-10
    return total(terms).item()


@pytest.mark.parametrize(("family", "pooler"), [("roberta", "mean_padded:12"), ("bert", "mean")])
def test_the_loss_is_nt_xent_of_the_text_and_its_masked_copy(encoders, family, pooler):
    second = masked(TEXTS, MASK[family])
    assert sum(text != other for text, other in zip(TEXTS, second, strict=True)) == 3  # two are too short
    method = mirrorbert(encoders[family], pooler)
    loss_of(method, rows_of(encoders[family]), second)
    rows = MemoryRows(encoders[family], {"anchor": TEXTS, "positive": OTHERS})
    loss_of(method, rows, masked(OTHERS, MASK[family]))  # of pairs the second text is masked


def test_drophead_replayed_from_its_draws(encoders):
    method, rows = mirrorbert(encoders["roberta"], "cls", drophead=0.4), rows_of(encoders["roberta"])
    second = masked(TEXTS, MASK["roberta"])
    kept = method.views(rows, np.random.default_rng(0)).by_row["kept heads"]
    assert [part.shape for part in kept] == [(5, 2, 4)] * 2 and not (kept[0] == kept[1]).all()
    dropped = loss_of(method, rows, second, kept)
    assert abs(loss_of(method.eval(), rows, second) - dropped) > 1e-6
    draws = [method.views(rows, np.random.default_rng(seed)).by_row["kept heads"] for seed in range(90)]
    assert abs(1 - np.mean(draws) - 0.4) < 0.023  # 7,200 draws: 4 standard errors


def test_the_released_mask_stands_where_the_characters_first_occur():
    text = "bread and butter and bread and jam"
    texts = [text, "a short one", text * 2]
    for seed in range(20):
        released = seed % 2 == 1
        actual = mask_spans(texts, MirrorBERT.Options(first_occurrence=released), "[MASK]", np.random.default_rng(seed))
        assert actual == masked(texts, "[MASK]", seed, size=5, least=30, first=released)


def test_a_literal_mask_is_ordinary_text_for_roberta(encoders):
    token_ids = {}
    for literal in (False, True):
        method = mirrorbert(encoders["roberta"], literal_mask=literal)
        views = method.views(rows_of(encoders["roberta"]), np.random.default_rng(0))
        token_ids[literal] = [list(map(int, row)) for row in views.tokens[1]]
        assert token_ids[literal] == method.backbone.tokenise(masked(TEXTS, "[MASK]" if literal else "<mask>"))
    mask = method.backbone.tokenizer.mask_token_id
    assert any(mask in row for row in token_ids[False]) and not any(mask in row for row in token_ids[True])


def test_the_engine_that_is_recorded_is_the_one_that_computes_and_the_test_s_length_is_its_own(encoders):
    for pooler, engine in (("mean_padded:12", "padded"), ("cls", "packed")):
        assert mirrorbert(encoders["bert"], pooler).backbone.engine_on("cpu") == engine
    method = mirrorbert(encoders["bert"], test_length=20)
    assert (method.inference().pooler, method.dev_inference().pooler) == ("mean_padded:20", "mean_padded:20")
    method.backbone.engine = "packed"
    with pytest.raises(EncoderError, match="use padded"):
        method(batch_of(method, rows_of(encoders["bert"])))
