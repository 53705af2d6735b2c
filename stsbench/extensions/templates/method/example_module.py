"""What the method does, and the paper that it follows: here SimCSE with a loss in both directions."""

from stsbench.training.api import Method, Needs, Options, Term, Views, contrast, setting


class ExampleOptions(Options):
    """The settings of the method: each may stand in a recipe, and after --set options.NAME=VALUE."""

    temperature: float = setting(0.05, "divides the cosines", gt=0)


class Example(Method):
    """The mean of InfoNCE from the first view to the second, and from the second to the first."""

    Options = ExampleOptions

    @classmethod
    def needs(cls, options):
        """Say what the method needs: here dropout, by which alone the two views differ."""
        return Needs(dropout=True)

    def views(self, rows, rng):
        """Return the token ids of each view; here each sentence twice."""
        return Views([rows.ids("sentence")] * 2)

    def forward(self, batch):
        """Return the terms of the loss by name. batch.ids holds the rows of all views, one view after the other."""
        first, second = self.vectors(batch.ids, batch.mask).split(len(batch))
        terms = [
            contrast(queries, keys, [], batch.shares, self.gather_mode, temperature=self.options.temperature)
            for queries, keys in ((first, second), (second, first))
        ]
        return {"contrastive": Term((terms[0].value + terms[1].value) / 2, terms[0].count)}
