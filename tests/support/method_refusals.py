"""What the rows of tests/refusals/methods-*.yaml call: a method's options, the roles it chooses, a method on a model."""

from pathlib import Path

import torch
from method_oracle import make

from stsbench.config import validate
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.methods import load_method, options_class


def options(method, **values):
    return validate(options_class(method), values, "recipe", "options.")


def roles(method, *columns, **values):
    """The roles of the data's columns that a method uses."""
    return MethodPlan(load_method(method), options(method, **values)).roles(columns)


def build(method, pooler="cls", folder="lm", without_mask=False, **values):
    if without_mask:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.mask_token = None
        tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    return make(load_method(method), Path(folder).resolve(), values, pooler=pooler)
