"""A user's script, as `make lint` reads it: mypy sees the type of whatever a public function takes and gives. Never run."""

from pathlib import Path
from typing import assert_type

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

import stsbench
from stsbench import leaderboard, losses, methods
from stsbench.comparison.comparison import Comparison
from stsbench.comparison.differences import ComparisonTable
from stsbench.encoders.base import Encoder
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.result import Result
from stsbench.extensions.installation.report import Report
from stsbench.extensions.jobs.plan import Jobs
from stsbench.extensions.jobs.trials import Trials
from stsbench.extensions.stores.neighbours import Neighbours
from stsbench.extensions.stores.vectors import VectorStore
from stsbench.leaderboard.loaded_board import Board
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.runs.trained import Run

encoder = stsbench.load_encoder("minilm", pooler="mean")
assert_type(encoder, Encoder)
assert_type(encoder.encode(["a", "b"], normalize_embeddings=True), NDArray[np.float32])
result = stsbench.evaluate(encoder, protocol="sts:all", tasks=["STS-B"], data_dir="data", output="runs/a", resamples=0)
assert_type(result, Result)
assert_type(result.rows, list[ScoreRow])
assert_type(result.rows[0].low, float | None)
comparison = stsbench.compare("runs/a", result, protocol="sts", resamples=1000)
assert_type(comparison, Comparison)
assert_type(comparison.tables, list[ComparisonTable])
assert_type(result.plot("sts"), Axes)
assert_type(comparison.latex(), str)
assert_type(result.save("kept"), Path)
assert_type(result.to_pandas(), pd.DataFrame)
assert_type(stsbench.score("runs/a"), Result)
assert_type(stsbench.load("runs/a"), Result | Run)
assert_type(stsbench.encode("minilm", ["a", "b"], "vectors"), VectorStore)
assert_type(stsbench.neighbours("minilm", ["a", "b"], "c", top=1), Neighbours)
assert_type(stsbench.fit("whitening", "minilm", ["a", "b"], "fitted"), Encoder)
assert_type(stsbench.doctor(offline=True), Report)
run = stsbench.train(methods.SimCSE(temperature=0.05), backbone="minilm", data=["a", "b"], max_steps=1)
assert_type(run, Run)
assert_type(run.recipe, Recipe)
assert_type(run.to_pandas(), pd.DataFrame)
assert_type(stsbench.load_recipe("simcse/unsup-bert-base").with_settings({"seed": 1}), Recipe)
assert_type(stsbench.sweep("simcse", grid={"training.learning_rate": [1e-5, 1e-4]}), Trials)
assert_type(stsbench.run_plan("plan.yaml", dry_run=True), Jobs)
assert_type(leaderboard.load(), Board)
assert_type(losses.simcse(Tensor(), Tensor(), temperature=0.05), Tensor)
