(** * ROW: all premises of ROW_whole are met together

    Soft heads on two pixels, a neighbour of weight 2^-30, float32. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Checker Rows.
From C2A Require Import Statements Sums L1 FLOAT SOFT Satisfiable ROW.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.
Definition line : Rows.heads :=
  Rows.Heads 1 false (10 * Rows.one) 2 2 0 0 0 0 (float32_sums 8) 0 (float32_sums 8).
Definition line_row : Rows.row := example (Some line).
Local Transparent Rows.one Rows.exp_down Rows.up Rows.mul Rows.geom Rows.sums_of.
Lemma line_fits : Rows.fits line_row = true. Proof. by vm_compute. Qed.
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
Lemma sharp_s h q a : sharp line (s h q a).
Proof.
have l := ln2_ge; split; [split=> [|x y xy] | move=> x]; rewrite /s.
- by rewrite Rmult_0_r.
- have le : IZR (x * x) <= IZR (y * y) by apply: IZR_le; nia.
  have -> : (- y * - y = y * y)%Z by ring. have -> : (- x * - x = x * x)%Z by ring.
  by split; nra.
have x0 : 0 <= IZR (x * x) by apply: IZR_le; nia.
have -> : dyadic (Rows.alpha line) = 10.
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
  device_exponentials line A target (around (s h q) target) (x1 h q).
Proof.
move=> rd; split; first by rewrite x1E rd.
  move=> k; rewrite x1E; case: ifP => _; split;
    try exact: one_format; try exact: format_power; try lra.
  split; first exact: Rlt_le (power_gt0 _).
  by have -> : 2 = power 1 by []; apply: Flocq.Core.Raux.bpow_le.
move=> k; rewrite (aroundE _ rd) /x1 Rminus_eq_0 Rabs_R0 /= !val0 Rmult_0_l Rplus_0_l exp_0.
apply: Rplus_le_le_0_compat; try exact: Rle_refl.
by case: ifP => _; rewrite ?Rplus_0_r; right; ring.
Qed.
Lemma deviceA : device line A A.
Proof.
have p1 : (1 < 24)%Z by []. have [mA nA] := gradual_laws (-149) p1.
split; [|split]; first
  (by split; [exact: (And3 soundA mA nA) | exact: (And3 soundA mA nA) | exact: one_format]);
  by split; rewrite /= ?dyadic_bitE ?val0 //; exact: Rle_refl.
Qed.
Lemma mean_within : setting_within (S1 #|{: keys g1}|) (Rows.mean line).
Proof.
rewrite keys2; split; [|split]; split; rewrite /= ?dyadic_bitE ?val0 //; exact: Rle_refl.
Qed.
Theorem ROW_whole_satisfiable (X : pixels g1 -> 'I_(1 * 1) -> reals)
  (bX : forall k c, Rabs (zero_pad X k c) <= dyadic (Rows.radius line_row)) (q0 : queries g1) :
  exists computed convolution : R, Rabs (computed - convolution) <= dyadic (Rows.bound line_row).
Proof.
have p1 : (1 < 24)%Z by []. have [mA nA] := gradual_laws (-149) p1.
have keysK : (Z.of_nat #|{: keys g1}| <= Rows.keys line)%Z by rewrite keys2.
have sums_ok (h : T) (q : queries g1) : summed (x1 h q) (all_of [finType of keys g1]).
  have [_ s2] := all_stored0 [finType of keys g1]; split;
    [exact: all_once | by rewrite all_summandsE; apply/mapP => -[] | exact: s2].
have le2 : (#|[finType of keys g1]| <= 2)%N.
  by have -> : #|[finType of keys g1]| = 2%N by exact: keys2.
have := @ROW.whole line_row line 1%N g1 g1_fits line_fits erefl erefl erefl keysK 1%N 1%N 1%N
  T id X id_bij bX
  A A false s x1 (fun _ _ => all_of _) sharp_s deviceA exps sums_ok
  (S1 #|{: keys g1}|) (fun _ _ _ => all_of _) mean_within nA (fun h q c => set1 _ _ le2).
move=> /(_ w1 b1 (S1 1) (S1 1) q0 ord0 (all_of _) (all_of _)) says.
eexists; eexists; apply: says; try exact: as_plain.
have tap1 t (c : 'I_(1 * 1)) : tap w1 t c ord0 = 1 :> R by rewrite /tap /w1 (ord1 c).
split; try exact: plain_within; last by rewrite /b1 Rabs_R0 /= val0; exact: Rle_refl.
under eq_bigr do under eq_bigr do rewrite tap1 Rabs_R1.
rewrite (eq_bigr (fun _ => 1)) => [|t _]; last by rewrite big_ord_recl big_ord0 /=; ring.
by rewrite rsum_constE Satisfiable.taps1 /= val1; lra.
Qed.
