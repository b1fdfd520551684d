"""The committed table of mutants: counts for each file, and the survivors with their reasons.

`tests/survivors/*.json` hold it, one for each folder of the package; docs/mutants.md shows it.
"""

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from mutants import MUTANTS, ROOT

STORE = Path(__file__).parent / "survivors"
PAGE = Path("docs/mutants.md")
KEY = ("file", "scope", "line", "change")
HEAD = f"""# Mutants

`make mutants` changes each file of `conv2attn/bounds`, `conv2attn/basis` and `conv2attn/equivalence`, one small change
at a time, and runs the tests of its folder against each change: those that execute it, fastest first, for at most half
a minute. It writes this page. A survivor stands here with the reason why no test should fail on it; one without a
reason makes `make mutants` exit 1.

Changed are: comparisons, arithmetic, `and` and `or` and each of their operands, `not` and signs, numbers (also those
of module constants), strings without a space, `min` and `max`, `any` and `all`, `up` and `down`, `floor` and `ceil`,
what `up` gives (half of it), arguments of calls (left out), values of `if ... else`, conditions of `if`, `while` and
comprehensions, returned values (None), `break` and `continue`; statements that only call, add up or raise are left out.
Not changed are: docstrings, texts with a space in them, f-strings and what is raised (but it may not be raised),
annotations and aliases of types, decorators, imports, `__all__`, `assert`, and `strict` of `zip`.

Beside these stand {len(MUTANTS)} mistakes of the domain, in tests/mutants.py, each with the test that must find it: all
are found, or `make test` fails.

"""


def update(part: str, files: list[str], outcomes: dict[tuple[str, ...], str], store: Path = STORE) -> int:
    """Replaces what the table says of some files of a folder; 1 where a survivor has no reason."""
    path = store / f"{part}.json"
    old = json.loads(path.read_text()) if path.exists() else {"files": {}, "survivors": []}
    reasons = {tuple(entry[name] for name in KEY): entry["reason"] for entry in old["survivors"]}
    kept = {file: counts for file, counts in old["files"].items() if file not in files}
    survivors = [entry for entry in old["survivors"] if entry["file"] in kept]
    for file in files:
        counts = Counter(outcome for key, outcome in outcomes.items() if key[0] == file)
        survived = counts.pop("survived", 0)
        kept[file] = {"mutants": survived + counts.total(), "killed": counts.total(), "by time": counts["time"]}
    for key, outcome in outcomes.items():
        if outcome == "survived":
            survivors.append({**dict(zip(KEY, key, strict=True)), "reason": reasons.pop(key, "")})
        elif reasons.pop(key, None):
            print("stale: a test kills", *key, sep=" | ")
    for key, reason in reasons.items():
        if reason and key[0] in files:
            print("stale: no longer there", *key, sep=" | ")
    survivors.sort(key=lambda entry: entry["file"])
    store.mkdir(exist_ok=True)
    text = json.dumps({"files": dict(sorted(kept.items())), "survivors": survivors}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n")
    unexplained = [entry for entry in survivors if not entry["reason"] and entry["file"] in files]
    for entry in unexplained:
        print("survived without a reason", *(entry[name] for name in KEY), sep=" | ")
    (ROOT / PAGE).write_text(page(store))
    return int(bool(unexplained))


def page(store: Path = STORE) -> str:
    """The table for people."""
    paths = sorted(store.glob("*.json"))
    parts = [json.loads(path.read_text()) for path in paths]
    waiting = [file for path, part in zip(paths, parts, strict=True) for file in not_mutated(path.stem, part["files"])]
    rows = [(file, counts) for part in parts for file, counts in part["files"].items()]
    rows.append(("all", {name: sum(counts[name] for _, counts in rows) for name in ("mutants", "killed", "by time")}))
    lines = ["| file | mutants | killed | of these by not ending | survived | killed |", "| --- " * 6 + "|"]
    for file, counts in rows:
        survived = counts["mutants"] - counts["killed"]
        share = f"{counts['killed'] / counts['mutants']:.1%}" if counts["mutants"] else "-"
        lines.append(
            f"| {file} | {counts['mutants']} | {counts['killed']} | {counts['by time']} | {survived} | {share} |"
        )
    lines += [f"| {file} | not yet mutated | | | | |" for file in waiting]
    for part in parts:
        for file in part["files"]:
            found = [entry for entry in part["survivors"] if entry["file"] == file]
            if found:
                lines += ["", f"## {file}", "", "| in | line | change | reason |", "| --- " * 4 + "|"]
                for entry in found:
                    cells = (f"`{entry[name]}`" if entry[name] else "" for name in KEY[1:])
                    lines.append(
                        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} | {entry['reason']} |"
                    )
    return HEAD + "\n".join(lines) + "\n"


def not_mutated(part: str, files: Collection[str]) -> list[str]:
    """The files of a folder that its table does not have."""
    there = (str(path.relative_to(ROOT)) for path in (ROOT / "conv2attn" / part).rglob("*.py"))
    return sorted(set(there) - set(files))
