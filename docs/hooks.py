"""What the site does with pages that are also read in the repository."""

import json
import re
import shutil
import subprocess
from itertools import cycle
from pathlib import Path
from typing import Any, final

import griffe

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:proofs|examples|benchmarks|tests|README|CONTRIBUTING)[^)]*)\)")
FORMAL = ROOT / "proofs" / "formal"
CLAIMS = re.compile(r"(?<=\| )[\w, ]+(?= \|$)", re.M)
BLOCK = re.compile(r"```python\n.*?```\n", re.S)
PICTURE = re.compile(r'<img [^>]*src="(?!data:)([^"]+)"[^>]*/?>')
TABLE, TAG = re.compile(r"<table>.*?</table>", re.S), re.compile(r"<[^>]+>")
HEADING, CELL = re.compile(r"<th[^>]*>(.*?)</th>", re.S), re.compile(r"<td[^>]*>(.*?)</td>", re.S)
SENTENCE = 60
"""Letters in a cell from which a column of a telephone's width has more lines than are read with ease."""
SECTION = re.compile(r"(?<!\n)\n(?=(?:Args|Returns|Yields|Raises|Examples|Source):$)", re.M)


@final
class Sections(griffe.Extension):
    """Sets a blank line before each section of a docstring: without one, griffe reads the section as text."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Sets the lines in the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = SECTION.sub("\n\n", obj.docstring.value)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave `docs/` become the path in the repository; a guide shows the outputs of its notebook."""
    linked = OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}`)", markdown)
    guide = Path(page.file.src_uri)
    if guide.name == "proofs.md" and shutil.which("coqdoc"):
        linked = CLAIMS.sub(lambda claims: re.sub(r"\w+", formal_page, claims[0]), linked)
    return with_outputs(linked, guide.stem) if guide.parent.name == "guides" else linked


def on_page_content(html: str, **_: Any) -> str:
    """Pictures are links to themselves: on a telephone the numbers in them are too small to read."""
    linked = PICTURE.sub(lambda picture: f'<a href="{picture[1]}">{picture[0]}</a>', html)
    return TABLE.sub(with_headings, linked)


def with_headings(table: re.Match[str]) -> str:
    """A table of sentences with the heading of each cell: on a telephone its cells are stacked, by site.css."""
    headings = [TAG.sub("", heading) for heading in HEADING.findall(table[0])]
    if max(len(TAG.sub("", cell)) for cell in CELL.findall(table[0])) < SENTENCE:
        return table[0]
    names = cycle(headings)
    cells = re.sub("<td", lambda _: f'<td data-heading="{next(names)}"', table[0])
    return f'<div class="sentences">{cells}</div>'


def with_outputs(markdown: str, guide: str) -> str:
    """A guide with the output of each block of code below it: what it printed, and the picture that it ends with."""
    cells = json.loads((ROOT / "examples" / f"{guide}.ipynb").read_text())["cells"]
    printed = iter(["".join(map(shown, cell["outputs"])) for cell in cells if "outputs" in cell])
    return BLOCK.sub(lambda block: f"{block[0]}\n{next(printed)}", markdown)


def shown(output: dict[str, Any]) -> str:
    """One output of a notebook's cell as Markdown."""
    if "text" in output:
        return f"```text\n{''.join(output['text'])}```\n"
    return f"\n![the picture that this code draws](data:image/png;base64,{output['data']['image/png']})\n"


def formal_page(claim: re.Match[str]) -> str:
    """The name of a claim as a link to its theorem in Coq, where it has one."""
    has_one = (FORMAL / f"{claim[0]}.v").exists()
    return f'<a href="../formal/C2A.{claim[0]}.html">{claim[0]}</a>' if has_one else claim[0]


def on_post_build(config: Any, **_: Any) -> None:
    """The formal layer as pages in formal/, where there is coqdoc."""
    if not shutil.which("coqdoc"):
        print("not made: the pages of the formal layer, for want of coqdoc")
        return
    pages = Path(config["site_dir"]) / "formal"
    pages.mkdir(exist_ok=True)
    command = ["coqdoc", "--quiet", "--html", "--utf8", "--lib-subtitles", "-Q", ".", "C2A", "-d", str(pages)]
    files = sorted(path.name for path in FORMAL.glob("*.v"))
    subprocess.run([*command, *files], cwd=FORMAL, check=True, capture_output=True)
