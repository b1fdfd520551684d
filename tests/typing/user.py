"""What a user's program reads of the public names, as a type checker sees it."""

import torch
from torch import Tensor, nn

import conv2attn
from conv2attn import MultiHeadSelfAttention
from conv2attn.verdicts import Strength, Verdict


def of_a_layer(convolution: nn.Conv2d, image: Tensor) -> Tensor:
    layer: MultiHeadSelfAttention = conv2attn.convert(convolution)
    answer: Tensor = layer(image)
    return answer + layer.attention(image).mean()


def of_a_network(network: nn.Sequential, image: Tensor) -> bool:
    converted: nn.Sequential = conv2attn.convert(network, example_input=image)
    conv2attn.set_engine(converted, "separable")
    rows = [row.name for row in conv2attn.conversion_of(converted).rows]
    certificate = conv2attn.certify(network, converted, input_size=(3, 32, 32))
    bounds: list[float | None] = [row.bound for row in certificate.rows]
    proved = certificate.verdict is Verdict.HOLDS and certificate.strength is Strength.PROVED
    return proved and certificate.exit_code == 0 and len(rows) == len(bounds)


def of_heads(model: nn.Module, images: Tensor) -> str:
    facts = conv2attn.heads(model, images)
    span = conv2attn.check_span(model, example_input=images, kernel_size=3)
    nearest: nn.Module = conv2attn.recover(nn.Sequential(model)).module
    return facts.to_text() + span.to_json() + type(nearest).__name__


def of_files(path: str) -> nn.Module:
    network = conv2attn.load(path)
    conv2attn.save(network, path + ".copy.pt")
    return network.eval()


if __name__ == "__main__":
    print(of_a_layer(nn.Conv2d(3, 4, 3), torch.ones(1, 3, 8, 8)).shape)
