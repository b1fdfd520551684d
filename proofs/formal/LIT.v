(** * LIT: Lemma 2 and Theorem 1 read as exact equalities are false

    Claim: a softmax of finite scores over two keys or more gives each key less than 1, so no finite alpha gives Eq. (10)
    exactly; and one head on two pixels is never the 1 x 1 identity convolution, whatever its scores, even if they depend
    on the image. Lemma 2 and Theorem 1 hold in the limit (L2b, T1), and in floating point (A46).
    Source: Cordonnier et al. 2020, Lemma 2 and Theorem 1 (E14).
    Does not show: that more heads than taps could not cancel what leaks; the remark on alpha concedes that hard attention
    needs floats.
    Licenses: conv2attn.bounds.leaked_mass. *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Theorem below_one : LIT.
Proof.
move=> K s k k' ne; have := softmax_sum1 s k; rewrite (bigD1 k) //= (bigD1 k') //=.
have p := softmax_gt0 s k'.
have r : 0 <= \big[Rplus/0]_(i | (i != k) && (i != k')) softmax s i by apply: rsum_ge0 => i _; apply: Rlt_le; exact: softmax_gt0.
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

(** ** Instance: two pixels, alpha = 1: the target's share, 1 / (1 + e^-1), is below 1 *)
Theorem instance : / (1 + exp (-1)) < 1.
Proof.
have := below_one (fun k : bool => if k then 0 else -1) (isT : false != true).
by rewrite /softmax big_bool exp_0 /Rdiv Rmult_1_l.
Qed.

(** ** Mutant: a single key, where the softmax is 1 *)
Definition mutant := forall (K : finType) (s : K -> R) (target : K), softmax s target < 1.
Theorem mutant_refuted : ~ mutant.
Proof.
move=> /(_ _ (fun _ : unit => 0) tt); rewrite /softmax (bigD1 tt) //= big1 => [|[]] //.
by rewrite exp_0; lra.
Qed.
