(** * D2, LIT, A46, GQ, EQV, STR, AND, POS, GRAD: instances and mutants of their other theorems *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require D2 LIT A46 GQ EQV STR Masks.
From C2A Require Import Statements Sums OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** D2: two numbers; two axes of displacements below 2; the two ends of two *)
Theorem D2_instance : enumerated_score 1 (D2.bit true) (D2.bit false) < enumerated_score 1 1 (D2.bit
  true).
Proof. exact: (D2.two_suffice D2.bit_injective Rlt_0_1 (isT : false != true)). Qed.
Theorem D2_instance_axes (d d' : nat -> Z) :
  (forall a, (Z.abs (d a) < 2 /\ Z.abs (d' a) < 2)%Z) ->
  (d 0%N * 3 + d 1%N = d' 0%N * 3 + d' 1%N)%Z -> d 0%N = d' 0%N.
Proof.
move=> small E; have wide (a : nat) : (2 * 2 - 1 <= 3)%Z by [].
have same : mixed_radix (fun _ => 3%Z) d 2 = mixed_radix (fun _ => 3%Z) d' 2 by rewrite /=; lia.
exact: (D2.any_axes (W := fun _ => 2%Z) wide small same (isT : 0 < 2)%N).
Qed.
Theorem D2_instance_extremes : exists v v', (forall d, d != true -> v * D2.bit d < v * D2.bit true)
  /\
  forall d, d != false -> v' * D2.bit d < v' * D2.bit false.
Proof. by apply: D2.extremes => -[] //= _; lra. Qed.
Definition D2_mutant_number := forall W M : Z, (2 * W - 2 <= M)%Z -> forall d1 d2 d1' d2',
  (Z.abs d2 < W)%Z -> (Z.abs d2' < W)%Z -> (M * d1 + d2 = M * d1' + d2')%Z -> d1 = d1' /\ d2 = d2'.
Theorem D2_mutant_number_refuted : ~ D2_mutant_number.
Proof. by move=> /(_ 2 2 ltac:(lia) 0 1 1 (-1) ltac:(lia) ltac:(lia) ltac:(lia))%Z []. Qed.
Definition D2_mutant_two := forall r v : 'I_2 -> R, ~ forall h k, k != h -> v h * r k < v h * r h.
Theorem D2_mutant_two_refuted : ~ D2_mutant_two.
Proof.
move=> /(_ (fun k => if k == ord0 then 0 else 1) (fun k => if k == ord0 then -1 else 1)); apply.
by move=> [[|[|//]] ?] [[|[|//]] ?] //= _; lra.
Qed.
Definition D2_mutant_middle := forall (D : eqType) (r : D -> R), injective r -> forall middle,
  exists v : R, forall d, d != middle -> v * r d < v * r middle.
Theorem D2_mutant_middle_refuted : ~ D2_mutant_middle.
Proof.
pose r (k : 'I_3) := INR k; have inj : injective r by move=> x y /INR_eq /ord_inj.
move=> /(_ _ r inj (Ordinal (isT : 1 < 3)%N)) [v H].
have := H (Ordinal (isT : 0 < 3)%N) isT; have := H (Ordinal (isT : 2 < 3)%N) isT.
by rewrite /r /=; lra.
Qed.

(** ** LIT: the four keys of L1; a single key, where the head is hard, and the identity *)
Theorem LIT_instance Xq X : ~ hard (S := reals) id (converted (g := L1.small 1)
  (Cin := unit_finType) 1 id Xq X).
Proof.
apply: LIT.not_hard (@L1.small_fits 1 isT) _ _ _ _ _ _ _ _; last exact: (L1.line ord0).
by rewrite card_dep_ffun foldrE big_map big_enum /= !big_ord_recl big_ord0 !card_ord.
Qed.
Definition LIT_mutant_one_key := forall n (g : geometry n), fits g ->
  forall (alpha : R) (H Cin : finType) (h : H) (f : H -> taps g) (Xq : queries g -> Cin -> R)
    (X : keys g -> Cin -> R),
  ~ hard (S := reals) f (converted alpha f Xq X).
Theorem LIT_mutant_one_key_refuted : ~ LIT_mutant_one_key.
Proof.
move=> /(_ _ _ one_pixel_fits 1 _ _ (here _) id (fun _ (_ : unit) => 0) (fun _ _ => 0)); apply.
move=> h q k; rewrite all_read /converted /softmax (@sum_here reals (padded one_pixel)) (hereE k).
by apply: Rinv_r; apply: Rgt_not_eq; exact: exp_pos.
Qed.
Definition LIT_mutant_one_pixel := forall (score : (unit -> R) -> unit -> unit -> R) (D : finType)
    (Wval : unit -> unit -> D -> reals) (Wout : unit -> D -> unit -> reals) (b : unit -> reals),
  ~ forall (X : unit -> R) q, let attention (_ : unit) q : unit -> reals := softmax (score X q) in
    mhsa attention Wval Wout b (fun k _ => X k) q tt = X q.
Theorem LIT_mutant_one_pixel_refuted : ~ LIT_mutant_one_pixel.
Proof.
move=> /(_ (fun _ _ _ => 0) _ (fun _ _ (_ : unit) => 1) (fun _ _ _ => 1) (fun _ => 0)); apply.
move=> X []; rewrite /mhsa !sum_unitE /softmax rsum_unitE exp_0 /=; field.
Qed.

(** ** A46: a target whose exponential underflows, too; the next integers *)
Definition A46_mutant_low := forall (K : finType) (s : K -> R) (target : K) (order : seq K),
  perm_eq order (enum K) -> (forall k, k != target -> s k <= - (150 * ln 2)) ->
  forall k, float_softmax s order k = one_hot target k.
Theorem A46_mutant_low_refuted : ~ A46_mutant_low.
Proof.
have l2 : ln 2 < 1 by rewrite -(ln_exp 1); apply: ln_increasing; [lra | have := exp_ineq1 1; lra].
move=> /(_ _ (fun _ => -1000) tt (enum unit_finType) (perm_refl _) (fun k => _) tt).
have -> : float_softmax (fun _ : unit => -1000) (enum unit_finType) tt = 0.
  have [_ /(_ 1000) [_ zero] _ _] := A46.thresholds.
  have z : float32 (exp (-1000)) = 0 by apply: zero; lra.
  by rewrite /float_softmax z /Rdiv Rmult_0_l; apply: Flocq.Core.Generic_fmt.round_0.
by rewrite /one_hot eqxx => says; have := says ltac:(case); lra.
Qed.
Definition A46_mutant_integers := exp (-745) * IZR (2 ^ 1075) < 1.
Theorem A46_mutant_integers_refuted : ~ A46_mutant_integers.
Proof. by have [[_ gt] _] := A46.integer_alphas; rewrite /A46_mutant_integers; lra. Qed.
