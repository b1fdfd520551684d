(** * GQ: The generalised quadratic encoding

    Claim: With the precision S = Sigma^-1 the score -1/2 (delta - Delta)' S (delta - Delta) is, up
    to a constant, the inner product of the n (n + 3)/2 numbers delta_i, delta_i delta_j (i <= j)
    with a vector of the head. If S is positive definite and the centre is a pixel of the grid, it
    is the only peak; with S >= lambda I the leak is that of an isotropic head with alpha =
    lambda/2. As features of keys it needs n (n + 3)/2 absolute numbers.
    Source: Cordonnier et al. 2020, Appendix E, Eqs. (18), (19).
    Does not show: A lower bound lambda of the eigenvalues of given floats: exact elimination
    certifies it. *)
From Coq Require Import Reals Lra Lia ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L2c.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Section Form.
Variables (n : nat) (M : 'I_n -> 'I_n -> R).
Lemma bilinearD x y z : bilinear M (fun a => x a - y a) z = bilinear M x z - bilinear M y z.
Proof.
rewrite /bilinear rsum_minus; apply: eq_bigr => i _; rewrite rsum_minus; apply: eq_bigr => j _;
  ring.
Qed.
Lemma bilinearC x y : symmetric M -> bilinear M x y = bilinear M y x.
Proof.
move=> sym; rewrite /bilinear exchange_big /=; apply: eq_bigr => i _; apply: eq_bigr => j _;
  rewrite sym; ring.
Qed.
(** The sum over all pairs is that over [i <= j], the others taken twice. *)
Lemma over_pairsE (F : 'I_n -> 'I_n -> R) : (forall i j, F i j = F j i) ->
  \sum_i \sum_j F i j = \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (i <= j)%N)
    ((if i == j then 1 else 2) * F i j).
