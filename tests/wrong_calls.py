"""Wrong calls of the command line: each with what its one sentence says. A defect once fixed is a row."""

import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from attentions import gated
from torch import nn

import conv2attn

NETWORK = nn.Sequential(
    OrderedDict(stem=nn.Conv2d(3, 4, 3), relu=nn.ReLU(), body=nn.Conv2d(4, 3, 3, stride=2), flat=nn.Flatten())
)
SIZE = "--input-size 3x12x12"
LONG = "x" * 300
CONVERT = f"convert net.pt -o new.pt {SIZE}"
SPAN = "check-span net.attn.pt --grid 5x5"
TRAIN = "train quadratic --data digits --layers 1 --width 9 -o run"
HYBRID = "train resnet --start net.pt -o new --data digits --train-images 40 --epochs 1"
GATED = "check-span gated.pt --arch attentions:gated"

CALLS = {
    # words
    "no-such-command": "C2A006 No such command",
    "reproduce nothing": "C2A006 No such command",
    "convert": "C2A006 Missing argument 'MODEL'. See conv2attn convert --help",
    "heads": "C2A006 Missing argument 'MODEL'",
    "convert https://site.org/net.pt": "C2A301 https://site.org/net.pt is an address. Nothing is downloaded",
    "convert hf:org/name": "Nothing is downloaded: pass a file or folder of it",
    "convert net.pt --no-such-option": "C2A006 No such option",
    # the nearest option was said to be --force
    f"verify net.pt net.pt {SIZE} --tolerance 1": "C2A006 No such option '--tolerance'. See conv2attn verify --help",
    "--verison": "C2A006 No such option '--verison'. Did you mean '--version'?",
    "convert net.pt --output": "C2A006 Option '--output' requires an argument. See conv2attn convert --help",
    "demo extra": "C2A006 Got unexpected extra argument",
    "explain C2A999": "C2A002 'C2A999' is no code or claim",
    "explain ''": "C2A002 '' is no code or claim",
    "explain --row conv1": "C2A004 --row is of a certificate",
    "prove L2 --formall": "C2A006 No such option",
    "demo -o new.txt": "C2A308 -o new.txt has none of the suffixes",
    "prove L99": "C2A002 claim 'L99' is not one of",
    # what a person saw: a batch in the size, a mistake behind a name that is taken, heads where none can be removed
    "verify net.pt net.pt --input-size 1x3x12x12": "If the leading 1 is the batch, leave it out: --input-size 3x12x12",
    "distil net.pt -o net.attn.pt --max-loss 0": "C2A001",
    "prune net.pt -o new.pt": "C2A602 Sequential is not an attention classifier",
    # files to read
    "convert missing.pt": "C2A301 missing.pt does not exist",
    "convert ''": "C2A301 '' does not exist",
    "convert loop.pt": "C2A301 loop.pt does not exist",
    "inspect loop.pt": "C2A301 loop.pt does not exist",
    "convert pipe.pt": "C2A301 pipe.pt is not a regular file",
    f"{CONVERT} --inputs pipe.pt": "C2A301 pipe.pt is not a regular file",
    "convert empty": "C2A301 empty is a directory without a config.json",
    "convert notes.txt": "C2A303 notes.txt is a text file",
    "convert heads.npz": "C2A303 heads.npz is a file of NumPy arrays",
    "convert net.pt2": "whose 2 convolutions are operators and not layers",
    "convert net.attn.pt": "2 of its layers are attention of conv2attn already",
    "convert linear.pt": "Sequential has no convolution, and calls none. Ask what its attention does",
    "inspect net.pt --max-size 1e-9": "C2A307 net.pt has",
    "recheck notes.txt": "C2A303 notes.txt is no certificate of two files",
    # files to write
    "convert net.pt -o net.pt --force": "C2A004 net.pt is read by this call",
    "convert net.pt -o loop.pt": "C2A305 loop.pt exists",
    "convert net.pt -o folder": "C2A308 -o folder has none of the suffixes",
    "convert net.pt -o ''": "C2A308 -o '' has none of the suffixes",
    f"convert net.pt -o {LONG}.pt {SIZE}": "cannot be written: File name too long",
    f"{CONVERT} --report {LONG}.json": "cannot be written: File name too long",
    f"train quadratic --data digits --layers 1 --width 9 -o {LONG}": "C2A301",
    f"{CONVERT} --report no/such/report.json": "C2A301 no/such is not a folder",
    f"{CONVERT} --report new.svg --plot new.svg": "C2A004 new.svg is to hold both",
    f"{CONVERT} --report new.svg --plot new.svg --force": "C2A004 new.svg is to hold both",
    f"{CONVERT} --report notes.txt": "C2A305 notes.txt exists",
    f"verify net.pt net.pt {SIZE} --save-input new.json": "C2A308 --save-input new.json has none of the suffixes",
    # convert and verify
    f"{CONVERT} --alpha soft": "C2A006 --alpha 'soft' is not a number, or auto. Write 5, say",
    f"{CONVERT} --alpha -1": "C2A130 --alpha -1 is not a positive finite number",
    "convert timm:resnet18": "C2A301 timm:resnet18 is a name of timm, and no file here. Nothing is downloaded",
    "heads facebook/dinov2-small": "looks like a name of the Hugging Face hub. Nothing is downloaded",
    f"{CONVERT} --alpha nan": "C2A130",
    f"{CONVERT} --encoding sine": "C2A006",
    f"{CONVERT} --stride-by hope": "C2A006",
    f"{CONVERT} --only layer9*": "C2A008 the pattern 'layer9*' fits no convolution. There are: stem, body",
    f"{CONVERT} --only ''": "C2A008 the pattern '' fits no convolution",
    f"{CONVERT} --skip *": "C2A008 every convolution of net.pt is skipped. Leave one in",
    f"{CONVERT} --engine conv": "C2A004 --engine conv changes nothing in new.pt",
    f"{CONVERT} --arch resnet18": "C2A304",
    f"{CONVERT} --arch :": "C2A002 --arch : names no architecture",
    f"{CONVERT} --arch-args {{bad": "C2A006 --arch-args {bad is not a JSON object",
    f"{CONVERT} --allow Name": "C2A006 --allow Name names no package",
    f"{CONVERT} --max-size nan": "C2A001 --max-size nan is not a positive number",
    f"{CONVERT} --mean abc --std 1": "C2A006",
    f"{CONVERT} --mean 0.5": "C2A004",
    f"{CONVERT} --mean 0 --std 0": "C2A001",
    f"{CONVERT} --device cuda:99": "C2A002 device 'cuda:99' is not here",
    f"{CONVERT} --device privateuseone": "C2A002 device 'privateuseone' is not here",
    f"{CONVERT} --device meta": "C2A002 device 'meta' is not here",
    f"{CONVERT} --device mkldnn": "C2A002 device 'mkldnn' is not here",
    f"{CONVERT} --device ''": "C2A002 device '' is not here",
    f"{CONVERT} --input-range nan": "C2A001",
    f"{CONVERT} --input-range inf": "C2A001",
    f"{CONVERT} --input-range 0": "C2A001",
    f"{CONVERT} --input-range 1e39": "C2A001 an input range of 1e+39 is beyond torch.float32",
    "verify net.pt net.pt": "C2A005 nothing says how large an image the networks take. Pass --input-size",
    "verify net.pt net.pt --input-size 3x2x2": "C2A009",
    # what to run on
    "verify net.pt net.pt --input-size 224": "C2A009 net.pt does not run on 1 random input 224",
    "convert net.pt --input-size 3x0x5": "C2A006",
    "heads net.pt --inputs pixels.npy --input-size 3by4": "Write 3x224x224, say",
    "convert net.pt --input-size 3x9999999x9999999": "C2A001 an image 3x9999999x9999999 has more than 2^26 numbers",
    "convert net.pt --input-size 3x99999999999x9999999999999999": "has more than 2^26 numbers",
    "explore net.pt -o new.html --input-size 3x100000x100000": "C2A001 an image 3x100000x100000 has more than 2^26",
    "convert net.pt --inputs missing.npy": "C2A301 missing.npy does not exist",
    "convert net.pt -o new.pt --inputs net.pt": "C2A303",
    "verify net.pt net.pt --inputs words.npy": "C2A303 words.npy holds no images",
    "verify net.pt net.pt --inputs object.npy": "C2A303 object.npy does not hold",
    "verify net.pt net.pt --inputs complex.npy": "C2A303 complex.npy holds 1x3x8x8 numbers of",
    "verify net.pt net.pt --inputs none.npy": "C2A303 none.npy holds 0x3x8x8 numbers",
    "verify net.pt net.pt --inputs flat.npy": "C2A009 net.pt does not run on 8 inputs of flat.npy",
    "verify net.pt net.pt --inputs flat.pt": "C2A009 net.pt does not run on 8 inputs of flat.pt",
    # this ran on 12x12, and the report did not say so
    "verify net.pt net.pt --inputs pixels.npy --input-size 3x8x8": "C2A007 pixels.npy holds numbers 3x12x12",
    "heads net.attn.pt --inputs pixels.npy --input-size 3x8x8": "C2A007 pixels.npy holds numbers 3x12x12",
    "verify net.pt net.pt --inputs two.pt": "C2A303 two.pt holds 2 tensors",
    "verify net.pt net.pt --inputs nan.npy": "C2A303 nan.npy holds numbers that are not finite",
    "heads net.attn.pt --inputs nan.npy": "C2A303 nan.npy holds numbers that are not finite",
    "explore net.pt -o new.html --inputs nan.npy": "C2A303 nan.npy holds numbers that are not finite",
    "verify net.pt net.pt --seed 1.5": "C2A006 Invalid value for '--seed': '1.5' is not a valid integer",
    f"{CONVERT} --also-size 3x12": "C2A009 net.pt does not run on 1 random image 3x12 within",
    # movements
    f"symmetric net.pt {SIZE}": "C2A004 none of shift, flip and permute is passed. Pass one of them",
    f"symmetric net.pt --shift 1,0 --flip {SIZE}": "C2A004 2 of shift, flip and permute are passed",
    f"symmetric net.pt --shift 1 {SIZE}": "C2A007 shift=(1,) is not a number for each of 2 axes",
    f"symmetric net.pt --shift a,b {SIZE}": "C2A006 --shift 'a,b' is not whole numbers with a comma between them",
    # attention
    "check-span net.pt": "C2A501 Sequential has no layer that is known to attend. Pass --inputs if",
    "check-span net.attn.pt": "C2A503 0: a layer attends on every grid. Pass the sides of its input with --grid",
    "check-span net.attn.pt --grid 0x4": "C2A006 --grid '0x4' is not positive whole numbers with an x between them",
    "check-span net.attn.pt --grid 5": "Pass --kernel-size and --dilation, or --offsets, with as many axes as the grid",
    f"{SPAN} --kernel-size 3.5": "Write 3 or 3x5, say",
    f"{SPAN} --kernel-size 99": "C2A504 9801 offsets are more than 4096",
    f"{SPAN} --dilation 0": "C2A504 kernel_size=3 and dilation=0 are not positive whole numbers",
    f"{SPAN} --offsets a,b": "C2A006 --offsets 'a,b' is not offsets",
    f"{SPAN} --offsets '0,0 0,0'": "C2A504",
    f"{SPAN} --eps nan": "C2A001",
    f"{SPAN} --memory-limit 0": "C2A006",
    f"{SPAN} --exact": "C2A004",
    # these changed nothing
    f"{SPAN} --kernel-size 3 --offsets 0,0": "C2A004 --kernel-size changes nothing beside --offsets",
    f"{SPAN} --dilation 2 --offsets 0,0": "C2A004 --dilation changes nothing beside --offsets",
    f"verify net.pt net.pt {SIZE} --cite --format json": "C2A004 --cite prints a citation in place of the report",
    "check-span heads.npz --position-only": "C2A004 --position-only asks a network, and an array is none",
    "check-span heads.npz --inputs pixels.npy": "C2A004 --inputs runs a network, and heads.npz holds attention itself",
    "check-span heads.npz --grid 4x4": "C2A503",
    "check-span missing.npz": "C2A301",
    "check-span notes.npz": "C2A303",
    "check-span notes.safetensors": "C2A303",
    "check-span net.pt --arch no_such_package:factory": "C2A003",
    "check-span net.pt --arch builtins:dict": "builds a dict, not an nn.Module",
    "check-span net.pt --arch torch.nn:Linear": "raised TypeError",
    "check-span resnet18.pt": "C2A501 ResNet has no layer that is known to attend",
    "check-span resnet18.pt --position-only": "C2A501 ResNet has no layer",
    "check-span trained.pt --inputs odd.npy": "does not run on images of 1x1x9x9 numbers",
    # positions were read all the same, or nothing was said to be decided
    "check-span trained.pt --position-only --inputs odd.npy": "does not run on images of 1x1x9x9 numbers",
    "check-span trained.pt --position-only --inputs nan.npy": "C2A303 nan.npy holds numbers that are not finite",
    "check-span trained.pt --position-only --inputs none.npy": "C2A303 none.npy holds 0x3x8x8 numbers",
    f"{GATED} --position-only --grid 4x4 --inputs odd.npy": "C2A009 Sequential does not run on images of 1x1x9x9",
    "check-span trained.pt --offsets 0,99999999999999999999": "farther than any grid",
    "check-span trained.pt --offsets ''": "C2A006 --offsets '' is not offsets",
    "check-span trained.pt --kernel-size 99999999999": "are more than 4096",
    "check-span trained.pt --kernel-size 0": "C2A006",
    "check-span trained.pt --extra-tokens 1": "C2A004 blocks.0.attention attends to pixels alone",
    "check-span trained.pt --grid 100000x100000": "100000x100000 keys have scores of 80,000,000,000 bytes an axis",
    f"{GATED} --position-only": "C2A503 0: it attends on every square grid",
    f"{GATED} --position-only --grid 4x5": "C2A503 0: its positions are those of a square",
    f"{GATED} --position-only --grid 4x4 --extra-tokens 1": "C2A004 0 attends to pixels alone",
    f"{GATED} --input-size 3x12x12": "C2A004 --input-size is of the images of --inputs, and there are none",
    "heads heads.npz --input-size 3x12x12": "C2A004 --input-size runs a network, and heads.npz holds attention itself",
    "heads net.attn.pt": "C2A503 0: a layer attends on every grid. Pass the sides of its input with --grid",
    "heads --columns --report new.md": "C2A006 --columns is text on stdout",
    "heads --columns --format json": "C2A006 --columns is text on stdout",
    "heads net.attn.pt --grid 4x4x4": "a grid 4x4x4 has not the 2 axes of the layer. Pass one side",
    "heads net.attn.pt --grid 5x5 --compare net.pt": "C2A501",
    "heads net.attn.pt --grid 5x5 --plot new.png --compare net.attn.pt": "C2A006 --plot shows the heads of one model",
    "heads net.attn.pt --grid 4,4": "C2A006 --grid '4,4' is not positive whole numbers with an x between them",
    "heads net.attn.pt --grid 5x5 --heads 0:0": "C2A006 --heads is about replaced heads: pass --replace too",
    "heads net.attn.pt --replace sum": "C2A006 Invalid value for '--replace': 'sum' is not one of",
    "recover heads.npz -o new.pt --grid 5x5": "C2A505",
    "recover net.attn.pt --grid 5x5": "C2A006 Missing option '-o'",
    "explore net.pt": "C2A006 Missing option '-o'",
    "distil net.pt -o new.pt": "C2A006 Missing option '--max-loss'",
    "distil net.pt -o new.pt --max-loss 1": "C2A004 distil runs the network on images, and there are none",
    "distil net.pt -o new.pt --max-loss much": "C2A006 --max-loss 'much' is not a positive number. Write 0.01, say",
    "distil net.pt -o new.pt --max-loss -1 --inputs pixels.npy": "C2A001 max_loss=-1.0 is not a positive finite number",
    "distil net.pt -o new.pt --max-loss 1 --inputs pixels.npy": "C2A006 distilling needs 6 images",
    "distil net.pt -o new.pt --max-loss 1 --inputs pixels.npy --heads one": "C2A006 --heads one names no heads",
    "distil net.pt -o net.pt --max-loss 1 --inputs pixels.npy --force": "C2A004 net.pt is read by this call",
    "distil net.pt -o new.txt --max-loss 1 --inputs pixels.npy": "C2A308",
    "explore net.pt -o new.html --input-size 3x12": "C2A007 --input-size 3x12 is not channels, rows and columns",
    "explore net.pt -o new.html --only nothing": "C2A008",
    "explore net.pt -o new.svg --skip *": "C2A008 net.pt has no layer to draw",
    "soften net.pt -o new.pt --alpha 5": "C2A008 Sequential has no attention layer to soften",
    "soften net.attn.pt -o net.attn.pt --alpha 5": "C2A004 net.attn.pt is read by this call",
    "soften net.attn.pt -o new.pt": "C2A006 Missing option '--alpha'",
    "soften net.attn.pt -o new.pt --alpha nan": "C2A130",
    "soften net.attn.pt -o new.pt --alpha 1e-300": "C2A130 alpha=1e-300 is not a positive finite number",
    # training and the experiments
    "train": "C2A004 train takes either a KIND or --resume FOLDER",
    "train nothing": "C2A006 Invalid value for '[KIND]': 'nothing' is not one of",
    "train --resume ''": "C2A301",
    "train --resume empty": "C2A301 empty holds no checkpoint.pt",
    "train --resume empty --batch 3": "C2A004 --batch changes nothing beside --resume",
    "train quadratic --data missing -o run": "C2A301",
    "train quadratic --data notes.txt -o run": "C2A303 notes.txt is not an archive of images",
    "train quadratic --data empty -o run": "C2A303 empty has no folders train and test",
    f"{TRAIN} --epochs 0": "C2A001 epochs=0 is not at least 1",
    f"{TRAIN} --dropout 1": "C2A001 dropout=1.0 is not at least 0 and less than 1",
    f"{TRAIN} --milestones x": "C2A006 --milestones 'x' is not a list of whole numbers. Write 80,150,250, say",
    f"{TRAIN} --milestones 3,2": "C2A001",
    f"{TRAIN} --milestones -1": "C2A001 milestones=(-1,) are not epochs from 1 on",
    f"{TRAIN} --learning-rate nan": "C2A001 learning_rate=nan",
    f"{TRAIN} --patch 3": "whole patches of 3",
    f"{TRAIN} --heads 100000000": "do not fit in the memory",
    f"{TRAIN} --engine fast": "C2A002 engine 'fast'",
    f"{TRAIN} --device nothing": "C2A002 device 'nothing' is not here",
    f"{TRAIN} --device meta": "'meta' computes nothing",
    f"{TRAIN} --resume empty": "C2A004 train takes either a KIND or --resume FOLDER",
    f"{TRAIN} --arch x": "C2A004",
    f"{TRAIN} --terms q.k": "C2A002 terms='q.k' is not a sum of qk, qr, uk and vr. Write vr, qr, qk+qr",
    f"{TRAIN} --absolute none --attention-dropout 1": "C2A001 attention_dropout=1.0 is not at least 0 and less than 1",
    # these changed nothing
    "train resnet --data digits -o run --heads 9": "C2A004 --heads changes nothing in a resnet. Leave it out",
    "train quadratic --data digits -o run --alpha 3": "C2A004 --alpha changes nothing without --only or --skip",
    f"{HYBRID} --width 8 --only stem": "C2A004 --width changes nothing in the network of net.pt",
    # this converted nothing
    f"{HYBRID} --only ''": "C2A008 the pattern '' fits no convolution",
    f"{HYBRID} --only ' '": "C2A008 the pattern ' ' fits no convolution",
    f"{HYBRID} --only layer9.*": "C2A008 the pattern 'layer9.*' fits no convolution",
    "figures empty -o new": "C2A301 empty/metrics.csv does not exist",
    "figures empty -o new --query 1": "C2A006 --query '1' is not a row and a column. Write 3,4, say",
    "reproduce tables --run quadratic": "C2A006 --run 'quadratic' is not MODEL=FOLDER",
    "reproduce tables --run quadratic=nothing": "C2A301 nothing is not a folder. Pass the folder of a run",
    "reproduce tables --run nothing=empty": "C2A002 'nothing' is no model of the tables",
}


