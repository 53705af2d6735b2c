"""SNCSE (Wang et al. 2022): contrast of a sentence in two templates, with its negation as a soft negative."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stsbench.data.sets.readers import read_lines
from stsbench.encoders.prompt.modules import MLPHead
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import TokenTemplate, with_full_stop
from stsbench.errors import DataError, StsbenchError
from stsbench.files import sha256_file
from stsbench.losses.ranking import bidirectional_margin
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.prompting import check_length
from stsbench.wording import counted

from . import verbs
from .options import SNCSEOptions

_ROWS = 10_000  # rows counted at a time, as their texts are held in memory
Reason = Literal["source", "unknown", "full stop"]
MODEL = "en_core_web_sm"
_TAKES_NOT = {"am", "is", "was", "were", "are", "can", "could", "will", "would", "shall", "should", "may", "must", "might"}
_SUPPORT = {"VBP": "do", "VBZ": "does", "VBD": "did"}


class SNCSE(Method):
    """Unsupervised, on plain sentences: InfoNCE between two templates, and a bidirectional margin loss on negations."""

    trained_pooler = "mask"
    Options = SNCSEOptions
    options: SNCSEOptions
    sample_settings = {"options.negation": "verbs"}  # noqa: RUF012 - as of the base

    def __init__(self, backbone: Backbone, options: SNCSEOptions) -> None:
        """Read the templates and the source of negations. backbone: with the pooler mask and its `name`.

        Raises StsbenchError, one line, for another pooler, a template that is too long for backbone.max_length or the model
        or lacks one place for the sentence and one mask, and a missing parser or file of negations.
        """
        super().__init__(backbone, options)
        self.first = self._template(options.template, "options.template")
        self.second = self.first
        if options.second_template not in (None, options.template):
            self.second = self._template(options.second_template or "", "options.second_template")
        if options.test_template is not None:
            TokenTemplate(backbone.tokenizer, options.test_template, "options.test_template")
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.head = MLPHead(backbone.width, std) if options.head != "none" else None
        self.negatives = Negatives(options) if options.weight else None

    @classmethod
    def needs(cls, options: SNCSEOptions) -> Needs:
        """Return the needs: sentences; dropout where both views have the same template."""
        return Needs(dropout=options.second_template in (None, options.template))

    def prepare(self, rows: Any) -> None:
        """Count the sentences without a negation by the file or rule. With a parser, all texts are parsed here, once."""
        if self.negatives is not None:
            for start in range(0, len(rows), _ROWS):
                self.negatives.count(rows.at(rows.rows[start : start + _ROWS]).texts("sentence"))

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence in each of the two templates, and its negation in the second."""
        sentences = rows.texts("sentence")
        views = [self._inside(sentences, self.first), self._inside(sentences, self.second)]
        if self.negatives is not None:
            views.append(self._inside(self.negatives(sentences), self.second))
        return Views(views)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, InfoNCE of the first view against the second, and soft_negative, the margin loss."""
        n, options = len(batch), self.options
        first, second, *negations = self._vectors(batch.ids, batch.mask, n).split(n)
        terms = {
            "contrastive": contrast(
                first, second, [], batch.shares, self.gather_mode, temperature=options.temperature
            )
        }
        if negations:
            value = bidirectional_margin(first, second, negations[0], alpha=options.alpha, beta=options.beta)
            terms["soft_negative"] = Term(value, n, options.weight)
        return terms

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return the texts inside the first template."""
        return self._inside(rows.texts(role), self.first)

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) vectors as in the loss, with the head applied. ids, mask: (n, L), texts of `read`."""
        return self._vectors(ids, mask, len(ids))

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (n, d) vectors of the sentence in the first and in the second template."""
        n = len(batch)
        first, second = self._vectors(batch.ids[: 2 * n], batch.mask[: 2 * n], n).split(n)
        return first, second

    def inference(self) -> Inference:
        """Return the encoder that reads the mask of the test's template, with a full stop added to texts as in training."""
        options = self.options
        prompt = Prompt(
            options.test_template or options.template, full_stop=stop_rule(options),
            head=self.head if options.head == "mlp" else None,
        )
        return Inference(self.backbone.model, self.backbone.tokenizer, "mask", prompt=prompt)

    def inputs(self) -> dict[str, str]:
        """Return the sha256 of the source of negations, as `Negatives.inputs`; {} without negations."""
        return {} if self.negatives is None else self.negatives.inputs()

    def notes(self) -> list[str]:
        """Return a line with the number of sentences without a negation by the file or rule."""
        return [] if self.negatives is None else self.negatives.report()

    def _vectors(self, ids: Tensor, mask: Tensor, first: int) -> Tensor:
        """Return (rows, d) vectors. `first` rows are in the first template, all others in the second."""
        indices = torch.cat([self.first.mask_indices(mask[:first]), self.second.mask_indices(mask[first:])])
        states = self.backbone.at(ids, mask, indices)
        return states if self.head is None else self.head(states)

    def _inside(self, texts: list[str], template: TokenTemplate) -> Ragged:
        """Return the texts inside a template, each with a full stop by options.full_stop, cut to what max_length leaves."""
        limit = self.backbone.max_length - (template.length if self.options.max_length_counts == "template" else 2)
        stop = stop_rule(self.options)
        return template.wrap(template.pieces([with_full_stop(text, stop) for text in texts], limit))

    def _template(self, template: str, name: str) -> TokenTemplate:
        tokenizer, backbone = self.backbone.tokenizer, self.backbone
        parsed = TokenTemplate(tokenizer, template, name)
        if self.options.train_tokens == "released":
            plain, parsed = parsed, TokenTemplate(tokenizer, template, name, blanks="template")
            if parsed.before == plain.before:
                raise StsbenchError(
                    f"options.train_tokens released has no effect: for {backbone.name} the blank before the sentence is no "
                    "token, or there is none; leave it at test"
                )
        if self.options.max_length_counts == "sentence":
            check_length(parsed, name, backbone)
        elif parsed.length >= backbone.max_length:
            raise StsbenchError(
                f"{name}: its {parsed.length} tokens fill backbone.max_length {backbone.max_length}, and no token is left "
                "for the sentence: raise it, or set options.max_length_counts sentence"
            )
        return parsed


