(** * SOFT: instances and mutants of the theorems on scores and exponentials *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require L2c.
From C2A Require Import Statements Sums FLOAT SOFT KEYS AXES FUSED CutLayers ExactCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Keys: exponentials of one key; a centre between keys; and one past the middle *)
Theorem instance_by_key : \big[Rplus/0]_(k : unit | xpredT k) Rabs (1 - exp 0) <= 0.
Proof.
have off : off_by_key tt (fun _ => 0) (fun _ => 1) 0 0 0 0.
  by move=> k; rewrite exp_0 Rminus_eq_0 Rabs_R0 Rmult_0_l Rplus_0_l exp_0; case: eqP => _; lra.
have mean : \sum_k softmax (fun _ : unit => 0) k * exp (0 * Rabs 0) <= 1.
  by rewrite rsum_unitE softmax_only Rmult_0_l exp_0; lra.
have whole : 1 - softmax (fun _ : unit => 0) tt <= 0 by rewrite softmax_only; lra.
have nothing : [/\ 0 <= 0, 0 <= 0, 0 <= 0 & 0 <= 0] by split; exact: Rle_refl.
have none : \big[Rplus/0]_(k : unit | ~~ xpredT k) exp 0 <= 0.
  by rewrite big_pred0 //; exact: Rle_refl.
