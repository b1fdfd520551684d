"""Writes what follows from something else: `python docs/generate.py`.

- `docs/errors.md`, from the rules in `conv2attn/errors.py`;
- `docs/*.schema.json`, from the types of the JSON documents;
- what sections forgive, in `docs/certificates.md`, from mistakes planted by `docs/forgiven.py`;
- which claims bounds name, in `docs/certificates.md`, from calls of them in `docs/bound_claims.py`;
- `docs/claims.md` and its picture, from `proofs/formal/Claims.v`;
- the districts and the ways of three calls, in `docs/house.md`, from `docs/house.py`;
- the numbers of heads, in `docs/heads.md`, from `conv2attn/span/graded_facts/fact_table.py`;
- the kinds of files that are refused and the operators of ONNX, in `docs/files.md`, from `conv2attn/files`;
- the tables and curves in `docs/experiments.md`, from the rows in `docs/experiments/*.csv`;
- its sentences with times, from the rows in `benchmarks/training.md`;
- `docs/heads.png`, `docs/certificate.png` and `docs/photo.png`, by the commands of the README and the gallery;
- `examples/*.ipynb`, from the guides: each block of code is run, and its output stands below it.
"""

import ast
import base64
import contextlib
import importlib.util
import io
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import matplotlib
import msgspec
from click.testing import CliRunner
from matplotlib.figure import Figure

from conv2attn.cli import main as command_line
from conv2attn.equality import Certificate
from conv2attn.errors import ERROR_RULES
from conv2attn.files.contents import READERS
from conv2attn.files.kinds import FOLDER, KINDS
from conv2attn.files.onnx_operators import OPERATORS
from conv2attn.files.onnx_shapes import MADE
from conv2attn.span import HeadsReport, SpanReport
from conv2attn.span.graded_facts.fact_table import facts_defined
from conv2attn.span.graded_facts.facts import KIND_RULES
from studies import small
from studies.starts import Starts, digest_of, draw_start_curves, page_of

ROOT = Path(__file__).parents[1]
CURVES = ROOT / "docs" / "starts-curves.svg"
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
SCHEMAS = {"certificate": Certificate, "heads": HeadsReport, "span": SpanReport}
GROUPS = {
    "0": "Arguments",
    "1": "Convolutions and layers",
    "2": "Engines",
    "3": "Files",
    "4": "Findings of a certificate",
    "5": "Attention and spans",
    "6": "Training",
}


def schema(name: str) -> str:
    """The JSON Schema of a document."""
    return json.dumps(json_schema_of(SCHEMAS[name]), indent=1) + "\n"


def json_schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a document."""
    returned = {each: returned_types(each) for each in structures_in(kind)}
    types = [kind, *(hint for hints in returned.values() for hint in hints.values())]
    schemas, definitions = msgspec.json.schema_components(
        types, schema_hook=lambda _: {"type": "null"}, ref_template="#/$defs/{name}"
    )
    schema, rest = {**schemas[0], "$defs": definitions}, iter(schemas[1:])
    for each, hints in returned.items():
        definitions[each.__name__]["properties"].update({name: next(rest) for name in hints})
    for each in definitions.values():
        if "properties" in each:
            each["required"] = [*each["properties"]]  # a result writes all of its fields
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def structures_in(kind: Any) -> dict[type[msgspec.Struct], None]:
    """The structures that a document of this type is made of, each once."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {each: None for part in get_args(kind) for each in structures_in(part)}
    hints = {**get_type_hints(kind), **returned_types(kind)}
    parts = (hints[name] for name in (*kind.__struct_fields__, *returned_types(kind)))
    return {kind: None, **{each: None for part in parts for each in structures_in(part)}}


