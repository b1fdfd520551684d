"""What the package says of itself where it is built: its README, with absolute links once its address is known."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def absolute(readme: str, address: str | None) -> str:
    """A README whose relative links lead to the files at an address of the repository; unchanged without one."""
    if address is None:
        return readme
    place = address.rstrip("/")
    pictures = re.sub(r"!\[([^]]*)\]\((?!\w+:|#)([^)]+)\)", rf"![\1]({place}/raw/main/\2)", readme)
    return re.sub(r"(?<!!)\[([^]]*)\]\((?!\w+:|#)([^)]+)\)", rf"[\1]({place}/blob/main/\2)", pictures)


class Readme(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the README, its links as `[project.urls]` says."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, address)}
