"""What a recipe's precision becomes where the device does not have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stsbench.training.recipes.recipe import Recipe

Load = Callable[[Mapping[str, Any]], Recipe]  # by these overrides: `load_recipe` of the rest


def lacks_fp16(device: str | None) -> bool:
    """Whether fp16 cannot be trained in here: it takes a CUDA device. device: as --device, None for the best there is."""
    import torch

    return device == "cpu" or not torch.cuda.is_available()


def load_for_device(load: Load, overrides: Mapping[str, Any], device: str | None, log: Callable[[str], None]) -> Recipe:
    """The recipe, in float32 where it says fp16 and there is no CUDA device: one line of `log` says so, and the recipe is
    another one from then on (`load_recipe`), in its name, its note and all records of the run.

    A precision among the `overrides` is what the user wants, and stays.
    """
    recipe = load(overrides)
    if recipe.precision != "fp16" or "precision" in overrides or not lacks_fp16(device):
        return recipe
    log("the recipe says fp16, which needs a CUDA device: float32 here (--dtype bf16 where the processor has it)")
    return load({**overrides, "precision": "float32"})
