"""Both layers as one kind of value, and whether two of them are the same map at every size."""
