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

Lemma rsum_option (I : finType) (F : option I -> R) : \sum_p F p = F None + \sum_i F (Some i).
Proof. exact: (@sum_option reals). Qed.

Theorem absolute : L2e.
Proof.
move=> n K pos alpha q offset k; pose shift a := q a + offset a.
rewrite -[RHS](softmax_shift _ (alpha * dot shift shift)); apply: softmax_ext => j.
rewrite rsum_option /= /dot !big_distrr -!big_split /=; apply: eq_bigr => a _.
by rewrite /shift; ring.
Qed.

Theorem centred : L2e_centred.
Proof.
move=> n K pos alpha q offset m k; rewrite !absolute; apply: softmax_ext => j; congr (_ * _).
by rewrite /dot; apply: eq_bigr => a _; ring.
Qed.

(** ** Instance: keys 0 and 1 on a line, alpha = ln 2, q = 0, Delta = 1: shares 1/3 and 2/3 *)
Definition at_ (x : R) (a : 'I_1) : R := x.
Definition keys01 (k : bool) : 'I_1 -> R := at_ (if k then 1 else 0).
Lemma exp_ln2 : exp (ln 2) = 2. Proof. by apply: exp_ln; lra. Qed.
Theorem instance : softmax
  (fun k => \sum_p query_feature (ln 2) (at_ 0) (at_ 1) p * key_feature (keys01 k) p) true = 2 / 3.
Proof.
rewrite absolute /softmax big_bool /dot !big_ord_recl !big_ord0 /keys01 /at_ /=.
have -> : - ln 2 * ((1 - 0 - 1) * (1 - 0 - 1) + 0) = 0 by ring.
have -> : - ln 2 * ((0 - 0 - 1) * (0 - 0 - 1) + 0) = - ln 2 by ring.
by rewrite exp_Ropp exp_ln2 exp_0; field.
Qed.

(** ** Mutant: the factor 2 of the query feature forgotten *)
Definition mutant := forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (q offset : 'I_n -> R),
  softmax (fun k => \sum_p (if p is Some a then alpha * (q a + offset a) else - alpha) * key_feature
    (pos k) p)
  =1 softmax (fun k => - alpha * dot (fun a => pos k a - q a - offset a)
    (fun a => pos k a - q a - offset a)).
Theorem mutant_refuted : ~ mutant.
Proof.
move=> /(_ _ _ keys01 (ln 2) (at_ 0) (at_ 1) true);
  rewrite -absolute instance /softmax big_bool !rsum_option /=.
rewrite /dot !big_ord_recl !big_ord0 /keys01 /at_.
have -> : - ln 2 * (1 * 1 + 0) + (ln 2 * (0 + 1) * 1 + 0) = 0 by ring.
have -> : - ln 2 * (0 * 0 + 0) + (ln 2 * (0 + 1) * 0 + 0) = 0 by ring.
by rewrite exp_0; lra.
Qed.
