"""Usual questions of a network's own code about its layers, such as `isinstance(self.conv, nn.Conv2d)`: a lint.

The forward of each module is read, with the methods that it calls on itself. A name stands for the modules that it may
hold. No scan finds all questions, so none found proves nothing: the premise of a certificate stands all the same.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from torch import nn

from conv2attn.equality.twins import is_layer, modules_outside_layers

OF_A_LAYER = ("isinstance", "type", "hasattr", "getattr", "vars", "dir", "id", "repr", "str")
OF_ALL_INSIDE = ("modules", "parameters", "buffers", "state_dict", "extra_repr")
ATTRIBUTES = ("__class__", "__dict__")
ASKING = (ast.Call, ast.Attribute, ast.Match, ast.FormattedValue)
HOLDING = (ast.For, ast.comprehension, ast.Assign, ast.NamedExpr)


def question_about_layers(network: nn.Module) -> str:
    """The first usual question that the code of a network asks about its layers, with its line; empty if none."""
    modules = modules_outside_layers(network).values()
    return next((told for module in modules for told in Reading(module).questions("forward", set())), "")


@lru_cache(maxsize=1024)
def code_of(function: Callable[..., Any]) -> tuple[list[ast.AST], str]:
    """The parts of a function's code that hold modules or ask, and its file; lines are those of the file."""
    code = inspect.unwrap(function)
    lines, first = inspect.getsourcelines(code)
    tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    return [each for each in ast.walk(tree) if isinstance(each, ASKING + HOLDING)], Path(inspect.getfile(code)).name


@final
class Reading:
    """The code of one module, in which each name is known by the modules that it may hold."""

    def __init__(self, module: nn.Module):
        self.module, self.names = module, {"self": [module]}

    def questions(self, method: str, read: set[str]) -> Iterator[str]:
        """The questions that a method asks, and those that it calls on itself."""
        function = getattr(type(self.module), method, None)
        if method in read or not inspect.isfunction(function) or str(function.__module__).split(".")[0] == "torch":
            return
        read.add(method)
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
                yield f"{type(self.module).__name__}.{method} asks {told} of a layer at {file}:{vars(node)['lineno']}"
            func = node.func if isinstance(node, ast.Call) else None
            if isinstance(func, ast.Attribute) and self.held(func.value) == [self.module]:
                yield from self.questions(func.attr, read)

    def hold(self, target: ast.expr, modules: list[nn.Module]) -> None:
        """Notes what the names in a target may hold."""
        for node in ast.walk(target) if modules else ():
            if isinstance(node, ast.Name) and node.id != "self":
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
