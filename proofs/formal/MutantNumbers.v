(** * Mutants of the claims about numbers: D2, A46, FLOAT, SPAN

    Near misses, as in MutantHeads.v, refuted on small instances. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From Flocq Require Import Core.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
From C2A Require Checker.
Local Open Scope R_scope.

(** ** D2 *)
Definition D2_no_sharpness := forall (D : eqType) (t : D -> R), injective t ->
  forall alpha target d, d != target ->
  enumerated_score alpha (t target) (t d) < enumerated_score alpha (t target) (t target).
Theorem D2_no_sharpness_refuted : ~ D2_no_sharpness.
Proof.
have inj : injective (fun k : bool => if k then 1 else 0) by case; case=> //; lra.
by move=> /(_ _ _ inj 0 true false isT); rewrite /enumerated_score; lra.
Qed.
Definition D2_sign := forall (D : eqType) (t : D -> R), injective t -> forall alpha, 0 < alpha ->
  forall target d, d != target ->
  enumerated_score alpha (t target) (t target) < enumerated_score alpha (t target) (t d).
Theorem D2_sign_refuted : ~ D2_sign.
Proof.
have inj : injective (fun k : bool => if k then 1 else 0) by case; case=> //; lra.
by move=> /(_ _ _ inj 1 Rlt_0_1 true false isT); rewrite /enumerated_score; lra.
Qed.
Definition D2_linear := forall (D : eqType) (t : D -> R), injective t -> forall alpha, 0 < alpha ->
  forall target d, d != target ->
  enumerated_score alpha (t target / 2) (t d) < enumerated_score alpha (t target / 2) (t target).
Theorem D2_linear_refuted : ~ D2_linear.
Proof.
have inj : injective (fun k : bool => if k then 1 else 0) by case; case=> //; lra.
by move=> /(_ _ _ inj 1 Rlt_0_1 true false isT); rewrite /enumerated_score; lra.
Qed.
Definition D2_repeated := forall (D : eqType) (t : D -> R) alpha, 0 < alpha -> forall target d,
  d != target ->
  enumerated_score alpha (t target) (t d) < enumerated_score alpha (t target) (t target).
Theorem D2_repeated_refuted : ~ D2_repeated.
Proof. by move=> /(_ _ (fun _ : bool => 0) 1 Rlt_0_1 true false isT); lra. Qed.
Definition D2_narrow := forall (W M : nat -> Z) n, (forall a, (2 * W a - 2 <= M a)%Z) ->
  forall d d' : nat -> Z,
  (forall a, (Z.abs (d a) < W a /\ Z.abs (d' a) < W a)%Z) ->
    mixed_radix M d n = mixed_radix M d' n ->
  forall a, (a < n)%N -> d a = d' a.
Theorem D2_narrow_refuted : ~ D2_narrow.
Proof.
pose d (k : nat) : Z := if k is 1%N then 1%Z else 0%Z; pose d' (k : nat) : Z :=
  if k is 1%N then (-1)%Z else 1%Z.
move=> /(_ (fun _ => 2%Z) (fun _ => 2%Z) 2%N (fun _ => Z.le_refl 2) d d').
have small a : (Z.abs (d a) < 2 /\ Z.abs (d' a) < 2)%Z by case: a => [|[|a]].
by move=> /(_ small erefl 0%N isT).
Qed.

(** ** A46: the thresholds, one binary digit too low *)
Lemma smallest_stays emin p : (0 < p)%Z -> rounded emin p (bpow radix2 emin) <> 0.
Proof.
move=> p0; have P : Prec_gt_0 p := p0; rewrite /rounded round_generic;
  first by have := bpow_gt_0 radix2 emin; lra.
by apply: generic_format_bpow; rewrite /FLT_exp; lia.
Qed.
Lemma power_of_2 (k : positive) : exp (- (IZR (Z.pos k) * ln 2)) = bpow radix2 (Z.neg k).
Proof. by rewrite bpow_exp; congr exp; rewrite -(Pos2Z.opp_pos k) opp_IZR /=; ring. Qed.
Definition A46_float64 := forall alpha, 1074 * ln 2 <= alpha -> float64 (exp (- alpha)) = 0.
Definition A46_float32 := forall alpha, 149 * ln 2 <= alpha -> float32 (exp (- alpha)) = 0.
Definition A46_bfloat16 := forall alpha, 133 * ln 2 <= alpha -> bfloat16 (exp (- alpha)) = 0.
Definition A46_float16 := forall alpha, 24 * ln 2 <= alpha -> float16 (exp (- alpha)) = 0.
Theorem A46_float64_refuted : ~ A46_float64.
Proof. move=> /(_ _ (Rle_refl _)); rewrite (power_of_2 1074); exact: smallest_stays. Qed.
Theorem A46_float32_refuted : ~ A46_float32.
Proof. move=> /(_ _ (Rle_refl _)); rewrite (power_of_2 149); exact: smallest_stays. Qed.
Theorem A46_bfloat16_refuted : ~ A46_bfloat16.
Proof. move=> /(_ _ (Rle_refl _)); rewrite (power_of_2 133); exact: smallest_stays. Qed.
Theorem A46_float16_refuted : ~ A46_float16.
Proof. move=> /(_ _ (Rle_refl _)); rewrite (power_of_2 24); exact: smallest_stays. Qed.

(** ** FLOAT: the scores *)
Definition FLOAT_far := forall emin p : Z, (1 < p)%Z -> (emin <= 0)%Z -> forall alpha,
  in_format emin p alpha -> 0 <= alpha ->
  forall d : Z, (1 <= d)%Z -> rounded emin p (- alpha * rounded emin p (IZR d)) <= - (2 * alpha).
Definition FLOAT_target := forall emin p : Z, (1 < p)%Z -> (emin <= 0)%Z -> forall alpha,
  in_format emin p alpha -> 0 <= alpha ->
  forall d : Z, (0 <= d)%Z -> rounded emin p (- alpha * rounded emin p (IZR d)) <= - alpha.
Definition FLOAT_negative := forall emin p : Z, (1 < p)%Z -> (emin <= 0)%Z -> forall alpha,
  in_format emin p alpha ->
  forall d : Z, (1 <= d)%Z -> rounded emin p (- alpha * rounded emin p (IZR d)) <= - alpha.
Lemma small_integer z : (Z.abs z <= 2)%Z -> in_format 0 2 (IZR z).
Proof.
move=> small; apply: generic_format_FLT; exists (Flocq.Core.Defs.Float radix2 z 0).
- by rewrite /F2R /= Rmult_1_r.
- by rewrite /=; lia.
- by [].
Qed.
Lemma kept z : (Z.abs z <= 2)%Z -> rounded 0 2 (IZR z) = IZR z.
Proof. by move=> small; apply: round_generic; exact: small_integer. Qed.
Theorem FLOAT_far_refuted : ~ FLOAT_far.
Proof.
have p1 : (1 < 2)%Z by []. have e0 : (0 <= 0)%Z by [].
move=> /(_ 0%Z 2%Z p1 e0 1 (small_integer (z := 1) ltac:(by [])) Rle_0_1 1%Z);
  rewrite (kept (z := 1)) //.
have -> : - (1) * 1 = IZR (-1) by rewrite /=; ring.
by rewrite kept // => /(_ (Z.le_refl _)); lra.
Qed.
Theorem FLOAT_target_refuted : ~ FLOAT_target.
Proof.
have p1 : (1 < 2)%Z by []. have e0 : (0 <= 0)%Z by [].
move=> /(_ 0%Z 2%Z p1 e0 1 (small_integer (z := 1) ltac:(by [])) Rle_0_1 0%Z e0);
  rewrite (kept (z := 0)) // Rmult_0_r (kept (z := 0)) //; lra.
Qed.
Theorem FLOAT_negative_refuted : ~ FLOAT_negative.
Proof.
have p1 : (1 < 2)%Z by []. have e0 : (0 <= 0)%Z by []. have d2 : (1 <= 2)%Z by [].
move=> /(_ 0%Z 2%Z p1 e0 (-1) (small_integer (z := -1) ltac:(by [])) 2%Z d2);
  rewrite (kept (z := 2)) //.
have -> : - (-1) * 2 = IZR 2 by ring.
by rewrite kept //; lra.
Qed.

(** ** SPAN: one query, one head, one key *)
Import Checker.
Definition reached := Certificate true 1 1 1 1 0 (-1) 1 0 nil
  [:: Query [:: 1]%Z [:: [:: 0]%Z] [:: 1]%Z].
Definition rated := Certificate true 1 1 1 0 1 (-1) 1 0 nil
  [:: Query [:: 1]%Z [:: [:: 0]%Z] [:: 1]%Z].
Definition served := Certificate true 1 1 1 0 0 (-1) 1 0 nil
  [:: Query [:: 1]%Z [:: [:: 1]%Z] [:: 1]%Z].
Definition too_large := Certificate false 1 1 1 0 0 1 1 1 [:: 2]%Z
  [:: Query [:: 2]%Z [:: [:: 1]%Z] nil].
Definition SPAN_not_strict := forall c, sensible c = true -> refutes c = true -> (bound c < 0)%Z ->
  largest (met c) = 0%Z ->
  per_norm c = 0%Z -> (scale c * (eps c * peak c) <= gain c * limit_scale c)%Z -> ~ spanned c.
Definition SPAN_no_rate := forall c, sensible c = true -> refutes c = true -> (bound c < 0)%Z ->
  largest (met c) = 0%Z ->
  (scale c * (eps c * peak c) < gain c * limit_scale c)%Z -> ~ spanned c.
Definition SPAN_no_reach := forall c, sensible c = true -> refutes c = true -> (bound c < 0)%Z ->
  per_norm c = 0%Z -> (scale c * (eps c * peak c) < gain c * limit_scale c)%Z -> ~ spanned c.
Definition SPAN_no_bound := forall c, sensible c = true -> refutes c = false ->
  List.forallb (leaves_nothing c (size1 (weights c))) (queries c) = true -> spanned c.
Ltac on_span := rewrite /span_left /span_entry /span_norm /= !big_ord_recl !big_ord0 /=.
Theorem SPAN_not_strict_refuted : ~ SPAN_not_strict.
Proof.
move=> /(_ reached erefl erefl erefl erefl erefl (Z.le_refl 1)); apply; exists (fun _ => 0);
  split=> // q [<-|//]; on_span.
have -> : 1 / 1 - (0 * (0 / 1) + 0) = 1 by field.
by rewrite Rabs_R1 Rabs_R0; lra.
Qed.
Theorem SPAN_no_rate_refuted : ~ SPAN_no_rate.
Proof.
move=> /(_ rated erefl erefl erefl erefl erefl); apply; exists (fun _ => 1); split=> // q [<-|//];
  on_span.
have -> : 1 / 1 - (1 * (0 / 1) + 0) = 1 by field.
by rewrite Rabs_R1; lra.
Qed.
Theorem SPAN_no_reach_refuted : ~ SPAN_no_reach.
Proof.
move=> /(_ served erefl erefl erefl erefl erefl); apply; exists (fun _ => 1); split=> // q [<-|//];
  on_span.
have -> : 1 / 1 - (1 * (1 / 1) + 0) = 0 by field.
by rewrite Rabs_R1 Rabs_R0; lra.
Qed.
Theorem SPAN_no_bound_refuted : ~ SPAN_no_bound.
Proof.
move=> /(_ too_large erefl erefl erefl) [phi [small /(_ _ (or_introl erefl))]];
  have := small (Z.le_0_1); on_span.
have -> : 2 / 1 - (phi ord0 * (1 / 1) + 0) = 2 - phi ord0 by field.
by have := Rle_abs (phi ord0); have := Rle_abs (2 - phi ord0); lra.
Qed.
