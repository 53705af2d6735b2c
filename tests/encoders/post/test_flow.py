"""BERT-flow's network, objective and fitting against plain loops, autograd's Jacobian and a transcribed optimiser."""

import numpy as np
import pytest
import torch
from flow_oracle import bits, mapped, unmapped

from stsbench.encoders.post.flow.fitting import BertAdam, objective, steps_of
from stsbench.encoders.post.flow.flow import Flow
from stsbench.encoders.post.flow.glow import Glow
from stsbench.errors import StsbenchError

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


def network(permutation="reverse", residual=False, d=8, levels=2, depth=2):
    """A Glow in float64 none of whose parameters is 0 or 1."""
    generator = torch.Generator().manual_seed(3)
    glow = Glow(d, levels, depth, 4, permutation, residual, generator).double()
    with torch.no_grad():
        for parameter in glow.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return glow, {name: tensor.numpy() for name, tensor in glow.state_dict().items()}


@pytest.mark.parametrize("permutation", ["reverse", "random"])
@pytest.mark.parametrize("residual", [False, True])
def test_the_map_is_that_of_plain_loops_and_can_be_undone(permutation, residual):
    glow, state = network(permutation, residual)
    x = torch.from_numpy(crowded(5)).double()
    z = glow(x).detach().numpy()
    for row in range(len(x)):
        expected, _ = mapped(x[row].numpy(), state, 2, 2, residual)
        assert np.abs(z[row] - expected).max() < 1e-10
        assert np.abs(unmapped(z[row], state, 2, 2, residual) - x[row].numpy()).max() < 1e-10
    expected = [bits(row, state, 2, 2, residual) for row in x.numpy()]
    assert np.abs(glow.bits_per_dimension(x).detach().numpy() - expected).max() < 1e-10


@pytest.mark.parametrize(("levels", "depth"), [(1, 1), (2, 3), (3, 2)])
def test_the_log_determinant_is_that_of_autograds_jacobian(levels, depth):
    glow, _ = network(residual=True, levels=levels, depth=depth)
    for row in torch.from_numpy(crowded(3, seed=levels)).double():
        jacobian = torch.autograd.functional.jacobian(lambda x: glow(x[None])[0], row)
        assert abs(torch.linalg.slogdet(jacobian)[1] - glow.log_determinant()) < 1e-10


def test_the_first_batch_comes_out_with_mean_0_and_variance_1():
    glow = Glow(8, 3, 3, 32, "reverse", False, torch.Generator().manual_seed(0)).double()
    batch = torch.from_numpy(crowded(64)).double()
    z = glow.initialise(batch)
    assert z.mean(0).abs().max() < 1e-10
    assert (z.var(0, unbiased=False) - 1).abs().max() < 1e-4  # 1e-6 is added to each standard deviation
    assert torch.equal(glow(batch), z)
    hidden = glow.levels[0][0].network
    inner = hidden.first_norm(hidden.first(glow.levels[0][0].norm(batch)[:, glow.levels[0][0].order][:, :4]))
    assert inner.mean(0).abs().max() < 1e-10  # the coupling networks' own actnorms, too


def test_the_objective_adds_up_the_means_of_both_sides():
    glow, state = network()
    pairs = crowded(6, sides=2)
    ours = objective(glow, torch.from_numpy(pairs).double()).item()
    sides = [np.mean([bits(pair[side], state, 2, 2) for pair in pairs]) for side in (0, 1)]
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


def test_one_pass_over_sts_b_is_269_updates():
    """The figure of the authors' code: 8,628 pairs of train, dev and test."""
    assert steps_of(8628, 32, 1) == 269 and steps_of(3, 32, 1) == 1 and steps_of(64, 32, 0.15) == 1


def test_fitting_brings_the_vectors_nearer_to_a_normal_distribution():
    vectors = crowded(512)
    short, long = (Flow({**SMALL, "epochs": epochs}).fit(Vectors(vectors)) for epochs in (0.1, 30))
    before, after = (np.mean([bits(row, flow.state(), 2, 2) for row in vectors[:40]]) for flow in (short, long))
    assert after < before - 0.1
    assert "480 updates on texts@0" in long.notes[0]


def test_the_same_seed_gives_the_same_flow_and_its_state_restores_it():
    source = Vectors(crowded(100, sides=2))
    flow, again = Flow(SMALL).fit(source), Flow(SMALL).fit(source)
    assert flow.digest() == again.digest()
    stored = Flow.from_state(flow.settings(), flow.state())
    vectors = crowded(9, seed=5)
    assert np.array_equal(stored.transform(vectors), flow.transform(vectors))
    assert flow.transform(vectors).dtype == np.float32
    whole, one = flow.transform(vectors), flow.transform(vectors[3:4])
    assert np.abs(whole[3] - one[0]).max() < 1e-5  # a row depends on itself alone


@pytest.mark.parametrize("changed", [
    {"levels": 1}, {"depth": 1}, {"width": 5}, {"permutation": "random"}, {"residual": True}, {"learning_rate": 1e-2},
    {"epochs": 2.0}, {"batch_size": 16}, {"dropout": True}, {"seed": 1},
])
def test_every_setting_changes_the_vectors(changed):
    source, vectors = Vectors(crowded(100, sides=2)), crowded(9, seed=5)
    plain, other = (Flow(settings).fit(source).transform(vectors) for settings in (SMALL, SMALL | changed))
    assert np.abs(plain - other).max() > 1e-5


def test_what_cannot_be_fitted_is_one_line():
    with pytest.raises(StsbenchError, match=r"^flow: 3 levels need .* multiple of 8, and these have 12 numbers: set levels"):
        Flow({"dropout": False}).fit(Vectors(crowded(9, 12)))
    with pytest.raises(StsbenchError, match=r"^texts@0: a flow needs two texts at least$"):
        Flow(SMALL).fit(Vectors(crowded(1)))
    with pytest.raises(StsbenchError, match=r"^texts@0: the flow's loss is not finite at step \d+: lower learning_rate$"):
        Flow(SMALL | {"learning_rate": 1e6, "epochs": 9}).fit(Vectors(crowded(99)))
    with pytest.raises(StsbenchError, match=r"^flow has not been fitted$"):
        Flow(SMALL).transform(crowded(3))
    state = Flow(SMALL).fit(Vectors(crowded(99))).state()
    with pytest.raises(StsbenchError, match=r"^flow: the stored state is of another network"):
        Flow.from_state(SMALL | {"depth": 3}, state)
    for setting in ("epochs", "learning_rate"):
        with pytest.raises(StsbenchError, match=rf"^flow: {setting}"):
            Flow({setting: 0})
    with pytest.raises(StsbenchError, match=r"^flow has no setting 'level'; did you mean levels"):
        Flow({"level": 3})
