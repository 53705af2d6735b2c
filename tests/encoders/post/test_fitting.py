"""`--post` and `--fit-on`: what a set's own texts are, what records say, and where nothing is guessed."""

from dataclasses import replace

import numpy as np
import pytest
from clirun import SAMPLE
from post_sources import plain_whitening
from toy_encoder import Toy

from stsbench.data.fetch.sources import load_data
from stsbench.encoders.base import Encoded, EncoderSpec
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed, siblings, target_texts
from stsbench.encoders.post.source import EncodedTexts, ListedTexts, read_texts
from stsbench.encoders.traits import fitted_sets, is_transductive
from stsbench.errors import EncoderError, StsbenchError
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


TEXTS = [f"{'a' * (i % 7)} text {i * i}" for i in range(40)]


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
    alone = [("stsb/test", "raw"), ("stsb/splits", "senteval"), ("mr", "senteval"), ("mteb:STS22", "own")]
    assert all(len(siblings(*data)) == 1 for data in alone)


def test_a_record_says_what_was_fitted_on_and_the_scores_are_a_plain_scripts(tmp_path):
    result = measured(tmp_path / "run", tasks=list(SPLITS))
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


def test_a_missing_split_is_a_failure_of_the_task_and_no_smaller_fit(tmp_path):
    folder = tmp_path / "downstream" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    for split in ("dev", "test"):
        name = f"sts-{split}.csv"
        (folder / name).write_bytes((SAMPLE / "downstream/STS/STSBenchmark" / name).read_bytes())
    result = measured(tmp_path / "run", sample=False, data_dir=tmp_path, tasks=["STS-B"])
    assert not result.records and "sts-train.csv is missing" in result.failures["sts STS-B"]


@pytest.mark.parametrize("options", [{"fit_on": None}, {"post": None}, {"post": "whitening:dimensions=9"}])
def test_a_mistake_is_found_before_anything_is_encoded(tmp_path, options):
    encoder = Wide()
    with pytest.raises(StsbenchError):
        measured(tmp_path / "run", encoder, **options)
    assert not encoder.calls


# ---- an encoder with a post-processing: its identity, its base's vectors in the cache, and what it is fitted on


def fitted(post="whitening", texts=TEXTS, source="made@1", base=None):
    return PostProcessed(base or Wide(), Chain.parse(post)).fit(texts, source)


def test_the_fingerprint_is_of_settings_texts_source_and_order():
    several = [fitted(), fitted("whitening:dimensions=5"), fitted(texts=TEXTS[:30]), fitted(source="other@1"),
               fitted("standardise+whitening"), fitted("whitening+standardise"), Wide()]
    assert len({each.spec.fingerprint() for each in several}) == len(several)
    assert fitted().spec == fitted().spec and fitted().spec.fitted_on == "made@1"
    assert fitted().spec.post == "whitening:dimensions=null,divisor=n-1"


def test_the_bases_vectors_are_cached_and_no_k_encodes_again(tmp_path):
    for count, post in enumerate(["whitening:dimensions=3", "whitening:dimensions=4", "standardise"]):
        base, cache = Wide(), EmbeddingCache(tmp_path)
        encoder = PostProcessed(base, Chain.parse(post))
        Embed(encoder, cache).for_set(TEXTS, "s@1")(TEXTS)
        assert len(base.calls) == (0 if count else 1)  # fitting and testing read the same vectors
    assert len(EmbeddingCache(tmp_path).encoders()) == 1
    plain = Wide()
    Embed(plain, EmbeddingCache(tmp_path)).add(TEXTS)
    assert not plain.calls
    encoder = PostProcessed(plain, Chain.parse("whitening:dimensions=3"))
    encoder.hold(TEXTS)  # without a cache, too
    for source in ("one@1", "two@2"):
        Embed(encoder).for_set(TEXTS, source)(TEXTS)
    assert len(plain.calls) == 1


def test_duplicates_and_both_sides_count_where_listed():
    listed = ListedTexts((["a", "b", "b", "c", "dd", "e e", "f"], ["a", "g", "h", "h", "i", "j", "k"]), "pairs@1")
    chain = fitted("whitening:dimensions=2", listed, listed.name).chain
    vectors = np.concatenate([Wide().encode(side) for side in listed.columns]).astype(np.float64)
    np.testing.assert_allclose(chain.steps[0].mean, vectors.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(np.cov(chain.transform(vectors).T), np.eye(2), atol=1e-8)
    assert list(listed)[6:9] == ["f", "a", "g"] and len(listed) == 14 and listed.sides == 2


def test_batches_of_pairs_in_random_order_hold_the_same_vectors():
    listed = ListedTexts((TEXTS[:20], TEXTS[20:]), "pairs@1")
    source = EncodedTexts(listed, lambda texts: Wide().run(texts), "wide")
    batches = list(source.shuffled(6, np.random.default_rng(4)))
    assert [batch.shape for batch in batches] == [(6, 2, 8)] * 3 + [(2, 2, 8)]
    order = np.random.default_rng(4).permutation(20)
    stacked = np.stack([Wide().encode(side) for side in listed.columns], axis=1)
    np.testing.assert_array_equal(np.concatenate(batches), stacked[order])
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), Wide().encode(TEXTS))
    assert len(source) == 40


def test_what_stays_the_bases():
    class Noted(Wide):
        def for_role(self, role, prompt=None):
            return self if role is None else Noted(EncoderSpec(name="toy", kind="callable", weights="1" * 64))

        def run(self, texts, progress=None):
            self.keep_lengths_apart()
            return super().run(texts, progress)

    encoder = fitted("whitening:dimensions=5", base=Noted())
    query = encoder.for_role("query")
    assert encoder.for_role(None) is encoder and query.spec.weights == "1" * 64
    assert query.chain is encoder.chain and query.spec.fitted_on == "made@1"
    encoder.run(TEXTS[:2])
    assert encoder.equal_lengths and "padding" in encoder.notes[-1]


def test_a_vector_that_is_not_finite_is_no_part_of_a_fit_and_later_spoils_its_own_text_alone():
    def broken(vectors):
        return np.where(vectors[:, :1] == 6, np.inf, vectors)

    encoder = PostProcessed(Toy(change=broken), Chain.parse("standardise"))
    with pytest.raises(EncoderError, match="NaN or infinity"):
        encoder.fit(["ok", "broken"], "made@1")
    embed = Embed(encoder.fit(["ok", "fine!"], "made@1"))
    assert embed.unusable(["ok"]) is None and "broken" in embed.unusable(["broken"])


@pytest.mark.parametrize(("name", "content", "sides"), [
    ("a.txt", "one\n\ntwo\none\n", (["one", "two", "one"],)),
    ("a.tsv", "premise\thypothesis\tlabel\np1\th1\tentailment\np2\th2\tneutral\n", (["p1", "p2"], ["h1", "h2"])),
    ("a.csv", "sent0,sent1,hard_neg\na,b,c\n", (["a"], ["b"], ["c"])),
    ("b.tsv", "sentence1\tsentence2\tscore\na\tb\t4.5\n", (["a"], ["b"])),  # a score is not a text
])
def test_files(tmp_path, monkeypatch, name, content, sides):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / name).write_text(content)
    texts = read_texts(tmp_path / name)
    assert [texts.side(side, range(texts.items)) for side in range(texts.sides)] == [list(side) for side in sides]
    assert texts.name.startswith(f"{name}@") and len(texts.name) == len(name) + 65
