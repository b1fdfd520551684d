(** * ROW: A bound that runs: one output channel in integers

    Claim: For one output channel, given as integers over 2^256 (the sum of its |weights|, |bias|,
    the radius of the inputs, and for each step its roundoff, losses and counts), the program either
    says nothing, or gives a bound that no difference of the convolution as computed and the layer
    of heads as computed exceeds: for weights, inputs and arithmetics within these numbers, in any
    order of summation, for heads that read exactly what their taps read, and for soft heads whose
    scores are a sum over the axes that falls at least like -alpha m^2, mixed over all keys at once
    or axis after axis, with scores and exponentials off by the fractions and amounts given. From
    the integers of a file it reads exactly the rows that stand there.
    Source: this project; the formulas are those of FLOAT and SOFT.
    Does not show: That the numbers of a row are those of a layer and of a device; fused attention.
    The twin in Python, `bounds.row`, is compared with the program and not proved; the program
    trusts Coq's extraction, Zarith and the reading of digits. *)
From Coq Require Import Reals ZArith List Lra Lia.
From Flocq Require Import Core.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L2c L2d T1 FLOAT SOFT KEYS AXES Satisfiable.
From C2A Require Rows.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.
Local Opaque Rows.one.

(** ** Integers over 2^256, rounded up *)
Lemma one_gt0 : (0 < Rows.one)%Z. Proof. by []. Qed.
Lemma IZR_one_gt0 : 0 < IZR Rows.one. Proof. exact: IZR_lt one_gt0. Qed.
Lemma one_neq0 : IZR Rows.one <> 0. Proof. by have := IZR_one_gt0; lra. Qed.
Definition below (x : R) (z : Z) := 0 <= x <= dyadic z.
Lemma val1 : dyadic Rows.one = 1. Proof. by rewrite /dyadic; field; exact: one_neq0. Qed.
Lemma val0 : dyadic 0 = 0. Proof. by rewrite /dyadic /Rdiv Rmult_0_l. Qed.
Lemma valD x y : dyadic (x + y) = dyadic x + dyadic y. Proof. by rewrite /dyadic plus_IZR; field;
  exact: one_neq0. Qed.
Lemma valB x y : dyadic (x - y) = dyadic x - dyadic y. Proof. by rewrite /dyadic minus_IZR; field;
  exact: one_neq0. Qed.
Lemma valM n x : dyadic (n * x) = IZR n * dyadic x. Proof. by rewrite /dyadic mult_IZR; field;
  exact: one_neq0. Qed.
Lemma val_le x y : (x <= y)%Z -> dyadic x <= dyadic y.
Proof. by move=> /IZR_le le; apply: Rmult_le_compat_r => //;
  exact/Rlt_le/Rinv_0_lt_compat/IZR_one_gt0. Qed.
Lemma val_lt x y : (x < y)%Z -> dyadic x < dyadic y.
Proof. by move=> /IZR_lt lt; apply: Rmult_lt_compat_r => //; exact/Rinv_0_lt_compat/IZR_one_gt0.
  Qed.
Lemma val_ge0 x : (0 <= x)%Z -> 0 <= dyadic x. Proof. by move=> /val_le; rewrite val0. Qed.
Lemma up_ge a b : (0 < b)%Z -> IZR a / IZR b <= IZR (Rows.up a b).
Proof.
move=> b0; have := Z.mul_div_le (- a) b b0; rewrite /Rows.up opp_IZR => /IZR_le;
  rewrite mult_IZR opp_IZR.
have bR := IZR_lt _ _ b0; move: (IZR (- a / b)) => q le.
by apply: (Rmult_le_reg_r (IZR b)) => //; have -> : IZR a / IZR b * IZR b = IZR a;
  [field; lra | lra].
Qed.
Lemma valM_le x y : dyadic x * dyadic y <= dyadic (Rows.mul x y).
Proof.
have := up_ge (x * y) one_gt0; rewrite -/(Rows.mul x y) mult_IZR => le.
have -> : dyadic x * dyadic y = IZR x * IZR y / IZR Rows.one / IZR Rows.one by rewrite /dyadic;
  field;
  exact: one_neq0.
by apply: Rmult_le_compat_r => //; exact/Rlt_le/Rinv_0_lt_compat/IZR_one_gt0.
Qed.
Lemma val_geom x : (x < Rows.one)%Z -> / (1 - dyadic x) <= dyadic (Rows.geom x).
Proof.
move=> lt; have d0 : (0 < Rows.one - x)%Z by lia.
have := up_ge (Rows.one * Rows.one) d0; rewrite -/(Rows.geom x) mult_IZR minus_IZR => le.
have dR := IZR_lt _ _ d0; rewrite minus_IZR in dR.
have -> : / (1 - dyadic x) = IZR Rows.one * IZR Rows.one / (IZR Rows.one - IZR x) / IZR Rows.one.
  by rewrite /dyadic; field; have := one_neq0; split; lra.
by apply: Rmult_le_compat_r => //; exact/Rlt_le/Rinv_0_lt_compat/IZR_one_gt0.
Qed.
Lemma below_mul x y a b : below x a -> below y b -> below (x * y) (Rows.mul a b).
Proof.
move=> [x0 xa] [y0 yb]; split; first exact: Rmult_le_pos.
by apply: Rle_trans (valM_le a b); apply: Rmult_le_compat.
Qed.
Lemma below_add x y a b : below x a -> below y b -> below (x + y) (a + b).
Proof. by move=> [x0 xa] [y0 yb]; rewrite /below valD; lra. Qed.
Lemma below_le x y a : below y a -> 0 <= x <= y -> below x a. Proof. by rewrite /below; lra. Qed.
Lemma one_below : below 1 Rows.one. Proof. by rewrite /below val1; lra. Qed.
Lemma below_sub1 x a : below x a -> 1 <= x -> below (x - 1) (a - Rows.one).
Proof. by rewrite /below valB val1; lra. Qed.
Lemma below_nat k n x a : (Z.of_nat k <= n)%Z -> below x a -> below (INR k * x) (n * a).
Proof.
move=> /IZR_le; rewrite -INR_IZR_INZ => kn [x0 xa]; rewrite /below valM; have := pos_INR k => k0.
by split; [exact: Rmult_le_pos | apply: Rmult_le_compat].
Qed.
Lemma below_times (n : Z) x a : (0 <= n)%Z -> below x a -> below (IZR n * x) (n * a).
Proof.
move=> /(IZR_le 0) n0 [x0 xa]; rewrite /below valM.
by split; [exact: Rmult_le_pos | apply: Rmult_le_compat_l].
Qed.
Lemma below_geom x a : below x a -> (a < Rows.one)%Z -> below (/ (1 - x)) (Rows.geom a).
Proof.
move=> [x0 xa] lt; have := val_lt lt; rewrite val1 => lt1; split;
  first by apply/Rlt_le/Rinv_0_lt_compat; lra.
by apply: Rle_trans (val_geom lt); apply: Rinv_le_contravar; lra.
Qed.
Lemma below_both x y a b : below x a -> below y b -> below ((1 + x) * (1 + y) - 1) (Rows.both a b).
Proof.
move=> xa yb; have := below_add (below_add xa yb) (below_mul xa yb); rewrite /Rows.both.
by have -> : (1 + x) * (1 + y) - 1 = x + y + x * y by ring.
Qed.
Lemma below_power x a n : below x a -> below ((1 + x) ^ n - 1) (Rows.power a n).
Proof.
move=> xa; elim: n => [|n IH] /=; first by rewrite /below val0; lra.
by have := below_both xa IH; have -> : (1 + x) * (1 + ((1 + x) ^ n - 1)) - 1 = (1 + x) * (1 + x) ^ n
  - 1 by ring.
Qed.
Lemma below_power_le x a k n : below x a -> (Z.of_nat k <= n)%Z ->
  below ((1 + x) ^ k - 1) (Rows.power a (Z.to_nat n)).
Proof.
move=> xa kn; apply: below_le (below_power (Z.to_nat n) xa) _; have [x0 _] := xa.
have one : 1 <= (1 + x) ^ k by apply: pow_R1_Rle; lra.
have le : (1 + x) ^ k <= (1 + x) ^ Z.to_nat n by apply: Rle_pow; [lra | lia].
lra.
Qed.
Lemma below_gamma u a k n : below u a -> (Z.of_nat k <= n)%Z -> (n * a < Rows.one)%Z ->
  below (gamma k u) (Rows.gamma n a).
Proof.
move=> ua kn lt; have nu := below_nat kn ua; rewrite /gamma /Rdiv /Rows.gamma.
exact: below_mul nu (below_geom nu lt).
Qed.

(** ** Sums of products *)
Section Settings.
Variables (s : setting) (z : Rows.setting).
Hypothesis ok : limits (sums s) (stores s) (cut_by s) (terms s).
Hypotheses (within : setting_within s z) (fits : Rows.setting_fits z = true).
Let sums_ge0 : [/\ 0 <= roundoff (sums s), 0 <= cut_by s, 0 <= roundoff (stores s) &
  0 <= loss (sums s)] /\
  0 <= sum_loss (sums s) /\ 0 <= loss (stores s).
Proof. by have [sA sT _ k0 _] := ok; have [[u0 l0 l1] _] := sA; have [[v0 _ l2] _] := sT. Qed.
Let roundoffs_lt1 : (Rows.terms z * Rows.roundoff z < Rows.one)%Z.
Proof. by move: fits => /andP [_ /Z.ltb_lt]. Qed.
Lemma below_roundoff : below (roundoff (sums s)) (Rows.roundoff z).
Proof. by have [[u0 _ _ _] _] := sums_ge0; have [[le _ _] _] := within. Qed.
Lemma counts_lt1 N n : (Z.of_nat N <= n <= Rows.terms z)%Z -> (n * Rows.roundoff z < Rows.one)%Z.
Proof.
move=> [Nn nt]; apply: Z.le_lt_trans roundoffs_lt1; apply: Z.mul_le_mono_nonneg_r => //.
by move: fits => /andP [/andP [/Z.leb_le]].
Qed.
Lemma below_cost N n : (Z.of_nat N <= n <= Rows.terms z)%Z ->
  below (cost (among s N)) (Rows.cost z n).
Proof.
move=> Nn; have [[u0 k0 v0 _] _] := sums_ge0; have [[ul kl vl] [_ [_ _ cc _]]] := within.
have g := below_gamma below_roundoff (proj1 Nn) (counts_lt1 Nn).
have k := below_power 2 (conj k0 kl); have c := below_power_le (conj v0 vl) cc.
have := below_both (below_both k g) c; rewrite /cost /growth_of /growth /Rows.cost.
have E x y w : (1 + ((1 + (x - 1)) * (1 + y) - 1)) * (1 + (w - 1)) - 1 = x * (1 + y) * w - 1
  by ring.
by rewrite E.
Qed.
Lemma below_growth N n : (Z.of_nat N <= n <= Rows.terms z)%Z ->
  below (growth_of (among s N)) (Rows.one + Rows.cost z n).
Proof.
move=> /below_cost /(below_add one_below); rewrite /cost.
by have -> : 1 + (growth_of (among s N) - 1) = growth_of (among s N) by ring.
Qed.
Lemma terms_le : (Z.of_nat (terms s) <= Rows.terms z <= Rows.terms z)%Z.
Proof. by have [_ [_ [_ le _ _]]] := within; split=> //; exact: Z.le_refl. Qed.
Lemma among_all : among s (terms s) = s. Proof. by case: s. Qed.
Lemma below_cost_all : below (cost s) (Rows.cost z (Rows.terms z)).
Proof. by have := below_cost terms_le; rewrite among_all. Qed.
Lemma below_growth_all : below (growth_of s) (Rows.one + Rows.cost z (Rows.terms z)).
Proof. by have := below_growth terms_le; rewrite among_all. Qed.
Lemma below_lost : below (lost s) (Rows.lost z).
Proof.
have [[_ _ _ l0] [s0 t0]] := sums_ge0; have [_ [[ll sl tl] [p n _ m]]] := within.
apply: (below_mul below_growth_all); rewrite /underflow.
exact: below_add (below_add (below_nat p (conj l0 ll)) (below_nat n (conj s0 sl)))
  (below_nat m (conj t0 tl)).
Qed.
Lemma below_few N n near far a b : (Z.of_nat N <= n <= Rows.terms z)%Z -> below near a ->
  below far b ->
  below (few_bound s N near far) (Rows.few z n a b).
Proof.
move=> Nn na fb; have two : below 2 (2 * Rows.one) by rewrite /below valM val1; lra.
have E x c : below x c -> below (2 * x) (2 * c) by move=> [x0 xc]; rewrite /below valM; lra.
apply: below_add (below_mul (below_cost Nn) na) (below_mul (below_growth Nn) (E _ _ _)).
exact: below_add (below_mul below_growth_all fb) below_lost.
Qed.
End Settings.

(** ** Theta series *)
Lemma squared_le t x k : (Rows.one <= t)%Z -> dyadic t <= exp x ->
  (Rows.one <= Rows.squared t k)%Z /\ dyadic (Rows.squared t k) <= exp (2 ^ k * x).
Proof.
elim: k t x => [|k IH] t x t1 le /=; first by rewrite Rmult_1_l.
have o1 := one_gt0.
have lo : (Rows.one <= t * t / Rows.one)%Z by apply: Z.div_le_lower_bound => //; nia.
have up : dyadic (t * t / Rows.one) <= exp (2 * x).
  have le2 := IZR_le _ _ (Z.mul_div_le (t * t) Rows.one o1);
    rewrite (mult_IZR Rows.one) (mult_IZR t) in le2.
  have -> : 2 * x = x + x by ring.
  rewrite exp_plus; apply: Rle_trans (_ : dyadic t * dyadic t <= _); last first.
    by apply: Rmult_le_compat => //; apply: val_ge0; lia.
  have o0 := IZR_one_gt0; apply: (Rmult_le_reg_r (IZR Rows.one * IZR Rows.one));
    first exact: Rmult_lt_0_compat.
  have -> : dyadic t * dyadic t * (IZR Rows.one * IZR Rows.one) = IZR t * IZR t.
    by rewrite /dyadic; field; exact: one_neq0.
  have -> : dyadic (t * t / Rows.one) * (IZR Rows.one * IZR Rows.one)
    = IZR Rows.one * IZR (t * t / Rows.one).
    by rewrite /dyadic; field; exact: one_neq0.
  exact: le2.
have [a b] := IH _ _ lo up; split=> //.
by have -> : 2 * 2 ^ k * x = 2 ^ k * (2 * x) by ring.
Qed.
Lemma exp_down_le a : (0 <= a)%Z -> (Rows.one <= Rows.exp_down a)%Z /\
  dyadic (Rows.exp_down a) <= exp (dyadic a).
Proof.
move=> a0; have P : (0 < 2 ^ 64)%Z by []. have PR := IZR_lt _ _ P.
have lo : (Rows.one <= Rows.one + a / 2 ^ 64)%Z by have := Z.div_pos a _ a0 P; lia.
have up : dyadic (Rows.one + a / 2 ^ 64) <= exp (dyadic a / IZR (2 ^ 64)).
  apply: Rle_trans (exp_ineq1_le _); rewrite valD val1; apply: Rplus_le_compat_l.
  have le := IZR_le _ _ (Z.mul_div_le a (2 ^ 64) P); rewrite mult_IZR in le.
  apply: (Rmult_le_reg_r (IZR (2 ^ 64))) => //.
  have -> : dyadic a / IZR (2 ^ 64) * IZR (2 ^ 64) = dyadic a by field; lra.
  rewrite /dyadic; have -> : IZR (a / 2 ^ 64) / IZR Rows.one * IZR (2 ^ 64)
    = IZR (2 ^ 64) * IZR (a / 2 ^ 64) / IZR Rows.one.
    by rewrite /Rdiv; ring.
  by apply: Rmult_le_compat_r => //; exact/Rlt_le/Rinv_0_lt_compat/IZR_one_gt0.
have [l u] := squared_le 64 lo up; split=> //; apply: Rle_trans u _; right; congr exp.
have E : 2 ^ 64 = IZR (2 ^ 64) by rewrite pow_IZR.
by rewrite E; field; lra.
Qed.
Local Opaque Rows.exp_down Rows.up Rows.mul Rows.geom.
Section Theta.
Variables (h : Rows.heads) (beta : R).
Let c := dyadic (Rows.score h). Let alpha := dyadic (Rows.alpha h).
Hypothesis betaE : beta = (1 - c) * alpha.
Hypotheses (alpha0 : (0 < Rows.alpha h)%Z) (score0 : (0 <= Rows.score h < Rows.one)%Z)
  (kept : (Rows.mul (Rows.score h) (Rows.alpha h) <= Rows.alpha h)%Z)
    (reach0 : (0 <= Rows.reach h)%Z).
Let t := Rows.sums_of h.
Hypothesis step1 : (4 * Rows.step t < Rows.one)%Z.
Lemma alpha_gt0 : 0 < alpha. Proof. by have := val_lt alpha0; rewrite val0. Qed.
Lemma c_ge0_lt1 : 0 <= c < 1.
Proof. by have := val_ge0 (proj1 score0); have := val_lt (proj2 score0); rewrite val1. Qed.
Lemma beta_gt0 : 0 < beta.
Proof. by rewrite betaE; have := alpha_gt0; have := c_ge0_lt1 => c01 a0; apply: Rmult_lt_0_compat;
  lra. Qed.
Definition g (b : R) (m : Z) : R := exp (- b * IZR (m * m)).
Let f (m : Z) : R := exp (- beta * IZR (2 * m + 1)).
Lemma ratio_below : below (g beta 1) (Rows.ratio h).
Proof.
split; first exact/Rlt_le/exp_pos.
rewrite /g /Rows.ratio; set a := Z.min _ _; have a0 : (0 <= a)%Z by rewrite /a; have := one_gt0;
  lia.
have [lo up] := exp_down_le a0; have e0 : (0 < Rows.exp_down a)%Z by have := one_gt0; lia.
have ab : dyadic a <= beta.
  apply: Rle_trans (_ : dyadic (Rows.alpha h - Rows.mul (Rows.score h) (Rows.alpha h)) <= _);
    first by apply: val_le; lia.
  by rewrite valB betaE -/alpha; have := valM_le (Rows.score h) (Rows.alpha h); rewrite -/c -/alpha;
    lra.
apply: Rle_trans (_ : / dyadic (Rows.exp_down a) <= _).
  have -> : - beta * IZR (1 * 1) = - beta by rewrite /=; ring.
  rewrite exp_Ropp; apply: Rinv_le_contravar; first by have := val_lt e0; rewrite val0.
  by apply: Rle_trans up (exp_le ab).
have := up_ge (Rows.one * Rows.one) e0; rewrite mult_IZR /dyadic; have := IZR_lt _ _ e0;
  have := IZR_one_gt0.
move: (IZR (Rows.exp_down a)) (IZR (Rows.up _ _)) (IZR Rows.one) => e u o o0 e1 le.
have -> : / (e / o) = o * o / e / o by field; split; lra.
by apply: Rmult_le_compat_r; [exact/Rlt_le/Rinv_0_lt_compat | exact: le].
Qed.
Lemma exp_sumE x y z : (x + y = z)%Z -> exp (- beta * IZR x) * exp (- beta * IZR y)
  = exp (- beta * IZR z).
Proof. by move=> <-; rewrite -exp_plus plus_IZR; congr exp; ring. Qed.
Lemma gS m : g beta (m + 1) = g beta m * f m.
Proof. by rewrite /g /f (@exp_sumE _ _ ((m + 1) * (m + 1))) //; ring. Qed.
(** What scores off by a fraction of themselves mean, key by key: bounded, and falling where [x >= 1
    / (1 - c)]. *)
Definition small_moved (v : Z -> R) := forall m, (1 <= m)%Z ->
  [/\ 0 <= v m, v m <= 3 / 8 * / (1 - c) & 1 <= (1 - c) * (alpha * IZR (m * m)) ->
    v m <= alpha * IZR (m * m) * g beta m].
Lemma falling_le m : Rows.falling h m = true -> 1 <= (1 - c) * (alpha * IZR (m * m)).
Proof.
rewrite /Rows.falling => /Z.leb_le /val_le; rewrite valB val1;
  have := valM_le (Rows.score h) (Rows.square h m).
by rewrite -/c; have -> : dyadic (Rows.square h m) = alpha * IZR (m * m);
  [rewrite /Rows.square valM -/alpha; ring | lra].
Qed.
Lemma moved_le v m p : small_moved v -> (1 <= m)%Z -> below (g beta m) p ->
  below (v m) (Rows.moved h m p).
Proof.
move=> sv m1 pm; have [v0 vc vf] := sv m m1; split=> //; rewrite /Rows.moved;
  case fall: Rows.falling.
  apply: Rle_trans (vf (falling_le fall)) _.
  have sq : below (alpha * IZR (m * m)) (Rows.square h m).
    rewrite /Rows.square (_ : alpha * IZR (m * m) = IZR (m * m) * alpha); last by ring.
    by apply: below_times; [nia | split; [exact: Rlt_le alpha_gt0 | exact: Rle_refl]].
  by case: (below_mul sq pm).
apply: Rle_trans vc _; have [c0 c1] := c_ge0_lt1.
have e : below (3 / 8) Rows.inverse_e.
  split; first lra; have := up_ge (Rows.one * 3) (erefl : (0 < 8)%Z); rewrite mult_IZR => le.
  have -> : 3 / 8 = IZR Rows.one * 3 / 8 / IZR Rows.one by field; exact: one_neq0.
  by apply: Rmult_le_compat_r => //; exact/Rlt_le/Rinv_0_lt_compat/IZR_one_gt0.
have cz : below c (Rows.score h) by split=> //; exact: Rle_refl.
by case: (below_mul e (below_geom cz (proj2 score0))).
Qed.
Lemma series_below k m p w v : small_moved v -> (1 <= m)%Z -> below (g beta m) p -> below (f m) w ->
  let '(a, b, p', w') := Rows.series h (Rows.mul (Rows.ratio h) (Rows.ratio h)) m p w k in
  [/\ below (\big[Rplus/0]_(i < k) g beta (m + Z.of_nat i)) a,
      below (\big[Rplus/0]_(i < k) v (m + Z.of_nat i)%Z) b,
      below (g beta (m + Z.of_nat k)) p' & below (f (m + Z.of_nat k)) w'].
Proof.
move=> sv; elim: k m p w => [|k IH] m p w m1 pm wm /=.
  by rewrite !big_ord0 Z.add_0_r; split=> //; rewrite /below val0; lra.
have pS : below (g beta (m + 1)) (Rows.mul p w) by rewrite gS; exact: below_mul.
have wS : below (f (m + 1)) (Rows.mul w (Rows.mul (Rows.ratio h) (Rows.ratio h))).
  have -> : f (m + 1) = f m * (g beta 1 * g beta 1).
    by rewrite /f /g (@exp_sumE _ _ 2) // (@exp_sumE _ _ (2 * (m + 1) + 1)) //; ring.
  by apply: below_mul => //; apply: below_mul; exact: ratio_below.
have := IH (m + 1)%Z _ _ ltac:(lia) pS wS; case: (Rows.series _ _ _ _ _ _) => [[[a b] p'] w']
  [A B P W].
have E (F : Z -> R) : \big[Rplus/0]_(i < k.+1) F (m + Z.of_nat i)%Z
    = F m + \big[Rplus/0]_(i < k) F (m + 1 + Z.of_nat i)%Z.
  rewrite big_ord_recl Z.add_0_r; congr (_ + _); apply: eq_bigr => i _; congr F.
  by rewrite lift0 Nat2Z.inj_succ; lia.
have K : (m + 1 + Z.of_nat k = m + Z.pos (Pos.of_succ_nat k))%Z by lia.
rewrite -K; split=> //.
- by rewrite (E (g beta)); exact: below_add.
- by rewrite (E v); apply: below_add => //; exact: moved_le.
Qed.
Let r := Z.to_nat (Rows.reach h).
Let rE : Z.of_nat r = Rows.reach h. Proof. by rewrite /r Z2Nat.id. Qed.
Lemma sums_facts v : small_moved v -> [/\ below (f (Rows.reach h + 1)) (Rows.step t),
  below (2 * (\big[Rplus/0]_(i < r) g beta (1 + Z.of_nat i) + g beta (Rows.reach h + 1) * /
    (1 - f (Rows.reach h + 1)))) (Rows.others t),
  below (2 * (\big[Rplus/0]_(i < r) v (1 + Z.of_nat i)%Z
     + alpha * IZR ((Rows.reach h + 1) * (Rows.reach h + 1)) * g beta (Rows.reach h + 1) * /
       (1 - 4 * f (Rows.reach h + 1)))) (Rows.spread t)
  & below (2 * (g beta (Rows.reach h + 1) * / (1 - f (Rows.reach h + 1)))) (Rows.tail t)].
Proof.
move=> sv; move: step1; rewrite /t /Rows.sums_of -/r.
have f1 : below (f 1) (Rows.mul (Rows.mul (Rows.ratio h) (Rows.ratio h)) (Rows.ratio h)).
  have -> : f 1 = g beta 1 * g beta 1 * g beta 1.
    by rewrite /f /g (@exp_sumE _ _ 2) // (@exp_sumE _ _ 3).
  by apply: below_mul; [apply: below_mul|]; exact: ratio_below.
have := series_below r (m := 1) sv ltac:(lia) ratio_below f1.
have -> : (1 + Z.of_nat r = Rows.reach h + 1)%Z by rewrite rE; lia.
case: (Rows.series _ _ _ _ _ _) => [[[a b] p] w] [A B P W];
  cbn [Rows.step Rows.others Rows.spread Rows.tail] => lt4.
have w0 : (0 <= w)%Z.
  by case: (Z_lt_le_dec w 0) => // /val_lt; rewrite val0; case: W => f0 fw;
    have := exp_pos (- beta * IZR (2 * (Rows.reach h + 1) + 1)); rewrite -/(f _); lra.
have lt : (w < Rows.one)%Z by lia.
have two x z : below x z -> below (2 * x) (2 * z) by move=> [x0 xz]; rewrite /below valM; lra.
have four : below (4 * f (Rows.reach h + 1)) (4 * w) by case: W => f0 fw; rewrite /below valM; lra.
split=> //.
- by apply: two; apply: below_add => //; apply: below_mul => //; exact: below_geom.
- apply: two; apply: below_add => //; apply: below_mul; last exact: below_geom.
  apply: below_mul => //;
    rewrite /Rows.square (_ : alpha * _ = IZR ((Rows.reach h + 1) * (Rows.reach h + 1)) * alpha);
    last by ring.
  by apply: below_times; [nia | split; [exact: Rlt_le alpha_gt0 | exact: Rle_refl]].
- by apply: two; apply: below_mul => //; exact: below_geom.
Qed.
Lemma none_moved : small_moved (fun _ => 0).
Proof.
move=> m m1; have [c0 c1] := c_ge0_lt1; split; [exact: Rle_refl | |].
  by apply: Rmult_le_pos; [lra | apply/Rlt_le/Rinv_0_lt_compat; lra].
move=> _; apply: Rmult_le_pos; last exact/Rlt_le/exp_pos.
by apply: Rmult_le_pos; [exact: Rlt_le alpha_gt0 | apply: (IZR_le 0); nia].
Qed.
Lemma geometric_le (v : nat -> R) rho M : (forall i, 0 <= v i) -> 0 <= rho < 1 ->
  (forall i, v i.+1 <= rho * v i) ->
  \big[Rplus/0]_(i < M) v i <= v 0%N * / (1 - rho).
Proof.
move=> v0 [r0 r1] falls; have P : (1 - rho) * \big[Rplus/0]_(i < M) v i <= v 0%N - v M.
  elim: M => [|M IH]; first by rewrite big_ord0; lra.
  have -> : \big[Rplus/0]_(i < M.+1) v i = \big[Rplus/0]_(i < M) v i + v M by rewrite big_ord_recr.
  by have := falls M; lra.
apply: (Rmult_le_reg_l (1 - rho)); first lra.
have -> : (1 - rho) * (v 0%N * / (1 - rho)) = v 0%N by field; lra.
by have := v0 M; lra.
Qed.
Lemma limit_le (v : nat -> R) l x : infinite_sum v l -> (forall n, sum_f_R0 v n <= x) -> l <= x.
Proof.
move=> lim le; apply: Rnot_lt_le => lt; have [N close] := lim (l - x) ltac:(lra).
have := close N (le_n N); have := le N; rewrite /R_dist => le' /Rabs_def2; lra.
Qed.
Let R1 := (Rows.reach h + 1)%Z.
Let u (b : R) (m : nat) : R := g b (1 + Z.of_nat m).
Let u0 b m : 0 <= u b m. Proof. exact/Rlt_le/exp_pos. Qed.
Let RE : R1 = (1 + Z.of_nat r)%Z. Proof. by rewrite /R1 rE; ring. Qed.
Let step_lt1 : [/\ 0 <= f R1, f R1 < 1 & 4 * f R1 < 1].
Proof.
have [[f0 fs] _ _ _] := sums_facts none_moved; have := val_lt step1; rewrite valM val1 => lt.
by split; [exact: f0 | |]; rewrite /R1; lra.
Qed.
Let u_falls_le b i : beta <= b -> u b (r + i).+1 <= f R1 * u b (r + i).
Proof.
move=> bb; rewrite /u; have -> : (1 + Z.of_nat (r + i).+1 = (1 + Z.of_nat (r + i)) + 1)%Z by lia.
set m := (1 + Z.of_nat (r + i))%Z; have m0 : (R1 <= m)%Z by rewrite RE /m of_natD; lia.
have E : g b (m + 1) = exp (- b * IZR (2 * m + 1)) * g b m.
  by rewrite /g -exp_plus; congr exp; rewrite -Rmult_plus_distr_l -plus_IZR; congr (_ * IZR _);
    ring.
rewrite E; apply: Rmult_le_compat_r; first exact/Rlt_le/exp_pos.
apply: exp_le; have le : IZR (2 * R1 + 1) <= IZR (2 * m + 1) by apply: IZR_le; lia.
have p0 : 0 <= IZR (2 * R1 + 1) by apply: (IZR_le 0); rewrite RE; lia.
by have := beta_gt0; nra.
Qed.
Let tail_real := g beta R1 * / (1 - f R1).
Let parts_le (v : nat -> R) M bound : (forall i, 0 <= v i) ->
  (forall N, \big[Rplus/0]_(i < N) v (r + i)%N <= bound) ->
  \big[Rplus/0]_(i < M) v i <= \big[Rplus/0]_(i < r) v i + bound.
Proof.
move=> v0 le; apply: Rle_trans (part_le (v := v) (fun m _ => v0 m) (leq_addl r M)) _.
by rewrite big_split_ord; apply: Rplus_le_compat_l; exact: le.
Qed.
Lemma u_le b m : beta <= b -> u b m <= u beta m.
Proof.
move=> bb; apply: exp_le; have : 0 <= IZR ((1 + Z.of_nat m) * (1 + Z.of_nat m))
  by apply: (IZR_le 0); nia.
by set z := IZR (_ * _) => z0; have := Rmult_le_compat_r z _ _ z0 bb; lra.
Qed.
Lemma rest_le b N : beta <= b -> \big[Rplus/0]_(i < N) u b (r + i) <= tail_real.
Proof.
move=> bb; have [f0 f1 _] := step_lt1.
have falls i : u b (r + i.+1) <= f R1 * u b (r + i) by rewrite addnS; exact: u_falls_le.
apply: Rle_trans
  (geometric_le (v := fun i => u b (r + i)) N (fun i => u0 b (r + i)) (conj f0 f1) falls) _.
apply: Rmult_le_compat_r; first by apply/Rlt_le/Rinv_0_lt_compat; lra.
by rewrite addn0 RE; exact: u_le.
Qed.
Lemma squares_le N : \big[Rplus/0]_(i < N)
  (IZR ((1 + Z.of_nat (r + i)) * (1 + Z.of_nat (r + i))) * u beta (r + i))
  <= IZR (R1 * R1) * g beta R1 * / (1 - 4 * f R1).
Proof.
have [f0 _ f4] := step_lt1; pose sq i := IZR ((1 + Z.of_nat (r + i)) * (1 + Z.of_nat (r + i))).
have sq0 i : 0 <= sq i by apply: (IZR_le 0); nia.
have four : 0 <= 4 * f R1 < 1 by lra.
have falls i : sq i.+1 * u beta (r + i.+1) <= 4 * f R1 * (sq i * u beta (r + i)).
  have := u_falls_le i (Rle_refl beta); rewrite addnS => le.
  have le4 : sq i.+1 <= 4 * sq i by rewrite /sq addnS -mult_IZR Nat2Z.inj_succ; apply: IZR_le;
    have := Nat2Z.is_nonneg (r + i); move: (Z.of_nat _) => k; nia.
  have := Rmult_le_compat _ _ _ _ (sq0 i.+1) (u0 beta (r + i).+1) le4 le; lra.
have := geometric_le N (fun i => Rmult_le_pos _ _ (sq0 i) (u0 beta (r + i))) four falls.
by rewrite /sq addn0 /u -RE Rmult_assoc.
Qed.
Lemma theta_of b : 0 < b -> exists theta T,
  [/\ over_integers (fun z => - b * IZR (z * z)) theta, 0 <= T,
  theta = 1 + 2 * T & infinite_sum (u b) T].
Proof.
move=> b0; have [theta [sums _]] := theta_series b0; have [T [T0 E sides]] := theta_sides sums.
exists theta, T; split=> //; move=> eps e0; have [N near] := sides 1%Z (or_introl erefl) eps e0.
exists N => n ge;
  have <- : sum_f_R0 (fun m => exp (- b * IZR (1 * (Z.of_nat m + 1) * (1 * (Z.of_nat m + 1))))) n
  = sum_f_R0 (u b) n.
  by apply: PartSum.sum_eq => m _; rewrite /u /g; congr (exp (_ * IZR _)); ring.
exact: near.
Qed.
Lemma beyond_thetaE theta T : over_integers (fun z => - beta * IZR (z * z)) theta ->
  theta = 1 + 2 * T ->
  beyond (fun z => - beta * IZR (z * z)) theta r = 2 * (T - \big[Rplus/0]_(i < r) u beta i).
Proof.
move=> sums E; rewrite (beyondE _ theta r) E Rmult_0_r exp_0.
have side d : d = 1%Z \/ d = (-1)%Z ->
    \big[Rplus/0]_(m < r) exp (- beta * IZR (d * (Z.of_nat m + 1) * (d * (Z.of_nat m + 1))))
      = \big[Rplus/0]_(i < r) u beta i.
  by move=> dir; apply: eq_bigr => m _; rewrite /u /g; congr (exp (_ * IZR _)); case: dir => ->;
    ring.
by rewrite (side 1%Z) ?(side (-1)%Z); [ring | right | left].
Qed.
Hypothesis far_falls : Rows.falling h (Rows.reach h + 1) = true.
Lemma moved_sum_le v M : small_moved v -> 2 * \big[Rplus/0]_(i < M) v (1 + Z.of_nat i)%Z
  <= dyadic (Rows.spread t).
Proof.
move=> sv; have [_ _ [_ le] _] := sums_facts sv; apply: Rle_trans le; apply: Rmult_le_compat_l;
  first lra.
apply: (parts_le (v := fun i => v (1 + Z.of_nat i)%Z)) => [i|N];
  first by have [] := sv (1 + Z.of_nat i)%Z ltac:(lia).
have al := alpha_gt0; have := Rmult_le_compat_l _ _ _ (Rlt_le _ _ al) (squares_le N).
have -> : alpha * (IZR (R1 * R1) * g beta R1 * / (1 - 4 * f R1))
  = alpha * IZR (R1 * R1) * g beta R1 * / (1 - 4 * f R1) by ring.
rewrite -/R1; apply: Rle_trans; rewrite big_distrr; apply: rsum_le => i _ /=.
have [_ _ vf] := sv (1 + Z.of_nat (r + i))%Z ltac:(lia); rewrite -Rmult_assoc; apply: vf.
have := falling_le far_falls; rewrite -/R1 => one; have [c0 c1] := c_ge0_lt1.
have le : IZR (R1 * R1) <= IZR ((1 + Z.of_nat (r + i)) * (1 + Z.of_nat (r + i))).
  by apply: IZR_le; have : (R1 <= 1 + Z.of_nat (r + i))%Z;
    [rewrite RE of_natD; lia | have := RE; nia].
apply: Rle_trans one _; apply: Rmult_le_compat_l; first lra.
by apply: Rmult_le_compat_l; [exact: Rlt_le | exact: le].
Qed.
Lemma theta_facts : exists theta',
  [/\ over_integers (fun z => - beta * IZR (z * z)) theta', 1 <= theta',
    theta' - 1 <= dyadic (Rows.others t) &
    0 <= beyond (fun z => - beta * IZR (z * z)) theta' r <= dyadic (Rows.tail t)].
Proof.
have b0 := beta_gt0; have [theta' [T' [sums' T0' E' cT']]] := theta_of b0.
have [_ [_ oth] _ [_ tl]] := sums_facts none_moved.
have up' : 0 <= T' - \big[Rplus/0]_(i < r) u beta i <= tail_real.
  split; first by have := partial_le r (u0 beta) cT'; lra.
  suff : T' <= \big[Rplus/0]_(i < r) u beta i + tail_real by lra.
  by apply: (limit_le cT') => n; rewrite -big_sum_f_R0; apply: parts_le => // N;
    exact: rest_le (Rle_refl _).
exists theta'; rewrite (beyond_thetaE sums' E'); split=> //; [lra | |].
- rewrite E'; apply: Rle_trans oth; rewrite -/R1; move: up'; rewrite /tail_real /u; lra.
- by rewrite -/R1 in tl; rewrite /tail_real in up'; lra.
Qed.
End Theta.

(** ** The softmax of a device *)
Local Opaque Rows.sums_of.
Lemma exp_geom x : 0 <= x < 1 -> exp x <= / (1 - x).
Proof.
move=> [x0 x1]; have := exp_ineq1_le (- x); rewrite exp_Ropp => le; have e0 := exp_pos x.
by rewrite -[exp x]Rinv_inv; apply: Rinv_le_contravar; lra.
Qed.
Lemma below_exp1 x a : below x a -> (a < Rows.one)%Z -> below (exp x) (Rows.geom a).
Proof.
move=> xa lt; have [x0 le] := xa; have := val_lt lt; rewrite val1 => lt1.
apply: below_le (below_geom xa lt) _; split; [exact/Rlt_le/exp_pos | apply: exp_geom; lra].
Qed.
Lemma setting_ge0 z : Rows.setting_fits z = true ->
  [/\ 0 <= Rows.roundoff z, 0 <= Rows.cut z, 0 <= Rows.cast z & 0 <= Rows.loss z]%Z /\
  [/\ 0 <= Rows.sum_loss z, 0 <= Rows.cast_loss z, 0 <= Rows.products z & 0 <= Rows.terms z]%Z.
Proof. by rewrite /Rows.setting_fits /= !andbT => /andP
  [/and5P [/Z.leb_le ? /Z.leb_le ? /Z.leb_le ? /Z.leb_le ? /and5P
  [/Z.leb_le ? /Z.leb_le ? /Z.leb_le ? /Z.leb_le ?]] _]. Qed.
Record heads_facts (hd : Rows.heads) (nn : nat) : Prop := HeadsFacts {
  axes_pos : (0 < Rows.axes hd)%Z; alpha_pos : (0 < Rows.alpha hd)%Z;
    reach_ge0 : (0 <= Rows.reach hd)%Z; keys_ge0 : (0 <= Rows.keys hd)%Z;
  score_range : (0 <= Rows.score hd < Rows.one)%Z;
    lost_range : (0 <= Rows.score_lost hd < Rows.one)%Z;
  ulps_ge0 : (0 <= Rows.ulps hd)%Z; exp_lost_ge0 : (0 <= Rows.exp_lost hd)%Z;
    weight_loss_ge0 : (0 <= Rows.weight_loss hd)%Z;
  kept_part : (Rows.mul (Rows.score hd) (Rows.alpha hd) <= Rows.alpha hd)%Z;
    step_lt1 : (4 * Rows.step (Rows.sums_of hd) < Rows.one)%Z;
  far_falls : Rows.falling hd (Rows.reach hd + 1) = true;
  softmax_setting : Rows.setting_fits (Rows.softmax hd) = true;
    mean_setting : Rows.setting_fits (Rows.mean hd) = true;
  keys_small : (Rows.keys hd * Rows.roundoff (Rows.softmax hd) < Rows.one)%Z;
  count_small : (Rows.count hd nn * Rows.roundoff (Rows.softmax hd) < Rows.one)%Z;
  count_terms : (Rows.count hd nn <= Rows.terms (Rows.mean hd))%Z;
  no_doubt : (Rows.doubt hd (Rows.sums_of hd) nn < Rows.one)%Z }.
Lemma heads_factsP hd : Rows.heads_fit hd = true ->
  heads_facts hd (if Rows.apart hd then 1%N else Z.to_nat (Rows.axes hd)).
Proof.
rewrite /Rows.heads_fit; set nn := if _ then _ else _.
move=> /andP [H /Z.ltb_lt x1]; move: H => /andP [H /Z.leb_le x2]; move: H => /andP [H /Z.ltb_lt x3].
move: H => /andP [H /Z.ltb_lt x4]; move: H => /andP [H xf]; move: H => /andP [H /Z.ltb_lt x0];
  move: H => /andP [H /Z.ltb_lt x5]; move: H => /andP [H /Z.ltb_lt x6].
move: H => /andP [H /Z.ltb_lt x7]; move: H => /andP [H /Z.ltb_lt x8];
  move: H => /andP [H /Z.leb_le x9].
move: H => /andP [/andP [H y1] y2]; move: H; rewrite /Rows.natural /= andbT.
move=> /and5P [/Z.leb_le a1 /Z.leb_le a2 /Z.leb_le a3 /Z.leb_le a4 /and5P
  [/Z.leb_le a5 /Z.leb_le a6 /Z.leb_le a7 /Z.leb_le a8 /Z.leb_le a9]].
by split.
Qed.
Section Weights.
Variables (hd : Rows.heads) (nn : nat).
Hypothesis ok : heads_facts hd nn.
Let t := Rows.sums_of hd.
Let c := dyadic (Rows.score hd). Let c0 := dyadic (Rows.score_lost hd).
Let d := dyadic (Rows.ulps hd).
Let eta := dyadic (Rows.exp_lost hd).
Variables (K : finType) (near : K) (few : pred K) (s e : K -> R) (over : order K) (m : R).
Hypotheses (keysK : (Z.of_nat #|K| <= Rows.keys hd)%Z)
  (fewN : (Z.of_nat #|few| <= Rows.count hd nn)%Z).
Hypotheses (fnear : few near) (s0 : s near = 0) (low : forall k, s k <= 0).
Hypotheses (mz : below m (Rows.power (Rows.mul (Rows.score hd) (Rows.spread t)) nn))
  (moment : \sum_k softmax s k * exp (c * Rabs (s k)) <= 1 + m)
  (share : 1 - softmax s near <= dyadic (Rows.leak t nn)) (leak0 : (0 <= Rows.leak t nn)%Z)
  (far_s : \big[Rplus/0]_(k | ~~ few k) exp (s k) <= dyadic (Rows.far t nn))
    (far_ge0 : (0 <= Rows.far t nn)%Z)
  (far_c : \big[Rplus/0]_(k | ~~ few k) exp ((1 - c) * s k) <= dyadic (Rows.far t nn)).
Variables (A T : arithmetic) (reciprocal : bool).
Hypotheses (dev : device hd A T) (exps : device_exponentials hd A near s e) (sumd : summed e over).
Let self z : (0 <= z)%Z -> below (dyadic z) z. Proof. by move=> /val_ge0 z0; split=> //;
  exact: Rle_refl. Qed.
Let D := key_error (INR #|few|) c0 d eta (1 + m) (dyadic (Rows.leak t nn)) (dyadic (Rows.far t nn)).
Let F := (1 + d) * exp c0 * dyadic (Rows.far t nn) + INR #|K| * eta.
Let two x a : below x a -> below (2 * x) (2 * a). Proof. by move=> [x0 xa]; rewrite /below valM;
  lra. Qed.
Lemma below_D : below D (Rows.key_error hd t nn).
Proof.
have [c1 lt] := lost_range ok; rewrite /D /key_error /Rows.key_error.
have E1 := below_mul (below_exp1 (self c1) lt) (below_add one_below mz).
have ge1 : 1 <= exp c0 * (1 + m).
  have : 1 <= exp c0 by rewrite -exp_0; apply: exp_le; exact: val_ge0.
  by case: mz => m0 _; nra.
have G := below_mul (below_add one_below (self (ulps_ge0 ok))) (below_sub1 E1 ge1).
have L := below_mul (self (ulps_ge0 ok)) (self leak0).
apply: below_add (below_mul (below_add G L) (below_add one_below (self far_ge0))) _.
exact: below_nat fewN (self (exp_lost_ge0 ok)).
Qed.
Lemma below_F : below F (Rows.far_exponentials hd t nn).
Proof.
have [c1 lt] := lost_range ok; apply: below_add;
  last exact: below_nat keysK (self (exp_lost_ge0 ok)).
apply: below_mul (self far_ge0); apply: below_mul (below_add one_below (self (ulps_ge0 ok))) _.
exact: below_exp1 (self c1) lt.
Qed.
Let u := roundoff A.
Let uz : below u (Rows.roundoff (Rows.softmax hd)).
Proof. by have [[[sA _ _] _ _] [[le _ _] _]] := dev; have [[u0 _ _] _] := sA. Qed.
Let gN := gamma #|few| u.
Lemma below_gN : below gN (Rows.gamma (Rows.count hd nn) (Rows.roundoff (Rows.softmax hd))).
Proof. exact: below_gamma uz fewN (count_small ok). Qed.
Lemma below_total_lost : below (total_lost A #|few| #|K| F) (Rows.total_lost hd t nn).
Proof.
have [[[sA _ _] _ _] [[_ ll sl] _]] := dev; have [[_ s0' l0] _] := sA.
apply: below_mul (below_add one_below below_gN) _; apply: two.
apply: below_mul (below_add one_below (below_gamma uz keysK (keys_small ok))) _;
  rewrite -Z.add_assoc.
exact: below_add below_F (below_add (below_nat keysK (conj l0 ll)) (below_nat keysK (conj s0' sl))).
Qed.
Lemma below_far_weights : below (far_weights T #|K| F) (Rows.far_weights hd t nn).
Proof.
have [[_ [sT _ _] _] [_ [_ _ sl]]] := dev; have [[_ s0' _] _] := sT.
exact: below_add (two below_F) (below_nat keysK (conj s0' sl)).
Qed.
Let c_ge0 : 0 <= c. Proof. by apply: val_ge0; case: (score_range ok). Qed.
Let c0_ge0 : 0 <= c0. Proof. by apply: val_ge0; case: (lost_range ok). Qed.
Let d_ge0 : 0 <= d. Proof. by apply: val_ge0; exact: ulps_ge0 ok. Qed.
Let eta_ge0 : 0 <= eta. Proof. by apply: val_ge0; exact: exp_lost_ge0 ok. Qed.
Let doubtz : below (gN + D + total_lost A #|few| #|K| F) (Rows.doubt hd t nn).
Proof. exact: below_add (below_add below_gN below_D) below_total_lost. Qed.
(** Where [doubt] is below 1, sum and quotients are those of [computed_softmax_error]. *)
Lemma weights_small_enough : small_enough A #|few| #|K| D F.
Proof.
have [D0 _] := below_D; have [F0 _] := below_F; have [g0 _] := below_gN.
have [l0 _] := below_total_lost; have [_ doubt] := doubtz.
have lt1 := val_lt (no_doubt ok); rewrite val1 -/t in lt1.
have KN : INR #|K| * u < 1.
  have := val_lt (keys_small ok); rewrite val1; have [_ le] := below_nat keysK uz; lra.
have P := Rmult_le_pos _ _ g0 D0; split; [lra | exact: F0 | exact: KN | rewrite -/u -/gN; lra |].
by rewrite -/u -/gN; lra.
Qed.
(** Exponentials are off as [by_key] says. *)
Lemma weights_exponentials : exponentials A few s e D F (dyadic (Rows.far t nn)).
Proof.
have [e1 rep off] := exps.
have pos : [/\ 0 <= c, 0 <= c0, 0 <= d & 0 <= eta] by split.
have [near_D far_e] := by_key pos fnear s0 low off moment share far_s.
have far_e' : \big[Rplus/0]_(k | ~~ few k) e k <= F.
  apply: Rle_trans far_e _; apply: Rplus_le_compat_r; apply: Rmult_le_compat_l => //.
  by apply: Rmult_le_pos; [have := d_ge0; lra | exact/Rlt_le/exp_pos].
by split=> //; exists near => //; rewrite s0 e1; split; [exact: Rle_refl |].
Qed.
(** Each part of the bound is below the integer that the program has for it. *)
Lemma computed_bound_le :
  computed_bound A T #|few| #|K| D F (dyadic (Rows.far t nn)) <= dyadic (Rows.off hd t nn).
Proof.
have [_ [[ul ll sl] [vl tl wl]]] := dev; have [[_ [sT _ _] _] _] := dev.
have [[[sA _ _] _ _] _] := dev; have [[u0 s0' l0] _] := sA; have [[v0 w0 t0] _] := sT.
have v2 := below_both (below_power 2 uz) (conj v0 vl).
have q : below ((1 + u) ^ 2 * (1 + roundoff T) - 1 + gN)
  (Rows.both (Rows.power (Rows.roundoff (Rows.softmax hd)) 2) (Rows.cast (Rows.softmax hd))
    + Rows.gamma (Rows.count hd nn) (Rows.roundoff (Rows.softmax hd))).
  by apply: below_add below_gN; move: v2; rewrite (_ : 1 + ((1 + u) ^ 2 - 1) = (1 + u) ^ 2) //;
    ring.
set lam := total_lost A #|few| #|K| F.
have num : below (((1 + u) ^ 2 * (1 + roundoff T) - 1 + gN) * (1 + D) + 2 * D + lam)
  (Rows.mul (Rows.both (Rows.power (Rows.roundoff (Rows.softmax hd)) 2)
    (Rows.cast (Rows.softmax hd))
    + Rows.gamma (Rows.count hd nn) (Rows.roundoff (Rows.softmax hd)))
      (Rows.one + Rows.key_error hd t nn)
      + 2 * Rows.key_error hd t nn + Rows.total_lost hd t nn).
  exact: below_add (below_add (below_mul q (below_add one_below below_D)) (two below_D))
    below_total_lost.
have G := below_mul num (below_geom doubtz (no_doubt ok)); rewrite -/lam in G.
have mu : below (INR #|few| * ((1 + roundoff T) * (3 + 2 * u) * loss A + loss T)) (Rows.count hd nn
    * (Rows.mul
      (Rows.mul (Rows.one + Rows.cast (Rows.softmax hd))
      (3 * Rows.one + 2 * Rows.roundoff (Rows.softmax hd))) (Rows.loss (Rows.softmax hd))
       + Rows.cast_loss (Rows.softmax hd))).
  apply: (below_nat fewN); apply: below_add (conj t0 tl).
  apply: below_mul (conj l0 ll); apply: below_mul (below_add one_below (conj v0 vl)) _.
  by apply: below_add (two uz); rewrite /below valM val1; lra.
rewrite /computed_bound /softmax_bound -/u -/gN -/lam /Rows.off -/t.
have quotient : (((1 + u) ^ 2 * (1 + roundoff T) - 1 + gN) * (1 + D) + 2 * D + lam) /
  ((1 - gN) * (1 - D) - lam)
    <= (((1 + u) ^ 2 * (1 + roundoff T) - 1 + gN) * (1 + D) + 2 * D + lam) * / (1 - (gN + D + lam)).
  have [D0 _] := below_D; have [g0 _] := below_gN; have P := Rmult_le_pos _ _ g0 D0.
  have [_ dz] := doubtz; have lt1 := val_lt (no_doubt ok); rewrite val1 -/t in lt1.
  case: num => n0 _; apply: Rmult_le_compat_l => //; apply: Rinv_le_contravar;
    rewrite -/lam in dz; lra.
have [_ Gz] := G; have [_ mz'] := mu; have [_ fz] := below_far_weights.
set x := Rows.mul _ (Rows.geom _) in Gz *; set y := (_ * (_ + _))%Z in mz' *.
have -> : dyadic (x + y + Rows.far_weights hd t nn + 2 * Rows.far t nn)
  = dyadic x + dyadic y + dyadic (Rows.far_weights hd t nn) + 2 * dyadic (Rows.far t nn)
    by rewrite -valM -!valD.
lra.
Qed.
Theorem weights_off : let w := computed_softmax A T reciprocal e over in
  \sum_k Rabs (w k - softmax s k) <= dyadic (Rows.off hd t nn) /\
  \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= dyadic (Rows.far_weights hd t nn).
Proof.
have [[nA nT one] _] := dev.
have NK : (#|few| <= #|few| <= #|K|)%N by rewrite leqnn max_card.
have [W farW] := computed_softmax_error reciprocal nA nT one NK weights_small_enough
  weights_exponentials sumd.
by split; [apply: Rle_trans W computed_bound_le | apply: Rle_trans farW _; case: below_far_weights].
Qed.
End Weights.

(** ** A head over a box: its scores fall at least like [- alpha z^2] along each axis *)
(** [x e^(- b x)] is at most [1 / (e b)], and falls from [1 / b] on. *)
Lemma inverse_e_le : exp (-1) <= 3 / 8.
Proof.
have e32 : 33 / 32 <= exp (/ 32) by have := exp_ineq1_le (/ 32); lra.
have powE k : exp (/ 32) ^ k = exp (INR k * / 32).
  elim: k => [|k IH]; first by rewrite Rmult_0_l exp_0.
  by rewrite S_INR -tech_pow_Rmult IH -exp_plus; congr exp; ring.
have E : exp 1 = exp (/ 32) ^ 32 by rewrite powE INR_IZR_INZ; congr exp; rewrite /=; field.
have le : (33 / 32) ^ 32 <= exp 1 by rewrite E; apply: pow_incr; lra.
have big : 8 / 3 <= (33 / 32) ^ 32 by rewrite /= ; lra.
have -> : exp (-1) = / exp 1 by rewrite -exp_Ropp.
by have -> : 3 / 8 = / (8 / 3) by [field]; apply: Rinv_le_contravar; lra.
Qed.
Lemma falls_to_le b x y : 0 < b -> 0 <= x <= y -> 1 <= b * x ->
  y * exp (- b * y) <= x * exp (- b * x).
Proof.
move=> b0 [x0 xy] bx; have e0 := exp_pos (- b * x);
  have E : exp (- b * y) = exp (- b * x) * exp (- (b * (y - x))).
  by rewrite -exp_plus; congr exp; ring.
have d0 : 0 <= b * (y - x) by apply: Rmult_le_pos; lra.
have ge := exp_ineq1_le (b * (y - x)); rewrite E exp_Ropp.
set w := exp (b * (y - x)) in ge *; have w0 : 0 < w by lra.
apply: (Rmult_le_reg_r w) => //; have -> : y * (exp (- b * x) * / w) * w = exp (- b * x) * y
  by field; lra.
have -> : x * exp (- b * x) * w = exp (- b * x) * (x * w) by ring.
apply: Rmult_le_compat_l; first lra; have := Rmult_le_compat_l x _ _ x0 ge.
have : y - x <= x * (b * (y - x)).
  have := Rmult_le_compat_r (y - x) 1 (b * x) ltac:(lra) bx; lra.
lra.
Qed.
Lemma peak_le b x : 0 < b -> 0 <= x -> x * exp (- b * x) <= 3 / 8 * / b.
Proof.
move=> b0 x0; have i0 : 0 < / b by exact: Rinv_0_lt_compat.
have ge := exp_ineq1_le (b * x - 1); have e1 := inverse_e_le; have e0 := exp_pos (- (b * x)).
have E : exp (b * x - 1) * exp (- (b * x)) = exp (-1) by rewrite -exp_plus; congr exp; ring.
have le : b * x * exp (- (b * x)) <= exp (-1).
  by rewrite -E; apply: Rmult_le_compat_r; lra.
have -> : x * exp (- b * x) = b * x * exp (- (b * x)) * / b by rewrite Ropp_mult_distr_l; field;
  lra.
by apply: Rmult_le_compat_r; lra.
Qed.
Section Box.
Variables (hd : Rows.heads) (n : nat).
Hypotheses (a0 : (0 < Rows.alpha hd)%Z) (r0 : (0 <= Rows.reach hd)%Z)
  (c01 : (0 <= Rows.score hd < Rows.one)%Z)
  (kept : (Rows.mul (Rows.score hd) (Rows.alpha hd) <= Rows.alpha hd)%Z)
  (step1 : (4 * Rows.step (Rows.sums_of hd) < Rows.one)%Z)
    (ff : Rows.falling hd (Rows.reach hd + 1) = true).
Let t := Rows.sums_of hd. Let c := dyadic (Rows.score hd). Let alpha := dyadic (Rows.alpha hd).
Let beta := (1 - c) * alpha.
Let r := Z.to_nat (Rows.reach hd).
Variables (size : 'I_n -> nat) (near : box size) (s : 'I_n -> Z -> R).
Hypothesis sharp : forall a, falls (s a) /\ forall z, s a z <= - alpha * IZR (z * z).
Let score := around s near.
Lemma score_le0 k : score k <= 0. Proof. by apply: around_le0 => a; case: (sharp a). Qed.
Lemma score_near : score near = 0.
Proof. by rewrite /score /around big1 // => a _; rewrite Z.sub_diag; case: (sharp a) => -[]. Qed.
Lemma share_le x z : below x z -> x / (1 + x) <= dyadic (Rows.share z).
Proof.
move=> [x0 xz]; have z0 : (0 <= z)%Z by case: (Z_lt_le_dec z 0) => // /val_lt; rewrite val0; lra.
have d0 : (0 < Rows.one + z)%Z by have := one_gt0; lia.
have := up_ge (z * Rows.one) d0; rewrite -/(Rows.share z) mult_IZR plus_IZR => le;
  have o := IZR_one_gt0;
  have zR := IZR_le _ _ z0.
apply: Rle_trans (_ : dyadic z / (1 + dyadic z) <= _); last first.
  have -> : dyadic z / (1 + dyadic z) = IZR z * IZR Rows.one / (IZR Rows.one + IZR z) / IZR Rows.one
    by rewrite /dyadic; field; lra.
  by apply: Rmult_le_compat_r => //; exact/Rlt_le/Rinv_0_lt_compat.
apply: (Rmult_le_reg_r ((1 + x) * (1 + dyadic z))); first by apply: Rmult_lt_0_compat; lra.
have -> : x / (1 + x) * ((1 + x) * (1 + dyadic z)) = x * (1 + dyadic z) by field; lra.
by have -> : dyadic z / (1 + dyadic z) * ((1 + x) * (1 + dyadic z)) = dyadic z * (1 + x);
  [field; lra | lra].
Qed.
Lemma prod_constE (I : finType) (P : pred I) x : \big[Rmult/1]_(i | P i) x = x ^ #|P|.
Proof. by rewrite big_const; elim: #|P| => //= k ->. Qed.
Lemma score_le_beta a z : s a z <= - beta * IZR (z * z) /\ (1 - c) * s a z <= - beta * IZR (z * z).
Proof.
have [_ le] := sharp a; have := le z; have [c0 c1] := c_ge0_lt1 c01; rewrite -/c in c0 c1.
have al := alpha_gt0 a0; rewrite -/alpha in al; have zz : 0 <= IZR (z * z) by apply: (IZR_le 0);
  nia.
have az : 0 <= alpha * IZR (z * z) by apply: Rmult_le_pos; lra.
by rewrite /beta; split; nra.
Qed.
(** What the ratio of side sums is at most. *)
Lemma side_below a d : d = 1%Z \/ d = (-1)%Z ->
  side_ratio (s a) c (1 + c * dyadic (Rows.spread t)) d.
Proof.
move=> dir; have [c0 c1] := c_ge0_lt1 c01; have al := alpha_gt0 a0; rewrite -/c -/alpha in c0 c1 al.
pose z m := (d * (Z.of_nat m + 1))%Z;
  have zz m : (z m * z m = (1 + Z.of_nat m) * (1 + Z.of_nat m))%Z.
  by rewrite /z; case: dir => ->; ring.
have [theta' [sums' _ _ _]] := theta_facts (erefl beta) a0 c01 kept r0 step1.
have [T [_ _ side]] := theta_sides sums'; have cT := side d dir.
have exists_sum (v : nat -> R) : (forall m, v m <= - beta * IZR (z m * z m)) -> exists l,
  infinite_sum (fun m => exp (v m)) l.
  move=> le; have [||l [cl _]] := sum_exists (u := fun m => exp (v m)) (bound := T);
    last by exists l.
  - by move=> m; exact/Rlt_le/exp_pos.
  - move=> N; apply: Rle_trans (partial_le N (fun m => Rlt_le _ _ (exp_pos _)) cT);
    apply: rsum_le => m _; exact: exp_le (le m).
have [U cU] := exists_sum (fun m => s a (z m)) (fun m => proj1 (score_le_beta a (z m))).
have [V cV] := exists_sum (fun m => (1 - c) * s a (z m)) (fun m => proj2 (score_le_beta a (z m))).
have U0 : 0 <= U by have := partial_le 0 (fun m => Rlt_le _ _ (exp_pos _)) cU; rewrite big_ord0.
exists U, V; split=> //; pose w m := s a (d * m)%Z; pose v m := - w m * exp ((1 - c) * w m).
have sv : small_moved hd beta v.
  move=> m m1; have [_ le] := sharp a; have := le (d * m)%Z; rewrite -/(w m).
  have -> : (d * m * (d * m) = m * m)%Z by case: dir => ->; ring.
  have mm : 0 <= IZR (m * m) by apply: (IZR_le 0); nia.
  have am : 0 <= alpha * IZR (m * m) by apply: Rmult_le_pos; lra.
  move=> wm; have w0 : 0 <= - w m by lra.
  have E : exp ((1 - c) * w m) = exp (- (1 - c) * - w m) by congr exp; ring.
  split; first by apply: Rmult_le_pos => //; exact/Rlt_le/exp_pos.
    by rewrite /v E; apply: peak_le => //; rewrite -/c; lra.
  move=> one; rewrite /v E; apply: Rle_trans (falls_to_le (x := alpha * IZR (m * m)) _ _ one) _;
    [rewrite -/c; lra | lra |].
  by right; rewrite /g; congr (_ * exp _); rewrite /beta -/c; ring.
have diff : V - 1 * U <= c * (dyadic (Rows.spread t) / 2).
  apply: (limit_le (infinite_sum_minus 1 cU cV)) => N; rewrite -big_sum_f_R0.
  have := moved_sum_le (erefl beta) a0 c01 kept r0 step1 ff N.+1 sv => le.
  apply: Rle_trans (_ : c * \big[Rplus/0]_(i < N.+1) v (1 + Z.of_nat i)%Z <= _);
    last by apply: Rmult_le_compat_l => //; rewrite -/t in le; lra.
  rewrite big_distrr; apply: rsum_le => m _; pose x := s a (z m).
  have -> : v (1 + Z.of_nat m)%Z = - x * exp ((1 - c) * x) by rewrite /v /w /x /z (Z.add_comm 1).
  suff : exp ((1 - c) * x) - 1 * exp x <= c * (- x * exp ((1 - c) * x)) by [].
  have -> : exp x = exp ((1 - c) * x) * exp (c * x) by rewrite -exp_plus; congr exp; ring.
  have := exp_ineq1_le (c * x); have := exp_pos ((1 - c) * x) => p0 ge.
  have := Rmult_le_compat_l _ _ _ (Rlt_le _ _ p0) ge; lra.
have sp0 : 0 <= dyadic (Rows.spread t).
  by have := moved_sum_le (erefl beta) a0 c01 kept r0 step1 ff 0 sv; rewrite big_ord0 Rmult_0_r.
have cs : 0 <= c * dyadic (Rows.spread t) by apply: Rmult_le_pos.
have := Rmult_le_pos _ _ cs U0; lra.
Qed.
Let spread_ge0 : 0 <= dyadic (Rows.spread t).
Proof.
by have := moved_sum_le (erefl beta) a0 c01 kept r0 step1 ff 0 (none_moved beta a0 c01);
  rewrite big_ord0 Rmult_0_r.
Qed.
(** The mean of [exp (c |s|)] is at most the product of one over each axis ([side_below]). *)
Lemma box_moment_le : exists2 m,
  below m (Rows.power (Rows.mul (Rows.score hd) (Rows.spread t)) n) &
  \sum_k softmax score k * exp (c * Rabs (score k)) <= 1 + m.
Proof.
have [c0 c1] := c_ge0_lt1 c01; rewrite -/c in c0 c1.
exists ((1 + c * dyadic (Rows.spread t)) ^ n - 1).
  apply: below_power; have cz : below c (Rows.score hd) by split=> //; exact: Rle_refl.
  by apply: below_mul => //; split=> //; exact: Rle_refl.
have ratios (a : 'I_n) : axis_ratio (s a) c (1 + c * dyadic (Rows.spread t)).
  by split; [case: (sharp a) | apply: side_below; left | apply: side_below; right].
have := moment near (conj c0 (Rlt_le _ _ c1)) ratios; rewrite prod_constE.
have -> : #|(fun _ : 'I_n => true)| = n by rewrite -[RHS]card_ord.
by move=> le; have -> : 1 + ((1 + c * dyadic (Rows.spread t)) ^ n - 1)
  = (1 + c * dyadic (Rows.spread t)) ^ n by ring.
Qed.
Lemma box_count_le : (Z.of_nat #|cube near r| <= Rows.count hd n)%Z.
Proof.
have [cnt _] := near_keys near r; rewrite /Rows.count.
have -> : ((2 * Rows.reach hd + 1) ^ Z.of_nat n = Z.of_nat ((r + r).+1 ^ n))%Z;
  last by apply: inj_le; exact/leP.
have -> : (2 * Rows.reach hd + 1 = Z.of_nat (r + r).+1)%Z
  by rewrite Nat2Z.inj_succ of_natD /r Z2Nat.id //; lia.
elim: (n) => [|k IH]; first by rewrite expn0.
by rewrite expnS of_natM -IH (Nat2Z.inj_succ k) Z.pow_succ_r //; lia.
Qed.
(** Along each axis the scores lie below those of a quadratic head, whose sums over all integers the
    program bounds ([theta_facts]); the box has a product of sums. *)
Section Flat.
Variable theta : R.
Hypotheses (sums : over_integers (fun z => - beta * IZR (z * z)) theta) (th1 : 1 <= theta)
  (oth : theta - 1 <= dyadic (Rows.others t))
  (bey : 0 <= beyond (fun z => - beta * IZR (z * z)) theta r <= dyadic (Rows.tail t)).
Let flat (k : box size) := around (fun _ z => - beta * IZR (z * z)) near k.
Lemma flat_ge k : score k <= flat k /\ (1 - c) * score k <= flat k.
Proof.
split; first by apply: rsum_le => a _; case: (score_le_beta a (Z.of_nat (k a) - Z.of_nat (near a))).
by rewrite /score /around big_distrr; apply: rsum_le => a _;
  case: (score_le_beta a (Z.of_nat (k a) - Z.of_nat (near a))).
Qed.
Lemma theta_power_below k : below (theta ^ k - 1) (Rows.power (Rows.others t) k).
Proof.
have oz : below (theta - 1) (Rows.others t) by split; lra.
by have := below_power k oz; have -> : 1 + (theta - 1) = theta by ring.
Qed.
Lemma far_flat_le : \big[Rplus/0]_(k | ~~ cube near r k) exp (flat k) <= dyadic (Rows.far t n).
Proof.
have [_ /(_ (fun _ z => - beta * IZR (z * z)) (fun _ => theta) (fun _ => sums))] :=
  near_keys near r; move/Rle_trans; apply.
have -> : \big[Rplus/0]_(a < n)
  (beyond (fun z => - beta * IZR (z * z)) theta r * \big[Rmult/1]_(e < n | e != a) theta)
    = INR n * (beyond (fun z => - beta * IZR (z * z)) theta r * theta ^ n.-1).
  transitivity
    (\big[Rplus/0]_(a < n) (beyond (fun z => - beta * IZR (z * z)) theta r * theta ^ n.-1));
    last by rewrite rsum_constE card_ord.
  apply: eq_bigr => a _; congr (_ * _); rewrite prod_constE; congr (theta ^ _).
  by have := cardC1 a; rewrite card_ord => <-; apply: eq_card => b'; rewrite !inE.
have px : below (theta ^ n.-1) (Rows.one + Rows.power (Rows.others t) n.-1).
  by have := below_add one_below (theta_power_below n.-1);
    have -> : 1 + (theta ^ n.-1 - 1) = theta ^ n.-1 by ring.
by have [_] := below_nat (Z.le_refl (Z.of_nat n)) (below_mul bey px).
Qed.
Lemma far_keys_le (v : box size -> R) : (forall k, v k <= flat k) ->
  \big[Rplus/0]_(k | ~~ cube near r k) exp (v k) <= dyadic (Rows.far t n).
Proof. by move=> le; apply: Rle_trans far_flat_le; apply: rsum_le => k _; exact: exp_le. Qed.
Lemma all_keys_le : \sum_k exp (score k) <= theta ^ n.
Proof.
apply: Rle_trans (_ : \sum_k exp (1 * flat k) <= _); first by apply: rsum_le => k _;
  rewrite Rmult_1_l; apply: exp_le; case: (flat_ge k).
rewrite box_momentE; apply: Rle_trans (_ : \big[Rmult/1]_(a < n) theta <= _); last first.
  by rewrite prod_constE; right; congr (theta ^ _); rewrite -[RHS]card_ord.
apply: (proj2 (rprod_le_all _)) => a; split; first by apply: rsum_ge0 => j _;
  exact/Rlt_le/exp_pos.
apply: Rle_trans (axis_le_all sums (near a)); right; apply: eq_bigr => j _;
  by rewrite Rmult_1_l.
Qed.
Lemma box_leak_le : 1 - softmax score near <= dyadic (Rows.leak t n).
Proof.
apply: Rle_trans (share_le (theta_power_below n)); have t0 : 1 <= theta ^ n by apply: pow_R1_Rle.
have -> : (theta ^ n - 1) / (1 + (theta ^ n - 1)) = 1 - / theta ^ n by field; lra.
have Z0 : 0 < \sum_k exp (score k) by apply: (rsum_gt0 near) => k; exact: exp_pos.
have -> : softmax score near = / \sum_k exp (score k)
  by rewrite /softmax score_near exp_0 /Rdiv Rmult_1_l.
by have := Rinv_le_contravar _ _ Z0 all_keys_le; lra.
Qed.
Lemma leak_ge0 : (0 <= Rows.leak t n)%Z.
Proof.
rewrite /Rows.leak; case: (Z_lt_le_dec (Rows.share (Rows.power (Rows.others t) n)) 0) =>
  // /val_lt; rewrite val0.
have := share_le (theta_power_below n); have [p0 _] := theta_power_below n.
have d : 0 < 1 + (theta ^ n - 1) by lra.
by have : 0 <= (theta ^ n - 1) / (1 + (theta ^ n - 1)) by
  [apply: Rmult_le_pos => //; exact/Rlt_le/Rinv_0_lt_compat]; lra.
Qed.
End Flat.
Lemma box_facts : exists m, [/\ below m (Rows.power (Rows.mul (Rows.score hd) (Rows.spread t)) n),
    \sum_k softmax score k * exp (c * Rabs (score k)) <= 1 + m,
    1 - softmax score near <= dyadic (Rows.leak t n) & (0 <= Rows.leak t n)%Z] /\
  [/\ \big[Rplus/0]_(k | ~~ cube near r k) exp (score k) <= dyadic (Rows.far t n),
    (0 <= Rows.far t n)%Z,
    \big[Rplus/0]_(k | ~~ cube near r k) exp ((1 - c) * score k) <= dyadic (Rows.far t n)
    & (Z.of_nat #|cube near r| <= Rows.count hd n)%Z].
Proof.
have [theta [sums th1 oth bey]] := theta_facts (erefl beta) a0 c01 kept r0 step1.
have far v := @far_keys_le _ sums th1 oth bey v; have [m mz mo] := box_moment_le.
have far_s := far score (fun k => proj1 (flat_ge k)).
exists m; split; split=> //.
- exact: box_leak_le sums th1 oth.
- exact: leak_ge0 th1 oth.
- case: (Z_lt_le_dec (Rows.far t n) 0) => // /val_lt; rewrite val0 => lt.
  have : 0 <= \big[Rplus/0]_(k | ~~ cube near r k) exp (score k); last lra.
  by apply: rsum_ge0 => k _; exact/Rlt_le/exp_pos.
- by apply: far => k; case: (flat_ge k).
- exact: box_count_le.
Qed.
End Box.

(** ** A head over an axis: a box of one axis *)
Section Axis.
Variables (hd : Rows.heads) (N : nat) (p : 'I_N) (s : Z -> R).
Hypothesis sharp : falls s /\ forall z, s z <= - dyadic (Rows.alpha hd) * IZR (z * z).
Let one_axis (_ : 'I_1) := N.
Let lift (j : 'I_N) : box one_axis := [ffun _ => j].
Let liftK : cancel lift (fun k => k ord0). Proof. by move=> j; rewrite ffunE. Qed.
Let liftK' : cancel (fun k : box one_axis => k ord0) lift.
Proof. by move=> k; apply/ffunP => a; rewrite ffunE (ord1 a). Qed.
Definition axis_of (j : 'I_N) : R := s (Z.of_nat j - Z.of_nat p)%Z.
Definition axis_few (j : 'I_N) : bool := cube (lift p) (Z.to_nat (Rows.reach hd)) (lift j).
Lemma axis_fewE j : axis_few j = axis_near hd p j.
Proof.
apply/forallP/idP => [/(_ ord0)|near a]; first by rewrite !ffunE.
by rewrite !ffunE.
Qed.
Let whole := around (fun _ => s) (lift p).
Lemma axis_liftE j : axis_of j = whole (lift j).
Proof. by rewrite /whole /around big_ord_recl big_ord0 Rplus_0_r !ffunE. Qed.
Lemma lift_sumE (P : pred (box one_axis)) (F : box one_axis -> R) :
  \big[Rplus/0]_(k | P k) F k = \big[Rplus/0]_(j | P (lift j)) F (lift j).
Proof. by rewrite (reindex lift) //=; exists (fun k => k ord0) => k _;
  [exact: liftK | exact: liftK']. Qed.
Lemma lift_softmaxE j : softmax axis_of j = softmax whole (lift j).
Proof.
rewrite /softmax axis_liftE; congr (_ / _); rewrite lift_sumE; apply: eq_bigr => i _;
  by rewrite axis_liftE.
Qed.
Let t := Rows.sums_of hd. Let c := dyadic (Rows.score hd).
Lemma axis_facts : (0 < Rows.alpha hd)%Z -> (0 <= Rows.reach hd)%Z ->
  (0 <= Rows.score hd < Rows.one)%Z ->
  (Rows.mul (Rows.score hd) (Rows.alpha hd) <= Rows.alpha hd)%Z ->
    (4 * Rows.step (Rows.sums_of hd) < Rows.one)%Z ->
  Rows.falling hd (Rows.reach hd + 1) = true ->
  exists m, [/\ below m (Rows.power (Rows.mul (Rows.score hd) (Rows.spread t)) 1),
    \sum_j softmax axis_of j * exp (c * Rabs (axis_of j)) <= 1 + m,
    1 - softmax axis_of p <= dyadic (Rows.leak t 1) & (0 <= Rows.leak t 1)%Z] /\
  [/\ \big[Rplus/0]_(j | ~~ axis_few j) exp (axis_of j) <= dyadic (Rows.far t 1),
    (0 <= Rows.far t 1)%Z,
    \big[Rplus/0]_(j | ~~ axis_few j) exp ((1 - c) * axis_of j) <= dyadic (Rows.far t 1)
    & (Z.of_nat #|axis_few| <= Rows.count hd 1)%Z].
Proof.
move=> a0 r0 c01 kept step1 ff; have [m [[mz mo sh l0] [fs f0 fc cnt]]] :=
  box_facts a0 r0 c01 kept step1 ff (lift p) (fun _ => sharp).
exists m; split; split=> //.
- apply: Rle_trans mo; right; rewrite lift_sumE; apply: eq_bigr => j _;
  by rewrite lift_softmaxE axis_liftE.
- by rewrite lift_softmaxE.
- apply: Rle_trans fs; right; rewrite lift_sumE; apply: eq_bigr => j _; by rewrite axis_liftE.
- apply: Rle_trans fc; right; rewrite lift_sumE; apply: eq_bigr => j _; by rewrite axis_liftE.
- apply: Z.le_trans cnt; apply: inj_le; apply/leP; rewrite -(card_in_imset (f := lift));
  last by move=> i j _ _; exact: can_inj liftK i j.
  by apply: subset_leq_card; apply/subsetP => k /imsetP [j]; rewrite unfold_in => fj ->; exact: fj.
Qed.
End Axis.

(** ** The layers *)
Lemma fits_parts z : Rows.fits z = true ->
  [/\ (0 <= Rows.weights z)%Z, (0 <= Rows.bias z)%Z & (0 <= Rows.radius z)%Z] /\
  [/\ Rows.setting_fits (Rows.first z) = true, Rows.setting_fits (Rows.second z) = true
     & if Rows.soft z is Some hd then Rows.heads_fit hd = true else True].
Proof.
rewrite /Rows.fits /= andbT => /andP
  [/andP [/andP [/and3P [/Z.leb_le w /Z.leb_le b /Z.leb_le r] s1] s2] h].
by split; split=> //; case: (Rows.soft z) h.
Qed.
Section Difference.
Variables (z : Rows.row) (n : nat) (g : geometry n) (ok : fits g) (G ci co : nat) (H : finType)
  (f : H -> taps g).
Variable X : pixels g -> 'I_(G * ci) -> reals.
Hypotheses (fz : Rows.fits z = true) (bij : bijective f)
  (within_radius : forall k c, Rabs (zero_pad X k c) <= dyadic (Rows.radius z)).
Variables (e : R) (E : Z).
Hypotheses (eE : below e E)
  (Ez : E = match Rows.soft z with None => 0%Z | Some h => Rows.reads h (Rows.radius z) end).
Lemma tokens_differ (token : H -> queries g -> 'I_(G * ci) -> R) :
  (forall h q c, Rabs (token h q c - seen X q (f h) c) <= e) ->
  @differ_by z n g G ci co H f X token.
Proof.
move=> near weight b first second q o t t' [w1 w2 Sle ble] set1 set2;
  have [[w0 b0 r0] [s1 s2 _]] := fits_parts fz.
apply: Rle_trans (tokens_read ok bij within_radius near set1 set2) _.
have [lim1 _] := set1; have [lim2 _] := set2; rewrite /difference /Rows.bound -Ez.
have Sz : below (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs (tap weight t c o)) (Rows.weights z).
  by split=> //; apply: rsum_ge0 => s _; apply: rsum_ge0 => c _; exact: Rabs_pos.
have bz : below (Rabs (b o)) (Rows.bias z) by split=> //; exact: Rabs_pos.
have rz : below (dyadic (Rows.radius z)) (Rows.radius z) by split;
  [exact: val_ge0 | exact: Rle_refl].
have size := below_add (below_mul Sz rz) bz; have read := below_mul Sz eE.
have c1 := below_cost_all lim1 w1 s1; have c2 := below_cost_all lim2 w2 s2.
have l1 := below_lost lim1 w1 s1; have l2 := below_lost lim2 w2 s2.
by case: (below_add (below_add read (below_add (below_mul c1 size) l1))
  (below_add (below_mul c2 (below_add size read)) l2)).
Qed.
End Difference.
Theorem hard_heads : ROW_hard.
Proof.
move=> z n g ok fz none G ci co H f X bij within_radius token exact_.
apply: (tokens_differ ok fz bij within_radius (e := 0) (E := 0%Z)); rewrite ?none //;
  first by rewrite /below val0; lra.
by move=> h q c; rewrite exact_ Rminus_eq_0 Rabs_R0; exact: Rle_refl.
Qed.
Definition wide (s : setting) (N : nat) : setting := among s (maxn (terms s) N).
Lemma wide_as_set s z N (I : finType) (w x : I -> R) b t : as_set s w x b t -> setting_within s z ->
  Rows.setting_fits z = true ->
  (Z.of_nat N <= Rows.terms z)%Z -> as_set (wide s N) w x b t /\ setting_within (wide s N) z.
Proof.
move=> [ok [[bias once sz sw sa] rest]] within fits Nz.
have wz : (Z.of_nat (maxn (terms s) N) <= Rows.terms z)%Z.
  by have [_ [_ [_ le _ _]]] := within; rewrite /maxn; case: ifP.
split; last by have [a [b' [c _ d e]]] := within.
have [sA sT wd k0 _] := ok; split; last by split=> //; split=> //;
  exact: leq_trans sz (leq_maxl _ _).
split=> //; have u := below_roundoff ok within.
have lt := counts_lt1 fits (conj wz (Z.le_refl _)).
have [_ le] := below_nat wz u; have := val_lt lt; rewrite val1 => lt1; exact: Rle_lt_trans le lt1.
Qed.
(** Every number is natural, and sums, products, powers and [gamma] of such numbers are. *)
Lemma few_ge0 z n a b : Rows.setting_fits z = true -> (0 <= n <= Rows.terms z)%Z -> below 0 a ->
  below 0 b -> below 0 (Rows.few z n a b).
Proof.
move=> fits [n0 nt] a0 b0; have [[u0 c0 t0 l0] [s0 m0 p0 k0]] := setting_ge0 fits.
have lt : (Rows.terms z * Rows.roundoff z < Rows.one)%Z by move: fits => /andP [_ /Z.ltb_lt].
have ltn : (n * Rows.roundoff z < Rows.one)%Z by apply: Z.le_lt_trans lt;
  apply: Z.mul_le_mono_nonneg_r.
have zero x : (0 <= x)%Z -> below 0 x by move=> /val_ge0 le; split=> //; exact: Rle_refl.
have mul x y : below 0 x -> below 0 y -> below 0 (Rows.mul x y) by move=> x0 y0;
  have := below_mul x0 y0; rewrite Rmult_0_l.
have add x y : below 0 x -> below 0 y -> below 0 (x + y)%Z by move=> x0 y0; have := below_add x0 y0;
  rewrite Rplus_0_l.
have both x y : below 0 x -> below 0 y -> below 0 (Rows.both x y).
  by move=> x0 y0; have := below_both x0 y0; rewrite !Rplus_0_r Rmult_1_l Rminus_eq_0.
have pow x k : below 0 x -> below 0 (Rows.power x k).
  by move=> x0; have := below_power k x0; rewrite Rplus_0_r pow1 Rminus_eq_0.
have cost k : (0 <= k)%Z -> (k * Rows.roundoff z < Rows.one)%Z -> below 0 (Rows.cost z k).
  move=> k0' ltk; apply: (both _ _); last exact: pow (zero _ t0).
  apply: (both _ _); first exact: pow (zero _ c0).
  by have := below_gamma (k := 0) (zero _ u0) k0' ltk; rewrite /gamma /Rdiv !Rmult_0_l.
have plus1 x : below 0 x -> below 0 (Rows.one + x) by move=> x0; apply: (add _ _) => //; split;
  [exact: Rle_refl | rewrite val1; lra].
have times k x : (0 <= k)%Z -> below 0 x -> below 0 (k * x)%Z.
  by move=> k0' x0; have := below_times k0' x0; rewrite Rmult_0_r.
have st0 : (0 <= Rows.stored z)%Z.
  by move: fits; rewrite /Rows.setting_fits /= !andbT => /andP
    [/and5P [_ _ _ _ /and5P [_ _ _ _ /andP [_ /Z.leb_le]]]].
apply: (add _ _); first by apply: (mul _ _) => //; exact: cost.
apply: (mul _ _); first by apply: (plus1 _); exact: cost.
apply: (times _ _) => //; apply: (add _ _); first by apply: (mul _ _) => //; apply: (plus1 _);
  exact: cost.
apply: (mul _ _); first by apply: (plus1 _); exact: cost.
by apply: (add _ _); [apply: (add _ _)|]; apply: (times _ _) => //; exact: zero.
Qed.
Section Layer.
Variables (n : nat) (g : geometry n) (ok : fits g) (G ci : nat) (H : finType) (f : H -> taps g).
Variables (X : pixels g -> 'I_(G * ci) -> reals) (range : R).
Hypotheses (bij : bijective f) (within_radius : forall k c, Rabs (zero_pad X k c) <= range).
Lemma some_head : exists h : H, True.
Proof.
have [f' _ fK] := bij; have t0 a : (0 < kernel g a)%N by have [] := ok a.
by exists (f' [ffun a => Ordinal (t0 a)]).
Qed.
Lemma some_query : exists q : queries g, True.
Proof. have out0 a : (0 < out_side g a)%N by rewrite /out_side addn1.
by exists [ffun a => Ordinal (out0 a)]. Qed.
(** What the mean of a softmax leaves of the token at its target. *)
Lemma leaked_le (s : keys g -> R) k0 c l : 1 - softmax s k0 <= l -> 0 <= range ->
  Rabs (\sum_k softmax s k * zero_pad X k c - zero_pad X k0 c) <= 2 * (l * range).
Proof.
move=> le r0; have p0 i : 0 <= softmax s i by apply/Rlt_le/softmax_gt0.
have p1 := softmax_sum1 s k0.
have spread (c' : 'I_(G * ci)) k k' : Rabs (zero_pad X k c' - zero_pad X k' c') <= 2 * range.
  have := Rabs_triang (zero_pad X k c') (- zero_pad X k' c'); rewrite Rabs_Ropp;
    have := within_radius k c';
    have := within_radius k' c'.
  by move=> a1 a2 a3; apply: Rle_trans a3 _; lra.
have near := @head_error_le unit_finType _ _ (fun _ => softmax s) (fun _ => k0)
  (fun k c => zero_pad X k c) (fun _ => 2 * range)
  (fun _ => p0) (fun _ => p1) spread tt c.
apply: Rle_trans near _; have := Rmult_le_compat_r range _ _ r0 le; lra.
Qed.
End Layer.
Lemma wide_counts_le s N : (N <= N <= terms (wide s N))%N. Proof. by rewrite leqnn leq_maxr. Qed.
Lemma mean_errorE hd t k x : dyadic (Rows.mean_error hd t k x)
  = dyadic (Rows.mul (Rows.off hd t k + Rows.far_weights hd t k) x)
  + dyadic (Rows.few (Rows.mean hd) (Rows.count hd k) (Rows.mul (Rows.one + Rows.off hd t k) x)
    (Rows.mul (Rows.far_weights hd t k) x)).
Proof. by rewrite -valD. Qed.
Lemma mean_error_ge0 hd nn x z (t := Rows.sums_of hd) : heads_facts hd nn ->
  0 <= dyadic (Rows.off hd t nn) -> 0 <= dyadic (Rows.far_weights hd t nn) -> below x z ->
  below 0 (Rows.mean_error hd t nn z).
Proof.
move=> facts off0 far0 xz; have z0 y v : below y v -> below 0 v by rewrite /below; lra.
have oz : below (dyadic (Rows.off hd t nn)) (Rows.off hd t nn) by split=> //; exact: Rle_refl.
have farz : below (dyadic (Rows.far_weights hd t nn)) (Rows.far_weights hd t nn).
  by split=> //; exact: Rle_refl.
have counted : (0 <= Rows.count hd nn <= Rows.terms (Rows.mean hd))%Z.
  split; last exact: count_terms facts; apply: Z.pow_nonneg; have := reach_ge0 facts; lia.
have [_ F] := few_ge0 (mean_setting facts) counted
  (z0 _ _ (below_mul (below_add one_below oz) xz)) (z0 _ _ (below_mul farz xz)).
have [b0 b] := below_mul (below_add oz farz) xz.
by split; [exact: Rle_refl | rewrite mean_errorE; lra].
Qed.
(** One head: its weights are near a softmax that is near its target ([weights_off], [box_facts]);
    so its mean is near the token ([mixing], [leaked_le]). *)
Section Whole.
Variables (hd : Rows.heads) (n : nat) (g : geometry n) (ok : fits g) (G ci : nat).
Variables (A T : arithmetic) (reciprocal : bool) (e : keys g -> R) (over : order (keys g))
  (s : 'I_n -> Z -> R) (k0 : keys g).
Hypotheses (facts : heads_facts hd n) (keysE : (Z.of_nat #|{: keys g}| <= Rows.keys hd)%Z)
  (scores_fall : forall a, sharp hd (s a)) (dev : device hd A T)
  (exps : device_exponentials hd A k0 (around s k0) e) (sumd : summed e over).
Let t := Rows.sums_of hd. Let r := Z.to_nat (Rows.reach hd).
Let w := computed_softmax A T reciprocal e over.
Lemma head_weights_le :
  [/\ \sum_k Rabs (w k - softmax (around s k0) k) <= dyadic (Rows.off hd t n),
    \big[Rplus/0]_(k | ~~ cube k0 r k) Rabs (w k) <= dyadic (Rows.far_weights hd t n),
    1 - softmax (around s k0) k0 <= dyadic (Rows.leak t n),
    (Z.of_nat #|cube k0 r| <= Rows.count hd n)%Z & (0 <= Rows.leak t n)%Z].
Proof.
have [m [[mz mo sh l0] [fs f0 fc cnt]]] :=
  box_facts (alpha_pos facts) (reach_ge0 facts) (score_range facts)
  (kept_part facts) (step_lt1 facts) (far_falls facts) k0 scores_fall.
have fnear : cube k0 r k0 by apply/forallP => a; rewrite Z.sub_diag /=; apply/Z.leb_spec0; lia.
have [W F] := weights_off facts keysE cnt fnear (score_near k0 scores_fall)
  (score_le0 k0 scores_fall) mz mo sh l0 fs f0 fc reciprocal dev exps sumd.
by split.
Qed.
Let off0 : 0 <= dyadic (Rows.off hd t n).
Proof. by have [W _ _ _ _] := head_weights_le; apply: Rle_trans W; apply: rsum_ge0 => k _;
  exact: Rabs_pos. Qed.
Let far0 : 0 <= dyadic (Rows.far_weights hd t n).
Proof. by have [_ F _ _ _] := head_weights_le; apply: Rle_trans F; apply: rsum_ge0 => k _;
  exact: Rabs_pos. Qed.
Variables (X : pixels g -> 'I_(G * ci) -> reals) (rz : Z).
Hypotheses (radius0 : (0 <= rz)%Z) (small : forall k c, Rabs (zero_pad X k c) <= dyadic rz).
Let leak_rz := Rows.mul (Rows.leak t n) rz.
Let rb : below (dyadic rz) rz. Proof. by split; [exact: val_ge0 | exact: Rle_refl]. Qed.
Let leakz : below (dyadic (Rows.leak t n) * dyadic rz) leak_rz.
Proof.
apply: below_mul rb; split; last exact: Rle_refl.
by have [_ _ _ _ l0] := head_weights_le; exact: val_ge0.
Qed.
Lemma head_error_ge0 : 0 <= 2 * dyadic leak_rz + dyadic (Rows.mean_error hd t n rz).
Proof.
have [l0 l1] := leakz; have [_ m0] := mean_error_ge0 facts off0 far0 rb; rewrite -/t in m0; lra.
Qed.
Lemma head_mean_le way (mix : order (keys g)) c : setting_within way (Rows.mean hd) ->
  may_count way (cube k0 r) w -> as_set way w (fun k => zero_pad X k c) 0 mix ->
  Rabs (computed way w (fun k => zero_pad X k c) 0 mix - zero_pad X k0 c)
  <= 2 * dyadic leak_rz + dyadic (Rows.mean_error hd t n rz).
Proof.
move=> within may as_mix; have [W F sh cnt l0] := head_weights_le.
have oz : below (dyadic (Rows.off hd t n)) (Rows.off hd t n) by split=> //; exact: Rle_refl.
have farz : below (dyadic (Rows.far_weights hd t n)) (Rows.far_weights hd t n).
  by split=> //; exact: Rle_refl.
have cntz : (Z.of_nat #|cube k0 r| <= Rows.terms (Rows.mean hd))%Z
  by exact: Z.le_trans cnt (count_terms facts).
have [as_wide within_wide] := wide_as_set as_mix within (mean_setting facts) cntz.
have p0 k : 0 <= softmax (around s k0) k by apply/Rlt_le/softmax_gt0.
have M := mixing as_wide may (wide_counts_le way #|cube k0 r|) p0 (softmax_sum1 _ k0) W F
  (fun k => small k c).
have L := leaked_le small c sh (val_ge0 radius0); have [lim _] := as_wide.
have cc : (Z.of_nat #|cube k0 r| <= Rows.count hd n <= Rows.terms (Rows.mean hd))%Z by split=> //;
  exact: count_terms facts.
have few := below_few lim within_wide (mean_setting facts) cc
  (below_mul (below_add one_below oz) rb) (below_mul farz rb).
have [_ total] := below_add (below_mul (below_add oz farz) rb) few; have [_ leak2] := leakz.
rewrite -[computed way w _ 0 mix]/(computed (wide way #|cube k0 r|) w _ 0 mix) mean_errorE.
move: M L total; rewrite /mixing_bound; set y := computed _ _ _ _ _; set m := \sum_k _ => M L.
have := Rabs_triang (y - m) (m - zero_pad X k0 c); have -> : y - m + (m - zero_pad X k0 c) = y
  - zero_pad X k0 c by ring.
by rewrite valD; lra.
Qed.
End Whole.
(** So the layers differ as [tokens_differ] says. *)
Theorem whole : ROW_whole.
Proof.
move=> z hd n g ok keysE G ci co H f X A T reciprocal s e over
  [fz hsoft apart nE bij within_radius scores_fall dev] exps sumd attention way mix within may
  as_mix token.
have [[w0 b0 r0] [_ _ hf]] := fits_parts fz; rewrite hsoft in hf.
have facts := heads_factsP hf; rewrite apart -nE Nat2Z.id in facts.
have at_target h q : reads q (f h) (key ok q (f h)) by rewrite (readsE ok) eqxx.
pose E := (2 * Rows.mul (Rows.leak (Rows.sums_of hd) n) (Rows.radius z)
  + Rows.mean_error hd (Rows.sums_of hd) n (Rows.radius z))%Z.
have EE : dyadic E = 2 * dyadic (Rows.mul (Rows.leak (Rows.sums_of hd) n) (Rows.radius z))
  + dyadic (Rows.mean_error hd (Rows.sums_of hd) n (Rows.radius z)) by rewrite -valM -valD.
have exps' h q := exps h q _ (at_target h q).
have [h0 _] := some_head ok bij; have [q0 _] := some_query g.
have E0 := head_error_ge0 reciprocal facts keysE (scores_fall h0 q0) dev (exps' h0 q0)
  (sumd h0 q0) r0.
rewrite -EE in E0.
apply: (tokens_differ ok fz bij within_radius (e := dyadic E) (E := E)).
- by split=> //; exact: Rle_refl.
- by rewrite hsoft /Rows.reads apart -nE Nat2Z.id.
move=> h q c; rewrite EE; have -> : seen X q (f h) c = zero_pad X (key ok q (f h)) c
  by rewrite /seen -(@zero_pad_key reals n g ok _ X q (f h) c).
exact: (head_mean_le facts keysE (scores_fall h q) dev (exps' h q) (sumd h q) r0 within_radius
  within (may _ _ _ (at_target h q)) (as_mix h q c)).
Qed.
Section Apart.
Variables (hd : Rows.heads) (R : R) (zR : Z).
Hypotheses (facts : heads_facts hd 1) (rz : below R zR).
Let t := Rows.sums_of hd. Let r := Z.to_nat (Rows.reach hd).
Variables (n : nat) (size : 'I_n -> nat) (k0 : box size).
Variables (A T : arithmetic) (reciprocal : bool) (e : forall a, 'I_(size a) -> Rdefinitions.R)
  (over : forall a, order 'I_(size a)).
Arguments e : clear implicits. Arguments over : clear implicits.
Hypotheses (dev : device hd A T) (keysE : forall a, (Z.of_nat (size a) <= Rows.keys hd)%Z).
Variable s : 'I_n -> Z -> Rdefinitions.R.
Hypothesis sharp : forall a, falls (s a) /\ forall z,
  s a z <= - dyadic (Rows.alpha hd) * IZR (z * z).
Hypothesis exps : forall a, device_exponentials hd A (k0 a) (axis_of (k0 a) (s a)) (e a).
Hypothesis sumd : forall a, summed (e a) (over a).
Let w (a : 'I_n) : 'I_(size a) -> Rdefinitions.R := computed_softmax A T reciprocal (e a) (over a).
Arguments w : clear implicits.
Lemma axis_weights_le a :
  [/\ \sum_j Rabs (w a j - softmax (axis_of (k0 a) (s a)) j) <= dyadic (Rows.off hd t 1),
  \big[Rplus/0]_(j | ~~ axis_few hd (k0 a) j) Rabs (w a j) <= dyadic (Rows.far_weights hd t 1)
  & (Z.of_nat #|axis_few hd (k0 a)| <= Rows.count hd 1)%Z].
Proof.
have [m [[mz mo sh l0] [fs f0 fc cnt]]] := axis_facts (k0 a) (sharp a) (alpha_pos facts)
  (reach_ge0 facts) (score_range facts)
  (kept_part facts) (step_lt1 facts) (far_falls facts).
have fnear : axis_few hd (k0 a) (k0 a) by apply/forallP => i; rewrite Z.sub_diag /=;
  apply/Z.leb_spec0; lia.
have zero : axis_of (k0 a) (s a) (k0 a) = 0 by rewrite /axis_of Z.sub_diag; case: (sharp a) => -[].
have low j : axis_of (k0 a) (s a) j <= 0.
  rewrite axis_liftE; apply: around_le0 => i; by case: (sharp a).
have keysK : (Z.of_nat #|'I_(size a)| <= Rows.keys hd)%Z by rewrite card_ord.
have [W F] := weights_off facts keysK cnt fnear zero low mz mo sh l0 fs f0 fc reciprocal dev
  (exps a) (sumd a).
by split.
Qed.
Hypothesis axis0 : 'I_n.
Let oz : below (dyadic (Rows.off hd t 1)) (Rows.off hd t 1).
Proof. split; last exact: Rle_refl; have [W _ _] := axis_weights_le axis0; apply: Rle_trans W;
  apply: rsum_ge0 => k _; exact: Rabs_pos. Qed.
Let farz : below (dyadic (Rows.far_weights hd t 1)) (Rows.far_weights hd t 1).
Proof. split; last exact: Rle_refl; have [_ F _] := axis_weights_le axis0; apply: Rle_trans F;
  apply: rsum_ge0 => k _; exact: Rabs_pos. Qed.
Let counted_le : (0 <= Rows.count hd 1 <= Rows.terms (Rows.mean hd))%Z.
Proof. split; last exact: count_terms facts; apply: Z.pow_nonneg; have := reach_ge0 facts; lia. Qed.
Lemma axis_error_ge0 x z : below x z -> below 0 (Rows.mean_error hd t 1 z).
Proof. by apply: mean_error_ge0 facts _ _; [case: oz | case: farz]. Qed.
Lemma axes_error_ge0 k : below 0 (Rows.axes_error (Rows.mean_error hd t 1) zR k).
Proof.
elim: k => [|k IH] /=; first by rewrite /below val0; lra.
have := below_add IH (axis_error_ge0 (below_add rz IH)); by rewrite Rplus_0_l.
Qed.
Variables (X : box size -> Rdefinitions.R) (y : nat -> box size -> Rdefinitions.R)
  (way : nat -> setting)
  (mix : 'I_n -> box size -> order (box size)).
Hypotheses (within_radius : forall k, Rabs (X k) <= R) (y0 : y 0%N =1 X).
Hypothesis ways : forall a : 'I_n, setting_within (way a) (Rows.mean hd).
Hypothesis may : forall a : 'I_n, may_count (way a) (axis_near hd (k0 a)) (w a).
Hypothesis steps : forall (a : 'I_n) k, as_set (way a) (along (w a) k) (y a) 0 (mix a k) /\
  y a.+1 k = computed (way a) (along (w a) k) (y a) 0 (mix a k).
(** [axes] of AXES.v bounds the mean by a recursion over the axes; the program's recursion is the
    same with larger numbers, by induction. *)
Lemma apart_mean_le k : Rabs (y n k - \big[Rplus/0]_(j : box size) (softmax (around s k0) j * X j))
  <= dyadic (Rows.axes_error (Rows.mean_error hd t 1) zR n).
Proof.
pose N i := if (insub i : option 'I_n) is Some a then #|axis_few hd (k0 a)| else 0%N.
have NE (a : 'I_n) : N a = #|axis_few hd (k0 a)| by rewrite /N valK.
pose way' i := wide (way i) (N i).
have Nz (a : 'I_n) : (Z.of_nat (N a) <= Rows.terms (Rows.mean hd))%Z.
  by rewrite NE; have [_ _ cnt] := axis_weights_le a; exact: Z.le_trans cnt (count_terms facts).
have wide_a (a : 'I_n) q : as_set (way' a) (along (w a) q) (y a) 0 (mix a q) /\
  setting_within (way' a) (Rows.mean hd).
  have [as_a _] := steps a q; have within := ways a.
  exact: (wide_as_set as_a within (mean_setting facts) (Nz a)).
have cond (a : 'I_n) :
  [/\ may_count (way' a) (axis_few hd (k0 a)) (w a), (#|axis_few hd (k0 a)| <= N a <= terms (way'
    a))%N,
    \sum_j Rabs (w a j - softmax (axis_of (k0 a) (s a)) j) <= dyadic (Rows.off hd t 1) &
    \big[Rplus/0]_(j | ~~ axis_few hd (k0 a) j) Rabs (w a j) <= dyadic (Rows.far_weights hd t 1)].
  have [W F _] := axis_weights_le a; split=> //; last by rewrite -NE; exact: wide_counts_le.
  by case: (may a) => [near|[cut0 none]]; [left | right; split=> // j; rewrite axis_fewE => /none].
have step' (a : 'I_n) q : as_set (way' a) (along (w a) q) (y a) 0 (mix a q) /\
    y a.+1 q = computed (way' a) (along (w a) q) (y a) 0 (mix a q).
  by have [_ yE] := steps a q; have [as' _] := wide_a a q.
have := @axes n size (fun a => axis_of (k0 a) (s a)) w (fun a => axis_few hd (k0 a)) X y way' mix N
  (fun _ => dyadic (Rows.off hd t 1)) (fun _ => dyadic (Rows.far_weights hd t 1)) R within_radius
    y0 cond
    step' k.
have scoreE (j : box size) : \sum_a axis_of (k0 a) (s a) (j a) = around s k0 j by [].
have -> : \big[Rplus/0]_(j : box size)
  (softmax (fun j : box size => \sum_a axis_of (k0 a) (s a) (j a)) j * X j)
  = \big[Rplus/0]_(j : box size) (softmax (around s k0) j * X j) by [].
move=> le; apply: Rle_trans le _; set b := fun a => _.
suff H i : (i <= n)%N -> below (axes_error b R i) (Rows.axes_error (Rows.mean_error hd t 1) zR i)
  by case: (H n (leqnn n)).
elim: i => [|i IH] lt /=; first by rewrite /below val0; lra.
have {}IH := IH (ltnW lt); apply: (below_add IH); pose a := Ordinal lt.
have [[lim _] within'] := wide_a a k; have [_ _ cnt] := axis_weights_le a.
have cc : (Z.of_nat (N a) <= Rows.count hd 1 <= Rows.terms (Rows.mean hd))%Z by rewrite NE;
  split=> //;
  exact: count_terms facts.
have sz := below_add rz IH.
have few := below_few lim within' (mean_setting facts) cc (below_mul (below_add one_below oz) sz)
  (below_mul farz sz).
exact: (below_add (below_mul (below_add oz farz) sz) few).
Qed.
End Apart.
(** As for [whole], with a softmax for each axis: their product is the softmax over the box, whose
    leak is that of the box; the means are bounded by [apart_mean]. *)
Theorem apart : ROW_apart.
Proof.
move=> z hd n g ok keysE G ci co H f X A T reciprocal s e over
  [fz hsoft ap nE bij within_radius sharp dev]
  exps sumd attention y way mix ways may y0 steps token tokE.
have [[w0 b0 r0] [_ _ hf]] := fits_parts fz; rewrite hsoft in hf.
have facts := heads_factsP hf; rewrite ap in facts.
pose t := Rows.sums_of hd; pose R := dyadic (Rows.radius z).
have rz : below R (Rows.radius z) by split; [exact: val_ge0 | exact: Rle_refl].
pose E :=
  (2 * Rows.mul (Rows.leak t n) (Rows.radius z) + Rows.axes_error (Rows.mean_error hd t 1)
  (Rows.radius z) n)%Z.
have EE : dyadic E = 2 * dyadic (Rows.mul (Rows.leak t n) (Rows.radius z))
    + dyadic (Rows.axes_error (Rows.mean_error hd t 1) (Rows.radius z) n) by rewrite -valM -valD.
have exps' h q a : let k0 := key ok q (f h) in device_exponentials hd A (k0 a)
  (axis_of (k0 a) (s h q a)) (e h q a).
  by apply: exps; rewrite (readsE ok) eqxx.
have leak h q : let k0 := key ok q (f h) in 1 - softmax (around (s h q) k0) k0
  <= dyadic (Rows.leak t n) /\ (0 <= Rows.leak t n)%Z.
  have [m [[_ _ sh l0] _]] := box_facts (alpha_pos facts) (reach_ge0 facts) (score_range facts)
    (kept_part facts) (step_lt1 facts)
    (far_falls facts) (key ok q (f h)) (sharp h q); by split.
have n0 : (0 < n)%N by have := axes_pos facts; rewrite -nE; case: (n).
have [h0 _] := some_head ok bij; have [q0 _] := some_query g.
have lz : below (dyadic (Rows.leak t n)) (Rows.leak t n) by split;
  [exact: val_ge0 (proj2 (leak h0 q0)) | exact: Rle_refl].
have E0 : 0 <= dyadic E.
  rewrite EE; have [a0 a] := below_mul lz rz;
    have : 0 <= dyadic (Rows.axes_error (Rows.mean_error hd t 1) (Rows.radius z) n); last lra.
  have [_] := axes_error_ge0 facts rz reciprocal dev keysE (sharp h0 q0) (exps' h0 q0) (sumd h0 q0)
    (Ordinal n0) n; exact.
apply: (tokens_differ ok fz bij within_radius (e := dyadic E) (E := E)); first by split=> //;
  exact: Rle_refl.
  by rewrite hsoft /Rows.reads ap -nE Nat2Z.id.
move=> h q c; set k0 := key ok q (f h); have [sh l0] := leak h q; rewrite -/k0 in sh.
have -> : seen X q (f h) c = zero_pad X k0 c
  by rewrite /seen -(@zero_pad_key reals n g ok _ X q (f h) c).
have [k ->] := tokE h q c.
have L := leaked_le within_radius c sh (proj1 rz); have [_ leak2] := below_mul lz rz.
have mayk (a : 'I_n) : may_count (way a) (axis_near hd (k0 a)) (attention h q a).
  by apply: may; rewrite (readsE ok) eqxx.
have M : Rabs
  (y h q c n k - \big[Rplus/0]_(j : keys g) (softmax (around (s h q) k0) j * zero_pad X j c))
    <= dyadic (Rows.axes_error (Rows.mean_error hd t 1) (Rows.radius z) n).
  exact: (apart_mean_le facts rz dev keysE (sharp h q) (exps' h q) (sumd h q) (Ordinal n0)
    (fun k => within_radius k c) (y0 h q c) ways mayk (steps h q c)).
rewrite EE;
  have := Rabs_triang
  (y h q c n k - \big[Rplus/0]_(j : keys g) (softmax (around (s h q) k0) j * zero_pad X j c))
  (\big[Rplus/0]_(j : keys g) (softmax (around (s h q) k0) j * zero_pad X j c) - zero_pad X k0 c).
set m := \big[Rplus/0]_(j : keys g) _ in L M *; have -> : y h q c n k - m + (m - zero_pad X k0 c)
  = y h q c n k - zero_pad X k0 c by ring.
by move: L leak2; rewrite -/R; lra.
Qed.

(** ** Reading *)
Lemma setting_app x s r : Rows.parse_setting x = Some (s, r) -> x = app (Rows.written_setting s) r.
Proof. by do 10! (case: x => [//|? x]); case=> <- <-. Qed.
Lemma heads_app x h r : Rows.parse_heads x = Some (h, r) -> x = app (Rows.written_heads h) r.
Proof.
do 10! (case: x => [//|? x]); rewrite /Rows.parse_heads; case flag: ((_ =? 0) || (_ =? 1))%Z => //.
case E1: (Rows.parse_setting x) => [[f x1]|] //; case E2: (Rows.parse_setting x1) => [[g' x2]|] //
  [<- <-].
rewrite /Rows.written_heads /= (setting_app E1) (setting_app E2) /=.
by move: flag; case: Z.eqb_spec => [->|_]; case: Z.eqb_spec => [->|_].
Qed.
Lemma row_app x z r : Rows.parse x = Some (z, r) -> x = app (Rows.written z) r.
Proof.
case: x => [|[|[p|p|]|p] [|w [|b [|rad x]]]] //=.
case E1: (Rows.parse_setting x) => [[f x1]|] //;
  case E2: (Rows.parse_setting x1) => [[g' [|[|[p|p|]|p] x2]]|] //.
  by case=> <- <-; rewrite /Rows.written /= (setting_app E1) (setting_app E2).
case E3: (Rows.parse_heads x2) => [[h x3]|] // [<- <-].
by rewrite /Rows.written /= (setting_app E1) (setting_app E2) (heads_app E3) /= -?app_assoc.
Qed.
Theorem row_reading : ROW_read.
Proof.
move=> n x bs E; have [rows [a b]] : exists rows, x = concat (List.map Rows.written rows) /\
  bs = List.map Rows.answer rows.
  elim: n x bs E => [|n IH] [|a y] bs;
    [by case=> <-; exists nil | by [] | by case=> <-; exists nil |].
  change (Rows.answers n.+1 (a :: y)) with (match Rows.parse (a :: y) with
    | Some (c, r) => match Rows.answers n r with Some bs => Some (Rows.answer c :: bs) | None =>
      None end | None => None end).
  case E: (Rows.parse (a :: y)) => [[z r]|] //; case E': (Rows.answers n r) => [bs'|] // [<-].
  by have [rows [Er ->]] := IH _ _ E'; exists (z :: rows); rewrite (row_app E) Er.
exists rows; split=> //; split=> // r b'; rewrite /Rows.answer; case: (Rows.modest r) => //=.
by case fz: (Rows.fits r) => // -[<-].
Qed.

(** ** Instance

    One product in float32, with heads that are one-hot: off by less than a millionth; and soft ones
    in the plane with alpha = 5, whose row fits too *)
Definition scaled_power (e : Z) : Z := (2 ^ (256 + e))%Z.
Definition float32_sums (k : Z) : Rows.setting := Rows.Setting (scaled_power (-24)) 0 (scaled_power
  (-24))
  (scaled_power (-150)) 0 (scaled_power (-150)) k k 0 0.
Definition plane : Rows.heads := Rows.Heads 2 true (5 * Rows.one) 3 1024 (scaled_power (-22))
  (scaled_power (-140))
  (scaled_power (-22)) (scaled_power (-120))
  (float32_sums 1024) 0 (float32_sums 1024).
Definition example (hd : option Rows.heads) : Rows.row :=
  Rows.Row Rows.one 0 Rows.one (float32_sums 1) (float32_sums 1) hd.
Local Transparent Rows.one Rows.exp_down Rows.up Rows.mul Rows.geom Rows.sums_of.
(** The costly part, 64 squarings, computed once: kernels without a virtual machine take seconds. *)
Definition plane_ratio : Z :=
  780201890266987354453848478058876387269429498159385993451323957180052816969.
Lemma plane_ratioE : Rows.ratio plane = plane_ratio. Proof. by vm_compute. Qed.
Lemma example_fits : Rows.fits (example None) = true /\ Rows.fits (example (Some plane)) = true.
Proof.
split; first by vm_compute.
lazy beta iota delta [Rows.fits Rows.soft Rows.heads_fit Rows.sums_of example].
by rewrite plane_ratioE; vm_compute.
Qed.
Lemma example_small : (Rows.bound (example None) * 1000000 < Rows.one)%Z.
Proof. by vm_compute. Qed.
Lemma two_power n : (0 <= n)%Z -> IZR (2 ^ n) = power n.
Proof. exact: (IZR_Zpower radix2). Qed.
Lemma one_power : IZR Rows.one = power 256.
Proof. exact: (two_power (n := 256)). Qed.
Local Opaque Rows.one.
Lemma dyadic_bitE e : (-256 <= e)%Z -> dyadic (scaled_power e) = power e.
Proof.
move=> le; have le0 : (0 <= 256 + e)%Z by lia.
rewrite /dyadic one_power (two_power le0) /power /Rdiv -bpow_opp -bpow_plus.
by congr bpow; lia.
Qed.
Lemma dyadic_lt x k : (x * Z.pos k < Rows.one)%Z -> dyadic x < / IZR (Z.pos k).
Proof.
move=> lt; have := val_lt lt; rewrite val1 Z.mul_comm valM => lt1;
  have k0 : 0 < IZR (Z.pos k) by apply: (IZR_lt 0).
apply: (Rmult_lt_reg_l (IZR (Z.pos k))) => //; rewrite Rinv_r; lra.
Qed.
Notation taps_of_g1 := Satisfiable.T.
Definition white : pixels g1 -> 'I_(1 * 1) -> reals := fun _ _ => 1.
(** The layer of Satisfiable.v, whose second product is formed of operands cut to twice what they
    are, or not. *)
Definition doubled : setting := Setting A A (fun z => 2 * z) 1 1 1 0 0.
Lemma plain_within : setting_within (S1 1) (float32_sums 1).
Proof.
by split; [|split]; split; rewrite /= ?dyadic_bitE ?val0 //; exact: Rle_refl.
Qed.
Lemma one_itemE : #|{: taps_of_g1 * 'I_(1 * 1)}| = 1%N. Proof. exact: card_itE. Qed.
Lemma as_plain (w x : taps_of_g1 * 'I_(1 * 1) -> R) : as_set (S1 1) w x 0 (all_of _).
Proof. by have := set1 w x; rewrite one_itemE => /(_ isT). Qed.
Lemma as_doubled (w x : taps_of_g1 * 'I_(1 * 1) -> R) : as_set doubled w x 0 (all_of _).
Proof.
have [[sA sT wd _ sm] [[bias once sz sw sa] [sk _]]] := as_plain w x; split; first by split=> //=;
  lra.
by split; [ | split=> // i; split; have -> : forall y : R, 2 * y - y = 1 * y by move=> y; ring];
  rewrite ?Rabs_mult ?Rabs_R1; try exact: Rle_refl.
Qed.
Lemma padded_onesE (k : keys g1) c : zero_pad white k c = 1.
Proof.
rewrite /zero_pad (big_pred1 (k : pixels g1)) // => i; apply/idP/eqP => [/forallP E|-> ];
  last by apply/forallP => a; rewrite add0n.
by apply/ffunP => a; apply: val_inj; exact/esym/(eqP (E a)).
Qed.
Lemma seen_onesE (q : queries g1) (t : taps g1) c : seen white q t c = 1.
Proof.
have within_radius := padded_onesE; by rewrite /seen -(@zero_pad_key reals _ _ g1_fits _ white q t
  c).
Qed.
Lemma computed_oneE s (x : R) : sums s = A -> stores s = A ->
  in_format (-149) 24 (cutting s 1 * cutting s x) ->
  computed s (fun _ : taps_of_g1 * 'I_(1 * 1) => 1) (fun _ => x) 0 (all_of _)
    = cutting s 1 * cutting s x.
Proof.
move=> sA sT fx; rewrite /computed sA sT /all_of; have : seq.size (enum {: taps_of_g1 * 'I_(1 * 1)})
  = 1%N by rewrite -cardE one_itemE.
case: (enum _) => [|i [|]] //= _; by rewrite Rplus_0_r !rounded_idE //; apply: rounded_format.
Qed.
Definition start : queries g1 := [ffun _ => Ordinal (isT : (0 < 2)%N)].
(** What a bound on these two layers would say. *)
Lemma said_le within reads_taps (z : Rows.row) first second (x : R) : read_exactly within
  reads_taps ->
  Rows.fits z = true ->
  Rows.soft z = None -> 1 <= dyadic (Rows.radius z) -> reads_taps x 1 ->
    within z first second 1 0 ->
  sums first = A -> stores first = A -> sums second = A -> stores second = A ->
  in_format (-149) 24 (cutting first 1 * cutting first 1) ->
    in_format (-149) 24 (cutting second 1 * cutting second x) ->
  (forall w y : taps_of_g1 * 'I_(1 * 1) -> R, as_set first w y 0 (all_of _)) ->
  (forall w y : taps_of_g1 * 'I_(1 * 1) -> R, as_set second w y 0 (all_of _)) ->
  Rabs (cutting second 1 * cutting second x - cutting first 1 * cutting first 1)
    <= dyadic (Rows.bound z).
Proof.
move=> says fz none r1 rx wi a1 a2 a3 a4 f1 f2 s1 s2.
have within_radius k c : Rabs (zero_pad white k c) <= dyadic (Rows.radius z).
  by rewrite padded_onesE Rabs_R1.
have := @says z 1%N g1 g1_fits fz none 1%N 1%N 1%N taps_of_g1 id white id_bij within_radius (fun _ _
  _ =>
  x).
have read h q c : reads_taps x (seen white q (id h) c) by rewrite seen_onesE.
move=> /(_ read w1 b1 first second start ord0 (all_of _) (all_of _)).
have tap1 t (c : 'I_(1 * 1)) : tap w1 t c ord0 = 1 :> R by rewrite /tap /w1 (ord1 c).
have sum1 : \big[Rplus/0]_(t : taps g1) \big[Rplus/0]_(c : 'I_(1 * 1)) Rabs (tap w1 t c ord0) = 1.
  under eq_bigr do under eq_bigr do rewrite tap1 Rabs_R1.
  rewrite (eq_bigr (fun _ => 1)) => [|t _]; last by rewrite big_ord_recl big_ord0 /=; ring.
  by rewrite rsum_constE Satisfiable.taps1 /=; ring.
rewrite sum1 {1}/b1 Rabs_R0 => /(_ wi).
have E1 s y : computed s (fun i : taps_of_g1 * 'I_(1 * 1) => tap w1 i.1 i.2 ord0) y (b1 ord0)
  (all_of _)
  = computed s (fun _ => 1) y 0 (all_of _).
  by apply: evaluate_ext => // i; rewrite tap1.
move=> /(_ (s1 _ _) (s2 _ _)); rewrite !E1.
have E2 : computed first (fun _ => 1) (fun i : taps_of_g1 * 'I_(1 * 1) => seen white start i.1 i.2)
  0
  (all_of _)
  = computed first (fun _ : taps_of_g1 * 'I_(1 * 1) => 1) (fun _ => 1) 0 (all_of _).
  by rewrite /computed; apply: evaluate_ext => i //; exact: seen_onesE.
by rewrite E2 !computed_oneE.
Qed.
Lemma format_small k : (Z.abs k <= 8)%Z -> in_format (-149) 24 (IZR k).
Proof. by move=> le; apply: integer_format => //; lia. Qed.
Definition example_of (w : Z) (second : Rows.setting) : Rows.row :=
  Rows.Row w 0 Rows.one (float32_sums 1) second None.
Theorem instance : Rabs (1 * 1 - 1 * 1) <= dyadic (Rows.bound (example None)).
Proof.
have f1 : in_format (-149) 24 (1 * 1) by rewrite Rmult_1_l; exact: format_small.
apply: (said_le (first := S1 1) (second := S1 1) (x := 1) hard_heads (proj1 example_fits)) => //;
  try exact: as_plain; rewrite ?val1; try exact: Rle_refl.
by split; try exact: plain_within; rewrite ?val1 ?val0; lra.
Qed.

(** ** Mutants

    Either arithmetic may be any, the weights may be any, heads may read anything; and products that
    round down *)
Definition mutant :=
  read_exactly
  (fun z first second S b => [/\ setting_within first (Rows.first z), S <= dyadic (Rows.weights z)
  & b <= dyadic (Rows.bias z)]) eq.
Definition mutant_first :=
  read_exactly
  (fun z first second S b => [/\ setting_within second (Rows.second z), S <= dyadic (Rows.weights z)
  & b <= dyadic (Rows.bias z)]) eq.
Definition mutant_weights :=
  read_exactly (fun z first second S b => [/\ setting_within first (Rows.first z),
  setting_within second (Rows.second z) & b <= dyadic (Rows.bias z)]) eq.
Definition mutant_tokens := read_exactly within_row (fun _ _ => True).
Definition mutant_down := forall x y, dyadic x * dyadic y <= dyadic (x * y / Rows.one).
Lemma one_val_ge1 : 1 <= dyadic Rows.one. Proof. by rewrite val1; exact: Rle_refl. Qed.
Lemma zero_val_ge0 : 0 <= dyadic 0. Proof. by rewrite val0; exact: Rle_refl. Qed.
Lemma bound_lt : dyadic (Rows.bound (example None)) < / 1000000. Proof.
exact: dyadic_lt example_small. Qed.
Lemma f4 : in_format (-149) 24 (2 * 1 * (2 * 1)).
Proof. by rewrite (_ : 2 * 1 * (2 * 1) = IZR 4); [exact: format_small | ring]. Qed.
Lemma f1 : in_format (-149) 24 (1 * 1). Proof. by rewrite Rmult_1_l; exact: format_small. Qed.
Lemma off3 : Rabs (2 * 1 * (2 * 1) - 1 * 1) = 3.
Proof. by rewrite (_ : 2 * 1 * (2 * 1) - 1 * 1 = 3); [rewrite Rabs_pos_eq; lra | ring]. Qed.
Theorem mutant_refuted : ~ mutant.
Proof.
move=> says; have := said_le (first := S1 1) (second := doubled) (x := 1) says
  (proj1 example_fits) erefl.
rewrite off3 => /(_ one_val_ge1 erefl (And3 plain_within one_val_ge1 zero_val_ge0)
  erefl erefl erefl erefl f1 f4 as_plain as_doubled).
by apply: Rlt_not_le; apply: Rlt_trans bound_lt _; lra.
Qed.
Theorem mutant_first_refuted : ~ mutant_first.
Proof.
move=> says; have := said_le (first := doubled) (second := S1 1) (x := 1) says
  (proj1 example_fits) erefl.
rewrite Rabs_minus_sym off3.
move=> /(_ one_val_ge1 erefl (And3 plain_within one_val_ge1 zero_val_ge0)
  erefl erefl erefl erefl f4 f1 as_doubled as_plain).
by apply: Rlt_not_le; apply: Rlt_trans bound_lt _; lra.
Qed.
Definition doubled_sums : Rows.setting := Rows.Setting (scaled_power (-24)) (scaled_power 0)
  (scaled_power (-24))
  (scaled_power (-150)) 0
  (scaled_power (-150)) 1 1 0 0.
Lemma weightless_fits : Rows.fits (example_of 0 doubled_sums) = true /\
  (Rows.bound (example_of 0 doubled_sums) * 2 < Rows.one)%Z.
Proof. by split; vm_compute. Qed.
Theorem mutant_weights_refuted : ~ mutant_weights.
Proof.
move=> says; have := said_le (first := S1 1) (second := doubled) (x := 1) says
  (proj1 weightless_fits) erefl.
have within2 : setting_within doubled doubled_sums.
  by have [[a _ b] c] := plain_within; split=> //; split=> //; rewrite dyadic_bitE //;
    exact: Rle_refl.
rewrite off3 => /(_ one_val_ge1 erefl (And3 plain_within within2 zero_val_ge0)
  erefl erefl erefl erefl f1 f4 as_plain as_doubled).
by apply: Rlt_not_le; apply: Rlt_trans (dyadic_lt (proj2 weightless_fits)) _; lra.
Qed.
Theorem mutant_tokens_refuted : ~ mutant_tokens.
Proof.
move=> says; have := said_le (first := S1 1) (second := S1 1) (x := 0) says (proj1 example_fits)
  erefl.
have f0 : in_format (-149) 24 (1 * 0) by rewrite Rmult_0_r; exact: format_small.
have wi : within_row (example None) (S1 1) (S1 1) 1 0.
  by split; try exact: plain_within; rewrite ?val1 ?val0; exact: Rle_refl.
have -> : 1 * 0 - 1 * 1 = - (1) by ring.
rewrite Rabs_Ropp Rabs_R1 => /(_ one_val_ge1 I wi erefl erefl erefl erefl
  f1 f0 as_plain as_plain).
by apply: Rlt_not_le; apply: Rlt_trans bound_lt _; lra.
Qed.
Theorem mutant_down_refuted : ~ mutant_down.
Proof.
move=> /(_ 1%Z 1%Z); have -> : (1 * 1 / Rows.one = 0)%Z by vm_compute.
rewrite val0; have : 0 < dyadic 1 by apply: Rdiv_lt_0_compat; [lra | exact: IZR_one_gt0].
by nra.
Qed.
