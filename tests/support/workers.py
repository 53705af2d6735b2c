"""What stands in for the processes of stsbench.extensions.devices: this one."""

from types import SimpleNamespace


def in_this_process(encoder, count=1):
    """As many workers, whose tasks all run here, with this encoder."""
    return SimpleNamespace(count=count, run=lambda task, jobs, progress=None: (
        task(encoder, job, progress or (lambda done: None)) for job in jobs))
