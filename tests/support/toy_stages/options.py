"""The toy's choices."""

from stsbench.training.api.options import Options


class ToyOptions(Options):
    """What its weights mean."""

    stages = ("first", "second")
    default_recipe = "toy"

    temperature: float = 0.05
    hidden: int = 16  # of the layer that stage first trains