have [near _] := by_key (few := xpredT) nothing isT erefl (fun _ => Rle_refl 0) off mean whole none.
apply: Rle_trans near _; rewrite /key_error /= exp_0; right; ring.
Qed.
Theorem instance_exponentials : off_by_key tt (fun _ => 0) (fun _ => exp 0) 0 0 0 0.
Proof.
apply: (exponentials_off (s' := fun _ => 0)) => [|k|k]; first exact: Rle_refl.
  by rewrite Rminus_eq_0 Rabs_R0 Rmult_0_l Rplus_0_l; exact: Rle_refl.
by rewrite Rminus_eq_0 Rabs_R0; case: eqP => _; lra.
Qed.
Definition mutant_scores := forall (K : finType) (near : K) (s s' e : K -> R) c c0 d eta,
  0 <= d ->
  (forall k, Rabs (e k - exp (s' k)) <= (if k == near then 0 else d) * exp (s' k) + eta) ->
    off_by_key near s e c c0 d eta.
Theorem mutant_scores_refuted : ~ mutant_scores.
Proof.
have e2 (k : unit) : Rabs (exp (ln 2) - exp (ln 2))
    <= (if k == tt then 0 else 0) * exp (ln 2) + 0.
  by rewrite Rminus_eq_0 Rabs_R0; case: eqP => _; lra.
move=> /(_ _ tt (fun _ => 0) (fun _ => ln 2) (fun _ => exp (ln 2)) 0 0 0 0 (Rle_refl 0) e2 tt).
rewrite exp_0 (proj1 exp_ln2E) Rmult_0_l Rplus_0_l exp_0 (_ : 2 - 1 = 1); last ring.
by rewrite Rabs_R1; case: eqP => _; lra.
Qed.
Theorem instance_falls : falls (centred 1 (/ 4)) /\ centred 1 (/ 4) 1 <= - / 2.
Proof.
have quarter : Rabs (/ 4) <= / 2 by rewrite Rabs_pos_eq; lra.
have [fall le] := quadratic_falls Rle_0_1 quarter; split=> //.
by have := le 1%Z; rewrite (Rabs_pos_eq (/ 4)) /=; lra.
Qed.
Definition mutant_past := forall alpha f, 0 <= alpha -> falls (centred alpha f).
Theorem mutant_past_refuted : ~ mutant_past.
Proof.
move=> /(_ 1 1 Rle_0_1) [_ /(_ 0%Z 1%Z ltac:(lia)) [le _]].
by move: le; rewrite /centred /=; lra.
Qed.
(** ** Features: one, and their sizes on one axis; summed in an order that leaves one out *)
Theorem instance_features : Rabs (computed plain (fun _ : unit => 3) (fun _ => 5) 0 only - 15) <= 0.
Proof.
have still (i : unit) : Rabs (3 - 3) <= 0 * Rabs 3 /\ Rabs (5 - 5) <= 0 * Rabs 5.
  by rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; split; exact: Rle_refl.
have := features (Rle_refl 0) still (only_plain _ _).
rewrite /lost /growth_of /= growth0 underflow0 !rsum_unitE.
have -> : 3 * 5 = 15 by ring. have -> : (1 * ((1 + 0) * ((1 + 0) * 1)) - 1) = 0 by ring.
by rewrite !Rmult_0_l Rmult_0_r Rplus_0_r.
Qed.
Definition mutant_features := forall s (I : finType) (x y x' y' : I -> R) (t : order I) phi,
  0 <= phi ->
  (forall i, Rabs (x' i - x i) <= phi * Rabs (x i) /\ Rabs (y' i - y i) <= phi * Rabs (y i)) ->
  Rabs (computed s x' y' 0 t - \sum_i x i * y i)
  <= (growth_of s * (1 + phi) ^ 2 - 1) * (\sum_i Rabs (x i) * Rabs (y i)) + lost s.
Theorem mutant_features_refuted : ~ mutant_features.
Proof.
have still (i : unit) : Rabs (1 - 1) <= 0 * Rabs 1 /\ Rabs (1 - 1) <= 0 * Rabs 1.
  by rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; split; exact: Rle_refl.
move=> /(_ plain _ _ _ _ _ (Zero unit) 0 (Rle_refl 0) still).
rewrite /lost /growth_of /= growth0 underflow0 !rsum_unitE /computed /= Rabs_left; lra.
Qed.
Theorem instance_size (k q offset : 'I_1 -> R) :
  (forall a, Rabs (k a) <= 2 /\ Rabs (q a + offset a) <= 2) ->
  \sum_p Rabs (query_feature 1 q offset p) * Rabs (key_feature k p) <= 12.
Proof.
have two : 0 <= 2 by lra.
by move=> /(features_size Rle_0_1 two) /=; lra.
Qed.
Definition mutant_size := forall n (alpha L : R) (q offset k : 'I_n -> R), 0 <= alpha -> 0 <= L ->
  (forall a, Rabs (k a) <= L /\ Rabs (q a + offset a) <= L) ->
  \sum_p Rabs (query_feature alpha q offset p) * Rabs (key_feature k p)
    <= 2 * INR n * alpha * L ^ 2.
Theorem mutant_size_refuted : ~ mutant_size.
Proof.
have unit_at (a : 'I_1) : Rabs 1 <= 1 /\ Rabs (1 + 0) <= 1 by rewrite Rplus_0_r Rabs_R1; lra.
move=> /(_ 1%N 1 1 (fun _ => 1) (fun _ => 0) (fun _ => 1) Rle_0_1 Rle_0_1 unit_at).
rewrite rsum_optionE !big_ord_recl !big_ord0 /= /dot big_ord_recl big_ord0.
by rewrite /Rabs; repeat case: Rcase_abs => ?; lra.
Qed.
(** ** The largest score subtracted; one block of fused attention *)
Theorem instance_subtracted : Rabs (fl exact (-3 - -1) - (-3 - -1)) <= 0.
Proof.
pose s (k : bool) := if k then -1 else -3.
have top k : s k <= s true <= 0 by rewrite /s; case: k; lra.
have first k : s k <= s true by have [] := top k.
have none : 0 <= 0 <= 1 by lra.
have same k : Rabs (s k - s k) <= 0 * Rabs (s k) + 0 by rewrite Rminus_eq_0 Rabs_R0; lra.
have := subtracted exact_sound none (Rle_refl 0) top first same false.
rewrite /s /= => le; apply: Rle_trans le _; right; ring.
Qed.
Theorem instance_fused : Rabs (5 / 1 - \sum_k softmax (fun _ : unit => 0) k * 5) <= 0.
Proof.
have run : fused (fun m m' => exp (m - m')) (fun _ : unit => 0) (fun _ => 5) 0 0 [:: tt] 1
    (Running 0 1 5).
  apply: (@Another_block _ _ _ _ _ _ [::] 0 (Running 0 0 0) [:: tt]); first exact: No_block.
  exists 1, (fun _ => 1); rewrite /= !big_cons !big_nil Rminus_0_r exp_0.
  by split=> [|k||]; rewrite /Rabs; repeat case: Rcase_abs; lra.
have x5 (k : unit) : Rabs 5 <= 5 by rewrite Rabs_pos_eq; lra.
have all : perm_eq [:: tt] (enum unit_finType).
  by apply: uniq_perm; rewrite ?enum_uniq // => -[]; rewrite mem_enum.
have one : (0 < #|unit_finType|)%N by rewrite card_unit.
have none : 0 <= 0 <= 1 by lra.
have := fused_attention none (Rle_refl 0) x5 one all run.
cbv zeta; have -> : ((1 + 0) * (1 + 0)) ^ 1 - 1 = 0 by ring.
move=> says; apply: Rle_trans (says Rlt_0_1) _; right; field; lra.
Qed.
