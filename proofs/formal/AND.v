(** * AND: Andreoli: Propositions 1-3, Eqs. (9)-(13)

    Claim: (1) Over a basis every tensor has a unique decomposition. (2) A convolution of basis A
    and parameter Theta is y = sum_k A_k' x Theta_k; the grid convolution and position-only
    attention are instances. (3) Composing two of them multiplies their bases and their parameters;
    the first layer's bias becomes a field over the queries. (13) Concatenating heads and
    multiplying by an output matrix is the sum over heads with Theta_k = value_k output_k. (9) If
    Theta_k = sum_h theta_hk C_h, basis elements may be added up first, H terms for K. (12) A bi-
    linear term key query' is the inner product of keys and queries. (11) A softmax over the inputs
    cancels lambda' and xi; with a leaky ReLU before it, it does not. Masked inputs weigh 0, after a
    leaky ReLU too, but not after a plain one. A depthwise layer and a pointwise one behind it that
    uses every channel are (9) with as many C_h as the rank of the kernels, and in general not with
    one.
    Source: Andreoli 2019, Propositions 1, 2, 3, Eqs. (6)-(13), Definitions 4-6, Section 3.2.
    Does not show: That products of two bases which are equal as maps may be merged: that depends on
    the maps, and with zero padding most differ at the border. *)
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Matrices. Local Open Scope ring_scope.

Theorem proposition1 : AND1.
Proof.
move=> F s t k a free full Phi.
have ks : k = s by move: free full; rewrite /row_free /row_full => /eqP -> /eqP.
case: s / ks a free full Phi => a free _ Phi; have u : a^T \in unitmx
  by rewrite unitmx_tr -row_free_unit.
by exists (invmx a^T *m Phi); split=> [|Theta ->]; rewrite ?mulKVmx ?mulKmx.
Qed.

Theorem proposition2 : AND2.
Proof.
move=> R K m n p q A Theta x i j; rewrite /basis_conv summxE.
under eq_bigr do under eq_bigr do rewrite mulr_sumr.
under eq_bigr do rewrite exchange_big /=.
rewrite exchange_big /=; apply: eq_bigr => k _; rewrite mxE exchange_big /=; apply: eq_bigr => b _.
by rewrite !mxE mulr_suml; apply: eq_bigr => a _; rewrite !mxE mulrCA mulrA.
Qed.

Theorem proposition3 : AND.
Proof.
move=> R K1 K2 m n n' p q q' A1 Theta1 A2 Theta2 x.
rewrite /basis_conv
  -(pair_bigA _ (fun k1 k2 => (A1 k1 *m A2 k2)^T *m x *m (Theta1 k1 *m Theta2 k2))) /= exchange_big
  /=.
apply: eq_bigr => k2 _; rewrite mulmx_sumr mulmx_suml; apply: eq_bigr => k1 _.
by rewrite trmx_mul !mulmxA.
Qed.

Theorem bias_field : AND_bias.
Proof.
move=> R K1 K2 m n n' p q q' A1 Theta1 A2 Theta2 b x; rewrite -proposition3 /basis_conv.
under eq_bigr do rewrite mulmxDr mulmxDl.
rewrite big_split /=; congr (_ + _); apply/matrixP => j o; rewrite !mxE !summxE;
  apply: eq_bigr => l _.
rewrite -mulmxA !mxE mulr_suml; apply: eq_bigr => i _; rewrite !mxE; congr (_ * _).
by apply: eq_bigr => c _; rewrite !mxE.
Qed.

Theorem concatenation : AND13.
Proof.
move=> R K m n p d q A V U x; apply/matrixP => i j; rewrite mxE /basis_conv summxE.
rewrite -(pair_bigA _ (fun k e => ((A k)^T *m x *m V k) i e * U k e j)) /=.
by apply: eq_bigr => k _; rewrite mulmxA mxE.
Qed.

Theorem shared_parameters : AND9.
Proof.
move=> R K H m n p q A theta C x; rewrite /basis_conv.
under eq_bigr do rewrite mulmx_sumr; rewrite exchange_big /=; apply: eq_bigr => h _.
rewrite linear_sum /= !mulmx_suml; apply: eq_bigr => k _.
by rewrite -scalemxAr [(_ *: _)^T]linearZ /= -!scalemxAl.
Qed.

Theorem bilinear_scores : AND12.
Proof. by move=> R m n p q d x z key query; rewrite trmx_mul !mulmxA. Qed.

Theorem attention : AND_attention.
Proof.
move=> R Q K H D Cin Cout P Wval Wout X q o; rewrite mhsaE /basis_conv summxE.
rewrite [LHS]GRing.addr0; apply: eq_bigr => h _;
  rewrite !mxE (reindex (@enum_val _ (mem {: Cin}))) /=; last exact: onW_bij (enum_val_bij _).
apply: eq_bigr => c _; rewrite !mxE enum_rankK; congr (_ * _).
rewrite (reindex (@enum_val _ (mem {: K}))) /=; last exact: onW_bij (enum_val_bij _).
by apply: eq_bigr => k _; rewrite !mxE enum_rankK.
Qed.

(** ** Instance: 1 x 1 matrices, one basis element each: 5 * (3 * x * 2) * 7 = 210 x *)
Theorem instance (x : 'M[int]_1) :
  basis_conv (fun _ : unit => 5%:M) (fun _ => 7%:M)
    (basis_conv (fun _ : unit => 3%:M) (fun _ => 2%:M) x) = 210%:Z *: x.
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
move=> /(_ [comRingType of int] [finType of unit] [finType of unit] 2%N 2%N (fun _ => 1%:M)
  (fun _ => N) (fun _ => 1%:M) (fun _ => M) 1%:M).
have U (F : unit -> 'M[int]_2) : \sum_k F k = F tt by rewrite (bigD1 tt) //= big1 ?addr0 // => -[].
have UU (F : unit * unit -> 'M[int]_2) : \sum_k F k = F (tt, tt)
  by rewrite (bigD1 (tt, tt)) //= big1 ?addr0 // => -[[] []].
rewrite /basis_conv !U UU /=.
rewrite !mulmx1 !trmx1 !mul1mx !mul_delta_mx => /matrixP /(_ 0 0); rewrite !mxE /=.
by [].
Qed.