class Negatives:
    """The negations of sentences by `options.negation` and `options.lookup`.

    A sentence without a negation gets "Not " in front, as in the released code; where no form of the rule fits, in front of
    its tokens, joined by blanks. `count` counts these sentences by reason: the file or rule has no negation for the line
    ("unknown"), or the line was looked up with an added full stop, and so by another text ("full stop").
    """

    def __init__(self, options: SNCSEOptions) -> None:
        """Load the parser or file. Raises StsbenchError, one line, without spaCy for the rule, or for an unreadable file."""
        self.options = options
        self.table: dict[str, str] = {}
        self.unfit: set[str] = set()  # lines in the table to which no form of the rule applies
        self.parser = Parser() if options.negation == "rule" else None
        if options.negation == "file":
            self.table = read_pairs(Path(options.negations or ""))
        self.counted: Counter[Reason] = Counter()

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """Return the negation of each line, with a full stop added by `options.full_stop`."""
        stop = stop_rule(self.options)
        return [with_full_stop(negation, stop) for negation, _ in self._all(lines)]

    def count(self, lines: Sequence[str]) -> None:
        """Add these lines to the counts of `report`."""
        self.counted.update(reason for _, reason in self._all(lines))

    def report(self) -> list[str]:
        """Return a line on the sources of the counted lines' negations; [] before any was counted."""
        total = self.counted.total()
        if not total:
            return []
        options = self.options
        source = {"rule": "the released rule", "verbs": "verb lists", "file": str(options.negations)}[options.negation]
        if self.parser is not None:
            source += f" ({self.parser.version})"
        why: dict[Reason, str] = {
            "unknown": "that it lacks" if options.negation == "file" else "without a verb that it knows",
            "full stop": "looked up behind a full stop (options.lookup after_full_stop)",
        }
        reasons = [f"{_share(number, total)} {words}" for reason, words in why.items() if (number := self.counted[reason])]
        rest = f'; "Not " in front of {" and of ".join(reasons)}' if reasons else ""
        known = self.counted["source"]
        return [f"soft negatives of {counted(total, 'sentence')}: {_share(known, total)} by {source}{rest}"]

    def inputs(self) -> dict[str, str]:
        """Return the file's sha256, or a digest of the parser's versions."""
        if self.options.negation == "file":
            return {"negations": sha256_file(Path(self.options.negations or ""))}
        if self.parser is not None:
            return {"parser": hashlib.sha256(self.parser.version.encode()).hexdigest()}
        return {}

    def _all(self, lines: Sequence[str]) -> list[tuple[str, Reason]]:
        stop = stop_rule(self.options)
        sentences = [with_full_stop(line, stop) for line in lines]
        stripped = [line.strip() for line in lines]
        keys = stripped if self.options.lookup == "line" else sentences
        results: list[tuple[str, Reason]] = []
        for sentence, key, line, negation in zip(sentences, keys, stripped, self._looked_up(keys, stripped), strict=True):
            if negation is not None:
                results.append((negation, "unknown" if line in self.unfit else "source"))
            else:
                results.append((f"Not {sentence}", "unknown" if key == line else "full stop"))
        return results

    def _looked_up(self, keys: Sequence[str], lines: Sequence[str]) -> list[str | None]:
        """Return the negations of the stripped `lines`, looked up by `keys`; None for a line without one."""
        if self.options.negation == "file":
            return [self.table.get(key) for key in keys]
        if self.parser is not None:
            lacking = [line for key, line in zip(keys, lines, strict=True) if key == line and line not in self.table]
            for line, tokens in zip(lacking, self.parser(lacking), strict=True):
                if (negation := negated(tokens)) is None:
                    self.unfit.add(line)
                    negation = " ".join(["Not", *(token.text for token in tokens)])
                self.table[line] = negation
            return [self.table[line] if key == line else None for key, line in zip(keys, lines, strict=True)]
        return [verbs.negated(line) if key == line else None for key, line in zip(keys, lines, strict=True)]


