(** * SOFT: instances and mutants of the theorems that sum over all integers, and of axes *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require L2c.
From C2A Require Import Statements Sums OnePixel KEYS AXES CutLayers ExactCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Three keys in a line, alpha = ln 3, scores off by half of themselves *)
Lemma l3 : 0 < ln 3. Proof. by apply: ln_gt0; lra. Qed.
Definition sharp3 (z : Z) : R := - ln 3 * IZR (z * z).
Theorem instance_moment (near : box (fun _ : 'I_1 => 3%N)) : exists rho : 'I_1 -> R,
  (forall a, axis_ratio sharp3 (/ 2) (rho a)) /\
  \sum_k softmax (around (fun _ => sharp3) near) k
    * exp (/ 2 * Rabs (around (fun _ => sharp3) near k)) <= \prod_a rho a.
Proof.
have [theta [sum _]] := L2c.theta_series l3.
have half : 0 < (1 - / 2) * ln 3 by have := l3; lra.
have [theta' [sum' _]] := L2c.theta_series half.
have c1 : 0 <= / 2 < 1 by lra. have c2 : 0 <= / 2 <= 1 by lra.
have ratio (a : 'I_1) : axis_ratio sharp3 (/ 2) (theta' / theta).
  exact: theta_ratio l3 c1 sum sum'.
by exists (fun _ => theta' / theta); split=> //; exact: moment c2 ratio.
Qed.
Theorem instance_near (near : box (fun _ : 'I_1 => 3%N)) : exists total,
  \big[Rplus/0]_(k | ~~ cube near 1 k) exp (around (fun _ => sharp3) near k)
  <= \sum_a beyond sharp3 total 1 * \big[Rmult/1]_(b : 'I_1 | b != a) total.
Proof.
have [total [sum _]] := L2c.theta_series l3; exists total.
have [_ far] := near_keys near 1%N.
exact: (far (fun _ => sharp3) (fun _ => total) (fun _ => sum)).
Qed.

(** ** Mutants: ratios of any size; a series of any sum; the image of others *)
Definition mutant_ratios := forall n (size : 'I_n -> nat) (near : box size) (s : 'I_n -> Z -> R)
  (c : R) (rho : 'I_n -> R), 0 <= c <= 1 ->
  \sum_k softmax (around s near) k * exp (c * Rabs (around s near k)) <= \prod_a rho a.
Definition sole : box (fun _ : 'I_1 => 1%N) := [ffun _ => ord0].
Theorem mutant_ratios_refuted : ~ mutant_ratios.
Proof.
have none : 0 <= 0 <= 1 by lra.
move=> /(_ 1%N _ sole (fun _ _ => 0) 0 (fun _ => 0) none); rewrite big_ord_recl Rmult_0_l.
apply/Rlt_not_le; apply: (rsum_gt0 sole) => k; apply: Rmult_lt_0_compat; last exact: exp_pos.
exact: softmax_gt0.
Qed.
Lemma sum_ge0 (f : nat -> R) total : (forall m, 0 <= f m) -> infinite_sum f total -> 0 <= total.
Proof.
move=> f0 sum; apply: Rnot_lt_le => neg; have e0 : 0 < - total by lra.
have [N near] := sum _ e0; have := near N (le_n N); have := cond_pos_sum f N f0.
by rewrite /R_dist => ge; rewrite Rabs_pos_eq; lra.
Qed.
Definition mutant_theta := forall alpha c theta theta', 0 < alpha -> 0 <= c < 1 ->
  over_integers (fun z => - alpha * IZR (z * z)) theta ->
  axis_ratio (fun z => - alpha * IZR (z * z)) c (theta' / theta).
Theorem mutant_theta_refuted : ~ mutant_theta.
Proof.
have [theta [sum _]] := L2c.theta_series l3; have c1 : 0 <= 0 < 1 by lra.
move=> /(_ _ _ _ 0 l3 c1 sum) [_ [T [T' [_ sum' le]]] _].
have := sum_ge0 (fun m => Rlt_le _ _ (exp_pos _)) sum'.
by move: le; rewrite /Rdiv Rmult_0_l Rmult_0_l; lra.
Qed.
Definition mutant_near := forall n (size : 'I_n -> nat) (near : box size) (r : nat)
  (s : 'I_n -> Z -> R) (total : 'I_n -> R),
  \big[Rplus/0]_(k | ~~ cube near r k) exp (around s near k)
  <= \sum_a beyond (s a) (total a) r * \big[Rmult/1]_(b | b != a) total b.
Theorem mutant_near_refuted : ~ mutant_near.
Proof.
move=> /(_ 1%N _ sole 0%N (fun _ _ => 0) (fun _ => 0)); apply/Rlt_not_le.
apply: Rlt_le_trans (_ : 0 <= _); last by apply: rsum_ge0 => k _; exact/Rlt_le/exp_pos.
rewrite big_ord_recl big_ord0 big_pred0 => [|b]; last by rewrite (ord1 b).
by rewrite /beyond big_ord_recl big_ord0 exp_0; lra.
Qed.
Definition mutant_image := forall n (size : 'I_n -> nat) (s w : forall a, 'I_(size a) -> R)
  (few : forall a, pred 'I_(size a))
    (X : box size -> R) (y : nat -> box size -> R) (way : nat -> setting)
      (over : 'I_n -> box size -> order (box size))
    (N : nat -> nat) (off far : nat -> R) range,
  (forall k, Rabs (X k) <= range) ->
  (forall a : 'I_n, [/\ nearest (sums (way a)), (#|few a| <= N a <= terms (way a))%N,
     \sum_j Rabs (w a j - softmax (s a) j) <= off a & \big[Rplus/0]_(j | ~~ few a j) Rabs (w a j)
       <= far a]) ->
  (forall (a : 'I_n) q, as_set (way a) (along (w a) q) (y a) 0 (over a q) /\
     y a.+1 q = computed (way a) (along (w a) q) (y a) 0 (over a q)) -> forall q,
  Rabs (y n q - \big[Rplus/0]_(k : box size)
    (softmax (fun j : box size => \sum_a s a (j a)) k * X k))
  <= axes_error (fun a => mixing_bound (way a) (N a) (off a) (far a)) range n.
Theorem mutant_image_refuted : ~ mutant_image.
Proof.
have dark (k : box (fun _ : 'I_0 => 0%N)) : Rabs 0 <= 0 by rewrite Rabs_R0; exact: Rle_refl.
move=> /(_ 0%N _ (fun _ _ => 0) (fun _ _ => 0) (fun _ => predT) (fun _ => 0) (fun _ _ => 5)
  (fun _ => plain) (fun _ _ => Zero _) (fun _ => 0%N) (fun _ => 0) (fun _ => 0) 0 dark
  (fun a => False_ind _ (notF (ltn_ord a))) (fun a => False_ind _ (notF (ltn_ord a))) (here _)).
by rewrite big1 => [|k _]; rewrite ?Rmult_0_r //= Rminus_0_r Rabs_pos_eq; lra.
Qed.
