"""Which of SG-OPT's options go together, and with which model."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle
from stsbench.training.modules.backbone import Backbone

from .options import SGOPTOptions


def check_options(options: SGOPTOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    first, last = options.first_layer, options.last_layer
    if last is not None and last < first:
        raise StsbenchError(f"options.first_layer {first} is above options.last_layer {last}: no layer is left")
    if options.objective != "opt2":
        refuse_idle(options, ("skip_negative",), f"it is of options.objective opt2, not of {options.objective}")


def layers_of(options: SGOPTOptions, backbone: Backbone) -> tuple[int, ...]:
    """The hidden states that give vectors, 0 the embedding output. Raises StsbenchError, one line, for layers that the
    model lacks, and for a pooler whose vectors are not of a hidden state's width."""
    if backbone.vector_width != backbone.width or backbone.pooler == "mask":
        raise StsbenchError(
            "sg-opt compares sentence vectors with hidden states by one projection, and those of the pooler "
            f"{backbone.pooler} do not go with it: set backbone.pooler, e.g. cls"
        )
    depth = int(backbone.model.config.num_hidden_layers)
    last = depth if options.last_layer is None else options.last_layer
    for name, layer in (("first_layer", options.first_layer), ("last_layer", last)):
        if layer > depth:
            raise StsbenchError(f"options.{name} {layer}: the model has {depth} layers: set it to {depth} at most")
    return tuple(range(options.first_layer, last + 1))
