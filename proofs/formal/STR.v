(** * STR: a stride is a selection of queries

    Claim: selecting queries after the attention (the paper's fixed pooling layer) is the attention of the selected
    queries; and the strided convolution at output [q] is the convolution with stride 1 at output [q * stride].
    Source: Cordonnier et al. 2020, Sec. 3.1 (stride as a pooling of the output); this project's evaluation order.
    Does not show: that an implementation selects these queries.
    Licenses: conv2attn.convert. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Theorem selection : STR.
Proof. by []. Qed.

Section Unstrided.
Variables (n : nat) (g : geometry n).
Hypothesis ok : fits g.
Lemma strided_lt (q : queries g) a : q a * stride g a < out_side (unstrided g) a.
Proof.
have Hq : q a < (padded g a - dilation g a * (kernel g a - 1) - 1) %/ stride g a + 1 := ltn_ord (q a).
move: (q a : nat) Hq => x; rewrite /out_side /= divn1 !addn1 !ltnS => Hq.
exact: leq_trans (leq_mul Hq (leqnn _)) (leq_trunc_div _ _).
Qed.
End Unstrided.

Theorem strided_convolution : STR_conv.
Proof.
move=> S n g ok q; exists [ffun a => Ordinal (strided_lt q a)]; split=> [a|G ci co weight b X o]; first by rewrite ffunE.
congr (add _ _); apply: eq_bigr => t _; apply: eq_bigr => c _; congr (mul _ _); apply: eq_bigl => i.
by apply: eq_forallb => a; rewrite ffunE /= muln1.
Qed.
