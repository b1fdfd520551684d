(** * SOFT: layers of one-hot heads in any arithmetic, operands cut or not *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 OnePixel FLOAT SOFT.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** Each head reads exactly the cut of its tap's token, so a fraction of it away. *)
Theorem layers : SOFT_cut.
Proof.
move=> n g ok G ci co H f weight b X bij range small A T cut kappa sA sT cut0 cut1 k0 near fits_
  attention hot mix once token first second q o t t' set1 set2.
apply: (SOFT.tokens_read ok bij small _ set1 set2) => h q' c.
have hotE k : attention h q' k = one_hot (key ok q' (f h)) k.
  by rewrite hot /one_hot (readsE ok).
have read : token h q' c = cut (zero_pad X (key ok q' (f h)) c).
  rewrite /token (evaluate_ext _ _ _ _ _ hotE (frefl _)).
  apply: (FLOAT.one_hot_mixing sA sT cut0 cut1);
    try exact: (proj1 (fits_ _ _)); try exact: (proj2 (fits_ _ _)).
  have [us out] := once h q' c; split=> // i /out.
  by case: i => //= k; rewrite hotE.
rewrite read (_ : seen X q' (f h) c = zero_pad X (key ok q' (f h)) c); last first.
  exact/esym/(@zero_pad_key reals n g ok _ X q' (f h) c).
apply: Rle_trans (near _) _; apply: Rmult_le_compat_l => //; exact: small.
Qed.

(** ** Exact arithmetic, in which all that is cut shows *)
Definition exact := Arithmetic (fun _ => True) id 0 0 0.
Lemma exact_sound : sound exact.
Proof.
split; first by split; exact: Rle_refl.
by split=> // [x y _ _|z]; rewrite /exact /= Rminus_eq_0 Rabs_R0 Rmult_0_l Rplus_0_l;
  exact: Rle_refl.
Qed.
Definition plain := Setting exact exact id 0 1 1 0 0.
Lemma plain_costs_nothing S b range e : difference S b range e plain plain = S * e.
Proof.
rewrite /difference /cost /lost /growth_of /growth /underflow /gamma /=.
by field; rewrite Rmult_0_r; lra.
Qed.
Definition one_product : order (taps one_pixel * 'I_(1 * 1)) := Product ((here _ : taps one_pixel),
  ord0).
Lemma one_each (w x : taps one_pixel * 'I_(1 * 1) -> R) : as_set plain w x 0 one_product.
Proof.
split; first by split=> //; [exact: exact_sound | exact: exact_sound | exact: Rle_refl |
  rewrite /= Rmult_0_r; lra].
split; last by split=> // i; rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; split; exact: Rle_refl.
split=> //; split=> // -[[s c]|] //; by rewrite inE (hereE s) (ord1 c) eqxx.
Qed.
(** One pixel of value [x], one head, one weight of 1: what the two layers give. *)
Definition pixel_of (x : R) (_ : pixels one_pixel) (_ : 'I_(1 * 1)) : reals := x.
Definition unit_weight (_ : 'I_(1 * 1)) (_ : nat) (_ : taps one_pixel) : reals := 1.
Lemma paddedE x k c : zero_pad (pixel_of x) (k : keys one_pixel) c = x.
Proof.
rewrite /zero_pad (big_pred1 (here _ : pixels one_pixel)) // => i.
by rewrite (hereE i) /= eqxx; apply/forallP; case.
Qed.
Lemma seenE x q t c : seen (pixel_of x) q (t : taps one_pixel) c = x.
Proof. by rewrite /seen -(@zero_pad_key reals 0 one_pixel one_pixel_fits _ (pixel_of x) q t c)
  paddedE. Qed.
(** What a statement of this kind says of them. *)
Lemma says error cut kappa x : layers_within error -> cut 0 = 0 -> cut 1 = 1 -> 0 <= kappa ->
  (forall z, Rabs (cut z - z) <= kappa * Rabs z) ->
  Rabs (cut x - x) <= error kappa (Rabs x).
Proof.
move=> within cut0 cut1 k0 near.
pose attention (_ : taps one_pixel) (_ : queries one_pixel) (_ : keys one_pixel) : R := 1.
have hot h q k : attention h q k = if reads q (id h) k then 1 else 0 by rewrite all_read.
have once h q c : each_once (attention h q) (fun k => zero_pad (pixel_of x) k c) 0
    (Product (here _ : keys one_pixel)).
  by split=> // -[k|] //; rewrite inE (hereE k) eqxx.
have idb : bijective (id : taps one_pixel -> taps one_pixel) by exists id.
have small k c : Rabs (zero_pad (pixel_of x) k c) <= Rabs x by rewrite paddedE; exact: Rle_refl.
have := within 0%N one_pixel one_pixel_fits 1%N 1%N 1%N _ id unit_weight (fun _ => 0) (pixel_of x)
  idb _ small
  exact exact cut kappa exact_sound exact_sound cut0 cut1 k0 near (fun _ _ => conj I I)
  attention hot
  (fun _ _ _ => Product (here _ : keys one_pixel)) once plain plain (here _) ord0 one_product
    one_product
  (one_each _ _) (one_each _ _).
rewrite plain_costs_nothing /computed /= cut1 Rmult_1_l seenE paddedE.
have tap1 t (c : 'I_(1 * 1)) : tap unit_weight t c ord0 = 1 :> R by rewrite /tap (ord1 c).
under eq_bigr do under eq_bigr do rewrite tap1 Rabs_R1.
rewrite (big_pred1 (here _ : taps one_pixel)) => [|t]; last by rewrite (hereE t) /= eqxx.
by rewrite big_ord_recl big_ord0 tap1 !Rmult_1_l Rplus_0_r Rmult_1_l.
Qed.
(** ** Instance: a token cut from 2 to 3 *)
Definition cut23 (z : R) : R := if Req_EM_T z 2 then 3 else z.
Lemma cut23_near z : Rabs (cut23 z - z) <= / 2 * Rabs z.
Proof.
rewrite /cut23; case: Req_EM_T => /= [->|_].
  by rewrite (_ : 3 - 2 = 1); [rewrite Rabs_R1 Rabs_pos_eq; lra | ring].
by rewrite Rminus_eq_0 Rabs_R0; have := Rabs_pos z; lra.
Qed.
Lemma cut23_0 : cut23 0 = 0. Proof. by rewrite /cut23; case: Req_EM_T => //= ?; lra. Qed.
Lemma cut23_1 : cut23 1 = 1. Proof. by rewrite /cut23; case: Req_EM_T => //= ?; lra. Qed.
Theorem instance : Rabs (cut23 2 - 2) <= / 2 * Rabs 2.
Proof.
have half : 0 <= / 2 by lra.
exact: (says 2 layers cut23_0 cut23_1 half cut23_near).
Qed.
(** ** Mutant: what is cut costs nothing *)
Definition mutant_cut := layers_within (fun _ _ => 0).
Theorem mutant_cut_refuted : ~ mutant_cut.
Proof.
move=> within; have half : 0 <= / 2 by lra.
have := says 2 within cut23_0 cut23_1 half cut23_near.
rewrite /cut23; case: Req_EM_T => //= _; rewrite (_ : 3 - 2 = 1); last by ring.
by rewrite Rabs_R1; lra.
Qed.
