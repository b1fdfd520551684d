"""Writes Claims.v: the prose of claims_prose.txt, and at each `@Name` the head theorem of claims.toml, written out.

Statements.v defines a statement in full, or as an instance of a predicate whose other instances are its mutants. Here
the arguments take the place of the predicate's parameters, as text; a lemma by reflexivity says that nothing else
changed.

    Definition convolves (looks : ...) := ... hard (fun h => looks n g (f h)) P ...
    Definition L1 := convolves (fun n g t => t).
    Definition Lemma1 := ... hard (fun h => f h) P ...

    python -m proofs.formal.written_out           says whether Claims.v is as generated; exit 1 where not
    python -m proofs.formal.written_out --write   writes it
"""

import re
import sys
from functools import partial
from pathlib import Path

from .sources import HERE
from .terms import NAME, Defined, arguments, closing, definitions, mentions, parameters, replaced
from .theorems import formal_claims

PROSE = "claims_prose.txt"
WIDTH = 100
INFIX = {"leq": "<=%N", "ltn": "<%N", "Rle": "<=%R", "Rlt": "<%R", "Z.le": "<=%Z", "eq": "=", "Rmult": "*%R"}


def joined(term: str, values: list[str]) -> str:
    """A term applied to these values."""
    return " ".join([term, *values])


def applied(argument: str, kind: str, defined: dict[str, Defined], values: list[str]) -> str:
    """An argument of a predicate, in the place of a parameter of this type that is applied to these values."""
    if function := re.fullmatch(r"\(fun ([^=]*?) =>\s+(.*)\)((?:%\w+)?)", argument, re.S):
        names, body = function[1].split(), function[2]
        if len(names) > len(values):
            return joined(argument, values)
        for name, value in zip(names, values, strict=False):
            body = replaced(body, name, partial(joined, value))
        return joined(body if re.fullmatch(NAME, body) else f"({body}){function[3]}", values[len(names) :])
    head, *first = argument[1:-1].split() if re.fullmatch(r"\([\w.]+ [\w.]+\)", argument) else [argument]
    if first and head in defined and len(defined[head].parameters) == len(first) + len(values):
        return instance(defined[head], [*first, *values], defined)
    if head == "id" and len(values) == 1:
        return values[0]
    if head in INFIX and len(first) + len(values) == 2:
        sign, _, scope = INFIX[head].partition("%")
        left, right = (bare(each, scope) for each in [*first, *values])
        return f"({left} {sign} {right})" + f"%{scope}" * bool(scope)
    return joined(argument, explicit(kind, values) if re.fullmatch(NAME, argument) else values)


def bare(operand: str, scope: str) -> str:
    """An operand of a comparison without its parentheses, where it binds more tightly than that."""
    inside = re.fullmatch(rf"\((.*)\)(?:%{scope})?", operand, re.S)
    if not inside or closing(operand, 0) != len(operand) or re.search(r"[<>=,]|/\\", inside[1]):
        return operand
    return inside[1]


def explicit(kind: str, values: list[str]) -> list[str]:
    """The arguments of a definition of this type that are not implicit: no other type depends on them."""
    binders = re.match(r"forall (.*?), ", kind)
    if not binders:
        return values
    text = binders[1] if "(" in binders[1] else f"({binders[1]})" if ":" in binders[1] else binders[1]
    names = [name for name, _ in parameters(text)]
    implicit = [name for name in names if mentions(re.sub(rf"\b{name}\b", "", kind, count=1), name)]
    return [each for each, name in zip(values, [*names, *[""] * len(values)], strict=False) if name not in implicit]


def instance(predicate: Defined, values: list[str], defined: dict[str, Defined]) -> str:
    """The body of a predicate, with these arguments for its parameters."""
    body = predicate.body
    for (name, kind), argument in zip(predicate.parameters, values, strict=True):
        if name != argument:
            body = replaced(body, name, partial(applied, argument, kind, defined))
    return body


