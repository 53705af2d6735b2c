"""The option of `stsbench eval` that also measures the encoder's cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.errors import StsbenchError
from stsbench.options import OptionGroup, option

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder


@dataclass(frozen=True, kw_only=True)
class CostOptions(OptionGroup):
    """The option --cost; the methods override those of the core's RecordOptions."""

    cost: bool = option(
        False, "Measure and record what the encoder costs, too: speed, memory, parameters, bytes a vector. It loads a model "
        "whose vectors are all cached, and takes some two seconds on a machine that should have nothing else to do.",
        advanced=True,
    )

    def on_loaded(self, encoder: Encoder, began: float) -> float | None:
        """Return seconds from `began` to the first vector; None without --cost, or where the encoder fails."""
        from stsbench.extensions.cost.measure import first_vector

        with suppress(StsbenchError):  # `facts` reports the error
            return first_vector(encoder, began) if self.cost else None
        return None

    def facts(self, encoder: Encoder, loaded: float | None, log: Callable[[str], None]) -> Mapping[str, Any]:
        """Return the cost for a record; {} where it cannot be measured, which is logged and does not affect the scores."""
        from stsbench.extensions.cost.measure import in_words, measure_cost

        if not self.cost:
            return {}
        try:
            cost = measure_cost(encoder, loaded)
        except StsbenchError as error:
            log(f"warning: its cost is not recorded: {error}")
            return {}
        if cost is None:
            log(f"no cost of {encoder.spec.name}: its vectors are looked up")
            return {}
        log(in_words(cost))
        if cost.busy:
            log("warning: other work had the processors while the speed was measured: measure it again where there is none")
        return {"cost": cost.model_dump(exclude_none=True)}
