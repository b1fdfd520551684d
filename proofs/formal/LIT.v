(** * LIT: Lemma 2 and Theorem 1 read literally

    Claim: A softmax of finite scores over two keys or more gives each key less than 1, so no finite
    alpha gives the one-hot attention of Eq. (10); and one head on two pixels is never the 1 x 1
    identity convolution, whatever its scores, even if they depend on X. Lemma 2 and Theorem 1 hold
    in the limit (L2b, T1) and in floating point (A46).
    Source: Cordonnier et al. 2020, Lemma 2 and Theorem 1; the remark on alpha concedes that it
    needs floats.
    Does not show: That more heads than taps cannot cancel what leaks. *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Theorem below_one : LIT.
Proof.
move=> K s k k' ne; have := softmax_sum1 s k; rewrite (bigD1 k) //= (bigD1 k') //=.
have p := softmax_gt0 s k'.
have r : 0 <= \big[Rplus/0]_(i | (i != k) && (i != k')) softmax s i by apply: rsum_ge0 => i _;
  apply: Rlt_le; exact: softmax_gt0.
by lra.
Qed.

Theorem no_identity : LIT_identity.
Proof.
move=> score w H; pose X (k : bool) := if k then 1 else 0.
have p := softmax_gt0 (score X false) true.
have := H X false; have := H X true; rewrite ![\sum_k _]big_bool /X /=.
move: (softmax (score _ true) true) => t E1 E0.
have E : softmax (score X false) true * w = 0 by move: E0; rewrite -/X; lra.
by case: (Rmult_integral _ _ E) => [|w0]; [lra | rewrite w0 in E1; lra].
Qed.

Theorem not_hard : LIT_hard.
Proof.
move=> n g ok two alpha H Cin h f Xq X hot.
have out0 a : (0 < out_side g a)%N by rewrite /out_side addn1.
pose q : queries g := [ffun a => Ordinal (out0 a)]; set k := key ok q (f h).
have [other ne] : exists other, other != k.
  apply/existsP; rewrite -negb_forall; apply: contraL two => /forallP all.
  by rewrite -leqNgt -(card1 k); apply: subset_leq_card; apply/subsetP => j _; rewrite inE;
    exact: all.
have := hot h q k; rewrite (readsE ok) eqxx => one.
have lt : converted alpha f Xq X h q k < 1 by exact: (below_one _ ne).
by move: lt; rewrite one => /Rlt_irrefl.
Qed.
Theorem no_layer : LIT_layer.
Proof.
move=> score D Wval Wout b H; pose w := merged Wval Wout tt tt tt.
have E X q : (\sum_k softmax (score X q) k * X k) * w + b tt = X q.
  pose attention (_ : unit) q : bool -> reals := softmax (score X q).
  have {}H : mhsa attention Wval Wout b (fun k _ => X k) q tt = X q by exact: H.
  by rewrite -[RHS]H mhsaE !(big_pred1 tt) // => -[].
have b0 : b tt = 0.
  have := E (fun _ => 0) true; rewrite big1 => [|k _]; last by rewrite Rmult_0_r.
  by rewrite Rmult_0_l Rplus_0_l.
by apply: (@no_identity score w) => X q; rewrite -[RHS](E X q) b0 Rplus_0_r.
Qed.

(** ** Instance: two pixels, alpha = 1: the target's share, 1 / (1 + e^-1), is below 1 *)
Theorem instance : / (1 + exp (-1)) < 1.
Proof.
have := below_one (fun k : bool => if k then 0 else -1) (isT : false != true).
by rewrite /softmax big_bool exp_0 /Rdiv Rmult_1_l.
Qed.

(** ** Mutants

    A single key, where the softmax is 1; a share below 1/2, or below some bound; one pixel, where a
    head is the identity; one image at a time *)
Definition mutant := forall (K : finType) (s : K -> R) (target : K), softmax s target < 1.
Theorem mutant_refuted : ~ mutant.
Proof. by move=> /(_ _ (fun _ : unit => 0) tt); rewrite /softmax rsum_unitE exp_0; lra. Qed.
Definition mutant_half := every_weight_below (/ 2).
Theorem mutant_half_refuted : ~ mutant_half.
Proof.
by move=> /(_ _ (slope (- ln 2)) true false isT); rewrite slope_shareE (proj2 exp_ln2E); lra.
Qed.
Definition mutant_uniform := exists c, c < 1 /\ every_weight_below c.
Theorem mutant_uniform_refuted : ~ mutant_uniform.
Proof.
move=> [c [c1 /(_ _ (slope (ln ((1 - c) / 2))) true false isT)]]; rewrite slope_shareE exp_ln;
  last lra.
move=> lt; have := Rmult_lt_compat_l (1 + (1 - c) / 2) _ _ ltac:(lra) lt; rewrite Rinv_r;
  [nra | lra].
Qed.
Definition mutant_one_pixel := no_identity_on unit_finType.
Theorem mutant_one_pixel_refuted : ~ mutant_one_pixel.
Proof.
by move=> /(_ (fun _ _ _ => 0) 1); apply=> X []; rewrite rsum_unitE /softmax rsum_unitE exp_0; lra.
Qed.
Definition mutant_one_image := forall (score : (bool -> R) -> bool -> bool -> R) (w : R) X,
  ~ forall q, (\sum_k softmax (score X q) k * X k) * w = X q.
Theorem mutant_one_image_refuted : ~ mutant_one_image.
Proof. by move=> /(_ (fun _ _ _ => 0) 1 (fun _ => 0)); apply=> q; rewrite rsum_bool; ring. Qed.
