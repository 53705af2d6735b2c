"""An encoder with a post-processing: its identity, its base's vectors in the cache, and what it is fitted on."""

import numpy as np
import pytest
from post_sources import plain_whitening
from toy_encoder import Toy

from stsbench.encoders.base import Encoded, EncoderSpec
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.post.source import EncodedTexts, ListedTexts, read_texts
from stsbench.encoders.roles import Traits
from stsbench.errors import EncoderError

TEXTS = [f"{'a' * (i % 7)} text {i * i}" for i in range(40)]


class Wide(Toy):
    """Six numbers a text, a function of it alone."""

    def run(self, texts, progress=None):
        self.calls.append(list(texts))
        rows = [np.random.default_rng(list(text.encode())).normal(size=6) + 3 for text in texts]
        return Encoded(np.array(rows, np.float32).reshape(-1, 6), np.zeros(len(texts), bool))


def made(post="whitening", texts=TEXTS, source="made@1", base=None):
    return PostProcessed(base or Wide(), Chain.parse(post)).fit(texts, source)


def test_vectors_are_the_bases_through_the_fitted_map():
    encoder = made("whitening:dimensions=4")
    vectors = encoder.encode(TEXTS)
    plain = plain_whitening(Wide().encode(TEXTS), 4)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, plain * np.sign((vectors * plain).sum(0)), atol=1e-5)


def test_the_fingerprint_is_of_settings_texts_source_and_order():
    several = [
        made(), made("whitening:dimensions=5"), made(texts=TEXTS[:30]), made(source="other@1"),
        made("standardise+whitening"), made("whitening+standardise"), Wide(),
    ]
    assert len({each.spec.fingerprint() for each in several}) == len(several)
    assert made().spec == made().spec and made().spec.fitted_on == "made@1"
    assert made().spec.post == "whitening:dimensions=null,divisor=n-1"


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
    chain = made("whitening:dimensions=2", listed, listed.name).chain
    vectors = np.concatenate([Wide().encode(side) for side in listed.columns]).astype(np.float64)
    np.testing.assert_allclose(chain.steps[0].mean, vectors.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(np.cov(chain.transform(vectors).T), np.eye(2), atol=1e-8)
    assert list(listed)[6:9] == ["f", "a", "g"] and len(listed) == 14 and listed.sides == 2


def test_batches_of_pairs_in_random_order_hold_the_same_vectors():
    listed = ListedTexts((TEXTS[:20], TEXTS[20:]), "pairs@1")
    source = EncodedTexts(listed, lambda texts: Wide().run(texts), "wide")
    batches = list(source.shuffled(6, np.random.default_rng(4)))
    assert [batch.shape for batch in batches] == [(6, 2, 6)] * 3 + [(2, 2, 6)]
    order = np.random.default_rng(4).permutation(20)
    stacked = np.stack([Wide().encode(side) for side in listed.columns], axis=1)
    np.testing.assert_array_equal(np.concatenate(batches), stacked[order])
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), Wide().encode(TEXTS))
    assert len(source) == 40


def test_what_stays_the_bases():
    class Noted(Wide):
        traits, notes, engine, dimension = Traits(similarity="dot"), ("know this",), "a library", 6

        def for_role(self, role, prompt=None):
            return self if role is None else Noted(EncoderSpec(name="toy", kind="callable", weights="1" * 64))

        def run(self, texts, progress=None):
            self.keep_lengths_apart()
            return super().run(texts, progress)

    encoder = PostProcessed(Noted(), Chain.parse("whitening:dimensions=5"))
    assert (encoder.similarity_fn_name, encoder.engine, encoder.dimension) == ("dot", "a library", 5)
    assert encoder.notes == ("know this",)
    fitted = encoder.fit(TEXTS, "made@1")
    query = fitted.for_role("query")
    assert fitted.for_role(None) is fitted and query.spec.weights == "1" * 64
    assert query.chain is fitted.chain and query.spec.fitted_on == "made@1"
    fitted.run(TEXTS[:2])
    assert fitted.equal_lengths and "padding" in fitted.notes[-1]


def test_a_vector_that_is_not_finite_spoils_its_own_text_and_no_fit():
    def broken(vectors):
        return np.where(vectors[:, :1] == 6, np.inf, vectors)

    encoder = PostProcessed(Toy(change=broken), Chain.parse("standardise"))
    with pytest.raises(EncoderError):
        encoder.fit(["ok", "broken"], "made@1")
    fitted = encoder.fit(["ok", "fine!"], "made@1")
    embed = Embed(fitted)
    assert embed.unusable(["ok"]) is None and "broken" in embed.unusable(["broken"])


@pytest.mark.parametrize(
    ("name", "content", "sides"),
    [
        ("a.txt", "one\n\ntwo\none\n", (["one", "two", "one"],)),
        ("a.tsv", "premise\thypothesis\tlabel\np1\th1\tentailment\np2\th2\tneutral\n", (["p1", "p2"], ["h1", "h2"])),
        ("a.csv", "sent0,sent1,hard_neg\na,b,c\n", (["a"], ["b"], ["c"])),
        ("b.tsv", "sentence1\tsentence2\tscore\na\tb\t4.5\n", (["a"], ["b"])),  # a score is not a text
    ],
)
def test_files(tmp_path, monkeypatch, name, content, sides):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / name).write_text(content)
    texts = read_texts(tmp_path / name)
    assert [texts.side(side, range(texts.items)) for side in range(texts.sides)] == [list(side) for side in sides]
    assert texts.name.startswith(f"{name}@") and len(texts.name) == len(name) + 65
