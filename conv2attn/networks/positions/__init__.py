"""Attention by position alone, computed from the parameters of models of other libraries without running them."""

from conv2attn.networks.positions import relative  # importing it enters its rules
from conv2attn.networks.positions.encoders import attention_of_positions
from conv2attn.networks.positions.position_attention import position_attention
from conv2attn.networks.positions.position_rules import PositionAttention, Unread

__all__ = ["PositionAttention", "Unread", "attention_of_positions", "position_attention", "relative"]
