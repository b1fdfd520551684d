(** * Sums: finite sums over any commutative ring, over R and over Z

    No claim of the paper; the laws that the proofs of this folder share. *)
From Coq Require Import ZArith Reals Lra Lia Ring_theory Ring.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(** ** Commutative rings *)
Section Laws.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Lemma addA : associative (@add S). Proof. by move=> x y z; ring. Qed.
Lemma addC : commutative (@add S). Proof. by move=> x y; ring. Qed.
Lemma add0l : left_id 0 (@add S). Proof. by move=> x; ring. Qed.
Lemma add0r : right_id 0 (@add S). Proof. by move=> x; ring. Qed.
Lemma mulA : associative (@mul S). Proof. by move=> x y z; ring. Qed.
Lemma mulC : commutative (@mul S). Proof. by move=> x y; ring. Qed.
Lemma mul1l : left_id 1 (@mul S). Proof. by move=> x; ring. Qed.
Lemma mul1r : right_id 1 (@mul S). Proof. by move=> x; ring. Qed.
Lemma mul0l : left_zero 0 (@mul S). Proof. by move=> x; ring. Qed.
Lemma mul0r : right_zero 0 (@mul S). Proof. by move=> x; ring. Qed.
Lemma mulDl : left_distributive (@mul S) (@add S). Proof. by move=> x y z; ring. Qed.
Lemma mulDr : right_distributive (@mul S) (@add S). Proof. by move=> x y z; ring. Qed.
Lemma add_cancel (x y z : S) : x + z = y + z -> x = y.
Proof. by move=> E; transitivity (x + z - z); [ring | rewrite E; ring]. Qed.
End Laws.
Canonical add_monoid S := Monoid.Law (@addA S) (@add0l S) (@add0r S).
Canonical add_comoid S := Monoid.ComLaw (@addC S).
Canonical mul_monoid S := Monoid.Law (@mulA S) (@mul1l S) (@mul1r S).
Canonical mul_comoid S := Monoid.ComLaw (@mulC S).
Canonical mul_muloid S := Monoid.MulLaw (@mul0l S) (@mul0r S).
Canonical add_addoid S := Monoid.AddLaw (@mulDl S) (@mulDr S).

Section Sums.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Lemma sum0 (I : Type) (r : seq I) (P : pred I) (F : I -> S) :
  (forall i, P i -> F i = 0) -> \big[@add S/0]_(i <- r | P i) F i = 0.
Proof. exact: big1. Qed.
(** A sum against a one-hot weight picks one summand. *)
Lemma sum_pickE (I : finType) (i0 : I) (F : I -> S) : \sum_i (if i == i0 then 1 else 0) * F i = F
  i0.
Proof.
rewrite (bigD1 i0) //= eqxx big1 ?add0r ?mul1l // => i /negbTE ->; exact: mul0l.
Qed.
Lemma sum_pickr (I : finType) (i0 : I) (F : I -> S) : \sum_i F i * (if i0 == i then 1 else 0)
  = F i0.
Proof. by rewrite -[RHS](sum_pickE i0); apply: eq_bigr => i _; rewrite mulC eq_sym. Qed.
Lemma sum_optionE (I : finType) (F : option I -> S) : \sum_p F p = F None + \sum_i F (Some i).
Proof.
rewrite (bigD1 None) //=; congr (_ + _).
rewrite (reindex_omap Some id) /=; last by case.
by apply: eq_bigl => i; rewrite eqxx.
Qed.
End Sums.

