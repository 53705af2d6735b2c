"""InfoCSE against a loop of its own: loss and gradients, what the reconstruction reaches, and what it is without it."""

import numpy as np
import promptbert_oracle
import pytest
import torch
from infocse_oracle import SMALL, TEXTS, Naive, infocse, unpadded
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from tiny_models import build

from stsbench import losses
from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.infocse.method import InfoCSE
from stsbench.training.modules.backbone import load_backbone

N = 5
WITHOUT = {"mlm_weight": 0.0, "temperature": 1.0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """family -> folder of a masked LM of two layers or more."""
    place = tmp_path_factory.mktemp("infocse")
    return {family: promptbert_oracle.build(place / family, family) for family in ("bert", "roberta")}


@pytest.fixture(scope="module")
def folder(folders):
    return folders["bert"]


def rows(folder, count=N):
    return MemoryRows(folder, {"sentence": TEXTS[:count]})


def gradients(method):
    return {name: weight.grad for name, weight in method.named_parameters() if weight.requires_grad}


# The objective -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("options", [
    {}, {"projector": "tanh", "temperature": 0.3}, {"frozen_layers": 2, "head_layers": 1, "mlm_weight": 2.0},
    {"mlm_probability": 0.9, "frozen_mode": "train"},
])
def test_loss_and_gradients_are_those_of_a_loop(folders, family, options):
    """To 1e-8, with padding that no row needs."""
    folder = folders[family]
    method = infocse(folder, **options)
    batch, (plain, masked, labels) = unpadded(method, rows(folder), more_padding=3)
    naive = Naive(folder, method)
    contrastive, mlm = naive.terms(plain[:N], plain[N:], masked, labels)
    terms = method(batch)
    assert {name: (term.count, term.weight) for name, term in terms.items()} == {
        "contrastive": (N, 1.0), "mlm": (int((batch.extra["mlm_labels"] != -100).sum()), method.options.mlm_weight)}
    assert method.counts(batch) == {"mlm": terms["mlm"].count}
    assert terms["contrastive"].value.item() == pytest.approx(contrastive.item(), abs=1e-8) and contrastive > 0.1
    assert terms["mlm"].value.item() == pytest.approx(mlm.item(), abs=1e-8)
    total(terms).backward()
    (contrastive + method.options.mlm_weight * mlm).backward()
    theirs, ours = naive.weights(), gradients(method)
    assert theirs.keys() == ours.keys()
    for name, weight in theirs.items():
        assert (ours[name] - (0 if weight.grad is None else weight.grad)).abs().max() < 1e-8, name


def test_the_first_state_of_the_frozen_layers_is_not_read_and_the_vector_is(folder):
    method = infocse(folder)
    batch = batch_of(method, rows(folder))
    parts = batch.extra["mlm_ids"], batch.mask, batch.extra["mlm_labels"]
    first = torch.randn(2 * N, method.backbone.width, dtype=torch.float64, requires_grad=True)
    before = method.auxiliary(*parts, first).value
    changed = method.auxiliary(*parts, first + 1).value
    states, read = method.auxiliary.frozen.states, []

    def other(ids, mask, wanted):
        (found,) = states(ids, mask, wanted)
        read.append(found.requires_grad)
        return [torch.cat([found[:, :1] + 5, found[:, 1:]], 1)]

    method.auxiliary.frozen.states = other
    assert method.auxiliary(*parts, first).value.item() == before.item() and read == [False]
    assert abs(changed.item() - before.item()) > 1e-6
    before.backward()
    with_tokens = (batch.extra["mlm_labels"] != -100).any(1)
    assert ((first.grad != 0).any(1) == with_tokens).all() and with_tokens.sum() > N


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_encoder_has_a_gradient_of_the_reconstruction_by_its_first_state_alone(folders, family):
    """d L_mlm / d h is 0 at every position but the first, and the frozen layers have none."""
    method = infocse(folders[family])
    batch, kept = batch_of(method, rows(folders[family])), []

    def pooled(ids, mask):
        states = method.backbone(ids, mask)[0]
        states.retain_grad()
        kept.append(states)
        return states[:, 0]

    method.backbone.pooled = pooled
    method(batch)["mlm"].value.backward()
    gradient = kept[0].grad
    assert gradient[:, 0].abs().max() > 0 and not gradient[:, 1:].any()
    frozen = dict(method.auxiliary.frozen.named_parameters())
    assert frozen and not any(weight.requires_grad or weight.grad is not None for weight in frozen.values())
    assert all(weight.grad is None for name, weight in method.named_parameters() if name.startswith("projector."))


