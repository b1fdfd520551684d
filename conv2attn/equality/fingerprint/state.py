"""Takes apart the state and the outputs of a network for comparison: bits of tensors, plain values, code.

An example: the output `{"logits": y, "loss": None}` is the structure `[("output['logits']", []), ("output['loss']",
NoneType, "None")]`, and `[y]` are its tensors. The state of a network is a dictionary by the `id` of each module,
tensor and function that it reaches; it shows a change of a buffer, an attribute or a global list between two calls.
"""

from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.tensors import CODE, PLAIN, FieldTensor
from conv2attn.equality.output_parts import output_parts
from conv2attn.equality.twins.bits import same_numbers, sha256_of

SCRIPTED = (torch.jit.ScriptFunction, torch.jit.ScriptModule)
FOLLOWED = (nn.Module, Tensor, FunctionType, MethodType, torch.jit.ScriptFunction)
"""Kinds of objects that are followed from a function; other names in it do not belong to the network."""
OURS = ("field_run", "field_store", "field_view")
"""The attributes that only field tensors have."""
VALUES = (type(None), bool, int, float, str)
DEEPEST, LONGEST = 6, 1000
"""Values nested deeper, and collections with more members, are compared by identity alone."""


def taken_apart(output: Any, leaves: list[Tensor]) -> Any:
    """The structure of an output, with the paths of its parts; appends its tensors to `leaves`.

    Raises:
        Undecided: a part is neither a tensor of torch nor a plain value.
    """
    form = list[Any]()
    for where, part in output_parts(output):
        if isinstance(part, Tensor):
            if type(part) not in PLAIN and type(part) is not FieldTensor:
                raise Undecided(f"an output of type {type(part).__name__}")
            if part.is_quantized or part.layout != torch.strided:
                raise Undecided("an output that is not a dense tensor")
            leaves.append(part)
            # Code may return results as attributes of an output, so attributes are outputs too.
            beside = ((name, value) for name, value in vars(part).items() if name not in OURS)
            form.append((where, [(name, taken_apart(value, leaves)) for name, value in beside]))
        elif type(part) in VALUES or (isinstance(part, tuple | list | dict) and not part):
            form.append((where, type(part), repr(part)))
        else:
            raise Undecided(f"an output of type {type(part).__name__}")
    return form


def reachable(network: Any, objects: dict[int, Any] | None = None, depth: int = 0) -> dict[int, Any]:
    """The modules, tensors and functions that a network or a function can reach by name.

    Raises:
        Undecided: a part is compiled.
    """
    objects = {} if objects is None else objects
    if isinstance(network, SCRIPTED) or hasattr(network, "_torchdynamo_orig_callable"):
        raise Undecided("compiled code, whose operators cannot be seen")
    if id(network) in objects or depth > 4:
        return objects
    if isinstance(network, nn.Module):
        for module in network.modules():
            objects[id(module)] = module
            objects |= {id(method): method for method in methods_of(type(module))}
            for value in vars(module).values():
                if isinstance(value, FunctionType | Tensor | torch.jit.ScriptFunction):
                    reachable(value, objects, depth + 1)
    elif isinstance(network, Tensor):
        objects[id(network)] = network
    elif isinstance(network, MethodType):
        reachable(network.__self__, objects, depth + 1)
        reachable(network.__func__, objects, depth + 1)
    elif isinstance(network, FunctionType):
        objects[id(network)] = network
        for value in (*globals_of(network), *cells_of(network), *(network.__defaults__ or ())):
            if isinstance(value, FOLLOWED) and not (getattr(value, "__module__", None) or "").startswith("torch."):
                reachable(value, objects, depth + 1)
    return objects


def methods_of(kind: type) -> list[FunctionType]:
    """The methods of a class and its bases, except torch's own; a call may change values that they enclose and name."""
    own = (base for base in kind.__mro__ if not base.__module__.startswith("torch."))
    return [method for base in own for method in vars(base).values() if isinstance(method, FunctionType)]