def unfolded(notion: Defined, defined: dict[str, Defined], values: list[str]) -> str:
    """A definition in place of its name; what is implicit, or its section varies, has the names of the statement."""
    shown = notion.parameters
    if len(values) < len(shown):
        later = [[kind for _, kind in shown[place + 1 :]] for place in range(len(shown))]
        shown = tuple(each for each, kinds in zip(shown, later, strict=True) if not mentions(" ".join(kinds), each[0]))
    return (
        f"({instance(Defined(shown, notion.body, ''), values[len(values) - len(shown) :], defined)}){notion.delimiter}"
    )


def expanded(text: str, defined: dict[str, Defined]) -> str:
    """A statement with the predicates of which it, or each of its parts, is an instance written out."""
    conjuncts = r"|(?<=\[/\\ )|(?<=, )|(?<=& )" if text.startswith("[/") else ""
    parts = re.compile(rf"(?:^(?:~ )?{conjuncts})({NAME})(?![\w'])")
    start = 0
    while found := parts.search(text, start):
        start, name = found.end(), found[1].removeprefix("@")
        values, end = arguments(text, found.end(1))
        if name not in defined:
            continue
        if not defined[name].parameters and found.start(1) in (0, 2) and (values or start > len(name)):
            body = joined(defined[name].body, values)
        elif values and len(values) == len(defined[name].parameters):
            body = instance(defined[name], values, defined)
        else:
            continue
        whole = (found.start() == 0 and end == len(text)) or (not defined[name].parameters and values)
        text = text[: found.start(1)] + (body if whole else f"({body})") + text[end:]
        start = 0
    return text


def tidy(text: str) -> str:
    """Without parentheses around parentheses or around what stands alone, in lines of at most `WIDTH`."""
    for place in [found.start() for found in re.finditer(r"\(", text)][::-1]:
        end, before = closing(text, place), re.search(r"(\(|->|,|=>|[<>=+*/\\])\s*$", text[:place])
        around, behind = text[place + 1 : end - 1], re.match(r"\)|,|\s+(->|[-<>=+*&])", text[end:])
        if text[end - 1] != ")":
            continue
        doubled = text[place + 1] == "(" and closing(text, place + 1) == end - 1
        simple = before and behind and re.fullmatch(r"[\w'.() ]+", around)
        premise = before and before[1] in ("->", ",") and text.startswith(" ->", end)
        premise = premise and not re.search(r"->|,|/\\|:", around)
        if doubled or simple or premise:
            text = text[:place] + around + text[end:]
    return "\n".join(broken for line in text.splitlines() for broken in lines(line))


def lines(line: str) -> list[str]:
    """A line broken where fewest parentheses are open."""
    if len(line) <= WIDTH:
        return [line]
    depths, depth = list[tuple[int, bool, int]](), 0
    for place, character in enumerate(line[: WIDTH + 1]):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == " " and WIDTH // 2 < place < len(line) - 8:
            depths.append((depth, not line[:place].endswith(("->", ",")), -place))
    cut = -min(depths)[2]
    indent = len(line) - len(line.lstrip()) or 2
    return [line[:cut], *lines(" " * indent + line[cut + 1 :])]


def written_out(folder: Path = HERE) -> str:
    """Claims.v."""
    defined = definitions((folder / "Statements.v").read_text())
    heads = {theorem.written: theorem.statement for claim in formal_claims(folder) for theorem in claim.theorems}

    def stated(found: re.Match[str]) -> str:
        statement = heads[found[1]].split(".")[-1]
        scope = defined[statement].delimiter
        body = expanded(defined[statement].body, defined)
        for name in (found[2] or "").split():
            unfold = partial(unfolded, defined[name], defined)
            body = replaced(body.replace(f"@{name} ", f"{name} "), name, unfold)
        text = f"Definition {found[1]} := " + (f"({body}){scope}" if scope else body) + "."
        return tidy(f"{text}\nLemma {found[1]}E : {found[1]} = {heads[found[1]]}. Proof. reflexivity. Qed.")

    return re.sub(r"^@(\w+)(?: unfolding ([\w ]+))?$", stated, (folder / PROSE).read_text(), flags=re.M)


def main(options: list[str]) -> int:
    if "--write" in options:
        (HERE / "Claims.v").write_text(written_out())
    same = (HERE / "Claims.v").read_text() == written_out()
    print("Claims.v is " + ("as" if same else "not as") + " generated")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
