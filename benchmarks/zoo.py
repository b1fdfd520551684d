"""Networks of torchvision and timm, converted and certified: `python -m benchmarks.zoo [NAME ...]` prints the table.

Both libraries are needed for this alone. The weights are random and the images small, since a certificate speaks of
every weight and every size that its claim names.
"""

import sys
import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import nn

import conv2attn

TORCHVISION = (
    *("alexnet", "vgg11_bn", "resnet18", "resnext50_32x4d", "densenet121", "googlenet", "inception_v3", "mobilenet_v2"),
    *("mobilenet_v3_small", "efficientnet_b0", "efficientnet_v2_s", "mnasnet0_5", "regnet_y_400mf", "squeezenet1_0"),
    *("shufflenet_v2_x0_5", "convnext_tiny", "swin_t", "swin_v2_t", "vit_b_32", "maxvit_t"),
)
TIMM = (
    *("resnet18", "resnetblur18", "resnetv2_50", "seresnet18", "skresnet18", "ecaresnet26t", "res2net50_26w_4s"),
    *("resnest14d", "convnext_atto", "convnextv2_atto", "convmixer_768_32", "mobilenetv3_small_050", "ghostnet_050"),
    *("mobilenetv4_conv_small", "regnetx_002", "repvgg_a0", "dla34", "dpn48b", "hrnet_w18_small", "hardcorenas_a"),
    *(
        "lcnet_050",
        "mixnet_s",
        "nfnet_f0",
        "nf_resnet50",
        "tf_efficientnet_lite0",
        "xception41",
        "vit_tiny_patch16_224",
    ),
    *("deit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mobilevit_xxs", "edgenext_xx_small", "poolformer_s12"),
    *("levit_128s", "fastvit_t8", "pvt_v2_b0", "repvit_m0_9", "starnet_s1", "mambaout_femto", "inception_next_atto"),
)
SIDES = {"inception_v3": 128, "vit_b_32": 224, "maxvit_t": 224, "swin_t": 224, "swin_v2_t": 224}
SIDES |= {name: 224 for name in TIMM if name.endswith("_224") or name.startswith(("levit", "pvt"))}


def made(library: str, name: str) -> nn.Module:
    """A network with random weights, in evaluation mode."""
    torch.manual_seed(0)
    if library == "timm":
        import timm

        return timm.create_model(name, pretrained=False).eval()
    import torchvision

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    found: nn.Module = getattr(torchvision.models, name)(weights=None, **options)
    return found.eval()


def row(library: str, name: str) -> str:
    """One line of the table: the verdict, its strength, the sizes of the claim and what does not hold."""
    side = SIDES.get(name, 64)
    image = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    try:
        network = made(library, name)
        report = conv2attn.certify(network, conv2attn.convert(network, image), images=image)
    except Exception as error:  # a network of others may raise anything
        return f"| {library} | {name} | - | - | {type(error).__name__}: {str(error).splitlines()[0][:100]} |"
    sizes = report.claim.partition("finite inputs")[2].lstrip(", ") or "every size"
    told = next((each.sentence for each in report.between if each.sentence), "")
    told = told or next(
        (f"{each.name}: {each.decisive.sentence}" for each in report.rows if each.verdict.exit_code), ""
    )
    verdict = f"{report.verdict.value} ({report.strength.value})" if report else report.verdict.value
    return f"| {library} | {name} | {verdict} | {sizes.replace('|', ' ')} | {told[:120].replace('|', ' ')} |"


def chosen(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The networks named, or all."""
    for library, known in (("torchvision", TORCHVISION), ("timm", TIMM)):
        yield from ((library, name) for name in known if not names or name in names or f"{library}:{name}" in names)


def main(names: Sequence[str]) -> None:
    """Prints the table."""
    warnings.simplefilter("ignore")
    print("| library | network | verdict | sizes | what does not hold |\n| --- | --- | --- | --- | --- |")
    for library, name in chosen(names):
        print(row(library, name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
