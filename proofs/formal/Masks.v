(** * Masks: the softmax of Andreoli's Eq. (11), and inputs that are masked

    Part of claim AND. What is added to all scores cancels in a softmax, but not before a leaky
    ReLU; a masked input, of score minus infinity, weighs nothing, after a leaky ReLU too, but not
    after a plain one. *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Theorem cancels : AND11.
Proof. by move=> K s xi; exact: softmax_shift. Qed.

(** Scores 1 and -1 differ by 3/2 after a leaky ReLU of slope 1/2, and with 2 added by 2. *)
Theorem not_before_a_leaky_relu : AND11_leaky.
Proof.
exists (fun k : bool => if k then 1 else -1), 2; rewrite /masked_softmax !big_bool /leaky /=.
repeat (case: Rle_dec => ?; try lra).
have E x y : exp x / (exp x + exp y) = / (1 + exp (y - x)).
  have -> : exp y = exp (y - x) * exp x by rewrite -exp_plus; congr exp; ring.
  by have := exp_pos x; have := exp_pos (y - x) => *; field; split; nra.
rewrite !E => /(f_equal Rinv); rewrite !Rinv_inv => H.
by have := exp_inv (-1 + 2 - (1 + 2)) (/ 2 * -1 - 1); lra.
Qed.

Theorem masks : AND_masks.
Proof.
move=> K s slope; split=> k E; first by rewrite /masked_softmax /leaky !E /= /Rdiv !Rmult_0_l.
rewrite /masked_softmax /weight /rectified E; apply: Rgt_not_eq; apply: Rdiv_lt_0_compat;
  first exact: exp_pos.
by apply: (rsum_gt0 k) => j; exact: exp_pos.
Qed.
