"""What the site does with pages that are also read in the repository."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:proofs|examples|benchmarks|tests|README|CONTRIBUTING)[^)]*)\)")
BLOCK = re.compile(r"```python\n.*?```\n", re.S)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave `docs/` become the path in the repository; a guide shows the outputs of its notebook."""
    linked = OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}`)", markdown)
    guide = Path(page.file.src_uri)
    return with_outputs(linked, guide.stem) if guide.parent.name == "guides" else linked


def with_outputs(markdown: str, guide: str) -> str:
    """A guide with the output of each block of code below it."""
    cells = json.loads((ROOT / "examples" / f"{guide}.ipynb").read_text())["cells"]
    printed = iter("".join(t for out in cell["outputs"] for t in out["text"]) for cell in cells if "outputs" in cell)
    return BLOCK.sub(
        lambda block: f"{block[0]}\n```text\n{text}```\n" if (text := next(printed)) else block[0], markdown
    )
