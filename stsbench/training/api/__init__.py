"""The interface for writing a training method: the base class, the types that it takes and returns, and parts of losses.

    from stsbench.training.api import Batch, Method, Options, Term

docs/how-to/adding-a-method.md is a tutorial. Each name is imported on first use, so that Options comes without torch.
"""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:  # editors and mypy cannot follow lazy names
    from stsbench.options import GIVEN as GIVEN
    from stsbench.options import POSITIVE as POSITIVE
    from stsbench.options import Where as Where
    from stsbench.settings import setting as setting
    from stsbench.training.api.batch import *  # noqa: F403
    from stsbench.training.api.contrasting import *  # noqa: F403
    from stsbench.training.api.labelled import *  # noqa: F403
    from stsbench.training.api.method import *  # noqa: F403
    from stsbench.training.api.options import *  # noqa: F403
    from stsbench.training.api.views import *  # noqa: F403
    from stsbench.training.modules.backbone import Backbone as Backbone
    from stsbench.training.modules.edits import IGNORED as IGNORED

NAMES = {  # module -> its public names
    "batch": ("Batch", "Examples", "Gathering", "Ragged", "Shares", "Term", "Views", "gather"),
    "contrasting": ("NegativeQueue", "contrast", "contrast_labelled", "rank_pairs"),
    "labelled": ("LabelScores", "NLIClassifier", "count_classes", "nli_roles", "nli_views", "unordered"),
    "method": ("Inference", "LabelledUse", "Method", "Needs", "RoleChoice", "sentence_role"),
    "options": ("Options", "Queue", "Repetition"),
    "views": ("Repeater", "pairs_or_sentence", "role_views", "scored_pairs"),
    "stsbench.options": ("GIVEN", "POSITIVE", "Where"),
    "stsbench.settings": ("setting",),
    "stsbench.training.modules.backbone": ("Backbone",),
    "stsbench.training.modules.edits": ("IGNORED",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, NAMES)
