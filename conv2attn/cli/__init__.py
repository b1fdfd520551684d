"""The command line: parse, call, render, exit code."""

from conv2attn.cli import (  # noqa: F401  each adds its commands
    atlas,
    claims,
    experiments,
    explore,
    files,
    networks,
    spans,
    verify,
)
from conv2attn.cli.group import main

__all__ = ["main"]
