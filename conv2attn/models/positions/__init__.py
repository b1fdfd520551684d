"""Attention by position alone, computed from the parameters of other people's models; nothing is run."""

from conv2attn.models.positions.absolute import attention_of_positions
from conv2attn.models.positions.attention import PositionAttention, Unread
from conv2attn.models.positions.reading import position_attention

__all__ = ["PositionAttention", "Unread", "attention_of_positions", "position_attention"]
