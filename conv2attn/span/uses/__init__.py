"""Uses of the condition: convolutions written with heads, found in heads, and told from them."""