def returned_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of what a structure derives, by name."""
    return {name: get_type_hints(getattr(kind, name).fget)["return"] for name in getattr(kind, "derived", ())}


def error_codes() -> str:
    """The page of all codes, in their order."""
    lines = ["# Error codes", "", "`conv2attn explain CODE` says the same in the terminal.", ""]
    group = ""
    for code in sorted(ERROR_RULES):
        if code[3] != group:
            group = code[3]
            lines += [f"## {GROUPS[group]}", ""]
        rule = ERROR_RULES[code]
        lines += [f"### {code}: {rule.title}", "", rule.why, ""]
        lines += ["```", rule.example, "```", ""]
        lines += [f"*What to do:* {rule.remedy}", ""]
    return "\n".join(lines).rstrip() + "\n"


def outputs(guide: Path) -> list[tuple[str, str | None]]:
    """What each block of Python in a guide prints, run in order, and the figure that it ends with, as PNG."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for code in re.findall(r"```python\n(.*?)```", guide.read_text(), re.S):
        stream = io.StringIO()
        *body, last = ast.parse(code).body
        ends = isinstance(last, ast.Expr)
        with contextlib.redirect_stdout(stream):
            exec(compile(ast.Module(body if ends else [*body, last], []), guide.name, "exec"), names)
            value = eval(compile(ast.Expression(last.value), guide.name, "eval"), names) if ends else None
        printed.append((stream.getvalue(), png_of(value) if isinstance(value, Figure) else None))
    return printed


def png_of(figure: Figure) -> str:
    """A figure as the text in which a notebook holds a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80, metadata={"Software": None})
    return base64.b64encode(buffer.getvalue()).decode()


def notebook(guide: Path, printed: list[tuple[str, str | None]]) -> str:
    """A guide as a Jupyter notebook with its outputs."""
    cells: list[dict[str, Any]] = []
    left = iter(printed)
    for place, part in enumerate(re.split(r"```python\n(.*?)```\n?", guide.read_text(), flags=re.S)):
        source = part.strip("\n").splitlines(keepends=True)
        if not source:
            continue
        cell: dict[str, Any] = {"id": f"cell-{place}", "metadata": {}, "source": source}
        if place % 2:
            said, picture = next(left)
            text = said.splitlines(keepends=True)
            shown: list[Any] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
            if picture:
                shown.append({"output_type": "display_data", "data": {"image/png": picture}, "metadata": {}})
            cell |= {"cell_type": "code", "execution_count": place // 2 + 1, "outputs": shown}
        else:
            links = re.compile(r"\]\(\.\./([^)]+)\)")
            cell |= {"cell_type": "markdown", "source": [links.sub(r"](../docs/\1)", line) for line in source]}
        cells.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    body = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def without_pictures(text: str) -> str:
    """A notebook without the bytes of its pictures, which follow from measured errors and the version of matplotlib."""
    return re.sub(r'"image/png": "[^"]+"', "a picture", text)


def notebook_of(guide: Path) -> Path:
    """Where the notebook of a guide stands."""
    return ROOT / "examples" / f"{guide.stem}.ipynb"


def starts() -> str:
    """The tables of the experiment on starts, from its rows."""
    return page_of(Starts.read(ROOT / "docs" / "experiments" / "starts.csv"))


def filled(page: str, parts: Mapping[str, str]) -> str:
    """A page with each part between the marks of its name."""
    for name, part in parts.items():
        first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = page.partition(first)
        page = before + first + "\n" + part.strip() + "\n\n" + last + rest.partition(last)[2]
    return page


def timed_sentences(page: str) -> dict[str, str]:
    """The sentences of `docs/experiments.md` that speak of times, from the rows of `benchmarks/training.md`."""
    number = r"([\d.]+)"
    rows = re.findall(rf"(?m)^\| (\d+) \| (\d+) \| {number} \| {number} \| {number}x \|$", page)
    longer = {(int(channels), int(batch)): float(ratio) for channels, batch, _, _, ratio in rows}
    one_image = sorted(ratio for (_, batch), ratio in longer.items() if batch == 1)
    return {
        "silent-content": f"""\
