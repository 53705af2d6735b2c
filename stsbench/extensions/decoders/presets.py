"""The presets, one class each (PromptEOL, MetaEOL, Echo, LLM2Vec, ...), and the templates that they share."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar, Literal

from stsbench.data.fetch.sources import training_text
from stsbench.errors import EncoderError
from stsbench.extensions.decoders.base import (
    Contrast,
    Demonstration,
    Prepend,
    Preset,
    PresetOptions,
    PresetReading,
    PromptOptions,
)
from stsbench.parsing import read_text
from stsbench.settings import setting

END = 'means in one word:"'
PROMPTEOL = f'This sentence : "{{}}" {END}'
PRETENDED_COT = f'After thinking step by step , this sentence : "{{}}" {END}'
KNOWLEDGE = (
    "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
    f'additional but less central details. With this in mind , this sentence : "{{}}" {END}'
)
IRRELEVANT = f'The irrelevant information of this sentence : "{{}}" {END}'
# MetaEOL's eight templates: two each for classification, sentiment, paraphrase and information extraction.
METAEOL = (
    "In this task, you're presented with a text excerpt. Your task is to categorize the excerpt into a broad category "
    "such as 'Education', 'Technology', 'Health', 'Business', 'Environment', 'Politics', or 'Culture'. These "
    'categories help in organizing content for better accessibility and targeting. For this task, this sentence : "{}" '
    'should be classified under one general category in one word:"',
    "In this task, you're given a statement and you need to determine whether it's presenting an 'Opinion' or a "
    "'Fact'. This distinction is vital for information verification, educational purposes, and content analysis. For "
    'this task, this sentence : "{}" discriminates between opinion and fact in one word:"',
    "In this task, you're given a review from an online platform. Your task is to generate a rating for the product "
    "based on the review on a scale of 1-5, where 1 means 'extremely negative' and 5 means 'extremely positive'. For "
    'this task, this sentence : "{}" reflects the sentiment in one word:"',
    "In this task, you're reading a personal diary entry. Your task is to identify the predominant emotion expressed, "
    'such as joy, sadness, anger, fear, or love. For this task, this sentence : "{}" conveys the emotion in one word:"',
    "In this task, you're presented with two sentences. Your task is to assess whether the sentences convey the same "
    "meaning. Use 'identical', 'similar', 'different', or 'unrelated' to describe the relationship. To enhance the "
    'performance of this task, this sentence : "{}" means in one word:"',
    "In this task, you're given a sentence and a phrase. Your task is to determine if the phrase can be a contextual "
    "synonym within the given sentence. Options include 'yes', 'no', or 'partially'. To enhance the performance of "
    'this task, this sentence : "{}" means in one word:"',
    "In this task, you're examining a news article. Your task is to extract the most critical fact from the article. "
    'For this task, this sentence : "{}" encapsulates the key fact in one word:"',
    "In this task, you're reviewing a scientific abstract. Your task is to identify the main entities (e.g., proteins, "
    'diseases) and their relations (e.g., causes, treats). For this task, this sentence : "{}" highlights the primary '
    'entity or relation in one word:"',
)
BY_NAME: dict[str, tuple[str, ...]] = {
    "prompteol": (PROMPTEOL,), "pretended-cot": (PRETENDED_COT,), "knowledge": (KNOWLEDGE,), "metaeol": METAEOL,
    "ck": (KNOWLEDGE, PRETENDED_COT),  # mean of the two vectors, as in Contrastive Prompting
}


_MOST_BYTES = 1_000_000  # largest file of demonstrations
_SOURCE = "Zhang, Chang and Li 2024, arXiv 2404.03921"
_PENULTIMATE: dict[str, dict[str, Any]] = {"released": {"layer": -2}}  # settings.py, by the prompt's name
_AROUND = {
    "none": ("", ""), "inst": ("[INST] ", " [/INST]"),
    "llama-3": ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
}


class PromptEOLOptions(PromptOptions):
    """The settings of `prompteol`."""

    template: str = setting(PROMPTEOL, "what stands around a text, and around a demonstration", "evaluation.py, README")
    demonstrations: str | None = setting(
        None, "a file of demonstrations, also one in train/ of the data folder, a line each: the sentence, a tab, its word",
        "run_icl.sh; in the paper one of 300, by STS-B dev",
    )


class PromptEOL(Preset):
    """The vector at the last position of `This sentence : "X" means in one word:"`."""

    name = "prompteol"
    sentence = 'The last position of a prompt that asks for one word: This sentence : "X" means in one word:"'
    source = "Jiang et al. 2023, arXiv 2307.16645"
    Options: ClassVar[type[PresetOptions]] = PromptEOLOptions
    # The paper's template has no blank before the first colon, and it mentions no clean-up.
    forms: ClassVar[dict[str, dict[str, Any]]] = {
        "released": {}, "paper": {"template": PROMPTEOL.replace(" :", ":", 1), "clean_up": "none"},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        if asked.template.count("{}") != 1:
            raise EncoderError(f"--preset {self.name}: template {asked.template!r} must hold {{}} exactly once")
        shots = [] if asked.demonstrations is None else read_demonstrations(_located(asked.demonstrations))
        return PresetReading(
            self.spelled, (asked.template,), asked.clean_up, layer=asked.layer,
            shots="".join(f'{asked.template.replace("{}", sentence)}{word}".' for sentence, word in shots),
            demonstrations=tuple(
                Demonstration(word, hashlib.sha256(sentence.encode()).hexdigest()) for sentence, word in shots),
        )


def read_demonstrations(path: Path) -> list[tuple[str, str]]:
    """Return (sentence, word) of each line. Raises EncoderError, naming file and row, unless it is sentence, tab, word."""
    shots = []
    for number, line in enumerate(read_text(path, _MOST_BYTES, EncoderError).splitlines(), 1):
        sentence, tab, word = line.partition("\t")
        if not tab or not sentence.strip() or not word.strip() or "\t" in word:
            raise EncoderError(f"{path}:{number}: a demonstration is a sentence, a tab and its word")
        shots.append((sentence, word.strip()))
    if not shots:
        raise EncoderError(f"{path} holds no demonstration: a line each, the sentence, a tab and its word")
    return shots


def _located(file: str) -> Path:
    """Return the path of a file, or else of the file in train/ of $STSBENCH_DATA or of the user's data folder."""
    path = Path(file)
    return path if path.is_file() else training_text(file, offline=True)[0] or path


