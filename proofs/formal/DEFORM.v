(** * DEFORM: Heads whose centre moves with the content

    Claim: The score -alpha |delta - Delta|^2 + q.(W delta), the quadratic encoding with the
    content-position term of Eq. (8), is -alpha |delta - c(q)|^2 up to a constant of the query: a
    quadratic head with the centre c(q) = Delta + W'q / (2 alpha), an affine function of the query's
    channels. Where the moved centre is a key, at most the leak of L2c is lost. So as alpha grows,
    and W with it, the head reads that pixel: a deformable convolution whose offsets are a 1 x 1
    convolution, sampled at whole pixels. Between pixels it is a Gaussian mean, not bilinear.
    Source: this project; Cordonnier et al. 2020, Eq. (8) and Sec. 6; Dai et al. 2017, deformable
    convolutions.
    Does not show: Offsets that a wider layer computes; the rounding of moved centres, which floats
    do not hold exactly. *)
From Coq Require Import Reals Lra Lia ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L2a PAD L2c T1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Completing the square *)
Lemma moving_scoreE n (Cin : finType) alpha offset (Wqry : Cin -> 'I_n -> R) xq xk delta :
  moving_score alpha offset Wqry xq xk delta
  = \sum_a (pushed Wqry xq a * delta a - alpha * (delta a * delta a)
            + 2 * alpha * offset a * delta a).
Proof.
rewrite /moving_score /score; set r := @encoding reals n delta.
have pick e : \sum_p r p * @identity reals _ p e = r e.
  by rewrite -[RHS](@sum_pickE reals _ e r); apply: eq_bigr => p _; rewrite /= Rmult_comm.
have none (x : Cin -> R) : \sum_c x c * 0 = 0 by apply: big1 => c _; rewrite Rmult_0_r.
have no_key (w : option 'I_n -> R) : \sum_e w e * (\sum_c xk c * 0) = 0.
  by apply: big1 => e _; rewrite none Rmult_0_r.
rewrite [X in add (add (add X _) _) _]no_key [X in add (add _ X) _]no_key.
rewrite [X in add _ X](eq_bigr (fun e => @direction reals n alpha offset e * r e));
  last by move=> e _; rewrite [X in mul _ X]pick.
rewrite [X in add (add (add _ X) _) _](eq_bigr (fun e => (\sum_c xq c
  * (if e is Some a then Wqry c a else 0)) * r e)); last by move=> e _; rewrite [X in mul _ X]pick.
rewrite /= !rsum_optionE /= none /squared_norm /=.
transitivity (\sum_a pushed Wqry xq a * delta a + (- alpha * (\sum_a delta a * delta a)
  + \sum_a alpha * ((1 + 1) * offset a) * delta a)).
  by rewrite Rmult_0_l !Rplus_0_l Rplus_0_r.
by rewrite big_distrr -!big_split /=; apply: eq_bigr => a _ /=; ring.
Qed.
Theorem moved_square : DEFORM.
Proof.
move=> n Cin alpha offset Wqry xq xk delta a0; rewrite moving_scoreE /centred_square /squared_norm.
set c := fun a => moved_by alpha (offset a) (pushed Wqry xq a).
change (\sum_a (pushed Wqry xq a * delta a - alpha * (delta a * delta a)
            + 2 * alpha * offset a * delta a)
  = - alpha * (\sum_a (delta a - c a) * (delta a - c a) - \sum_a c a * c a)).
rewrite rsum_minus big_distrr; apply: eq_bigr => a _ /=.
by rewrite /c /moved_by; field; lra.
Qed.
(** The softmax drops the square of the centre. *)
Theorem gaussian_head : DEFORM_gaussian.
Proof.
move=> n K Cin pos alpha offset Wqry xq X query k a0; rewrite /moving_head /gaussian.
set c := fun a => moved_by alpha (offset a) (pushed Wqry xq a).
rewrite -[RHS](softmax_shift _ (alpha * \sum_a c a * c a)); apply: softmax_ext => j.
rewrite moving_scoreE -[RHS]/(- alpha * _ + _) !big_distrr -big_split /=; apply: eq_bigr => a _.
by rewrite minus_IZR /c /moved_by /=; field; lra.
Qed.

(** ** The leak: with a whole centre it is the head of L2c *)
Lemma whole_centreE n (K Cin : finType) (pos : K -> point n) alpha offset
    (Wqry : Cin -> 'I_n -> R) xq X (query m : point n) : 0 < alpha ->
  (forall a, IZR (query a) + moved_by alpha (offset a) (pushed Wqry xq a) = IZR (m a)) ->
  moving_head pos alpha offset Wqry xq X query =1 quadratic_head pos alpha m.
Proof.
move=> a0 whole k; rewrite gaussian_head //; apply: softmax_ext => j; congr (_ * _).
by rewrite IZR_sum; apply: eq_bigr => a _; rewrite whole mult_IZR minus_IZR.
Qed.
Theorem moved_leak : DEFORM_leak.
Proof.
move=> n alpha a0 lo hi K pos inj ins Cin offset Wqry xq X query m nearest whole E.
by rewrite (whole_centreE pos X a0 whole) /=; exact: (share_of_clamp a0 inj ins E).
Qed.

(** ** The layer *)
Section Layer.
Variables (n : nat) (g : geometry n).
Hypothesis ok : fits g.
Definition moved_to (q : queries g) (t : taps g) (moved : point n) : point n :=
  fun a => (site q a + offset t a + moved a)%Z.
Lemma in_box (k : keys g) : inside (fun _ => 0%Z) (last_key g) (position k).
Proof. by move=> a; rewrite /position /last_key; have /ltP := ltn_ord (k a); lia. Qed.
Lemma clamp_lt (x : point n) a :
  (Z.to_nat (clamp (fun _ => 0%Z) (last_key g) x a) < padded g a)%N.
Proof.
have [_ _ _] := ok a; move: (leq0n (dilation g a * (kernel g a - 1))) => /leq_ltn_trans le /le.
by move=> /ltP p0; apply/ltP; rewrite /clamp /last_key; lia.
Qed.
Definition nearest_key (x : point n) : keys g := [ffun a => Ordinal (clamp_lt x a)].
Lemma nearest_keyE x : position (nearest_key x) =1 clamp (fun _ => 0%Z) (last_key g) x.
Proof.
move=> a; rewrite /position ffunE /= Z2Nat.id // /clamp; lia.
Qed.
Lemma reads_movedE q t moved k :
  reads_moved q t moved k = (k == nearest_key (moved_to q t moved)).
Proof.
apply/forallP/eqP => [E|-> a]; last by rewrite nearest_keyE Z.eqb_refl.
by apply: keys_grid => a; rewrite nearest_keyE; exact/Z.eqb_eq/E.
Qed.
End Layer.
(** Head by head: it leaks as the head of L2c does, around the key that its moved tap reads, and
    [T1.leak_le] adds the leaks up. *)
Theorem moving_layer : DEFORM_layer.
Proof.
move=> n g ok G ci co H D f Wval Wout weight b bij W alpha a0 Wmove Xq Z range spread q o moved
  whole.
pose p h := moving_heads alpha f Wmove Xq Z h q.
pose w h (c : 'I_(G * ci)) : R := tap weight (f h) c o.
pose target h := nearest_key ok (moved_to q (f h) (moved (f h))).
have Es : mhsa (moving_heads alpha f Wmove Xq Z : H -> _ -> _ -> reals) Wval Wout b Z q o
  = soft p w Z + b o.
  by rewrite mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite W.
have Eh : deformable_conv weight b Z moved q o = sharp_layer target w Z + b o.
  rewrite /deformable_conv [X in X + _](reindex f) /=; last exact: onW_bij.
  congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _.
  by rewrite (big_pred1 (target h)) => [|k]; last exact: reads_movedE.
rewrite Es Eh; have -> : forall s t u : R, s + u - (t + u) = s - t by move=> s t u; ring.
have p_ge0 h k : 0 <= p h k by apply: Rlt_le; exact: softmax_gt0.
have p_sum1 h : \sum_k p h k = 1 by exact: softmax_sum1 (target h).
apply: Rle_trans (leak_le target w p_ge0 p_sum1 spread) _.
rewrite [X in _ <= _ * X](reindex f) /=; last exact: onW_bij.
rewrite big_distrr /=; apply: rsum_le => h _; apply: Rmult_le_compat_r.
  apply: rsum_ge0 => c _; apply: Rmult_le_pos; last exact: Rabs_pos.
  by apply: Rle_trans (spread c (target h) (target h)); exact: Rabs_pos.
suff : / theta_bound alpha ^ n <= p h (target h) by lra.
apply: (moved_leak a0 (@keys_grid n g) (@in_box n g) Z (m := moved_to q (f h) (moved (f h))));
  last exact: nearest_keyE.
move=> a; rewrite /moved_to /moved_by !plus_IZR -whole.
have -> : pushed (fun c a' => 2 * alpha * Wmove (f h) c a') (Xq q) a
  = 2 * alpha * pushed (Wmove (f h)) (Xq q) a.
  by rewrite /pushed big_distrr; apply: eq_bigr => c _ /=; ring.
by field; lra.
Qed.

(** Where no head is moved, it is the layer of Theorem 1. *)
Lemma unmoved leak : deforms_within leak -> tokens_within leak.
Proof.
move=> all n g ok G ci co H D f Wval Wout weight b bij W alpha a0 Xq Z range spread q o.
have none t a : pushed (fun (_ : 'I_(G * ci)) (_ : 'I_n) => 0) (Xq q) a
  = IZR ((fun (_ : taps g) (_ : 'I_n) => 0%Z) t a).
  by rewrite /pushed big1 // => c _; rewrite Rmult_0_r.
have at_key t : nearest_key ok (moved_to q t (fun _ => 0%Z)) = key ok q t.
  have /sites E : reads q t (key ok q t) by rewrite (readsE ok).
  apply: keys_grid => a; rewrite nearest_keyE /clamp /moved_to.
  by have := in_box (key ok q t) a; have := E a; lia.
have := all n g ok G ci co H D f Wval Wout weight b bij W alpha a0 (fun _ _ _ => 0) Xq Z range
  spread q o (fun _ _ => 0%Z) none.
have -> : deformable_conv weight b Z (fun _ _ => 0%Z) q o = conv_of_keys weight b Z q o.
  rewrite /deformable_conv /conv_of_keys; congr (_ + _); apply: eq_bigr => t _.
  rewrite [RHS]big_mkcond; apply: eq_bigr => c _; rewrite /tap.
  rewrite (eq_bigl (reads q t)) => [|k]; last by rewrite reads_movedE at_key (readsE ok).
  by case: eqP => // _; exact: Rmult_0_r.
have -> : mhsa (moving_heads alpha f (fun _ _ _ => 0) Xq Z : H -> _ -> _ -> reals) Wval Wout b Z q o
  = mhsa (converted alpha f Xq Z : H -> _ -> _ -> reals) Wval Wout b Z q o; last by [].
rewrite !mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _; congr (_ * _).
apply: eq_bigr => k _; congr (_ * _); rewrite (convertedE ok).
apply: whole_centreE => // a.
have /sites /(_ a) E : reads q (f h) (key ok q (f h)) by rewrite (readsE ok).
have -> : position (key ok q (f h)) a = (site q a + offset (f h) a)%Z by lia.
have -> : pushed (fun (c : 'I_(G * ci)) (a : 'I_n) => 2 * alpha * 0) (Xq q) a = 0.
  by rewrite /pushed big1 // => c' _; rewrite Rmult_0_r Rmult_0_r.
by rewrite /moved_by plus_IZR /Rdiv Rmult_0_l Rplus_0_r.
Qed.

(** ** Instances

    One channel of value 3, weighed by 4 at alpha = 2, moves the centre from 1 to 4. A head a
    quarter between two pixels, at alpha = 2 ln 4, gives the second a fifth. In the plane, two
    channels that say where to look, weighed by 2 ln 3: the pixel that a query names gets at least a
    quarter. A layer on images leaks at most three quarters. *)
Theorem instance_square (xk : unit -> R) : moving_score 2 (fun _ : 'I_1 => 1)
  (fun (_ : unit) _ => 4) (fun _ => 3) xk (fun _ => 5) = -2 * ((5 - 4) * (5 - 4) - 4 * 4).
Proof.
rewrite (moved_square _ _ _ _ _ Rlt_0_2) /centred_square /squared_norm.
by rewrite !big_ord_recl !big_ord0 /moved_by /pushed !rsum_unitE /=; field.
Qed.
(** Two pixels, and a centre at [u] between them. *)
Lemma two_pixels alpha (centre : 'I_1 -> R) u : (forall a, centre a = u) ->
  gaussian pixel alpha centre true = / (1 + exp (alpha * (1 - 2 * u))).
Proof.
move=> at_u; rewrite /gaussian -(softmax_shift _ (alpha * ((1 - u) * (1 - u)))) -slope_shareE.
by apply: softmax_ext; case; rewrite big_ord_recl big_ord0 at_u /pixel /slope /=; ring.
Qed.
Theorem instance_gaussian : moving_head pixel (2 * ln 4) (fun _ => / 4) (fun (_ : unit) _ => 0)
  (fun _ => 0) (fun _ _ => 0) (fun _ => 0%Z) true = / 5.
Proof.
have a0 : 0 < 2 * ln 4 by have := ln4_gt0; lra.
rewrite gaussian_head // (two_pixels _ (u := / 4)).
  have -> : 2 * ln 4 * (1 - 2 * / 4) = ln 4 by field.
  by rewrite exp_ln; [congr (/ _) | ]; lra.
by move=> a; rewrite /moved_by /pushed rsum_unitE; field; lra.
Qed.
Theorem instance : forall (lo hi : point 2) (K : finType) (pos : K -> point 2), grid pos ->
  (forall k, inside lo hi (pos k)) -> forall (query named : point 2) target (X : K -> 'I_2 -> R),
  pos target =1 clamp lo hi (fun a => query a + named a)%Z ->
  / 4 <= moving_head pos (ln 3) (fun _ => 0) (fun c a => if c == a then 2 * ln 3 else 0)
    (fun c => IZR (named c)) X query target.
Proof.
move=> lo hi K pos inj ins query named target X E; have l3 : 0 < ln 3 by apply: ln_gt0; lra.
have -> : 4 = theta_bound (ln 3) ^ 2 by rewrite /theta_bound exp_ln; [field | lra].
apply: (moved_leak l3 inj ins X (m := fun a => (query a + named a)%Z)) E => a.
rewrite plus_IZR /moved_by /pushed (bigD1 a) //= eqxx big1 => [|c /negbTE ->]; last by ring.
by field; lra.
Qed.

Theorem instance_layer : forall (g : geometry 2), fits g ->
  forall (Wval : taps g -> 'I_(1 * 1) -> unit -> reals)
    (Wout : taps g -> unit -> 'I_(1 * 1) -> reals)
    (weight : 'I_(1 * 1) -> nat -> taps g -> reals) (b : 'I_(1 * 1) -> reals),
  (forall h c o, merged Wval Wout h c o = tap weight h c o) ->
  forall (Z : keys g -> 'I_(1 * 1) -> reals) (range : 'I_(1 * 1) -> R),
  (forall c k k', Rabs (Z k c - Z k' c) <= range c) -> forall q o,
  Rabs (mhsa (moving_heads (ln 3) id (fun _ _ _ => 1) (fun _ _ => 2) Z : taps g -> _ -> _ -> reals)
      Wval Wout b Z q o - deformable_conv weight b Z (fun _ _ => 2%Z) q o)
  <= 3 / 4 * \sum_t \sum_c range c * Rabs (tap weight t c o).
Proof.
move=> g ok Wval Wout weight b W Z range spread q o.
have bij : bijective (@id (taps g)) by exists id.
have l3 : 0 < ln 3 by apply: ln_gt0; lra.
have two (t : taps g) (a : 'I_2) : pushed (fun (_ : 'I_(1 * 1)) (_ : 'I_2) => 1) (fun _ => 2) a
  = IZR ((fun (_ : taps g) (_ : 'I_2) => 2%Z) t a).
  by rewrite /pushed big_ord_recl big_ord0 /=; ring.
have := moving_layer ok b bij W l3 spread o (q := q) (Xq := fun _ _ => 2) two.
rewrite /theta_bound exp_ln; last lra.
by have -> : 1 - / (1 + 2 / (3 - 1)) ^ 2 = 3 / 4 by field.
Qed.

(** ** Mutants

    A centre that moves by twice as much, or the other way; the square of the centre forgotten; the
    share of a whole centre for one between two pixels; bilinear weights; a layer without a leak, or
    with that of one axis fewer *)
Lemma one_axis centre expected : scores_around centre expected ->
  let push := pushed (fun (_ : unit) (_ : 'I_1) => 2) (fun _ => 1) in
  \sum_a (push a - 1 + 2 * 0) = expected 1%N 1 (fun a => centre 1 0 (push a)) (fun _ => 1).
Proof.
move=> /(_ 1%N _ 1 (fun _ => 0) (fun (_ : unit) _ => 2) (fun _ => 1) (fun _ => 0) (fun _ => 1)
  Rlt_0_1) E push; apply: eq_trans E; rewrite moving_scoreE; apply: eq_bigr => a _.
rewrite -/push; ring.
Qed.
Definition mutant := scores_around (fun alpha offset push => offset + push / alpha)
  (@centred_square reals).
Definition mutant_sign := scores_around (fun alpha offset push => offset - push / (2 * alpha))
  (@centred_square reals).
Definition mutant_constant := scores_around moved_by (fun n alpha centre delta =>
  - alpha * @squared_norm reals n (fun a => delta a - centre a)).
Ltac at_one := move=> /one_axis; rewrite /moved_by /centred_square /squared_norm /pushed
  !big_ord_recl !big_ord0 /= !rsum_unitE; lra.
Theorem mutant_refuted : ~ mutant. Proof. at_one. Qed.
Theorem mutant_sign_refuted : ~ mutant_sign. Proof. at_one. Qed.
Theorem mutant_constant_refuted : ~ mutant_constant. Proof. at_one. Qed.
Definition mutant_between := share_around (fun centre m => Rabs (centre - IZR m) <= / 2)
  (fun n alpha => theta_bound alpha ^ n).
Theorem mutant_between_refuted : ~ mutant_between.
Proof.
have inj : grid pixel by move=> [] [] // /(_ ord0).
have ins k : inside (fun _ => 0%Z) (fun _ => 1%Z) (pixel k) by case: k => a; rewrite /pixel; lia.
move=> /(_ 1%N _ ln4_gt0 _ _ _ _ inj ins _ (fun _ => / 2) (fun (_ : unit) _ => 0) (fun _ => 0)
  (fun _ _ => 0) (fun _ => 0%Z) (fun _ => 1%Z) true).
have l4 := ln4_gt0; rewrite gaussian_head // (two_pixels _ (u := / 2)); last first.
  by move=> a; rewrite /moved_by /pushed rsum_unitE; field; lra.
have -> : ln 4 * (1 - 2 * / 2) = 0 by field.
rewrite exp_0 /theta_bound exp_ln; last lra.
have half a : Rabs (0 + moved_by (ln 4) (/ 2) (pushed (fun (_ : unit) (_ : 'I_1) => 0)
  (fun _ => 0) a) - 1) <= / 2.
  rewrite /moved_by /pushed rsum_unitE; have -> : 0 + (/ 2 + 0 * 0 / (2 * ln 4)) - 1 = - / 2.
    by field; have := ln4_gt0; lra.
  by rewrite Rabs_Ropp Rabs_pos_eq; lra.
by move=> /(_ half (frefl _)); rewrite /=; lra.
Qed.
Definition mutant_bilinear := attends_as (fun K n pos alpha centre k =>
  \prod_a Rmax 0 (1 - Rabs (IZR (pos k a) - centre a))).
Theorem mutant_bilinear_refuted : ~ mutant_bilinear.
Proof.
have a0 : 0 < 2 * ln 4 by have := ln4_gt0; lra.
move=> /(_ 1%N _ _ pixel _ (fun _ => / 4) (fun (_ : unit) _ => 0) (fun _ => 0) (fun _ _ => 0)
  (fun _ => 0%Z) true a0); rewrite instance_gaussian.
rewrite big_ord_recl big_ord0 /moved_by /pushed rsum_unitE /pixel.
have -> : 1 - (0 + (/ 4 + 0 * 0 / (2 * (2 * ln 4)))) = 3 / 4 by field; lra.
by rewrite Rabs_pos_eq ?Rmax_right; lra.
Qed.
Definition mutant_no_leak := deforms_within (fun _ _ => 0).
Theorem mutant_no_leak_refuted : ~ mutant_no_leak.
Proof. by move=> /unmoved /zero_padding_of /T1.mutant_no_leak_refuted. Qed.
Definition mutant_fewer_axes := deforms_within (fun alpha n => 1 - / theta_bound alpha ^ n.-1).
Theorem mutant_fewer_axes_refuted : ~ mutant_fewer_axes.
Proof. by move=> /unmoved /zero_padding_of /T1.mutant_fewer_axes_refuted. Qed.
