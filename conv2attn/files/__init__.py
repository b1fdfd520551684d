"""Reads files without executing anything, recognises them by their contents, and writes them whole or not at all."""

from conv2attn.files import kinds
from conv2attn.files.architectures import Architecture, architecture
from conv2attn.files.array_files import arrays_in
from conv2attn.files.atomic_files import write_atomically, write_text_atomically
from conv2attn.files.contents import contents_of, sha256
from conv2attn.files.image_labels import read_labels
from conv2attn.files.input_images import read_images
from conv2attn.files.inspection import RECOVERED, Inspection, inspection_of
from conv2attn.files.loading import load
from conv2attn.files.onnx_graph import graph_of
from conv2attn.files.onnx_operators import OPERATORS
from conv2attn.files.reading_options import Reading
from conv2attn.files.saving import save
from conv2attn.files.states import prefix_readings, state_in
from conv2attn.files.torch_files import read_dict

__all__ = [
    "OPERATORS",
    "RECOVERED",
    "Architecture",
    "Inspection",
    "Reading",
    "architecture",
    "arrays_in",
    "contents_of",
    "graph_of",
    "inspection_of",
    "kinds",
    "load",
    "prefix_readings",
    "read_dict",
    "read_images",
    "read_labels",
    "save",
    "sha256",
    "state_in",
    "write_atomically",
    "write_text_atomically",
]
