"""Errors planted in a converted network, each with the layer and the part of the certificate that has to refute it."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from changes import changed, changing
from torch import nn

import conv2attn
from conv2attn.layers.attention import Encoding
from conv2attn.theory.basis import Padding, Sites


class Small(nn.Module):
    """Convolutions of several kinds with other layers between them; the grids have unequal sides."""

    def __init__(self):
        super().__init__()
        self.square = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.oblong = nn.Conv2d(8, 6, (2, 3), stride=(3, 1), dilation=(1, 2), padding=(1, 2), groups=2, bias=False)
        self.border = nn.Conv2d(6, 6, (3, 1), padding=(2, 0), padding_mode="reflect", groups=3)
        self.last = nn.Linear(6, 5)

    def forward(self, image):
        hidden = self.border(self.oblong(torch.relu(self.norm(self.square(image)))))
        return self.last(hidden.mean((2, 3)))


def network(seed: int = 0) -> Small:
    """A `Small` with seeded weights, a large bias among them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = Small().eval()
    with torch.no_grad():
        made.square.bias[3] = 1e4
        made.norm.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(seed))
    return made


def original() -> Small:
    """A `Small` with some zero weights, made anew for each test, which may move it to a device."""
    small = network()
    with torch.no_grad():
        for layer in (small.square, small.oblong, small.border):
            layer.weight[0, 0] = 0.0
    return small


def image(seed: int = 1) -> torch.Tensor:
    """Two images of 14 by 11 pixels."""
    return torch.randn(2, 4, 14, 11, generator=torch.Generator().manual_seed(seed))


class Planted(NamedTuple):
    """What is done to a network, and which part refutes which layer; no layer where it is what stands between."""

    plant: Callable[[nn.Module], None]
    layer: str
    part: str


def right(net) -> None:
    """Nothing planted."""


def heads(layer, chosen) -> None:
    """Keeps the heads with these numbers, in this order."""
    keep = torch.tensor(chosen)
    encoding = layer.encoding
    factored(layer)
    values = (value.detach()[keep] for value in encoding.operators().values)
    layer.encoding = Encoding(encoding.family(*values)).learn(False)
    layer.heads = len(chosen)
    for name in ("value", "output"):
        if getattr(layer, name) is not None:
            setattr(layer, name, nn.Parameter(getattr(layer, name).detach()[..., keep].clone()))


def factored(layer) -> nn.Module:
    """The layer with its taps in `value` or `output`, heads last, where the convolution's weight held them."""
    return layer if layer.weight is None else layer.hold(layer.weights)


def taps(layer) -> torch.Tensor:
    """The matrices of the taps, heads first, to be written to."""
    if layer.weight is not None and not layer.transposed:
        return layer.weight.data.flatten(2).permute(2, 0, 1)
    factored(layer)
    return (layer.output if layer.value is None else layer.value).data.permute(2, 0, 1)


def ulp(numbers: torch.Tensor, place: tuple[int, ...]) -> None:
    """Moves one number by one unit in the last place."""
    numbers[place] = torch.nextafter(numbers[place], torch.tensor(torch.inf, dtype=numbers.dtype))


def swapped(layer) -> None:
    changed(layer, "center", lambda numbers: numbers.copy_(numbers.flip(1)))


def dropped(layer) -> None:
    heads(layer, list(range(layer.heads - 1)))


def duplicated(layer) -> None:
    heads(layer, [0, *range(layer.heads - 1)])


def two_heads_swapped(layer) -> None:
    with changing(layer, "center") as numbers:
        numbers[[0, 1]] = numbers[[1, 0]]


def groups_permuted(layer) -> None:
    taps(layer).copy_(taps(layer).unflatten(1, (layer.groups, -1)).flip(1).flatten(1, 2))


def alpha_lowered(layer) -> None:
    layer.encoding.assign(alpha=3.0)


def not_finite(number: float) -> Callable[[nn.Module], None]:
    """A bias that puts `number` in one output channel."""

    def plant(layer) -> None:
        layer.bias.data[1] = number

    return plant


def on(layer: str, change: Callable[[nn.Module], None]) -> Callable[[nn.Module], None]:
    """`change` done to one layer of a network."""
    return lambda net: change(net.get_submodule(layer))


def put(name: str, part: Callable[[nn.Module], object]) -> Callable[[nn.Module], None]:
    """Another part in the place of one of a layer's."""
    return lambda layer: setattr(layer, name, part(layer))


