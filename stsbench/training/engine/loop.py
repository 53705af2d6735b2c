"""The training loop, which trains every stage of every method."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from accelerate import Accelerator

from stsbench.errors import StsbenchError
from stsbench.processes import StopNow, StopRequest, Terminated
from stsbench.registry import calling
from stsbench.torch_state import autocast_once
from stsbench.training.api.batch import Batch, Term, Views
from stsbench.training.api.checks import check_terms
from stsbench.training.engine.callbacks import RunLog, TrainingCallback, to_scalars
from stsbench.training.engine.checkpoint import Checkpoints, Position
from stsbench.training.engine.objective import Objective
from stsbench.training.engine.optimiser import Average, Overflow, learning_rate, set_step, steps_taken
from stsbench.training.engine.passes import ROWS, CountCheck, check_two_views, everywhere, part_shares
from stsbench.training.engine.selection import AVERAGED, UNDEFINED, Selection, diagnosed
from stsbench.training.engine.shards import Whole, full, inner_method, local
from stsbench.training.engine.stage import Stage, stage_views
from stsbench.training.modules.backbone import method_backbones
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.rows.batches import split_shares, stream, to_batch

LOG_EVERY = 10  # steps in a line of the log: reading the loss after each step would wait for the device


class LossError(StsbenchError):
    """The loss, its gradient or a weight is NaN or infinite."""


class Loop:
    """The training of one stage of a method by the terms of `objective` (the method itself, or a recipe's changes of it).

    wrapped: the objective after accelerate's `prepare`, as is `optimiser`; whole: gives access to the method with all of its
    weights; stop: a request to this process.
    """

    def __init__(
        self, recipe: Recipe, stage: Stage, objective: Objective, whole: Whole, wrapped: Any, optimiser: Any,
        accelerator: Accelerator, *, run_log: RunLog, checkpoints: Checkpoints, selection: Selection | None,
        average: Average | None = None,
        stop: StopRequest, callback: TrainingCallback | None = None, tracked_from: int | None = None,
        log: Callable[[str], None] = print,
    ) -> None:
        self.recipe, self.stage, self.settings = recipe, stage, stage.settings
        self.method, self.objective, self.whole, self.wrapped = inner_method(objective), objective, whole, wrapped
        self.optimiser, self.accelerator = optimiser, accelerator
        self.run_log, self.checkpoints, self.selection, self.callback = run_log, checkpoints, selection, callback
        self.log, self.stop, self.average = log, stop, average
        self.schedule = stage.schedule or stage.batches.steps
        self.tracked_from = tracked_from  # steps of the stages before, for trackers; None: no tracker
        self.weights = [weight for weight in self.method.parameters() if weight.requires_grad]
        self._gathered: list[tuple[int, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]] = []
        self.overflow = Overflow(optimiser.optimizer) if accelerator.scaler is not None else None
        self._taken, self._done = steps_taken(optimiser), 0  # the optimiser's steps before this run, and those tried since
        # steps in which float16 overflowed, in this stage and since the log's last line; tensors, so that no step waits
        self._all_skipped: int | torch.Tensor = 0
        self._skipped: int | torch.Tensor = 0
        self._since, self._rows_done = time.monotonic(), 0
        self._began = self._saved = time.monotonic()  # times of the stage's start, less interruptions, and last checkpoint
        self._requested: torch.Tensor | None = None  # how many processes asked, after the last step, to stop or to save

    def run(self, position: Position, unlogged: Mapping[str, Any] = MappingProxyType({})) -> Position:
        """Train from `position` to the stage's last step; return the position there. unlogged: from `Checkpoints.load`.

        Raises LossError, with the step, for a loss or a gradient that is NaN or infinite. A signal raises its error after a
        checkpoint is written: at the end of a step, or at once during scoring.
        """
        steps = self.stage.batches.steps
        if self.callback:
            self.callback.stage(self.stage.name, steps, position.step)
        self._began = time.monotonic() - position.seconds
        if position.step == 0:
            more: dict[str, Any] = {}
            if self.stage.labelled is not None:
                batches = self.stage.labelled.batches
                more = {"labelled_examples": len(batches.rows), "labelled_batch_size": batches.size}
            if self.recipe.selection.over == "all" and self.selection is not None:  # the best may be of an earlier stage
                best = position.best
                more["best"] = best and {
                    "name": self.selection.name, "score": best.score, "stage": best.stage, "step": best.step
                }
            self.run_log.write(
                "start", stage=self.stage.name, steps=steps, examples=len(self.stage.batches.rows),
                batch_size=self.settings.batch_size, seed=self.recipe.seed, **more,
            )
            if self.selection:
                self._dev(position, candidate=False)  # the score before training is logged, but is never the best
        self.wrapped.train()
        self._since, self._rows_done = time.monotonic(), 0
        self._restore(unlogged)
        if position.unscored:
            self._complete(position)
        for step in range(position.step, steps):
            self._step(step)
            done = position.step = step + 1
            if self.callback:
                self.callback.doing(done)
            # whether a development score, or the stage's end, follows this step
            scored, saved = done % self.recipe.selection.every == 0 or done == steps, self._saved_after(done)
            position.unscored = scored
            if done % LOG_EVERY == 0 or scored or saved:
                self._write(done)
            stopped, due = self._requests()
            if stopped or (due and not saved) or (done == steps and self.selection):
                self._save(position)
            if stopped:
                self._stop()
            self._complete(position)
        return position

    def _saved_after(self, done: int) -> bool:
        """Return whether a checkpoint is due after step `done` and its score, by the number of steps."""
        every = self.recipe.checkpoint_every or self.recipe.selection.every
        return done % every == 0 or done == self.stage.batches.steps

    def _complete(self, position: Position) -> None:
        """Finish a step: score the encoder, log the stage's end, write a checkpoint, where these are due."""
        done = position.step
        if self.selection and position.unscored:
            regular = done % self.recipe.selection.every == 0
            self._dev(position, candidate=regular or self.recipe.selection.at_end)
        position.unscored = False
        if done == self.stage.batches.steps:
            self.run_log.write("end", stage=self.stage.name, step=done, **self._averaged())
        if self._saved_after(done):
            self._save(position)

    def _save(self, position: Position) -> None:
        self._check_weights(position.step)
        if self.callback:
            self.callback.doing(position.step, "saving a checkpoint")
        position.log, position.seconds = self.run_log.position(), time.monotonic() - self._began
        unlogged = {"steps": self._gathered, "skipped": self._skipped} if self._gathered else None
        with self.whole.weights() as method:
            self.checkpoints.save(position, method, self.optimiser, unlogged, self.average)
        self._saved, self._requested = time.monotonic(), None

    def _restore(self, unlogged: Mapping[str, Any]) -> None:
        """Restore the losses of steps since the log's last line, so that a resumed run writes the same lines."""
        device = self.accelerator.device
        self._gathered = [
            (step, {name: value.to(device) for name, value in terms.items()}, loss.to(device), norm.to(device))
            for step, terms, loss, norm in unlogged.get("steps", ())
        ]
        self._skipped = unlogged.get("skipped", 0)
        if isinstance(self._skipped, torch.Tensor):
            self._skipped = self._skipped.to(device)

    def _requests(self) -> tuple[bool, bool]:
        """Return whether to stop now, and whether a checkpoint is due by the time. Several processes have to agree, and act
        on the requests of the step before, which are known without waiting for the device."""
        minutes = self.recipe.checkpoint_minutes
        due = minutes is not None and time.monotonic() - self._saved >= 60 * minutes
        asked = self.stop.asked is not None
        if self.accelerator.num_processes == 1:
            return asked, due
        device, before = self.accelerator.device, self._requested
        flags = [torch.full((), float(flag), device=device) for flag in (asked, due and self.accelerator.is_main_process)]
        self._requested = self.accelerator.reduce(torch.stack(flags), "sum")
        return (False, False) if before is None else (bool(before[0]), bool(before[1]))

    def _stop(self) -> None:
        """Let the signal that was held back act. All processes end, even if only one of them was sent the signal."""
        self.stop.deliver()
        if self.accelerator.num_processes > 1:
            raise Terminated

    def _step(self, step: int) -> None:
        parts = self.stage.batches.step(step)
        batches = [self._batch(rows, step, number) for number, rows in enumerate(parts)]
        # int() may wait for the step before: hence after the batches are made, and not for adam torch, which ignores `taken`
        taken = self._taken + self._done - (0 if self.settings.adam == "torch" else int(self._all_skipped))
        set_step(self.optimiser, learning_rate(step, self.schedule, self.settings), taken, self.settings)
        if step == 0:
            with self.whole.weights(everywhere=True) as method:
                check_two_views(method, self.recipe, batches[0], self.accelerator, self.stage.name)
        counts, shares = self._counted(batches)
        check, during = CountCheck(self.method), f"at step {step + 1} of stage {self.stage.name}"
        exact = self.accelerator.mixed_precision == "no"
        values: dict[str, list[torch.Tensor]] = {}
        items: dict[str, int | torch.Tensor] = {}
        weights: dict[str, float] = {}
        loss = torch.zeros((), device=self.accelerator.device)
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            synchronised = nullcontext() if last else self.accelerator.no_sync(self.wrapped)
            with synchronised, nullcontext() if exact else autocast_once():
                # under FSDP2 accelerate does not wrap the forward pass in autocast
                with self.accelerator.autocast() if self.accelerator.is_fsdp2 else nullcontext():
                    terms = calling(type(self.method), "forward", partial(self.wrapped, batch), during)
                terms = check_terms(self.method, terms)
                scaled, counted = self._scaled(terms)
                if len(batches) > 1:
                    check(terms, counts[number], batch)
                    share = shares[number]
                    scaled = {name: value * share.get(name, share[ROWS]) for name, value in scaled.items()}
                part = sum((terms[name].weight * value for name, value in scaled.items()), loss.new_zeros(())) / len(batches)
                self.accelerator.backward(part)
            loss += part.detach()
            for name, value in scaled.items():
                values.setdefault(name, []).append(value.detach())
                items[name] = items.get(name, 0) + counted[name]
                weights[name] = weights.get(name, 0.0) + (shares[number].get(name, shares[number][ROWS]) if shares else 1.0)
        if step == 0 and self.settings.chunk:
            self._check_chunk()
        norm = self.accelerator.clip_grad_norm_(self.weights, self.settings.clip or math.inf)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self._done += 1
        if self.average is not None:
            self.average.update(step + 1)
        if self.overflow:
            left_out = self.overflow.left_out(self.optimiser.step_was_skipped)
            self._skipped, self._all_skipped = self._skipped + left_out, self._all_skipped + left_out
        means = {}
        for name, parts_of in values.items():  # a term that some passes lack is averaged over the passes that have it
            mean = torch.stack(parts_of).mean()
            mean = mean if len(parts_of) == len(batches) else mean * len(parts_of) / weights[name]
            means[name] = _of_some(mean, items[name])
        self._gathered.append((step + 1, means, loss, full(norm.detach())))
        self._rows_done += sum(map(len, parts))

    def _check_chunk(self) -> None:
        """Raise StsbenchError if training.chunk splits no forward pass of any process: it would have no effect."""
        cuts = any(backbone.chunked for backbone in method_backbones(self.method))
        chunked = torch.tensor(float(cuts), device=self.accelerator.device)
        if not bool(self.accelerator.reduce(chunked, "sum")):
            raise StsbenchError(
                f"training.chunk {self.settings.chunk} has no effect in stage {self.stage.name}: no pass of the encoder "
                "with a gradient reads more texts; lower it, or set it to null"
            )

    def _counted(self, batches: list[Batch]) -> tuple[list[dict[str, int]], list[dict[str, float]]]:
        """Return, for several forward passes, the counts of each in this process, and their `part_shares`."""
        if len(batches) == 1:
            return [], []
        counts = [{**calling(type(self.method), "counts", partial(self.objective.counts, batch)), ROWS: len(batch)}
                  for batch in batches]
        if self.accelerator.num_processes == 1:
            return counts, part_shares(counts)
        device = self.accelerator.device
        return counts, part_shares(counts, lambda table: self.accelerator.reduce(table.to(device), "sum").cpu())

    def _batch(self, rows: Any, step: int, number: int) -> Batch:
        stage, seed = self.stage, self.recipe.seed
        rng = stream(seed, "views", stage.key, step, number)
        batch = self._share(stage_views(self.objective, self.method, stage.rows(rows), rng, stage.labelled_only))
        batch.labelled_only = stage.labelled_only
        if stage.labelled:
            (rows,) = stage.labelled.batches.step(stage.batches.forward_pass(step, number))
            rng = stream(seed, "labelled views", stage.key, step, number)
            views = stage_views(self.objective, self.method, stage.labelled.rows(rows), rng, labelled=True)
            batch.labelled = self._share(views)
        return batch

    def _share(self, views: Views) -> Batch:
        """Return this process's share of a batch."""
        accelerator, count = self.accelerator, len(views.tokens[0])
        if count < accelerator.num_processes:
            raise StsbenchError(
                f"a batch has {count} examples for {accelerator.num_processes} processes: set training.drop_last, or fewer "
                "processes"
            )
        shares = split_shares(count, accelerator.num_processes, accelerator.process_index)
        return to_batch(views, shares, self.stage.tokens_pad, accelerator.device)

    def _scaled(self, terms: dict[str, Term]) -> tuple[dict[str, torch.Tensor], dict[str, int | torch.Tensor]]:
        """Return each term scaled such that its mean over processes, which DDP computes, is the mean over all items; and the
        number of all items of each term."""
        processes = self.accelerator.num_processes
        if processes == 1:
            return {name: term.value for name, term in terms.items()}, {name: term.count for name, term in terms.items()}
        counts = torch.tensor([float(term.count) for term in terms.values()], device=self.accelerator.device)
        total = self.accelerator.reduce(counts.clone(), "sum")
        factors = processes * counts / total.clamp(min=1)
        scaled = {name: term.value * factor for (name, term), factor in zip(terms.items(), factors, strict=True)}
        return scaled, dict(zip(terms, total, strict=True))

    def _write(self, done: int) -> None:
        """Write a line of the log on the steps since the last line. Raises LossError for a loss that is NaN or infinite."""
        # a method may have other terms in other steps: the mean of a term is over the steps that have it
        names = list(dict.fromkeys(name for _, terms, *_ in self._gathered for name in terms))
        absent = self._gathered[0][2].new_tensor(math.nan)
        rows = [[loss, norm, *(terms.get(name, absent) for name in names)] for _, terms, loss, norm in self._gathered]
        values = torch.stack([torch.stack([value.float() for value in row]) for row in rows])
        if self.accelerator.num_processes > 1:
            values = self.accelerator.reduce(values, "mean")
        table = values.cpu()
        for (step, *_), (loss, norm) in zip(self._gathered, table[:, :2].tolist(), strict=True):
            scaled = self.accelerator.scaler is not None  # the scaler skips steps with an infinite gradient
            if not math.isfinite(loss) or not (scaled or math.isfinite(norm)):
                what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
                raise LossError(f"{what} at step {step} of stage {self.stage.name}{self._last_good()}")
        skipped = int(self._skipped)
        if skipped == len(self._gathered) == LOG_EVERY:
            raise LossError(
                f"float16 overflowed in each of the {LOG_EVERY} steps up to step {done} of stage {self.stage.name}"
                f"{self._last_good()}, or use --dtype bf16"
            )
        norms = table[:, 1][table[:, 1].isfinite()].double()
        mean = [*table[:, :2].double().mean(0).tolist(), *table[:, 2:].double().nanmean(0).tolist()]
        more = {"skipped_steps": skipped} if self.accelerator.scaler is not None else {}
        now = time.monotonic()
        speed = self._rows_done / max(now - self._since, 1e-9)
        line = self.run_log.write(
            "train", stage=self.stage.name, step=done, epoch=round(self.stage.batches.epoch(done), 6), loss=mean[0],
            terms={name: value for name, value in zip(names, mean[2:], strict=True) if not math.isnan(value)},
            learning_rate=learning_rate(done - 1, self.schedule, self.settings),
            gradient_norm=float(norms.mean()) if len(norms) else None, sentences_per_second=round(speed, 2), **more,
            **calling(type(self.method), "metrics", self.method.metrics),
        )
        self._gathered, self._skipped, self._since, self._rows_done = [], 0, now, 0
        if self.callback:
            self.callback.step(done, mean[0], speed)
        self._tracked(line, done)

    def _check_weights(self, done: int) -> None:
        """Raise LossError if a weight is NaN or infinite, which a finite loss before the step does not exclude."""
        finite = torch.stack([local(weight.detach()).isfinite().all() for weight in self.weights]).all()
        if not everywhere(bool(finite), self.accelerator):
            raise LossError(f"a weight is NaN or infinite after step {done} of stage {self.stage.name}{self._last_good()}")

    def _last_good(self) -> str:
        newest = self.checkpoints.newest()
        if newest is None:
            return ": there is no checkpoint before it; lower training.learning_rate or raise training.warmup"
        position, folder = newest
        return f": the last good checkpoint, step {position.step}, is kept in {folder}; lower training.learning_rate"

    def _dev(self, position: Position, candidate: bool) -> None:
        """Score the encoder on development data, in the main process. candidate: whether to keep the weights if best."""
        selection = self.selection
        assert selection is not None
        value, numbers = math.nan, dict[str, Any]()
        if self.callback:
            self.callback.doing(position.step, f"scoring {selection.name}")
        stopped = False
        with self.whole.weights() as method:
            if self.accelerator.is_main_process:
                try:
                    with self.stop.at_once(), self._mean():
                        value, more = selection(method, trained=position.step > 0 or position.number > 0)
                        numbers = {**more, **diagnosed(method)}
                except StopNow:
                    stopped = True
        if self.accelerator.num_processes > 1:
            from accelerate.utils import broadcast

            both = torch.tensor([value, float(stopped)], dtype=torch.float64, device=self.accelerator.device)
            value, stopped = broadcast(both).tolist()
        if stopped:
            if 0 < position.step < self.stage.batches.steps:  # at the stage's end a checkpoint was already written
                self._save(position)
            self._stop()
            return self._dev(position, candidate)
        # a score of NaN is undefined and never the best; nor are weights before the first that are averaged
        candidate = candidate and (self.average is None or self.average.count > 0)
        best = candidate and (position.best is None or value > position.best.score) and math.isfinite(value)
        if best:
            self._check_weights(position.step)
            with self.whole.weights() as method, self._mean():
                position.best = self.checkpoints.save_best(self.stage.name, position.step, value, method)
        score = value if math.isfinite(value) else None
        line = self.run_log.write(
            "dev", stage=self.stage.name, step=position.step, name=selection.name, score=score, best=best,
            **numbers, **self._averaged(),
        )
        if UNDEFINED in numbers:
            self.log(
                f"warning: stage {self.stage.name}, step {position.step}: no score on {selection.name}, as "
                f"{numbers[UNDEFINED]}; it counts as the worst, and the training goes on"
            )
        if self.callback:
            self.callback.dev(position.step, selection.name, score, best)
            self.callback.doing(position.step)
        self._tracked(line, position.step)
        self._since, self._rows_done = time.monotonic(), 0

    def _mean(self) -> AbstractContextManager[None]:
        """Give the method, within the block, the weights that are scored and kept: their mean, with training.average."""
        return nullcontext() if self.average is None else self.average.swapped()

    def _averaged(self) -> dict[str, int]:
        """Return the entry of a log's line with the number of averaged steps, {} without training.average."""
        return {} if self.average is None else {AVERAGED: self.average.count}

    def _tracked(self, line: dict[str, Any], step: int) -> None:
        if self.tracked_from is not None:
            self.accelerator.log(to_scalars(line), step=self.tracked_from + step)


def _of_some(mean: torch.Tensor, items: int | torch.Tensor) -> torch.Tensor:
    """Return `mean`, or NaN, which the log leaves out, if it is over no items. Does not wait for a GPU."""
    if isinstance(items, torch.Tensor):
        return mean.masked_fill(items == 0, math.nan)
    return mean if items else torch.full_like(mean, math.nan)
