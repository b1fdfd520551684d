"""What the site does with pages that are also read in the repository."""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:proofs|examples|benchmarks|tests|README|CONTRIBUTING)[^)]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that leave `docs/` become the path in the repository."""
    return OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}`)", markdown)
