"""`stsbench completion`: the script by which a shell completes commands, options and their values (click's own)."""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class, split_arg_string

from stsbench.cli.output.messages import echo

VARIABLE = "_STSBENCH_COMPLETE"  # set by the script, for the call that answers it
_BREAKS = "=:"  # of the characters at which bash ends a word, those that values have: sts:mean, whitening:dimensions=256

# click's script hands over the words as bash has cut them; this one the line, because `lexical:tfidf` is one word here.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    response=$(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete $1 2>/dev/null)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
            [[ $value == *[:/] ]] && compopt -o nospace
        fi
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """click's completion for bash, for words with colons."""

    source_template = _BASH
    _cut = 0  # characters of the last word that bash has in words before it

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        incomplete = "" if not words or line[-1:].isspace() else words.pop()
        breaks = [mark for mark in _BREAKS if mark in os.environ.get("COMP_WORDBREAKS", _BREAKS)]
        self._cut = max((incomplete.rfind(mark) + 1 for mark in breaks), default=0)
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value[self._cut:] if item.type == 'plain' else item.value}"


add_completion_class(Bash)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, models, protocols, methods and recipes by the tab key.

    \b
    bash:  echo 'eval "$(stsbench completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(stsbench completion zsh)"' >> ~/.zshrc
    fish:  stsbench completion fish > ~/.config/fish/completions/stsbench.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    echo(kind(ctx.find_root().command, {}, "stsbench", VARIABLE).source())
