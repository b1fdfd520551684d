(** * A46: Which alpha makes floats one-hot

    Claim: exp(-46) is about 1.05e-20, far above the smallest positive float32, 2^-149 = 1.4e-45:
    the remark mixes 10^-45 with e^-45. At alpha = 46 the target's weight rounds to 1, but the
    others are not 0. An off-target weight rounds to 0 exactly from alpha > k ln 2 on, k = 25
    (float16), 134 (bfloat16), 150 (float32), 1075 (float64); the table's powers of two 64, 128,
    128, 1024 exceed these, with and without gradual underflow.
    Source: Cordonnier et al. 2020, remark on the magnitude of alpha, corrected by this project.
    Does not show: What the exp of a library or a device really returns, which is measured and not
    proved. That a weight rounds to 1 is said of the exact sum; of each order of summation in SOFT.
    *)
From Coq Require Import Reals ZArith Lra Lia.
From Flocq Require Import Core.
From Interval Require Import Float.Specific_stdz Float.Specific_ops Float.Basic Interval.Interval
  Interval.Float.
From Interval Require Import Interval.Float_full Real.Xreal.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Local Open Scope R_scope.

(** ** Exponentials of integers against powers of two, by interval arithmetic on integers

    The tactic [interval] would bring the axioms of primitive floats; the library's functions on [Z]
    do not. *)
Module Floats := SpecificFloat StdZRadix2.
Module Balls := FloatIntervalFull Floats.
Definition bits60 := Floats.PtoP 60.
Definition gap z k := Balls.sub bits60
  (Balls.mul bits60 (Balls.exp bits60 (Balls.fromZ bits60 z)) (Balls.fromZ bits60 (2 ^ k)))
    (Balls.fromZ bits60 1).
Lemma gap_correct z k : contains (Balls.convert (gap z k)) (Xreal (exp (IZR z) * IZR (2 ^ k) - 1)).
Proof.
change (Xreal (exp (IZR z) * IZR (2 ^ k) - 1))
  with (Xsub (Xmul (Xexp (Xreal (IZR z))) (Xreal (IZR (2 ^ k)))) (Xreal 1)).
apply: Balls.sub_correct; last exact: (Balls.fromZ_correct bits60 1).
by apply: Balls.mul_correct; [apply: Balls.exp_correct|]; exact: Balls.fromZ_correct.
Qed.
Lemma sign_strict_lt0 e r : Balls.sign_strict e = Xlt -> contains (Balls.convert e) (Xreal r) ->
  r < 0.
Proof. by move=> sign inside; have := Balls.sign_strict_correct e; rewrite sign => H;
  exact: (proj2 (H _ inside)). Qed.
Lemma exp_lt z k : Balls.sign_strict (gap z k) = Xlt -> exp (IZR z) * IZR (2 ^ k) < 1.
Proof. by move=> sign; have := sign_strict_lt0 _ _ sign (gap_correct z k); lra. Qed.
Lemma exp_gt z k : Balls.sign_strict (Balls.neg (gap z k)) = Xlt -> 1 < exp (IZR z) * IZR (2 ^ k).
Proof. by move=> sign; have := sign_strict_lt0 _ _ sign (Balls.neg_correct _ _ (gap_correct z k));
  rewrite /=; lra. Qed.

Theorem integer_alphas : A46_integers.
Proof. by do ![split];
  ((apply: exp_lt; vm_compute; reflexivity) || (apply: exp_gt; vm_compute; reflexivity)). Qed.

(** ** Rounding

    Up to half the smallest subnormal goes to zero, the tie because zero is even; more does not *)
Section Threshold.
Variables (emin p : Z) (k : positive).
Hypothesis p0 : (0 < p)%Z.
Hypothesis half : (emin - 1 = - Z.pos k)%Z.
Lemma half_power : exp (- (IZR (Z.pos k) * ln 2)) = bpow radix2 (emin - 1).
Proof. by rewrite half bpow_exp opp_IZR; congr exp; rewrite /=; ring. Qed.
Lemma below_is_zero x : Rabs x < bpow radix2 (emin - 1) -> rounded emin p x = 0.
Proof.
move=> lt; case: (Req_dec x 0) => [->|x0]; first by apply: round_0.
apply: (round_N_small radix2 (FLT_exp emin p) _ x (mag radix2 x)).
  by case: (mag radix2 x) => e He /=; exact: He.
