"""Checks arguments of public names: a wrong one is refused with one sentence, before it can fail later."""

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from inspect import isfunction, signature
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.errors import Conv2AttnError, UnsupportedError, UsageError, first_line
from conv2attn.generators import devices_of, generators_kept
from conv2attn.torch_internals import tree_leaves

LISTED = 12
"""The most names that an error lists."""
FAILURES = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, AssertionError)


@final
@dataclass(frozen=True)
class Selection:
    """All names (those that fit a pattern of `only`, if there is one), except those that fit a pattern of `skip`."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    @staticmethod
    def of(only: "Patterns", skip: "Patterns" = ()) -> "Selection":
        """From one glob pattern or several.

        Raises:
            UsageError: the value is not a pattern or a list of them (C2A006).
        """
        if isinstance(only, Selection):
            return only
        both: list[Any] = [[patterns] if isinstance(patterns, str) else patterns for patterns in (only, skip)]
        for patterns in both:
            if not isinstance(patterns, Iterable) or not all(isinstance(each, str) for each in patterns):
                raise UsageError("C2A006", f"{patterns!r} is not a list of patterns", "Pass names, such as 'layer1.*'.")
        return Selection(*map(tuple, both))

    def check(self, names: Sequence[str], kind: str) -> None:
        """Refuses a pattern that fits none of the `names` of layers of this kind, with the nearest one that does.

        Raises:
            UsageError: there is such a pattern (C2A008).
        """
        for pattern in (*self.only, *self.skip):
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UsageError("C2A008", f"the pattern {pattern!r} fits no {kind}", near_miss(pattern, names))

    def wants(self, *names: str) -> bool:
        """Whether a module with these names is selected."""
        wanted = not self.only or any(fnmatchcase(name, pattern) for name in names for pattern in self.only)
        return wanted and not any(fnmatchcase(name, pattern) for name in names for pattern in self.skip)


Patterns = str | Sequence[str] | Selection


def near_miss(pattern: str, names: Sequence[str]) -> str:
    """Advice for a pattern that fits none of these names.

    >>> near_miss("layer1", ["conv1", "layer1.0.conv1"]), near_miss("layer1.0.conv", ["conv1", "layer1.0.conv1"])
    ("Did you mean 'layer1.*'?", "Did you mean 'layer1.0.conv1'?")
    >>> near_miss("stem", ["conv1", "conv2"])
    'There are: conv1, conv2.'
    """
    inside, close = f"{pattern}.*", get_close_matches(pattern, names, 1)
    if pattern and any(fnmatchcase(name, inside) for name in names):
        return f"Did you mean {inside!r}?"
    if close:
        return f"Did you mean {close[0]!r}?"
    rest = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"There are: {', '.join(names[:LISTED]) or 'none'}{rest}."


def check_network(network: Any, name: str = "network") -> None:
    """Checks that a value is a network.

    Raises:
        UsageError: it is not an `nn.Module` (C2A006).
    """
    if isinstance(network, nn.Module):
        return
    if isinstance(network, str | os.PathLike):
        remedy = f"Load it first: conv2attn.load({os.fspath(network)!r})."
        raise UsageError("C2A006", f"{name} is the name {os.fspath(network)!r}, not a torch.nn.Module", remedy)
    reason = f"{name} is of class {type(network).__name__}, not a torch.nn.Module"
    if isinstance(network, Mapping) and any(isinstance(each, Tensor) for each in network.values()):
        remedy = "Load its weights into a network first: conv2attn.load(path, arch=...), or network.load_state_dict."
        raise UsageError("C2A006", f"{reason}: it looks like a state dict", remedy)
    raise UsageError("C2A006", reason, "Pass the network itself.")


def check_has_numbers(network: Any, name: str = "network") -> None:
    """Checks that a value is a network that holds numbers.

    Raises:
        UsageError: it is not an `nn.Module`, or is on the meta device (C2A006).
    """
    check_network(network, name)
    if any(tensor.is_meta for tensor in (*network.parameters(), *network.buffers())):
        raise UsageError("C2A006", f"{name} is on the meta device, without numbers", "Load its numbers first.")


def check_kind(argument: Any, name: str, kinds: Any, remedy: str) -> None:
    """Refuses an argument of another class.

    Raises:
        UsageError: the argument is of none of `kinds` (C2A006).
    """
    if not isinstance(argument, kinds) or isinstance(argument, bool):
        text = "" if isinstance(argument, nn.Module) else f"{str(argument)[:60]!r}, "
        raise UsageError("C2A006", f"{name} is {text}of class {type(argument).__name__}", remedy)


def check_choice(argument: Any, name: str, choices: Iterable[str]) -> None:
    """Refuses a word that is not one of the choices.

    Raises:
        UsageError: the word is not in `choices` (C2A002).
    Examples:
        >>> check_choice("rows", "order", ("mixing", "channels"))
        Traceback (most recent call last):
        conv2attn.errors.UsageError: C2A002 order='rows' is not one of mixing, channels. Pass one of these.
    """
    names = tuple(choices)
    if not isinstance(argument, str) or argument not in names:
        raise UsageError("C2A002", f"{name}={argument!r} is not one of {', '.join(names)}", "Pass one of these.")


def as_inputs(network: nn.Module, example_input: Any) -> Any:
    """The arguments of a network's call: a tensor, positional or named arguments; for a size, seeded noise in [-1, 1].

    Args:
        example_input: integers (channels, *sides) are the size of one image.
    Raises:
        UsageError: the input is text or a number (C2A006), or a size that is not positive (C2A001).
    """
    if not is_size(example_input):
        return example_input
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(1, *example_input, generator=generator, device="cpu") * 2 - 1
    like = first_weight(network)
    return noise if like is None else noise.to(like)


def is_size(example_input: Any) -> bool:
    """Whether this is the size of one image, (channels, *sides), rather than arguments of a call.

    Raises:
        UsageError: the input is text or a number (C2A006), or a size that is not positive (C2A001).
    """
    if isinstance(example_input, str | os.PathLike | bytes | int | float):
        reason = f"example_input is {example_input!r}, not a tensor"
        raise UsageError("C2A006", reason, "Pass a tensor, or the size of an image such as (3, 224, 224).")
    sized = isinstance(example_input, Sequence) and all(type(each) is int for each in example_input)
    if not sized or not len(example_input):
        return False
    if min(example_input) < 1:
        raise UsageError("C2A001", f"example_input={tuple(example_input)} has a side below 1", "Pass positive sides.")
    return True


def first_weight(network: nn.Module) -> Tensor | None:
    """The first floating-point parameter of a network."""
    return next((each for each in network.parameters() if each.is_floating_point()), None)


@contextmanager
def running(network: nn.Module, inputs: Any) -> Iterator[None]:
    """Turns a network's error into a UsageError that describes the inputs.

    Raises:
        UsageError: the network raises an error (C2A009).
    """
    try:
        yield
    except Conv2AttnError:
        raise
    except Exception as error:  # a network may raise its own
        refusal = f"{type(network).__name__} does not run on {described(inputs)} ({first_line(error)})"
        raise UsageError("C2A009", refusal, remedy_for(network, inputs)) from error


def call_network(network: nn.Module, inputs: Any, seed: int | None = None) -> Any:
    """`network` called with one tensor, several positional arguments, or named ones.

    Random draws inside do not advance the caller's generators; they start at `seed`, or at the caller's state.
    """
    named, several = isinstance(inputs, Mapping), isinstance(inputs, tuple | list)
    arguments = [*(inputs.values() if named else inputs if several else [inputs])]
    with generators_kept(devices_of(network, *arguments), seed):
        return network(**inputs) if named else network(*arguments)


def foreign_code(module: nn.Module, packages: Container[str]) -> str:
    """The reason why a module may differ from its class in one of these packages; empty if there is none.

    Such reasons are hooks, methods set on the instance, and methods of a subclass from elsewhere.
    """
    if module._forward_hooks or module._forward_pre_hooks:
        return "has hooks"
    kind = type(module)
    homes = [each.__module__.partition(".")[0] for each in kind.__mro__]
    foreign = kind.__mro__[: next(place for place, home in enumerate(homes) if home in packages)]
    changed = {key for each in foreign for key, value in vars(each).items() if isfunction(value)} - {"__init__"}
    functions = {key for key, value in vars(module).items() if callable(value)}
    changed |= {key for key in functions if callable(getattr(kind, key, None))}
    return f"has a {min(changed)} of its own" if changed else ""


def check_code(module: nn.Module, *packages: str) -> None:
    """Refuses a module if a part of it may compute something else than its class in one of these packages.

    Raises:
        UnsupportedError: a part has hooks or custom code (C2A106).
    """
    for part in module.modules():
        if reason := foreign_code(part, packages):
            sentence = f"{type(part).__name__} {reason}, so its parameters do not determine its function"
            raise UnsupportedError("C2A106", sentence, "Pass the library's own layer with the same weights.")


def argument(args: Any, kwargs: Any, place: int, name: str) -> Any:
    """The argument of a call, passed by position or by name."""
    return args[place] if len(args) > place else kwargs[name]


def export_shapes(network: nn.Module, shape: dict[int, Any]) -> tuple[Any, ...]:
    """The dynamic shapes of a network of one image, in the form of `torch.export` for its forward, `*args` included."""
    (first, *_) = [*signature(network.forward).parameters.values(), None]
    return ((shape,),) if first is not None and first.kind is first.VAR_POSITIONAL else (shape,)


def tensors_in(inputs: Any) -> list[Tensor]:
    """The tensors of a call."""
    leaves = tree_leaves(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    return [tensor for tensor in leaves if isinstance(tensor, Tensor)]


def described(inputs: Any) -> str:
    """Inputs in words: shapes and dtypes."""
    tensors = tensors_in(inputs)
    shapes = [f"{'x'.join(map(str, each.shape))} numbers of {each.dtype}" for each in tensors]
    return "images of " + " and ".join(shapes) if shapes else f"inputs of class {type(inputs).__name__}"


def remedy_for(network: nn.Module, inputs: Any) -> str:
    """Advice to pass the network's dtype, or a size without its batch."""
    like = first_weight(network)
    images = [each for each in tensors_in(inputs) if each.ndim > 2 and like is not None and each.dtype != like.dtype]
    if like is not None and images:
        return f"Pass images of {like.dtype}, as the network has its weights: images.to({like.dtype})."
    return without_batch(inputs) or "Pass what its forward takes."


def without_batch(inputs: Any) -> str:
    """Advice to leave a batch of one out of the size of an image; empty if no image has one."""
    sizes = ("x".join(map(str, each.shape[2:])) for each in tensors_in(inputs) if each.ndim > 4 and each.shape[1] == 1)
    return next((f"If the leading 1 is the batch, leave it out: --input-size {size}." for size in sizes), "")
