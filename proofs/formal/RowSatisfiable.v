(** * ROW: all premises of ROW_whole and of ROW_apart are met together, and a row must fit

    Soft heads on two pixels, a neighbour of weight 2^-30, float32. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Checker Rows.
From C2A Require Import Statements Sums L1 FLOAT SOFT Satisfiable ROW.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.
Definition line_heads (way : bool) (reach exp_lost : Z) : Rows.heads :=
  Rows.Heads 1 way (10 * Rows.one) reach 2 0 0 0 exp_lost (float32_sums 8) 0 (float32_sums 8).
Definition line_row way reach exp_lost : Rows.row := example (Some (line_heads way reach exp_lost)).
Local Transparent Rows.one Rows.exp_down Rows.up Rows.mul Rows.geom Rows.sums_of.
Lemma line_fits : Rows.fits (line_row false 2 0) = true /\ Rows.fits (line_row true 2 0) = true.
Proof. by split; vm_compute. Qed.
(** A reach below 0, which no row that fits has, makes counts of keys, and so bounds, negative. *)
Definition below_nothing : Z := (- 2 ^ 100)%Z.
Lemma line_negative : (Rows.bound (line_row false below_nothing 0) < 0)%Z /\
  (Rows.bound (line_row true below_nothing 0) < 0)%Z.
Proof. by split; vm_compute. Qed.
Local Opaque Rows.one.
Definition s (h : T) (q : queries g1) (a : 'I_1) (x : Z) : R := - (30 * ln 2) * IZR (x * x).
Lemma ln2_ge : 1 / 3 <= ln 2.
Proof.
have lt : exp (1 / 3) <= 2; last first.
  rewrite -(ln_exp (1 / 3)); case: lt => [lt|->]; last by right.
  by left; apply: ln_increasing => //; exact: exp_pos.
apply: Rnot_lt_le => lt; have e3 := exp_le_3.
have E : exp (1 / 3) * exp (1 / 3) * exp (1 / 3) = exp 1 by rewrite -!exp_plus; congr exp; field.
have : 2 * 2 * 2 <= exp (1 / 3) * exp (1 / 3) * exp (1 / 3).
  by apply: Rmult_le_compat; [lra | lra | apply: Rmult_le_compat; lra | lra].
by rewrite E; lra.
Qed.
Section Line.
Variables (way : bool) (reach exp_lost : Z).
Hypothesis lost0 : (0 <= exp_lost)%Z.
Let hd := line_heads way reach exp_lost.
Lemma sharp_s h q a : sharp hd (s h q a).
Proof.
have l := ln2_ge; split; [split=> [|x y xy] | move=> x]; rewrite /s.
- by rewrite Rmult_0_r.
- have le : IZR (x * x) <= IZR (y * y) by apply: IZR_le; nia.
  have -> : (- y * - y = y * y)%Z by ring. have -> : (- x * - x = x * x)%Z by ring.
  by split; nra.
have x0 : 0 <= IZR (x * x) by apply: IZR_le; nia.
have -> : dyadic (Rows.alpha hd) = 10.
  by change (dyadic (10 * Rows.one) = 10); rewrite /dyadic mult_IZR; field; exact: one_neq0.
nra.
Qed.
Lemma aroundE h q target k : reads q (id h) target -> around (s h q) target k = s1 h q k.
Proof.
rewrite (readsE g1_fits) => /eqP ->.
rewrite /around big_ord_recl big_ord0 Rplus_0_r /s /s1 (readsE g1_fits).
set t := key g1_fits q h; case: eqP => [->|ne].
  by rewrite Z.sub_diag Rmult_0_r.
have d : nat_of_ord (k ord0) <> nat_of_ord (t ord0).
  by move=> E; apply: ne; apply/ffunP => a; rewrite (ord1 a); exact: val_inj.
have k2 := ltn_ord (k ord0); have t2 := ltn_ord (t ord0); move: d k2 t2.
rewrite /padded /=.
move: (nat_of_ord (k ord0)) (nat_of_ord (t ord0)) => [|[|x]] [|[|y]] //= _ _ _; ring.
Qed.
Lemma exps (h : T) (q : queries g1) target : reads q (id h) target ->
  device_exponentials hd A target (around (s h q) target) (x1 h q).
Proof.
move=> rd; split; first by rewrite x1E rd.
  move=> k; rewrite x1E; case: ifP => _; split;
    try exact: one_format; try exact: format_power; try lra.
  split; first exact: Rlt_le (power_gt0 _).
  by have -> : 2 = power 1 by []; apply: Flocq.Core.Raux.bpow_le.
move=> k; rewrite (aroundE _ rd) /x1 Rminus_eq_0 Rabs_R0 /= !val0 Rmult_0_l Rplus_0_l exp_0.
apply: Rplus_le_le_0_compat; last exact: val_ge0.
by case: ifP => _; rewrite ?Rplus_0_r; right; ring.
Qed.
Lemma deviceA : device hd A A.
Proof.
have p1 : (1 < 24)%Z by []. have [mA nA] := gradual_laws (-149) p1.
split; [|split]; first
  (by split; [exact: (And3 soundA mA nA) | exact: (And3 soundA mA nA) | exact: one_format]);
  by split; rewrite /= ?dyadic_bitE ?val0 //; exact: Rle_refl.
Qed.
Lemma mean_within : setting_within (S1 #|{: keys g1}|) (Rows.mean hd).
Proof.
rewrite keys2; split; [|split]; split; rewrite /= ?dyadic_bitE ?val0 //; exact: Rle_refl.
Qed.
Lemma within_line : within_row (line_row way reach exp_lost) (S1 1) (S1 1)
  (\sum_t \big[Rplus/0]_(c : 'I_(1 * 1)) Rabs (tap w1 t c ord0)) (Rabs (b1 ord0)).
Proof.
have tap1 t (c : 'I_(1 * 1)) : tap w1 t c ord0 = 1 :> R by rewrite /tap /w1 (ord1 c).
split; try exact: plain_within; last by rewrite /b1 Rabs_R0 /= val0; exact: Rle_refl.
under eq_bigr do under eq_bigr do rewrite tap1 Rabs_R1.
rewrite (eq_bigr (fun _ => 1)) => [|t _]; last by rewrite big_ord_recl big_ord0 /=; ring.
by rewrite rsum_constE Satisfiable.taps1 /= val1; lra.
Qed.
End Line.

(** What a bound for heads mixed at once says of these heads: some two numbers are that near. *)
Lemma whole_says made fit reach exp_lost (x : T -> queries g1 -> keys g1 -> R)
    (says : whole_if made fit) (X : pixels g1 -> 'I_(1 * 1) -> reals) (q0 : queries g1) :
  (forall (h : T) (q : queries g1) target, reads q (id h) target ->
    made (line_heads false reach exp_lost) A _ _ target (s h q) (x h q)) ->
  fit (line_row false reach exp_lost) = true ->
  (forall k c, Rabs (zero_pad X k c) <= 1) ->
  exists computed convolution : R,
    Rabs (computed - convolution) <= dyadic (Rows.bound (line_row false reach exp_lost)).
Proof.
move=> exps fz; rewrite -val1 => bX.
have p1 : (1 < 24)%Z by []. have [mA nA] := gradual_laws (-149) p1.
have keysK : (Z.of_nat #|{: keys g1}| <= Rows.keys (line_heads false reach exp_lost))%Z.
  by rewrite keys2.
have sums_ok (h : T) (q : queries g1) : summed (x h q) (all_of [finType of keys g1]).
  have [_ s2] := all_stored0 [finType of keys g1]; split;
    [exact: all_once | by rewrite all_summandsE; apply/mapP => -[] | exact: s2].
have le2 : (#|[finType of keys g1]| <= 2)%N.
  by have -> : #|[finType of keys g1]| = 2%N by exact: keys2.
have premises : soft_premises fit (line_row false reach exp_lost)
    (line_heads false reach exp_lost) false
    (id : T -> T) X A A s.
  by split=> //; [exact: id_bij | exact: sharp_s | exact: deviceA].
have := says _ _ 1%N g1 g1_fits keysK 1%N 1%N 1%N T id X A A false s x (fun _ _ => all_of _)
  premises exps sums_ok (S1 #|{: keys g1}|) (fun _ _ _ => all_of _) (mean_within _ _ _)
  (fun _ _ _ _ => or_introl nA) (fun h q c => set1 _ _ le2).
move=> /(_ w1 b1 (S1 1) (S1 1) q0 ord0 (all_of _) (all_of _) (within_line _ _ _)) near.
by eexists; eexists; apply: near; exact: as_plain.
Qed.
Definition first_query : queries g1 := [ffun _ => Ordinal (isT : (0 < 2)%N)].
Lemma no_image k (c : 'I_(1 * 1)) : Rabs (zero_pad (fun _ _ => 0 : reals) (k : keys g1) c) <= 1.
Proof. by rewrite /zero_pad big1 // Rabs_R0; exact: Rle_0_1. Qed.
Theorem ROW_whole_satisfiable (X : pixels g1 -> 'I_(1 * 1) -> reals) (q0 : queries g1) :
  (forall k c, Rabs (zero_pad X k c) <= 1) ->
  exists computed convolution : R,
    Rabs (computed - convolution) <= dyadic (Rows.bound (line_row false 2 0)).
Proof.
exact: (whole_says ROW.whole q0 (@exps _ _ _ (Z.le_refl 0)) (proj1 line_fits)).
Qed.
Lemma not_negative (x : R) (z : Z) : (z < 0)%Z -> ~ Rabs x <= dyadic z.
Proof.
move=> lt; have := val_lt lt; rewrite val0 => lt0 le.
by have := Rabs_pos x; lra.
Qed.
(** The same axis after axis: the line has one, so that its image is mixed once. *)
Section Apart.
Variables (reach exp_lost : Z).
Hypothesis lost0 : (0 <= exp_lost)%Z.
Let hd := line_heads true reach exp_lost.
Definition x_along (h : T) (q : queries g1) (a : 'I_1) (j : 'I_(padded g1 a)) : R :=
  if j == key g1_fits q h a then 1 else power (-30).
Lemma exps_along (h : T) (q : queries g1) target a : reads q (id h) target ->
  device_exponentials hd A (target a)
    (fun j : 'I_(padded g1 a) => s h q a (Z.of_nat j - Z.of_nat (target a))%Z) (@x_along h q a).
Proof.
rewrite (readsE g1_fits) => /eqP ->; set t := key g1_fits q h a.
have xE j : @x_along h q a j = exp (s h q a (Z.of_nat j - Z.of_nat t)).
  rewrite /x_along -/t /s; case: eqP => [->|ne].
    by rewrite Z.sub_diag Rmult_0_r exp_0.
  have -> : IZR ((Z.of_nat j - Z.of_nat t) * (Z.of_nat j - Z.of_nat t)) = 1.
    have d : nat_of_ord j <> nat_of_ord t by move=> E; apply: ne; exact: val_inj.
    have j2 := ltn_ord j; have t2 := ltn_ord t; move: d j2 t2; rewrite /padded /=.
    by move: (nat_of_ord j) (nat_of_ord t) => [|[|x]] [|[|y]].
  rewrite Rmult_1_r; have -> : 30 * ln 2 = INR 30 * ln 2 by rewrite /=; ring.
  by rewrite exp_Ropp -ln_pow ?exp_ln ?pow_IZR; [ | apply: IZR_lt | lra].
split; first by rewrite /x_along eqxx.
  move=> j; rewrite /x_along; case: ifP => _; split;
    try exact: one_format; try exact: format_power; try lra.
  split; first exact: Rlt_le (power_gt0 _).
  by have -> : 2 = power 1 by []; apply: Flocq.Core.Raux.bpow_le.
move=> j; rewrite xE Rminus_eq_0 Rabs_R0 /= !val0 Rmult_0_l Rplus_0_l exp_0.
apply: Rplus_le_le_0_compat; last exact: val_ge0.
by case: ifP => _; rewrite ?Rplus_0_r; right; ring.
Qed.
(** The image is mixed once, along the one axis. *)
Lemma apart_says made fit (x : T -> queries g1 -> forall a : 'I_1, 'I_(padded g1 a) -> R)
  (says : apart_if made fit) (X : pixels g1 -> 'I_(1 * 1) -> reals) (q0 : queries g1) :
  (forall (h : T) (q : queries g1) target a, reads q (id h) target -> made hd A _ (target a)
    (fun j : 'I_(padded g1 a) => s h q a (Z.of_nat j - Z.of_nat (target a))%Z) (x h q a)) ->
  fit (line_row true reach exp_lost) = true -> (forall k c, Rabs (zero_pad X k c) <= 1) ->
  exists computed convolution : R,
    Rabs (computed - convolution) <= dyadic (Rows.bound (line_row true reach exp_lost)).
Proof.
move=> exps fz; rewrite -val1 => bX.
have p1 : (1 < 24)%Z by []. have [mA nA] := gradual_laws (-149) p1.
have keysK a : (Z.of_nat (padded g1 a) <= Rows.keys hd)%Z by [].
have sums_ok (h : T) (q : queries g1) a : 
    summed (x h q a) (all_of [finType of 'I_(padded g1 a)]).
  have [_ s2] := all_stored0 [finType of 'I_(padded g1 a)]; split;
    [exact: all_once | by rewrite all_summandsE; apply/mapP => -[] | exact: s2].
have le2 : (#|[finType of keys g1]| <= 2)%N.
  by have -> : #|[finType of keys g1]| = 2%N by exact: keys2.
pose attention (h : T) (q : queries g1) a :=
  computed_softmax A A false (x h q a) (all_of [finType of 'I_(padded g1 a)]).
pose y (h : T) (q : queries g1) (c : 'I_(1 * 1)) (m : nat) (k : keys g1) : R :=
  if m is 0%N then zero_pad X k c else
  computed (S1 #|{: keys g1}|) (along (attention h q ord0) k) (fun i => zero_pad X i c) 0
    (all_of _).
have premises : soft_premises fit (line_row true reach exp_lost) hd true (id : T -> T) X A A s.
  by split=> //; [exact: id_bij | exact: sharp_s | exact: deviceA].
have := says _ _ 1%N g1 g1_fits keysK 1%N 1%N 1%N T id X A A false s x
  (fun _ _ _ => all_of _) premises exps sums_ok y (fun _ => S1 #|{: keys g1}|)
  (fun _ _ _ _ _ => all_of _) (fun _ => mean_within _ _ _) (fun _ _ _ _ _ => or_introl nA)
  (fun _ _ _ _ => erefl).
have steps (h : T) (q : queries g1) c (a : 'I_1) (k : keys g1) :
  as_set (S1 #|{: keys g1}|) (along (attention h q a) k) (y h q c a) 0 (all_of _) /\
  y h q c a.+1 k
    = computed (S1 #|{: keys g1}|) (along (attention h q a) k) (y h q c a) 0 (all_of _).
  by rewrite (ord1 a); split; first exact: set1.
move=> /(_ steps (fun h q c => y h q c 1%N (key g1_fits q h))).
move=> /(_ (fun h q c => ex_intro _ (key g1_fits q h) erefl)).
move=> /(_ w1 b1 (S1 1) (S1 1) q0 ord0 (all_of _) (all_of _) (within_line _ _ _)) near.
by eexists; eexists; apply: near; exact: as_plain.
Qed.
End Apart.
Theorem ROW_apart_satisfiable (X : pixels g1 -> 'I_(1 * 1) -> reals) (q0 : queries g1) :
  (forall k c, Rabs (zero_pad X k c) <= 1) ->
  exists computed convolution : R,
    Rabs (computed - convolution) <= dyadic (Rows.bound (line_row true 2 0)).
Proof.
exact: (apart_says ROW.apart q0 (@exps_along _ _ (Z.le_refl 0)) (proj2 line_fits)).
Qed.

(** ** Mutant: any numbers are a row, whether or not they fit *)
Definition mutant_whole := whole_with (fun _ => true).
Theorem mutant_whole_refuted : ~ mutant_whole.
Proof.
move=> /(@whole_says _ _ below_nothing 0 x1) says.
have [x [y]] := says _ first_query (@exps _ _ _ (Z.le_refl 0)) erefl no_image.
exact: (not_negative (proj1 line_negative)).
Qed.
Definition mutant_apart := apart_with (fun _ => true).
Theorem mutant_apart_refuted : ~ mutant_apart.
Proof.
move=> /(@apart_says below_nothing 0 _ _ (@x_along)) says.
have [x [y]] := says _ first_query (@exps_along _ _ (Z.le_refl 0)) erefl no_image.
exact: (not_negative (proj2 line_negative)).
Qed.