class PretendedCoT(Preset):
    """PromptEOL's prompt after `After thinking step by step ,`."""

    name = "pretended-cot"
    sentence = "PromptEOL behind 'After thinking step by step ,', read at the output of the layer before the last"
    source = _SOURCE
    forms: ClassVar[dict[str, dict[str, Any]]] = _PENULTIMATE

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, (PRETENDED_COT,), self.options.clean_up, layer=self.options.layer)


class Knowledge(Preset):
    """PromptEOL's prompt after a sentence on what matters in a sentence."""

    name = "knowledge"
    sentence = "PromptEOL behind a sentence on what matters in a sentence, read at the output of the layer before the last"
    source = _SOURCE
    forms: ClassVar[dict[str, dict[str, Any]]] = _PENULTIMATE

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, (KNOWLEDGE,), self.options.clean_up, layer=self.options.layer)


class MetaEOL(Preset):
    """The mean, without normalisation, of eight vectors, each of a PromptEOL prompt after a task description."""

    name = "metaeol"
    sentence = "The mean of eight vectors, each at the last position of a prompt that describes a task; eight times the cost"
    source = "Lei et al. 2024, arXiv 2402.18458"

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, METAEOL, self.options.clean_up, layer=self.options.layer)


class TokenPrependingOptions(PromptOptions):
    """The settings of `token-prepending`."""

    prompt: Literal["prompteol", "pretended-cot", "knowledge", "metaeol"] = setting(
        "prompteol", "the preset whose template it is put into", "config.yaml: prompt_method"
    )
    start: int = setting(1, "the first layer before which the placeholder is replaced, counted from 0", "config.yaml")
    exit: int = setting(7, "the first layer before which it no longer is", "config.yaml; in the paper the 8th layer")
    token: Literal["random", "zero"] = setting("random", "the placeholder's embedding: N(0, 1), or zeros", "evaluate.py")
    seed: int = setting(3407, "of the random numbers", "evaluate.py, where it acts on a GPU alone")