def padded(**changes) -> Callable[[nn.Module], None]:
    """Another padding."""
    return put("image_padding", lambda layer: replace(layer.image_padding, **changes))


TURNED = Sites.of_kernel((2, 3), (1, 2), (3, 1))


def stride_grown(layer) -> Sites:
    return replace(layer.sites, stride=(layer.sites.stride[0] + 1, layer.sites.stride[1]))


LAYERS = {
    "axes swapped": ("oblong", swapped, "geometry"),
    "axes swapped, square": ("square", swapped, "weights"),
    "offsets negated": ("oblong", lambda layer: changed(layer, "center", lambda numbers: numbers.neg_()), "geometry"),
    "offsets negated, odd": (
        "square",
        lambda layer: changed(layer, "center", lambda numbers: numbers.neg_()),
        "weights",
    ),
    "head dropped": ("square", dropped, "geometry"),
    "head duplicated, another dropped": ("square", duplicated, "geometry"),
    "two heads swapped": ("square", two_heads_swapped, "weights"),
    "padding moved by one": ("square", padded(before=(2, 1), after=(0, 1)), "geometry"),
    "padding grown by one": ("oblong", put("image_padding", lambda a: a.image_padding.extended((0, 1))), "geometry"),
    "padding dropped": ("square", lambda layer: setattr(layer, "image_padding", Padding.none(2)), "geometry"),
    "dilation ignored": (
        "oblong",
        lambda layer: changed(layer, "center", lambda numbers: numbers[:, 1].div_(2)),
        "geometry",
    ),
    "stride and dilation exchanged": ("oblong", put("sites", lambda a: TURNED), "geometry"),
    "stride that shows at some sizes only": ("oblong", put("sites", stride_grown), "geometry"),
    "offset moved on one axis": (
        "square",
        lambda layer: changed(layer, "center", lambda numbers: numbers[2, 1].add_(1)),
        "geometry",
    ),
    "reflect replaced by replicate": ("border", padded(mode="replicate"), "geometry"),
    "groups permuted": ("border", groups_permuted, "weights"),
    "weights through float16": ("square", lambda layer: taps(layer).copy_(taps(layer).half().float()), "weights"),
    "one weight by one ulp": ("oblong", lambda layer: ulp(taps(layer), (3, 2, 1)), "weights"),
    "one bias by one ulp": ("border", lambda layer: ulp(layer.bias.data, (2,)), "weights"),
    "a large bias by one ulp": ("square", lambda layer: ulp(layer.bias.data, (3,)), "weights"),
    "bias dropped": ("square", lambda layer: setattr(layer, "bias", None), "weights"),
    "NaN in one output": ("square", not_finite(torch.nan), "weights"),
    "infinity in one output": ("border", not_finite(torch.inf), "weights"),
    "leak above the roundoff": ("square", alpha_lowered, "leak"),
    "leak of one head": (
        "square",
        lambda layer: changed(layer, "alpha", lambda numbers: numbers[4].fill_(16.0)),
        "leak",
    ),
    "centre between pixels": (
        "square",
        lambda layer: changed(layer, "center", lambda numbers: numbers[1, 0].add_(0.5)),
        "leak",
    ),
    "alpha is NaN": ("square", lambda layer: layer.encoding.assign(alpha=torch.nan), "leak"),
}


def after(change: Callable[[torch.Tensor], object]) -> Callable[[nn.Module], None]:
    """A network whose output is changed."""

    def plant(net: nn.Module) -> None:
        net.register_forward_hook(lambda module, args, output: change(output))

    return plant


