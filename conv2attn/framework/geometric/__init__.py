"""torch_geometric's layers as ours and back: importing this room registers them with `as_basis` and `from_torch`."""

from conv2attn.framework.geometric import reading  # noqa: F401
from conv2attn.framework.geometric.writing import to_geometric

__all__ = ["to_geometric"]