class TokenPrepending(Preset):
    """Token Prepending: a placeholder token after the colon, before the opening quote, carries the last state forward."""

    name = "token-prepending"
    sentence = "A placeholder before the text takes the last position's state before each early layer"
    source = "Fu et al. 2025 (ACL), arXiv 2412.11556"
    Options: ClassVar[type[PresetOptions]] = TokenPrependingOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {  # config.yaml, by model
        "released": {"layer": 27},  # LLaMA-2-7B
        "llama-2-13b": {"prompt": "pretended-cot", "layer": -2},
        "llama-3-8b": {"prompt": "pretended-cot", "exit": 3, "layer": -2},
        "qwen2-7b": {"prompt": "pretended-cot", "exit": 6, "layer": -2},
        "gemma2-9b": {"prompt": "pretended-cot", "exit": 6, "layer": -2},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        prepend = Prepend(asked.start, asked.exit, asked.token, asked.seed)
        return PresetReading(self.spelled, BY_NAME[asked.prompt], asked.clean_up, layer=asked.layer, prepend=prepend)


class ContrastiveOptions(PromptOptions):
    """The settings of `contrastive`."""

    prompt: Literal["prompteol", "pretended-cot", "knowledge", "ck"] = setting(
        "prompteol", "the preset that is changed; ck: the mean of pretended-cot and knowledge", "--prompt_method"
    )
    kind: Literal["scaled", "norm"] = setting(
        "scaled", "scaled: alpha (A - B), CP-NS; norm: A - B brought to the length of A, CP-NR", "--intervention_plan"
    )
    alpha: float = setting(0.5, "of `scaled`", "--coeff 0.5 in README and script; 2 in the paper")
    at: int = setting(4, "the layer, counted from 0", "--act_layer 4")


class Contrastive(Preset):
    """Contrastive Prompting: alpha (A - B) replaces A, the last position's input of the attention's output projection."""

    name = "contrastive"
    sentence = "What a prompt for the irrelevant information attends to is taken away at the last position of one layer"
    source = "Cheng et al. 2025, arXiv 2505.12831"
    Options: ClassVar[type[PresetOptions]] = ContrastiveOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {  # forms without a model's name are for LLaMA-2-7B
        "released": {"layer": 27},
        "released-llama-3-8b": {"alpha": 0.25, "at": 6, "layer": -2},
        "paper": {"alpha": 2.0, "layer": 27},
        "paper-pretended-cot": {"prompt": "pretended-cot", "alpha": 3.0, "at": 6, "layer": 27},
        "paper-knowledge": {"prompt": "knowledge", "alpha": 3.0, "at": 6, "layer": -2},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        contrast = Contrast(IRRELEVANT, asked.at, asked.kind, asked.alpha if asked.kind == "scaled" else None)
        return PresetReading(self.spelled, BY_NAME[asked.prompt], asked.clean_up, layer=asked.layer, contrast=contrast)


class EchoOptions(PresetOptions):
    """The settings of `echo`."""

    pooling: Literal["mean", "last"] = setting("mean", "over the second copy, or its last position", "README, by checkpoint")
    instruction: str = setting(
        "Retrieve semantically similar text", "the task, in the form `released` alone", "README; the text is mteb's for STS"
    )


class Echo(Preset):
    """Echo embeddings: with the text repeated, every pooled token has attended to all of it despite causal attention."""

    name = "echo"
    sentence = "The text stands twice, and the mean is taken over its second copy, whose tokens have seen all of it"
    source = "Springer et al. 2024, arXiv 2402.15449"
    Options: ClassVar[type[PresetOptions]] = EchoOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "released": {}, "released-last": {"pooling": "last"}}

    def reading(self) -> PresetReading:
        asked = self.options
        if self.form == "paper":
            template = "Rewrite the following paragraph: {}. The rewritten paragraph: {}"
            return PresetReading(self.spelled, (template,), pooler=asked.pooling, over="copy", layer=asked.layer)
        parts = ("{bos}Instruct:", f"{asked.instruction},", "\nQuery:", "{}", "\nQuery again:", "{}", "{eos}")
        return PresetReading(
            self.spelled, ("".join(parts),), pooler=asked.pooling, over="copy", layer=asked.layer, segments=parts
        )


class Llm2VecOptions(PresetOptions):
    """The settings of `llm2vec`."""

    instruction: str = setting(
        "Retrieve semantically similar text:", "before the text, and not pooled; '' for none", "MTEB's tasks STS"
    )
    wrapper: Literal["none", "inst", "llama-3"] = setting(
        "none", "what is around both: Mistral-Instruct and Llama-2-chat have inst", "llm2vec.py: prepare_for_tokenization"
    )
    pooling: Literal["mean", "weighted_mean", "last"] = setting("mean", "of the text's own tokens", "llm2vec.py")
    attention: Literal["bidirectional", "causal"] = setting("bidirectional", "the switch", "enable_bidirectional")


class Llm2Vec(Preset):
    """LLM2Vec: for models trained with bidirectional attention; on others it shows the effect of the switch alone."""

    name = "llm2vec"
    sentence = "Attention in both directions, and the mean over the text's own tokens behind an instruction"
    source = "BehnamGhader et al. 2024, arXiv 2404.05961"
    Options: ClassVar[type[PresetOptions]] = Llm2VecOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {
        "released": {}, "inst": {"wrapper": "inst"}, "llama-3": {"wrapper": "llama-3"},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        before, after = _AROUND[asked.wrapper]
        instruction = f"{asked.instruction.strip()} " if asked.instruction else ""
        return PresetReading(
            self.spelled, (f"{before}{instruction}{{}}{after}",), pooler=asked.pooling, over="alone", layer=asked.layer,
            bidirectional=asked.attention == "bidirectional",
        )


class WeightedMean(Preset):
    """SGPT's position-weighted mean pooling, without SGPT's training."""

    name = "weighted-mean"
    sentence = "The mean over all tokens of the text alone, in which token i counts i times"
    source = "Muennighoff 2022 (SGPT), arXiv 2202.08904"
    Options: ClassVar[type[PresetOptions]] = PresetOptions

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, pooler="weighted_mean", layer=self.options.layer, own_ends=True)
