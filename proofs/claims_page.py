"""The page of `formal/Claims.v`: its comments as prose with anchors, its theorems as code; and which claim uses which.

Nothing here needs Coq. `docs/generate.py` writes the page and the picture.
"""

import re
from itertools import groupby
from pathlib import Path

from . import CLAIMS
from .formal.theorems import COLUMNS, formal_claims

FORMAL = Path(__file__).parent / "formal"
BOX, GAP, ROW = (84, 26), 18, 64
"""Width and height of a box of the picture, the space between boxes, and the height of a row."""


def ties() -> dict[str, tuple[str, ...]]:
    """For each theorem that is written out the names in Statements.v to which it is tied by reflexivity."""
    found = re.findall(r"^Lemma (\w+)E :(.*?)\. Proof\. reflexivity\. Qed\.", joined(), re.M)
    return {name: tuple(re.findall(r"[\w.]+", rest.partition("=")[2])) for name, rest in found}


def joined() -> str:
    """Claims.v with each lemma on one line."""
    source = (FORMAL / "Claims.v").read_text()
    return re.sub(r"^Lemma .*?Qed\.", lambda found: " ".join(found[0].split()), source, flags=re.M | re.S)


def statements() -> dict[str, str]:
    """The claim of each name in Statements.v that is the type of a theorem, as claims.toml has them."""
    return {theorem.statement: claim.name for claim in formal_claims(FORMAL) for theorem in claim.theorems}


def concrete(theorem: str) -> str:
    """A sentence on the instances and the mutants of a theorem of Claims.v, or on why it has none."""
    of = {each.statement.split(".")[-1]: each for claim in formal_claims(FORMAL) for each in claim.theorems}
    tied = [of[name.split(".")[-1]] for name in ties()[theorem]]
    names = {column: ", ".join(f"`{name}`" for each in tied for name in each.named(column)) for column in COLUMNS}
    none = {column: tied[0].reason(column) for column in COLUMNS}
    return "; ".join(f"{column}: {names[column] or f'none ({none[column]})'}" for column in COLUMNS)


def claim_of(theorem: str) -> str:
    """The claim to which a theorem of Claims.v is tied."""
    of = statements()
    return next(claim for name in ties()[theorem] for claim in [of.get(name) or of[f"Matrices.{name}"]])


def page() -> str:
    """Claims.v as Markdown."""
    lines = [
        "# The claims, written out",
        "",
        "Generated from `proofs/formal/Claims.v`. Coq proves each theorem; a lemma by reflexivity ties it to the name "
        "in `Statements.v`",
        "that its proof, its instance and its mutants use. The claims in words, with their conditions: "
        "[proofs/README.md](../proofs/README.md).",
        "",
        "![Which claim uses which](claims.svg)",
        "",
        "An arrow leads from a claim to those whose proofs use it.",
        "",
    ]
    body = joined().partition("Unset Printing Implicit Defensive.\n")[2]
    for piece in re.split(r"(\(\*\*.*?\*\))", body, flags=re.S):
        if piece.startswith("(**"):
            text = "\n".join(line.strip() for line in piece[3:-2].strip().splitlines())
            text = re.sub(r"\[([^\]]+)\]", lambda code: f"`{' '.join(code[1].split())}`", text)
            heading, _, rest = text.partition("\n")
            lines += [f"#{heading}", "", *rest.strip().splitlines()] if heading.startswith("* ") else text.splitlines()
            lines = [line.replace("#* ", "## ") for line in lines] + [""]
            continue
        ends = re.split(r"^(Lemma (\w+)E : .*)$", piece, flags=re.M)
        for code, _, name in zip(ends[::3], ends[1::3], ends[2::3], strict=False):
            lines += [
                "```coq",
                code.strip(),
                "```",
                "",
                f"Claim {claim_of(name)}: `{', '.join(ties()[name])}`;",
                f"{concrete(name)}.",
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def uses() -> dict[str, set[str]]:
    """The formal claims that the files of each formal claim require, without those that follow from others."""
    claims = {claim.name: claim for claim in formal_claims(FORMAL)}
    names = [name for name in CLAIMS if name in claims]
    home = {name: name for name in names}
    for name in names:
        home |= dict.fromkeys({theorem.name.split(".")[0] for theorem in claims[name].theorems} - set(names), name)
    found: dict[str, set[str]] = {name: set() for name in names}
    for file, claim in home.items():
        for line in re.findall(r"^From C2A Require(?: Import)? ([^.]+)\.", (FORMAL / f"{file}.v").read_text(), re.M):
            found[claim] |= {home[each] for each in line.split() if each in home} - {claim}
    reached = {name: closure(found, name) for name in names}
    return {name: {each for each in found[name] if not any(each in reached[x] for x in found[name])} for name in names}


def closure(found: dict[str, set[str]], name: str) -> set[str]:
    """All claims on which one rests."""
    return set().union(found[name], *(closure(found, each) for each in found[name]))


def picture() -> str:
    """An SVG: claims in rows, each below those that it uses."""
    edges = uses()
    level = {name: depth(edges, name) for name in edges}
    rows = [list(row) for _, row in groupby(sorted(edges, key=lambda x: (level[x], list(edges).index(x))), level.get)]
    width = max(len(row) for row in rows) * (BOX[0] + GAP) + GAP
    at = {}
    for depth_, row in enumerate(rows):
        start = (width - len(row) * (BOX[0] + GAP) + GAP) / 2
        at |= {name: (start + n * (BOX[0] + GAP), GAP + depth_ * ROW) for n, name in enumerate(row)}
    lines = [
        f'<line x1="{at[b][0] + BOX[0] / 2:g}" y1="{at[b][1] + BOX[1]:g}" x2="{at[a][0] + BOX[0] / 2:g}" '
        f'y2="{at[a][1]:g}" marker-end="url(#arrow)"/>'
        for a, below in edges.items()
        for b in sorted(below)
    ]
    boxes = [
        f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="4"/>'
        f'<text x="{x + BOX[0] / 2:g}" y="{y + BOX[1] - 8:g}">{name}</text>'
        for name, (x, y) in at.items()
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {len(rows) * ROW + GAP:g}" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">\n<title>Which claim uses which</title>\n'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#789"/></marker></defs>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        '<g stroke="#789">\n'
    )
    shapes = "\n".join(boxes).replace("<rect ", '<rect fill="#e6f2f1" stroke="#00796b" ')
    return head + "\n".join(lines) + "\n</g>\n" + shapes + "\n</svg>\n"


def depth(edges: dict[str, set[str]], name: str) -> int:
    """The length of the longest way down from a claim."""
    return max((depth(edges, each) + 1 for each in edges[name]), default=0)
