"""The command line: parse, call, render, exit code."""

from conv2attn.cli import claims, experiments, networks, spans  # noqa: F401  each adds its commands
from conv2attn.cli.group import main

__all__ = ["main"]
