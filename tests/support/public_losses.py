"""Which of the public losses are a method's, by its folder's name."""

from __future__ import annotations

from shipped_recipes import METHODS

from stsbench import losses
from stsbench.training.recipes.methods import find_method

FOLDERS = {find_method(name).folder.name: name for name in METHODS}
OF_METHODS = {name: "sbert" if name == "triplet" else name.partition("_")[0] for name in losses.__all__}
OF_METHODS = {name: folder for name, folder in OF_METHODS.items() if folder in FOLDERS and name != "cosent_of_similarities"}