(** ** The reals and the integers, as ring operations of Coq's standard library *)
Local Open Scope R_scope.
Lemma RaddA : associative Rplus. Proof. by move=> x y z; ring. Qed.
Lemma RaddC : commutative Rplus. Proof. by move=> x y; ring. Qed.
Lemma Radd0l : left_id 0 Rplus. Proof. by move=> x; ring. Qed.
Lemma Radd0r : right_id 0 Rplus. Proof. by move=> x; ring. Qed.
Lemma RmulA : associative Rmult. Proof. by move=> x y z; ring. Qed.
Lemma RmulC : commutative Rmult. Proof. by move=> x y; ring. Qed.
Lemma Rmul1l : left_id 1 Rmult. Proof. by move=> x; ring. Qed.
Lemma Rmul1r : right_id 1 Rmult. Proof. by move=> x; ring. Qed.
Lemma Rmul0l : left_zero 0 Rmult. Proof. by move=> x; ring. Qed.
Lemma Rmul0r : right_zero 0 Rmult. Proof. by move=> x; ring. Qed.
Lemma RmulDl : left_distributive Rmult Rplus. Proof. by move=> x y z; ring. Qed.
Lemma RmulDr : right_distributive Rmult Rplus. Proof. by move=> x y z; ring. Qed.
Canonical Radd_monoid := Monoid.Law RaddA Radd0l Radd0r.
Canonical Radd_comoid := Monoid.ComLaw RaddC.
Canonical Rmul_monoid := Monoid.Law RmulA Rmul1l Rmul1r.
Canonical Rmul_comoid := Monoid.ComLaw RmulC.
Canonical Rmul_muloid := Monoid.MulLaw Rmul0l Rmul0r.
Canonical Radd_addoid := Monoid.AddLaw RmulDl RmulDr.
Lemma ZaddA : associative Z.add. Proof. by move=> x y z; lia. Qed.
Lemma ZaddC : commutative Z.add. Proof. by move=> x y; lia. Qed.
Lemma Zadd0l : left_id 0%Z Z.add. Proof. by []. Qed.
Lemma Zadd0r : right_id 0%Z Z.add. Proof. by move=> x; lia. Qed.
Canonical Zadd_monoid := Monoid.Law ZaddA Zadd0l Zadd0r.
Canonical Zadd_comoid := Monoid.ComLaw ZaddC.

Lemma of_natD (m n : nat) : Z.of_nat (m + n) = (Z.of_nat m + Z.of_nat n)%Z. Proof.
exact: Nat2Z.inj_add. Qed.
Lemma of_natM (m n : nat) : Z.of_nat (m * n) = (Z.of_nat m * Z.of_nat n)%Z. Proof.
exact: Nat2Z.inj_mul. Qed.

(** ** Inequalities of sums *)
Lemma rsum_ge0 (I : Type) (s : seq I) (P : pred I) (F : I -> R) :
  (forall i, P i -> 0 <= F i) -> 0 <= \big[Rplus/0]_(i <- s | P i) F i.
Proof. by move=> H; elim/big_ind: _ => // [|x y Hx Hy]; lra. Qed.
Lemma rsum_le (I : Type) (s : seq I) (P : pred I) (F G : I -> R) : (forall i, P i -> F i <= G i) ->
  \big[Rplus/0]_(i <- s | P i) F i <= \big[Rplus/0]_(i <- s | P i) G i.
Proof. by move=> H; elim/big_ind2: _ => // [|x y z t Hx Hy]; lra. Qed.
Lemma rsum_gt0 (I : finType) (F : I -> R) (i0 : I) : (forall i, 0 < F i) -> 0 < \sum_i F i.
Proof.
move=> H; rewrite (bigD1 i0) //=; apply: Rplus_lt_le_0_compat; first exact: H.
by apply: rsum_ge0 => i _; apply: Rlt_le.
Qed.
Lemma rsum_part_le (I : finType) (P : pred I) (F : I -> R) : (forall i, 0 <= F i) ->
  \big[Rplus/0]_(i | P i) F i <= \sum_i F i.
Proof.
move=> H; rewrite [X in _ <= X](bigID P) /= -[X in X <= _]Rplus_0_r; apply: Rplus_le_compat_l.
by apply: rsum_ge0 => i _; apply: H.
Qed.
Lemma rsum_term_le (I : finType) (F : I -> R) i : (forall j, 0 <= F j) -> F i <= \sum_j F j.
Proof.
move=> H; have := @rsum_part_le I (pred1 i) F H; by rewrite big_pred1_eq.
Qed.
Lemma rsum_abs_le (I : Type) (s : seq I) (P : pred I) (F : I -> R) :
  Rabs (\big[Rplus/0]_(i <- s | P i) F i) <= \big[Rplus/0]_(i <- s | P i) Rabs (F i).
Proof.
elim/big_ind2: _ => [|x1 x2 y1 y2 H1 H2|i _]; first by rewrite Rabs_R0; lra.
- by apply: Rle_trans (Rabs_triang _ _) _; apply: Rplus_le_compat.
- exact: Rle_refl.
Qed.
Lemma rsum_minus (I : finType) (F G : I -> R) : \sum_i F i - \sum_i G i = \sum_i (F i - G i).
Proof.
have -> : \sum_i (F i - G i) = \sum_i (F i + -1 * G i) by apply: eq_bigr => i _; ring.
by rewrite big_split -big_distrr /=; ring.
Qed.
Lemma exp_rsumE (I : Type) (s : seq I) (P : pred I) (F : I -> R) :
  exp (\big[Rplus/0]_(i <- s | P i) F i) = \big[Rmult/1]_(i <- s | P i) exp (F i).
Proof. by apply: (big_morph exp) => [x y|]; [exact: exp_plus | exact: exp_0]. Qed.
Lemma IZR_sum (I : finType) (F : I -> Z) : IZR (\big[Z.add/0%Z]_i F i) = \sum_i IZR (F i).
Proof. by apply: (big_morph IZR) => // x y; exact: plus_IZR. Qed.
Lemma zsum_le (I : finType) (P : pred I) (F G : I -> Z) : (forall i, P i -> (F i <= G i)%Z) ->
  (\big[Z.add/0]_(i | P i) F i <= \big[Z.add/0]_(i | P i) G i)%Z.
Proof. by move=> H; elim/big_ind2: _ => [|x y z t|//]; lia. Qed.

(** ** Softmax *)
Section Softmax.
Variable K : finType.
Implicit Types s t : K -> R.
Lemma softmax_den_gt0 s (k : K) : 0 < \sum_j exp (s j). Proof. by apply: (rsum_gt0 k) => j;
  exact: exp_pos. Qed.
Lemma softmax_gt0 s k : 0 < softmax s k.
Proof. by apply: Rdiv_lt_0_compat; [exact: exp_pos | exact: (softmax_den_gt0 s k)]. Qed.
Lemma softmax_sum1 s (k : K) : \sum_j softmax s j = 1.
Proof. by rewrite /softmax /Rdiv -big_distrl /=; apply: Rinv_r; have := softmax_den_gt0 s k;
  lra. Qed.
Lemma softmax_le1 s k : softmax s k <= 1.
Proof.
rewrite -(softmax_sum1 s k) (bigD1 k) //=.
have : 0 <= \big[Rplus/0]_(i | i != k) softmax s i; last by set r := bigop _ _ _; lra.
by apply: rsum_ge0 => i _; apply: Rlt_le; exact: softmax_gt0.
Qed.
Lemma softmax_ext s t : s =1 t -> softmax s =1 softmax t.
Proof. by move=> E k; rewrite /softmax E; congr (_ / _); apply: eq_bigr => j _; rewrite E. Qed.
(** The softmax drops what does not depend on the key. *)
Lemma softmax_shift s c : softmax (fun k => s k + c) =1 softmax s.
Proof.
move=> k; rewrite /softmax.
have -> : \sum_j exp (s j + c) = (\sum_j exp (s j)) * exp c.
  by rewrite big_distrl /=; apply: eq_bigr => j _; rewrite exp_plus.
rewrite exp_plus; field; split; first by have := softmax_den_gt0 s k; lra.
by have := exp_pos c; lra.
Qed.
(** If one key has at least the share [1 - eps], all keys are within [eps] of one-hot. *)
Lemma softmax_close_le s target eps : 1 - eps <= softmax s target -> forall k,
  Rabs (softmax s k - one_hot target k) <= eps.
Proof.
move=> Ht k; rewrite /one_hot; case: eqP => [->|/eqP ne].
  by have le1 := softmax_le1 s target; rewrite -Rabs_Ropp Rabs_pos_eq; lra.
have := softmax_sum1 s k; rewrite (bigD1 target) //= (bigD1 k) //= => sum1.
have rest : 0 <= \big[Rplus/0]_(i | (i != target) && (i != k)) softmax s i.
  by apply: rsum_ge0 => i _; apply: Rlt_le; exact: softmax_gt0.
have pos := softmax_gt0 s k; set r := bigop _ _ _ in sum1 rest; rewrite Rminus_0_r Rabs_pos_eq; lra.
Qed.
End Softmax.

(** ** Small instances, by which mutants are refuted: two keys, and three on a line *)
Lemma rsum_unitE (F : unit -> R) : \sum_k F k = F tt.
Proof. by rewrite (big_pred1 tt) // => -[]. Qed.
Lemma rsum_bool (F : bool -> R) : \sum_k F k = F true + F false. Proof. exact: big_bool. Qed.
Lemma rsum_optionE (I : finType) (F : option I -> R) : \sum_p F p = F None + \sum_i F (Some i).
Proof. exact: (@sum_optionE reals). Qed.
Lemma rsum_threeE (F : option bool -> R) : \sum_k F k = F None + (F (Some true) + F (Some false)).
Proof. by rewrite rsum_optionE rsum_bool. Qed.
Lemma rsum_pair (F : unit * bool -> R) : \sum_k F k = F (tt, true) + F (tt, false).
Proof.
by rewrite (reindex (fun b : bool => (tt, b))) ?rsum_bool //; exists snd => [b|[[] b]] _.
Qed.
Lemma sum_unitE (S : numbers) (F : unit -> S) : (\sum_k F k = F tt)%num.
Proof. by rewrite (big_pred1 tt) // => -[]. Qed.
Lemma sum_bool (S : numbers) (F : bool -> S) : (\sum_k F k = F true + F false)%num.
Proof. exact: big_bool. Qed.
Lemma ln_gt0 x : 1 < x -> 0 < ln x.
Proof. by move=> x1; rewrite -ln_1; apply: ln_increasing; lra. Qed.
Lemma exp_ln2E : exp (ln 2) = 2 /\ exp (- ln 2) = / 2.
Proof. have E : exp (ln 2) = 2 by apply: exp_ln; lra. by rewrite exp_Ropp E. Qed.
(** Scores [x] and 0, and the share of the second. *)
Definition slope (x : R) (k : bool) : R := if k then 0 else x.
Lemma slope_shareE x : softmax (slope x) true = / (1 + exp x).
Proof. by rewrite /softmax rsum_bool /= exp_0; field; have := exp_pos x; lra. Qed.
Definition ends (k : option bool) : point 1 :=
  fun _ => if k is Some b then if b then 1%Z else (-1)%Z else 0%Z.
Lemma ends_grid : grid ends. Proof. by move=> [[]|] [[]|] // /(_ ord0). Qed.
Lemma distance1 (x y : point 1) : distance x y = ((x ord0 - y ord0) * (x ord0 - y ord0))%Z.
Proof. by rewrite /distance big_ord_recl big_ord0 Z.add_0_r. Qed.
Lemma distance0 (x y : point 0) : distance x y = 0%Z. Proof. by rewrite /distance big_ord0. Qed.
Lemma ends_shareE (x : R) : 0 < x -> quadratic_head ends (ln x) (ends None) None = / (1 + 2 / x).
Proof.
move=> x0; rewrite /quadratic_head /softmax rsum_threeE !distance1 /= Rmult_0_r exp_0 !Rmult_1_r.
by rewrite exp_Ropp exp_ln //; field; lra.
Qed.
