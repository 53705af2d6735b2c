"""Which of the public losses are a method's, by its folder's name."""

from __future__ import annotations

from stsbench import losses
from stsbench.registry import names
from stsbench.training.recipes.methods import GROUP, find_method

FOLDERS = {find_method(name).folder.name: name for name in names(GROUP)}
OF_METHODS = {name: "sbert" if name == "triplet" else name.partition("_")[0] for name in losses.__all__}
OF_METHODS = {name: folder for name, folder in OF_METHODS.items() if folder in FOLDERS and name != "cosent_of_similarities"}
