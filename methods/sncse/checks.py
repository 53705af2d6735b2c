"""Which of SNCSE's options and backbones go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle
from stsbench.training.modules.backbone import Backbone

from .options import SNCSEOptions

_OF_NEGATIONS = ("alpha", "beta", "negation", "negations", "lookup")


def check_options(options: SNCSEOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another or of which one would have no effect."""
    if options.weight == 0:
        refuse_idle(options, _OF_NEGATIONS, "options.weight is 0, so that there are no soft negatives")
    if options.beta < options.alpha:
        raise StsbenchError(
            f"options.beta {options.beta:g} is below options.alpha {options.alpha:g}: the two pull against each other"
        )
    if options.negation == "file" and options.negations is None:
        raise StsbenchError("options.negation file needs options.negations, a file of JSON lines [sentence, negation]")
    if options.negation != "file":
        refuse_idle(options, ("negations",), f"options.negation is {options.negation}, not file")
    if options.full_stop == "none":
        refuse_idle(options, ("lookup",), "no full stop is put behind a sentence before its negation is looked up")
    if options.test_template == options.template:
        raise StsbenchError("options.test_template is options.template, and has no effect: leave it at null")


def check_pooler(backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for another pooler than mask."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"sncse trains the pooler mask, not {backbone.pooler}: set backbone.pooler mask")
