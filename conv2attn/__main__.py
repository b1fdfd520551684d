"""`python -m conv2attn`, and the entry of torchrun for `-m conv2attn`."""

from conv2attn.cli import main

main(prog_name="conv2attn")
