"""`stsbench soup`: the mean of weights by numpy, and whom greedy keeps by a loop with scipy's Spearman."""

import shutil

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401
from model_folder_kinds import declare, static
from refusal_places import SAMPLE
from safetensors.numpy import load_file, save_file
from scipy.stats import spearmanr
from tiny_models import build, sentences

from stsbench.data.fetch.sources import load_data
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.exported import FILE, Exported, read_with_layout, write_exported
from stsbench.errors import StsbenchError
from stsbench.extensions.soup.average import average_models
from stsbench.training.runs.export import write_layout

WEIGHTS = "0_StaticEmbedding/model.safetensors"
TEXTS = sentences(24, longest=7)


@pytest.fixture
def tables(tmp_path):
    """Four tables whose vectors differ, described as trainings are."""
    folders = []
    for seed in range(4):
        folders.append(tmp_path / f"table-{seed}")
        declare(folders[-1], static(seed), first=None)
        write_exported(folders[-1], Exported(None, method="distil", recipe="static", trained_on=(f"sts1{2 + seed % 2}",)))
    return folders


def rows(folder):
    return load_file(folder / WEIGHTS)["embedding.weight"]


def test_each_weight_is_the_mean_and_all_else_the_first_model_s(tables, tmp_path):
    before = [rows(folder) for folder in tables]
    assert average_models(tables, tmp_path / "mean") == [(str(folder), None, True) for folder in tables]
    np.testing.assert_array_equal(rows(tmp_path / "mean"), np.mean(before, 0, np.float64).astype(np.float32))
    assert all(np.array_equal(rows(folder), one) for folder, one in zip(tables, before, strict=True))
    tokenizer = "0_StaticEmbedding/tokenizer.json"
    assert (tmp_path / "mean" / tokenizer).read_bytes() == (tables[0] / tokenizer).read_bytes()
    described = read_with_layout(tmp_path / "mean")[0]
    assert (described.method, described.recipe, described.trained_on) == ("distil", None, ("sts12", "sts13"))
    assert all(folder.name in (tmp_path / "mean/README.md").read_text("utf-8") for folder in tables)


def spearman(folder):
    vectors = load_encoder(folder).encode(TEXTS)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return 100 * spearmanr((vectors[:12] * vectors[12:]).sum(1), GOLD).statistic


GOLD = np.random.default_rng(27).permutation(12) / 2.4


def test_greedy_keeps_whom_a_loop_keeps_and_seeds_stand_for_themselves(tables, tmp_path, cli):
    lines = [f"{a}\t{b}\t{score}" for a, b, score in zip(TEXTS[:12], TEXTS[12:], GOLD, strict=True)]
    (tmp_path / "dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *lines]) + "\n", "utf-8")
    for number, folder in enumerate(tables):
        seed = tmp_path / f"run/seed-{number}"
        shutil.copytree(folder, seed / "best")
        (seed / "best/config.json").write_text("{}", "utf-8")
        (seed / "recipe.yaml").write_text("", "utf-8")
    seeds = [tmp_path / f"run/seed-{number}" for number in range(4)]
    scores = {seed: spearman(seed) for seed in seeds}
    ranked = sorted(seeds, key=lambda seed: -scores[seed])
    kept, best = [ranked[0]], scores[ranked[0]]
    for seed in ranked[1:]:
        shutil.copytree(seed / "best", tmp_path / "loop")
        mean = np.mean([rows(other / "best") for other in (*kept, seed)], 0, np.float64).astype(np.float32)
        save_file({"embedding.weight": mean}, tmp_path / "loop" / WEIGHTS)
        if (value := spearman(tmp_path / "loop")) >= best:
            kept, best = [*kept, seed], value
        shutil.rmtree(tmp_path / "loop")
    assert 1 < len(kept) < 4  # some are kept, and some are not
    code, out, err = cli("soup", tmp_path / "run", "--greedy", tmp_path / "dev.tsv", "--output", tmp_path / "mean")
    assert (code, out) == (0, "") and err.strip().endswith(f"the mean of {len(kept)} of 4 models")
    mean = np.mean([rows(seed / "best") for seed in kept], 0, np.float64).astype(np.float32)
    np.testing.assert_array_equal(rows(tmp_path / "mean"), mean)
    assert spearman(tmp_path / "mean") == pytest.approx(best)


def test_half_precision_and_counted_numbers_stay_as_they_are(tmp_path):
    for number, name in enumerate(("one", "two")):
        build(tmp_path / name)
        stored = load_file(tmp_path / name / "model.safetensors")
        key = min(stored)
        stored[key] = np.full(stored[key].shape, 0.1 + number, np.float16)
        stored["steps"] = np.array([7])
        save_file(stored, tmp_path / name / "model.safetensors", {"format": "pt"})
    average_models([tmp_path / "one", tmp_path / "two"], tmp_path / "mean")
    mean = load_file(tmp_path / "mean/model.safetensors")
    assert mean[key].dtype == np.float16 and abs(mean[key].astype(float) - 0.6).max() < 1e-3 and mean["steps"] == [7]


def test_the_mean_is_read_as_its_files_say_and_was_trained_on_what_each_was(tables, tmp_path):
    (tables[0] / FILE).unlink()
    average_models(tables[:2], tmp_path / "mean")
    assert read_with_layout(tmp_path / "mean")[0].trained_on == ("sts13",)
    for name in ("one", "two"):  # whose pooler was changed in modules, which then say how they are read
        write_layout(build(tmp_path / name), "cls", 32, 64, None, 2)
        write_exported(tmp_path / name, Exported("cls"))
        settings = tmp_path / name / "1_Pooling/config.json"
        settings.write_text(settings.read_text().replace("cls_token\": true", "cls_token\": false"), "utf-8")
    average_models([tmp_path / "one", tmp_path / "two"], tmp_path / "pooled")
    assert [load_encoder(tmp_path / name).spec.pooler for name in ("one", "pooled")] == ["mean", "mean"]


def test_nothing_is_chosen_on_test_pairs_and_what_has_no_mean_is_refused(tables, tmp_path):
    pairs = load_data("stsb/test", sample=True)
    rows = zip(pairs.first, pairs.second, pairs.gold, strict=True)
    text = "".join(f"{first}\t{second}\t{gold}\n" for first, second, gold in rows)
    (tmp_path / "test.tsv").write_text(f"sentence1\tsentence2\tscore\n{text}", "utf-8")
    with pytest.raises(StsbenchError, match="a test set"):
        average_models(tables, tmp_path / "mean", greedy=tmp_path / "test.tsv", data_dir=SAMPLE)
    write_exported(tables[1], Exported(None, post=True))
    (tables[3] / "adapter_config.json").write_text("{}", "utf-8")
    write_exported(tables[2], Exported(None, max_length=9))
    unlike = "the max_length in their stsbench.json differs"
    for models, why in ((tables[:2], "post-processing"), (tables[2:], "adapter"), (tables[:3:2], unlike)):
        with pytest.raises(StsbenchError, match=why):
            average_models(models, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
