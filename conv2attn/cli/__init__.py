"""The command line: parse, call, render, exit code."""

import sys

try:
    from conv2attn.cli import claims, experiments, networks, spans  # noqa: F401  each adds its commands
    from conv2attn.cli.group import advice, main
    from conv2attn.cli.options import Written
except KeyboardInterrupt:
    # The program is imported before `main` can answer: then too, a person who presses Ctrl-C reads one word.
    print("interrupted", file=sys.stderr)
    sys.exit(130)

__all__ = [
    "Written",
    "advice",
    "main",
]
