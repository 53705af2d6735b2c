"""The functions that extensions add to `stsbench`, for editors and type checkers. Not imported at run time."""

from stsbench.extensions.fit.fit import fit as fit
from stsbench.extensions.installation.report import doctor as doctor
from stsbench.extensions.jobs.plan import run_plan as run_plan
from stsbench.extensions.jobs.trials import sweep as sweep
from stsbench.extensions.parity.parity import parity as parity
from stsbench.extensions.plots.draw import plot as plot
from stsbench.extensions.prompt_study.prompts import measure_prompts as measure_prompts
from stsbench.extensions.publish.export import export as export
from stsbench.extensions.results.evaluator import Evaluator as Evaluator
from stsbench.extensions.sentence_transformers_loss.loss import (
    as_sentence_transformers_loss as as_sentence_transformers_loss,
)
from stsbench.extensions.smaller_copies.variants import measure_variants as measure_variants
from stsbench.extensions.static.distil import distil_static as distil_static
from stsbench.extensions.statistics.calibrate import calibrate as calibrate
from stsbench.extensions.statistics.choose import choose as choose
from stsbench.extensions.statistics.gate import gate as gate
from stsbench.extensions.statistics.power import power as power
from stsbench.extensions.statistics.seeds_needed import seeds_needed as seeds_needed
from stsbench.extensions.stores.build import encode as encode
from stsbench.extensions.stores.neighbours import neighbours as neighbours
from stsbench.leaderboard.identify.api import identify as identify
from stsbench.leaderboard.reproduce.api import reproduce as reproduce
