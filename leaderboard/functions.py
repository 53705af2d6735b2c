"""Functions that extensions add to `stsbench.leaderboard`, for editors and type checkers: never imported at run time."""

from stsbench.leaderboard.findings.plane import plot as plot
from stsbench.leaderboard.imports.api import import_mteb as import_mteb
from stsbench.leaderboard.local_page.server import serve as serve
from stsbench.leaderboard.own.models import measure_models as measure_models
from stsbench.leaderboard.prompts.study import prompt_sensitivity as prompt_sensitivity
from stsbench.leaderboard.reproduce.api import papers as papers
from stsbench.leaderboard.submissions.api import placement as placement
from stsbench.leaderboard.submissions.api import submit as submit
