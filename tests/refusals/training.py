"""Command lines of training and the experiments. A defect once fixed is a row."""

TRAIN = "train quadratic --data digits --layers 1 --width 9 -o run"
HYBRID = "train resnet --start net.pt -o new --data digits --train-images 40 --epochs 1"

COMMANDS = {
    "train": "C2A004 train takes either a KIND or --resume FOLDER",
    "train nothing": "C2A006 Invalid value for '[KIND]': 'nothing' is not one of",
    "train --resume ''": "C2A301",
    "train --resume empty": "C2A301 empty holds no checkpoint.pt",
    "train --resume empty --batch 3": "C2A004 --batch has no effect with --resume",
    "train quadratic --data missing -o run": "C2A301",
    "train quadratic --data notes.txt -o run": "C2A303 notes.txt is not an archive of images",
    "train quadratic --data empty -o run": "C2A303 empty has no folders train and test",
    f"{TRAIN} --epochs 0": "C2A001 epochs=0 is not at least 1",
    f"{TRAIN} --dropout 1": "C2A001 dropout=1.0 is not at least 0 and less than 1",
    f"{TRAIN} --milestones x": "C2A006 --milestones 'x' is not a list of whole numbers. Write 80,150,250, say",
    f"{TRAIN} --milestones 3,2": "C2A001",
    f"{TRAIN} --milestones -1": "C2A001 milestones=(-1,) are not increasing epochs from 1",
    f"{TRAIN} --learning-rate nan": "C2A001 learning_rate=nan",
    f"{TRAIN} --patch 3": "whole patches of 3",
    f"{TRAIN} --heads 100000000": "do not fit in the memory",
    f"{TRAIN} --engine fast": "C2A002 engine 'fast'",
    f"{TRAIN} --device nothing": "C2A002 device 'nothing' is not available",
    f"{TRAIN} --device meta": "'meta' computes nothing",
    f"{TRAIN} --resume empty": "C2A004 train takes either a KIND or --resume FOLDER",
    f"{TRAIN} --arch x": "C2A004",
    f"{TRAIN} --terms q.k": "C2A002 terms='q.k' is not a sum of qk, qr, uk and vr. Write for example vr, qr, qk+qr",
    f"{TRAIN} --absolute none --attention-dropout 1": "C2A001 attention_dropout=1.0 is not at least 0 and less than 1",
    # these changed nothing
    "train resnet --data digits -o run --heads 9": "C2A004 --heads has no effect in a resnet. Leave it out",
    "train quadratic --data digits -o run --alpha 3": "C2A004 --alpha has no effect without --only or --skip",
    f"{HYBRID} --width 8 --only stem": "C2A004 --width has no effect in the network of net.pt",
    # this converted nothing
    f"{HYBRID} --only ''": "C2A008 the pattern '' fits no convolution",
    f"{HYBRID} --only ' '": "C2A008 the pattern ' ' fits no convolution",
    f"{HYBRID} --only layer9.*": "C2A008 the pattern 'layer9.*' fits no convolution",
}
