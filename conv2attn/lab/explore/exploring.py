"""`explore`: one page with the attention of every head of a network."""

import html
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from typing import final

from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection, as_inputs, check_network
from conv2attn.errors import Conv2AttnWarning, UnsupportedError, UsageError
from conv2attn.examples import SIDE, example_image
from conv2attn.files import write_text_atomically
from conv2attn.generators import devices_of, generators_kept
from conv2attn.lab.explore.captures import captured_layers
from conv2attn.lab.explore.explored_layers import IN_WORDS, Explored, Shown, explored_layers
from conv2attn.lab.explore.packing import Budget
from conv2attn.networks import attention_layers, convert
from conv2attn.networks.provenance import channels_of, input_size_of
from conv2attn.networks.run_header import run_header
from conv2attn.networks.zoo import AttentionClassifier

EXAMPLE = "the first test image of Fashion-MNIST's first class, a T-shirt"
OPENING = 2.0
"""Initial alpha of convolutions converted for a page: one-hot heads would be single dots."""
PUBLISHED = 224
"""Default side of the images of a vision transformer."""
PAGE_PARTS = {"/* STYLE */": ("style.css",), "/* SCRIPT */": ("attention.js", "drawing.js", "page.js")}


@final
@dataclass(frozen=True, repr=False)
class Page:
    """One offline page that shows where each head looks; a notebook shows it in the cell.

    Args:
        html: the page.
        left_out: one sentence per layer that it does not show.
    """

    html: str
    left_out: tuple[str, ...]

    def save(self, path: str | PathLike[str], force: bool = False) -> None:
        """Writes the page.

        Raises:
            CheckpointError: the file exists and `force` is false (C2A305), or cannot be written (C2A301).
        """
        write_text_atomically(path, self.html, force)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 45em; border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"<Page: {len(self.html):,} characters; save(path) writes it>"


def explore(
    network: nn.Module,
    example_input: object = None,
    *,
    only: Patterns = (),
    skip: Patterns = (),
    title: str | None = None,
    described: str | None = None,
) -> Page:
    """One page that shows where each head of `network` looks on an image.

    The page shows the attention of a run, for a model of any library. If nothing attends, it shows the attention to
    which the convolutions convert, softened to alpha 2; a slider sharpens it until it is the convolution.

    Args:
        example_input: images (count, channels, rows, columns), or their size; by default the first example image of
            this project, in the size stated by the network. With several images, each one and their mean can be
            selected.
        only, skip: patterns of the names of layers to show (by default all), and to leave out.
        title, described: the name of the network, and a description of the image.
    Raises:
        UsageError: the network does not take the image (C2A009, C2A120), or does not state its size (C2A120).
        UnsupportedError: no layer can be shown (C2A110).
    Examples:
        >>> import conv2attn, torch
        >>> page = conv2attn.explore(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), torch.rand(1, 3, 9, 11))
        >>> page.html.startswith("<!doctype html>"), page.left_out
        (True, ())
    """
    check_network(network)
    image = as_inputs(network, example_input)
    if image is None:
        image, described = example_image(*size_for(network, not attention_layers(network))), described or EXAMPLE
    if not isinstance(image, Tensor) or image.ndim != 4:
        shape = f"has {image.ndim} axes" if isinstance(image, Tensor) else "is not a tensor"
        reason = f"example_input {shape}, but the page draws only images (count, channels, rows, columns)"
        raise UsageError("C2A120", reason, "Pass one tensor of four axes, to a network of images.")
    with generators_kept(devices_of(network, image)):
        views = explore_images(network, image, Selection.of(only, skip))
    name, left_out = title or type(network).__name__, left_out_of(views)
    ran_on = f"{described or 'the image given'}; {run_header(network, image)}"
    return Page(explore_page(views, name, ran_on), left_out)


def explore_images(network: nn.Module, images: Tensor, only: Selection) -> dict[str, Explored]:
    """The views of a page by name, as many as fit: attention on each image, and its mean over all.

    For layers that read content, further views are the softmax of each term alone, and scores before the softmax.

    Raises:
        UnsupportedError: no layer can be shown on the first image (C2A110).
        UsageError: the network does not take the images (C2A009, C2A120).
    """
    budget, count = Budget(), len(images)
    parts = {f"image {place + 1}": images[place : place + 1] for place in range(count)} if count > 1 else {}
    parts |= {"the mean of all images" if count > 1 else "the image": images}
    views = {}
    for name, part in parts.items():
        try:
            views[name] = explore_image(network, part, only, budget, len(parts))
        except UnsupportedError:
            if not views:
                raise
    for name, shown in term_views(network).items():
        for which, part in parts.items():
            with suppress(UnsupportedError):
                of_terms = explored_layers(network, part.to(next(network.parameters())), only, budget, shown)
                views[f"{name}, {which}"] = of_terms
    return views


