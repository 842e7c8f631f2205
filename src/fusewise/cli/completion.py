"""`fusewise completion`: what a shell completes of a line, and the script that makes it do so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

__all__ = ["completion", "decision_names", "model_names", "one_of", "zoo_names"]

SHELLS = ("bash", "zsh", "fish")

BASH = r"""# fusewise: completion for bash. Words are parted at white space alone, so that zoo:NAME is one.
_fusewise_completion() {
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}" word count
    word="${line##*[[:space:]]}"
    count=$(wc -w <<< "$line")
    [[ -n $word ]] && count=$((count - 1))
    COMPREPLY=($(COMP_WORDS="$line" COMP_CWORD="$count" _FUSEWISE_COMPLETE=complete_bash "$1" 2> /dev/null))
    case "$word" in
        *:*) [[ $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}") ;;
    esac
}
complete -o default -o bashdefault -F _fusewise_completion fusewise
"""

ZSH = r"""#compdef fusewise
# fusewise: completion for zsh.
_fusewise_completion() {
    eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _FUSEWISE_COMPLETE=complete_zsh fusewise 2> /dev/null)
}
compdef _fusewise_completion fusewise
"""

FISH = r"""# fusewise: completion for fish.
set -l ask 'env _FUSEWISE_COMPLETE=complete_fish _TYPER_COMPLETE_ARGS=(commandline -cp)'
complete -c fusewise -a "($ask _TYPER_COMPLETE_FISH_ACTION=get-args fusewise 2> /dev/null)"
"""


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell to complete in.")],
) -> None:
    """Print a script that has a shell complete verbs, options, and names of models, passes, rules and kernels.

    bash: source <(fusewise completion bash), in ~/.bashrc; zsh: the same in ~/.zshrc, behind compinit;
    fish: fusewise completion fish > ~/.config/fish/completions/fusewise.fish
    """
    from fusewise.words import no_such

    scripts = dict(zip(SHELLS, (BASH, ZSH, FISH), strict=True))
    if shell not in scripts:
        raise no_such("shell", shell, SHELLS)
    typer.echo(scripts[shell], nl=False)


def zoo_names(incomplete: str) -> list[str]:
    """Names of architectures that begin so."""
    from fusewise.zoo.catalogue import MODELS

    return _beginning((model.name for model in MODELS), incomplete)


def model_names(incomplete: str) -> list[str]:
    """`zoo:NAME` for what begins so; a shell completes files where there is none."""
    from fusewise.api import ZOO

    if not incomplete.startswith(ZOO):
        return _beginning([ZOO], incomplete) if incomplete else []
    return [ZOO + name for name in zoo_names(incomplete.removeprefix(ZOO))]


def decision_names(incomplete: str) -> list[str]:
    """Passes, rules and kernels that begin so."""
    from fusewise.decisions import names_of_decisions

    return _beginning(names_of_decisions(), incomplete)


def one_of(module: str, table: str) -> Callable[[str], list[str]]:
    """What completes a name of a table, which is looked up when it is needed."""

    def names(incomplete: str) -> list[str]:
        from importlib import import_module

        return _beginning(getattr(import_module(module), table), incomplete)

    return names


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
