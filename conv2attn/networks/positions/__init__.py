"""Attention by position alone, computed from the parameters of models of other libraries without running them."""

from conv2attn.networks.positions import relative  # importing it enters its rules
from conv2attn.networks.positions.encoders import attention_of_positions
from conv2attn.networks.positions.position_attention import position_attention
from conv2attn.networks.positions.position_rules import (
    ENCODERS,
    RELATIVE,
    PositionAttention,
    Unread,
    forward_kind,
    is_kind,
)

__all__ = [
    "ENCODERS",
    "RELATIVE",
    "PositionAttention",
    "Unread",
    "attention_of_positions",
    "forward_kind",
    "is_kind",
    "position_attention",
    "relative",
]
