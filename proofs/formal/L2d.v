(** * L2d: Separable attention

    Claim: Over a box, a head whose score is a sum over axes has as its softmax the outer product of
    the softmaxes of the axes; mixing the tokens by it is mixing the rows, then the columns. For
    every alpha and every real centre, also with a different alpha on each axis.
    Source: this project.
    Does not show: Rounding. n axes follow by induction, the first factor standing for the axes
    done; the induction is read by a person here and checked in the formal layer. *)
From Coq Require Import ZArith Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Lemma rprod_neq0 (I : Type) (r : seq I) (P : pred I) (F : I -> R) :
  (forall i, P i -> F i <> 0) -> \big[Rmult/1]_(i <- r | P i) F i <> 0.
Proof.
move=> H; elim/big_ind: _ => [|x y Hx Hy|];
  [lra | exact: Rmult_integral_contrapositive_currified | exact: H].
Qed.
Lemma rprod_divE (I : finType) (F G : I -> R) : (forall i, G i <> 0) ->
  \prod_i (F i / G i) = \prod_i F i / \prod_i G i.
Proof.
move=> H; elim: (index_enum I) => [|i r IH]; first by rewrite !big_nil; field.
by rewrite !big_cons IH; field; split; [apply: rprod_neq0 | apply: H].
Qed.

(** A product of sums over the axes is the sum over the box, for axes of different sizes: the axis
    [a] is the part [x < size a] of one common range. The point [k] only says that no axis is
    empty. *)
