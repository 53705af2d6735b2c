"""BERT-flow's network, objective and fitting against numpy's, autograd's Jacobian and a transcribed optimiser; and on
models, on whatever device and however torch is set."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from pretend_device import pretend_device
from scipy.special import expit
from scipy.stats import norm
from tiny_models import sentences

from stsbench import fit, load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.errors import StsbenchError
from stsbench.extensions.flow.flow import BertAdam, Flow, count_steps, objective
from stsbench.extensions.flow.glow import Glow, Mixing


def _norm(x, state, name):
    return (x + state[f"{name}.shift"]) * np.exp(3 * state[f"{name}.log_scale"])


def _network(x, state, name, residual):
    first = np.maximum(_norm(state[f"{name}.first.weight"] @ x, state, f"{name}.first_norm"), 0)
    second = _norm(state[f"{name}.second.weight"] @ first, state, f"{name}.second_norm")
    if f"{name}.gate.weight" in state:
        second = np.tanh(second) * expit(_norm(state[f"{name}.gate.weight"] @ first, state, f"{name}.gate_norm"))
    else:
        second = np.maximum(second, 0)
    last = state[f"{name}.last.weight"] @ (second + first if residual else second) + state[f"{name}.last.bias"]
    return last * np.exp(3 * state[f"{name}.log_scale"])


def _rearranged(x, state, name):
    """The channels in their new order, or mixed: x P L U of a learned matrix."""
    if f"{name}.order" in state:
        return x[state[f"{name}.order"]]
    name = f"{name}.mixing"
    diagonal = state[f"{name}.sign"] * np.exp(state[f"{name}.log_scale"])
    lower = np.tril(state[f"{name}.lower"], -1) + np.eye(len(x))
    upper = np.triu(state[f"{name}.upper"], 1) + np.diag(diagonal)
    return x @ np.eye(len(x))[state[f"{name}.order"]] @ lower @ upper


def _coupled(x, state, name, residual):
    """What a coupling scales the second half by, and what it adds before."""
    half = len(x) // 2
    output = _network(x[:half], state, f"{name}.network", residual)
    return (np.ones(half), output) if len(output) == half else (expit(output[1::2] + 2), output[::2])


def mapped(vector, state, levels, depth, residual=False):
    """z of one vector (d,)."""
    given, x = [], np.array(vector, np.float64)
    for level in range(levels):
        for step in range(depth):
            name = f"levels.{level}.{step}"
            x = _rearranged(_norm(x, state, f"{name}.norm"), state, name)
            half, (scale, shift) = len(x) // 2, _coupled(x, state, name, residual)
            x = np.concatenate([x[:half], (x[half:] + shift) * scale])
        if level < levels - 1:
            given.append(x[len(x) // 2 :])
            x = x[: len(x) // 2]
    return np.concatenate([*given, x])


def bits(vector, glow, state, residual=False):
    """-log2 p(x) / d under N(z; 0, I) and the change of variables, whose log-determinant another test checks."""
    log_p = norm.logpdf(mapped(vector, state, 2, 2, residual)).sum()
    return -(log_p + glow.log_determinant(torch.tensor(vector[None]).double()).item()) / (len(vector) * math.log(2))


SMALL = {"levels": 2, "depth": 2, "width": 4, "dropout": False}


class Vectors:
    """A VectorSource over an array (n, d), or (n, 2, d) for pairs."""

    def __init__(self, vectors, name="texts@0"):
        self.vectors, self.name = vectors if vectors.ndim == 3 else vectors[:, None], name
        self.sides = self.vectors.shape[1]

    def __len__(self):
        return len(self.vectors) * self.sides

    def blocks(self):
        for side in range(self.sides):
            yield self.vectors[:, side]

    def shuffled(self, batch_size, rng):
        order = rng.permutation(len(self.vectors))
        for start in range(0, len(order), batch_size):
            yield self.vectors[order[start : start + batch_size]]

    def with_dropout(self, seed):
        noise = np.random.default_rng(seed).normal(size=self.vectors.shape).astype(np.float32)
        return Vectors(self.vectors + noise, self.name)


def crowded(n=256, d=8, sides=1, seed=0):
    """Vectors that are far from a standard normal distribution."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, sides, d)) @ rng.normal(size=(d, d)) * 0.3 + 5
    return (vectors if sides > 1 else vectors[:, 0]).astype(np.float32)


def network(permutation="reverse", residual=False, d=8, levels=2, depth=2, **more):
    """A Glow in float64 none of whose parameters is 0 or 1. Affine couplings are moved less: far off they scale by 1e-60."""
    generator = torch.Generator().manual_seed(3)
    glow = Glow(d, levels, depth, 4, permutation, residual, generator, **more).double()
    with torch.no_grad():
        for parameter in glow.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += (0.1 if "coupling" in more else 0.3) * noise
    return glow, {name: tensor.numpy() for name, tensor in glow.state_dict().items()}


COUPLINGS = [{}, {"coupling": "affine"}, {"activation": "gatu"}, {"coupling": "affine", "activation": "gatu"}]


