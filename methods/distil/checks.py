"""Which of the options go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle
from stsbench.training.api.ranking_options import refuse_code

from .options import DistilOptions

LOSSES = {"vectors": ("mse", "cosine"), "similarities": ("mse", "kl"), "ranks": ("listmle", "listnet")}


def check_options(options: DistilOptions) -> None:
    """Raises StsbenchError, one line, for an option without an effect."""
    refuse_code(options.teachers)
    if not options.teachers:
        raise StsbenchError("options.teachers is empty: name an encoder, [{model: NAME}]")
    if len(options.teachers) == 1 and options.teachers[0].weight != 1:
        raise StsbenchError("options.teachers: the weight of a single teacher has no effect: leave it at 1")
    losses = LOSSES[options.objective]
    if options.loss not in losses:
        raise StsbenchError(
            f"options.loss {options.loss} does not go with options.objective {options.objective}: set it to "
            f"{' or '.join(losses)}"
        )
    if options.objective != "vectors":
        why = "only options.objective vectors compares vectors"
        refuse_idle(options, ("projection", "pca_texts", "center"), why)
    if options.projection in ("linear", "none"):
        refuse_idle(options, ("pca_texts", "center"), f"options.projection is {options.projection}")
    if options.loss in ("mse", "cosine"):
        refuse_idle(options, ("teacher_temperature", "student_temperature"), f"options.loss is {options.loss}")
    if options.loss == "listmle":
        refuse_idle(options, ("teacher_temperature",), "listmle knows only the order of the teachers' similarities")


def projection_of(options: DistilOptions, student: int, teachers: int) -> str:
    """pca, linear or none, for vectors of these widths. Raises StsbenchError, one line, where they do not go together."""
    kind = options.projection
    if kind == "auto" and teachers >= student:
        kind = "pca" if teachers > student else "none"
    if kind == "linear" or (kind == "pca" and teachers >= student) or (kind == "none" and teachers == student):
        return kind
    advice = "pca or linear" if teachers > student else "linear"
    raise StsbenchError(
        f"options.projection {options.projection}: the teachers have {teachers} numbers and the student {student}; "
        f"set it to {advice}"
    )
