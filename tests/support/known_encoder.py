"""An encoder of which everything is known that can be, and a trait that no code has heard of."""

from dataclasses import dataclass

import numpy as np

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Traits


@dataclass(frozen=True)
class MoreTraits(Traits):
    planted: str = ""


class Known(Encoder):
    """Six numbers a text; behind a prompt it is another one."""

    dimension, engine = 6, "a toy"
    notes = ("a note",)

    def __init__(self, prompt=""):
        self.spec = EncoderSpec(name="known", kind="callable", weights="2" * 64, prefix=prompt or None)
        self.traits = MoreTraits(
            similarity="dot", prompts={"query": "q: "}, default_prompt="d: ", adapters=("a",), default_route="a",
            trained_on=("sts12",), training_overlap=({"set": "sts12"},), libraries=("numpy",), planted="there")

    @property
    def spent(self):
        return {"requests": 1}

    def spent_in_words(self):
        return "one request"

    def for_role(self, role, prompt=None):
        return self if prompt is None and role is None else Known(prompt or f"{role}: ")

    def for_task(self, task):
        return Known(f"{task.name}: ")

    def run(self, texts, progress=None):
        return Encoded(np.random.default_rng(0).normal(size=(len(texts), 6)).astype(np.float32), np.zeros(len(texts), bool))


def check_known(made, base):
    """What is known of `base`, a Known, is known of what is made of it."""
    assert made.traits is made.base.traits and made.traits.planted == "there"
    assert made.prompts == {"query": "q: "} and made.similarity_fn_name == "dot" and made.traits.by_task
    assert made.spent == {"requests": 1} and made.spent_in_words() == "one request" and made.engine == "a toy"
    assert "a note" in made.notes and made.dimension == 6
    assert made.identity.options.items() >= base.identity.options.items()