def globals_of(function: FunctionType) -> list[Any]:
    """The values of the global names in a function's code."""
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    return [function.__globals__[name] for name in names]


def cells_of(function: FunctionType) -> list[Any]:
    """The values that a function encloses."""
    return [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]


def network_state(network: Any, kinds: Any = object) -> dict[int, Any]:
    """The bits of tensors and the values of attributes, as far as they can be followed.

    Args:
        kinds: kinds of the parts to compare. A copy of a network shares its functions, so a call of either changes
            their closures.

    Raises:
        Undecided: a part is compiled.
    """
    followed: set[int] = set()

    def plain(value: Any, depth: int = 0) -> Any:
        if isinstance(value, Tensor):
            if type(value) in PLAIN and value.layout == torch.strided and not value.is_nested:
                return (value.dtype, tuple(value.shape), bits_of(value))
            return id(value)
        if isinstance(value, bool | int | float | str | bytes | type(None)):
            return (type(value), repr(value))
        opaque = isinstance(value, (nn.Module, type, ModuleType, *CODE))
        if opaque or id(value) in followed or depth > DEEPEST:
            return id(value)
        if isinstance(value, list | tuple | set | frozenset | dict):
            followed.add(id(value))
            if len(value) >= LONGEST:
                return id(value)
            if isinstance(value, dict):
                return (type(value), [(plain(key, depth + 1), plain(each, depth + 1)) for key, each in value.items()])
            return (type(value), [plain(each, depth + 1) for each in value])
        if hasattr(value, "__dict__") and not type(value).__module__.startswith("torch."):
            followed.add(id(value))
            return (id(value), [(name, plain(each, depth + 1)) for name, each in vars(value).items()])
        return id(value)

    contents: dict[int, Any] = {}
    for key, part in reachable(network).items():
        if not isinstance(part, kinds):
            continue
        if isinstance(part, nn.Module):
            if isinstance(part, torch.jit.ScriptModule) or getattr(part, "_compiled_call_impl", None) is not None:
                raise Undecided("compiled code, whose operators cannot be seen")
            values = [(name, value) for name, value in vars(part).items() if name != "_modules"]
            # Most attributes are empty dictionaries of hooks, which are skipped. One that a call fills appears, and so
            # differs.
            contents[key] = [(name, plain(value)) for name, value in values if isinstance(value, Tensor) or value]
        elif isinstance(part, Tensor):
            contents[key] = plain(part)
        else:
            # Functions are the same objects in a copy of the network: a call of either advances a counter that they
            # enclose or name.
            globally = [part.__globals__.get(name) for name in part.__code__.co_names if name.islower()]
            changing = [each for each in globally if isinstance(each, int | float | list | dict)]
            contents[key] = [plain(value) for value in (*cells_of(part), *changing)]
    return contents


def alike(first: Any, second: Any) -> bool:
    """Whether two values are equal; tensors bit for bit, but all NaNs are equal."""
    if isinstance(first, Tensor):
        if not isinstance(second, Tensor) or first.shape != second.shape:
            return False
        return same_numbers(first, second)
    if isinstance(first, tuple | list):
        return type(first) is type(second) and len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(alike(first[key], second[key]) for key in first)
    return bool(first == second)


def bits_of(tensor: Tensor) -> Any:
    """A hash of the numbers of a tensor, in which all NaNs are equal."""
    if tensor.is_quantized:
        return sha256_of(tensor.int_repr()), sha256_of(tensor.dequantize())
    numbers = tensor.detach()
    # A sum is NaN if one of its numbers is.
    if numbers.is_floating_point() and numbers.dtype.itemsize > 1 and bool(numbers.sum().isnan()):
        numbers = torch.where(numbers.isnan(), torch.nan, numbers)
    return sha256_of(numbers)
