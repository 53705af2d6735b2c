"""Tables of what was trained, without a training: their columns for LaTeX, the digits of a score."""

import pytest

from stsbench.experiments.run import Run
from stsbench.experiments.table import Tabled


class Scores(Tabled):
    rows = ()

    def _lines(self):
        return [["task", "score", "n"], ["STS-B_1", "1.50 ± 0.1", "3"]]


def test_a_latex_table_has_a_column_each_words_to_the_left_and_numbers_to_the_right():
    assert Scores().latex().splitlines() == [
        r"\begin{tabular}{lrr}", r"\toprule", r"task & score & n \\", r"\midrule", r"STS-B\_1 & 1.50 $\pm$ 0.1 & 3 \\",
        r"\bottomrule", r"\end{tabular}",
    ]


@pytest.mark.parametrize(("by", "shown"), [("sts-b dev", "-1.50"), ("held-out loss", "-1.5000")])
def test_a_loss_has_four_digits_and_a_correlation_two(tmp_path, by, shown):
    best = {"name": by, "score": -1.5, "stage": "main", "step": 2}
    run = Run(tmp_path, {"best": best, "before": -1.5, "after": -1.5, "stages": {"main": 4}, "selected_by": by})
    assert run._lines()[1] == [by, shown, shown, "main 2", shown, "main 4"]
