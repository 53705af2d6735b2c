"""What soft prompts are refused, in one line each, and where the pooler of prompted encoders leads."""

from __future__ import annotations

import pytest
import torch
from soft_oracle import ENGINES, PAD, POSITIONS, WIDTH, batch, random_prefix, random_soft, small_backbone, visible_slots
from tiny_models import build

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.soft_prompt import SoftPrompt


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


def _gap(one, other) -> float:
    return float((one - other).detach().abs().max())


@pytest.mark.parametrize("engine", ENGINES)
def test_positions_beyond_the_models_are_refused(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = torch.full((2, POSITIONS - 6), 7), torch.ones(2, POSITIONS - 6, dtype=torch.long)
    fits = random_prefix(2, 6, visible_slots(2, 6, 3))
    assert bool(backbone(ids, mask, soft=SoftPrompt(prefix=fits))[0].isfinite().all())
    last = POSITIONS - 1 if family == "bert" else POSITIONS + 1
    with pytest.raises(EncoderError, match=f"position {last + 1}, and the model's last one is {last}") as error:
        backbone(ids, mask, soft=SoftPrompt(prefix=random_prefix(2, 7, visible_slots(2, 7, 3))))
    assert "\n" not in str(error.value)
    mask[:, -1] = 0  # what stands beyond is padding now
    ids[:, -1] = PAD[family]
    assert bool(backbone(ids, mask, soft=SoftPrompt(prefix=random_prefix(2, 7, visible_slots(2, 7, 3))))[0].isfinite().all())
    with pytest.raises(EncoderError, match="take a shorter maximum length"):
        backbone(ids, mask, soft=SoftPrompt(positions=torch.full_like(ids, last + 1)))


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_that_do_not_go_together_are_refused(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    uneven = visible_slots(len(ids), 6, 3)
    uneven[1] = True
    rows = torch.zeros_like(ids)
    for soft, message in [
        (SoftPrompt(prefix=random_prefix(len(ids), 6, uneven)), "one row sees 3 slots of the prefix and another 6"),
        (SoftPrompt(prefix=random_prefix(4, 6, visible_slots(4, 6, 3))), "of 2 layers and 4 rows for .* and a batch of 6"),
        (SoftPrompt(prefix=random_prefix(len(ids), 5, visible_slots(len(ids), 6, 3))), "do not go with visible"),
        (SoftPrompt(positions=ids[:, 1:]), "positions .* of a soft prompt for a batch"),
        (SoftPrompt(rows=rows), "the rows and the vectors of a soft prompt go together"),
    ]:
        with pytest.raises(ValueError, match=message):
            backbone(ids, mask, soft=soft)


@pytest.mark.parametrize("other", ["distilbert", "mpnet"])
def test_another_family_is_told_in_one_line(tmp_path, other):
    backbone = load_backbone(build(tmp_path, other), other)
    ids, mask = batch("roberta")
    assert backbone.at(ids, mask, torch.zeros(len(ids), dtype=torch.long)).shape == (len(ids), 32)
    for soft in (SoftPrompt(positions=ids), SoftPrompt(prefix=random_prefix(len(ids), 6, visible_slots(len(ids), 6, 3)))):
        with pytest.raises(EncoderError, match=r"^(DistilBert|MPNet)Model takes no .* BERT and RoBERTa do$"):
            backbone(ids, mask, soft=soft)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_gradient_checkpointing_takes_words_and_refuses_a_prefix(family):
    backbone = small_backbone(family, "sdpa")
    backbone.engine = "auto"
    ids, mask = batch(family)
    soft = random_soft(ids, ("positions", "words"))
    want = backbone(ids, mask, soft=soft)[0][mask.bool()]
    backbone.model.gradient_checkpointing_enable()
    assert _gap(backbone(ids, mask, soft=soft)[0][mask.bool()], want) < 1e-12
    with pytest.raises(EncoderError, match="drops a prefix of keys and values under gradient checkpointing"):
        backbone(ids, mask, soft=random_soft(ids, ("prefix",)))
    backbone.eval()  # nothing is checkpointed there, so nothing is dropped
    assert backbone(ids, mask, soft=random_soft(ids, ("prefix",)))[0].shape == (*ids.shape, WIDTH)


def test_the_pooler_mask_loads_and_is_pooled_by_a_method_only(tmp_path):
    backbone = load_backbone(build(tmp_path, "bert"), "tiny", "mask")
    ids, mask = batch("bert")
    assert backbone.vector_width == 32
    with pytest.raises(EncoderError, match="the pooler mask needs a method with a template"):
        backbone.pooled(ids, mask)
    assert backbone.at(ids, mask, torch.zeros(len(ids), dtype=torch.long)).shape == (len(ids), 32)
