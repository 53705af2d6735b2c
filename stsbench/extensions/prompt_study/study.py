"""The option of `stsbench eval` that asks for a study of prompts, and what it does then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stsbench.evaluation.options import Study
from stsbench.options import option

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder
    from stsbench.extensions.prompt_study.prompts import PromptScores


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """Which prompts are measured (`stsbench.measure_prompts`)."""

    prompt_file: Path | None = option(
        None, "Measure the model with each prompt of a file: one a line (.txt), or lists by task (.yaml, .json).",
        metavar="FILE", renamed={"prompts": "prompt_file"},
    )


def _measure(load: Callable[[], Encoder], *, prompt_file: Path, **how: Any) -> PromptScores:
    from stsbench.extensions.prompt_study.prompts import measure_prompts, read_prompts

    if not prompt_file.is_file():
        raise click.UsageError(f"--prompt-file {prompt_file}: there is no such file")
    prompts = read_prompts(prompt_file)
    return measure_prompts(load(), prompts, **how)


STUDY = Study(options=PromptOptions, asked_by=("prompt_file",), subject="prompts of a file", suffix="prompts",
              files="prompts.csv and prompts.png", measure=_measure)
