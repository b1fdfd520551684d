(** * SOFT: instances and mutants of a softmax and of a mean as computed, of one key *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums FLOAT SOFT CutLayers ExactCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** A softmax of which the weights, or the sum, are anything *)
Definition mutant_weights := forall (K : finType) (few : pred K) (s e w : K -> R)
  (total D g lambda v mu far far' : R),
  [/\ 0 <= D <= 1, 0 <= g <= 1, 0 <= lambda, 0 <= v & 0 < (1 - g) * (1 - D) - lambda] ->
  (exists2 k, few k & 0 <= s k) -> (forall k, 0 <= e k) ->
  \big[Rplus/0]_(k | few k) Rabs (e k - exp (s k)) <= D * \big[Rplus/0]_(k | few k) exp (s k) ->
  Rabs (total - \big[Rplus/0]_(k | few k) e k) <= g * \big[Rplus/0]_(k | few k) e k + lambda ->
  \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far -> \big[Rplus/0]_(k | ~~ few k) exp (s k)
    <= far' ->
  \sum_k Rabs (w k - softmax s k) <= softmax_bound (INR #|few|) D g lambda v mu + far + 2 * far'.
Lemma nothing_off : [/\ 0 <= 0 <= 1, 0 <= 0 <= 1, 0 <= 0, 0 <= 0 & 0 < (1 - 0) * (1 - 0) - 0].
Proof. by split; lra. Qed.
Lemma some_key : exists2 k : unit, xpredT k & 0 <= 0.
Proof. by exists tt => //; exact: Rle_refl. Qed.
Lemma one_exponential : \big[Rplus/0]_(k : unit) Rabs (1 - exp 0)
  <= 0 * \big[Rplus/0]_(k : unit) exp 0.
Proof. by rewrite !rsum_unitE exp_0 Rminus_eq_0 Rabs_R0; lra. Qed.
Lemma one_total : Rabs (1 - \big[Rplus/0]_(k : unit) 1) <= 0 * \big[Rplus/0]_(k : unit) 1 + 0.
Proof. by rewrite !rsum_unitE Rminus_eq_0 Rabs_R0; lra. Qed.
Lemma no_other (F : unit -> R) : \big[Rplus/0]_(k | ~~ xpredT k) F k <= 0.
Proof. by rewrite rsum_no_key; exact: Rle_refl. Qed.
Lemma bound_of_nothing N : softmax_bound N 0 0 0 0 0 + 0 + 2 * 0 = 0.
Proof. by rewrite /softmax_bound; field. Qed.
Theorem instance_softmax :
  \big[Rplus/0]_(k : unit) Rabs (1 - softmax (fun _ : unit => 0) k) <= 0.
Proof.
have weight (k : unit) : xpredT k -> Rabs (1 - 1 / 1) <= 0 * (1 / 1) + 0.
  by move=> _; rewrite (_ : 1 - 1 / 1 = 0); [rewrite Rabs_R0; lra | field].
have := softmax_error nothing_off some_key (fun _ => Rle_0_1) one_exponential one_total weight
  (no_other _) (no_other _).
by rewrite bound_of_nothing.
Qed.
Theorem mutant_weights_refuted : ~ mutant_weights.
Proof.
move=> /(_ _ xpredT (fun _ : unit => 0) (fun _ => 1) (fun _ => 5) 1 0 0 0 0 0 0 0 nothing_off
  some_key (fun _ => Rle_0_1) one_exponential one_total (no_other _) (no_other _)).
by rewrite bound_of_nothing rsum_unitE softmax_only Rabs_pos_eq; lra.
Qed.

(** ** As computed; and summed in an order that leaves out the key *)
Lemma small_exact : small_enough exact 1 #|unit_finType| 0 0.
Proof.
by rewrite card_unit; split; rewrite /total_lost /= ?gamma0; lra.
Qed.
Lemma unit_exponentials : exponentials exact xpredT (fun _ : unit => 0) (fun _ => 1) 0 0 0.
Proof.
split; [by exists tt => //; split; [exact: Rle_refl |] | by move=> k; split=> //; lra |
  exact: one_exponential | exact: no_other | exact: no_other].
Qed.
Lemma one_few : (#|(xpredT : pred unit)| <= 1 <= #|unit_finType|)%N.
Proof. by rewrite card_unit. Qed.
Theorem instance_computed :
  \sum_k Rabs (computed_softmax exact exact false (fun _ : unit => 1) only k
    - softmax (fun _ : unit => 0) k) <= 0.
Proof.
have [near _] := computed_softmax_error false exact_rounds exact_rounds I one_few small_exact
  unit_exponentials (only_summed _).
by move: near; rewrite computed_bound0.
Qed.
Definition mutant_order := forall A T reciprocal, rounds_to_nearest A -> rounds_to_nearest T ->
  representable A 1 ->
  forall (K : finType) (few : pred K) (s e : K -> R) (t : order K) N D far far',
    (#|few| <= N <= #|K|)%N ->
  small_enough A N #|K| D far -> exponentials A few s e D far far' ->
  let w := computed_softmax A T reciprocal e t in
  \sum_k Rabs (w k - softmax s k) <= computed_bound A T N #|K| D far far'.
Theorem mutant_order_refuted : ~ mutant_order.
Proof.
move=> /(_ _ _ false exact_rounds exact_rounds I _ _ _ _ (Zero unit) _ _ _ _ one_few small_exact
  unit_exponentials).
cbv zeta; rewrite computed_bound0 rsum_unitE softmax_only /computed_softmax /quotient /= /Rdiv.
by rewrite Rinv_0 Rmult_0_r Rabs_left; lra.
Qed.

(** ** The mean of one key; with no weight, and all the weight *)
Theorem instance_mean x : Rabs x <= 7 ->
  Rabs (computed plain (fun _ : unit => 1) (fun _ => x) 0 only
    - \big[Rplus/0]_(k : unit) (1 * x)) <= 0.
Proof.
move=> small; have := @SOFT.mixing plain _ xpredT (fun _ : unit => 1) (fun _ => 1) (fun _ => x) only
  1%N 0 0 7 (only_plain _ _) (or_introl exact_nearest) _ (fun _ => Rle_0_1) _ _ (no_other _) (fun _
    => small).
rewrite mixing_bound0 !rsum_unitE Rminus_eq_0 Rabs_R0 => says.
have -> : 0 = (0 + 3 * 0) * 7 by ring.
by apply: says; rewrite ?card_unit //; exact: Rle_refl.
Qed.
Definition mutant_off := forall s (K : finType) (few : pred K) (p w x : K -> R) t N off far range,
  as_set s w x 0 t -> nearest (sums s) -> (#|few| <= N <= terms s)%N ->
  (forall i, 0 <= p i) -> \sum_i p i = 1 -> \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far ->
  (forall i, Rabs (x i) <= range) ->
  Rabs (computed s w x 0 t - \sum_i p i * x i) <= mixing_bound s N off far range.
Lemma one_of_one : (#|(xpredT : pred unit)| <= 1 <= terms plain)%N.
Proof. by have /andP [-> _] := one_few. Qed.
Theorem mutant_off_refuted : ~ mutant_off.
Proof.
have sum1 : \big[Rplus/0]_(k : unit) 1 = 1 by rewrite rsum_unitE.
have at1 (k : unit) : Rabs 1 <= 1 by rewrite Rabs_R1; exact: Rle_refl.
move=> /(_ _ _ xpredT (fun _ => 1) _ _ _ 1%N 0 0 1 (only_plain (fun _ => 0) (fun _ => 1))
  exact_nearest one_of_one (fun _ => Rle_0_1) sum1 (no_other _) at1).
by rewrite mixing_bound0 rsum_unitE /computed /= Rmult_0_l Rabs_left; lra.
Qed.
Theorem instance_hard_mean x :
  Rabs (computed plain (fun _ : unit => 1) (fun _ => x) 0 only - x) <= 0.
Proof.
have := @hard_mixing plain _ (fun _ => 1) (fun _ => x) tt only (only_plain _ _) (fun _ => erefl)
  exact_nearest exact_nearest erefl I I.
by rewrite big_pred0 => [|[]] //; rewrite /lost /growth_of /= growth0 underflow0; lra.
Qed.
Definition mutant_light := forall s (K : finType) (w x : K -> R) target t, as_set s w x 0 t ->
  (forall z, cutting s z = z) ->
  nearest (sums s) -> nearest (stores s) -> representable (sums s) (x target) ->
    representable (stores s) (x target) ->
  Rabs (computed s w x 0 t - x target)
  <= 2 ^ (casts s).+1 * (growth_of s * \big[Rplus/0]_(k | k != target) (Rabs (w k) * Rabs (x k))
    + lost s).
Theorem mutant_light_refuted : ~ mutant_light.
Proof.
move=> /(_ plain _ _ (fun _ => 1) tt only (only_plain (fun _ => 0) _) (fun _ => erefl) exact_nearest
  exact_nearest I I).
rewrite big_pred0 => [|[]] //; rewrite /lost /growth_of /= growth0 underflow0 /computed /=.
by rewrite Rmult_0_l Rabs_left; lra.
Qed.