def term_views(network: nn.Module) -> dict[str, Shown]:
    """Further views by name, for layers that read content: single terms, and scores."""
    reading = [layer.terms.names for layer in attention_layers(network).values() if layer.has_content]
    terms = [name for name in IN_WORDS if any(name in names for names in reading)]
    alone = terms if len(terms) > 1 else []
    views = {f"the softmax of {IN_WORDS[name]} alone": Shown((name,)) for name in alone}
    views |= {f"{IN_WORDS[name]} before the softmax": Shown((name,), softmax=False) for name in alone}
    return views | ({"all terms before the softmax": Shown((), softmax=False)} if terms else {})


def left_out_of(views: Mapping[str, Explored]) -> tuple[str, ...]:
    """The sentences on omitted layers, without repetitions."""
    return tuple(dict.fromkeys(sentence for view in views.values() for sentence in view.left_out))


def explore_image(network: nn.Module, image: Tensor, only: Selection, budget: Budget, views: int) -> Explored:
    """The attention of a network on an image, or its mean over several: captured, or of this project's layers.

    If nothing attends, the network's convolutions are shown as the attention to which they convert."""
    own_layers = attention_layers(network)
    input_image = image.to(next(network.parameters()))
    try:
        captured = captured_layers(network, input_image, only, budget, views)
    except (UsageError, UnsupportedError) as error:
        if error.code != "C2A501" and not own_layers:
            raise
        captured = None
    shown_names = {name for name, layer in own_layers.items() if not layer.has_content or captured is None}
    if captured is not None and not shown_names:
        return captured
    attention = as_attention(network)
    if captured is None:
        only.check([name or "(root)" for name in attention_layers(attention)], "layer that attends")
    own_page = explored_layers(attention, input_image, only, budget)
    if captured is None:
        return own_page
    layers = (*captured.layers, *own_page.layers)
    return Explored(layers, (*captured.left_out, *own_page.left_out), captured.picture, captured.photo)


def as_attention(network: nn.Module) -> nn.Module:
    """The network; if nothing in it is attention of this project, its convolutions as heads at `OPENING`."""
    if attention_layers(network):
        return network
    with warnings.catch_warnings(action="ignore", category=Conv2AttnWarning):
        return convert(network, alpha=OPENING)


def size_for(network: nn.Module, captured: bool) -> tuple[int, ...]:
    """Channels and sides of an image that `network` takes.

    They are those that the network states, if its attention is captured or it is an `AttentionClassifier`. Otherwise
    the sides are `PUBLISHED` with captured attention, and `SIDE` without.

    Raises:
        UsageError: the network has neither a convolution nor attention of this project, so its channels are unknown
            (C2A120).
    """
    size, channels = input_size_of(network), channels_of(network)
    if size and (captured or isinstance(network, AttentionClassifier)):
        return size
    if channels:
        return (channels, *[PUBLISHED if captured else SIDE] * 2)
    raise UsageError("C2A120", "the network does not state the size of its images", "Pass --input-size CxHxW.")


def explore_page(views: Mapping[str, Explored], title: str, image: str) -> str:
    """HTML that shows `views`, one at a time; it loads nothing, which its content security policy enforces.

    Args:
        views: the views, by their names in the menu.
        title: the name of the network.
        image: description of the image.
    """
    folder = files("conv2attn.lab.explore")
    page = (folder / "page.html").read_text("utf-8")
    for mark, names in PAGE_PARTS.items():
        page = page.replace(mark, "\n".join((folder / name).read_text("utf-8") for name in names))
    content = {
        "image": f"{image}; a layer shows it {next(iter(views.values())).picture}",
        "leftOut": left_out_of(views),
        "views": [
            {"name": name, "layers": explored.layers, "photo": explored.photo, "scores": "before" in name}
            for name, explored in views.items()
        ],
    }
    numbers = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    before, after = page.split("NUMBERS")
    return before.replace("TITLE", html.escape(title)) + numbers + after
