"""Command lines whose words or files are wrong. A defect once fixed is a row."""

SIZE = "--input-size 3x12x12"
LONG = "x" * 300
CONVERT = f"convert net.pt -o new.pt {SIZE}"

COMMANDS = {
    "no-such-command": "C2A006 No such command",
    "convert": "C2A006 Missing argument 'MODEL'. See conv2attn convert --help",
    "heads": "C2A006 Missing argument 'MODEL'",
    "convert https://site.org/net.pt": "C2A301 https://site.org/net.pt does not exist. Check the path. Nothing",
    "convert net.pt --no-such-option": "C2A006 No such option",
    # the nearest option was said to be --force
    f"verify net.pt net.pt {SIZE} --tolerance 1": "C2A006 No such option '--tolerance'. See conv2attn verify --help",
    "--verison": "C2A006 No such option '--verison'. Did you mean '--version'?",
    "convert net.pt --output": "C2A006 Option '--output' requires an argument. See conv2attn convert --help",
    "demo extra": "C2A006 Got unexpected extra argument",
    "explain C2A999": "C2A002 'C2A999' is not a code or claim",
    "explain ''": "C2A002 '' is not a code or claim",
    "explain --row conv1": "C2A004 --row needs a certificate",
    "prove L2 --formall": "C2A006 No such option",
    "demo -o new.txt": "C2A308 -o new.txt has none of the suffixes",
    "prove L99": "C2A002 claim 'L99' is not one of",
    # what a person saw: a batch in the size, a mistake behind a name that is taken, heads where none can be removed
    "verify net.pt net.pt --input-size 1x3x12x12": "If the leading 1 is the batch, leave it out: --input-size 3x12x12",
    "distil net.pt -o net.attn.pt --max-loss 0": "C2A001",
    "convert missing.pt": "C2A301 missing.pt does not exist",
    "convert ''": "C2A301 '' does not exist",
    "convert loop.pt": "C2A301 loop.pt does not exist",
    "inspect loop.pt": "C2A301 loop.pt does not exist",
    "convert pipe.pt": "C2A301 pipe.pt is not a regular file",
    f"{CONVERT} --inputs pipe.pt": "C2A301 pipe.pt is not a regular file",
    "convert empty": "C2A301 empty is a folder without model.safetensors",
    "convert notes.txt": "C2A303 notes.txt is a text file",
    "convert heads.npz": "C2A303 heads.npz is a file of NumPy arrays",
    "convert net.pt2": "whose 2 convolutions are operators, not layers",
    "convert net.attn.pt": "2 of its layers are attention of conv2attn already",
    "convert linear.pt": "Sequential has no convolution, and calls none. Ask what its attention does",
    "inspect net.pt --max-size 1e-9": "C2A307 net.pt has",
    "recheck notes.txt": "C2A303 notes.txt is not a certificate of two files",
    # files to write
    "convert net.pt -o net.pt --force": "C2A004 net.pt is read by this call",
    "convert net.pt -o loop.pt": "C2A305 loop.pt exists",
    "convert net.pt -o folder": "C2A308 -o folder has none of the suffixes",
    "convert net.pt -o ''": "C2A308 -o '' has none of the suffixes",
    f"convert net.pt -o {LONG}.pt {SIZE}": "cannot be written: File name too long",
    f"{CONVERT} --report {LONG}.json": "cannot be written: File name too long",
    f"train quadratic --data digits --layers 1 --width 9 -o {LONG}": "C2A301",
    f"{CONVERT} --report no/such/report.json": "C2A301 no/such is not a folder",
    f"{CONVERT} --report new.svg --plot new.svg": "C2A004 new.svg is the file of both",
    f"{CONVERT} --report new.svg --plot new.svg --force": "C2A004 new.svg is the file of both",
    f"{CONVERT} --report notes.txt": "C2A305 notes.txt exists",
    f"verify net.pt net.pt {SIZE} --save-input new.json": "C2A308 --save-input new.json has none of the suffixes",
    f"verify net.pt net.pt {SIZE} --save-input no/such.npz": "C2A301 no is not a folder",
    "recheck none.json": "none.json does not exist",
    "verify": "C2A006 Missing argument",
    "convert net.attn.pt -o net.attn.pt --force": "is read by this call, and would be overwritten. Name another file.",
}
