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
rewrite /masked_softmax /masked_weight /rectified E; apply: Rgt_not_eq; apply: Rdiv_lt_0_compat;
  first exact: exp_pos.
by apply: (rsum_gt0 k) => j; exact: exp_pos.
Qed.

(** ** Mutants

    A factor; a term for each key; a term before a ReLU; a masked input that weighs nothing after
    one *)
Definition mutant_factor := cancels_in softmax Rmult.
Theorem mutant_factor_refuted : ~ mutant_factor.
Proof.
move=> /(_ _ (slope (ln 2)) 0 true).
by rewrite slope_shareE /softmax rsum_bool /= !Rmult_0_r exp_0 (proj1 exp_ln2E); lra.
Qed.
Definition mutant_each_key := forall (K : finType) (s xi : K -> R),
  softmax (fun k => s k + xi k) =1 softmax s.
Theorem mutant_each_key_refuted : ~ mutant_each_key.
Proof.
move=> /(_ _ (slope 0) (slope (ln 2)) true).
by rewrite slope_shareE /softmax rsum_bool /= !Rplus_0_l exp_0 (proj1 exp_ln2E); lra.
Qed.
Definition mutant_rectified :=
  cancels_in (fun K s => masked_softmax (fun k => rectified (Some (s k)))) Rplus.
Theorem mutant_rectified_refuted : ~ mutant_rectified.
Proof.
have l := proj1 exp_ln2E; have l2 : 0 < ln 2 by apply: ln_gt0; lra.
move=> /(_ _ (slope (ln 2)) (- ln 2) true).
rewrite /masked_softmax !rsum_bool /= Rplus_0_l Rplus_opp_r.
rewrite (Rmax_left 0 0) ?(Rmax_left 0 (- ln 2)) ?(Rmax_right 0 (ln 2)); try lra.
by rewrite exp_0 l; lra.
Qed.
Definition mutant_masked := forall (K : finType) (s : K -> option R) k, s k = None ->
  masked_softmax (fun k => rectified (s k)) k = 0.
Theorem mutant_masked_refuted : ~ mutant_masked.
Proof.
move=> /(_ _ (fun _ : unit => None) tt erefl).
by rewrite /masked_softmax rsum_unitE /= exp_0; lra.
Qed.
