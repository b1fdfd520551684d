"""Proposition 3 of Andreoli 2019: composing two basis convolutions multiplies their bases and their parameters."""

import torch
from torch import Tensor

from conv2attn.errors import UsageError
from conv2attn.theory.basis.basis import Basis, basis_of, field
from conv2attn.theory.basis.grid import Offset, Sides, Sites
from conv2attn.theory.basis.operators import Composition, Shift, apply, output_sides
from conv2attn.theory.basis.padding import Padding
from conv2attn.theory.basis.weights import Weights


def compose(second: Basis, first: Basis, sides: Sides) -> Basis:
    """`second` after `first` as one basis of inputs with these sides, borders and biases included.

    Its terms are `(P''_j P'_k, M''_j M'_k)` for all j, k, in that order, and its bias is the field
    `b'' + sum_j (P''_j b') M''_j^T`, which varies over the queries where `second` pads with zeros.

    Raises:
        UsageError: the channels do not fit (C2A120).
    Source: Andreoli 2019, Proposition 3.
    """
    check_channels(second, first)
    outer, inner = second.weights, first.weights
    # `Composition` numbers its terms by j first, then k, and the channel matrices follow it.
    taps = torch.einsum("joc,kci->jkoi", outer.dense(), inner.dense()).flatten(0, 1)
    between = output_sides(first.mixing, sides)
    # The first bias arrives through the second operators: less of it where the second layer pads with zeros.
    carried = apply(second.mixing, field(first, sides).expand(inner.d_out, *between), between)
    bias = field(second, between) + torch.einsum("toc,tc...->o...", outer.dense(), carried)
    return basis_of(Composition((second.mixing, first.mixing)), Weights(None, taps, bias), len(sides))


def common_padding(second: Basis, first: Basis) -> str:
    """The padding mode of two convolutions as one.

    Shifts around a torus are a group, so circular convolutions compose exactly. A second layer that reflects or
    replicates copies outputs of the first layer. These are not pixels, so no padding of the image has the same effect.

    Raises:
        UsageError: see `compose_shifts` (C2A104).
    """
    modes = [basis.padding.mode for basis in (first, second) if not basis.padding.is_identity]
    if set(modes) <= {"zeros"}:
        return "zeros"
    # Two circular layers are one only on the same torus: a layer that changes the sides gives the second another one.
    if set(modes) == {"circular"} and all(map(keeps_sides, (first, second))):
        return "circular"
    words = " and then ".join(basis.padding.mode for basis in (first, second))
    remedy = "Pad with zeros, pass two circular layers that keep the sides, or compose at given sides with `compose`."
    raise UsageError("C2A104", f"layers that pad by {words} are not one convolution", remedy)


def keeps_sides(basis: Basis) -> bool:
    """Whether the outputs of a layer are on the grid of its inputs."""
    return set(basis.sites.stride) == {1} and not any(basis.form.room)


def compose_shifts(second: Basis, first: Basis) -> Basis:
    """`second` after `first` as one convolution of every size: two 3x3 kernels give one of 5x5, with 25 terms.

    Two circular convolutions of stride 1 that keep the sides give one circular convolution, equal at every output.
    Otherwise it is equal to the two wherever no output of either reads padding: at every output where neither pads,
    and else in the interior. The bias is `b'' + sum_j M''_j b'`.

    Raises:
        UsageError: a layer is not a family of shifts of pixels (C2A007), the channels do not fit (C2A120), or a layer
            pads otherwise than with zeros, and they are not two such circular ones (C2A104).
    Examples:
        >>> import torch
        >>> from conv2attn import as_basis
        >>> from conv2attn.theory.basis import compose_shifts, terms
        >>> first, second = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3)
        >>> terms(compose_shifts(as_basis(second), as_basis(first)).operators)
        25

    Source: Andreoli 2019, Proposition 3, for shifts: `S_a S_b = S_(a + b)`.
    """
    for which, basis in (("first", first), ("second", second)):
        if not isinstance(basis.operators, Shift) or max(basis.padding.spacing) > 1:
            raise UsageError(
                "C2A007",
                f"the {which} layer is not a family of shifts of pixels",
                "Pass convolutions that are not transposed, or compose at given sides with `compose`.",
            )
    check_channels(second, first)
    mode = common_padding(second, first)
    stride, room = first.sites.stride, first.form.room
    # S_a S_b = S_(a + b): taps whose starts have one sum are one tap, so that 9 times 9 products become 25. A step of
    # the second layer is a stride of the first, in pixels of the image.
    sums: dict[Offset, Tensor] = {}
    for outer_start, outer in zip(second.starts, second.weights.dense(), strict=True):
        for inner_start, inner in zip(first.starts, first.weights.dense(), strict=True):
            start = tuple(i + s * o for i, s, o in zip(inner_start, stride, outer_start, strict=True))
            sums[start] = sums[start] + outer @ inner if start in sums else outer @ inner
    # One kernel covers all starts. Its first tap is at `least`, so the image is padded by -least in front. The padding
    # behind follows from the number of outputs: a step of the second layer is `stride` pixels, so the rooms of the two
    # layers add up to room + stride * second's, and `most - least` of it is spent by the kernel.
    least, most = (tuple(end(axis) for axis in zip(*sums, strict=True)) for end in (min, max))
    kernel_size = tuple(m - n + 1 for n, m in zip(least, most, strict=True))
    strides = tuple(a * b for a, b in zip(stride, second.sites.stride, strict=True))
    sites = Sites.of_kernel(kernel_size, strides, (1,) * len(stride))
    after = tuple(r + s * t + m for r, s, t, m in zip(room, stride, second.form.room, most, strict=True))
    offsets = {start: tuple(x - n - b for x, n, b in zip(start, least, sites.before, strict=True)) for start in sums}
    order = sorted(sums)
    bias = second.weights.bias
    if first.weights.bias is not None:
        carried = second.weights.dense().sum(0) @ first.weights.bias
        bias = carried if bias is None else bias + carried
    weights = Weights(None, torch.stack([sums[start] for start in order]), bias)
    padding = Padding(tuple(-n for n in least), after, mode)
    return Basis(Shift(tuple(offsets[start] for start in order)), weights, padding, sites)


def check_channels(second: Basis, first: Basis) -> None:
    """Refuses a second layer that reads another number of channels than the first gives.

    Raises:
        UsageError: it does (C2A120).
    """
    if second.weights.d_in != first.weights.d_out:
        raise UsageError(
            "C2A120",
            f"the second layer reads {second.weights.d_in} channels, the first gives {first.weights.d_out}",
            "Pass a first layer that gives as many channels as the second reads.",
        )
