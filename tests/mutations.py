"""Mutants: source texts that differ from one that is given in one small change."""

import ast
from collections import Counter
from typing import NamedTuple

from changes import Changes


class Mutant(NamedTuple):
    """One change of one file; `lines` are those of its statement, and `scope` the function that it stands in."""

    file: str
    scope: str
    line: str
    change: str
    source: str
    lines: range

    @property
    def key(self) -> tuple[str, ...]:
        """What names the mutant after lines have moved: not its line number."""
        return self.file, self.scope, self.line, self.change


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of a source text, in order, no two of one syntax tree, none of the tree of the text itself."""
    seen = {ast.dump(ast.parse(source))}
    numbered: Counter[tuple[str, ...]] = Counter()
    found = []
    for scope, statement, node, change, new in Changes(ast.parse(source)).found:
        text = _replaced(source, node, new)
        if (tree := ast.dump(ast.parse(text))) in seen:
            continue
        seen.add(tree)
        line = source.splitlines()[node.lineno - 1].strip()
        numbered[scope, line, change] += 1
        if (number := numbered[scope, line, change]) > 1:
            change += f" ({number})"
        found.append(Mutant(file, scope, line, change, text, _lines(statement)))
    return found


def _lines(statement: ast.stmt) -> range:
    """The lines of a statement, up to its first block."""
    blocks = [part for name in ("body", "cases") for part in getattr(statement, name, [])]
    first = blocks[0] if blocks else None
    below = first.pattern if isinstance(first, ast.match_case) else first
    end = max(statement.lineno, below.lineno - 1) if below else statement.end_lineno or statement.lineno
    return range(statement.lineno, end + 1)


def _replaced(source: str, node: ast.expr | ast.stmt, new: str) -> str:
    lines = source.splitlines(keepends=True)
    raw = source.encode()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    assert node.end_lineno
    assert node.end_col_offset is not None
    start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    return (raw[:start] + new.encode() + raw[end:]).decode()
