"""torchvision where it was built for another torch: its models come in once two operators are declared."""

import sys

import torch

OPERATORS = torch.library.Library("torchvision", "FRAGMENT")

try:
    import torchvision
except RuntimeError:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    for operator in ("nms", "qnms"):
        OPERATORS.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
