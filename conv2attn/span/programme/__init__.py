"""One convex programme decides a target: `min over |phi|_1 <= B of max_q |e_q - phi A_q|_1`, and its dual refutes."""
