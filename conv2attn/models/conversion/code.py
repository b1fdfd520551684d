"""Names in the code of a network: the attributes, functions and classes in its bytecode, which is never run.

Read are the functions that a forward or a hook can reach by name: methods, other functions in Python, decorators.
"""

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any, final

from torch import nn

UNKNOWN = object()
HOOKS = ("_forward_pre_hooks", "_forward_hooks")
NO_CHANGE = ("PUSH_NULL", "CACHE", "PRECALL", "EXTENDED_ARG", "NOP")


@final
@dataclass(frozen=True)
class Mention:
    """`holder.name` in the code of `module`, and its `value`; `UNKNOWN` where only running the code would tell.

    A global name has no holder (None).
    """

    module: nn.Module
    holder: Any
    name: str
    value: Any


@final
@dataclass(frozen=True)
class Reached:
    """A function that the code of a module reaches; `bound` is what its first argument is, None where that is open."""

    function: FunctionType
    bound: nn.Module | None


def mentions(network: nn.Module) -> Iterator[Mention]:
    """All that the code of the modules of `network` mentions; of the modules of torch, only their hooks."""
    methods = methods_by_name(network)
    for module in network.modules():
        inside = set(module.modules())
        waiting, seen = list(starts(module)), set[Reached]()
        while waiting:
            if (reached := waiting.pop()) in seen:
                continue
            seen.add(reached)
            for mention in mentions_in(reached, reached.function.__code__, module):
                yield mention
                bound = mention.holder if isinstance(mention.holder, nn.Module) else None
                waiting += functions(mention.value, None if bound and mention.name in vars(bound) else bound)
                if mention.holder is UNKNOWN:
                    waiting += [each for each in methods.get(mention.name, ()) if each.bound in inside]
            decorated = [content(cell) for cell in reached.function.__closure__ or ()]
            for inner in (*decorated, getattr(reached.function, "__wrapped__", None)):
                waiting += functions(inner, reached.bound)


def starts(module: nn.Module) -> Iterator[Reached]:
    """The functions that a call of `module` starts with."""
    for key in HOOKS:
        for hook in getattr(module, key).values():
            yield from functions(hook, module)
    yield from functions(vars(module).get("forward"), None)
    for kind in type(module).__mro__:
        for name in ("forward", "__call__"):
            yield from functions(vars(kind).get(name), module)


def methods_by_name(network: nn.Module) -> dict[str, list[Reached]]:
    """The methods of the modules of `network`, those that a subclass overrides too, but for what a call starts with."""
    methods: dict[str, list[Reached]] = {}
    for module in network.modules():
        for kind in type(module).__mro__:
            for name, value in vars(kind).items() if name_of_package(kind) != "torch" else ():
                if name not in ("forward", "__init__"):
                    methods.setdefault(name, []).extend(functions(value, module))
    return methods


def name_of_package(thing: Any) -> str:
    """The package in which a class or function is defined."""
    return (thing.__module__ or "").partition(".")[0]


def functions(value: Any, bound: nn.Module | None) -> Iterator[Reached]:
    """The function in Python that calling or getting `value` runs, but for those of torch."""
    while isinstance(value, partial | MethodType | property | cached_property | staticmethod | classmethod):
        bound = bound if isinstance(value, property | cached_property) else None
        value = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", None)
    if isinstance(value, FunctionType) and name_of_package(value) != "torch":
        yield Reached(value, bound)


def content(cell: Any) -> Any:
    """The value in a cell of a closure, if there is one yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def steps(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of `code`, but for those that leave the last value where it is."""
    return tuple(step for step in dis.get_instructions(code) if step.opname not in NO_CHANGE)


def mentions_in(reached: Reached, code: CodeType, module: nn.Module, own: str | None = None) -> Iterator[Mention]:
    """Names in `code`, a part of the function reached; the name `own` is that of what it is bound to."""
    if reached.bound is not None and code is reached.function.__code__:
        own = next(iter(code.co_varnames[: code.co_argcount]), None)
    last: Any = None
    for step in steps(code):
        last = UNKNOWN if step.is_jump_target else last
        name = step.argval[-1] if isinstance(step.argval, tuple) and step.argval else step.argval
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            last = reached.function.__globals__.get(name, UNKNOWN)
            yield Mention(module, None, name, last)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            value = attribute(last, name)
            yield Mention(module, last, name, value)
            last = UNKNOWN if isinstance(value, property | cached_property) else value
        elif step.opname == "LOAD_CONST":
            if isinstance(step.argval, str) and last is not None:  # getattr(last, name)
                yield Mention(module, last, step.argval, UNKNOWN)
        elif step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")):
            last = reached.bound if name == own else UNKNOWN
        else:
            last = None if step.opname.startswith(("STORE", "POP_TOP", "RESUME", "BUILD")) else UNKNOWN
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from mentions_in(reached, part, module, own if own in part.co_freevars else None)


def attribute(holder: Any, name: str) -> Any:
    """The value of `holder.name`, found without running code of the network."""
    if isinstance(holder, nn.Module):
        held = {**vars(holder), **holder._parameters, **holder._buffers, **holder._modules}
        return held[name] if name in held else getattr(type(holder), name, UNKNOWN)
    return getattr(holder, "__dict__", {}).get(name, UNKNOWN)
