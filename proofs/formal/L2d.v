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

(** ** Mixing axis after axis *)
Unset Implicit Arguments.
Section Axes.
Variables (n : nat) (size : 'I_n -> nat) (p : forall a, 'I_(size a) -> R) (X : box size -> R)
  (range : R).
Hypotheses (p0 : forall a j, 0 <= p a j) (p1 : forall a, \big[Rplus/0]_(j < size a) p a j = 1).
Hypothesis small : forall k, Rabs (X k) <= range.
(** The axes before [i] averaged, the others as in [q]. *)
Definition done (i : nat) (q k : box size) : R :=
  \big[Rmult/1]_(a < n) (if (a < i)%N then p a (k a) else if k a == q a then 1 else 0).
Definition mean (i : nat) (q : box size) : R := \big[Rplus/0]_(k : box size) (done i q k * X k).
Lemma done_ge0 i q k : 0 <= done i q k.
Proof. rewrite /done; elim/big_ind: _ => [|x y|a _]; [lra | exact: Rmult_le_pos |];
  do 2?case: ifP => _; try lra; exact: p0. Qed.
Lemma done_sum1 i q : \big[Rplus/0]_(k : box size) done i q k = 1.
Proof.
pose F a (j : 'I_(size a)) := if (a < i)%N then p a j else if j == q a then 1 else 0.
have <- : \prod_a (\big[Rplus/0]_(j < size a) F a j) = \big[Rplus/0]_(k : box size) done i q k
  by exact: (prod_sumE F q).
apply: big1 => a _; rewrite /F; case: (a < i)%N; first exact: p1.
by rewrite -big_mkcond big_pred1_eq.
Qed.
Lemma mean_le i q : Rabs (mean i q) <= range.
Proof.
apply: Rle_trans (rsum_abs_le _ _ _) _;
  apply: Rle_trans (_ : \big[Rplus/0]_(k : box size) (done i q k * range) <= _).
  apply: rsum_le => k _; rewrite Rabs_mult (Rabs_pos_eq (done i q k)); last exact: done_ge0.
  by apply: Rmult_le_compat_l; [exact: done_ge0 | exact: small].
by rewrite -big_distrl /= done_sum1; lra.
Qed.
Lemma mean0 q : mean 0 q = X q.
Proof.
rewrite /mean (bigD1 q) //= [X in _ + X]big1 => [|k ne].
  by rewrite /done big1 => [|a _]; rewrite ?eqxx //; ring.
have [a ka] : exists a, k a != q a.
  by apply/existsP; rewrite -negb_forall; apply: contra ne => /forallP E; apply/eqP/ffunP => a;
    exact/eqP/E.
by rewrite /done (bigD1 a) //= (negbTE ka); ring.
Qed.
Definition replaced (a : 'I_n) (q k : box size) : box size :=
  [ffun b => if b == a then k b else q b].
Lemma mean_stepE (a : 'I_n) q : \big[Rplus/0]_(k : box size) (along (p a) q k * mean a k)
  = mean a.+1 q.
Proof.
have E k : along (p a) q k * mean a k
    = \big[Rplus/0]_(j : box size) (along (p a) q k * done a k j * X j).
  by rewrite /mean big_distrr; apply: eq_bigr => j _ /=; ring.
under eq_bigr do rewrite E.
rewrite exchange_big; apply: eq_bigr => j _ /=; rewrite -big_distrl /=; congr (_ * _).
rewrite (bigD1 (replaced a q j)) //= [X in _ + X]big1 ?Rplus_0_r => [|k ne]; last first.
  rewrite /along; case: ifP => [/forallP off|_]; last by rewrite Rmult_0_l.
  have [b kb] : exists b, k b != replaced a q j b.
    by apply/existsP; rewrite -negb_forall; apply: contra ne => /forallP F; apply/eqP/ffunP => b;
      exact/eqP/F.
  rewrite ffunE in kb; have ba : b = a.
    by apply/eqP; have := off b; case: (b == a) kb => //= kb; rewrite (negbTE kb).
  rewrite ba eqxx in kb; rewrite /done (bigD1 a) //= ltnn eq_sym (negbTE kb); ring.
have -> : along (p a) q (replaced a q j) = p a (j a).
  rewrite /along ifT; first by rewrite ffunE eqxx.
  by apply/forallP => b; rewrite ffunE; case: (b =P a) => //= _; exact: eqxx.
rewrite /done (bigD1 a) //= [RHS](bigD1 a) //= ltnn ltnSn ffunE !eqxx Rmult_1_l; congr (_ * _).
apply: eq_bigr => b ne; rewrite ffunE (negbTE ne).
have : (b < a.+1)%N = (b < a)%N by rewrite ltnS leq_eqVlt (inj_eq val_inj) (negbTE ne).
by move=> ->.
Qed.
Lemma mean_all q : mean n q = \big[Rplus/0]_(k : box size) ((\prod_a p a (k a)) * X k).
Proof. by apply: eq_bigr => k _; congr (_ * _); apply: eq_bigr => a _; rewrite ltn_ord. Qed.
End Axes.
Set Implicit Arguments.
Theorem mixing_along : L2d_axes.
Proof.
move=> n size s X y y0 step q; pose p a := softmax (s a).
have -> : \sum_k (softmax (fun j : box size => \sum_a s a (j a)) k * X k) = mean n size p X n q.
  by rewrite mean_all; apply: eq_bigr => k _; rewrite (separable s).
suff {q} : forall i, (i <= n)%N -> forall q, y i q = mean n size p X i q by apply.
elim=> [|i IH] lt q; first by rewrite y0 (mean0 n size p X).
rewrite (step (Ordinal lt)) -(mean_stepE n size p X (Ordinal lt)).
by apply: eq_bigr => k _; rewrite (IH (ltnW lt)).
Qed.

(** ** Instance: equal scores on a box of sides 2 and 3: each share is 1/2 * 1/3 *)
Definition sides (a : 'I_2) : nat := a.+2.
Theorem instance (k : box sides) : softmax (fun _ : box sides => \big[Rplus/0]_(a < 2) 0) k = 1 / 6.
Proof.
have := separable (size := sides) (fun _ _ => 0) k => ->.
rewrite !big_ord_recl big_ord0 /softmax /sides /= !big_ord_recl !big_ord0 exp_0; field.
Qed.
Theorem instance_along (X : box sides -> R) (y : nat -> box sides -> R) :
  (forall q, y 0%N q = X q) ->
  (forall (a : 'I_2) q, y a.+1 q = \sum_k along (softmax (fun _ : 'I_(sides a) => 0)) q k * y a k)
  ->
  forall q, y 2%N q = \sum_k 1 / 6 * X k.
Proof.
move=> y0 step q; rewrite (mixing_along (s := fun _ _ => 0) y0 step).
by apply: eq_bigr => k _; rewrite instance.
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
(** Along one axis of one key *)
Definition mutant_along := mixes_along (fun K s k => exp (s k)).
Theorem mutant_along_refuted : ~ mutant_along.
Proof.
pose size (_ : 'I_1) := 1%N; pose q : box size := [ffun _ => ord0].
have only (k : box size) : k = q by apply/ffunP => a; rewrite ffunE; exact: ord1.
pose y (m : nat) (_ : box size) := if m is 0%N then 1 else 2.
move=> /(_ 1%N size (fun _ _ => ln 2) (fun _ => 1) y (fun _ => erefl)) H.
have one (F : box size -> R) : \sum_k F k = F q by rewrite (big_pred1 q) // => k; rewrite (only k)
  /= eqxx.
have step (a : 'I_1) q' : y a.+1 q'
    = \sum_k along ((fun (K : finType) (s : K -> R) k => exp (s k)) _ (fun _ : 'I_(size a) => ln
    2)) q' k
      * y a k.
  rewrite one /along (only q') ifT; last by apply/forallP => b; rewrite eqxx orbT.
  by rewrite (proj1 exp_ln2E) /y (ord1 a) /=; ring.
have := H step q; rewrite one /softmax one /y /= => E.
set z := exp _ in E; have z0 : 0 < z by exact: exp_pos.
have : z / z = 1 by field; lra.
lra.
Qed.