@pytest.mark.parametrize(("permutation", "residual", "more"), [
    ("reverse", False, {}), ("random", True, COUPLINGS[1]), ("plu", False, COUPLINGS[2]), ("plu", True, COUPLINGS[3])])
def test_the_map_is_that_of_numpy_vector_by_vector(permutation, residual, more):
    glow, state = network(permutation, residual, **more)
    x = torch.from_numpy(crowded(5)).double()
    z = glow(x).detach().numpy()
    for row in range(len(x)):
        assert np.abs(z[row] - mapped(x[row].numpy(), state, 2, 2, residual)).max() < 1e-10
    expected = [bits(row, glow, state, residual) for row in x.numpy()]
    assert np.abs(glow.bits_per_dimension(x).detach().numpy() - expected).max() < 1e-10


@pytest.mark.parametrize(("levels", "depth", "permutation", "more"), [
    (1, 1, "reverse", {}), (2, 3, "plu", COUPLINGS[1]), (3, 2, "reverse", COUPLINGS[3]), (2, 2, "plu", COUPLINGS[2])])
def test_the_log_determinant_is_that_of_autograds_jacobian(levels, depth, permutation, more):
    glow, _ = network(permutation, residual=True, levels=levels, depth=depth, **more)
    for row in torch.from_numpy(crowded(3, seed=levels)).double():
        jacobian = torch.autograd.functional.jacobian(lambda x: glow(x[None])[0], row)
        assert abs(torch.linalg.slogdet(jacobian)[1] - glow.log_determinant(row[None])) < 1e-10


def test_a_learned_matrix_is_a_random_rotation_at_first():
    """As the authors' code makes it: P, L, U and s of a rotation, of which P and the signs stay."""
    mixing = Mixing(6, torch.Generator().manual_seed(1)).double()
    w = mixing(torch.eye(6, dtype=torch.float64)).detach()
    assert (w @ w.T - torch.eye(6)).abs().max() < 1e-6 and abs(mixing.log_determinant()) < 1e-6
    assert (w - torch.eye(6)).abs().max() > 0.1
    permutation, lower, upper = scipy.linalg.lu(w.numpy())
    assert np.abs(permutation[range(6), mixing.order.numpy()] - 1).max() == 0
    assert np.abs(np.tril(lower, -1) - mixing.lower.detach().numpy()).max() < 1e-5
    assert np.abs(np.triu(upper, 1) - mixing.upper.detach().numpy()).max() < 1e-5
    assert {name for name, _ in mixing.named_parameters()} == {"lower", "upper", "log_scale"}


@pytest.mark.parametrize("changed", [{}, {"permutation": "plu"}, {"coupling": "affine"}, {"activation": "gatu"}])
def test_the_first_batch_passes_actnorms_that_it_has_set(changed):
    """It comes out with mean 0 and variance 1; before any training an affine coupling scales its half by sigmoid(2)."""
    more, levels = dict(changed), 1 if changed else 3
    glow = Glow(8, levels, levels, 32, more.pop("permutation", "reverse"), False, torch.Generator().manual_seed(0),
                **more).double()
    batch = torch.from_numpy(crowded(64)).double()
    z, hidden = glow.initialise(batch), glow.levels[0][0].network
    assert torch.equal(glow(batch), z)
    scale = torch.tensor([1.0] * 4 + [torch.sigmoid(torch.tensor(2.0)) if "coupling" in changed else 1.0] * 4)
    if "permutation" not in changed:  # 1e-6 is added to each standard deviation
        assert ((z / scale).var(0, unbiased=False) - 1).abs().max() < 1e-4 and z.mean(0).abs().max() < 1e-10
    if "activation" in changed:
        inner = torch.relu(hidden.first_norm(hidden.first(z[:, :4])))
        assert hidden.gate_norm(hidden.gate(inner)).mean(0).abs().max() < 1e-10
    if not changed:  # the coupling networks' own actnorms, too
        first = glow.levels[0][0]
        assert hidden.first_norm(hidden.first(first.norm(batch)[:, first.order][:, :4])).mean(0).abs().max() < 1e-10


def test_settings_that_came_later_leave_names_and_digests_as_they_were():
    assert Flow().settings().keys().isdisjoint({"coupling", "activation"}) and Flow().settings()["levels"] == 3
    assert Flow({"coupling": "additive"}).settings() == Flow().settings()
    affine = Flow({"coupling": "affine"})
    assert affine.settings()["coupling"] == "affine" and affine.unfitted().settings() == affine.settings()
    assert Chain.parse(Chain([affine]).spelled()).spelled() == Chain([affine]).spelled()


def test_the_objective_adds_up_the_means_of_both_sides():
    glow, state = network()
    pairs = crowded(6, sides=2)
    ours = objective(glow, torch.from_numpy(pairs).double()).item()
    sides = [np.mean([bits(pair[side], glow, state) for pair in pairs]) for side in (0, 1)]
    assert abs(ours - sum(sides)) < 1e-10


