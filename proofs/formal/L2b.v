(** * L2b: Lemma 2: the limit is one-hot

    Claim: As alpha grows the softmax of the quadratic head tends to one-hot at the target,
    uniformly over all finite grids that contain the target: for every eps > 0, alpha >= log(1 + 2 n
    / eps) leaves at most eps off the target, whatever the size of the grid.
    Source: Cordonnier et al. 2020, Lemma 2; uniformity is this project's.
    Does not show: Monotonicity of exp and log, which turn alpha >= log(...) into e^alpha >= ...,
    are used as such. *)
From Coq Require Import Reals Lra Lia ZArith.
From mathcomp Require Import all_ssreflect.
From Coquelicot Require Import Coquelicot.
From C2A Require Import Statements Sums PAD L2c.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** The bound of L2c tends to 1 *)
Lemma theta_bound_lim n : is_lim (fun alpha => / theta_bound alpha ^ n) p_infty 1.
Proof.
have H0 : is_lim (fun alpha => / (exp alpha - 1)) p_infty 0.
  apply: (is_lim_inv _ p_infty p_infty) => //.
  by apply: (is_lim_minus _ _ _ p_infty 1) => //; [exact: is_lim_exp_p | exact: is_lim_const].
have H1 : is_lim theta_bound p_infty 1.
  have -> : 1 = 1 + 2 * 0 :> R by ring.
  apply: is_lim_plus'; first exact: is_lim_const.
  exact: (is_lim_scal_l _ 2 p_infty 0).
have H2 : is_lim (fun alpha => theta_bound alpha ^ n) p_infty 1.
  elim: n => [|k IH]; first exact: is_lim_const.
  have -> : Finite 1 = Rbar_mult 1 1 by rewrite /=; congr Finite; ring.
  exact: (is_lim_mult _ _ p_infty 1 1).
have -> : Finite 1 = Rbar_inv 1 by rewrite /=; congr Finite; field.
by apply: (is_lim_inv _ p_infty 1) => //; case; lra.
Qed.
Lemma leak_small_le n (eps : R) : 0 < eps ->
  exists alpha0 : R, 0 <= alpha0 /\ forall alpha, alpha0 < alpha ->
    1 - / theta_bound alpha ^ n <= eps.
Proof.
move=> e0; have := theta_bound_lim n; rewrite -is_lim_spec => /(_ (mkposreal _ e0)) [M HM].
exists (Rmax 0 M); split=> [|alpha lt]; first exact: Rmax_l.
have := HM alpha (Rle_lt_trans _ _ _ (Rmax_r 0 M) lt); rewrite /= Rabs_minus_sym.
by move/Rabs_def2; lra.
Qed.

Theorem uniform_limit : L2b.
Proof.
move=> n eps e0; have [alpha0 [pos0 small]] := leak_small_le n e0.
exists alpha0 => alpha lt K pos inj target; apply: softmax_close_le.
have ge := share (Rle_lt_trans _ _ _ pos0 lt) inj target; apply: Rle_trans ge.
by have := small alpha lt; lra.
Qed.

