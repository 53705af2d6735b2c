"""The commands say what the functions say, end by an exit code for CI, and write JSON, a page or a canary of vectors."""

import json

import numpy as np
import pytest
import tiny_models
from clirun import cli, place  # noqa: F401 - fixtures

import stsbench
from stsbench.errors import DegenerateError
from stsbench.extensions.parity.canary import check_canary, make_canary
from stsbench.extensions.parity.measures import cosines, stretched, turned

CLS, MEAN = ("pooler=cls", "pooler=mean")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("parity") / "tiny")


@pytest.fixture
def lines(place):
    path = place / "lines.txt"
    path.write_text("the cat sleeps\n\na man plays the guitar in the park\nred\nthe cat sleeps\n", "utf-8")
    return path


def test_equal_is_0_and_different_is_3(cli, tiny, lines):
    code, out, _ = cli("parity", tiny, tiny, "--a", CLS, "--b", CLS, "--texts", lines)
    assert code == 0 and "equal: on 4 distinct texts" in out
    code, out, _ = cli("parity", tiny, tiny, "--a", CLS, "--b", MEAN, "--texts", lines, "--no-why")
    assert code == 3 and "why" not in out and "beyond float32's tolerance" in out


def test_json_and_page(cli, tiny, lines, place):
    code, out, _ = cli("parity", tiny, tiny, "--a", CLS, "--b", MEAN, "--texts", lines, "--json", "-", "--page", "p.html")
    made = json.loads(out)
    result = stsbench.parity(tiny, tiny, a_options={"pooler": "cls"}, b_options={"pooler": "mean"}, texts="lines.txt")
    assert code == 3 and made == json.loads(result.to_json()) and made["causes"][0]["kind"] == "pooling"
    assert made["texts"]["count"] == 4 and made["b"]["spec"]["pooler"] == "mean" and "torch" in made["a"]["libraries"]
    assert np.isclose(made["cosines"]["quantiles"]["0"], result.cosines.min()) and len(made["worst"]) == 4
    html = (place / "p.html").read_text("utf-8")
    assert "pooling is mean instead of cls" in html and "a man plays the guitar" in html and made["a"]["fingerprint"] in html
    assert "http" not in html.replace("https://example.org", "") and "<script" not in html and html.count("<table") == 3


def test_scores_and_an_equivalence_verdict(cli, tiny):
    words = ("--a", MEAN, "--b", MEAN, "--b", "dtype=bfloat16", "--no-why", "--sample", "--protocol", "sts:all",
             "--tasks", "STS-B", "--resamples", "100")
    code, out, _ = cli("parity", tiny, tiny, *words, "--margin", "30", "--json", "-")
    row = json.loads(out)["scores"][0]
    assert code == 0 and row["verdict"] == "equivalent" and abs(row["difference"] - (row["b"] - row["a"])) < 1e-9
    assert -30 < row["low"] <= row["difference"] <= row["high"] < 30 and json.loads(out)["verdict"] == "different"
    code, out, _ = cli("parity", tiny, tiny, *words, "--margin", "0.0001")
    assert code == 3 and "undecided" in out


def test_a_result_in_python():
    vectors = {text: [1.0, i] for i, text in enumerate(("a", "b", "c"))}
    result = stsbench.parity(lambda texts: [vectors[t] for t in texts], lambda texts: [[1, 9] for _ in texts],
                             texts=["a", "b", "c"])
    assert repr(result) == "<Parity: different>" and "nothing that was tried explains it" in str(result)
    assert result.to_arrow().num_rows == 3 and "<table" in result._repr_html_() and "the parts of A" in result.notes[0]


def test_scaled_and_swapped_without_known_parts():
    def a(texts):
        return [[len(text), text.count("e") + 1, 3] for text in texts]

    texts = ["one", "three", "eleven", "seventeen"]
    assert stsbench.parity(a, lambda texts: -2.0 * np.array(a(texts)), texts=texts).verdict == "different"
    assert stsbench.parity(a, lambda texts: 2.0 * np.array(a(texts)), texts=texts).causes == ("vectors are 2 times as long",)
    swapped = stsbench.parity(a, lambda texts: a(texts)[::-1], texts=texts)
    assert swapped.causes[0].startswith("rows stand in another order (4 rows")


def test_distances():
    a, b = np.array([[3.0, 4], [0, 0], [0, 0], [1, 0], [np.nan, 1]]), np.array([[4.0, 3], [0, 0], [1, 0], [0, 1], [1, 1]])
    assert np.allclose(cosines(a, b)[:4], [24 / 25, 1, 0, 0]) and np.isnan(cosines(a, b)[4])
    assert np.allclose(turned(a, b)[:2], [np.sqrt(2 - 48 / 25), 0]) and np.isinf(turned(a, b)[4])
    assert np.allclose(stretched(a, b)[:2], 1) and np.isinf(stretched(a, b)[2])
    tiny = np.array([[1.0, 0]]), np.array([[1.0, 1e-9]])
    assert 0 < 1 - cosines(*tiny)[0] <= 1e-15 or turned(*tiny)[0] == pytest.approx(1e-9)


def test_texts_for_which_b_refuses_are_left_without_a_vector():
    """An encoder in float16 raises for a whole batch: the other texts' vectors are had one by one."""
    def overflows(texts):
        if "large" in texts:
            raise DegenerateError("b returned infinity for 1 text")
        return [[len(text), 1] for text in texts]

    result = stsbench.parity(lambda texts: [[len(text), 1] for text in texts], overflows, texts=["a", "large", "four"])
    assert result.verdict == "different" and np.isnan(result.b[1]).all()
    assert np.array_equal(result.a[[0, 2]], result.b[[0, 2]])
    assert "b returned infinity for 1 text" in result.notes and result.worst()[0] == 1 and "not finite" in str(result)


def test_a_canary_names_a_changed_pooler_without_the_other_model(tiny, tmp_path):
    folder, path = str(tiny), tmp_path / "c.npz"
    make_canary(folder, path, texts=tiny_models.sentences(6), options={"pooler": "mean"})
    assert check_canary(folder, path, options={"pooler": "mean"}).verdict == "equal"
    changed = check_canary(folder, path, options={"pooler": "cls"})
    assert changed.verdict == "different" and changed.causes == ("pooling is mean instead of cls",)
    texts = np.load(path)["texts"].tolist()
    stored, now = (stsbench.load_encoder(name, pooler=pooler).encode(texts) for name, pooler in (
        (f"vectors:{path}", None), (folder, "mean")))
    np.testing.assert_allclose(stored, now, atol=1e-6)


def test_the_commands_of_canaries(place, cli):
    assert cli("canary", "make", "lexical:char-ngrams", "c.npz")[0] == 0
    code, out, err = cli("canary", "check", "lexical:char-ngrams", "c.npz")
    assert code == 0 and "equal: on the 118 texts of the package" in out and "the canary c.npz is of " in err
    assert cli("canary", "check", "lexical:token-set", "c.npz", "--no-why")[0] == 3
