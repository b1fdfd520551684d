"""The suffixes of every kind of file that is written. A suffix chooses the format."""

NETWORK = (".pt", ".pth", ".safetensors", ".pt2", ".onnx")
TENSORS = (".pt", ".pth")
PICTURE = (".png", ".svg", ".pdf")
PAGE = (".html", ".svg")
REPORT = {
    ".json": "json",
    ".md": "markdown",
    ".html": "html",
    ".svg": "svg",
    ".tex": "latex",
    ".csv": "csv",
    ".txt": "text",
}
"""The suffixes of a report, each with its format."""
INTEGERS = (".txt",)
"""The suffix of a span certificate."""
