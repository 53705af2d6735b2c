"""`--post` and `--fit-on`: what a set's own texts are, what records say, and where nothing is guessed."""

from dataclasses import replace

import numpy as np
import pytest
from clirun import SAMPLE
from post_sources import plain_whitening
from toy_encoder import Toy

from stsbench.data.fetch.sources import load_data
from stsbench.encoders.base import Encoded
from stsbench.encoders.fitted import fitted_sets, is_transductive
from stsbench.encoders.post.encoder import siblings, target_texts
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate as run
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.run_file import read_observations
from stsbench.metrics.similarity import paired_similarity

SPLITS = {"STS-B": "stsb/train+stsb/dev+stsb/test", "SICK-R": "sick-r/train+sick-r/trial+sick-r/test",
          "STS12": "sts12/test", "SICK-R-MTEB": "sick-r/mteb"}


class Wide(Toy):
    """Eight numbers a text, a function of it alone."""

    dimension = 8

    def run(self, texts, progress=None):
        self.calls.append(list(texts))
        rows = [np.random.default_rng(list(text.encode())).normal(size=8) + 2 for text in texts]
        return Encoded(np.array(rows, np.float32).reshape(-1, 8), np.zeros(len(texts), bool))


def sample(id):
    return load_data(id, sample=True)


def measured(folder, model=None, **options):
    given = {"sample": True, "resamples": 0, "no_cache": True, "post": "whitening:dimensions=4", "fit_on": "target"}
    return run(model or Wide(), output=folder, **given | options)


def test_target_is_every_split_both_sides_and_duplicates():
    train, dev, test = (sample(f"stsb/{split}") for split in ("train", "dev", "test"))
    texts = target_texts(test, sample)
    assert texts.columns[0] == [*train.first, *dev.first, *test.first] and texts.sides == 2
    assert texts.columns[1] == [*train.second, *dev.second, *test.second]
    assert texts.name.startswith("stsb/train+stsb/dev+stsb/test@")
    assert target_texts(dev, sample).name == texts.name  # one data set, one map
    year = sample("sts12/test")
    assert target_texts(year, sample).name == f"sts12/test@{year.digest}"
    assert list(target_texts(year, sample)) == [*year.first, *year.second]
    twice = replace(year, first=year.first[:1] * len(year))
    assert list(target_texts(twice, sample))[: len(year)] == [year.first[0]] * len(year)  # each counts


@pytest.mark.parametrize(
    ("id", "version", "count"),
    [("stsb/test", "senteval", 3), ("stsb/test", "raw", 1), ("sick-r/trial", "senteval", 3), ("sick-r/mteb", "senteval", 1),
     ("stsb/splits", "senteval", 1), ("mr", "senteval", 1), ("mteb:STS22", "own", 1)],
)
def test_the_splits_that_belong_together(id, version, count):
    assert len(siblings(id, version)) == count and id in siblings(id, version)


def test_a_record_says_what_was_fitted_on_and_the_scores_are_a_plain_scripts(tmp_path):
    tasks = list(SPLITS)
    result = measured(tmp_path / "run", tasks=tasks)
    for record in result.records:
        spec = record.encoder.spec
        task = record.data.task if record.data.id != "sick-r/mteb" else "SICK-R-MTEB"
        assert spec["fitted_on"].startswith(f"{SPLITS[task]}@")
        assert spec["post"] == "whitening:dimensions=4,divisor=n-1" and len(spec["options"]["post_state"]) == 64
        assert is_transductive(spec["fitted_on"], record.data.id) and record.encoder.dimension == 4
    assert len({record.encoder.fingerprint for record in result.records}) == 4
    data = sample("stsb/test")
    texts = list(target_texts(data, sample))
    vectors = dict(zip(texts, plain_whitening(Wide().encode(texts), 4), strict=True))
    plain = paired_similarity(*(np.array([vectors[text] for text in side]) for side in (data.first, data.second)))
    record = next(record for record in result.records if record.data.id == "stsb/test")
    np.testing.assert_allclose(read_observations(result.folder, record).arrays["similarity"], plain, atol=1e-5)
    again = score_again(result.folder)  # four records of one encoder, fitted on four sets
    assert [row.value for row in again.rows] == [row.value for row in result.rows]


def test_a_file_is_fitted_on_once_and_is_not_transductive(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own.txt").write_text("".join(f"sentence {i} of mine\n" for i in range(50)))
    result = measured(tmp_path / "run", fit_on=tmp_path / "own.txt", tasks=["STS-B", "STS12"])
    specs = [record.encoder.spec for record in result.records]
    assert specs[0] == specs[1] and specs[0]["fitted_on"].startswith("own.txt@")
    assert not is_transductive(specs[0]["fitted_on"], "stsb/test") and fitted_sets(specs[0]["fitted_on"]) == ("own.txt",)
    other = measured(tmp_path / "other", fit_on=tmp_path / "own.txt", tasks=["STS-B"], post="whitening:dimensions=3")
    assert other.records[0].encoder.fingerprint != result.records[0].encoder.fingerprint


def test_every_text_is_encoded_once_whatever_is_fitted(tmp_path):
    encoder = Wide()
    measured(tmp_path / "run", encoder, tasks=["STS-B", "STS12"])
    asked = [text for call in encoder.calls for text in call]
    assert len(asked) == len(set(asked)) > 100


def test_a_missing_split_is_a_failure_of_the_task_and_no_smaller_fit(tmp_path):
    folder = tmp_path / "downstream" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    for split in ("dev", "test"):
        name = f"sts-{split}.csv"
        (folder / name).write_bytes((SAMPLE / "downstream/STS/STSBenchmark" / name).read_bytes())
    result = measured(tmp_path / "run", sample=False, data_dir=tmp_path, tasks=["STS-B"])
    assert not result.records and "sts-train.csv is missing" in result.failures["sts STS-B"]


@pytest.mark.parametrize("options", [{"fit_on": None}, {"post": None}, {"fit_on": "nowhere.txt"}, {"post": "whitning"},
                                     {"post": "whitening:dimensions=9"}])
def test_a_mistake_is_found_before_anything_is_encoded(tmp_path, options):
    encoder = Wide()
    with pytest.raises(StsbenchError):
        measured(tmp_path / "run", encoder, **options)
    assert not encoder.calls
