"""Encoders of sentences: BERT, DistilBERT."""

from torch import nn

from conv2attn.models.frontends.registry import First, first_layer
from conv2attn.models.positions.absolute import attention_of_positions, first_positions
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import PositionAttention, Unread


@first_layer("modeling_bert.BertModel")
def bert(place: ModulePlace) -> First:
    """A line of tokens, all of them positions; a norm stands behind the embeddings."""
    network = place.module
    layer = network.encoder.layer[0].attention.self
    if layer.is_decoder or layer.is_causal:
        return layer, Unread("it masks the tokens that follow, which is not in its parameters")
    return layer, on_line(place, layer.query, layer.key, layer.num_attention_heads, layer.scaling)


@first_layer("modeling_distilbert.DistilBertModel")
def distilbert(place: ModulePlace) -> First:
    """DistilBERT: BERT's parts under other names; positions may be sinusoidal."""
    network = place.module
    layer = network.transformer.layer[0].attention
    return layer, on_line(place, layer.q_lin, layer.k_lin, layer.n_heads, layer.scaling)


def on_line(place: ModulePlace, query: nn.Linear, key: nn.Linear, heads: int, scale: float) -> PositionAttention:
    """Attention by position of the first layer of an encoder of sentences, over as many tokens as the grid asks for."""
    embeddings = place.module.embeddings
    table = embeddings.position_embeddings.weight
    length = place.grid[0] if place.grid is not None and len(place.grid) == 1 else len(table)
    norms = (embeddings.LayerNorm,)
    return attention_of_positions(
        first_positions(table, length), query, key, heads, grid=(length,), norms=norms, scale=scale
    )
