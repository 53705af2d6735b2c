"""Rows held out of ordered text: what is trained on neither holds nor reads a text that a held-out row holds or reads."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_models import build, sentences

from stsbench.errors import DataError
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.stage_rows import open_rows
from stsbench.training.runs.prepare import make_backbone


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """40 documents of one to six sentences, some of which stand in several; a model; a cache of its own."""
    place = tmp_path_factory.mktemp("ordered")
    build(place / "tiny", pooler=False)
    rng, pool = np.random.default_rng(0), sentences(110, longest=9)
    documents = [[pool[i] for i in rng.integers(0, len(pool), rng.integers(1, 7))] for _ in range(40)]
    (place / "documents.txt").write_text("\n\n".join("\n".join(texts) for texts in documents) + "\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        yield place, documents


def opened(place, method="simcse", **values):
    """(the rows of the only stage, what was said)."""
    folder, said = place[0], []
    settings = {"backbone.model": str(folder / "tiny"), "data.file": str(folder / "documents.txt"),
                "data.contiguous": True, **values}
    recipe = load_recipe(method, None, [], settings)
    backbone = make_backbone(recipe)
    plan = load_plan(recipe)
    (data,) = open_rows(recipe, plan, backbone, plan.stages, said.append).values()
    return data, said


def naive(documents, reach):
    """[row] -> the texts that a batch of it may read: its own, first, and up to `reach` more of its document."""
    return [texts[at : at + 1 + reach] for texts in documents for at in range(len(texts))]


@pytest.mark.parametrize(("method", "options", "reach"), [
    ("simcse", {"options.view": "next3"}, 3),
    ("diffcse", {"options.sentence": "same+next", "options.rtd_weight": 0.0, "options.contrastive": True}, 1),
    ("cmlm", {}, 1),
])
def test_no_text_of_the_held_out_rows_is_read_in_training(place, method, options, reach):
    if method == "diffcse":
        options = {"options.sentence": "same+next", "options.task": "conditional_mlm", "options.generator": None}
    data, said = opened(place, method, **{"data.held_out": 4, **options})
    read = naive(place[1], reach)
    every = data.store.texts("sentence", range(len(data.store)))
    assert every == [texts[0] for texts in read]
    usable = [row for row, texts in enumerate(read) if len(texts) > 1]
    kept_back = {text for row in data.held_out for text in read[row]}
    assert len(data.held_out) == 4 and set(data.held_out) <= set(usable)
    expected = [row for row in usable if row not in set(data.held_out) and not kept_back & {*read[row]}]
    assert data.trained.tolist() == expected and 0 < len(expected) < len(usable) - 4
    assert f"{len(read) - len(usable)} of {len(read)} rows cannot be used by these options" in " ".join(said)
    again, _ = opened(place, method, **{"data.held_out": 4, **options})
    assert np.array_equal(again.held_out, data.held_out)


def test_without_held_out_rows_all_that_have_a_next_one_are_used(place):
    data, _ = opened(place, "cmlm")
    assert data.trained.tolist() == [row for row, texts in enumerate(naive(place[1], 1)) if len(texts) > 1]
    assert not len(data.held_out)


def test_a_method_that_does_not_read_on_is_told(place):
    with pytest.raises(DataError, match=r"simcse is not known to read further sentences .* set data.contiguous=false$"):
        opened(place, **{"data.held_out": 4})


def test_what_drop_duplicates_leaves_has_new_neighbours(place):
    """Also in what a method reads, not only in the store."""
    data, _ = opened(place, "cmlm", **{"data.drop_duplicates": True})
    seen, kept = set(), []
    for texts in place[1]:
        fresh = [text for text in dict.fromkeys(texts) if text not in seen]
        seen |= set(texts)
        kept.append(fresh)
    pairs = {(texts[at], texts[at + 1]) for texts in kept for at in range(len(texts) - 1)}
    rows = data.rows(data.trained)
    followed = set(zip(rows.texts("sentence"), rows.at(rows.following(1)).texts("sentence"), strict=True))
    assert followed == pairs and len(data.trained) == len(pairs)
