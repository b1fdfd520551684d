(** * SOFT: instances and mutants of the theorems on keys, scores and leaks *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require L2c KEYS AXES FUSED.
From C2A Require Import Statements Sums FLOAT SOFT CutLayers ExactCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Leaks: a target of weight 1, and one of weight 1/4 *)
Theorem instance_leak : 0 <= computed_softmax exact exact false (fun _ : unit => 1) only tt <= 1 /\
  \big[Rplus/0]_(k | k != tt) computed_softmax exact exact false (fun _ : unit => 1) only k <= 0.
Proof.
have stored (k : unit) : representable exact 1 /\ 0 <= 1 by split=> //; lra.
split.
  exact: (leak false exact_sound exact_monotone exact_monotone exact_sound I (only_summed _) stored
    (erefl : (fun _ : unit => 1) tt = 1)).
by rewrite big_pred0 => [|[]] //; exact: Rle_refl.
Qed.
Lemma no_other_key (F : unit -> R) : \big[Rplus/0]_(k | k != tt) F k = 0.
Proof. by rewrite big_pred0 => [|[]]. Qed.
Theorem instance_leak_in_all :
  \big[Rplus/0]_(k | k != tt) computed_softmax exact exact false (fun _ : unit => 1) only k <= 0.
Proof.
have stored (k : unit) : representable exact 1 /\ 0 <= 1 <= (1 + 0) * exp ((fun _ => 0) k) + 0.
  by split=> //; rewrite exp_0; lra.
have none : (#|[pred k in (predT : pred unit) | k != tt]| <= 0)%N.
  by rewrite leqn0; apply/eqP; apply: eq_card0 => -[].
have := leak_in_all (reciprocal := false) exact_sound exact_monotone exact_monotone exact_sound I
  (only_summed _) stored (erefl : (fun _ : unit => 1) tt = 1) (Rle_refl 0) (Rle_refl 0)
  (few := predT)
  (fun k out => False_ind _ (notF out)) none.
rewrite !no_other_key /= => le; lra.
Qed.
Definition mutant_leak := forall A T reciprocal, sound A -> monotone A -> monotone T -> sound T ->
  representable A 1 -> forall (K : finType) (e : K -> R) (t : order K), summed e t ->
  (forall k, representable A (e k) /\ 0 <= e k) ->
  forall k, 0 <= computed_softmax A T reciprocal e t k <= fl T (e k).
Theorem mutant_leak_refuted : ~ mutant_leak.
Proof.
move=> /(_ exact exact false exact_sound exact_monotone exact_monotone exact_sound I _
  (fun _ => / 4) only (only_summed _)).
have stored (k : unit) : representable exact (/ 4) /\ 0 <= / 4 by split=> //; lra.
move=> /(_ stored tt) [_]; rewrite /computed_softmax /quotient /=; lra.
Qed.
Definition pair : order bool := Plus (Product true) (Product false).
Lemma pair_summed (e : bool -> R) : summed e pair.
Proof. by split=> //; split=> // -[[]|]. Qed.
Definition mutant_leak_in_all := forall A T reciprocal, sound A -> monotone A -> monotone T ->
  sound T -> representable A 1 ->
  forall (K : finType) (s e : K -> R) (target : K) (t : order K) (few : pred K) (N : nat) d eta,
  summed e t -> (forall k, representable A (e k) /\ 0 <= e k <= (1 + d) * exp (s k) + eta) ->
  0 <= d -> 0 <= eta -> (forall k, k \notin few -> computed_softmax A T reciprocal e t k = 0) ->
  (#|[pred k in few | k != target]| <= N)%N ->
  \big[Rplus/0]_(k | k != target) computed_softmax A T reciprocal e t k
  <= (1 + roundoff T) * (1 + d) * \big[Rplus/0]_(k | k != target) exp (s k)
    + INR N * ((1 + roundoff T) * eta + loss T).
Theorem mutant_leak_in_all_refuted : ~ mutant_leak_in_all.
Proof.
have stored (k : bool) : representable exact (/ 4) /\
  0 <= / 4 <= (1 + 0) * exp ((fun _ => ln (/ 4)) k) + 0 by split=> //; rewrite exp_ln; lra.
have few1 : (#|[pred k in (predT : pred bool) | k != true]| <= 1)%N.
  by rewrite (eq_card (B := pred1 false)) ?card1 // => -[].
move=> /(_ exact exact false exact_sound exact_monotone exact_monotone exact_sound I _ _ _ true _
  predT 1%N 0 0 (pair_summed _) stored (Rle_refl 0) (Rle_refl 0)
  (fun k out => False_ind _ (notF out)) few1).
have other F : \big[Rplus/0]_(k | k != true) F k = F false by rewrite (big_pred1 false) => [|[]].
rewrite !other exp_ln; last lra.
by rewrite /computed_softmax /quotient /=; lra.
Qed.

(** ** A sum counted on none of its summands, which cost nothing *)
Theorem instance_few : Rabs (computed plain (fun _ : unit => 3) (fun _ => 5) 0 only
  - \big[Rplus/0]_(i : unit | xpredT i) (3 * 5)) <= 0.
Proof.
have one : (#|(xpredT : pred unit)| <= 1 <= terms plain)%N by rewrite card_unit.
have := few_sums (only_plain (fun _ => 3) (fun _ => 5)) (or_introl exact_nearest) one.
by rewrite few_bound0 rsum_no_key Rmult_0_r.
Qed.
Definition mutant_free := forall s (I : finType) (few : pred I) (w x : I -> R) t N,
  as_set s w x 0 t -> nearest (sums s) -> (#|few| <= N <= terms s)%N ->
  Rabs (computed s w x 0 t - \big[Rplus/0]_(i | few i) (w i * x i))
  <= few_bound s N (\big[Rplus/0]_(i | few i) (Rabs (w i) * Rabs (x i))) 0.
Theorem mutant_free_refuted : ~ mutant_free.
Proof.
have none : (#|(pred0 : pred unit)| <= 0 <= terms plain)%N by rewrite card0.
move=> /(_ _ _ pred0 _ _ _ 0%N (only_plain (fun _ => 3) (fun _ => 5)) exact_nearest none).
by rewrite few_bound0 big_pred0 // /computed /= Rabs_pos_eq; lra.
Qed.
(** ** On the lattice: three keys in a line, alpha = ln 3 *)
Theorem instance_lattice : exists theta, theta <= 2 /\
  \big[Rplus/0]_(k | k != None) exp (- ln 3 * IZR (distance (ends k) (ends None))) <= theta ^ 1 - 1.
Proof.
have l3 : 0 < ln 3 by apply: ln_gt0; lra.
have [theta [sum [_ le]]] := L2c.theta_series l3; exists theta; split.
  move: le; rewrite /theta_bound exp_ln; last lra.
  by have -> : 1 + 2 / (3 - 1) = 2 by field.
by have [near _] := lattice; exact: (near _ _ _ ends_grid None _ _ sum).
Qed.
