"""Recovers a convolution from an attention layer: an equal one from a hard layer, the nearest one from a soft layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.arguments import check_has_numbers
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention, hard_offsets
from conv2attn.layers.attention.hardness import within_margins
from conv2attn.layers.theorem import convolution_of, module_of
from conv2attn.networks import attention_layers
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.span.attending import ask_attention
from conv2attn.span.checking import offsets_of
from conv2attn.span.equations import shift_targets
from conv2attn.span.graded_facts import LayerFacts
from conv2attn.span.graded_facts.facts import ConvolutionFact, HeadsReport
from conv2attn.span.graded_facts.measures import KERNELS
from conv2attn.span.graded_facts.measuring import heads
from conv2attn.span.grids import as_sides, check_extent
from conv2attn.span.layers import read_layer
from conv2attn.theory.basis import Basis, Offset, Shift, Weights


@final
@dataclass(frozen=True)
class Recovered:
    """A convolution, the `share` of the layer that it explains, and the Frobenius norm of the `residual`.

    A hard layer equals the convolution at every input size, so the share is 1 and the residual 0. For a soft layer, let
    `L_q` be the matrix from padded keys and input channels to the output channels of query q, and `C_q` the same matrix
    of the convolution. Sums are over the queries whose whole kernel is on the padded grid; biases are left out. The
    taps minimise `residual^2 = sum_q |L_q - C_q|^2`, and `share = 1 - residual^2 / sum_q |L_q|^2`. For attention on
    inputs, the share is that of `conv2attn.heads`, and the residual is None.
    """

    module: nn.Module
    share: float
    residual: float | None


def recover(
    layer: nn.Module,
    *,
    kernel_size: int | Sequence[int] = 3,
    dilation: int | Sequence[int] = 1,
    grid: Sequence[int] | int | None = None,
    example_input: Any = None,
) -> Any:
    """The convolution that equals a hard attention layer, or the one of this kernel that is nearest to a soft layer.

    Heads with the same offset add up, and offsets of the kernel without a head are zero taps. Heads that reach beyond
    an unpadded grid read its border, so the convolution has replicate padding (E8 of docs/errata.md). In a network,
    every layer is recovered. Layers of conv2attn are recovered as above. Other layers are recovered from their
    attention on `example_input`, if their values and outputs can be read: the result is the zero-padded convolution of
    `heads`.

    Returns a `Recovered`; for a network, a mapping from the names of its layers to a `Recovered`.

    Args:
        layer: an attention layer of this project that does not read the image, or a network.
        kernel_size, dilation: kernel of the nearest convolution; a hard layer ignores them. For layers that are not of
            conv2attn, the kernel size is one odd number up to 7, without dilation.
        grid: sides of the input for which the nearest convolution is computed; by default three dilated kernels wide.
        example_input: the inputs of a network, or a size for one image of noise.
    Raises:
        UsageError: `layer` is of another class (C2A502), its parameters have no numbers (C2A006), its attention depends
            on the image (C2A505), or no query has the whole kernel on the grid (C2A504).
        UnsupportedError: torch.nn has no layer of this geometry (C2A101), or the layer stores no weights (C2A103).
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        >>> recovered = conv2attn.recover(conv2attn.convert(conv))
        >>> recovered.share, torch.equal(recovered.module.weight, conv.weight)
        (1.0, True)
    """
    if not isinstance(layer, MultiHeadSelfAttention):
        own = attention_layers(layer) if isinstance(layer, nn.Module) else {}
        if own or example_input is not None:
            return recovered_in(layer, own, kernel_size, dilation, grid, example_input)
        raise UsageError("C2A502", f"{type(layer).__name__} is not a MultiHeadSelfAttention", "Pass such a layer.")
    check_has_numbers(layer, "layer")
    if layer.has_content:
        raise UsageError(
            "C2A505",
            f"{layer.name}: its attention depends on the image",
            "Recover a layer without query and key, or check_span its attention on images.",
        )
    taps = layer.weights.taps().detach()
    # Hard heads are one-hot, so their offsets are the kernel at every input size, and nothing is fitted.
    offsets = hard_offsets(layer.positions, taps.dtype)
    if not isinstance(offsets, str):
        check_extent(1, max(abs(x) for offset in offsets for x in offset))
        return Recovered(module(layer, offsets, taps, hard=True), 1.0, 0.0)
    kernel_offsets = offsets_of(layer.dimensions, kernel_size, dilation, None)
    sizes, steps = as_sides(kernel_size, layer.dimensions) or (), as_sides(dilation, layer.dimensions) or ()
    sides = as_sides(grid, layer.dimensions) or tuple(3 * d * k for d, k in zip(steps, sizes, strict=True))
    nearest, total, left = nearest_taps(layer, taps, kernel_offsets, sides)
    nearest_module = module(layer, kernel_offsets, nearest, hard=False)
    return Recovered(nearest_module, 1 - left / total if total else 1.0, sqrt(left))


def recovered_in(
    network: nn.Module,
    layers: Mapping[str, MultiHeadSelfAttention],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int],
    grid: Sequence[int] | int | None,
    inputs: Any,
) -> dict[str, Recovered]:
    """The convolution of each layer of a network, by name.

    Raises:
        UsageError: the kernel size is not 1, 3, 5 or 7, the kernel is dilated (C2A001), or no layer can be recovered
            (C2A505).
    """
    reads = ask_attention(network, inputs, grid).reads()
    own_names = [name or "(root)" for name in layers]
    tokens = {read.name: read.tokens for read in reads.make([name for name in reads.names if name in own_names])}
    recovered: dict[str, Recovered] = {}
    for name, layer in layers.items():
        if not layer.has_content and layer.weights.numbers:
            own = tokens.get(name or "(root)")
            sides = grid if own is None else own.sides
            recovered[name or "(root)"] = recover(layer, kernel_size=kernel_size, dilation=dilation, grid=sides)
    # Layers of conv2attn are recovered from their parameters, without a sample of inputs. The run that recovers the
    # other layers covers them too, so their own results replace those of the run.
    if inputs is not None and not set(reads.names) <= recovered.keys():
        if kernel_size not in KERNELS or dilation != 1:
            raise UsageError(
                "C2A001",
                f"kernel_size={kernel_size}, dilation={dilation} is not 1, 3, 5 or 7, undilated",
                "Pass --kernel-size 1, 3, 5 or 7, without dilation.",
            )
        recovered = nearest_in(heads(network, inputs, grid=grid), int(str(kernel_size))) | recovered
    if not recovered:
        raise UsageError(
            "C2A505",
            f"no layer of the {type(network).__name__} has values and outputs that are read",
            "Pass a network whose layers have values and outputs, or call heads to describe its attention.",
        )
    return recovered


def nearest_in(report: HeadsReport, kernel_size: int) -> dict[str, Recovered]:
    """The nearest convolution of each layer whose values and outputs were read."""
    nearest = ((layer, layer.convolution(kernel_size)) for layer in report.layers)
    return {layer.name: Recovered(convolution_near(layer, fact), fact.share, None) for layer, fact in nearest if fact}


def convolution_near(layer: LayerFacts, fact: ConvolutionFact) -> nn.Module:
    """The nearest convolution of a layer as a zero-padded module; with pooled keys, outputs are repeated per cell."""
    # `cell` is the number of queries per key along an axis: 1 if every key has one query, more with pooled keys, and 0
    # if only some of the keys have a query.
    axes, cell, size = len(layer.grid), layer.queries[0] // layer.grid[0], fact.kernel_size
    weight = torch.from_numpy(fact.taps).permute(1, 2, 0).unflatten(-1, (size,) * axes).float()
    kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
    stride = 1 if cell else -(-layer.grid[0] // layer.queries[0])
    convolution = kind(*weight.shape[1::-1], size, stride, size // 2, bias=layer.bias is not None)
    convolution.weight.data = weight.contiguous()
    if layer.bias is not None:
        convolution.bias.data = torch.from_numpy(layer.bias).float()
    return nn.Sequential(convolution, nn.Upsample(scale_factor=cell)) if cell > 1 else convolution


def nearest_taps(
    layer: MultiHeadSelfAttention, taps: Tensor, offsets: tuple[Offset, ...], sides: Sequence[int]
) -> tuple[Tensor, float, float]:
    """The taps of the nearest convolution in the layer's dtype, and the squared norms of the layer and of the residual.

    The norms are over the queries whose whole kernel is on the padded grid. Tap t is the mean over these queries of
    `sum_h A_h(q, q + offset_t) M_h`.

    Raises:
        UsageError: no query has all offsets on the padded grid (C2A504).
    """
    attention = read_layer(layer.name, layer, tuple(sides), MEMORY_LIMIT)
    targets = shift_targets(attention.grid, offsets)
    count = int(targets.interior.sum())
    if not count:
        raise UsageError(
            "C2A504",
            f"{layer.name}: no query of {tuple(sides)} has the whole kernel on the padded grid",
            "Pass a larger --grid, or a smaller --kernel-size.",
        )
    matrices = taps.cpu().double().numpy()
    correlations, gram = np.zeros((len(offsets), layer.heads)), np.zeros((layer.heads, layer.heads))
    for _, queries, block in attention.pieces(np.flatnonzero(targets.interior)):
        correlations += np.tensordot(targets.block(queries, block.shape[2]), block, ((1, 2), (1, 2)))
        gram += np.tensordot(block, block, ((1, 2), (1, 2)))
    # Shifts by different offsets are orthogonal, so the nearest tap is a mean, and no system is solved.
    best = np.tensordot(correlations / count, matrices, 1)
    rounded = torch.from_numpy(best).to(taps)
    energy = float((gram * np.tensordot(matrices, matrices, ((1, 2), (1, 2)))).sum())
    # The module has weights of the layer's dtype: the residual includes their rounding.
    rounding = float(((rounded.cpu().double().numpy() - best) ** 2).sum())
    # By Pythagoras, it is the energy of the layer minus that of its projection, which only rounding makes negative.
    return rounded, energy, max(0.0, energy - count * float((best**2).sum())) + count * rounding


def module(layer: MultiHeadSelfAttention, offsets: tuple[Offset, ...], taps: Tensor, hard: bool) -> nn.Module:
    """The module of torch.nn with these taps, and with the queries and the padding of the layer.

    Raises:
        UnsupportedError: torch.nn has no such layer, or heads reach beyond the padding and read its border (C2A101).
    """
    padding, sites = layer.image_padding, layer.sites
    weights = Weights(None, taps, layer.bias, layer.groups)
    convolution = convolution_of(offsets, Basis(Shift(offsets), weights, padding, sites))
    # Heads that reach beyond the grid read its nearest pixel (E8). This is replicate padding if the grid is the image,
    # or has replicate padding itself. With any other padding, the heads read a padded pixel again, unlike a
    # convolution.
    if not within_margins(sites, offsets):
        bordered = padding.is_identity or padding.mode == "replicate"
        if hard and not (bordered and layer.positions.reads_nearest):
            where = "grid, where the enumerated encoding finds other pixels"
            where = where if bordered else f"{padding.mode} padding and read its border again"
            reason = f"{layer.name} is not a torch.nn convolution: its heads look beyond the {where}"
            raise UnsupportedError("C2A101", reason, "Leave out the layer with --skip.")
        if bordered:
            convolution = replace(convolution, padding=replace(convolution.padding, mode="replicate"))
    try:
        return module_of(convolution)
    except UnsupportedError as refusal:
        raise UnsupportedError(refusal.code, f"{layer.name}: {refusal.found}", refusal.remedy) from refusal