have : (mag radix2 x <= emin - 1)%Z by apply: mag_le_bpow.
by rewrite /FLT_exp; lia.
Qed.
Lemma rounded_tie0 : rounded emin p (bpow radix2 (emin - 1)) = 0.
Proof.
have scaled : scaled_mantissa radix2 (FLT_exp emin p) (bpow radix2 (emin - 1)) = / 2.
  rewrite /scaled_mantissa /cexp mag_bpow -bpow_plus /FLT_exp.
  have -> : (emin - 1 + - Z.max (emin - 1 + 1 - p) emin = -1)%Z by lia.
  by [].
rewrite /rounded /Generic_fmt.round scaled /ZnearestE /Znearest.
have floor : Zfloor (/ 2) = 0%Z by apply: Zfloor_imp => /=; lra.
by rewrite floor Rminus_0_r Rcompare_Eq //= /F2R /= Rmult_0_l.
Qed.
Lemma rounded_neq0 x : bpow radix2 (emin - 1) < x -> rounded emin p x <> 0.
Proof.
move=> lt zero; have P : Prec_gt_0 p := p0.
destruct (round_N_pt radix2 (FLT_exp emin p) (fun n => negb (Z.even n)) x) as [_ near].
have G : generic_format radix2 (FLT_exp emin p) (bpow radix2 emin) by apply: generic_format_bpow;
  rewrite /FLT_exp; lia.
have z : Generic_fmt.round radix2 (FLT_exp emin p) ZnearestE x = 0 := zero.
have := near _ G; rewrite z.
have E : bpow radix2 emin = 2 * bpow radix2 (emin - 1).
  replace emin with (1 + (emin - 1))%Z at 1 by ring; rewrite bpow_plus; reflexivity.
rewrite E; have := bpow_gt_0 radix2 (emin - 1) => pos.
by rewrite /Rabs; case: Rcase_abs; case: Rcase_abs; lra.
Qed.
Lemma rounded_exp0P alpha : rounded emin p (exp (- alpha)) = 0 <-> IZR (Z.pos k) * ln 2 <= alpha.
Proof.
split=> [zero|].
  apply: Rnot_lt_le => lt; apply: (rounded_neq0 (exp (- alpha))) zero; rewrite -half_power;
    apply: exp_increasing; lra.
case=> [lt|<-]; last by rewrite half_power; exact: rounded_tie0.
apply: below_is_zero; rewrite Rabs_pos_eq; last exact: Rlt_le (exp_pos _).
by rewrite -half_power; apply: exp_increasing; lra.
Qed.
End Threshold.

Theorem thresholds : A46.
Proof. by split=> alpha; apply: rounded_exp0P. Qed.

Theorem remark : A46_remark.
Proof.
have more : 1 < exp (-46) * IZR (2 ^ 149) by apply: exp_gt; vm_compute.
split=> //; apply: (rounded_neq0 (-149) 24 150) => //.
suff : / IZR (2 ^ 150) < exp (-46) by [].
have := more; have -> : IZR (2 ^ 150) = 2 * IZR (2 ^ 149) by rewrite -mult_IZR.
have : 0 < IZR (2 ^ 149) by apply: IZR_lt.
move: (IZR (2 ^ 149)) => y y0 big; apply: (Rmult_lt_reg_r (2 * y)); first lra.
by rewrite Rinv_l; lra.
Qed.

(** ** The softmax in float32 *)
Lemma float32_intE z : (Z.abs z <= 1)%Z -> float32 (IZR z) = IZR z.
Proof.
move=> small; apply: round_generic; apply: generic_format_FLT.
by exists (Flocq.Core.Defs.Float radix2 z 0); rewrite /F2R /= ?Rmult_1_r //; lia.
Qed.
Lemma float_sum_targetE (K : eqType) (w : K -> R) (target : K) (order : seq K) : uniq order ->
  w target = 1 ->
  (forall k, k != target -> w k = 0) -> float_sum [seq w k | k <- order]
    = if target \in order then 1 else 0.
Proof.
move=> + w1 w0; elim: order => //= k order IH /andP [new uniq]; rewrite IH // in_cons.
case: (eqVneq k target) => [E|ne]; last by rewrite w0 // Rplus_0_l /=; case: ifP => _;
  exact: float32_intE.