Section Distribute.
Variables (n : nat) (size : 'I_n -> nat) (F : forall a, 'I_(size a) -> R) (k : box size).
Let m := (\max_a size a)%N.
Let size_le a : (size a <= m)%N. Proof. exact: leq_bigmax. Qed.
Let widen a : 'I_(size a) -> 'I_m := widen_ord (size_le a).
Let back a (x : 'I_m) : 'I_(size a) := insubd (k a) (val x).
Let widenK a : cancel (@widen a) (@back a).
Proof. by move=> i; apply: val_inj; rewrite val_insubd /= ltn_ord. Qed.
Let backK a (x : 'I_m) : (x < size a)%N -> widen (back a x) = x.
Proof. by move=> lt; apply: val_inj; rewrite /= val_insubd lt. Qed.
Lemma sum_axisE a : \big[Rplus/0]_(i < size a) F i = \big[Rplus/0]_(x : 'I_m | (x < size a)%N) F
  (back a x).
Proof.
rewrite (reindex_onto (@widen a) (@back a)) /=; last exact: backK.
by apply: eq_big => [i|i _]; rewrite widenK ?ltn_ord ?eqxx.
Qed.
Lemma prod_sumE : \prod_a (\big[Rplus/0]_(i < size a) F i) = \big[Rplus/0]_(j : box size) \prod_a F
  (j a).
Proof.
under eq_bigr do rewrite sum_axisE.
rewrite (bigA_distr_big_dep (fun a (x : 'I_m) => (x < size a)%N) (fun a x => F (back a x))).
rewrite (reindex_onto (fun j : box size => [ffun a => widen (j a)])
  (fun f => [ffun a => back a (f a)])) /=; last first.
  by move=> f /familyP H; apply/ffunP => a; rewrite !ffunE backK //; exact: H.
apply: eq_big => [j|j _]; last by apply: eq_bigr => a _; rewrite ffunE widenK.
have -> : [ffun a => back a ([ffun a => widen (j a)] a)] = j by apply/ffunP => a;
  rewrite !ffunE widenK.
by rewrite eqxx andbT; apply/familyP => a; rewrite ffunE /in_mem /= ltn_ord.
Qed.
End Distribute.

Theorem separable : L2d.
Proof.
move=> n size s k; rewrite /softmax rprod_divE => [|a];
  last by have := softmax_den_gt0 (s a) (k a); lra.
rewrite exp_rsumE; congr (_ / _); rewrite (prod_sumE (fun a i => exp (s a i)) k).
by apply: eq_bigr => j _; exact: exp_rsumE.
Qed.

Theorem mixing_by_axis : L2d_mixing.
Proof.
move=> K1 K2 s1 s2 X; have P (k : K1 * K2) : softmax (fun k => s1 k.1 + s2 k.2) k
  = softmax s1 k.1 * softmax s2 k.2.
  rewrite /softmax exp_plus.
  have -> : \sum_j exp (s1 j.1 + s2 j.2) = (\sum_j exp (s1 j)) * (\sum_j exp (s2 j)).
    rewrite big_distrl /= -(pair_bigA _ (fun i j => exp (s1 i + s2 j))) /=; apply: eq_bigr => i _.
    by rewrite big_distrr; apply: eq_bigr => j _; exact: exp_plus.
  by have := softmax_den_gt0 s1 k.1; have := softmax_den_gt0 s2 k.2; move=> p2 p1; field; lra.
transitivity (\sum_i \sum_j softmax s1 i * softmax s2 j * X (i, j)).
  by rewrite pair_bigA; apply: eq_bigr => -[i j] _; rewrite P.
by rewrite exchange_big; apply: eq_bigr => j _; rewrite big_distrr; apply: eq_bigr => i _ /=; ring.
Qed.

(** ** Instance: equal scores on a box of sides 2 and 3: each share is 1/2 * 1/3 *)
Definition sides (a : 'I_2) : nat := a.+2.
Theorem instance (k : box sides) : softmax (fun _ : box sides => \big[Rplus/0]_(a < 2) 0) k = 1 / 6.
Proof.
have := separable (size := sides) (fun _ _ => 0) k => ->.
rewrite !big_ord_recl big_ord0 /softmax /sides /= !big_ord_recl !big_ord0 exp_0; field.
Qed.

(** ** Mutants

    Any score over two axes, as a full covariance has it; scores multiplied or subtracted; weights
    of an axis that are not divided, or missing *)
Definition mutant := forall s : bool * bool -> R, exists f g : bool -> R, forall k,
  softmax s k = f k.1 * g k.2.
Theorem mutant_refuted : ~ mutant.
Proof.
move=> /(_ (fun k => if k.1 && k.2 then ln 2 else 0)) [f [g E]].
have := E (true, true); have := E (true, false); have := E (false, true); have := E (false, false).
rewrite /softmax -(pair_bigA _ (fun i j => exp (if i && j then ln 2 else 0))) /= !big_bool /=.
rewrite !exp_0 (proj1 exp_ln2E).
move=> H1 H2 H3 H4; have : (f true * g true) * (f false * g false)
  = (f true * g false) * (f false * g true) by ring.
by rewrite -H1 -H2 -H3 -H4; lra.
Qed.
Definition last_of_two (k : unit * bool) : R := if k.2 then 1 else 0.
Ltac on_two_axes :=
  rewrite rsum_pair rsum_bool !rsum_unitE /softmax !rsum_bool ?rsum_pair ?rsum_unitE /last_of_two /=
  ?Rplus_0_l ?Rplus_0_r ?Rminus_0_r ?Rminus_0_l ?Rmult_0_l ?(proj1 exp_ln2E) ?(proj2 exp_ln2E)
    ?exp_0;
  lra.
Definition mutant_product := mixes_apart Rmult softmax.
Theorem mutant_product_refuted : ~ mutant_product.
Proof. by move=> /(_ _ _ (fun _ => 0) (slope (ln 2)) last_of_two); on_two_axes. Qed.
Definition mutant_difference := mixes_apart Rminus softmax.
Theorem mutant_difference_refuted : ~ mutant_difference.
Proof. by move=> /(_ _ _ (fun _ => 0) (slope (ln 2)) last_of_two); on_two_axes. Qed.
Definition mutant_unnormalised := mixes_apart Rplus (fun K s k => exp (s k)).
Theorem mutant_unnormalised_refuted : ~ mutant_unnormalised.
Proof. by move=> /(_ _ _ (fun _ => ln 2) (slope 0) (fun _ : unit * bool => 1)); on_two_axes. Qed.
Definition mutant_one_axis := mixes_apart Rplus (fun K s k => 1).
Theorem mutant_one_axis_refuted : ~ mutant_one_axis.
Proof.
move=> /(_ _ _ (fun _ => ln 2) (slope 0) (fun k : bool * bool => if k.1 then 1 else 0)).
rewrite -(pair_bigA _ (fun i j => softmax _ (i, j) * (if i then 1 else 0))) /= !rsum_bool.
by rewrite /softmax -(pair_bigA _ (fun i j => exp (ln 2 + slope 0 j))) /= !rsum_bool /= Rplus_0_r
  (proj1 exp_ln2E) exp_0; lra.
Qed.
