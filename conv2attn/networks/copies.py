"""Copies networks completely, and moves them or sets their mode; torch's own copies and moves lose attributes."""

import copy
import gc
import io
import threading
import types
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer

from conv2attn.errors import UnsupportedError, first_line

HOOKS_OF_GRAPHS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)  # fmt: skip
"""The hooks that a deep copy of an fx graph loses; it also loses custom attributes."""
LOCKS = {type(threading.Lock()): threading.Lock, type(threading.RLock()): threading.RLock}
"""Locks, which Python cannot copy, with their constructors: a new lock serves as the copy."""
SHARED = (types.ModuleType, io.TextIOWrapper, io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
"""Process-wide objects, which a copy shares."""
NOT_ENTERED = (type, Tensor, types.FunctionType, types.BuiltinFunctionType, types.CodeType)
"""Types that a deep copy keeps, or copies without entering them."""


def in_training(module: nn.Module) -> bool:
    """Whether a module is in training mode; a frozen TorchScript module has no mode, and always evaluates."""
    return bool(getattr(module, "training", False))


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Within the block `network` is in evaluation mode; afterwards each module's mode is restored."""
    modes = {module: module.training for module in network.modules() if hasattr(module, "training")}
    frozen = [module for module in network.modules() if module not in modes]
    try:
        network.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for module in frozen:  # `eval` gave it a mode
            vars(module).pop("training", None)


def copy_network(network: nn.Module) -> Any:
    """A deep copy, even if hooks have stored computed tensors as attributes, which torch refuses to copy.

    A module whose `__deepcopy__` returns itself is copied nevertheless, since changes of the copy must not reach the
    original. Attributes of parameters, which torch does not copy either, are shared with the original. Tensors that
    share memory share it in the copy too.
    """
    attributes = [value for module in network.modules() for value in vars(module).values()]
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    memo: dict[Any, Any] = {}
    detached: dict[int, Any] = {id(tensor): laid_out(tensor.detach(), memo) for tensor in computed}
    detached |= {id(each): unmade(each) for each in network.buffers() if isinstance(each, UninitializedBuffer)}
    # Most attributes of a module are empty dictionaries of hooks, which Python would copy one by one.
    hooks = (value for value in attributes if type(value) is OrderedDict)
    detached |= {id(value): OrderedDict() for value in hooks if not value and not vars(value)}
    # Buffers likewise: torch's copy of them takes as long as a call of a small network.
    plain = (each for each in network.buffers() if type(each) is Tensor and not (vars(each) or each.requires_grad))
    detached |= {id(each): laid_out(each, memo) for each in plain if id(each) not in detached}
    for parameter in filter(has_storage, network.parameters()):
        detached[id(parameter)] = nn.Parameter(laid_out(parameter.data, memo), parameter.requires_grad)
    memo |= detached
    try:
        copied = copy.deepcopy(network, made := dict(memo))
    except Exception:  # uncopyable objects are searched only on failure: the search costs as much as a copy
        detached |= in_place_of_copies(network)
        made = memo | detached
        try:
            copied = copy.deepcopy(network, made)
        except Exception as error:
            raise why_not_copied(network, memo | detached, error) from error
    memo = made
    # TorchScript's copies of parameters have a gradient history, so torch refuses to move them.
    for scripted in (each for each in copied.modules() if isinstance(each, torch.jit.ScriptModule)):
        for parameter in scripted.parameters():
            if not parameter.is_leaf:
                parameter.detach_().requires_grad_()
    for module in network.modules():  # einops' layers are unpickled by __init__, which sets training mode
        if isinstance(twin := memo.get(id(module)), nn.Module) and in_training(twin) != in_training(module):
            twin.training = module.training
    # A deep copy of a GraphModule loses hooks and custom attributes.
    for graph in (each for each in network.modules() if isinstance(each, torch.fx.GraphModule)):
        twin = memo.get(id(graph))
        for key, value in vars(graph).items() if twin is not None else ():
            if key not in vars(twin) or (key in HOOKS_OF_GRAPHS and value and not vars(twin)[key]):
                vars(twin)[key] = copy.deepcopy(value, memo)
    originals = set(network.modules())
    for parameter in network.parameters():
        if id(parameter) in memo and vars(parameter):
            vars(memo[id(parameter)]).update(vars(parameter))
    if not (uncopied := [module for module in copied.modules() if module in originals]):
        return copied
    emptied = {module: type(module).__new__(type(module)) for module in uncopied}
    memo = {**detached, "torch": memo.get("torch", {}), **{id(module): empty for module, empty in emptied.items()}}
    for module, empty in emptied.items():
        vars(empty).update({key: copy.deepcopy(value, memo) for key, value in vars(module).items()})
    return copy.deepcopy(network, memo)


def in_place_of_copies(network: nn.Module) -> dict[int, Any]:
    """The replacements, by id, of a network's objects that Python cannot copy."""
    waiting: list[Any] = [network]
    replacements, entered = dict[int, Any](), dict[int, Any]()  # with the objects, so that no id is reused
    while waiting:
        thing = waiting.pop()
        if id(thing) in entered:
            continue
        entered[id(thing)] = thing
        if type(thing) in LOCKS:
            replacements.setdefault(id(thing), LOCKS[type(thing)]())
        elif type(thing) is threading.Condition and type(lock := vars(thing)["_lock"]) in LOCKS:
            # A condition holds bound methods of its lock. A deep copy would leave them bound to the original's lock.
            # Events and queues contain conditions.
            replacements[id(thing)] = threading.Condition(replacements.setdefault(id(lock), LOCKS[type(lock)]()))
            entered[id(lock)] = lock
        elif isinstance(thing, SHARED):
            replacements[id(thing)] = thing
        elif not isinstance(thing, NOT_ENTERED):
            waiting += gc.get_referents(thing)
    return replacements


def why_not_copied(network: nn.Module, memo: dict[Any, Any], error: Exception) -> Exception:
    """The error for a network that cannot be copied, naming the attribute at fault; `error` if there are several."""
    memo = memo | {id(module): module for module in network.modules()}
    for name, module in network.named_modules():
        for key, value in vars(module).items():
            try:
                copy.deepcopy(value, dict(memo))
            except Exception as failure:
                sentence = f"{name + '.' if name else ''}{key} cannot be copied ({first_line(failure)[:80]})"
                return UnsupportedError("C2A106", sentence, "Take it off the network: conv2attn runs a copy.")
    return error


def has_storage(parameter: nn.Parameter) -> bool:
    """Whether a parameter is plain, with numbers in a storage, possibly shared."""
    plain = type(parameter) is nn.Parameter and parameter.layout == torch.strided and not parameter.is_quantized
    return plain and parameter.device.type in ("cpu", "cuda")


def laid_out(tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
    """A tensor in a copy of its storage, which is made once for all tensors in it.

    torch copies storages of plain tensors like this, but clones each parameter, which would separate queries, keys and
    values that are views of one weight.
    """
    if type(tensor) is not Tensor or tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        return tensor.clone()
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    storage = copy.deepcopy(tensor.untyped_storage(), memo)
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def unmade(buffer: UninitializedBuffer) -> UninitializedBuffer:
    """A new uninitialised buffer of a lazy module, since torch cannot copy it."""
    made: Any = UninitializedBuffer
    copied: UninitializedBuffer = made(buffer.requires_grad, buffer.device, buffer.dtype)
    return copied


def move_network(network: nn.Module, device: torch.device, *, double: bool = False) -> nn.Module:
    """Moves a network, in float64 if `double`; parameters keep their attributes, even if torch recreates them."""
    attributes = {name: vars(each) for name, each in network.named_parameters(remove_duplicate=False)}
    network = network.to(device).double() if double else network.to(device)
    for name, parameter in network.named_parameters(remove_duplicate=False):
        vars(parameter).update(attributes[name])
    return network
