"""Usual questions of a network's own code about its layers, such as `isinstance(self.conv, nn.Conv2d)`: a lint.

The forward of each module is read, with the methods that it calls and the functions to which it hands modules. A name
stands for the modules that it may hold.

No scan finds all questions, so none found proves nothing: the premise of a certificate stands all the same.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from torch import nn

from conv2attn.equality.walked_modules import is_layer, modules_outside_layers

OF_A_LAYER = ("isinstance", "type", "hasattr", "getattr", "vars", "dir", "id", "repr", "str")
OF_ALL_INSIDE = ("modules", "parameters", "buffers", "state_dict", "extra_repr")
ATTRIBUTES = ("__class__", "__dict__")
ASKING = (ast.Call, ast.Attribute, ast.Match, ast.FormattedValue)
HOLDING = (ast.For, ast.comprehension, ast.Assign, ast.NamedExpr)


def question_about_layers(network: nn.Module) -> str:
    """The first usual question that the code of a network asks about its layers, with its line; empty if none."""
    read = set[tuple[Any, ...]]()
    forwards = ((type(each).forward, {"self": [each]}) for each in modules_outside_layers(network).values())
    return next((told for function, names in forwards for told in FunctionCode(function, names, read).questions()), "")


@lru_cache(maxsize=1024)
def code_of(function: Callable[..., Any]) -> tuple[list[ast.AST], str]:
    """The parts of a function's code that hold modules or ask, and its file; lines are those of the file."""
    code = inspect.unwrap(function)
    lines, first = inspect.getsourcelines(code)
    tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    return [each for each in ast.walk(tree) if isinstance(each, ASKING + HOLDING)], Path(inspect.getfile(code)).name


@final
class FunctionCode:
    """The code of one function, in which each name is known by the modules that it may hold."""

    def __init__(self, function: Any, names: dict[str, list[nn.Module]], read: set[tuple[Any, ...]]):
        self.function, self.names, self.read = function, dict(names), read
        self.key = function, *((name, *map(id, held)) for name, held in names.items())

    def questions(self) -> Iterator[str]:
        """The questions that the function asks, and those of the functions to which it hands modules."""
        function = self.function
        if not inspect.isfunction(function) or str(function.__module__).split(".")[0] == "torch":
            return
        if self.key in self.read:
            return
        self.read.add(self.key)
        try:
            nodes, file = code_of(function)
        except (OSError, TypeError, SyntaxError, ValueError):  # code without a file
            return
        for node in nodes:
            if isinstance(node, ast.For | ast.comprehension):
                self.hold(node.target, self.iterated(node.iter))
            elif isinstance(node, ast.Assign | ast.NamedExpr):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self.hold(target, self.held(node.value))
        for node in nodes:
            if told := self.question(node):
                yield f"{function.__qualname__} asks {told} of a layer at {file}:{vars(node)['lineno']}"
            if isinstance(node, ast.Call):
                for called, names in self.called(node):
                    yield from FunctionCode(called, names, self.read).questions()

    def called(self, node: ast.Call) -> Iterator[tuple[Any, dict[str, list[nn.Module]]]]:
        """The functions that a call may run, each with the modules that its names hold: methods, and what takes one."""
        handed, named = (
            [self.held(each) for each in node.args],
            {each.arg: self.held(each.value) for each in node.keywords},
        )
        runs = list[tuple[Any, list[list[nn.Module]]]]()
        match node.func:
            case ast.Attribute(value=place, attr=name):
                for owner in (each for each in self.held(place) if not is_layer(each)):
                    own = vars(owner).get(name)
                    runs.append(
                        (own, handed)
                        if inspect.isfunction(own)
                        else (getattr(type(owner), name, None), [[owner], *handed])
                    )
            case ast.Name(id=name):
                runs.append((self.function.__globals__.get(name), handed))
        for function, values in runs:
            if inspect.isfunction(function) and any([*values, *named.values()]):
                names = [*inspect.signature(function).parameters]
                yield function, dict(zip(names, values, strict=False)) | {str(key): named[key] for key in named}

    def hold(self, target: ast.expr, modules: list[nn.Module]) -> None:
        """Notes what the names in a target may hold."""
        for node in ast.walk(target) if modules else ():
            if isinstance(node, ast.Name):
                self.names[node.id] = [*self.names.get(node.id, []), *modules]

    def held(self, node: ast.AST) -> list[nn.Module]:
        """The modules that an expression may be."""
        match node:
            case ast.Name(id=name):
                return self.names.get(name, [])
            case ast.Attribute(value=owner, attr=name):
                inner = [each._modules.get(name) for each in self.held(owner)]
                return [each for each in inner if each is not None]
            case ast.Subscript(value=owner, slice=ast.Constant(value=int(number))):
                return [inner for each in self.held(owner) for inner in [*each.children()][number : number + 1]]
            case ast.Subscript(value=owner) | ast.Call(func=ast.Name(id="next"), args=[owner, *_]):
                return self.iterated(owner)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "iter" | "enumerate" | "zip" | "reversed"), args=args):
                return [each for argument in args for each in self.held(argument)]
            case ast.IfExp() | ast.BoolOp() | ast.Tuple() | ast.List():
                return [each for part in ast.iter_child_nodes(node) for each in self.held(part)]
        return []

    def iterated(self, node: ast.AST) -> list[nn.Module]:
        """The modules that a loop over an expression meets."""
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="modules" | "named_modules")):
                return [inner for each in self.held(owner) for inner in each.modules()]
            case ast.Call(func=ast.Attribute(value=owner, attr="children" | "named_children" | "values" | "items")):
                return [inner for each in self.held(owner) for inner in each.children()]
        return [inner for each in self.held(node) for inner in each.children()]

    def question(self, node: ast.AST) -> str:
        """The question that an expression asks about a layer; empty if none."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=[asked, *_]) if name in OF_A_LAYER:
                return name if any(map(is_layer, self.held(asked))) else ""
            case ast.Attribute(value=asked, attr=name) if name in ATTRIBUTES:
                return name if any(map(is_layer, self.held(asked))) else ""
            case ast.Call(func=ast.Attribute(value=asked, attr=name)) if name.removeprefix("named_") in OF_ALL_INSIDE:
                return name if any(is_layer(inner) for each in self.held(asked) for inner in each.modules()) else ""
            case ast.Match(subject=asked) | ast.FormattedValue(value=asked):
                return type(node).__name__ if any(map(is_layer, self.held(asked))) else ""
        return ""