def test_the_vectors_see_the_sentence_without_masks(folder):
    method = infocse(folder)
    one, other = (batch_of(method, rows(folder), seed=seed) for seed in (0, 1))
    assert torch.equal(one.ids, other.ids) and not torch.equal(one.extra["mlm_ids"], other.extra["mlm_ids"])
    assert method(one)["contrastive"].value.item() == method(other)["contrastive"].value.item()
    assert abs(method(one)["mlm"].value.item() - method(other)["mlm"].value.item()) > 1e-6
    first, second = one.extra["mlm_labels"].split(N)
    assert not torch.equal(first, second), "each view has masks of its own"


def test_masks_are_drawn_as_berts_over_many_tokens(folder):
    method = infocse(folder, mlm_probability=0.4)
    special, mask_id = method.backbone.tokenizer.all_special_ids, method.backbone.tokenizer.mask_token_id
    chosen = masked = kept = count = 0
    for seed in range(300):
        views = method.views(rows(folder), np.random.default_rng(seed))
        plain, copies, labels = (np.concatenate([row for view in part for row in view]) for part in (
            views.tokens, views.extra["mlm_ids"], views.extra["mlm_labels"]))
        wanted = labels != -100
        assert (labels[wanted] == plain[wanted]).all() and (copies[~wanted] == plain[~wanted]).all()
        assert not np.isin(plain[wanted], special).any()
        count += int((~np.isin(plain, special)).sum())
        chosen += int(wanted.sum())
        masked += int((copies[wanted] == mask_id).sum())
        kept += int((copies[wanted] == plain[wanted]).sum())
    assert chosen / count == pytest.approx(0.4, abs=0.01)
    assert masked / chosen == pytest.approx(0.8, abs=0.02) and 0.08 < kept / chosen < 0.16


# The parts ---------------------------------------------------------------------------------------------------------


def test_the_frozen_layers_are_the_checkpoints_first_and_drop_by_frozen_mode(folder):
    for mode in ("eval", "train"):
        method = infocse(folder, dropout=0.4, frozen_mode=mode)
        frozen, batch = method.auxiliary.frozen, batch_of(method, rows(folder))
        states = [frozen.states(batch.extra["mlm_ids"], batch.mask, (-1,))[0] for _ in range(2)]
        assert torch.equal(*states) == (mode == "eval")
        method.eval()
        alone = method.backbone(batch.extra["mlm_ids"], batch.mask, (0, 1))[1].detach()
        (state,) = frozen.states(batch.extra["mlm_ids"], batch.mask, (-1,))
        real = batch.mask.bool()
        assert (state - alone)[real].abs().max() < 1e-12
        names = {name for name, _ in frozen.named_parameters()}
        assert any("layer.0" in name for name in names) and not any("layer.1" in name for name in names)
        assert int(method.backbone.model.config.num_hidden_layers) == 2


def test_the_head_starts_at_random_with_the_encoders_dropout_and_the_lm_head_as_a_copy(folder):
    method = infocse(folder, dropout=0.4, head_layers=3)
    auxiliary, encoder = method.auxiliary, method.backbone.model
    rates = {part.p for part in auxiliary.head.modules() if isinstance(part, torch.nn.Dropout)}
    assert len(auxiliary.head) == 3 and rates == {0.4}
    for name, weight in auxiliary.head.named_parameters():
        if weight.ndim == 2:
            assert weight.std().item() == pytest.approx(encoder.config.initializer_range, rel=0.15)
        else:
            assert (weight == float(name.endswith("LayerNorm.weight"))).all(), name
    decoder, words = auxiliary.lm_head.decoder.weight, encoder.get_input_embeddings().weight
    assert torch.equal(decoder, words) and decoder is not words and decoder.requires_grad
    assert auxiliary.lm_head.stored and method.notes() == []


def test_a_head_that_the_checkpoint_lacks_is_said_to_be_new(tmp_path):
    method = infocse(build(tmp_path / "tiny", pooler=False))
    assert "stores no masked-LM head" in method.notes()[0]
    assert method.auxiliary.lm_head.decoder.weight is not method.backbone.model.get_input_embeddings().weight


def test_the_mask_of_the_other_attention_of_transformers_is_the_same(folder):
    method = infocse(folder)
    batch = batch_of(method, rows(folder), more_padding=2)
    value = method(batch)["mlm"].value.item()
    parts = (part for part in method.auxiliary.modules() if hasattr(part, "config"))
    configs = {id(part.config): part.config for part in parts}.values()
    assert {config._attn_implementation for config in configs} == {"sdpa"}
    for config in configs:
        config._attn_implementation = "eager"
    assert method(batch)["mlm"].value.item() == pytest.approx(value, abs=1e-12)


def test_what_is_exported_is_the_encoder(folder):
    inference = infocse(folder).inference()
    assert (inference.pooler, inference.dense, inference.masked_lm, inference.token_pooler) == ("cls", None, None, None)


