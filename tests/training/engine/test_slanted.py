"""The slanted triangle against its equation, with the steps counted and rounded as AllenNLP does."""

import pytest

from stsbench.training.engine.optimiser import learning_rate
from stsbench.training.recipes.sections import TrainingSettings


def settings(**more):
    return TrainingSettings(learning_rate=5e-5, schedule="slanted", **more)


@pytest.mark.parametrize("steps", [1, 7, 10, 99, 1000])
@pytest.mark.parametrize("share", [0, 0.1, 0.25])
def test_the_rate_of_each_step(steps, share):
    """ULMFiT's Eq. 3: cut = floor(T share), p = t / cut, then 1 - (t - cut) / (T - cut); rate (1 + p 31) / 32, t from 1."""
    cut = int(steps * share)
    for step in range(steps):
        t = step + 1
        p = t / cut if t < cut else 1 - (t - cut) / (steps - cut)
        assert learning_rate(step, steps, settings(warmup=share)) == pytest.approx(5e-5 * (1 + p * 31) / 32, rel=1e-12)
    assert learning_rate(steps - 1, steps, settings(warmup=share)) == pytest.approx(5e-5 / 32)


def test_it_is_the_linear_schedule_but_for_the_ends():
    linear = TrainingSettings(learning_rate=5e-5, warmup=0.1)
    apart = [learning_rate(step, 1000, settings(warmup=0.1)) - learning_rate(step, 1000, linear) for step in range(1000)]
    assert 0 < max(map(abs, apart)) < 5e-5 / 24  # 1/32, and a step
    assert learning_rate(99, 1000, settings(warmup=0.1)) == 5e-5 == learning_rate(99, 1000, settings(warmup=100))


def test_settings_of_other_schedules_have_no_effect_on_it():
    with pytest.raises(ValueError, match=r"milestones \[5\] has no effect with schedule slanted: it goes with"):
        settings(milestones=(5,), rates=(1e-5,))