def stop_rule(options: SNCSEOptions) -> Literal["punctuation32", False]:
    """Return `options.full_stop` as an argument of `with_full_stop` and Prompt."""
    return "punctuation32" if options.full_stop == "punctuation32" else False


def read_pairs(path: Path) -> dict[str, str]:
    """Return sentence -> negation from a file of JSON lines [sentence, negation]. Blank lines are skipped; the last line of
    a sentence counts.

    Raises DataError, one line, naming file and line.
    """
    pairs: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            sentence, negation = json.loads(line)
        except (ValueError, TypeError):
            sentence = negation = None
        if not isinstance(sentence, str) or not isinstance(negation, str) or not negation.strip():
            raise DataError(f'{path}:{number}: not a pair of texts; expected ["sentence", "negation"] in JSON')
        pairs[sentence] = negation
    if not pairs:
        raise DataError(f'{path} contains no pairs; expected JSON lines ["sentence", "negation"]')
    return pairs


def _share(part: int, total: int) -> str:
    return f"{part:,} ({100 * part / total:.1f} %)"


class Token(NamedTuple):
    """A word of a parse: its text, dependency label, fine-grained tag and lemma, as spaCy names them."""

    text: str
    dep: str
    tag: str
    lemma: str


def negated(tokens: Sequence[Token]) -> str | None:
    """Return the negation of a parsed sentence, its tokens joined by blanks; None where no form of the rule fits.

    The released code's rule has four forms, of which the first that fits is applied: the first token `not` (in lower case)
    is removed; `not` is added after the first auxiliary (aux, auxpass) if it comes before the root; `not` is added after the
    root if that is a form of be or a modal; the root is replaced by `do not`, `does not` or `did not` (by its tag VBP, VBZ
    or VBD) and the lemma.
    Source: Wang et al. (2022), SNCSE, generate_soft_negative_samples.py.

    >>> parse = [("He", "nsubj", "PRP", "he"), ("left", "ROOT", "VBD", "leave"), (".", "punct", ".", ".")]
    >>> negated([Token(*word) for word in parse])
    'He did not leave .'
    """
    words = [token.text for token in tokens]
    if "not" in words:
        words.remove("not")
        return " ".join(words)
    at = next((i for i, token in enumerate(tokens) if token.dep in ("aux", "auxpass", "ROOT")), None)
    if at is None:
        return None
    token = tokens[at]
    if token.dep != "ROOT" or token.text.lower() in _TAKES_NOT:
        words[at] = f"{token.text} not"
    elif token.tag in _SUPPORT:
        words[at] = f"{_SUPPORT[token.tag]} not {token.lemma}"
    else:
        return None
    return " ".join(words)


class Parser:
    """A parser of English sentences, spaCy's model en_core_web_sm."""

    def __init__(self) -> None:
        """Load the model. Raises StsbenchError, one line, where spaCy or the model is not installed."""
        try:
            import spacy

            self._model: Any = spacy.load(MODEL)
        except (ImportError, OSError) as error:  # OSError: no such model
            raise StsbenchError(
                f"options.negation rule needs spaCy and its model {MODEL} (pip install spacy; python -m spacy download "
                f"{MODEL}): set options.negation to verbs, a rule without a parser, or to file with options.negations"
            ) from error
        self.version = f"spaCy {spacy.__version__}, {MODEL} {self._model.meta['version']}"

    def __call__(self, texts: Sequence[str]) -> Iterator[list[Token]]:
        """Yield the parses of the texts, in their order."""
        for parsed in self._model.pipe(texts):
            yield [Token(str(token), token.dep_, token.tag_, token.lemma_) for token in parsed]
