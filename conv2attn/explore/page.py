"""The page itself: a template, its style, its scripts and the numbers, all in one file."""

import html
import json
from importlib.resources import files

from conv2attn.explore.explored_layers import Explored

PAGE_PARTS = {"/* STYLE */": ("style.css",), "/* SCRIPT */": ("attention.js", "drawing.js", "page.js")}


def explore_page(explored: Explored, title: str, image: str) -> str:
    """HTML that shows `explored`; it loads nothing, and its own policy forbids it to.

    Args:
        title: the name of the network.
        image: what the image is, in words.
    """
    folder = files("conv2attn.explore")
    page = (folder / "page.html").read_text("utf-8")
    for mark, names in PAGE_PARTS.items():
        page = page.replace(mark, "\n".join((folder / name).read_text("utf-8") for name in names))
    content = {
        "image": f"{image}, {explored.picture}",
        "layers": explored.layers,
        "leftOut": explored.left_out,
        "photo": explored.photo,
    }
    numbers = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    before, after = page.split("NUMBERS")
    return before.replace("TITLE", html.escape(title)) + numbers + after
