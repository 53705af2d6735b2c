"""Trainings as functions of Python, and the objects that they give; and what there is to measure, train and read, by name:
`stsbench list` for Python."""

from __future__ import annotations


def list_protocols() -> list[str]:
    """Return what `evaluate` takes as a protocol: names, forms such as sts:mean, and papers.

    >>> import stsbench
    >>> {"sts", "sts:mean", "transfer:fast"} <= set(stsbench.list_protocols())
    True
    """
    from stsbench.evaluation.plan import presets
    from stsbench.evaluation.protocol import kinds

    return [form for name, kind in kinds().items() for form in (name, *(f"{name}:{word}" for word in kind.variants))
            ] + [*presets()]


def list_methods() -> list[str]:
    """Return the methods that `train` takes by name.

    >>> import stsbench
    >>> stsbench.list_methods()[:3]
    ['angle', 'cmlm', 'consert']
    """
    from stsbench.registry import names

    return names("stsbench.methods")


def list_recipes(method: str | None = None) -> list[str]:
    """Return METHOD/NAME of all recipes, or of a method's. Raises StsbenchError for an unknown method.

    >>> import stsbench
    >>> "simcse/unsup-bert-base" in stsbench.list_recipes("simcse")
    True
    """
    from stsbench.training.recipes.methods import canonical
    from stsbench.training.recipes.recipes import recipe_names

    chosen = list_methods() if method is None else [canonical(method)]
    return [f"{holder}/{name}" for holder in chosen for name in recipe_names(holder)]


def list_data() -> list[str]:
    """Return the sets of the catalog that `load_data` reads.

    >>> import stsbench
    >>> "stsb/test" in stsbench.list_data()
    True
    """
    from stsbench.data.sets.catalog import entries

    return list(dict.fromkeys(item.id for item in entries()))
