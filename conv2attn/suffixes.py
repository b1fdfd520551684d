"""The suffixes of every kind of file that is written. A suffix chooses the format."""

NETWORK_SUFFIXES = (".pt", ".pth", ".safetensors", ".pt2", ".onnx")
TENSOR_SUFFIXES = (".pt", ".pth")
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
PAGE_SUFFIXES = (".html", ".svg")
REPORT_SUFFIXES = {
    ".json": "json",
    ".md": "markdown",
    ".html": "html",
    ".svg": "svg",
    ".tex": "latex",
    ".csv": "csv",
    ".txt": "text",
}
"""The suffixes of a report, each with its format."""
CERTIFICATE_SUFFIXES = (".txt",)
"""The suffix of a span certificate."""