def test_five_updates_are_those_of_berts_optimiser():
    glow, _ = network()
    parameters = list(glow.parameters())
    naive = [parameter.detach().numpy().copy() for parameter in parameters]
    first, second = ([np.zeros_like(each) for each in naive] for _ in "12")
    optimiser, batch = BertAdam(parameters, 1e-2), torch.from_numpy(crowded(8, sides=2)).double()
    for step in range(5):
        (objective(glow, batch) * (100 if step < 3 else 0.01)).backward()
        gradients = [parameter.grad.numpy().copy() for parameter in parameters]
        norm = np.sqrt(sum((each**2).sum() for each in gradients))
        assert (norm > 1) == (step < 3)  # clipped, and not
        optimiser.step()
        for i, gradient in enumerate(gradients):
            gradient = gradient * min(1, 1 / norm)
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.999 * second[i] + 0.001 * gradient**2
            naive[i] = naive[i] - 1e-2 * (first[i] / (np.sqrt(second[i]) + 1e-6) + 0.01 * naive[i])
            assert np.abs(parameters[i].detach().numpy() - naive[i]).max() < 1e-12


def test_fitting_brings_the_vectors_nearer_to_a_normal_distribution_in_the_updates_of_its_passes():
    """One pass over STS-B is 269 updates by the authors' code: 8,628 pairs of train, dev and test."""
    assert count_steps(8628, 32, 1) == 269 and count_steps(3, 32, 1) == 1 and count_steps(64, 32, 0.15) == 1
    vectors = crowded(256)
    short, long = (Flow({**SMALL, "epochs": epochs}).fit(Vectors(vectors)) for epochs in (0.1, 10))
    before, after = (np.abs(np.cov(flow.transform(vectors).T) - np.eye(8)).mean() for flow in (short, long))
    assert after < before / 2
    assert "80 updates on texts@0" in long.notes[0]


def test_the_same_seed_gives_the_same_flow_and_its_state_restores_it():
    source = Vectors(crowded(100, sides=2))
    flow, again = Flow(SMALL).fit(source), Flow(SMALL).fit(source)
    stored, vectors = Flow(flow.settings()).restore(flow.state()), crowded(9, seed=5)
    whole, one = flow.transform(vectors), flow.transform(vectors[3:4])
    assert flow.digest() == again.digest() and whole.dtype == np.float32
    assert np.array_equal(stored.transform(vectors), whole)
    assert np.abs(whole[3] - one[0]).max() < 1e-5  # a row depends on itself alone


def test_every_setting_changes_the_vectors():
    source, vectors = Vectors(crowded(40, sides=2)), crowded(9, seed=5)
    plain = Flow(SMALL).fit(source).transform(vectors)
    for changed in (
        {"levels": 1}, {"depth": 1}, {"width": 5}, {"permutation": "random"}, {"permutation": "plu"}, {"residual": True},
        {"coupling": "affine"}, {"activation": "gatu"}, {"learning_rate": 1e-2}, {"epochs": 2.0}, {"batch_size": 16},
        {"dropout": True}, {"seed": 1}):
        assert np.abs(plain - Flow(SMALL | changed).fit(source).transform(vectors)).max() > 1e-5, changed


def test_what_cannot_be_fitted_is_one_line():
    state = Flow(SMALL).fit(Vectors(crowded(99))).state()
    for call, line in (
        (lambda: Flow(SMALL).fit(Vectors(crowded(1))), r"texts@0: a flow needs two texts at least$"),
        (lambda: Flow(SMALL | {"learning_rate": 1e6, "epochs": 9}).fit(Vectors(crowded(99))),
         r"texts@0: the flow's loss is not finite at step \d+: lower learning_rate$"),
        (lambda: Flow(SMALL).transform(crowded(3)), r"flow has not been fitted$"),
        (lambda: Flow(SMALL | {"depth": 3}).restore(state), r"flow: the stored state is of another network")):
        with pytest.raises(StsbenchError, match=line):
            call()


SENTENCES = [*sentences(6, longest=9), "", "a"]
FITTED = sentences(24, seed=1)


def test_it_is_fitted_and_applied_on_a_device(folder, tmp_path):
    """With dropout on the device, whose masks are others: only its shape is compared with a fit on the CPU."""
    out, chain = tmp_path / "out", "flow:levels=1,depth=1,width=4,batch_size=8"
    with pretend_device():
        fit(chain, folder, FITTED, out, pooler="mean", device="pretend:0", no_cache=True)
        vectors = load_encoder(str(out), device="pretend:0").encode(SENTENCES)
    np.testing.assert_allclose(vectors, load_encoder(str(out), device="cpu").encode(SENTENCES), atol=2e-4)


def test_vectors_do_not_depend_on_how_torch_is_set(folder):
    def vectors():
        encoder = load_encoder(folder, pooler="mean")
        chain = Chain.parse("whitening:dimensions=8+flow:levels=1,depth=1,width=4,batch_size=8")
        return PostProcessed(encoder, chain).fit(FITTED, "x@1").encode(SENTENCES)

    plain, before = vectors(), torch.get_rng_state()
    for state in (torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta")):
        with state:
            assert np.array_equal(plain, vectors())
    assert torch.equal(torch.get_rng_state(), before)
