"""What the command line prints as a warning reaches a user of Python, once each; altered data are marked in the tables."""

import shutil
import warnings

import numpy as np
from clirun import SAMPLE, STSB

from stsbench import evaluate
from stsbench.errors import StsbenchWarning


def letters(texts):
    return np.array([[text.count(chr(97 + i)) + i / 9 for i in range(26)] for text in texts])


def constant(texts):
    return np.ones((len(texts), 3))


def heard(model, output, **asked):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate(model, output=output, no_cache=True, resamples=0, **asked)
    assert all(issubclass(each.category, UserWarning) for each in caught)
    lines = [str(each.message) for each in caught if each.category is StsbenchWarning]
    assert len(lines) == len(set(lines))
    return [line for line in lines if "cannot enter the public leaderboard" not in line]


def test_failed_tasks_and_unidentified_functions(tmp_path):
    assert heard(letters, tmp_path / "good", sample=True, tasks=["STS12"]) == []
    lines = heard(constant, tmp_path / "bad", sample=True, tasks=["STS12", "STS13"], fingerprint="1")
    assert [line.split(":")[0] for line in lines] == ["failed", "failed"] and "STS12" in lines[0] and "STS13" in lines[1]
    assert "has no identity" in heard(constant, tmp_path / "none", sample=True, tasks=["STS12"])[0]


def test_altered_data(tmp_path):
    shutil.copytree(SAMPLE, tmp_path / "data")
    lines = heard(letters, tmp_path / "run", data_dir=tmp_path / "data", tasks=["STS-B", "STS12"])
    assert any(f"{tmp_path / 'data' / STSB} differs from the file known" in line for line in lines)


def test_a_loop_over_models_is_told_of_each_in_the_command_lines_words(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # Python's own: once for each line and text
        for name in "ab":
            asked = {"sample": True, "tasks": ["STS-B"], "fingerprint": name, "resamples": 0, "no_cache": True}
            result = evaluate(constant, output=tmp_path / name, protocols="sts,transfer", **asked)
    lines = [str(each.message) for each in caught if "failed" in str(each.message)]
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].count("STS-B") == 1
    assert {each.filename for each in caught} == {__file__}
    assert "left out: transfer: it has none of the tasks STS-B" in str(result)
