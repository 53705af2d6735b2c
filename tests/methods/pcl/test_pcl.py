"""PCL against a loop of its own: the six terms and their gradients, the peer, and what remains without it."""

import shutil

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make
from pcl_oracle import TERMS, TEXTS, Naive, pcl
from tiny_models import build
from two_processes import check_same_as_one, passes_of_two, shares_of

from stsbench import losses
from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.losses.group import agreement, group_cross_entropy, group_scores
from stsbench.methods.pcl.method import PCL
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.rows.batches import to_batch

N = 5
WARM = {"temperature": 0.3}  # or a softmax of few texts is all but one number
FEW = {"augmentations": ["shuffle", "delete", "repeat"]}
NO_PEER = {"peer": None}
PLAIN = {"peer": None, "group_weight": 0.0, "augmentations": []}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """With a stored pooler: two BERTs of one vocabulary, and a RoBERTa."""
    place = tmp_path_factory.mktemp("pcl")
    made = {name: build(place / name, name) for name in ("bert", "roberta")}
    made["other"] = place / "other"
    shutil.copytree(made["bert"], made["other"])
    from transformers import BertModel

    model = BertModel.from_pretrained(made["other"])
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.9)
    model.save_pretrained(made["other"])
    return made


def rows(folder, start=0):
    return MemoryRows(folder, {"sentence": TEXTS[start : start + N]})


def gradients(method):
    return {name: weight.grad for name, weight in method.named_parameters() if weight.requires_grad}


# The six terms ----------------------------------------------------------------------------------------------------

RELEASED, CLEAN = {"mask": False}, {"mask": True}
CASES = {
    "released": ("bert", {"peer": RELEASED}),
    "released, cold": ("bert", {"peer": RELEASED, "temperature": 0.05}),
    "clean": ("bert", {"peer": CLEAN, "group_positive": "bce", "reduce": "row"}),
    "its own head": ("bert", {"peer": {**CLEAN, "head": "own"}}),
    "no head": ("bert", {"peer": RELEASED, "head": "none", "reduce": "row"}),
    "frozen": ("bert", {"peer": {**RELEASED, "frozen": True}}),
    "frozen, its own head": ("bert", {"peer": {**CLEAN, "frozen": True, "head": "own"}}),
    "frozen, no head": ("bert", {"peer": {**RELEASED, "frozen": True}, "head": "none"}),
    "roberta, frozen": ("roberta", {"peer": {**RELEASED, "frozen": True}, "temperature": 0.05}),
    "no peer": ("bert", {"peer": None, "group_positive": "bce"}),
    "two views": ("bert", {"peer": RELEASED, "augmentations": []}),
    "roberta, released": ("roberta", {"peer": RELEASED}),
    "roberta, clean": ("roberta", {"peer": CLEAN, "group_positive": "bce", "reduce": "row"}),
    "from elsewhere": ("bert", {"peer": {"model": "other", "frozen": True, "mask": True}}),
}


