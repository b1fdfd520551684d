(** * FLOAT, SOFT: instances and mutants in formats of a few bits *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From Flocq Require Import Core.
From C2A Require Import Statements Sums FLOAT SOFT AXES CutLayers ExactCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Arithmetics: float32; products that lose nothing; sums that flush and lose nothing *)
Lemma p24 : (1 < 24)%Z. Proof. by []. Qed.
Theorem instance_arithmetics : [/\ sound (gradual (-149) 24), sound (flushing (-149) 24) &
  sound (truncating (-149) 24)] /\ [/\ monotone (gradual (-149) 24), monotone (flushing (-149) 24),
  nearest (gradual (-149) 24) & nearest (flushing (-149) 24)].
Proof.
by have := FLOAT.arithmetics (-149)%Z p24; have := SOFT.nearest_arithmetics (-149)%Z p24.
Qed.
Definition mutant_no_loss := forall emin p : Z, (1 < p)%Z ->
  sound (Arithmetic (in_format emin p) (rounded emin p) (power (- p)) 0 0).
Theorem mutant_no_loss_refuted : ~ mutant_no_loss.
Proof.
move=> /(_ 0%Z 2%Z ltac:(lia)) [_ [_ _ _ _ /(_ (power (-3)))]]; cbn [fl roundoff loss].
rewrite (A46.below_is_zero _ _ 1%positive) //; last first.
  by rewrite Rabs_pos_eq; [apply: bpow_lt; lia | exact: Rlt_le (power_gt0 _)].
have p0 := power_gt0 (-3); rewrite Rminus_0_l Rabs_Ropp Rabs_pos_eq; last exact: Rlt_le.
have -> : power (- (2)) = / 4 by [].
by lra.
Qed.
Lemma format3 z : (Z.abs z <= 7)%Z -> in_format 0 3 (IZR z).
Proof.
move=> small; apply: generic_format_FLT; exists (Flocq.Core.Defs.Float radix2 z 0).
- by rewrite /F2R /= Rmult_1_r.
- by rewrite /=; lia.
- by [].
Qed.
Definition mutant_flushed := forall emin p : Z, (1 < p)%Z ->
  nearest (Arithmetic (fun x => in_format emin p x /\ normal emin p x) (flush emin p)
    (power (- p)) 0 (power (emin + p - 1))).
Theorem mutant_flushed_refuted : ~ mutant_flushed.
Proof.
move=> /(_ 0%Z 3%Z ltac:(lia)) [_ /(_ 4 (-1))] /=.
have f4 : in_format 0 3 4 by exact: (@format3 4 ltac:(lia)).
have p2 : power (0 + 3 - 1) = 4 by [].
have r3 : rounded 0 3 (4 + -1) = 3.
  by rewrite (_ : 4 + -1 = 3); [apply: rounded_idE; exact: (@format3 3 ltac:(lia)) | ring].
rewrite /flush r3 p2 (Rabs_pos_eq 3); last lra.
have -> : Raux.Rlt_bool 3 4 = true by apply: Raux.Rlt_bool_true; lra.
move=> says; have := says (conj f4 _); rewrite /normal p2 (Rabs_pos_eq 4); last lra.
move=> /(_ (or_intror (Rle_refl 4))); rewrite /Rabs; repeat case: Rcase_abs => ?; lra.
Qed.

(** ** One-hot weights and scores of small integers *)
Theorem instance_one_hot :
  computed_softmax (gradual (-149) 24) (gradual (-149) 24) false (fun _ : unit => 1) only tt = 1.
Proof.
have p1 : (1 < 24 <= 24)%Z by []. have r1 : (-149 <= -149 <= - 24)%Z by [].
have r2 : (-149 <= - 24)%Z by [].
have one (k : unit) : in_format (-149) 24 1 by have -> : 1 = power 0 by []; exact: format_power.
have others (k : unit) : k != tt -> 0 <= 1 /\ 1 <= power (-149 - 1) by case: k.
have few : INR #|unit_finType| * power (- 24) <= / 2.
  by rewrite card_unit; have -> : power (- 24) = / 16777216 by []; rewrite /=; lra.
have none : 2 * \big[Rplus/0]_(k | k != tt) (1 : R) <= power (- 24).
  by rewrite big_pred0 => [|[]] //; rewrite Rmult_0_r; exact: Rlt_le (power_gt0 _).
have := one_hot_weights p1 r1 r2 false (only_once _ _) one
  (erefl : (fun _ => 1) tt = 1) others few none tt.
by rewrite /one_hot eqxx.
Qed.
Theorem instance_scores : rounded 0 2 (- 1 * rounded 0 2 (IZR 2)) <= - 1.
Proof.
have p1 : (1 < 2)%Z by []. have e0 : (0 <= 0)%Z by []. have d1 : (1 <= 2)%Z by [].
exact: (FLOAT.rounded_scores p1 e0 (@small_integer 1 ltac:(lia)) Rle_0_1 d1).
Qed.
