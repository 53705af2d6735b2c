"""A smaller copy is an encoder of its own: its codes are sentence-transformers', its vectors and its fingerprint are told
from others, and what is known of the base is known of it. From one pass over the texts: scores are those of `evaluate`,
losses those of `compare`, whatever is asked is in a run."""

import csv

import numpy as np
import pytest
from known_encoder import Known, check_known
from tiny_models import add_modules, build, sentences

from stsbench import compare, evaluate, load_encoder, load_records
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.traits import TextTask, fitted_sets
from stsbench.errors import EncoderError, StsbenchError
from stsbench.evaluation.rescore import several_encoders
from stsbench.extensions.smaller_copies import variants
from stsbench.extensions.smaller_copies.codes import PRECISIONS, Ranges, codes, compared, size
from stsbench.extensions.smaller_copies.variant import CALL, Form, Held, Variant, Vectors
from stsbench.extensions.smaller_copies.variants import measure_variants

TEXTS = ["the red cat", "a man plays the guitar", "a dog sleeps in the park", "the woman eats", "big food", "a blue cat"]
QUICK = {"sample": True, "resamples": 0, "no_cache": True}


@pytest.fixture(scope="module")
def base(folder):
    return load_encoder(folder, pooler="mean", normalize=True)


def copy(base, *form, **more):
    return Variant(base, Form(*form, **more), Vectors())


def test_a_cut_is_the_encoder_of_the_option(folder, base):
    cut, asked = copy(base, 8), load_encoder(folder, pooler="mean", normalize=True, truncate_dim=8)
    assert np.allclose(cut.encode(TEXTS), asked.encode(TEXTS), atol=1e-6) and cut.dimension == 8
    assert cut.spec.fingerprint() == asked.spec.fingerprint() != base.spec.fingerprint()
    plain = load_encoder(folder, pooler="mean")
    assert np.array_equal(copy(plain, 8).encode(TEXTS), plain.encode(TEXTS)[:, :8])  # lengths stay as the model has them
    assert copy(base).spec == base.spec and np.array_equal(copy(base).encode(TEXTS), base.encode(TEXTS))


