"""The options of `heads` on replacing heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import click

from conv2attn.cli.options import Parsed, Read, grouped
from conv2attn.errors import UsageError

ALL = ("all", "auto")
"""Words for all heads, in `heads` and in `distil`."""


@final
@dataclass(frozen=True)
class ReplaceOptions:
    """The replacement of heads, the heads to replace, and the classes of the images."""

    replace: Any
    replace_heads: tuple[tuple[str, tuple[int, ...]], ...]
    labels: str | None

    def __post_init__(self) -> None:
        others = {"--heads": self.replace_heads, "--labels": self.labels}
        for option, value in others.items():
            if value and not self.replace:
                raise click.UsageError(f"{option} needs --replace: pass it too.")

    @property
    def replaced_heads(self) -> dict[str, tuple[int, ...]] | None:
        """The heads by layer; None for all."""
        return by_layer(self.replace_heads)


def by_layer(named: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]] | None:
    """Heads by layer; None for all.

    Raises:
        UsageError: some heads are named together with all of them (C2A004).
    """
    names = [name for name, _ in named]
    every = [name for name in names if name in ALL]
    if every and len(names) > 1:
        raise UsageError("C2A004", "--heads names single heads and also all of them", f"Pass --heads {every[0]} alone.")
    if not names or every:
        return None
    return {name: sum((heads for each, heads in named if each == name), ()) for name in names}


def parse_heads(text: str) -> tuple[str, tuple[int, ...]]:
    """A layer and the numbers of its heads.

    Raises:
        UsageError: the text is neither a word of `ALL` nor of the form layer:head,head (C2A006).
    """
    if text in ALL:
        return text, ()
    layer, _, numbers = text.rpartition(":")
    if not layer or not all(each.strip().isdecimal() for each in numbers.split(",")):
        raise UsageError("C2A006", f"--heads {text} is not a layer with heads", "Write blocks.0.attn:0,3, say.")
    return layer, tuple(map(int, numbers.split(",")))


replacing = grouped(
    "replacing",
    ReplaceOptions,
    "Replace heads",
    click.option(
        "--replace",
        type=click.Choice(["position", "shift", "mean", "uniform"]),
        help="Replace heads by attention per displacement, the nearest shift, mean or uniform attention; compare.",
    ),
    click.option(
        "--heads",
        "replace_heads",
        type=Parsed("a layer and its heads", parse_heads, "blocks.0.attn:0,3"),
        metavar="LAYER:HEADS",
        multiple=True,
        help="Heads to replace, each alone and all together, and random heads as control. Repeatable. "
        "By default, each head of the network alone.",
    ),
    click.option(
        "--labels", type=Read(), metavar="FILE", help="Table file,label of the inputs: compare losses and accuracy too."
    ),
)
