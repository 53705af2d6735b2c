"""Many records are scored by several processes, with the numbers and the errors of one."""

import pytest
from run_edits import edit

from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation import rescore
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.run_file import RUN


def test_several_processes_score_as_one_does(tmp_path, monkeypatch):
    evaluate("lexical:token-set", output=tmp_path / "run", sample=True, tasks=["STS12", "STS-B"], resamples=50)
    one = rescore.score_again(tmp_path / "run")
    monkeypatch.setattr(rescore, "_MANY", 1)
    several = rescore.score_again(tmp_path / "run")
    assert several.rows == one.rows and [record.data.id for record in several.records] == ["sts12/test", "stsb/test"]
    whole = (tmp_path / "run" / RUN).read_bytes()
    edit(tmp_path / "run", lambda row: row.observed.arrays["similarity"].sort())
    with pytest.raises(StsbenchError, match="are not what the record names"):
        rescore.score_again(tmp_path / "run")
    (tmp_path / "run" / RUN).write_bytes(whole)
    no_score = {"sts12/test": ScoreError("no score")}
    monkeypatch.setattr(rescore, "_rescored", lambda path, record: no_score.get(record.data.id, one.rows))
    monkeypatch.setattr(rescore, "_MANY", 10)  # a process would not see the patch
    assert list(rescore.score_again(tmp_path / "run").failures.values()) == ["no score"]
