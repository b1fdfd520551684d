(** * AND: Andreoli, Proposition 3

    Claim: the composition of two convolutions of bases [A'], [A''] and parameters [Theta'], [Theta''] is the convolution
    whose basis and parameter are the products, one for each pair of indices.
    Source: Andreoli 2019, Eq. (8) and Proposition 3.
    Does not show: Propositions 1 and 2 and Eq. (13), which are in the symbolic layer; products are not merged where equal.
    Licenses: conv2attn.basis (composition). *)
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require Import Statements.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Matrices. Local Open Scope ring_scope.

Theorem proposition3 : AND.
Proof.
move=> R K1 K2 m n n' p q q' A1 Theta1 A2 Theta2 x.
rewrite /basis_conv -(pair_bigA _ (fun k1 k2 => (A1 k1 *m A2 k2)^T *m x *m (Theta1 k1 *m Theta2 k2))) /= exchange_big /=.
apply: eq_bigr => k2 _; rewrite mulmx_sumr mulmx_suml; apply: eq_bigr => k1 _.
by rewrite trmx_mul !mulmxA.
Qed.

(** ** Instance: 1 x 1 matrices, one basis element each: 5 * (3 * x * 2) * 7 = 210 x *)
Theorem instance (x : 'M[int]_1) :
  basis_conv (fun _ : unit => 5%:M) (fun _ => 7%:M) (basis_conv (fun _ : unit => 3%:M) (fun _ => 2%:M) x) = 210%:Z *: x.
Proof.
rewrite proposition3 /basis_conv (bigD1 (tt, tt)) //= big1 ?addr0 => [|[[] []]] //.
rewrite -!scalar_mxM tr_scalar_mx mul_scalar_mx -scalemxAl mul_mx_scalar scalerA; congr (_ *: _).
Qed.

(** ** Mutant: the parameters multiplied in the other order *)
Definition mutant := forall (R : comRingType) (K1 K2 : finType) (n p : nat)
  (A1 : K1 -> 'M[R]_n) (Theta1 : K1 -> 'M[R]_p) (A2 : K2 -> 'M[R]_n) (Theta2 : K2 -> 'M[R]_p) x,
  basis_conv A2 Theta2 (basis_conv A1 Theta1 x)
  = basis_conv (fun k : K1 * K2 => A1 k.1 *m A2 k.2) (fun k => Theta2 k.2 *m Theta1 k.1) x.
Theorem mutant_refuted : ~ mutant.
Proof.
pose N : 'M[int]_2 := delta_mx 0 1; pose M : 'M[int]_2 := delta_mx 1 0.
move=> /(_ [comRingType of int] [finType of unit] [finType of unit] 2%N 2%N (fun _ => 1%:M) (fun _ => N) (fun _ => 1%:M) (fun _ => M) 1%:M).
have U (F : unit -> 'M[int]_2) : \sum_k F k = F tt by rewrite (bigD1 tt) //= big1 ?addr0 // => -[].
have UU (F : unit * unit -> 'M[int]_2) : \sum_k F k = F (tt, tt) by rewrite (bigD1 (tt, tt)) //= big1 ?addr0 // => -[[] []].
rewrite /basis_conv !U UU /=.
rewrite !mulmx1 !trmx1 !mul1mx !mul_delta_mx => /matrixP /(_ 0 0); rewrite !mxE /=.
by [].
Qed.
