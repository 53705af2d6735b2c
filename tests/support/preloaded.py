"""What every process that training_runs starts has at hand: imported, and computed, once in the process they fork from."""

import os
from functools import cache
from importlib import import_module

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from stsbench.evaluation import provenance

for name in (
    "stsbench.training.runs.seed_runs", "stsbench.methods.simcse.method", "stsbench.publish.model_card",
    "stsbench.publish.model_index", "stsbench.publish.mteb_results", "transformers.models.bert.tokenization_bert",
    "transformers.models.encoder_decoder", "torch.profiler._cupti_monitor", "torch.utils.serialization",
):  # fmt: skip
    import_module(name)
get_checkpoint_conversion_mapping("bert")  # builds the table of all architectures: half of what a tiny training takes


def patch():
    """As the fixtures of conftest do, in the server of the forks."""
    os.fsync = lambda stream: None
    provenance.git_revision = cache(provenance.git_revision)
    provenance.git_revision()
