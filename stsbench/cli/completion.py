"""`stsbench completion`: click's own script, by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from stsbench.cli.output.messages import echo


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options by the tab key.

    \b
    bash:  echo 'eval "$(stsbench completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(stsbench completion zsh)"' >> ~/.zshrc
    fish:  stsbench completion fish > ~/.config/fish/completions/stsbench.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    echo(kind(ctx.find_root().command, {}, "stsbench", "_STSBENCH_COMPLETE").source())
