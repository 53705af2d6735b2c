"""Pictures of runs: where vectors lie, how a training went, what each token costs."""
