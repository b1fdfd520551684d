(** * L2e: Absolute features

    Claim: -alpha |k - q - Delta|^2 is the inner product of the query feature (2 alpha (q + Delta),
    -alpha) with the key feature (k, |k|^2), n + 1 numbers each, plus a term of the query alone,
    which the softmax drops. Centring the coordinates changes nothing.
    Source: this project; the form is what scaled_dot_product_attention evaluates.
    Does not show: Rounding: the features grow like the square of the side, so the side of the grid
    decides in which float type this is usable. A full covariance is GQ. *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Theorem absolute : L2e.
Proof.
move=> n K pos alpha q offset k; pose shift a := q a + offset a.
rewrite -[RHS](softmax_shift _ (alpha * dot shift shift)); apply: softmax_ext => j.
rewrite /square_score rsum_optionE /= /dot !big_distrr -!big_split /=; apply: eq_bigr => a _.
by rewrite /shift; ring.
Qed.

Theorem centred_features : L2e_centred.
Proof.
move=> n K pos alpha q offset m k; rewrite !absolute; apply: softmax_ext => j.
rewrite /square_score; congr (_ * _).
by rewrite /dot; apply: eq_bigr => a _; ring.
Qed.

(** ** Instance: keys 0 and 1 on a line, alpha = ln 2, q = 0, Delta = 1: shares 1/3 and 2/3 *)
Definition at_ (x : R) (a : 'I_1) : R := x.
Definition keys01 (k : bool) : 'I_1 -> R := at_ (if k then 1 else 0).
Theorem instance : softmax
  (fun k => \sum_p query_feature (ln 2) (at_ 0) (at_ 1) p * key_feature (keys01 k) p) true = 2 / 3.
Proof.
rewrite absolute /softmax big_bool /square_score /dot !big_ord_recl !big_ord0 /keys01 /at_ /=.
have -> : - ln 2 * ((1 - 0 - 1) * (1 - 0 - 1) + 0) = 0 by ring.
have -> : - ln 2 * ((0 - 0 - 1) * (0 - 0 - 1) + 0) = - ln 2 by ring.
by rewrite (proj2 exp_ln2E) exp_0; field.
Qed.

(** ** Mutants

    The factor 2 of the query feature forgotten; the sign of alpha or of the centre wrong; equal
    scores, where only their softmax is; keys alone centred *)
Lemma gapE (s t : bool -> R) :
  softmax s true = softmax t true -> s false - s true = t false - t true.
Proof.
have share r : softmax r true = / (1 + exp (r false - r true)).
  rewrite -(softmax_shift _ (- r true)) /softmax rsum_bool Rplus_opp_r exp_0 /Rminus.
  by rewrite /Rdiv Rmult_1_l.
by rewrite !share => /(f_equal Rinv); rewrite !Rinv_inv => E; apply: exp_inv; lra.
Qed.
Ltac on_axis := rewrite /= ?rsum_optionE /square_score /query_feature /key_feature /keys01 /at_ /dot
  !big_ord_recl !big_ord0 /=; lra.
Definition mutant := features_give softmax (fun n alpha q offset p =>
  if p is Some a then alpha * (q a + offset a) else - alpha) square_score.
Theorem mutant_refuted : ~ mutant.
Proof. by move=> /(_ _ _ keys01 1 (at_ 0) (at_ 1) true) /gapE; on_axis. Qed.
Definition mutant_sign := features_give softmax query_feature
  (fun n alpha q offset k => - square_score alpha q offset k).
Theorem mutant_sign_refuted : ~ mutant_sign.
Proof. by move=> /(_ _ _ keys01 1 (at_ 0) (at_ 0) true) /gapE; on_axis. Qed.
Definition mutant_offset := features_give softmax query_feature
  (fun n alpha q offset => square_score alpha q (fun a => - offset a)).
Theorem mutant_offset_refuted : ~ mutant_offset.
Proof. by move=> /(_ _ _ keys01 1 (at_ 0) (at_ 1) true) /gapE; on_axis. Qed.
Definition mutant_scores := features_give (fun K s => s) query_feature square_score.
Theorem mutant_scores_refuted : ~ mutant_scores.
Proof. by move=> /(_ _ _ keys01 1 (at_ 0) (at_ 1) false); on_axis. Qed.
Definition mutant_keys_centred := centring (fun _ => 0).
Theorem mutant_keys_centred_refuted : ~ mutant_keys_centred.
Proof. by move=> /(_ _ _ keys01 1 (at_ 0) (at_ 0) (at_ 1) true) /gapE; on_axis. Qed.