def test_the_share_of_tokens_guessed_is_logged_once(folder):
    method = infocse(folder)
    batch = batch_of(method, rows(folder))
    method(batch)
    assert 0 <= method.metrics()["masked_accuracy"] <= 1 and method.metrics() == {}
    assert make(InfoCSE, folder, WITHOUT).metrics() == {}


# Without the reconstruction ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("projector", ["batchnorm", "tanh"])
def test_weight_0_is_simcse_with_that_head_to_the_last_bit(folder, projector):
    """DiffCSE without its detector is SimCSE behind the same projector: value and gradients, with dropout."""
    values, grads = [], []
    for kind, options in ((InfoCSE, WITHOUT), (DiffCSE, {"rtd_weight": 0.0, "temperature": 1.0})):
        method = make(kind, folder, {**options, "projector": projector}, dropout=0.3)
        assert method.views(rows(folder), np.random.default_rng(0)).extra == {}
        batch = batch_of(method, rows(folder))
        torch.manual_seed(7)
        terms = method(batch)
        assert {*terms} == {"contrastive"} and method.counts(batch) == {}
        terms["contrastive"].value.backward()
        values.append(terms["contrastive"].value.item())
        grads.append({name: weight.grad for name, weight in method.named_parameters()})
    assert values[0] == values[1] and grads[0].keys() == grads[1].keys()
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[0])


def test_the_contrastive_term_is_the_same_with_and_without_it(folder):
    values = []
    for options in (SMALL, WITHOUT):
        method = make(InfoCSE, folder, options, dropout=0.3)
        batch = batch_of(method, rows(folder))
        torch.manual_seed(7)
        values.append(method(batch)["contrastive"].value.item())
    assert values[0] == values[1]


def test_the_first_term_as_a_function_of_vectors(folder):
    method = infocse(folder)
    batch = batch_of(method, rows(folder))
    value = losses.infocse(*method.view_vectors(batch), temperature=1.0)
    assert value.item() == pytest.approx(method(batch)["contrastive"].value.item(), abs=1e-12)
    with pytest.raises(ValueError, match="anchors"):
        losses.infocse(torch.ones(3, 2), torch.ones(2, 2))


@pytest.mark.parametrize(("options", "message"), [
    ({"mlm_weight": 0, "mlm_probability": 0.3}, "options.mlm_probability 0.3 has no effect with mlm_weight 0: .* at 0.4"),
    ({"mlm_weight": 0, "frozen_layers": 1}, "options.frozen_layers 1 has no effect"),
    ({"mlm_weight": 0, "frozen_mode": "train"}, "options.frozen_mode train has no effect"),
    ({"mlm_weight": 0, "head_layers": 1}, "options.head_layers 1 has no effect"),
    ({"mlm_weight": 0, "head_init": "condenser"}, "options.head_init condenser has no effect"),
])
def test_options_without_an_effect(options, message):
    with pytest.raises(StsbenchError, match=message) as caught:
        validate(InfoCSE.Options, options, "recipe", "options.")
    assert "\n" not in str(caught.value)


def test_backbones_that_it_cannot_be_built_on(folder, tmp_path):
    for kwargs, message in (
        ({"frozen_layers": 3}, r"^options\.frozen_layers 3 is more than the 2 layers of bert: --set .*=2$"),
        ({"pooler": "mean"}, r"^infocse trains the pooler cls, not mean: set backbone\.pooler cls$"),
    ):
        with pytest.raises(StsbenchError, match=message):
            infocse(folder, **kwargs)
    distil = build(tmp_path / "distil", "distilbert")
    backbone = load_backbone(distil, "distil", "cls", LIMIT, 0.0)
    backbone.folder, backbone.name = distil, "distil"
    with pytest.raises(StsbenchError, match=r"of BERT's or RoBERTa's kind, and distil is a DistilBertModel"):
        InfoCSE(backbone, InfoCSE.Options(frozen_layers=1))
    InfoCSE(backbone, InfoCSE.Options(mlm_weight=0))


def test_a_batch_without_a_masked_token_has_a_loss_of_0_and_a_gradient(folder):
    method = infocse(folder, mlm_probability=1e-9)
    terms = method(batch_of(method, rows(folder)))
    assert (terms["mlm"].value.item(), terms["mlm"].count) == (0, 0)
    total(terms).backward()
    assert all(weight.grad is not None for weight in method.parameters() if weight.requires_grad)


def test_in_bfloat16_the_terms_stay_near_those_in_float32(folder):
    method = infocse(folder).float()
    batch = batch_of(method, rows(folder))
    plain = {name: term.value.item() for name, term in method(batch).items()}
    with torch.autocast("cpu", torch.bfloat16):
        terms = method(batch)
    assert {name: term.value.dtype for name, term in terms.items()} == dict.fromkeys(plain, torch.float32)
    assert {name: term.value.item() for name, term in terms.items()} == pytest.approx(plain, rel=0.1)
