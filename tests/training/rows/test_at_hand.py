"""All that a training lacks is told at once, of every stage; a file of a data folder is found wherever it is asked for."""

import pytest

from stsbench.errors import StsbenchError
from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.files import SetPlace, check_at_hand


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)


def test_files_of_every_stage_are_asked_for():
    stages = {"nli": "labelled.csv", "sts": "pairs.tsv"}
    sets = [f"labelled.file={stages['nli']}", f"data.file={stages['sts']}", "backbone.model=minilm"]
    recipe = load_recipe("sbert", "nli-stsb-bert-base", sets)
    plan = plan_of(recipe)
    with pytest.raises(StsbenchError, match=r"2 things are missing.*labelled\.csv.*pairs\.tsv.*--sample"):
        check_at_hand(recipe, plan, plan.stages, SetPlace(offline=True))
    for stage, file in stages.items():
        with pytest.raises(StsbenchError, match=f"{file} are not here") as told:
            check_at_hand(recipe, plan, [stage], SetPlace(offline=True))
        assert "things are missing" not in str(told.value)


def test_each_stage_may_have_data_of_its_own():
    sets = ["data.file=one.csv", "stages.joint.data.file=two.csv", "labelled.file=three.csv", "backbone.model=minilm"]
    recipe = load_recipe("diffaug", "bert-base-semi", sets)
    plan = plan_of(recipe)
    with pytest.raises(StsbenchError, match=r"three\.csv.*two\.csv"):
        check_at_hand(recipe, plan, plan.stages, SetPlace(offline=True))