A step with it takes {one_image[0]:.1f} to {one_image[-1]:.1f} times as long for one image. For a
batch of eight it takes {longer[128, 8]:.1f} times as long at 128 channels and {longer[32, 8]:.1f} times at 32, since
each image then has its own softmax ([figures](../benchmarks/training.md#silent-content)).""",
    }


def tables() -> dict[str, str]:
    """What of the experiments' page follows from committed rows: tables, and sentences with times."""
    rows = small.read(ROOT / "docs" / "experiments" / "small.csv")
    timed = timed_sentences((ROOT / "benchmarks" / "training.md").read_text())
    return {"starts": starts(), "small": small.page_of(rows), **timed}


PICTURES = {
    "heads.png": "heads examples/attention-learned.pt --grid 4x4 --plot",
    "certificate.png": "demo --plot",
    "photo.png": "explore dinov2-small --inputs examples/cat.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 "
    "--only '*.3.*' --only '*.10.*' -o",
}
"""Pictures of the pages and the command of conv2attn that draws each."""


def draw_picture(name: str, folder: Path) -> Path:
    """The picture of this name as its command draws it, in `folder`."""
    path, words = folder.resolve() / name, shlex.split(PICTURES[name])
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path("examples").symlink_to(ROOT / "examples")
        if "dinov2-small" in words:
            write_dinov2(Path("dinov2-small"))
        run = CliRunner().invoke(command_line, [*words, str(path), "--force"])
    if run.exit_code:
        raise SystemExit(run.output)
    return path


def write_dinov2(folder: Path) -> None:
    """Writes DINOv2-small, whose weights a package of tests/requirements-real.txt has, as transformers' folder."""
    spec = importlib.util.spec_from_file_location("atlas_models", ROOT / "examples" / "atlas" / "models.py")
    assert spec
    assert spec.loader
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    models.dinov2().save_pretrained(folder)


def onnx_operators() -> str:
    """The operators of ONNX that are read, by name."""
    return f"{', '.join(f'`{name}`' for name in sorted(OPERATORS | MADE))}."


def refused_files() -> str:
    """The kinds of files that are not read as a network, and what to do with one."""
    refused = [each for each in KINDS if each not in (*READERS, FOLDER)]
    return "\n".join(
        ["| not a network | what to do |", "| --- | --- |", *(f"| {k.words} | {k.way_out} |" for k in refused)]
    )


def head_numbers() -> str:
    """A list of the facts: the column of each, its field and unit, where else it is shown, its meaning and source.

    A table of them has a column of sentences, which is narrow on a screen and unreadable on a telephone.
    """
    lines = []
    for fact in facts_defined():
        meaning = f"{fact.meaning} ({fact.source})" if fact.source else fact.meaning
        if fact.name == "kind":
            meaning = "the first of these that fits; kinds need at least two queries"
        of_heads = (fact.rule, fact.estimate) != (None, None) or fact.name == "kind"
        field = [f"`{fact.name}`"] if of_heads else []
        places = [each for each, there in (("curves", fact.curve), ("page", fact.explored)) if there]
        title = fact.title if fact.columns != "none" or fact.rule is None else fact.words
        lines.append(f"- **{title}** ({', '.join([*field, fact.unit, *places])}): {meaning.replace('<', '&lt;')}.")
        if fact.name == "kind":
            lines += [
                f"    - *{each.kind}*: {each.meaning} (`{each.number}` >= {each.threshold:g})" for each in KIND_RULES
            ]
            lines.append("    - *mixed*: none of these")
    return "\n".join(lines)


def write_curves() -> None:
    """Writes the figure of the learning curves; its file carries a digest of them."""
    runs = Starts.read(ROOT / "docs" / "experiments" / "starts.csv")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "starts"}):
        metadata = {"Date": None, "Description": digest_of(runs)}
        draw_start_curves(runs).savefig(CURVES, metadata=metadata)


def main() -> None:
    """Writes all of it."""
    import bound_claims
    import forgiven
    import house

    from proofs import claims_page

    write_curves()
    for name in PICTURES:
        draw_picture(name, ROOT / "docs")
    (ROOT / "docs" / "errors.md").write_text(error_codes())
    for name in SCHEMAS:
        (ROOT / "docs" / f"{name}.schema.json").write_text(schema(name))
    (ROOT / "docs" / "claims.md").write_text(claims_page.page())
    (ROOT / "docs" / "claims.svg").write_text(claims_page.picture())
    refused = {"refused": refused_files(), "onnx": onnx_operators()}
    certificates = {"claims": bound_claims.table(), "forgiven": forgiven.table()}
    facts = {"facts": head_numbers()}
    generated = {"experiments": tables(), "house": house.parts(), "files": refused, "certificates": certificates}
    generated["heads"] = facts
    for name, parts in generated.items():
        page = ROOT / "docs" / f"{name}.md"
        page.write_text(filled(page.read_text(), parts))
    for guide in GUIDES:
        path, made = notebook_of(guide), notebook(guide, outputs(guide))
        if not path.exists() or without_pictures(path.read_text()) != without_pictures(made):
            path.write_text(made)
            print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