(** By Bernoulli's inequality the bound of L2c leaves at most n times 2 / (e^alpha - 1). *)
Lemma bernoulli_le x n : 0 <= x -> 1 - INR n * x <= / (1 + x) ^ n <= 1.
Proof.
move=> x0; elim: n => [|n [lo hi]]; first by rewrite /= Rinv_1; lra.
have p : 0 < (1 + x) ^ n by apply: pow_lt; lra.
rewrite S_INR /= Rinv_mult.
have a0 : 0 < / (1 + x) ^ n by exact: Rinv_0_lt_compat.
have b0 : 0 < / (1 + x) by apply: Rinv_0_lt_compat; lra.
have E : x * / (1 + x) = 1 - / (1 + x) by field; lra.
have b1 : / (1 + x) <= 1 by have := Rmult_le_pos _ _ x0 (Rlt_le _ _ b0); lra.
have le : x * / (1 + x) <= x by rewrite -[X in _ <= X]Rmult_1_r; apply: Rmult_le_compat_l.
move: a0 lo hi b0 b1 E le; set a := / (1 + x) ^ n; set b := / (1 + x) => a0 lo hi b0 b1 E le.
have : (1 - b) * a <= x by rewrite -E -[X in _ <= X]Rmult_1_r; apply: Rmult_le_compat; nra.
by split; nra.
Qed.
Lemma rate_bound_le n eps alpha : 0 < eps -> 0 < alpha -> ln (1 + 2 * INR n / eps) <= alpha ->
  1 - / theta_bound alpha ^ n <= eps.
Proof.
move=> e0 a0 big; have n0 := pos_INR n; have x0 : 0 < 2 / (exp alpha - 1).
  by apply: Rdiv_lt_0_compat; [lra | have := exp_increasing _ _ a0; rewrite exp_0; lra].
have [lo _] := bernoulli_le n (Rlt_le _ _ x0); rewrite -/(theta_bound alpha) in lo.
suff : INR n * (2 / (exp alpha - 1)) <= eps by lra.
have ge : 1 + 2 * INR n / eps <= exp alpha.
  have q : 0 <= 2 * INR n / eps by apply: Rdiv_le_0_compat; lra.
  have p : 0 < 1 + 2 * INR n / eps by lra.
  rewrite -[X in X <= _](exp_ln _ p); case: big => [/exp_increasing|->]; lra.
have d0 : 0 < exp alpha - 1 by have := exp_increasing _ _ a0; rewrite exp_0; lra.
apply: (Rmult_le_reg_r (exp alpha - 1)) => //;
  have -> : INR n * (2 / (exp alpha - 1)) * (exp alpha - 1) = 2 * INR n by field; lra.
have -> : 2 * INR n = eps * (2 * INR n / eps) by field; lra.
by apply: Rmult_le_compat_l; lra.
Qed.
Theorem rate : L2b_rate.
Proof.
move=> n eps alpha e0 a0 big K pos inj target; have := share a0 inj target.
by have := rate_bound_le e0 a0 big; lra.
Qed.
Theorem rate_of_clamp : L2b_clamp.
Proof.
move=> n eps alpha e0 a0 big lo hi K pos inj ins target nearest E;
  have := share_of_clamp a0 inj ins E.
by have := rate_bound_le e0 a0 big; lra.
Qed.

(** ** Any scores with a strict maximum *)
Lemma is_lim_rsum (I : Type) (s : seq I) (P : pred I) (f : I -> R -> R) (l : I -> R) :
  (forall i, P i -> is_lim (f i) p_infty (l i)) ->
  is_lim (fun a => \big[Rplus/0]_(i <- s | P i) f i a) p_infty (\big[Rplus/0]_(i <- s | P i) l i).
Proof.
move=> H; elim: s => [|i s IH].
  by apply: (is_lim_ext (fun _ => 0)) => [a|]; rewrite big_nil //; exact: is_lim_const.
rewrite big_cons; case Pi: (P i); last by apply: is_lim_ext IH => a; rewrite big_cons Pi.
apply: (is_lim_ext (fun a => f i a + \big[Rplus/0]_(j <- s | P j) f j a)) => [a|];
  first by rewrite big_cons Pi.
by apply: is_lim_plus' => //; apply: H.
Qed.
Lemma is_lim_exp_neg (c : R) : c < 0 -> is_lim (fun a => exp (a * c)) p_infty 0.
Proof.
move=> Hc; apply: (is_lim_comp exp (fun a => a * c) p_infty 0 m_infty).
- exact: is_lim_exp_m.
- have -> : m_infty = Rbar_mult p_infty c by rewrite /=; case: Rle_dec => // H; exfalso; lra.
  by apply: is_lim_scal_r; apply: is_lim_id.
- by exists 0 => a _.
Qed.

Theorem unique_maximum : L2b_scores.
Proof.
move=> K s target max eps e0.
have den : is_lim (fun a => \sum_j exp (a * (s j - s target))) p_infty 1.
  have -> : 1 = \sum_j one_hot target j :> R by rewrite /one_hot -big_mkcond big_pred1_eq.
  apply: is_lim_rsum => j _; rewrite /one_hot; case: eqP => [->|/eqP ne].
    by apply: (is_lim_ext (fun _ => 1)) => [a|];
      [rewrite Rminus_eq_0 Rmult_0_r exp_0 | exact: is_lim_const].
  by apply: is_lim_exp_neg; have := max j ne; lra.
have : is_lim (fun a => / \sum_j exp (a * (s j - s target))) p_infty 1.
  have -> : Finite 1 = Rbar_inv 1 by rewrite /=; congr Finite; field.
  by apply: (is_lim_inv _ p_infty 1) => //; case; lra.
rewrite -is_lim_spec => /(_ (mkposreal _ e0)) [M HM]; exists M => alpha lt; apply: softmax_close_le.
have := HM alpha lt; rewrite /= => /Rabs_def2 [_]; set Z := bigop _ _ _ => small.
rewrite -(softmax_shift _ (- (alpha * s target))) /softmax.
have -> : \sum_j exp (alpha * s j + - (alpha * s target)) = Z by apply: eq_bigr => j _; congr exp;
  ring.
by rewrite Rplus_opp_r exp_0; lra.
Qed.

(** ** Instance: two pixels with scores 0 and 1 *)
Theorem instance : exists alpha0 : R, forall alpha, alpha0 < alpha ->
  softmax (fun k : bool => alpha * (if k then 1 else 0)) true >= 99 / 100.
Proof.
have max (k : bool) : k != true -> (if k then 1 else 0) < (if true then 1 else 0)
  by case: k => // _; lra.
have e0 : 0 < 1 / 100 by lra.
have [alpha0 H] := unique_maximum max e0; exists alpha0 => alpha lt.
have := H alpha lt true; rewrite /one_hot eqxx => /Rabs_le_between [ge _].
by apply: Rle_ge; move: ge; set x := softmax _ _; lra.
Qed.

(** ** Mutants

    A maximum that need not be unique; one alpha for all [eps], or for all scores; the rate of one
    side; a rate that grows with [eps] *)
Definition mutant := sharpens_if Rle.
Theorem mutant_refuted : ~ mutant.
Proof.
have e0 : 0 < 1 / 4 by lra.
move=> /(_ _ (fun _ : bool => 0) true (fun _ _ => Rle_refl 0) _ e0) [alpha0 /(_ (alpha0 + 1))].
have lt : alpha0 < alpha0 + 1 by lra.
move=> /(_ lt true); rewrite /softmax /one_hot eqxx big_bool Rmult_0_r exp_0.
by move=> /Rabs_le_between [] /=; lra.
Qed.
Lemma slope_max x : x < 0 -> maximum Rlt (slope x) true. Proof. by move=> x0 []. Qed.
Definition mutant_order := forall (K : finType) (s : K -> R) (target : K), maximum Rlt s target ->
  exists alpha0 : R, forall eps, 0 < eps -> forall alpha, alpha0 < alpha ->
  near_one_hot s target alpha eps.
Theorem mutant_order_refuted : ~ mutant_order.
Proof.
have neg : -1 < 0 by lra.
move=> /(_ _ _ _ (slope_max neg)) [a H]; set s := (fun j : bool => (a + 1) * slope (-1) j).
have p := softmax_gt0 s false; have lt : a < a + 1 by lra.
have := H _ (Rdiv_lt_0_compat _ 2 p Rlt_0_2) _ lt false.
by rewrite -/s /one_hot /= Rminus_0_r Rabs_pos_eq; lra.
Qed.
Definition mutant_uniform := forall eps : R, 0 < eps -> exists alpha0 : R, forall alpha,
  alpha0 < alpha -> forall (K : finType) (s : K -> R) (target : K), maximum Rlt s target ->
  near_one_hot s target alpha eps.
Theorem mutant_uniform_refuted : ~ mutant_uniform.
Proof.
have e0 : 0 < / 4 by lra.
move=> /(_ _ e0) [a0 H]; pose a := Rmax a0 0 + 1.
have [a1 a2] := (Rmax_l a0 0, Rmax_r a0 0); have ap : 0 < a by rewrite /a; lra.
have l2 : 0 < ln 2 by apply: ln_gt0; lra.
have ia := Rinv_0_lt_compat _ ap; have neg : - ln 2 / a < 0 by rewrite /Rdiv; nra.
have := H a ltac:(rewrite /a; lra) _ _ _ (slope_max neg) true.
rewrite (softmax_ext (t := slope (- ln 2))) => [|[]]; rewrite /slope; [|lra | field; lra].
by rewrite -/(slope _) slope_shareE (proj2 exp_ln2E) /one_hot eqxx Rabs_left; lra.
Qed.
Definition mutant_one_side := rate_is (fun n eps => 1 + INR n / eps).
Theorem mutant_one_side_refuted : ~ mutant_one_side.
Proof.
have e0 : 0 < / 4 by lra. have l5 : 0 < ln 5 by apply: ln_gt0; lra.
move=> /(_ 1%N _ (ln 5) e0 l5); have -> : 1 + INR 1 / / 4 = 5 by rewrite /=; field.
by move=> /(_ (Rle_refl _) _ _ ends_grid None); rewrite ends_shareE; lra.
Qed.
Definition mutant_inverse := rate_is (fun n eps => 1 + 2 * INR n * eps).
Theorem mutant_inverse_refuted : ~ mutant_inverse.
Proof.
have e0 : 0 < / 4 by lra. have positive : 0 < ln (3 / 2) by apply: ln_gt0; lra.
move=> /(_ 1%N _ (ln (3 / 2)) e0 positive); have -> : 1 + 2 * INR 1 * / 4 = 3 / 2 by rewrite /=;
  field.
by move=> /(_ (Rle_refl _) _ _ ends_grid None); rewrite ends_shareE; lra.
Qed.
