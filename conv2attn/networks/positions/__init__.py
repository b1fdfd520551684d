"""Attention by position alone, read from parameters if no run can show it."""

from conv2attn.networks.positions.from_parameters import ATTENDS as ATTENDS
from conv2attn.networks.positions.from_parameters import LayerAttention as LayerAttention
from conv2attn.networks.positions.from_parameters import PositionAttention, Unread, position_attention
from conv2attn.networks.positions.from_parameters import leading_note as leading_note
from conv2attn.networks.positions.from_parameters import windows_note as windows_note

__all__ = ["PositionAttention", "Unread", "position_attention"]
