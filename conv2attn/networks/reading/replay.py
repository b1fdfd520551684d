"""The matrices of each head, measured in runs: `y = sum_h A_h x M_h^T + b`, replayed under random attention.

If one head is forced to attend from each token to itself, unit vectors give the columns of its `M_h`, however the layer
stores its weights. Replay checks the result: the layer runs on random tokens, with independent random attention in each
head, and the formula must reproduce its output. Its own attention would accept wrong readings: if heads attend alike or
evenly, their order and axis make no difference.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from conv2attn.networks.reading.attended import Attended, Running
from conv2attn.networks.reading.double_precision import cast_once
from conv2attn.networks.reading.layer_alone import Call, Layer, Written, forced, fresh
from conv2attn.networks.reading.orders import Heads, alike, covers
from conv2attn.networks.reading.perturbed import Perturbed, on_the_cpu
from conv2attn.networks.reading.replay_result import (
    CHANNELS,
    CONSTANT_VALUES,
    NO_PRODUCT,
    NO_SUM,
    NOT_ONE_EACH,
    SEVERAL_TIMES,
    UNKNOWN,
    Replayed,
)
from conv2attn.networks.reading.responses import NONE
from conv2attn.networks.reading.watch import Watch


def parent(name: str) -> str:
    """The name of the module around one; that of the network is (root)."""
    return name.rpartition(".")[0] or "(root)"


@on_the_cpu
def calls_of(perturbed: Perturbed, names: Iterable[str]) -> tuple[dict[str, Call], dict[str, tuple[int, ...]]]:
    """The first call of each attention's module and of the module around it, and the attention shapes."""
    modules = {name or "(root)": module for name, module in perturbed.network.named_modules()}
    calls, shapes = dict[str, Call](), dict[str, tuple[int, ...]]()
    owners = (each.split("#")[0] for each in names)

    def see(attended: Attended, _: Running) -> None:
        shapes.setdefault(attended.name, tuple(attended.attention.shape))

    handles = []
    for name in {around for each in owners for around in (each, parent(each))}:

        def keep(_: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            calls.setdefault(name, Call(*fresh((args, kwargs))))

        handles.append(modules[name].register_forward_pre_hook(keep, with_kwargs=True))
    try:
        perturbed.run(Watch(perturbed.network, see))
    finally:
        for handle in handles:
            handle.remove()
    return calls, shapes


def replayed(perturbed: Perturbed, name: str, calls: Mapping[str, Call], shape: tuple[int, ...]) -> Replayed:
    """The reading of a layer that replays best, or the reason why there is none.

    If the module only lays the outputs of its heads side by side, or has one head and no weights after it, the output
    is taken from the first part after the module that replays and mixes heads.
    """
    modules = {each or "(root)": module for each, module in perturbed.network.named_modules()}
    module, around = modules[name], parent(name)
    own = Layer(module, module, calls[name], shape)
    with cast_once(module):
        best = best_of(own)
    # Heads laid side by side are the inside of a layer: its output weights are in the module around, so that is tried
    # too.
    if best.passes and name != "(root)" and own.lacks_outputs(best):
        with cast_once(modules[around]):
            mixed = best_of(Layer(modules[around], module, calls[around], shape))
        best = mixed if mixed.passes else best
    if best.matrices is None:
        return best
    if best.passes:
        return replace(best, matrices=best.matrices.packed())
    return replace(best, matrices=None, bias=None)


def why_several(perturbed: Perturbed, name: str, calls: Mapping[str, Call]) -> str:
    """The reason why a module that attends more than once does not replay."""
    module = perturbed.network.get_submodule("" if name == "(root)" else name)
    layer = Layer(module, module, calls[name], (0, 0))
    layer.run(None)
    ends = layer.linear_ends()
    return ends if isinstance(ends, str) else SEVERAL_TIMES


def best_of(layer: Layer) -> Replayed:
    """The first reading that replays, otherwise that with the least residual, or the failing premise."""
    starts = list(layer.starts())
    if not starts:
        return Replayed(why=NO_SUM)
    product = layer.run(forced(layer.random_attention())).attended[0].value
    if product is None:
        return Replayed(why=NO_PRODUCT)
    values = layer.in_rows(product)
    ends = layer.linear_ends(starts[0][1])
    if isinstance(ends, str):
        return Replayed(why=ends)
    best, written = Replayed(why=UNKNOWN), dict[Heads, Written]()
    tried, limit, unknown = False, "", UNKNOWN
    for start in filter(layer.linear_values, starts):
        for channels, order in layer.orders(start[1]).items():
            # No convention says which axis is heads: each is tried, and replay under independent random attention in
            # each head decides.
            for heads in layer.head_axes():
                read = alike(heads.split(order, 1))
                if read is None or not covers(read, start[1].numel() // start[1].shape[channels]):
                    continue
                if heads not in written:
                    written[heads] = layer.written(heads, ends)
                tried = tried or bool(written[heads])
                if bool((read == NONE).any()) and bool(values[order == NONE].any()):
                    unknown = CONSTANT_VALUES
                for reading in layer.readings(start, channels, read, heads, written[heads]):
                    if reading.passes:
                        return reading
                    limit = limit or reading.why
                    if reading.residual is None:
                        continue
                    if best.residual is None or reading.residual < best.residual:
                        best = reading
    if tried:
        return replace(best, why=limit or unknown)
    if layer.between_channels(starts[0][1]):
        return Replayed(why=CHANNELS)
    if not any(written.get(heads) or layer.written(heads, ends) for heads in layer.head_axes()):
        return Replayed(why=NOT_ONE_EACH)
    return Replayed(why=layer.why_values(starts[0]))