def write_files() -> None:
    """The files that the calls name, in the current folder."""
    torch.save(NETWORK, "net.pt")
    plain = nn.Sequential(NETWORK.stem, NETWORK.relu, NETWORK.body)
    torch.export.save(torch.export.export(plain, (torch.ones(1, 3, 12, 12),)), "net.pt2")
    conv2attn.save(conv2attn.convert(plain), "net.attn.pt")
    torch.save(nn.Sequential(nn.Linear(3, 4)), "linear.pt")
    np.savez("heads.npz", heads=np.full((9, 25, 25), 1 / 25))
    arrays = {
        "pixels": np.zeros((2, 3, 12, 12), np.float32),
        "nan": np.full((2, 3, 12, 12), np.nan, np.float32),
        "words": np.array(["no", "image"]),
        "object": np.array([{}], dtype=object),
        "complex": np.zeros((1, 3, 8, 8), np.complex64),
        "none": np.zeros((0, 3, 8, 8), np.float32),
        "flat": np.zeros((8, 8), np.float32),
        "odd": np.zeros((1, 1, 9, 9), np.float32),
    }
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    torch.save(gated().state_dict(), "gated.pt")
    for name, example in (("resnet18.pt", "resnet18.pt"), ("trained.pt", "attention-quadratic.pt")):
        Path(name).symlink_to(Path(__file__).parents[1] / "examples" / example)
    torch.save({"images": torch.zeros(8, 8)}, "flat.pt")
    torch.save({"a": torch.zeros(1, 3, 8, 8), "b": torch.zeros(1, 3, 8, 8)}, "two.pt")
    for name in ("notes.txt", "notes.npz", "notes.safetensors"):
        Path(name).write_text("hello")
    Path("empty").mkdir()
    Path("loop.pt").symlink_to("loop.pt")
    os.mkfifo("pipe.pt")
