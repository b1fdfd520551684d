"""conv2attn: any convolution as an equal multi-head self-attention layer, with a certificate."""
