(** * LEFT: instance and mutant of the mean with keys left out *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums FLOAT SOFT CutLayers ExactCases SoftCases LEFT.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Instance: one key, which is kept *)
Theorem instance x : Rabs x <= 7 ->
  Rabs (computed plain (fun _ : unit => 1) (fun _ => x) 0 only - x) <= 0.
Proof.
move=> small; have share k : share_of xpredT (fun _ : unit => 0) k = 1.
  by rewrite /share_of rsum_unitE; field; exact/Rgt_not_eq/exp_pos.
have := @left_out plain _ xpredT xpredT (fun _ : unit => 0) (fun _ => 1) (fun _ => x) only tt 1%N
  0 0 7 0 erefl (only_plain _ _) (or_introl exact_nearest) one_of_one.
rewrite mixing_bound0 rsum_unitE share Rminus_eq_0 Rabs_R0 softmax_only => says.
have -> : 0 = 2 * 0 * 7 + (0 + 3 * 0) * 7 by ring.
by apply: says => //; try exact: no_other; try lra.
Qed.
(** ** Mutant: the target is left out as well *)
Definition mutant := left_out_if (fun _ _ _ => True).
Theorem mutant_refuted : ~ mutant.
Proof.
have at1 (k : unit) : Rabs 1 <= 1 by rewrite Rabs_R1; exact: Rle_refl.
move=> /(_ plain _ xpredT pred0 (fun _ : unit => 0) (fun _ => 0) (fun _ => 1) only tt 1%N 0 0 1 0 I
  (only_plain _ _) (or_introl exact_nearest) one_of_one).
rewrite mixing_bound0 rsum_unitE /share_of /= Rminus_eq_0 Rabs_R0 softmax_only => says.
have := says (Rle_refl 0) (no_other _) at1; rewrite Rminus_eq_0 => /(_ (Rle_refl 0)).
by rewrite /computed /= Rmult_0_l Rabs_left; lra.
Qed.
