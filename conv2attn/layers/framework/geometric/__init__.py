"""torch_geometric's layers as ours and back: importing this room registers them with `as_basis` and `from_torch`."""

from conv2attn.layers.framework.geometric import graph_readers  # noqa: F401
from conv2attn.layers.framework.geometric.graph_writers import to_geometric

__all__ = ["to_geometric"]
