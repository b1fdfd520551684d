"""A call for each code that gives it: `>>>` is Python, where torch, nn and conv2attn are imported; `$` is a command."""

EXAMPLES = {
    "C2A001": "$ conv2attn convert resnet18.pt --input-range -1",
    "C2A002": '>>> conv2attn.convert(nn.Conv2d(3, 4, 3), encoding="sine")',
    "C2A003": "$ conv2attn convert resnet18.pt --arch monai:unet",
    "C2A004": ">>> conv2attn.soften(conv2attn.convert(nn.Conv2d(3, 4, 3)), alpha=5, max_difference=0.1)",
    "C2A005": ">>> conv2attn.certify(nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3))",
    "C2A006": "$ conv2attn verify resnet18.pt resnet18.pt --input-size 3,224,224",
    "C2A007": ">>> conv2attn.convert(nn.Conv2d(3, 4, 3), patch=(2, 2, 2))",
    "C2A008": '>>> conv2attn.set_engine(nn.Linear(3, 4), "conv")',
    "C2A009": "$ conv2attn verify resnet18.pt resnet18.pt --input-size 5x224x224",
    "C2A010": ">>> conv = nn.Conv2d(3, 4, 3); "
    "conv.register_forward_hook(lambda *_: conv2attn.certify(conv, conv, input_size=(3, 9, 9))); "
    "torch.export.export(conv, (torch.zeros(1, 3, 9, 9),), strict=False)",
    "C2A101": "$ conv2attn convert layer.pt -o twice.pt",
    "C2A102": ">>> conv2attn.convert(nn.Conv2d(3, 4, 3, dtype=torch.complex64))",
    "C2A103": ">>> conv2attn.convert(nn.LazyConv2d(4, 3))",
    "C2A104": '>>> conv = nn.Conv2d(3, 4, 3); conv.padding_mode = "mirror"; conv2attn.convert(conv)',
    "C2A105": ">>> conv2attn.convert(nn.Conv2d(8, 8, 3), d_head=2)",
    "C2A106": '>>> scaled = type("Scaled", (nn.Conv2d,), {"forward": lambda self, x: 2 * x}); '
    "conv2attn.convert(scaled(3, 4, 3))",
    "C2A107": ">>> net = nn.Identity(); "
    "net.register_forward_hook(lambda net, args, y: nn.functional.conv2d(y, torch.ones(1, 3, 1, 1))); "
    "print(conv2attn.conversion_of(conv2attn.convert(net, torch.ones(1, 3, 9, 9))).rows)",
    "C2A108": '>>> net = type("Net", (nn.Sequential,), '
    '{"forward": lambda self, x: self[0]._conv_forward(x, self[0].weight, None)})(nn.Conv2d(3, 3, 1)); '
    "conv2attn.convert(net, torch.ones(1, 3, 9, 9))",
    "C2A109": ">>> conv2attn.convert(nn.Linear(3, 4))",
    "C2A110": ">>> from conv2attn.basis import as_matrix; as_matrix(nn.ReLU(), (5, 5))",
    "C2A111": ">>> conv2attn.convert(nn.Conv2d(3, 4, 3), patch=2)",
    "C2A120": ">>> conv2attn.convert(nn.Conv2d(3, 4, 3))(torch.ones(1, 5, 9, 9))",
    "C2A121": ">>> conv2attn.convert(nn.Conv2d(3, 4, 7))(torch.ones(1, 3, 5, 5))",
    "C2A122": ">>> from conv2attn.basis import Shift; "
    "conv2attn.BasisConvolution(3, 4, terms=2)(torch.ones(1, 3, 9, 9), Shift(((0, 0),)))",
    "C2A130": ">>> conv2attn.convert(nn.Conv2d(3, 4, 3), alpha=-1)",
    "C2A131": ">>> print(conv2attn.conversion_of(conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3)), alpha=20)).rows)",
    "C2A132": ">>> conv2attn.convert(nn.Conv2d(3, 4, 3), trainable=True)",
    "C2A201": '>>> conv2attn.set_engine(conv2attn.convert(nn.Conv2d(3, 4, 3), alpha=5), "conv")(torch.ones(1, '
    "3, 9, 9))",
    "C2A202": '>>> conv2attn.set_engine(conv2attn.convert(nn.Conv2d(3, 4, 3), alpha=5), "dense", '
    "memory_limit=100)(torch.ones(1, 3, 99, 99))",
    "C2A203": ">>> net = nn.Identity(); net.forward = lambda x: nn.functional.conv2d(x, x[:1]); "
    "torch.export.export(conv2attn.convert(net, torch.ones(1, 3, 9, 9)), (torch.ones(1, 3, 6, 6),))",
    "C2A301": "$ conv2attn convert missing.pt",
    "C2A302": "$ conv2attn convert empty.pt",
    "C2A303": "$ conv2attn verify resnet18.pt notes.txt",
    "C2A304": "$ conv2attn convert other.pt",
    "C2A305": "$ conv2attn convert resnet18.pt -o attention.pt",
    "C2A306": '>>> conv2attn.save(nn.Sequential(nn.Tanh()), "net.pt")',
    "C2A307": "$ conv2attn convert resnet18.pt --max-size 0.001",
    "C2A308": "$ conv2attn convert resnet18.pt -o net.bin",
    "C2A309": ">>> net = nn.Sequential(conv2attn.convert(nn.Conv2d(3, 4, 3)), nn.AdaptiveMaxPool2d(2, True)); "
    'conv2attn.save(net, "net.onnx", example_input=(3, 9, 9))',
    "C2A310": '>>> net = type("Net", (nn.Sequential,), {"save_pretrained": lambda self, folder: None})'
    '(nn.Conv2d(3, 4, 3)); conv2attn.convert(net).save_pretrained("folder")',
    "C2A401": ">>> print(conv2attn.certify(nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3, padding=1), input_size=(3, 9, 9)))",
    "C2A402": ">>> print(conv2attn.certify(nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), input_size=(3, 9, 9)))",
    "C2A403": ">>> conv = nn.Conv2d(3, 4, 3); "
    "print(conv2attn.certify(conv, conv2attn.convert(conv, alpha=3), input_size=(3, 9, 9)))",
    "C2A404": ">>> conv = nn.Conv2d(3, 4, 3); conv.weight.data.fill_(3e38); "
    "print(conv2attn.certify(conv, conv, input_size=(3, 9, 9)))",
    "C2A405": ">>> conv = nn.Conv2d(3, 4, 3); "
    "print(conv2attn.certify(nn.Sequential(conv, nn.ReLU()), nn.Sequential(conv, nn.Tanh()), input_size=(3, 9, 9)))",
    "C2A406": ">>> net = nn.Identity(); net.forward = lambda x: nn.functional.conv2d(x, torch.ones(1, 3, 1, 1)) "
    "if x.shape[-1] > 8 else x; "
    "print(conv2attn.certify(net, conv2attn.convert(net, torch.ones(1, 3, 9, 9)), input_size=(3, 8, 8)))",
    "C2A407": ">>> conv = nn.Conv2d(3, 4, 3); "
    "print(conv2attn.certify(nn.Sequential(conv), nn.Sequential(conv, nn.Flatten()), input_size=(3, 9, 9)))",
    "C2A408": ">>> conv = nn.Conv2d(3, 4, 3); conv.weight.data[0] = torch.nan; "
    "print(conv2attn.certify(conv, conv, input_size=(3, 9, 9)))",
    "C2A409": ">>> conv = nn.Conv2d(3, 4, 3); "
    "print(conv2attn.certify(conv, conv2attn.convert(conv, alpha=3), input_size=(3, 9, 9), tolerance=1e-6))",
    "C2A410": ">>> conv = nn.Conv2d(3, 4, 3); "
    "print(conv2attn.certify(nn.Sequential(conv), nn.Sequential(conv, nn.LeakyReLU(1.0)), input_size=(3, 9, 9)))",
    "C2A501": ">>> conv2attn.heads(nn.Linear(3, 4), torch.ones(1, 3))",
    "C2A502": ">>> conv2attn.check_span(-torch.ones(9, 25, 25), grid=(5, 5))",
    "C2A503": ">>> conv2attn.check_span(torch.full((9, 26, 26), 1 / 26))",
    "C2A504": ">>> conv2attn.check_span(torch.full((9, 25, 25), 1 / 25), grid=(5, 5), offsets=[(0, 0, 0)])",
    "C2A505": "$ conv2attn recover heads.npz --grid 5x5 -o found.pt",
    "C2A601": "$ conv2attn train quadratic --data digits --layers 1 --width 9 --heads 1 --learning-rate 1e30",
    "C2A602": "$ conv2attn prune resnet18.pt -o smaller.pt",
    "C2A603": '>>> conv2attn.soften(conv2attn.convert(nn.Conv2d(3, 4, 3), encoding="enumerated"), alpha=5)',
    "C2A604": ">>> conv2attn.start_at_convolution(nn.TransformerEncoderLayer(8, 2), example_input=torch.ones(4, 1, 8))",
}
