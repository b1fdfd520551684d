"""Coq source as text: the definitions of a file, what a name is applied to, and another term in its place."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from .sources import without_comments

DELIMITERS = {"R_scope": "%R", "num_scope": "%num", "Z_scope": "%Z", "ring_scope": "%R"}
NAME = r"@?[A-Za-z_'][\w']*(?:\.\w[\w']*)*"
ATOM = re.compile(rf"\s+((?:#\|[^|]*\||{NAME}(?=\()|{NAME}(?:\.\+\d)?|\d+|(?=\())(?!\w))")
KEYWORDS = {"exists", "forall", "fun", "in", "then", "else", "let"}


@final
@dataclass(frozen=True)
class Defined:
    """A definition of Statements.v: its parameters with their types, its body, and the delimiter of its scope."""

    parameters: tuple[tuple[str, str], ...]
    body: str
    delimiter: str


def definitions(source: str) -> dict[str, Defined]:
    """The definitions of a Coq source by name."""
    found, scopes = dict[str, Defined](), [""]
    for sentence in re.split(r"\.(?=\s|$)", without_comments(source)):
        text = sentence.strip()
        if re.match(r"(Section|Module) ", text):
            scopes.append(scopes[-1])
        elif text.startswith("End "):
            scopes.pop()
        elif opened := re.match(r"Local Open Scope (\w+)", text):
            scopes[-1] = DELIMITERS.get(opened[1], "")
        elif defined := re.match(r"Definition (\S+)\s*(.*?)\s*:=\s+(.*)$", text, re.S):
            found[defined[1]] = Defined(parameters(defined[2]), defined[3], scopes[-1])
    return found


def parameters(binders: str) -> tuple[tuple[str, str], ...]:
    """The names that stand before the colon of a definition, or in parentheses with their type."""
    found, place = list[tuple[str, str]](), 0
    while place < len(binders) and binders[place] != ":":
        bare = re.split(r"[\s(]", binders[place:], maxsplit=1)[0]
        end = closing(binders, place) if binders[place] == "(" else place + len(bare)
        names, _, kind = binders[place:end].strip().removeprefix("(").removesuffix(")").partition(":")
        found += [(name, " ".join(kind.split())) for name in names.split()]
        place = len(binders) - len(binders[end:].lstrip())
    return tuple(found)


def closing(text: str, start: int) -> int:
    """The end of the parenthesis that opens at `start`, with the delimiter of a scope behind it."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return delimited(text, place + 1)
    raise ValueError(f"no parenthesis closes in {text[start : start + 60]}")


def delimited(text: str, end: int) -> int:
    """The end of a term with the delimiter of a scope behind it, if there is one."""
    delimiter = re.compile(r"%\w+").match(text, end)
    return delimiter.end() if delimiter else end


def arguments(text: str, start: int) -> tuple[list[str], int]:
    """What a name that ends at `start` is applied to, and where that ends."""
    found = list[str]()
    while (atom := ATOM.match(text, start)) and atom[1] not in KEYWORDS:
        end = closing(text, atom.end()) if text[atom.end() : atom.end() + 1] == "(" else atom.end()
        start = delimited(text, end)
        found.append(text[atom.start(1) : start])
    return found, start


def replaced(text: str, name: str, put: Callable[[list[str]], str]) -> str:
    """`text` with each free application of `name` to arguments replaced by what `put` makes of them."""
    occurrence = re.compile(rf"(?:(?<![\w'.@])|(?<='I_)){re.escape(name)}(?![\w'])(?! :=)")
    start = 0
    while found := occurrence.search(text, start):
        # An argument of something else is not applied to the arguments that follow it.
        before = re.search(rf"(?<![\\\]\w])({NAME}|\))\s+$", text[: found.start()])
        argument = before is not None and before[1] not in KEYWORDS
        values, end = ([], found.end()) if argument else arguments(text, found.end())
        new = put([replaced(each, name, put) for each in values])
        text, start = text[: found.start()] + new + text[end:], found.start() + len(new)
    return text


def mentions(kind: str, name: str) -> bool:
    """Whether a type depends on a variable."""
    return re.search(rf"(?:(?<![\w'])|(?<='I_)){name}(?![\w'])", kind) is not None
