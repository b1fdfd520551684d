"""The bound on the difference of two networks' outputs: one network is run once, and carries it along."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from conv2attn.certificates.computed.arithmetic import gradual_underflow
from conv2attn.certificates.propagation.carried import LayerRule, Stop
from conv2attn.certificates.propagation.carrier import Carrier
from conv2attn.models.conversion.discovery import copy_network


def propagate(
    original: nn.Module, layers: Mapping[str, LayerRule], images: Tensor, input_range: float
) -> tuple[float | None, str]:
    """The bound on the difference of the outputs for one image within +-input_range, or None and where it stops.

    The largest of all outputs. What the network does must not depend on its numbers: whoever asks for one stops the
    bound, and so does a tensor that comes from outside of torch's functions; and where subnormal numbers are flushed,
    none is given, since what then is lost without any rounding is not counted.

    Args:
        layers: for the compared layers, by name, how what goes in becomes what comes out.
        images: one of them is run, for the shapes.
    """
    if not math.isfinite(input_range):
        return None, "inputs that are not finite"
    with gradual_underflow() as flushing:
        if flushing:
            return None, "numbers that are flushed to zero"
    carrier = Carrier()
    try:
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng():
            trial = copy_network(original)
            rules: dict[nn.Module, list[LayerRule]] = {module: [] for module in trial.modules()}
            for name, module in trial.named_modules(remove_duplicate=False):
                rules[module] += [layers[name]] if name in layers else []
            for name, module in trial.named_modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    carrier.watch(name, module, rules[module])
            bound = carrier.bound(trial, images[:1].clone(), input_range)
    except Stop as stop:
        return None, (carrier.stopped or stop).where
    except Exception as error:  # the network's own code may do anything with what it is given
        return None, carrier.stopped.where if carrier.stopped else f"an error ({type(error).__name__})"
    if carrier.stopped:
        return None, carrier.stopped.where
    return (bound, "") if math.isfinite(bound) else (None, "an infinite bound")
