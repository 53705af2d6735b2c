"""What a method's author imports: the class to derive from, what it is handed and gives back, and parts of losses.

    from stsbench.training.api import Batch, Method, Options, Term

docs/how-to/adding-a-method.md shows the way. The names load on first use: Options comes without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stsbench.options import GIVEN, POSITIVE, Where
    from stsbench.settings import setting
    from stsbench.training.api.batch import IGNORED, Batch, Examples, Gathering, Ragged, Shares, Term, Views, gather
    from stsbench.training.api.contrasting import NegativeQueue, contrast, contrast_labelled, rank_pairs
    from stsbench.training.api.labelled import LabelScores, NLIClassifier, count_classes, nli_roles, nli_views, unordered
    from stsbench.training.api.method import Inference, LabelledUse, Method, Needs, RoleChoice, sentence_role
    from stsbench.training.api.options import Options, Queue, Repetition
    from stsbench.training.api.views import Repeater, pairs_or_sentence, role_views, scored_pairs
    from stsbench.training.modules.backbone import Backbone

_PUBLIC = {
    "batch": "IGNORED Batch Examples Gathering Ragged Shares Term Views gather",
    "contrasting": "NegativeQueue contrast contrast_labelled rank_pairs",
    "labelled": "LabelScores NLIClassifier count_classes nli_roles nli_views unordered",
    "method": "Inference LabelledUse Method Needs RoleChoice sentence_role",
    "options": "Options Queue Repetition",
    "views": "Repeater pairs_or_sentence role_views scored_pairs",
}
_MODULES = {name: f"stsbench.training.api.{module}" for module, names in _PUBLIC.items() for name in names.split()}
_MODULES |= {"Backbone": "stsbench.training.modules.backbone", "setting": "stsbench.settings",
             **dict.fromkeys(("GIVEN", "POSITIVE", "Where"), "stsbench.options")}
__all__ = [
    "GIVEN",
    "IGNORED",
    "POSITIVE",
    "Backbone",
    "Batch",
    "Examples",
    "Gathering",
    "Inference",
    "LabelScores",
    "LabelledUse",
    "Method",
    "NLIClassifier",
    "Needs",
    "NegativeQueue",
    "Options",
    "Queue",
    "Ragged",
    "Repeater",
    "Repetition",
    "RoleChoice",
    "Shares",
    "Term",
    "Views",
    "Where",
    "contrast",
    "contrast_labelled",
    "count_classes",
    "gather",
    "nli_roles",
    "nli_views",
    "pairs_or_sentence",
    "rank_pairs",
    "role_views",
    "scored_pairs",
    "sentence_role",
    "setting",
    "unordered",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'stsbench.training.api' has no attribute '{name}'")
