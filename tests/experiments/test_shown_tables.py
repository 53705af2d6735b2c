"""Tables of what was trained, without a training: their columns for LaTeX, the digits of a score."""


import pytest

from stsbench.display.table import Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.experiments.run import Run


class Scores(Tabular):
    def to_arrow(self):
        return arrow_table([{"task": "STS-B_1"}, {"task": "a", "score": 1.5}])

    def document(self):
        return Document([Table.from_rows("50 % x 100", ["task", "score", "n"], [["STS-B_1", "1.50 ± 0.1", "3"]])])


def test_a_latex_table_has_a_column_each_words_to_the_left_and_numbers_to_the_right():
    assert Scores().latex().splitlines() == [
        r"% \usepackage{booktabs,graphicx}", "", r"\begin{table*}", r"  \centering", r"  \small",
        r"  \resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%", r"  \begin{tabular}{lrr}", r"    \toprule",
        r"    task & score & n \\", r"    \midrule", r"    STS-B\_1 & 1.50 $\pm$ 0.1 & 3 \\", r"    \bottomrule",
        r"  \end{tabular}}", r"  \caption{50 \% $\times$ 100}", r"  \label{tab:scores}", r"\end{table*}",
    ]


def test_a_long_column_name_is_on_several_lines():
    table = Table.from_rows("", ["task", "95 % interval of A - B", "p_1"], [["STS-B", "1 to 2", "0.5"]])
    header = table.latex("x").splitlines()[6]
    assert header.strip() == r"task & \shortstack[r]{95 \% interval \\ of A - B} & p\_1 \\"


@pytest.mark.parametrize(("by", "shown"), [("sts-b dev", "-1.50"), ("held-out loss", "-1.5000")])
def test_a_loss_has_four_digits_and_a_correlation_two(tmp_path, by, shown):
    best = {"name": by, "score": -1.5, "stage": "main", "step": 2}
    run = Run(tmp_path, {"best": best, "before": -1.5, "after": -1.5, "stages": {"main": 4}, "selected_by": by})
    assert run._lines()[1] == [by, shown, shown, "main 2", shown, "main 4"]
