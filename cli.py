from conv2attn.cli import main

main()
