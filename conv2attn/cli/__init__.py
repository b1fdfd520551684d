"""The command line: parse, call, render, exit code."""

import sys

try:
    from conv2attn.cli import claims, experiments, networks, spans  # noqa: F401  each adds its commands
    from conv2attn.cli.group import advice, main
    from conv2attn.cli.options import Written
except KeyboardInterrupt:
    # Imports run before `main` handles Ctrl-C, so an interruption during them is also answered with one word.
    print("interrupted", file=sys.stderr)
    sys.exit(130)

__all__ = [
    "Written",
    "advice",
    "main",
]
