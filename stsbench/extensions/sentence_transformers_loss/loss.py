"""A method as a loss of sentence-transformers' trainer: the same module as in `stsbench train`, fed by their collator."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stsbench.config import validate
from stsbench.encoders.forward.model import dropout_rates
from stsbench.errors import StsbenchError, warning_log
from stsbench.extensions.sentence_transformers_loss.backbone import (
    SurroundedBatch,
    check_precision,
    shared_backbone,
    surroundings,
)
from stsbench.extensions.sentence_transformers_loss.columns import Columns, unpadded, whole_groups
from stsbench.registry import calling
from stsbench.torch_random import Generators, drawing
from stsbench.torch_state import fresh_torch
from stsbench.training.api.batch import Batch, Shares
from stsbench.training.api.checks import check_instance, check_rates, check_terms
from stsbench.training.api.labelled import PAIR
from stsbench.training.api.method import Method
from stsbench.training.api.options import Options
from stsbench.training.api.views import PAIRS
from stsbench.training.engine.selection import fixed_randomness
from stsbench.training.engine.stage import stage_views
from stsbench.training.modules.backbone import Backbone
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.methods import load_method, method_name
from stsbench.training.rows.batches import stream, to_batch

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SCORED = ("sentence1", "sentence2", "score")


def as_sentence_transformers_loss(
    method: str | Options, model: SentenceTransformer, *, classes: int = 3, seed: int = 42
) -> MethodLoss:
    """Return a method's loss for `SentenceTransformerTrainer(model, args, train_dataset, loss=...)`, or any loop that calls
    it.

    method: its options, as methods.SimCSE(temperature=0.07), or its name, for the defaults of the paper; model: the
    SentenceTransformer that is trained, of Transformer and Pooling. classes: how many labels there are, where the method
    learns from labelled pairs (SBERT, ConSERT's settings sup and joint); seed: of the weights that the method adds and of
    what it draws to make its views.

    The method runs as in `stsbench.train`, on the model's own weights: the trainer's ten steps are those of our loop bit for
    bit, where rows, optimiser and seeds are. What the method adds (a head, a classifier, a second encoder) are parameters of
    the loss: the trainer trains them, clips without them, and exports none; its checkpoints have them, so that
    resume_from_checkpoint goes on exactly, or is refused. What stands around the model's forward (MatryoshkaLoss,
    AdaptiveLayerLoss, a hook) and adapters in its transformer act as with the library's own losses. The columns of the data
    set are read by their order: one is sentences; two to four are anchors, positives and hard negatives; two and a label are
    pairs with a class or a score. Texts are cut at model.max_seq_length; a method that changes words reads them as decoded
    from the tokens; of one that takes rows in groups (CT) the rows beyond the last whole group of a batch are left out.

    Raises StsbenchError, one line with the reason, for a method that cannot be a loss: one that reads following sentences
    (CMLM), whole documents (DeCLUTR) or the whole text in advance (SARCSE with self_adaptive), pools at a template's mask
    (PromptBERT, DiffAug), or has two stages (SBERT's nli-sts: make a loss of nli, then one of sts). A StsbenchWarning says
    what is otherwise than in the paper: the pooler that is tested, learning rates, a Normalize.

    >>> from stsbench import as_sentence_transformers_loss
    >>> as_sentence_transformers_loss("declutr", None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: declutr cannot be a loss of sentence-transformers: it reads whole documents; ...
    """
    log = warning_log()
    for what, number in (("classes", classes), ("seed", seed)):
        if not isinstance(number, Integral) or isinstance(number, bool) or number < 0:
            raise StsbenchError(f"{what}={number!r}: give a whole number that is not negative")
    name, options = (method, None) if isinstance(method, str) else (method_name(method), method)
    kind = load_method(name)
    plan = MethodPlan(kind, validate(kind.Options, {}, name, "options.") if options is None else options)
    _check_plan(plan)
    with fresh_torch(gradients=True), drawing(Generators(seed)):
        backbone = shared_backbone(model, log)
        made = _build(plan, backbone, classes)
        loss = MethodLoss(model, made, plan, classes, seed)
    for line in _otherwise(made):
        log(f"warning: {line}")
    return loss


class MethodLoss(nn.Module):
    """The loss of a method. model: the SentenceTransformer; method: the Method on the model's weights."""

    steps: Tensor  # () number of batches so far, which seeds the next batch's draws, as in `stsbench train`

    def __init__(self, model: Any, method: Method, plan: MethodPlan, classes: int, seed: int) -> None:
        super().__init__()
        self.model, self.method = model, method  # in this order, so that shared weights are named as the model's
        self.plan, self.classes, self.seed = plan, classes, seed
        (self.stage,) = plan.stages
        self.labelled_only = plan.labelled(self.stage) == "only"
        self.register_buffer("steps", torch.tensor(0))
        self._surrounded: SurroundedBatch | None = None
        self._kept: dict[str, Any] = {}  # what the trainer's optimiser keeps of this loss, with its checkpoints

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the sum of the method's terms, each by its weight, for one batch: what the collator made of each column.

        Raises StsbenchError, one line, for columns or labels that are not the method's.
        """
        self._check_model()
        self._join_checkpoints()
        training = self.model.training
        self.method.train(training)  # the trainer sets the mode of the model alone
        surrounded, around = self._surrounded, surroundings(self.model)
        if around is None or surrounded is None or surrounded.columns is not sentence_features:
            batch = self._batch(list(sentence_features), labels)
            self.steps.add_(int(training))
            surrounded = None if around is None else SurroundedBatch(sentence_features, batch, around)
        else:
            batch = surrounded.batch
        self._surrounded = surrounded
        reading = _precision(self.model, batch.ids.device)
        if surrounded is not None:  # accelerate's autocast is in the forward that is called
            reading = surrounded.read_through(self.model, self.method)
        with reading, nullcontext() if training else _measuring(self.method):
            terms = calling(type(self.method), "forward", lambda: self.method(batch))
        with nullcontext() if surrounded is None else torch.no_grad():  # another layer may have nothing that is trained
            check_terms(self.method, terms)
        loss = sum((term.weight * term.value for term in terms.values()), torch.zeros((), device=batch.ids.device))
        if surrounded is not None and loss.requires_grad:
            loss.register_hook(self._forget)
        return loss

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, without that of a running training."""
        return {**vars(self), "_surrounded": None, "_kept": {}}

    def _forget(self, gradient: Tensor) -> None:
        """Whoever calls for a batch several times has done so before its gradient."""
        self._surrounded = None

    def _additions(self) -> dict[str, Tensor]:
        """Return what the loss adds to the model: weights, a queue, copies of the model, how many steps were drawn."""
        shared = {id(part) for part in (*self.model.parameters(), *self.model.buffers())}
        state = self.state_dict(keep_vars=True)
        return {name: part.detach() for name, part in state.items() if id(part) not in shared}

    def _join_checkpoints(self) -> None:
        """Let the trainer that calls, if one does, store what is the loss's own with its checkpoints, and take it from the
        one that it resumed from.

        A trainer's checkpoint has the model and the optimiser's state, of which torch stores and loads every entry: one is
        the loss's. Raises StsbenchError where the checkpoint has none, or that of another loss.
        """
        trainer, checkpoint = _trainer()
        state = getattr(getattr(trainer, "optimizer", None), "state", None)
        if state is None:
            return
        if not any(entry is self._kept for entry in state.values()):
            losses = trainer.loss if isinstance(trainer.loss, dict) else {"": trainer.loss}
            for name, loss in losses.items():
                for path, part in loss.named_modules():
                    if isinstance(part, MethodLoss):
                        part._join(state, f"stsbench: {name}.{path}", checkpoint)
        self._kept.update(self._additions())  # the same tensors, unless the loss was moved

    def _join(self, state: dict[Any, Any], key: str, checkpoint: str | None) -> None:
        settings = {"method": self.method.name, **self.plan.options.model_dump(), "classes": self.classes, "seed": self.seed}
        made = {name: repr(value) for name, value in settings.items()}
        kept = {"made": made, **self._additions()}
        if checkpoint is not None:
            if key not in state:
                raise StsbenchError(
                    f"{checkpoint} has nothing of {self.method.name}'s loss, so that a resumed training would be another "
                    "one: resume from one with an optimizer.pt (save_only_model=False) that this loss was trained to"
                )
            stored: dict[str, Any] = state[key]
            differing = [name for name, value in made.items() if stored["made"].get(name) != value]
            if differing or stored.keys() != kept.keys():
                what = f"with {differing[0]} {stored['made'].get(differing[0])}" if differing else "of other weights"
                raise StsbenchError(f"the checkpoint is of a loss {what}, and this one is not: make the same loss to resume")
            self.load_state_dict({name: value for name, value in stored.items() if name != "made"}, strict=False)
        self._kept = state[key] = kept

    def get_config_dict(self) -> dict[str, Any]:
        """For the trainer's model card."""
        return {"method": self.method.name, **self.plan.options.model_dump()}

    def _batch(self, columns: Sequence[Mapping[str, Tensor]], labels: Tensor | None) -> Batch:
        method, plan = self.method, self.plan
        tokens = [unpadded(column) for column in columns]
        names = self._names(len(tokens), labels)
        if labels is not None and (not isinstance(labels, Tensor) or labels.shape != (len(tokens[0]),)):
            got = f"shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
            raise StsbenchError(f"labels: {got} for a batch of {len(tokens[0])} rows: give a tensor with a number for each")
        self._check_labels(labels)
        size = whole_groups(len(tokens[0]), plan.needs.group_size, method.name)
        rows = Columns(names, [column[:size] for column in tokens], method.backbone.tokenizer, labels)
        key = plan.stream_number(self.stage)
        training = self.model.training
        step = int(self.steps)
        rng = stream(self.seed, "views", key, step) if training else stream(self.seed, "held-out views", key)
        views = stage_views(method, method, rows, rng, self.labelled_only)
        pad = method.backbone.tokenizer.pad_token_id or 0
        batch = to_batch(views, Shares((len(views.tokens[0]),)), pad, columns[0]["input_ids"].device)
        batch.labelled_only = self.labelled_only
        return batch

    def _names(self, columns: int, labels: Tensor | None) -> tuple[str, ...]:
        """Return the role of each column, "" for one that the method does not use."""
        what = f"{columns} column{'s' * (columns != 1)}{' and a label' if labels is not None else ''}"
        if columns > len(PAIRS) or (labels is not None and columns != 2):
            raise StsbenchError(f"a data set of {what}: give two columns and a label, or one to {len(PAIRS)} columns")
        available = PAIRS[:columns] if columns > 1 else ("sentence",)
        if labels is not None:
            available = PAIR if self.labelled_only else SCORED
        choose = self.plan.labelled_roles if self.labelled_only else self.plan.roles
        try:
            used = choose(available)
        except StsbenchError as error:
            raise StsbenchError(f"a data set of {what} is read as {', '.join(available)}: {error}") from error
        return tuple(role if role in used else "" for role in available[:columns])

    def _check_labels(self, labels: Tensor | None) -> None:
        allowed = (0, self.classes - 1) if self.labelled_only else self.plan.needs.score_range
        if labels is None or allowed is None:
            return
        low, high = float(labels.min()), float(labels.max())
        if self.labelled_only and labels.is_floating_point():
            raise StsbenchError(f"{self.method.name} learns classes by these options, and the labels are not whole numbers")
        if not (low >= allowed[0] and high <= allowed[1]):  # NaN is neither
            raise StsbenchError(
                f"labels go from {low:g} to {high:g}, and {self.method.name} takes {allowed[0]:g} to {allowed[1]:g}: set "
                f"{'classes' if self.labelled_only else 'the scale of its options'}"
            )

    def _check_model(self) -> None:
        """Raise StsbenchError where the trainer trains other weights than the method's, in 16 bits, or in more processes
        than one."""
        if not any(part is self.method.backbone.model for part in self.model.modules()):
            raise StsbenchError(
                "the trainer made another model (model_init) than the one that the loss was made for: give it "
                "loss=lambda model: as_sentence_transformers_loss(..., model)"
            )
        check_precision(self.method.backbone.model)
        shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        if shared and torch.distributed.get_world_size() > 1:
            raise StsbenchError(
                "a method runs the model itself, and the trainer's processes would not hear of its gradients: train in one "
                "process, or by stsbench.train in several"
            )


def _trainer() -> tuple[Any, str | None]:
    """Return the trainer that is calling, and the checkpoint that it resumed from; None, None where there is none.

    A loss is not told of either, so that they are looked for among the callers.
    """
    from transformers import Trainer

    trainer: Any = None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if trainer is None and isinstance(owner, Trainer):
            trainer = owner
        if trainer is not None and owner is trainer and (checkpoint := frame.f_locals.get("resume_from_checkpoint")):
            return trainer, str(checkpoint)
        frame = frame.f_back
    return trainer, None


def _check_plan(plan: MethodPlan) -> None:
    """Raise StsbenchError, one line, for a method whose views need more than the texts of a batch."""
    needs, stages = plan.needs, plan.stages
    reason = None
    if needs.whole_texts:
        reason = "it reads whole documents"
    elif needs.reach or needs.usable is not None:
        reason = "it reads sentences that follow in a document"
    elif len(stages) > 1:
        reason = f"by these options it has the stages {' and '.join(stages)}, one after the other"
    elif plan.labelled(stages[0]) == "with":
        reason = "a batch of labelled rows goes with every batch"
    if reason is not None:
        raise _refused(plan, reason)


def _build(plan: MethodPlan, backbone: Backbone, classes: int) -> Method:
    """Return the method on the backbone, ready for its stage."""
    if plan.needs.dropout and not any(dropout_rates(backbone.model.config).values()):
        raise _refused(plan, "its two views differ by dropout alone, and the model has none (config_kwargs)")
    kind, (stage,) = plan.kind, plan.stages
    trainable = [(weight, weight.requires_grad) for weight in backbone.parameters()]
    rows = SimpleNamespace(roles=PAIR, store=SimpleNamespace(label_names=range(classes)))
    try:
        method = calling(kind, "__init__", lambda: kind(backbone, plan.options))
        calling(kind, "prepare", lambda: method.prepare(_NoText()))
        if backbone.pooler == "last" and method.inference().prompt is not None:
            raise StsbenchError("texts stand inside options.template, which the trained model would not store")
    except StsbenchError as error:
        raise _refused(plan, str(error), f" with the pooler {backbone.pooler}") from error
    check_instance(method, backbone)
    if plan.labelled(stage) == "only":
        calling(kind, "prepare_labelled", lambda: method.prepare_labelled(rows))
    method.to(backbone.model.device)
    calling(kind, "start_stage", lambda: method.start_stage(stage))
    for weight, before in trainable:  # what the model's owner froze, a LoRA's base among it, stays so
        weight.requires_grad_(before and weight.requires_grad)
    return method


def _otherwise(method: Method) -> list[str]:
    """Return what the trainer, which knows the model and a loss alone, does otherwise than our loop."""
    lines, tested, backbone = [], method.inference(), method.backbone
    if tested.pooler != backbone.pooler or tested.dense is not None:
        lines.append(f"{method.name} is tested with the pooler {tested.pooler}, and the trained model has {backbone.pooler}")
    if rates := check_rates(method):
        parts = ", ".join(f"{prefix}* at {factor:g} times" for prefix, factor in rates.items())
        lines.append(f"{method.name} trains {parts} the learning rate: set learning_rate_mapping in the training arguments")
    return lines


def _refused(plan: MethodPlan, reason: str, of: str = "") -> StsbenchError:
    return StsbenchError(f"{plan.name} cannot be a loss of sentence-transformers{of}: {reason}; stsbench.train trains it")


@contextmanager
def _measuring(method: Method) -> Iterator[None]:
    """Within, a method draws the same every time, and its counters stay where they are."""
    buffers = [(buffer, buffer.clone()) for buffer in method.buffers()]
    with fixed_randomness():
        yield
    for buffer, before in buffers:
        if not torch.equal(buffer, before):
            buffer.copy_(before)


class _NoText:
    """In the place of all rows: nobody has them here."""

    def __getattr__(self, name: str) -> Any:
        raise StsbenchError("before its first step it reads all of the training text")

    def __len__(self) -> int:
        raise StsbenchError("before its first step it reads all of the training text")


def _precision(model: nn.Module, device: torch.device) -> AbstractContextManager[Any]:
    """Return the autocast (bf16, fp16 of the training arguments) that accelerate puts around the forward of the model it
    prepared, which is not called here."""
    from accelerate.state import AcceleratorState

    if not any("_original_forward" in vars(part) for part in model.modules()):
        return nullcontext()
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(AcceleratorState().mixed_precision)
    return nullcontext() if kind is None else torch.autocast(device.type, dtype=kind)
