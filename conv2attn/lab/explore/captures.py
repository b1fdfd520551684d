"""Captures the attention of any model on one image, for layers whose tokens form a grid over the image."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from conv2attn.arguments import Patterns, Selection
from conv2attn.lab.explore.explored_layers import Explored, grey, refusing_image, shown_layers
from conv2attn.lab.explore.packing import BUDGET, Budget, PageObject, facts_of_heads
from conv2attn.networks import attention_layers
from conv2attn.networks.reading import Windows
from conv2attn.networks.reading.phase import read_network
from conv2attn.networks.reading.records import Read, Tokens

MOST_ELSEWHERE = 1e-3
"""Largest share of attention of tokens outside the image."""
MOST_WINDOWED = 1024
"""Largest number of tokens of an image whose windows are joined into one map."""


def captured_layers(
    network: nn.Module, images: Tensor, only: Patterns = (), budget: Budget | None = None, views: int = 1
) -> Explored:
    """Captures all attention of `network` on `images` (count, channels, rows, columns), averaged over several.

    Weights are stored in 8 bits, or in 4 if the layers would not fit on the page otherwise. Layers of this project that
    read no content are left to `explored_layers`.

    Args:
        only: glob patterns of the names to show; by default all.
        budget: the bytes that are free on the page.
        views: number of views that share the page.
    Raises:
        UnsupportedError: no layer can be shown (C2A110).
        UsageError: the network does not take the image (C2A120), or attends to nothing (C2A501).
    """
    image, maps = images.mean(0, keepdim=True), attention_maps(network, images, only)
    size = sum(each[0].numel() for each in maps.values() if not isinstance(each, str))
    budget, bits = budget or Budget(), 8 if views * size <= BUDGET * 0.9 else 4
    objects = [
        f"{name or '(root)'}: {each}"
        if isinstance(each, str)
        else stored_layer(name or "(root)", *each, image, budget, bits)
        for name, each in maps.items()
    ]
    remedy = "Name a layer with attention on a grid by --only, or pass another --inputs."
    layers, left_out = shown_layers(objects, remedy)
    convolutions = [name for name, each in network.named_modules() if isinstance(each, nn.Conv2d)]
    left_out += tuple(f"{name}: a convolution, shown only if nothing attends" for name in convolutions[:3])
    return Explored(layers, left_out, "averaged over the square of each token", photo_of(image, budget))


def attention_maps(network: nn.Module, images: Tensor, only: Patterns = ()) -> dict[str, tuple[Tensor, Tokens] | str]:
    """For each layer by name, the mean attention over images and its tokens, or the reason why it is not shown.

    Layers of this project that read no content are left out.

    Raises:
        UsageError: the network does not take the image (C2A120), or attends to nothing (C2A501).
    """
    own_layers, selection = attention_layers(network), Selection.of(only)
    own_alone = [name or "(root)" for name, layer in own_layers.items() if not layer.has_content]
    others = replace(selection, skip=(*selection.skip, *own_alone))
    with refusing_image(images):
        reads = read_network(network, images, others)
        return {read.name: attention_on_grid(read, len(images)) for read in reads if read.name not in own_layers}


def attention_on_grid(read: Read, images: int) -> tuple[Tensor, Tokens] | str:
    """The attention of a layer (heads, queries, keys) and its tokens on the image, or the reason why not shown."""
    attention, tokens = read.attention, read.tokens
    if not isinstance(attention, Tensor):
        return read.unread
    if not attention.isfinite().all():
        return "its attention is not finite"
    shape = f"its attention {tuple(attention.shape)}"
    if tokens is None:
        return read.unplaced
    if tokens.windows is not None:
        attention_of_image = join_windows(attention, tokens.windows)
        return (
            f"{shape} is in windows of a larger image"
            if attention_of_image is None or images > 1
            else (attention_of_image, Tokens(tokens.windows.grid.keys))
        )
    if len(attention) != images or attention.shape[-1] != attention.shape[-2] or len(tokens.sides) != 2:
        return f"{shape} does not belong to one grid over the image"
    return attention.mean(0), tokens


def join_windows(attention: Tensor, windows: Windows) -> Tensor | None:
    """The attention of all windows of an image as one map, (heads, queries, keys).

    None for a large image, and for windows that attend to tokens outside it.
    """
    tokens = windows.grid.shape[0]
    if tokens > MOST_WINDOWED or len(attention) != len(windows.places):
        return None
    attention_of_image = torch.zeros(attention.shape[1], tokens, tokens)
    for window, queries, keys in zip(attention, *map(torch.from_numpy, (windows.places, windows.keys)), strict=True):
        asking, pixels = queries >= 0, keys >= 0
        attention_of_image[:, queries[asking][:, None], keys[pixels][None]] = window[:, asking][:, :, pixels].to(
            attention_of_image
        )
    # Rows that do not sum to 1 over the pixels attend to tokens outside the image, such as padding of a window.
    whole = bool(((attention_of_image.sum(-1) - 1).abs() < MOST_ELSEWHERE).all())
    return attention_of_image if whole else None


def photo_of(image: Tensor, budget: Budget) -> PageObject | None:
    """The image in colour, at most 224 pixels per side, each channel scaled; None for other images."""
    if image.shape[1] != 3:
        return None
    rows, columns = image.shape[2:]
    sides = [min(rows, 224), min(columns, 224)]
    small = adaptive_avg_pool2d(image[0], (sides[0], sides[1])).cpu().double()
    low, high = small.amin((1, 2), keepdim=True), small.amax((1, 2), keepdim=True)
    packed = budget.pack(((small - low) / (high - low).clamp_min(1e-30) * 255).movedim(0, -1), "u8")
    return None if packed is None else {"sides": sides, "pixels": packed}


def stored_layer(
    name: str, attention: Tensor, tokens: Tokens, image: Tensor, budget: Budget, bits: int
) -> PageObject | str:
    """One layer as a JSON object, or the sentence that says why it is not shown.

    Args:
        attention: (heads, tokens, tokens); leading tokens, which are not pixels, are left out of the pictures.
    """
    sides, extra = tokens.sides, tokens.leading
    outside = budget.pack(attention[:, extra:, :extra].sum(-1), "f32")
    weights = budget.pack_attention(attention[:, extra:, extra:], bits)
    leading = budget.pack_attention(attention[:, :extra, extra:]) if extra else None
    picture = budget.pack(grey(adaptive_avg_pool2d(image[0], (sides[0], sides[1]))), "u8")
    if weights is None or picture is None or outside is None:
        return f"{name}: its arrays do not fit on a page of less than 5 MB"
    return {
        "name": name,
        "kind": "stored",
        "heads": len(attention),
        "channels": None,
        "keys": [*sides],
        "queries": [*sides],
        "before": [0, 0],
        "stride": [1, 1],
        "padding": [0, 0, 0, 0],
        "extra": extra,
        "outside": outside,
        "leading": leading,
        "terms": None,
        "converted": False,
        "centers": None,
        "strength": None,
        "picture": picture,
        "output": None,
        **weights,
        "facts": facts_of_heads(name, attention[None].cpu().double().numpy(), tuple(sides), extra),
    }