Proof.
move=> sym.
have split i : \sum_j F i j = \big[Rplus/0]_(j : 'I_n | (i <= j)%N) F i j
  + \big[Rplus/0]_(j : 'I_n | (j < i)%N) F i j.
  by rewrite (bigID (fun j : 'I_n => (i <= j)%N)) /=; congr (_ + _); apply: eq_bigl => j;
    rewrite ltnNge.
under eq_bigr do rewrite split; rewrite big_split /=.
have -> : \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (j < i)%N) F i j
        = \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (i <= j)%N)
          (if i == j then 0 else F i j).
  rewrite (exchange_big_dep xpredT) //=; apply: eq_bigr => i _.
  rewrite [RHS](bigID (fun j => i == j)) /= [X in _ = X + _]big1 ?Radd0l => [|j /andP [_ ->] //].
  apply: eq_big => [j|j lt]; first by rewrite ltn_neqAle andbC -val_eqE.
  by case: (eqVneq i j) lt => [->|_ _]; [rewrite ltnn | exact: sym].
rewrite -big_split; apply: eq_bigr => i _; rewrite -big_split; apply: eq_bigr => j _ /=;
  case: eqP => _; ring.
Qed.
End Form.

Theorem inner_product : GQ.
Proof.
move=> n M sym offset delta; rewrite /linear_part /pairs_part /generalised_score bilinearD.
rewrite ![bilinear M _ (fun a => delta a - offset a)](bilinearC _ _ sym) !bilinearD
  (bilinearC delta offset sym).
have -> : bilinear M delta delta = \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (i <= j)%N)
    ((if i == j then 1 else 2) * (M i j * (delta i * delta j))).
  by apply: over_pairsE => i j; rewrite sym; ring.
have -> : bilinear M offset delta = \sum_i (\sum_j M i j * offset j) * delta i.
  rewrite (bilinearC _ _ sym) /bilinear; apply: eq_bigr => i _; rewrite big_distrl;
    apply: eq_bigr => j _ /=; ring.
set B := bilinear M offset offset; set L := \sum_i _; set Q := \big[Rplus/0]_i _.
suff -> : \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (i <= j)%N)
    ((if i == j then - (/ 2 * M i i) else - M i j) * (delta i * delta j)) = - / 2 * Q by lra.
rewrite /Q big_distrr; apply: eq_bigr => i _; rewrite big_distrr; apply: eq_bigr => j _ /=.
by case: eqP => [->|_]; field.
Qed.

Theorem peak_and_share : GQ_peak.
Proof.
move=> n M lambda [l0 def] K pos inj target s.
pose d k a := IZR (pos k a - pos target a).
have E k : s k = - (/ 2 * bilinear M (d k) (d k)).
  rewrite /s /generalised_score; congr (- (_ * _)); rewrite /bilinear; apply: eq_bigr => i _;
    apply: eq_bigr => j _.
  by rewrite /d !minus_IZR.
have sq k : \sum_a d k a * d k a = IZR (distance (pos k) (pos target)).
  by rewrite IZR_sum; apply: eq_bigr => a _; rewrite mult_IZR.
have le k : s k <= - (lambda / 2) * IZR (distance (pos k) (pos target)).
  by rewrite E -sq; have := def (d k); lra.
have top : s target = 0.
  rewrite E /bilinear big1 ?Rmult_0_r ?Ropp_0 // => i _; rewrite big1 // => j _;
    rewrite /d Z.sub_diag; ring.
split=> [k ne|theta total].
  rewrite top; apply: Rle_lt_trans (le k) _.
  suff /IZR_lt : (0 < distance (pos k) (pos target))%Z by nra.
  have ge0 : (0 <= distance (pos k) (pos target))%Z by rewrite /distance;
    elim/big_ind: _ => [|x y Hx Hy|i _]; [lia | lia | exact: Z.square_nonneg].
  suff : distance (pos k) (pos target) <> 0%Z by lia.
  move=> zero; case/eqP: ne; apply: inj => a; move: zero; rewrite /distance (bigD1 a) //=.
  set r := \big[_/_]_(_ | _) _; have : (0 <= r)%Z by rewrite /r;
    elim/big_ind: _ => [|x y Hx Hy|i _]; [lia | lia | exact: Z.square_nonneg].
  nia.
have axis N := axis_le_total N total.
have Z0 : 0 < \sum_k exp (s k) by apply: (rsum_gt0 target) => j; exact: exp_pos.
rewrite /softmax top exp_0 /Rdiv Rmult_1_l; apply: Rinv_le_contravar => //.
apply: Rle_trans (partition_le axis inj (pos target)); apply: rsum_le => k _; rewrite /key_weight.
by case: (le k) => [/exp_increasing|->]; lra.
Qed.

(** ** Instance: two correlated axes, [2 u^2 + 2 u v + 2 v^2], at (1, 1): -3 *)
Definition correlated (i j : 'I_2) : R := if i == j then 2 else 1.
Lemma triangleE (F : 'I_2 -> 'I_2 -> R) : \big[Rplus/0]_(i : 'I_2)
  \big[Rplus/0]_(j : 'I_2 | (i <= j)%N) F i j
  = F ord0 ord0 + F ord0 (lift ord0 ord0) + F (lift ord0 ord0) (lift ord0 ord0).
Proof. by under eq_bigr do rewrite big_mkcond; rewrite !big_ord_recl !big_ord0 /=; ring. Qed.
Theorem instance : generalised_score correlated (fun _ => 0) (fun _ => 1) = -3.
Proof.
rewrite inner_product => [|i j]; last by rewrite /correlated eq_sym.
rewrite /linear_part /pairs_part triangleE /bilinear !big_ord_recl !big_ord0 /correlated.
by rewrite -!val_eqE /=; lra.
Qed.

(** ** Mutants

    The cross terms taken once more, [i] and [j] in both orders; the sign, the half of the diagonal,
    or the constant forgotten; a form that is only symmetric has a peak *)
Lemma correlated_symmetric : symmetric correlated.
Proof. by move=> i j; rewrite /correlated eq_sym. Qed.
Ltac on_correlated := rewrite /generalised_score /linear_part /pairs_part ?triangleE /bilinear
  !big_ord_recl !big_ord0 /correlated -!val_eqE /=; lra.
Definition mutant := generalised_as (fun n M offset delta => linear_part M offset delta
  + \sum_i (\sum_j ((if i == j then - (/ 2 * M i i) else - M i j) * (delta i * delta j)))
  - / 2 * bilinear M offset offset).
Theorem mutant_refuted : ~ mutant.
Proof. by move=> /(_ _ _ correlated_symmetric (fun _ => 0) (fun _ => 1)); on_correlated. Qed.
Definition mutant_sign := generalised_as (fun n M offset delta =>
  / 2 * bilinear M (fun a => delta a - offset a) (fun a => delta a - offset a)).
Theorem mutant_sign_refuted : ~ mutant_sign.
Proof. by move=> /(_ _ _ correlated_symmetric (fun _ => 0) (fun _ => 1)); on_correlated. Qed.
Definition mutant_half := generalised_as (fun n M offset delta =>
  linear_part M offset delta + pairs_part 1 M delta - / 2 * bilinear M offset offset).
Theorem mutant_half_refuted : ~ mutant_half.
Proof. by move=> /(_ _ _ correlated_symmetric (fun _ => 0) (fun _ => 1)); on_correlated. Qed.
Definition mutant_constant := generalised_as (fun n M offset delta =>
  linear_part M offset delta + pairs_part (/ 2) M delta).
Theorem mutant_constant_refuted : ~ mutant_constant.
Proof. by move=> /(_ _ _ correlated_symmetric (fun _ => 1) (fun _ => 0)); on_correlated. Qed.
Definition mutant_flat := forall n (M : 'I_n -> 'I_n -> R), symmetric M ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target k, k != target ->
  let s k := generalised_score M (fun a => IZR (pos target a)) (fun a => IZR (pos k a)) in
  s k < s target.
Theorem mutant_flat_refuted : ~ mutant_flat.
Proof.
have no_form : symmetric (fun _ _ : 'I_1 => 0) by [].
move=> /(_ _ _ no_form _ _ ends_grid None (Some true) isT).
by rewrite /generalised_score /bilinear !big_ord_recl !big_ord0 /=; lra.
Qed.
