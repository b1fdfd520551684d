(** * L2e: the same attention from inner products of absolute features

    Claim: the softmax over the keys of [<(2 alpha (q + Delta), - alpha), (k, |k|^2)>], of [n + 1] features, is that of
    [- alpha |k - q - Delta|^2], for real positions and centres.
    Source: this project; what the sdpa engine rests on. The softmax drops [alpha |q + Delta|^2], which no key changes.
    Does not show: anything about the size of the features, whose rounding limits the engine.
    Licenses: the sdpa engine of conv2attn.attention. *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Lemma rsum_option (I : finType) (F : option I -> R) : \sum_p F p = F None + \sum_i F (Some i).
Proof. exact: (@sum_option reals). Qed.

Theorem absolute : L2e.
Proof.
move=> n K pos alpha q offset k; pose shift a := q a + offset a.
rewrite -[RHS](softmax_shift _ (alpha * dot shift shift)); apply: softmax_ext => j.
rewrite rsum_option /= /dot !big_distrr -!big_split /=; apply: eq_bigr => a _.
by rewrite /shift; ring.
Qed.
