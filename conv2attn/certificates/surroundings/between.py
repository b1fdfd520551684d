"""Whether code between the layers makes the same bits of the same numbers, on an image: it may look at the layers."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.certificates.computed.measure import FAILURES, run
from conv2attn.certificates.computed.outputs import leaves
from conv2attn.certificates.readings.finding import Finding, refuted, unsupported
from conv2attn.certificates.surroundings.stored import hooks, same_bits
from conv2attn.certificates.surroundings.structure import compare_structure
from conv2attn.models.conversion.discovery import copy_network
from conv2attn.models.conversion.functional import FUNCTIONS
from conv2attn.models.conversion.redirection import CHILD, stop_attending
from conv2attn.verdicts import Verdict

IMAGES = 2  # as many as batch normalisation in training needs


@final
@dataclass
class Tape:
    """What layers were given and returned, call after call, and where a later run departs from that.

    `groups` says for each name of a layer under which one it is recorded: one module may come under several.
    """

    groups: dict[str, str]
    calls: list[tuple[str, list[Tensor], Tensor]] = field(default_factory=list)
    at: int = 0
    departure: str = ""

    def record(self, original: nn.Module, images: Tensor) -> list[Tensor]:
        """The tensors that `original` returns, while its layers are recorded."""

        def recorded(forward: Any, names: set[str]) -> Any:
            (name,) = names

            def noted(*args: Any, **kwargs: Any) -> Any:
                given = copies((args, kwargs))
                output = forward(*args, **kwargs)
                self.calls.append((name, given, output.detach().clone()))
                return output

            return noted

        return self.run(original, images, recorded)

    def play(self, network: nn.Module, images: Tensor) -> list[Tensor]:
        """The tensors that `network` returns, while its layers return what was recorded."""
        self.at, self.departure = 0, ""

        def answering(_: Any, names: set[str]) -> Any:
            def answer(*args: Any, **kwargs: Any) -> Tensor:
                known, given, output = self.calls[self.at]
                self.at += 1
                if known not in names:
                    self.departs(f"{min(names)} is called in place of {known}")
                elif not all_same(given, copies((args, kwargs))):
                    self.departs(f"{known} is given other numbers")
                return output.clone()

            return answer

        outputs = self.run(network, images, answering)
        if self.at < len(self.calls):
            self.departs(f"{self.calls[self.at][0]} is not called")
        return outputs

    def departs(self, where: str) -> None:
        """Notes the first departure."""
        self.departure = self.departure or where

    def run(self, network: nn.Module, images: Tensor, replaced: Callable[[Any, set[str]], Any]) -> list[Tensor]:
        """What a copy of `network` returns, with other forwards of its layers, and functional convolutions as such."""
        trial, known = copy_network(network), dict[nn.Module, set[str]]()
        for name, group in self.groups.items():
            known.setdefault(trial.get_submodule(name), set()).add(group)
        for layer, names in known.items():
            vars(layer)["forward"] = replaced(layer.forward, names)
        stop_attending(trial)
        with PlainLayouts():
            return copies(run(trial, images.clone()))


class PlainLayouts(TorchFunctionMode):
    """While active, convolutions get their tensors in the plain layout: of others some kernels read what is not theirs.

    In bfloat16 with channels innermost oneDNN, as of torch 2.13, returns other numbers each time.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`."""
        kwargs = kwargs or {}
        if func in FUNCTIONS:
            args = tuple(map(plain, args))
            kwargs = {name: plain(item) for name, item in kwargs.items()}
        return func(*args, **kwargs)


def plain(item: Any) -> Any:
    """A tensor in the plain layout, anything else as it is."""
    return item.contiguous() if isinstance(item, Tensor) else item


def findings_between(
    original: nn.Module, network: nn.Module, apart: Set[str], names: Sequence[str], images: Tensor
) -> list[Finding]:
    """The findings on all that stands between the layers `apart`, of which `names` are the first names.

    What is stored is compared bit for bit; that the code does not tell one kind of layer from the other is tried.
    """
    found = compare_structure(original, network, apart)
    if any(each.verdict is Verdict.REFUTED for each in found):
        return found
    departure = departure_between(original, network, names, images)
    told = f"although the layers return the same numbers in both, in the second {departure}"
    return [refuted("structure", "C2A405", told)] if departure else found


def departure_between(original: nn.Module, network: nn.Module, names: Sequence[str], images: Tensor) -> str:
    """Where `network` computes other bits than `original` though the layers return the same; empty if nowhere.

    A refutation on these images, and no proof for others. Nothing is said where `original` departs from itself, as by
    noise of its own, or where it does not run on so few images.
    """
    if not any(names) and not any(CHILD in module._modules for module in network.modules()):
        return ""
    first = {id(original.get_submodule(name)): name for name in reversed(names)}
    tape, few = Tape({name: first[id(original.get_submodule(name))] for name in names}), images[:IMAGES]
    try:
        outputs = tape.record(original, few)
        again = tape.play(original, few)
    except FAILURES:
        return ""
    if tape.departure or not all_same(outputs, again):
        return ""
    try:
        second = tape.play(network, few)
    except FAILURES as failure:
        return f"something fails: {type(failure).__name__}: {str(failure).partition(chr(10))[0]}"
    return tape.departure or ("" if all_same(outputs, second) else "the outputs are other numbers")


def copies(item: Any) -> list[Tensor]:
    """Copies of the tensors in nested tuples, lists and mappings."""
    return [tensor.detach().clone() for _, tensor in leaves(item)]


def all_same(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Whether two lists of tensors are the same, bit for bit."""
    return len(ours) == len(theirs) and all(map(same_bits, ours, theirs))


def hooked(layer: nn.Module) -> bool:
    """Whether hooks change what a layer is given or returns, beside those that compute a weight."""
    return bool(hooks(layer._forward_pre_hooks) or hooks(layer._forward_hooks))


def compiled(original: nn.Module, network: nn.Module) -> list[Finding]:
    """A finding on the first module that runs as compiled code, which cannot be read, if there is one."""
    for side, which in ((original, "first"), (network, "second")):
        for name, module in side.named_modules():
            dynamo = type(module).__module__ == "torch._dynamo.eval_frame"
            wrapped = dynamo or isinstance(module, torch.jit.ScriptModule)
            if wrapped or vars(module).get("_compiled_call_impl") is not None:
                told = f"{name or 'the network'} of the {which} runs as compiled code, which cannot be read"
                return [unsupported("C2A106", f"{told}: pass it uncompiled")]
    return []
