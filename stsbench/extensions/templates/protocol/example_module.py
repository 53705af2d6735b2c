"""What the protocol measures, and the paper that it follows: here Kendall's tau of cosines and scores."""

from typing import ClassVar, Literal

from scipy.stats import kendalltau

from stsbench.evaluation import Array, Metric, Observations, Protocol, ScoreError, Settings, setting
from stsbench.metrics.similarity import paired_similarity


class ExampleSettings(Settings):
    """The settings of the protocol, each with its default, meaning and source; after --set example-name.NAME=VALUE."""

    similarity: Literal["cosine", "dot"] = setting("cosine", "of the two vectors", "our choice")


class Example(Protocol):
    """Kendall's tau-b of similarities and human scores: how many pairs of pairs are in the right order."""

    name = "example-name"
    version = 1  # raise it whenever a score changes
    metrics: ClassVar = {"kendall": Metric(range=(-100, 100))}
    arrays: ClassVar = {  # what `observe` gives, for each of n pairs
        "similarity": Array("float", "n", rounded=True, per_item=True),
        "gold": Array("float", "n", shared=True),
    }
    Settings = ExampleSettings

    def tasks(self):
        """Return each task's name and the data set that it is measured on (`stsbench list data`)."""
        return {"STS-B": "stsb/test", "SICK-R": "sick-r/test"}

    def observe(self, embed, data):
        """Return what is kept of a task: the only method that sees vectors, float32 (n, d)."""
        similarity = paired_similarity(embed(data.first), embed(data.second), self.settings["similarity"])
        return Observations({"similarity": similarity, "gold": data.gold})

    def score(self, observations, data_id, task):
        """Return the task's scores from what was kept."""
        similarity, gold = observations.arrays["similarity"], observations.arrays["gold"]
        if len({*similarity}) < 2 or len({*gold}) < 2:
            raise ScoreError(f"{task}: all similarities, or all scores, are the same: there is no order to compare")
        value = 100 * kendalltau(similarity, gold).statistic
        return [self.row(task, "kendall", value, len(gold))]
