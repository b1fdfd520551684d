"""A result as one sentence for a paper, with the hashes of its files, and BibTeX."""

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from conv2attn.files.contents import sha256
from conv2attn.report import Report, document

SOFTWARE = """@software{{conv2attn,
  title   = {{conv2attn}},
  author  = {{{{The conv2attn authors}}}},
  version = {{{version}}},
}}"""
PAPER = """@inproceedings{cordonnier2020relationship,
  title     = {On the Relationship between Self-Attention and Convolutional Layers},
  author    = {Cordonnier, Jean-Baptiste and Loukas, Andreas and Jaggi, Martin},
  booktitle = {International Conference on Learning Representations},
  year      = {2020},
  url       = {https://arxiv.org/abs/1911.03584},
}"""


def citation(result: Report, files: Sequence[str | None], command: str, inputs: str = "") -> str:
    """The sentence, then BibTeX of this version and of the paper.

    Args:
        files: what the result is of and was run on; what is None is left out.
        inputs: in words, what networks ran on.
    """
    version = metadata.version("conv2attn")
    named = [f"{Path(path).name} ({hash_of(Path(path))})" for path in files if path is not None]
    on = f", run on {inputs}" if inputs else ""
    torch = metadata.version("torch")
    claim = document(result).answer[0].rstrip(".")
    sentence = f"conv2attn {version} (torch {torch}) on {', '.join(named)}{on}: {claim} [`{command}`]."
    return f"{sentence}\n\n{SOFTWARE.format(version=version)}\n\n{PAPER}"


def hash_of(path: Path) -> str:
    """The hash of a file, or of a folder of weights, in words."""
    return f"sha256 {sha256(path)}" if path.is_file() or (path / "config.json").is_file() else "a folder"
