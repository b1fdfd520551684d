(** * HEADS: how many position-only heads one given convolution needs

    Claim: if heads supported on the neighbourhood give a convolution, there are at least as many as the rank [r] of its
    tap matrix (taps in rows, pairs of channels in columns). And [r + 1] heads always serve, positive on every tap, so they
    are softmaxes. [-1, 0, 1] has rank 1 and one head does not give it.
    Source: this project.
    Does not show: when [r] heads serve, which the symbolic layer decides by a linear programme.
    Licenses: conv2attn.express. *)
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require Import Statements.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory Matrices. Local Open Scope ring_scope.

Theorem lower : HEADS_lower.
Proof. by move=> F h t p B M W ->; apply: leq_trans (mxrankM_maxl _ _) (rank_leq_col _). Qed.

(** ** r + 1 heads: the uniform one, and a basis of the tap patterns lifted by a constant until it is positive *)
Section Upper.
Variables (F : realFieldType) (t p r : nat) (C : 'M[F]_(t.+1, r)) (R : 'M[F]_(r, p)).
Let m : F := 1 + \sum_i \sum_j `|C i j|.
Lemma lifted_gt0 i j : 0 < m + C i j.
Proof.
have H : `|C i j| <= \sum_i \sum_j `|C i j|.
  rewrite (bigD1 i) //= (bigD1 j) //= -addrA ler_addl addr_ge0 // sumr_ge0 // => k _.
  by rewrite sumr_ge0.
have H2 : - C i j <= `|C i j| by rewrite -normrN ler_norm.
by rewrite -ltr_subl_addr sub0r; apply: le_lt_trans (le_trans H2 H) _; rewrite /m ltr_addr.
Qed.
Let s (j : 'I_r) := \sum_i (m + C i j).
Lemma s_gt0 j : 0 < s j.
Proof. by rewrite /s big_ord_recl ltr_paddr ?lifted_gt0 // sumr_ge0 // => i _; rewrite ltW ?lifted_gt0. Qed.
Definition heads : 'M[F]_(1 + r, t.+1) := col_mx (const_mx (t.+1%:R)^-1) (\matrix_(j, i) ((m + C i j) / s j)).
Lemma heads_gt0 h i : 0 < heads h i.
Proof. by rewrite mxE; case: splitP => j _; rewrite !mxE ?invr_gt0 ?ltr0Sn // divr_gt0 ?lifted_gt0 ?s_gt0. Qed.
Lemma heads_sum1 h : \sum_i heads h i = 1.
Proof.
under eq_bigr do rewrite mxE; case: splitP => j _.
  by under eq_bigr do rewrite mxE; rewrite sumr_const card_ord -[X in X = _]mulr_natl mulfV // pnatr_eq0.
by under eq_bigr do rewrite mxE; rewrite -mulr_suml mulfV // gt_eqF // s_gt0.
Qed.
Lemma heads_span : exists M, C *m R = heads^T *m M.
Proof.
exists (col_mx (\row_k (- (m * t.+1%:R) * \sum_j R j k)) (\matrix_(j, k) (s j * R j k))).
rewrite tr_col_mx mul_row_col; apply/matrixP=> i k; rewrite !mxE big_ord1 !mxE.
rewrite mulNr mulrN mulrA mulrCA mulVf ?pnatr_eq0 // mulr1 mulr_sumr -sumrN -big_split /=.
apply: eq_bigr => j _; rewrite !mxE mulrA divfK ?gt_eqF ?s_gt0 //.
by rewrite [(m + _) * _]mulrDl addrA addNr add0r.
Qed.
End Upper.

Theorem upper : HEADS_upper.
Proof.
move=> F t p W; exists (heads (col_base W)); split; first split.
- by move=> h i; exact: ltW (heads_gt0 _ _ _).
- exact: heads_sum1.
split; first exact: heads_gt0.
by have := heads_span (col_base W) (row_base W); rewrite mulmx_base.
Qed.

Theorem one_is_not_enough : HEADS_edge.
Proof.
split.
  apply/eqP; rewrite eqn_leq (leq_trans (rank_leq_col _)) //= lt0n mxrank_eq0.
  by apply/eqP => /matrixP /(_ 0 0); rewrite !mxE /= => /eqP; rewrite sub0r oppr_eq0 oner_eq0.
move=> B M [B0 _] /matrixP E.
have := E 0 0; have := E (lift ord0 (lift ord0 ord0)) 0; rewrite !mxE !big_ord1 !mxE /= /bump /= => E2 E0.
have p : 0 < M 0 0.
  rewrite ltNge; apply/negP => M0; have : B 0 (lift ord0 (lift ord0 ord0)) * M 0 0 <= 0 by exact: mulr_ge0_le0.
  by rewrite -E2; vm_compute.
have : 0 <= B 0 0 * M 0 0 by rewrite mulr_ge0 // ltW.
by rewrite -E0; vm_compute.
Qed.

(** ** Instance: two heads for [-1, 0, 1], (1/3, 1/3, 1/3) and (1/6, 1/3, 1/2): 6 times the second less 6 times the first;
    one head does not do *)
Theorem instance : edge = (\matrix_(h < 2, t < 3) (if h == 0 then 3%:R^-1 else (1 + t%:R) / 6%:R))^T
  *m \col_(h < 2) (if h == 0 then - 6%:R else 6%:R)
  /\ forall (B : 'M[rat]_(1, 3)) M, attends B -> edge <> B^T *m M.
Proof.
split; last by have [_ no] := one_is_not_enough.
apply/matrixP => i j; rewrite !mxE !big_ord_recl big_ord0 !mxE /=.
by case: i => [[|[|[|//]]] lt]; apply/eqP; vm_compute.
Qed.

(** ** Mutant: as many heads as the rank are always enough *)
Definition mutant := forall (F : realFieldType) (t p : nat) (W : 'M[F]_(t, p)),
  exists B : 'M[F]_(\rank W, t), attends B /\ exists M, W = B^T *m M.
Theorem mutant_refuted : ~ mutant.
Proof.
have [rank1 no] := one_is_not_enough => /(_ _ _ _ edge); rewrite rank1 => -[B [att [M E]]].
exact: no att E.
Qed.