by rewrite E in new *; rewrite w1 ?eqxx (negbTE new) Rplus_0_r; exact: float32_intE.
Qed.
Theorem exactly_one_hot : A46_softmax.
Proof.
move=> K s target order perm top low k; rewrite /float_softmax.
pose w j := float32 (exp (s j)).
have w1 : w target = 1 by rewrite /w top exp_0; exact: float32_intE.
have w0 j : j != target -> w j = 0.
  move=> ne; rewrite /w -[s j]Ropp_involutive; have [_ of_float32 _ _] := thresholds.
  by apply/of_float32; have := low j ne; lra.
rewrite (float_sum_targetE K w target) ?(perm_uniq perm) ?enum_uniq //
  (perm_mem perm) mem_enum inE -/(w k) /one_hot.
case: (eqVneq k target) => [->|ne]; first by rewrite w1 /Rdiv Rinv_1 Rmult_1_r; exact: float32_intE.
by rewrite w0 // /Rdiv Rmult_0_l; exact: float32_intE.
Qed.

(** ** Instance: two neighbours at alpha = 104, in float32: exactly 1 and 0 *)
Theorem instance : float_softmax (fun k : bool => if k then 0 else - 104) [:: true; false] true = 1
  /\ float_softmax (fun k : bool => if k then 0 else - 104) [:: true; false] false = 0.
Proof.
have low (k : bool) : k != true -> (if k then 0 else - 104) <= - (150 * ln 2).
  case: k => // _; have [_ [[lt _] _]] := integer_alphas; suff : 150 * ln 2 < 104 by lra.
  apply: exp_lt_inv; have -> : exp (150 * ln 2) = IZR (2 ^ 150).
    have -> : IZR (2 ^ 150) = bpow radix2 150 by [].
    by rewrite bpow_exp; congr exp; rewrite /=; ring.
  have := exp_pos 104; have E : exp 104 * exp (-104) = 1 by rewrite -exp_plus -[RHS]exp_0;
    congr exp; ring.
  by move: (IZR (2 ^ 150)) lt (exp_pos (-104)) E => y;
    move: (exp (-104)) (exp 104) => u v lt u0 E v0; nra.
have perm : perm_eq [:: true; false] (enum bool_finType) by apply: uniq_perm;
  rewrite ?enum_uniq // => -[]; rewrite mem_enum.
split; last by rewrite (exactly_one_hot bool_finType _ true _ perm erefl low).
by rewrite (exactly_one_hot bool_finType _ true _ perm erefl low).
Qed.

(** ** Mutants

    alpha = 46 suffices, as the paper says; thresholds that are a binary digit too low *)
Definition mutant := forall alpha, 46 <= alpha -> float32 (exp (- alpha)) = 0.
Theorem mutant_refuted : ~ mutant.
Proof. by have [_ nonzero] := remark => /(_ 46 (Rle_refl _)). Qed.
Lemma smallest_stays emin p (k : positive) : (0 < p)%Z -> (emin = - Z.pos k)%Z ->
  ~ zero_from (rounded emin p) (IZR (Z.pos k)).
Proof.
move=> p0 E /(_ (IZR (Z.pos k) * ln 2)) [_ /(_ (Rle_refl _))].
have -> : exp (- (IZR (Z.pos k) * ln 2)) = bpow radix2 emin.
  by rewrite E bpow_exp opp_IZR; congr exp; rewrite /=; ring.
have P : Prec_gt_0 p := p0; rewrite /rounded round_generic.
  by have := bpow_gt_0 radix2 emin; lra.
by apply: generic_format_bpow; rewrite /FLT_exp; lia.
Qed.
Definition mutant_float64 := zero_from float64 1074.
Definition mutant_float32 := zero_from float32 149.
Definition mutant_bfloat16 := zero_from bfloat16 133.
Definition mutant_float16 := zero_from float16 24.
Theorem mutant_float64_refuted : ~ mutant_float64. Proof. exact: smallest_stays. Qed.
Theorem mutant_float32_refuted : ~ mutant_float32. Proof. exact: smallest_stays. Qed.
Theorem mutant_bfloat16_refuted : ~ mutant_bfloat16. Proof. exact: smallest_stays. Qed.
Theorem mutant_float16_refuted : ~ mutant_float16. Proof. exact: smallest_stays. Qed.
