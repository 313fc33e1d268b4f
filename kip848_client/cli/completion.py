"""``kip848 completion SHELL``: print the script with which a shell completes commands and options.

::

    kip848 completion bash > ~/.local/share/bash-completion/completions/kip848
    kip848 completion zsh > ~/.zfunc/_kip848
"""

from __future__ import annotations

import argparse
import importlib.util

from kip848_client.errors import Kip848Error

SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> int:
    """Print the script.

    Raises:
        Kip848Error: shtab, which writes it, is not installed.
    """
    if importlib.util.find_spec("shtab") is None:
        raise Kip848Error("shtab, which writes completions, is not installed: pip install 'kip848_client[cli]'")
    import shtab  # here: an extra

    from kip848_client.cli import whole_parser

    print(shtab.complete(whole_parser(), shell=arguments.shell))
    return 0
