(** * FLOAT, SOFT: instances and mutants on one summand, in exact arithmetic *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums FLOAT SOFT CutLayers.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Lemma exact_nearest : nearest exact.
Proof.
split=> [|x y _]; rewrite /= ?Rminus_eq_0 ?Rabs_R0; first exact: Rle_refl.
by have := Rabs_pos y; lra.
Qed.
Lemma exact_monotone : monotone exact. Proof. by []. Qed.
Lemma exact_rounds : rounds_to_nearest exact.
Proof. by split; [exact: exact_sound | exact: exact_monotone | exact: exact_nearest]. Qed.
Lemma exact_limits n : limits exact exact 0 n.
Proof.
split=> //; try exact: exact_sound; first exact: Rle_refl.
by rewrite /= Rmult_0_r; lra.
Qed.
Definition only : order unit := Product tt.
Lemma only_once (w x : unit -> R) : each_once w x 0 only.
Proof. by split=> // -[[]|]. Qed.
Lemma only_summed (e : unit -> R) : summed e only.
Proof. by split=> //; exact: only_once. Qed.
Lemma only_evaluation (w x : unit -> R) : evaluation exact exact id 0 1 1 0 0 w x 0 only.
Proof.
split; first by split=> //; exact: only_once.
by split=> // i; rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; split; exact: Rle_refl.
Qed.
Lemma only_plain (w x : unit -> R) : as_set plain w x 0 only.
Proof. by split; [exact: exact_limits | exact: only_evaluation]. Qed.
Lemma gamma0 n : gamma n 0 = 0.
Proof. by rewrite /gamma !Rmult_0_r /Rdiv Rmult_0_l. Qed.
Lemma growth0 n c : growth exact exact 0 n c = 1.
Proof. by rewrite /growth /= gamma0 !Rplus_0_r pow1; ring. Qed.
Lemma underflow0 k n m : underflow exact exact k n m = 0.
Proof. by rewrite /underflow /=; ring. Qed.
Lemma few_bound0 N near far : few_bound plain N near far = 2 * far.
Proof.
by rewrite /few_bound /cost /lost /growth_of /= !growth0 underflow0; ring.
Qed.
Lemma mixing_bound0 N off far range : mixing_bound plain N off far range = (off + 3 * far) * range.
Proof. by rewrite /mixing_bound few_bound0; ring. Qed.
Lemma far_weights0 n far : far_weights exact n far = 2 * far.
Proof. by rewrite /far_weights /=; ring. Qed.
Lemma computed_bound0 N n : computed_bound exact exact N n 0 0 0 = 0.
Proof.
rewrite /computed_bound /softmax_bound /total_lost far_weights0 /= !gamma0; field; lra.
Qed.
Lemma unit_card : #|[pred _ : unit | true]| = 1%N. Proof. by rewrite card_unit. Qed.
Lemma rsum_no_key (F : unit -> R) : \big[Rplus/0]_(k | ~~ xpredT k) F k = 0.
Proof. by rewrite big_pred0. Qed.
Lemma softmax_only (s : unit -> R) k : softmax s k = 1.
Proof.
by case: k; rewrite /softmax rsum_unitE; apply: Rinv_r; apply: Rgt_not_eq; exact: exp_pos.
Qed.

(** ** Two layers whose tokens differ by 2; tokens that differ and are said not to *)
Theorem instance_difference : Rabs (evaluate exact exact id (fun _ => 3) (fun _ => 7) 0 only
    - evaluate exact exact id (fun _ => 3) (fun _ => 5) 0 only) <= 6.
Proof.
have two (i : unit) : Rabs (7 - 5) <= 2 by rewrite Rabs_pos_eq; lra.
have := difference_of_two_layers (exact_limits 1) (exact_limits 1)
  (only_evaluation (fun _ => 3) (fun _ => 5)) (only_evaluation (fun _ => 3) (fun _ => 7)) two.
rewrite !growth0 !underflow0 !rsum_unitE (Rabs_pos_eq 3); last lra.
by set y := Rabs _; set z := magnitude _ _ _; lra.
Qed.
Definition mutant_difference := forall A T kappa k n c m A' T' kappa' k' n' c' m',
  limits A T kappa n -> limits A' T' kappa' n' ->
  forall cut cut' (I : finType) (w x z : I -> R) b t t' (err : I -> R),
  evaluation A T cut kappa k n c m w x b t -> evaluation A' T' cut' kappa' k' n' c' m' w z b t' ->
  Rabs (evaluate A' T' cut' w z b t' - evaluate A T cut w x b t)
  <= (growth A T kappa n c - 1) * magnitude w x b + growth A T kappa n c * underflow A T k n m
     + \sum_i Rabs (w i) * err i
     + (growth A' T' kappa' n' c' - 1) * (magnitude w x b + \sum_i Rabs (w i) * err i)
       + growth A' T' kappa' n' c' * underflow A' T' k' n' m'.
Theorem mutant_difference_refuted : ~ mutant_difference.
Proof.
move=> /(_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ (exact_limits 1) (exact_limits 1) _ _ _ _ _ _ _ _ _
  (fun _ => 0) (only_evaluation (fun _ => 1) (fun _ => 0)) (only_evaluation (fun _ => 1)
  (fun _ => 1))).
by rewrite !growth0 !underflow0 !rsum_unitE /= Rmult_1_r Rmult_0_r Rminus_0_r Rabs_R1; lra.
Qed.
(** ** The mean with a weight of 1; operands that are halved *)
Theorem instance_mixing x : evaluate exact exact id (one_hot tt) (fun _ => x) 0 only = x.
Proof.
exact (@FLOAT.one_hot_mixing exact exact id exact_sound exact_sound erefl erefl _ (fun _ => x) tt
  only
  (only_once _ _) I I).
Qed.
Definition mutant_halved := forall A T cut, sound A -> sound T -> cut 0 = 0 ->
  forall (K : finType) (x : K -> R) (target : K) (t : order K), each_once (one_hot target) x 0 t ->
  representable A (cut (x target)) -> representable T (cut (x target)) ->
  evaluate A T cut (one_hot target) x 0 t = cut (x target).
Theorem mutant_halved_refuted : ~ mutant_halved.
Proof.
have half0 : 0 / 2 = 0 by rewrite /Rdiv Rmult_0_l.
move=> /(_ exact exact (fun z => z / 2) exact_sound exact_sound half0 _ (fun _ => 1) tt only
  (only_once _ _) I I).
by rewrite /= /one_hot eqxx; lra.
Qed.
