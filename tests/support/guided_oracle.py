"""GIST's and MultiCSR's masks as loops, and sentence-transformers' losses over vectors that are given."""

import torch
from info_nce_oracle import cosine
from torch import nn
from torch.nn.functional import normalize
from transformers import BertTokenizerFast


def naive_guided(
    anchors, positives, guides, *, negatives=(), threshold="absolute", margin=0.0, phi=1.0, contrast_anchors=True,
    contrast_positives=True, diagonals="masked", masked="remove", loss="ce", temperature=0.01,
):
    """(value, texts masked but for a row's own). guides: the guide's vectors of anchors, positives and each block of
    negatives. One column after another: a-p, a-a, p-p, a-n."""
    ga, gp, *gn = guides
    losses, count = [], 0
    for i in range(len(anchors)):
        own = cosine(ga[i], gp[i])
        limit = phi if threshold == "fixed" else own - margin * (abs(own) if threshold == "relative" else 1)
        kinds = [("ap", anchors, positives, ga, gp)]
        kinds += [("aa", anchors, anchors, ga, ga)] if contrast_anchors else []
        kinds += [("pp", positives, positives, gp, gp)] if contrast_positives else []
        kinds += [("an", anchors, block, ga, guide) for block, guide in zip(negatives, gn, strict=True)]
        columns, right = [], None
        for kind, rows, others, guide_rows, guide_others in kinds:
            for j in range(len(others)):
                logit = cosine(rows[i], others[j]) / temperature
                if kind == "ap" and i == j:
                    right = len(columns)
                elif kind in ("aa", "pp") and i == j and diagonals == "masked":
                    continue
                elif cosine(guide_rows[i], guide_others[j]) > limit:
                    count += i != j or kind == "an"
                    if masked == "remove":
                        continue
                    logit = logit * 0
                columns.append(logit)
        logits = torch.stack(columns)
        p = logits.exp() / logits.exp().sum()
        if loss == "ce":
            losses.append(-p[right].log())
        else:
            blocks = 1 + contrast_anchors + contrast_positives + len(negatives)
            rest = sum((1 - p[j]).log() for j in range(len(p)) if j != right)
            losses.append(-(p[right].log() + rest) / (blocks * len(positives)))
    return sum(losses) / len(losses), count


class Vectors(nn.Module):
    """What stands in for a SentenceTransformer: its features hold their vectors."""

    def __init__(self, width, tokenizer):
        super().__init__()
        self.width, self.tokenizer, self.max_seq_length, self.device = width, tokenizer, 8, torch.device("cpu")

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self):
        return self.width

    get_sentence_embedding_dimension = get_embedding_dimension


class GuideVectors(Vectors):
    """The same of a guide."""

    def forward(self, features):
        return {"sentence_embedding": features["guide"]}


def tokenizer(folder):
    """One that is a transformers tokenizer, which the library asks for."""
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]) + "\n", "utf-8")
    return BertTokenizerFast(str(folder / "vocab.txt"))


def guides_of(rows, blocks):
    """The guide's vectors, positives near their anchors, and its cosines as a batch holds them."""
    numbers = torch.Generator().manual_seed(13 + rows)
    first, *others = (torch.randn(rows, 4, generator=numbers, dtype=torch.float64) for _ in range(blocks))
    guides = [first, *(first + 0.8 * block for block in others)]
    a, p, *negatives = (normalize(block, dim=1) for block in guides)
    return guides, torch.cat([a @ p.T, *(a @ block.T for block in negatives), a @ a.T, p @ p.T], dim=1)