def unit(texts):
    """A function whose vectors have the length 1: nothing but they says so."""
    rows = np.stack([np.random.default_rng([4, *text.encode()]).standard_normal(12) for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("made", "precision"), [
    ("unit", "int8"), ("unit in 16 bits", "float32"), ("post-processed", "int8")])
def test_a_cut_vector_has_length_1_again_where_the_vectors_have_it_whatever_is_declared(base, made, precision):
    """By the vectors of a function, which declares nothing, and of a map behind a normalised model, which is one no more."""
    whole = {
        "unit": lambda: load_encoder(unit),
        "unit in 16 bits": lambda: load_encoder(lambda texts: unit(texts).astype(np.float16)),
        "post-processed": lambda: PostProcessed(base, Chain.parse("whitening:dimensions=12")).fit(sentences(60), "words"),
    }[made]()
    cut = np.asarray(whole.encode(TEXTS), np.float32)[:, :5]
    if made.startswith("unit"):
        cut = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    smaller = copy(whole, 5, precision)
    assert smaller.spec.options.get("rescaled", False) == made.startswith("unit")
    if precision == "int8":
        smaller, cut = smaller.fit(TEXTS, "some"), codes(cut, "int8", Ranges.from_vectors(cut))
    assert np.allclose(smaller.encode(TEXTS), cut, atol=1e-6)


def test_one_vector_of_length_1_among_others_makes_no_unit_encoder():
    """Of counted letters a text of one letter has it; and a vector of zeros has none to be judged by."""
    def letters(texts):
        return [[float(text.count(letter)) for letter in "abcdefgh"] for text in texts]

    vectors = Vectors()
    vectors.embed(load_encoder(letters)).add(["a", "zzz"])
    assert vectors.all_normalized(load_encoder(letters))  # by these two
    vectors.embed(load_encoder(letters)).add(["abba"])
    assert not vectors.all_normalized(load_encoder(letters)) and not copy(load_encoder(letters), 4).rescaled


def test_every_form_has_a_fingerprint_of_its_own(base):
    precisions = ("float32", "int8", "uint8", "binary", "ubinary")
    forms = [Form(dims, precision) for dims in (None, 16, 8) for precision in precisions]
    forms += [Form(None, "int8", CALL), Form(None, "int8", CALL, (0.01, 0.99)), Form(None, "int8", clip=(0.01, 0.99))]
    copies = [Variant(base, form, Vectors()) for form in forms]
    copies += [copy(base, None, "int8").fit(TEXTS, "some"), copy(base, None, "int8").fit(TEXTS[:4], "some")]
    assert len({one.spec.fingerprint() for one in copies}) == len(copies)


def test_texts_of_a_role_are_calibrated_as_they_are_read(tmp_path):
    prompts = {"query": "the red man : ", "document": "a dog eats : "}
    folder = add_modules(build(tmp_path / "prompted"), {"pooling_mode_mean_tokens": True}, prompts=prompts)
    base = load_encoder(folder)
    fitted = Embed(copy(base, None, "uint8")).for_set(TEXTS, "x@y", {"query": TEXTS[:2], "document": TEXTS[2:]})
    read = [base.encode_query(TEXTS[:2]), base.encode_document(TEXTS[2:])]
    ranges = Ranges.from_vectors(np.concatenate(read))
    assert not np.array_equal(ranges.low, Ranges.from_vectors(base.encode(TEXTS)).low)
    for role, texts, vectors in zip(("query", "document"), (TEXTS[:2], TEXTS[2:]), read, strict=True):
        assert np.array_equal(fitted.for_role(role)(texts), codes(vectors, "uint8", ranges))


def test_the_vectors_are_computed_once_for_all_copies(base, monkeypatch):
    asked = []

    class Counting(type(base)):
        def run(self, texts, progress=None):
            asked.extend(texts)
            return super().run(texts, progress)

    monkeypatch.setattr(base, "__class__", Counting)
    vectors = Vectors()
    for form in (Form(), Form(8, "int8"), Form(None, "uint8", CALL)):
        evaluate(Variant(base, form, vectors), tasks="STS-B", **QUICK)
    assert len(asked) == len(set(asked)) > 50


def test_a_copy_of_a_fitted_encoder_names_both_texts(base):
    """A whitened model's copy: fitted on sentences, then calibrated on a set."""
    whitened = PostProcessed(base, Chain.parse("whitening:dimensions=4")).fit(sentences(60), "words")
    waiting = copy(whitened, None, "int8")
    assert waiting.spec.fitted_on is None and waiting.fitted_per_set
    fitted = Embed(waiting).for_set(TEXTS, "stsb/test@123")
    assert fitted_sets(fitted.spec.fitted_on) == ("words", "stsb/test")
    assert np.array_equal(fitted(TEXTS), codes(whitened.encode(TEXTS), "int8", Ranges.from_vectors(whitened.encode(TEXTS))))
    others = [PostProcessed(base, Chain.parse("whitening:dimensions=4")).fit(sentences(60, seed=1), "words"), base]
    specs = {copy(one, None, "int8").fit(TEXTS, "stsb/test@123").spec.fingerprint() for one in (whitened, *others)}
    assert len(specs) == 3
    result = evaluate(waiting, tasks="STS-B,SICK-R", **QUICK)
    assert not result.failures and not several_encoders(result.records)
    assert copy(whitened, None, "binary").spec.fitted_on == whitened.spec.fitted_on


def test_a_call_is_calibrated_by_itself(base):
    import torch
    from mteb.models.compression_wrappers.compression_wrapper import CompressionWrapper
    from mteb.types import OutputDType

    for clip in (None, (0.1, 0.8)):
        wrapper = CompressionWrapper.__new__(CompressionWrapper)
        wrapper._quantization_level, wrapper.min_embeds = OutputDType.INT8, 0
        wrapper.clipping_margin = None if clip is None else torch.tensor(clip)
        one = copy(base, None, "int8", CALL, clip)
        embed = Embed(one)
        for part in (TEXTS, TEXTS[:4], [*TEXTS[:3], TEXTS[0]]):  # a text twice moves a quantile
            expected = wrapper._quantize_embeddings(torch.from_numpy(base.encode(part)))
            assert np.array_equal(embed(part), expected.numpy()) and np.array_equal(one.encode(part), expected.numpy())
    assert not np.array_equal(embed(TEXTS)[:4], embed(TEXTS[:4]))


@pytest.mark.parametrize("make", [
    lambda base: Held(base, Vectors()), lambda base: Variant(base, Form(None, "binary"), Vectors())], ids=["held", "binary"])
def test_whatever_is_known_of_the_base_is_behind_a_copy(make):
    for read in (lambda made: made, lambda made: made.for_role("query"), lambda made: made.with_prompt("x: "),
                 lambda made: made.for_task(TextTask("T", "STS"))):
        base = Known()
        made = read(make(base))
        assert type(made) is type(make(base))
        check_known(made, base)


RNG = np.random.default_rng(38)
VECTORS = RNG.normal(size=(60, 20)).astype(np.float32)
VECTORS[:, 3] = 0.25  # a dimension that does not vary


@pytest.mark.parametrize("precision", PRECISIONS)
def test_codes_are_those_of_sentence_transformers(precision):
    quantize = pytest.importorskip("sentence_transformers.util").quantize_embeddings
    calibration, others = VECTORS[:40], VECTORS[40:] * 1.3  # some lie beyond the ranges
    mine = codes(others, precision, Ranges.from_vectors(calibration))
    theirs = quantize(others, precision, calibration_embeddings=calibration)
    assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
    assert len(np.unique(mine)) > 10 and mine.nbytes == size(precision, 20) * len(others)
    numbers = compared(mine, precision, 20)  # a code of bits as numbers, one for each of them
    expected = mine if "int" in precision else np.where(others > 0, 1, -1 if precision == "binary" else 0)
    assert numbers.dtype == np.float32 and np.array_equal(numbers, expected) and size("float32", 20) == 80


def test_clipped_ranges_are_quantiles():
    ranges = Ranges.from_vectors(VECTORS, (0.05, 0.9))
    low, high = np.quantile(VECTORS.astype(np.float64), [0.05, 0.9], axis=0)
    assert np.allclose(ranges.low, low, atol=1e-6) and np.allclose(ranges.high, high, atol=1e-6)
    assert ranges.constant.tolist() == [3] and ranges.digest() != Ranges.from_vectors(VECTORS).digest()


HOW = {"sample": True, "resamples": 40, "no_cache": True}
STS = ("sts", "STS-B")


@pytest.fixture(scope="module")
def made(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "all"
    asked, lines = {"quantise": "int8,binary", "truncate_dims": "8,32,64", "tasks": "STS-B"}, []
    scores = measure_variants(base, protocols="sts,geometry,transfer:exact", output=out, log=lines.append, **asked, **HOW)
    return scores, out, lines


def test_every_width_in_every_precision(made):
    scores, out, lines = made
    names = ["32 float32", "32 int8", "32 binary", "8 float32", "8 int8", "8 binary"]
    assert [score.name for score in scores.task_scores(STS)] == names
    assert [score.bytes for score in scores.task_scores(STS)] == [128, 32, 4, 32, 8, 1]
    assert scores.tasks == (STS, ("geometry", "STS-B")) and not scores.failures
    assert [line.partition(" ")[0] for line in scores.left_out] == ["transfer:exact", "32", "64"]
    folders = ["00-full-float32", "01-full-int8", "02-full-binary", "03-8-float32", "04-8-int8", "05-8-binary"]
    assert sorted(path.name for path in out.iterdir()) == folders
    assert len({score.fingerprint for score in scores.task_scores(STS)}) == 6
    assert [line for line in lines if " of " in line][-1].endswith("8 binary")
    assert len(lines) == len(set(lines))  # no warning twice
    specs = [load_records(path)[0][1].encoder.spec for path in sorted(out.iterdir())]
    options = [{key: value for key, value in spec["options"].items() if key != "post_state"} for spec in specs]
    assert options[0] == {} and options[1] == {"precision": "int8", "calibration": "shared"}
    assert options[4] == {"truncate_dim": 8, "rescaled": True, "precision": "int8", "calibration": "shared"}
    assert specs[1]["fitted_on"].startswith("stsb/test@") and specs[2]["fitted_on"] is None


def test_a_copy_that_cannot_be_measured_costs_no_other(base, monkeypatch):
    measured = variants._evaluated

    def refused(copy, *how):
        if copy.form.dims in broken:
            raise EncoderError("no such vectors")
        return measured(copy, *how)

    monkeypatch.setattr(variants, "_evaluated", refused)
    asked, broken = {"truncate_dims": "8,16", "tasks": "STS-B", "log": lambda line: None}, (8,)
    scores = measure_variants(base, **asked, **QUICK)
    assert scores.failures == ("8 float32: no such vectors",)
    assert [score.name for score in scores.task_scores(STS)] == ["32 float32", "16 float32"]
    broken = (8, 16)
    with pytest.raises(EncoderError, match="no such vectors"):
        measure_variants(base, **asked, **QUICK)


def test_scores_are_those_of_evaluate_and_losses_those_of_compare(folder, made):
    cut = load_encoder(folder, pooler="mean", normalize=True, truncate_dim=8)
    row = next(row for row in evaluate(cut, tasks="STS-B", **HOW).rows if row.metric == "spearman")
    score = next(score for score in made[0].task_scores(STS) if score.name == "8 float32")
    assert (score.value, score.low, score.high) == pytest.approx((row.value, row.low, row.high), abs=1e-5)
    assert score.n == row.n
    scores, out, _ = made
    full, *others = zip(scores.task_scores(STS), sorted(out.iterdir()), strict=True)
    for score, run in (others[0], others[-1]):
        [table] = compare(full[1], run, protocols="sts", resamples=HOW["resamples"]).tables
        gap = table.rows[0].difference
        assert (score.loss, score.loss_low, score.loss_high, score.p) == pytest.approx((gap.value, gap.low, gap.high, gap.p))
    full, *smaller = scores.task_scores(("geometry", "STS-B"))  # neither high nor low is better
    assert [score.loss for score in smaller] == pytest.approx([full.value - score.value for score in smaller])
    assert scores.front(("geometry", "STS-B")) == []


def test_the_average_is_tested_on_pairs_that_tasks_share(base):
    scores = measure_variants(base, quantise="binary", **HOW)
    assert scores.shown == (("sts", "Avg"),) and len(scores.tasks) == 8
    [full, binary] = scores.task_scores(("sts", "Avg"))
    assert full.loss == 0 and binary.loss_low < binary.loss < binary.loss_high
    tasks = [scores.task_scores(("sts", task))[1].loss for _, task in scores.tasks if task != "Avg"]
    assert binary.loss == pytest.approx(np.mean(tasks))


def test_table_picture_and_files(made, tmp_path, monkeypatch):
    scores, _, _ = made
    text = str(scores)
    assert "sts STS-B, spearman of 42 items" in text and "all texts of the set" in text and "length 1 again" in text
    row = next(line for line in text.splitlines() if line.startswith("8 int8"))
    score = next(score for score in scores.task_scores(STS) if score.name == "8 int8")
    assert f"{score.loss:.2f} [{score.loss_low:.2f}, {score.loss_high:.2f}]" in row and "6.2%" in row
    assert "6 sets" not in repr(scores) and "smaller sets of vectors" in repr(scores)
    assert scores.to_arrow().num_rows == len(scores.scores) == 12 and "8 int8" in scores._repr_html_()
    assert min(scores.task_scores(STS), key=lambda score: score.bytes) in scores.front(STS)
    with pytest.raises(StsbenchError, match="table=9: there are 2 tables"):
        scores.plot(9)
    drawn = {}  # a picture takes a fifth of a second to be written
    monkeypatch.setattr("stsbench.display.style.save", lambda figure, path: drawn.update({path: figure}))
    scores.save(tmp_path)
    assert [path.name for path in drawn] == ["variants-sts-STS-B.png", "variants-geometry-STS-B.png"]
    assert all("8 int8" in {text.get_text() for text in figure.axes[0].texts} for figure in drawn.values())
    rows = list(csv.DictReader((tmp_path / "variants.csv").open()))
    assert len(rows) == 12 and float(rows[1]["loss"]) == scores.scores[1].loss


def test_calibrated_on_a_file(base, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the red cat\na man eats\n\nthe dog sleeps in the park\n")
    scores = measure_variants(base, quantise="uint8", calibration=file, tasks="STS-B", output=tmp_path / "runs", **QUICK)
    spec = load_records(tmp_path / "runs" / "01-full-uint8")[0][1].encoder.spec
    assert spec["fitted_on"].startswith("texts.txt@") and spec["options"]["calibration"] == "file"
    assert "a file of texts" in str(scores)
