"""Symbolic tracing of networks with attention layers."""

from torch import fx, nn

from conv2attn.attention.layer import MultiHeadSelfAttention


class LayerTracer(fx.Tracer):
    """A tracer for which an attention layer is one node, as a convolution of torch is.

    Symbolic tracing follows no values and no shapes, by which an engine is chosen; `torch.export` does.
    """

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether `m` is a node of the graph rather than a part of it."""
        return isinstance(m, MultiHeadSelfAttention) or super().is_leaf_module(m, module_qualified_name)


def symbolic_trace(network: nn.Module) -> fx.GraphModule:
    """The network as a graph in which each attention layer is one node; counterpart of `torch.fx.symbolic_trace`."""
    tracer = LayerTracer()
    return fx.GraphModule(network, tracer.trace(network))