@pytest.mark.parametrize("more_padding", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_a_loop(folders, case, more_padding):
    family, options = CASES[case]
    folder, options = folders[family], {**FEW, **WARM, **options}
    other = (options["peer"] or {}).get("model")
    if other:
        options["peer"] = {**options["peer"], "model": str(folders[other])}
    method = pcl(folder, **options)
    naive = Naive(folder, method, folders.get(other))
    views = method.views(rows(folder), np.random.default_rng(3)).tokens
    batch = batch_of(method, rows(folder), seed=3, more_padding=more_padding)
    assert len({len(ids) for view in views for ids in view}) > 2
    terms = method(batch)
    expected = naive.terms(views, batch.ids.shape[1], method.backbone.tokenizer.pad_token_id)
    assert terms.keys() == expected.keys()
    for name, term in terms.items():
        assert (term.count, term.weight) == (N, 1.0)
        assert term.value.item() == pytest.approx(expected[name].item(), abs=1e-8), name
    sum(term.value for term in terms.values()).backward()
    sum(expected.values()).backward()
    ours, theirs = gradients(method), naive.weights()
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        assert (ours[name] - weight.grad).abs().max() < 1e-8, name


def test_every_weight_weighs_its_term_and_zero_leaves_it_out(folders):
    names = [f"{term}_weight" for term in TERMS]
    weights = dict(zip(names, (2.0, 0.5, 3.0, 0.25, 0.75, 1.5), strict=True))
    method = pcl(folders["bert"], **FEW, **weights)
    terms = method(batch_of(method, rows(folders["bert"])))
    assert {f"{name}_weight": term.weight for name, term in terms.items()} == weights
    for name in names[1:]:
        method = pcl(folders["bert"], **FEW, **{name: 0.0})
        assert {f"{term}_weight" for term in method(batch_of(method, rows(folders["bert"])))} == {*names} - {name}


@pytest.mark.parametrize("augmentations", [[], ["copy"], ["shuffle"] * 8])
def test_a_row_has_a_column_for_each_further_view_and_each_other_text(augmentations):
    views = torch.randn(2 + len(augmentations), N, 4, dtype=torch.float64)
    assert group_scores(views[0], views[1:], views[0]).shape == (N, len(views) + N - 2)


def test_networks_of_one_function_agree(folders):
    method = pcl(folders["bert"], **FEW)
    batch = batch_of(method, rows(folders["bert"]))
    z = list(method.vectors(batch.ids, batch.mask).split(N))
    terms = method._group_terms({"z": z, "q": z}, batch)
    assert terms["cross"].value.item() == terms["symmetric"].value.item() == 0
    assert terms["group"].value.item() == terms["group_peer"].value.item()
    assert agreement(torch.randn(3, 4), torch.randn(3, 4)).item() > 0


def test_the_sum_over_elements_is_the_divergence_divided_by_the_columns():
    one, other = torch.randn(3, 7), torch.randn(3, 7)
    assert agreement(one, other, "row").item() == pytest.approx(7 * agreement(one, other).item())


def test_group_positives_by_hand():
    """p = 1/2, 1/4, 1/4."""
    scores = torch.tensor([[np.log(2.0), 0.0, 0.0]], dtype=torch.float64)
    plain = -(np.log(1 / 2) + np.log(1 / 4) + np.log(3 / 4)) / 3
    squashed = [1 / (1 + np.exp(-p)) for p in (1 / 2, 1 / 4, 1 / 4)]
    twice = -(np.log(squashed[0]) + np.log(squashed[1]) + np.log(1 - squashed[2])) / 3
    assert group_cross_entropy(scores, 2, "bce").item() == pytest.approx(plain, abs=1e-12)
    assert group_cross_entropy(scores, 2).item() == pytest.approx(twice, abs=1e-12)


def test_the_released_group_term_cannot_leave_a_narrow_band():
    """However good or bad the vectors: -log sigmoid(1) = .313 at least for an own view, ln 2 for another text."""
    for scale in (0.0, 1.0, 1e3):
        scores = scale * torch.randn(8, 17, dtype=torch.float64)
        assert 8 / 17 * 0.3132 < group_cross_entropy(scores, 9).item() < (9 * 0.6932 + 8 * 1.3133) / 17


def test_probabilities_next_to_one_are_kept():
    scores = torch.tensor([[0.0, -1.0, 90.0]], dtype=torch.float32, requires_grad=True)
    value = group_cross_entropy(scores, 2, "bce")  # -log(1 - p) of the other text: 90 - log(1 + 1 / e)
    assert value.item() == pytest.approx((90 + 91 + 90 - np.log(1 + np.exp(-1))) / 3, rel=1e-6)
    value.backward()
    assert torch.isfinite(scores.grad).all()
    alone = torch.zeros(1, 1, requires_grad=True)  # one text of two views: certain
    group_cross_entropy(alone, 1, "bce").backward()
    assert alone.grad.item() == 0


def test_products_are_taken_in_float32_under_autocast(folders):
    method = make(PCL, folders["bert"], {**FEW, "peer": CLEAN}).float()
    batch = batch_of(method, rows(folders["bert"]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        terms = method(batch)
    assert all(term.value.dtype == torch.float32 for term in terms.values())
    first = torch.randn(4, 8).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = group_scores(first, [first], first)
    assert torch.equal(low, group_scores(first.float(), [first.float()], first.float()))


# Without the peer, without groups ---------------------------------------------------------------------------------


def test_without_peer_and_groups_it_is_simcse(folders):
    """The two switches of the released code, peer_coop and posi_cst, off: to the last bit, dropout included."""
    one, other = (make(kind, folders["bert"], options, dropout=0.1) for kind, options in ((PCL, PLAIN), (SimCSE, {})))
    assert {name: value.sum().item() for name, value in one.state_dict().items()} == {
        name: value.sum().item() for name, value in other.state_dict().items()}
    for method in (one, other):
        torch.manual_seed(0)
        method(batch_of(method, rows(folders["bert"])))["contrastive"].value.backward()
    pairs = zip(gradients(one).items(), gradients(other).items(), strict=True)
    assert all(first[0] == second[0] and torch.equal(first[1], second[1]) for first, second in pairs)


def test_the_first_two_views_are_the_sentence(folders):
    method = pcl(folders["bert"])
    views = method.views(rows(folders["bert"]), np.random.default_rng(0))
    assert len(views.tokens) == 10 and views.one_length
    plain = [list(ids) for ids in rows(folders["bert"]).ids("sentence")]
    assert [list(ids) for ids in views.tokens[0]] == [list(ids) for ids in views.tokens[1]] == plain
    assert not pcl(folders["bert"], peer=CLEAN).views(rows(folders["bert"]), np.random.default_rng(0)).one_length
    assert not pcl(folders["bert"], **NO_PEER).views(rows(folders["bert"]), np.random.default_rng(0)).one_length


# The peer ---------------------------------------------------------------------------------------------------------


def test_it_starts_as_the_encoder_and_has_the_stored_pooler(folders):
    method = pcl(folders["bert"], peer={"head": "own"})
    for (name, first), (other, second) in zip(method.backbone.named_parameters(), method.peer.backbone.named_parameters(),
                                              strict=True):
        assert name == other and torch.equal(first, second) and first.data_ptr() != second.data_ptr()
    from transformers import AutoModel

    stored = AutoModel.from_pretrained(folders["bert"]).pooler.dense
    assert torch.equal(method.peer.pooler.dense.weight, stored.weight.double()) and method.notes() == []
    assert not torch.equal(method.peer_head.dense.weight, method.head.dense.weight)


def test_a_checkpoint_without_a_pooler_is_told(tmp_path):
    folder = build(tmp_path / "bare", "roberta", pooler=False)
    method = pcl(folder)
    assert method.notes() == ["bare stores no pooler: the peer's starts from random weights"]
    assert float(method.peer.pooler.dense.weight.detach().std()) == pytest.approx(0.3, rel=0.1)
    again = pcl(folder)
    assert torch.equal(method.peer.pooler.dense.weight, again.peer.pooler.dense.weight)


def test_padding_counts_for_the_peer_without_a_mask_and_for_nobody_else(folders):
    for options, same in (({"peer": CLEAN}, True), ({"peer": RELEASED}, False)):
        method = pcl(folders["bert"], **FEW, **options)
        values = [{name: term.value.item() for name, term in method(batch_of(method, rows(folders["bert"]),
                                                                             more_padding=more)).items()} for more in (0, 4)]
        for name in TERMS:
            equal = values[0][name] == pytest.approx(values[1][name], abs=1e-10)
            assert equal == (same or name in ("contrastive", "group")), name


def test_a_frozen_peer_learns_nothing_and_its_dropout_stays_on(folders):
    method = pcl(folders["bert"], dropout=0.2, **FEW, peer={"frozen": True})
    batch = batch_of(method, rows(folders["bert"]))
    terms = method(batch)
    sum(term.value for term in terms.values()).backward()
    assert all(not weight.requires_grad and weight.grad is None for weight in method.peer.parameters())
    first, second, *_ = method.peer(batch.ids, batch.mask).split(N)
    assert not torch.equal(first, second)  # or the peer's two views of a sentence were one
    assert method.head.dense.weight.grad.abs().max() > 0
    told = pcl(folders["bert"], peer={"frozen": True, "head": "own"}).notes()
    assert told == ["options.peer frozen, with a head of its own: the head has random weights and is not trained"]


def test_a_peer_from_elsewhere_is_an_input(folders, tmp_path):
    method = pcl(folders["bert"], peer={"model": str(folders["other"])})
    assert [*method.inputs()] == ["peer"] and pcl(folders["bert"]).inputs() == pcl(folders["bert"], **NO_PEER).inputs() == {}
    assert method.inputs() == pcl(folders["bert"], peer={"model": str(folders["other"]), "frozen": True}).inputs()
    ours, theirs = (next(module.parameters()) for module in (method.backbone, method.peer.backbone))
    assert (theirs - 0.9 * ours).abs().max() < 1e-6


def test_a_peer_of_another_vocabulary_or_width_is_refused(folders, tmp_path):
    wide = tmp_path / "wide"
    shutil.copytree(folders["bert"], wide)
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(wide)
    config.hidden_size = 16
    BertModel(config).save_pretrained(wide)
    for folder, why in ((folders["roberta"], "the vocabulary of bert"), (wide, "the width 32 of bert")):
        with pytest.raises(StsbenchError, match=rf"^options\.peer\.model .* must have {why}") as caught:
            pcl(folders["bert"], peer={"model": str(folder)})
        assert "\n" not in str(caught.value)
    with pytest.raises(StsbenchError, match=r"options\.peer\.model"):
        pcl(folders["bert"], peer={"model": str(tmp_path / "nothing")})


def test_only_the_encoder_is_tested(folders):
    method = pcl(folders["bert"])
    inference = method.inference()
    assert inference.model is method.backbone.model and inference.pooler == "cls" and inference.dense is None
    kept = pcl(folders["bert"], head="mlp").inference()
    assert kept.pooler == "cls+dense" and kept.dense is not None


# Options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), [
    ({**NO_PEER, "cross_weight": 2.0}, "options.cross_weight 2 has no effect without peer; leave it at 1"),
    ({**NO_PEER, "reduce": "row"}, "options.reduce row has no effect without peer"),
    ({"reduce": "row", "cross_weight": 0, "symmetric_weight": 0}, "options.reduce row has no effect without cross_weight"),
    ({"group_positive": "bce", "group_weight": 0, "group_peer_weight": 0}, "options.group_positive bce has no effect with"),
    ({**PLAIN, "augmentations": ["shuffle"]}, "options.augmentations has no effect"),
    ({"contrastive_peer_weight": 0, "group_peer_weight": 0, "cross_weight": 0, "symmetric_weight": 0},
     "options.peer has no effect"),
    ({"head": "none", "peer": {"head": "own"}}, "options.peer.head own has no effect"),
    ({"peer": {"frozen": True}, "group_peer_weight": 0.5}, "options.group_peer_weight 0.5 has no effect without a peer"),
    ({"peer": {"frozen": True}, "cross_weight": 0, "symmetric_weight": 0},
     "options.peer has no effect: cross_weight, symmetric_weight are 0"),
])
def test_options_without_an_effect(options, message):
    with pytest.raises(StsbenchError) as caught:
        validate(PCL.Options, options, "recipe", "options.")
    assert str(caught.value).startswith(f"recipe: {message}") and "\n" not in str(caught.value)


def test_a_head_stands_on_the_first_token_s_vector(folders):
    with pytest.raises(StsbenchError, match=r"^options\.head mlp_train_only stands on the pooler cls, not on mean"):
        pcl(folders["bert"], pooler="mean")
    method = pcl(folders["bert"], pooler="mean", head="none", **FEW)
    assert len(method(batch_of(method, rows(folders["bert"])))) == 6


@pytest.mark.parametrize("change", [{"model": "other"}, {"frozen": True}, {"mask": True}, {"head": "own"}])
def test_every_choice_of_the_peer_shows_in_loss_or_gradients(folders, change):
    if "model" in change:
        change = {"model": str(folders["other"])}
    seen = []
    for peer in ({}, change):
        method = pcl(folders["bert"], **FEW, peer=peer)
        sum(term.value for term in method(batch_of(method, rows(folders["bert"]))).values()).backward()
        seen.append([(name, float(gradient.norm())) for name, gradient in gradients(method).items()])
    assert seen[0] != seen[1]


@pytest.mark.parametrize("clean", [False, True])
def test_the_loss_as_a_function_of_vectors(folders, clean):
    kind = {"group_positive": "bce"} if clean else {}
    for peer, more in (({"mask": clean}, {"reduce": "row"} if clean else {}), (None, {})):
        method = pcl(folders["bert"], **FEW, **kind, **more, peer=peer)
        batch = batch_of(method, rows(folders["bert"]))
        z = method.vectors(batch.ids, batch.mask).split(N)
        q = None if peer is None else method.head(method.peer(batch.ids, batch.mask)).split(N)
        kinds = {"group_positive": "bce", "reduce": "row"} if clean else {}
        value = losses.pcl(z, q, **kinds)
        assert value.item() == pytest.approx(sum(term.value for term in method(batch).values()).item(), abs=1e-12)
    with pytest.raises(ValueError, match="two views or more"):
        losses.pcl(z[:1])
    with pytest.raises(ValueError, match="two views or more"):
        losses.pcl(z, z[:2])
    with pytest.raises(ValueError, match="must be"):
        losses.pcl([z[0], z[1][:2]])


# Several processes ------------------------------------------------------------------------------------------------

CHOSEN = [{**FEW, **WARM}, {**FEW, **WARM, "peer": {"mask": True, "head": "own"}, "group_positive": "bce", "reduce": "row"},
          {**FEW, **WARM, "peer": {"frozen": True}}, {**FEW, **WARM, **NO_PEER}]
SPLITS = [(3, 2), (4, 1)]


def made(folder, options, split=None, rank=0):
    method = pcl(folder, **options)
    views = method.views(rows(folder), np.random.default_rng(0))
    pad = method.backbone.tokenizer.pad_token_id
    return method, to_batch(views, shares_of(N, split, rank), pad, torch.device("cpu"))


@pytest.fixture(scope="module")
def both(folders, tmp_path_factory):
    return passes_of_two(tmp_path_factory.mktemp("shares"), made, folders["bert"], CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folders, both, number):
    check_same_as_one(both, number, *made(folders["bert"], CHOSEN[number]))


def simcse_mode(folder, options, split=None, rank=0):
    method, batch = made(folder, options, split, rank)
    method.gather_mode = "simcse"
    return method, batch


def test_gathered_as_simcse_does_two_processes_have_half_the_gradient(folders, tmp_path):
    computed = passes_of_two(tmp_path, simcse_mode, folders["bert"], CHOSEN[:1], SPLITS[-1:])
    method, batch = made(folders["bert"], CHOSEN[0])
    sum(term.value for term in method(batch).values()).backward()
    for [(means, theirs)] in (ranks.values() for ranks in computed):
        assert means == pytest.approx({name: term.value.item() for name, term in method(batch).items()}, rel=1e-9)
        for name, gradient in gradients(method).items():
            assert (2 * theirs[name] - gradient).abs().max() < 1e-9 * (1 + gradient.abs().max()), name
