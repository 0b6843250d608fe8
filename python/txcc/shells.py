"""Completion in shells: click's own, but for how words are cut and put together.

Bash takes ':' and '=' for ends of words, which are within ours: --target=tpu:v5e:2x4. So the whole
line is sent, cut here, and of each completion only that is given back which takes the place of what
Bash has for the word. And the command that is typed is asked, also if it is not on the PATH:
.venv/bin/txcc.
"""

from __future__ import annotations

import os
import re

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class
from click.shell_completion import split_arg_string as words_of

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response type value
    response=$(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    while IFS=' ' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$response"
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a response plain
    local line type value
    # What is completed of --name=value is the value.
    [[ $words[CURRENT] == --*=* ]] && compset -P '*='
    local command=${words[1]/#\\~/$HOME}
    response=("${(@f)$(COMP_LINE="$LBUFFER" %(complete_var)s=zsh_complete "$command")}")
    for line in $response; do
        type=${line%% *} value=${line#* }
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain) plain+=("$value") ;;
        esac
    done
    (( $#plain )) && compadd -V unsorted -a plain
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


class _Lines(ShellComplete):
    """Sends the line up to the cursor, and is answered a line for each completion."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = words_of(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        self._typed = incomplete
        return words, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type} {self._given_back(item.value)}"

    def _given_back(self, value: str) -> str:
        return value


class _Bash(_Lines):
    name = "bash"
    source_template = _BASH

    def _given_back(self, value: str) -> str:
        option, equals, _ = self._typed.partition("=")
        whole = f"{option}={value}" if equals and option.startswith("-") else value
        breaks = re.escape("".join(set(os.environ.get("COMP_WORDBREAKS", "")) & set(":=")))
        done = re.match(f".*[{breaks}]", self._typed) if breaks else None
        return whole[done.end() :] if done else whole


class _Zsh(_Lines):
    name = "zsh"
    source_template = _ZSH


SHELLS = {kind.name: kind for kind in (_Bash, _Zsh)}


def register() -> None:
    """In place of click's own."""
    for kind in SHELLS.values():
        add_completion_class(kind)
