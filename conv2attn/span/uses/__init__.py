"""What the condition is good for: convolutions written with heads, found in heads, and told from them."""