def spoiled(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Puts `number` in one place of an output."""
    return lambda output: output.index_fill(1, torch.tensor([2]), number)


OUTPUTS = {
    "NaN in an output": spoiled(torch.nan),
    "infinity in an output": spoiled(torch.inf),
    "an output missing": lambda output: (),
}
BETWEEN = {
    "an unrelated layer by one ulp": lambda net: ulp(net.norm.weight.data, (4,)),
    "a buffer by one ulp": lambda net: ulp(net.norm.running_var, (0,)),
    "a hook that scales by little": lambda net: net.norm.register_forward_hook(
        lambda m, args, output: output * (1 + 1e-6)
    ),
    "training mode": lambda net: net.norm.train(),
    "a hook on a layer": lambda net: net.square.register_forward_hook(lambda module, args, output: -output),
    "a forward replaced": lambda net: setattr(net.last, "forward", torch.zeros_like),
}
PLANTED = {
    **{name: Planted(on(layer, change), layer, part) for name, (layer, change, part) in LAYERS.items()},
    **{name: Planted(after(change), "", "outputs") for name, change in OUTPUTS.items()},
    **{name: Planted(change, "", "structure") for name, change in BETWEEN.items()},
}


KINDS = {
    "1-D": (nn.Conv1d(4, 6, 4, stride=3, padding=2, dilation=2), (4, 29)),
    "3-D": (nn.Conv3d(2, 4, (3, 2, 1), stride=(1, 2, 1), padding=(1, 0, 2), groups=2), (2, 7, 8, 6)),
    "transposed": (nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2)), (4, 6, 7)),
    "depthwise": (nn.Conv2d(4, 8, 3, padding=1, groups=4, padding_mode="circular"), (4, 9, 8)),
}
IN_KINDS = {
    "one weight by one ulp": (lambda layer: ulp(taps(layer), (1, 1, 0)), "weights"),
    "one bias by one ulp": (lambda layer: ulp(layer.bias.data, (2,)), "weights"),
    "head dropped": (dropped, "geometry"),
    "padding grown by one": (lambda layer: setattr(layer, "image_padding", grown(layer.image_padding)), "geometry"),
    "leak": (alpha_lowered, "leak"),
    "infinity in one output": (not_finite(torch.inf), "weights"),
}


def grown(padding: Padding) -> Padding:
    """One more behind the first axis."""
    return replace(padding, after=(padding.after[0] + 1, *padding.after[1:]))


def permuted(layer) -> None:
    order = torch.randperm(layer.heads, generator=torch.Generator().manual_seed(3)).tolist()
    heads(layer, order)


def split(layer) -> None:
    """Head 0 in two that add up to it exactly: its large half and its small half of bits."""
    heads(layer, [0, *range(layer.heads)])
    whole = taps(layer)[0].clone()
    coarse = (whole * 2**12).round() / 2**12
    taps(layer)[0], taps(layer)[1] = coarse, whole - coarse


def cancelling(layer) -> None:
    """Head 0 in three that add up to it exactly, two of them large, so that much is rounded."""
    heads(layer, [0, 0, *range(layer.heads)])
    whole = taps(layer)[0].clone()
    coarse = (whole * 2**12).round() / 2**12
    for head, part in enumerate((coarse + 2**11, whole - coarse, torch.full_like(whole, -(2**11)))):
        taps(layer)[head] = part


def zero_head_added(layer) -> None:
    """A head that looks where no tap is and does nothing with what it sees."""
    heads(layer, [*range(layer.heads), 0])
    taps(layer)[-1] = 0


def rewritten(layer) -> None:
    """W_val and W_out with the same product: channels permuted, negated, scaled by powers of two."""
    plain = taps(factored(layer)).clone()
    width = layer.d_in if layer.value is None else layer.d_out
    group = width // layer.groups
    generator = torch.Generator().manual_seed(4)
    values, outputs = [], []
    for head in range(layer.heads):
        order = torch.randperm(group, generator=generator)
        scale = 2.0 ** torch.randint(-5, 6, (group,), generator=generator)
        scale *= torch.randint(0, 2, (group,), generator=generator) * 2 - 1
        scale = scale.to(plain.dtype)
        if layer.value is None:
            values.append((torch.diag(scale)[order]).repeat(layer.groups, 1))
            outputs.append((plain[head] / scale)[:, order])
        else:
            blocks = plain[head].unflatten(0, (layer.groups, group))
            values.append((blocks * scale[:, None])[:, order].flatten(0, 1))
            outputs.append(torch.diag(1 / scale)[:, order].repeat(layer.groups, 1))
    layer.d_head = width
    layer.value, layer.output = nn.Parameter(torch.stack(values, -1)), nn.Parameter(torch.stack(outputs, -1))


def negative_zero(layer) -> None:
    """Zero taps with the other sign; some are zero in the original of these tests."""
    numbers = taps(layer)
    numbers[numbers == 0] = -0.0


TWINS = {
    f"{name} in {layer}": on(layer, change)
    for layer in ("square", "oblong", "border")
    for name, change in {
        "heads permuted": permuted,
        "a head split in two": split,
        "a zero head": zero_head_added,
        "factors rewritten": rewritten,
        "zeros negated": negative_zero,
    }.items()
}


def pair(plant: Callable[[nn.Module], None]) -> tuple[nn.Module, nn.Module]:
    """The original, and its conversion with something planted."""
    converted = conv2attn.convert(original())
    plant(converted)
    return original(), converted
