(** * HEADS: The smallest number of heads

    Claim: Position-only heads whose attention lives on the kernel's neighbourhood (masked to it)
    express a given convolution with tap matrix W (taps x channel pairs) of rank r > 0 with at least
    r heads. r suffice if and only if the column space of W, its space of tap patterns, holds a
    vector that is positive on every non-zero tap (then it is 0 on the others): a rational linear
    programme. Otherwise r + 1 are needed, and suffice.
    Source: this project.
    Does not show: Heads that look beyond the neighbourhood and cancel there; that the alternative
    of the linear programme (Gordan: some x, or some y >= 0, y != 0 on the non-zero taps with y'W =
    0) is complete, which is classical. *)
From Coq Require Import Ring_theory Ring.
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require TapHeads.
From C2A Require Import Statements Sums L1 T1p OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory Matrices. Local Open Scope ring_scope.

Theorem lower : HEADS_lower.
Proof. by move=> F h t p B M W ->; apply: leq_trans (mxrankM_maxl _ _) (rank_leq_col _). Qed.

(** ** r + 1 heads

    The uniform one, and a basis of the tap patterns lifted by a constant until it is positive *)
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
Proof. by rewrite /s big_ord_recl ltr_paddr ?lifted_gt0 // sumr_ge0 // => i _;
  rewrite ltW ?lifted_gt0. Qed.
Definition heads : 'M[F]_(1 + r, t.+1) := col_mx (const_mx (t.+1%:R)^-1)
  (\matrix_(j, i) ((m + C i j) / s j)).
Lemma heads_gt0 h i : 0 < heads h i.
Proof. by rewrite mxE; case: splitP => j _;
  rewrite !mxE ?invr_gt0 ?ltr0Sn // divr_gt0 ?lifted_gt0 ?s_gt0. Qed.
Lemma heads_sum1 h : \sum_i heads h i = 1.
Proof.
under eq_bigr do rewrite mxE; case: splitP => j _.
  by under eq_bigr do rewrite mxE;
    rewrite sumr_const card_ord -[X in X = _]mulr_natl mulfV // pnatr_eq0.
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

(** ** r heads

    A pattern that is positive where it may be, added often enough to each pattern of a basis *)
Section Ring.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Lemma crossE (m u rho q s : S) : m * u * rho - q * rho * u - q * rho * (m * u) * s
  = (m - q * (1 + m * s)) * (u * rho).
Proof. ring. Qed.
Lemma expandE (c m u r q y rho : S) :
  (c + m * u) * (r - q * y * rho) = c * r + (m * u * r - q * rho * (c * y) - q * rho * (m * u) * y).
Proof. ring. Qed.
End Ring.
Section Exactly.
Variables (F : realFieldType) (t p r : nat).
Lemma positive_pattern (B : 'M[F]_(r, t)) (M : 'M[F]_(r, p)) : attends B -> row_free M ->
  exists x : 'cV[F]_p, forall i, row i (B^T *m M) != 0 -> 0 < ((B^T *m M) *m x) i ord0.
Proof.
move=> [B0 _] free; exists (pinvmx M *m const_mx 1) => i nonzero.
rewrite -mulmxA [M *m _]mulmxA mulmxVp // mul1mx mxE.
have sum0 : 0 <= \sum_j B^T i j * (const_mx 1 : 'cV[F]_r) j ord0.
  by apply: sumr_ge0 => j _; rewrite !mxE mulr1.
rewrite lt_def sum0 andbT; apply: contra nonzero => /eqP zero.
have Bi j : B j i = 0.
  have/eqP := zero; rewrite psumr_eq0 => [/allP /(_ j (mem_index_enum j))|k _];
    last by rewrite !mxE mulr1.
  by rewrite !mxE mulr1 => /eqP.
by apply/eqP/rowP => c; rewrite !mxE big1 // => j _; rewrite mxE Bi mul0r.
Qed.
Variables (C : 'M[F]_(t, r)) (R : 'M[F]_(r, p)) (x : 'cV[F]_p).
Hypotheses (free : row_free R) (rank : \rank (C *m R) = r).
Hypothesis positive : forall i, row i (C *m R) != 0 -> 0 < ((C *m R) *m x) i ord0.
Let y (j : 'I_r) : F := (R *m x) j ord0.
Let u (i : 'I_t) : F := \sum_j C i j * y j.
Let uE i : u i = ((C *m R) *m x) i ord0. Proof. by rewrite -mulmxA [RHS]mxE. Qed.
Let zero_row0 i : row i (C *m R) = 0 -> forall j, C i j = 0.
Proof.
move=> /eqP; rewrite row_mul mulmx_free_eq0 // => /eqP /rowP E j.
by have := E j; rewrite !mxE.
Qed.
Let u_ge0 i : 0 <= u i.
Proof.
case: (eqVneq (row i (C *m R)) 0) => [/zero_row0 E|/positive]; last by rewrite uE => /ltW.
by rewrite /u big1 // => j _; rewrite E mul0r.
Qed.
Let s := \sum_j y j.
Let m : F := 1 + \sum_i \sum_j `|C i j| / u i + `|s|^-1.
Let ratio_ge0 : 0 <= \sum_i \sum_j `|C i j| / u i.
Proof. by apply: sumr_ge0 => i _; apply: sumr_ge0 => j _; rewrite divr_ge0. Qed.
Let m_gt0 : 0 < m. Proof. by rewrite /m ltr_paddr ?invr_ge0 // ltr_paddr. Qed.
Let pattern i j := C i j + m * u i.
Let pattern_gt0 i j : row i (C *m R) != 0 -> 0 < pattern i j.
Proof.
move=> /positive; rewrite -uE => u0; rewrite /pattern.
have H : `|C i j| / u i <= \sum_i \sum_j `|C i j| / u i.
  rewrite (bigD1 i) //= (bigD1 j) //= -addrA ler_addl addr_ge0 // sumr_ge0 // => k _;
    first by rewrite divr_ge0.
  by rewrite sumr_ge0 // => l _; rewrite divr_ge0.
have : `|C i j| / u i < m by apply: le_lt_trans H _;
  rewrite /m addrAC -[X in X < _]add0r ltr_add2r ltr_paddr ?invr_ge0 ?normr_ge0 ?ltr01.
rewrite ltr_pdivr_mulr // => lt; rewrite -ltr_subl_addl sub0r; apply: le_lt_trans lt.
by rewrite -normrN ler_norm.
Qed.
Let pattern_ge0 i j : 0 <= pattern i j.
Proof.
case: (eqVneq (row i (C *m R)) 0) => [/zero_row0 E|/(@pattern_gt0 i j) /ltW //].
by rewrite /pattern E add0r mulr_ge0 // ltW.
Qed.
Let total j := \sum_i pattern i j.
Let total_gt0 j : 0 < total j.
Proof.
have [i ne] : exists i, row i (C *m R) != 0.
  apply/existsP; rewrite -negb_forall; apply/negP => /forallP zero.
  have W0 : C *m R = 0 by apply/row_matrixP => i; rewrite row0; apply/eqP.
  by move: j; rewrite -rank W0 mxrank0 => -[].
by rewrite /total (bigD1 i) //= ltr_paddr ?pattern_gt0 // sumr_ge0.
Qed.
Let away : 1 + m * s != 0.
Proof.
case: (lerP 0 s) => s0; first by rewrite gt_eqF // ltr_paddr ?ltr01 // mulr_ge0 // ltW.
have s1 : `|s| = - s by rewrite ltr0_norm.
rewrite lt_eqF // -ltr_subr_addl sub0r -[X in _ < X]opprK ltr_oppr -mulrN -s1.
have n0 : 0 < `|s| by rewrite normr_gt0 lt_eqF.
by rewrite opprK -ltr_pdivr_mulr // mul1r /m ltr_addr ltr_paddr ?ltr01.
Qed.
Lemma heads_of_pattern : exists B : 'M[F]_(r, t), attends B /\ exists M, C *m R = B^T *m M.
Proof.
exists (\matrix_(j, i) (pattern i j / total j)); split; first split.
- by move=> j i; rewrite mxE divr_ge0 // ltW.
- by move=> j; under eq_bigr do rewrite mxE;
  rewrite -mulr_suml -/(total j) mulfV // gt_eqF // ?total_gt0.
pose rho k := \sum_j R j k; pose q := m / (1 + m * s).
exists (\matrix_(j, k) (total j * (R j k - q * y j * rho k))); apply/matrixP => i k; rewrite !mxE.
transitivity
  (\sum_j (C i j * R j k
  + (m * u i * R j k - q * rho k * (C i j * y j) - q * rho k * (m * u i) * y j))).
  have E : m * u i * rho k - q * rho k * u i - q * rho k * (m * u i) * s = 0.
    have qE : q * (1 + m * s) = m by rewrite /q divfK.
    transitivity ((m - q * (1 + m * s)) * (u i * rho k));
      first exact: (@crossE (of_ring F) m (u i) (rho k) q s).
    by rewrite qE subrr mul0r.
  by rewrite big_split /= !big_split /= !sumrN -!mulr_sumr -/(u i) -/s -/(rho k) E addr0.
apply: eq_bigr => j _; rewrite !mxE [RHS]mulrA divfK ?gt_eqF ?total_gt0 // /pattern; symmetry.
exact: (@expandE (of_ring F) (C i j) m (u i) (R j k) q (y j) (rho k) : _ = _ :> F).
Qed.
End Exactly.

Theorem exactly : HEADS_iff.
Proof.
move=> F t p W; split=> [[B [att [M E]]]|[x positive]].
  have free : row_free M by rewrite /row_free eqn_leq rank_leq_row {1}E mxrankM_maxr.
  by rewrite E; exact: positive_pattern.
have [||] := @heads_of_pattern F t p (\rank W) (col_base W) (row_base W) x (row_base_free W).
- by rewrite mulmx_base.
- by rewrite mulmx_base.
by move=> B; rewrite mulmx_base; exists B.
Qed.

Theorem one_head_is_not_enough : HEADS_edge.
Proof.
split.
  apply/eqP; rewrite eqn_leq (leq_trans (rank_leq_col _)) //= lt0n mxrank_eq0.
  by apply/eqP => /matrixP /(_ 0 0); rewrite !mxE /= => /eqP; rewrite sub0r oppr_eq0 oner_eq0.
move=> B M [B0 _] /matrixP E.
have := E 0 0; have := E (lift ord0 (lift ord0 ord0)) 0;
  rewrite !mxE !big_ord1 !mxE /= /bump /= => E2 E0.
have p : 0 < M 0 0.
  rewrite ltNge; apply/negP => M0; have : B 0 (lift ord0 (lift ord0 ord0)) * M 0 0 <= 0
    by exact: mulr_ge0_le0.
  by rewrite -E2; vm_compute.
have : 0 <= B 0 0 * M 0 0 by rewrite mulr_ge0 // ltW.
by rewrite -E0; vm_compute.
Qed.

(** ** Layers *)
Theorem need : HEADS_need.
Proof.
move=> F n g ok G ci co H D B P Wval Wout weight b b' on E.
have [/(_ E) [tapsE _] _] := TapHeads.layer ok Wval Wout weight b b' on.
apply: (lower (B := \matrix_(h < #|H|, t < #|{: taps g}|) (B (enum_val h) (enum_val t) : F))
  (M := \matrix_(h < #|H|, p < #|{: 'I_(G * ci) * 'I_(G * co)}|) (merged Wval Wout (enum_val h)
  (enum_val p).1 (enum_val p).2 : F))).
apply/matrixP => t p; rewrite !mxE tapsE (reindex _ (onW_bij _ (enum_val_bij H))) /=.
by apply: eq_bigr => h _; rewrite !mxE.
Qed.

Theorem serve : HEADS_serve.
Proof.
move=> F n g ok G ci co d wide weight b.
have some : (0 < #|{: taps g}|)%N.
  have kernel0 a : (0 < kernel g a)%N by have [] := ok a.
  by apply/card_gt0P; exists [ffun a => Ordinal (kernel0 a)].
have upper' t p (W : 'M[F]_(t, p)) : (0 < t)%N -> exists B : 'M[F]_(1 + \rank W, t),
  attends B /\ (forall i j, 0 < B i j) /\ exists M, W = B^T *m M by case: t W => // t W _; exact:
  upper.
have [B [[_ B1] [pos [M E]]]] := upper' _ _ (tap_matrix ci weight) some.
have factors h : exists VU : 'M[F]_(G * ci, d) * 'M[F]_(d, G * co),
    \matrix_(c, o) M h (enum_rank (c, o)) = VU.1 *m VU.2.
  have /factor_iff_rank [V [U VU]] : (\rank (\matrix_(c < G * ci, o < G * co)
      M h (enum_rank (c, o))) <= d)%N.
    by apply: leq_trans wide; rewrite leq_min rank_leq_row rank_leq_col.
  by exists (V, U).
have [f fE] := fin_all_exists factors.
exists (fun h t => B h (enum_rank t)), (fun h c e => (f h).1 c e), (fun h e o => (f h).2 e o).
split=> [h|P on Z q o].
  split=> [t|]; first exact: pos.
  by rewrite -(B1 h) [RHS](reindex _ (onW_bij _ (enum_rank_bij [finType of taps g]))).
have [_] := TapHeads.layer ok (fun h c e => (f h).1 c e : of_ring F)
  (fun h e o => (f h).2 e o : of_ring F) weight b b on; apply; split=> // t c o'.
have /matrixP /(_ (enum_rank t) (enum_rank (c, o'))) := E; rewrite [LHS]mxE !enum_rankK => ->.
rewrite mxE; apply: eq_bigr => h _; rewrite mxE; congr (_ * _).
by have /matrixP /(_ c o') := fE h; rewrite !mxE => ->.
Qed.

(** ** Instance

    Two heads for [-1, 0, 1], (1/3, 1/3, 1/3) and (1/6, 1/3, 1/2): 6 times the second less 6 times
    the first; one head does not do *)
Theorem instance : edge = (\matrix_(h < 2, t < 3) (if h == 0 then 3%:R^-1 else (1 + t%:R) / 6%:R))^T
  *m \col_(h < 2) (if h == 0 then - 6%:R else 6%:R)
  /\ forall (B : 'M[rat]_(1, 3)) M, attends B -> edge <> B^T *m M.
Proof.
split; last by have [_ no] := one_head_is_not_enough.
apply/matrixP => i j; rewrite !mxE !big_ord_recl big_ord0 !mxE /=.
by case: i => [[|[|[|//]]] lt]; apply/eqP; vm_compute.
Qed.

(** ** Mutants

    As many heads as the rank are always enough; a pattern that is only not negative, only not zero,
    another one for each tap; and a rank below the heads *)
Lemma no_head (pattern : forall (F : realFieldType) t p, 'M[F]_(t, p) -> Prop) :
  pattern [realFieldType of rat] 3%N 1%N edge -> ~ rank_serves_iff pattern.
Proof.
move=> serves /(_ _ _ _ edge) [_ /(_ serves)].
by have [rank1 no] := one_head_is_not_enough; rewrite rank1 => -[B [att [M E]]]; exact: no att E.
Qed.
Lemma edge_row i : row i edge != 0 -> edge i ord0 != 0.
Proof. by apply: contraNN => /eqP e; apply/eqP/rowP => j; rewrite (ord1 j) mxE e mxE. Qed.
Definition mutant := rank_serves_iff (fun F t p W => True).
Theorem mutant_refuted : ~ mutant. Proof. exact: no_head. Qed.
Definition mutant_not_negative := rank_serves_iff (one_pattern (fun F y => 0 <= y)).
Theorem mutant_not_negative_refuted : ~ mutant_not_negative.
Proof. by apply: no_head; exists 0 => i _; rewrite mulmx0 mxE. Qed.
Definition mutant_not_zero := rank_serves_iff (one_pattern (fun F y => y != 0)).
Theorem mutant_not_zero_refuted : ~ mutant_not_zero.
Proof. by apply: no_head; exists 1%:M => i ne; rewrite mulmx1; exact: edge_row. Qed.
Definition mutant_each_tap := rank_serves_iff (fun F t p W =>
  forall i, row i W != 0 -> exists x : 'cV[F]_p, 0 < (W *m x) i ord0).
Theorem mutant_each_tap_refuted : ~ mutant_each_tap.
Proof.
apply: no_head => i /edge_row ne; exists (edge i ord0)%:M.
by rewrite mul_mx_scalar mxE -expr2 exprn_even_gt0.
Qed.
Definition mutant_strict := rank_is ltn.
Theorem mutant_strict_refuted : ~ mutant_strict.
Proof.
move=> /(_ _ 0%N 0%N 0%N (0 : 'M[rat]_(0, 0)) 0 0) H.
suff : (\rank (0%R : 'M[rat]_(0, 0)) < 0)%N by rewrite ltn0.
by apply: H; rewrite mulmx0.
Qed.

(** Layers: one head for one tap that is 1, and at least one; more heads than the rank; as many as
    the rank for the taps 1 and -1 *)
Theorem instance_need (x : rat) : (\rank (@tap_matrix rat_fieldType _ one_pixel 1 1 1
  (weighs (x : of_ring rat_fieldType))) <= 1)%N.
Proof.
pose S := of_ring rat_fieldType.
have on : on_taps (S := S) (fun _ _ => 1) (full_attention (1 : S)).
  by move=> h q k; rewrite (big_pred1 (here _)) // => t; rewrite all_read (hereE t) /= eqxx.
have same Z q o : mhsa (full_attention (1 : S)) (times (x : S)) (@output S) (bias (0 : S)) Z q o
    = conv_of_keys (weighs (x : S)) (bias (0 : S)) Z q o.
  by rewrite (ord1 o) layerE conv_of_keysE /full_attention /weighs; congr (_ * _ + _); exact: mul1r.
apply: leq_trans (need one_pixel_fits on same) _.
by rewrite card_dep_ffun foldrE big_map big_enum /= big_ord0.
Qed.
(** Three heads at most are any convolution of two taps *)
Theorem instance_serve (weight : 'I_(1 * 2) -> nat -> taps (small 1) -> of_ring rat_fieldType) :
  exists B : 'I_(\rank (tap_matrix 1 weight)).+1 -> taps (small 1) -> rat,
  forall h, (forall t, 0 < B h t) /\ \sum_t B h t = 1.
Proof.
have [B [_ [_ [att _]]]] := serve (F := [realFieldType of rat]) (@small_fits 1 isT)
  (G := 1%N) (ci := 1%N) (co := 2%N) (d := 1%N) isT weight (fun _ => 0).
by exists B.
Qed.
Definition mutant_need := layers_need ltn.
Theorem mutant_need_refuted : ~ mutant_need.
Proof.
pose S := of_ring rat_fieldType; pose none (_ : 'I_0) : S := 0.
move=> says; suff : (\rank (@tap_matrix rat_fieldType _ one_pixel 1 1 1 (weighs (0%R : S)))
    < #|[finType of 'I_0]|)%N by rewrite card_ord.
apply: (says rat_fieldType _ _ one_pixel_fits 1%N 1%N 1%N _ [finType of unit] (fun h _ => none h)
  (fun h _ _ => none h) (fun h _ _ => none h) (fun h _ _ => none h) _ (bias (0 : S)) (bias (0 :
  S)));
  first by case.
move=> Z q o; rewrite (ord1 o) conv_of_keysE /mhsa big_ord0 /weighs; congr (_ + _).
exact/esym/mulr0.
Qed.
Definition mutant_serve := layers_serve id.
Theorem mutant_serve_refuted : ~ mutant_serve.
Proof.
pose g : geometry 1 := Geometry (fun _ => 2%N) (fun _ => 2%N) (fun _ => 1%N) (fun _ => 1%N)
  (fun _ => 0%N) (fun _ => 0%N); have ok : fits g by [].
pose S := of_ring [realFieldType of rat].
pose w (t : taps g) : S := if t ord0 == 0%N :> nat then 1 else -1.
move=> /(_ [realFieldType of rat] 1%N g ok 1%N 1%N 1%N 1%N isT (fun _ _ => w) (fun _ => 0)).
have : (\rank (@tap_matrix [realFieldType of rat] _ g 1 1 1 (fun _ _ => w)) <= 1)%N.
  by apply: leq_trans (rank_leq_col _) _; rewrite card_prod !card_ord.
move: (\rank _) => r r1 /= [B [Wval [Wout [att gives]]]].
pose P h q k : S := (\sum_(t : taps g | reads q t k) B h t)%R.
have [/(_ (gives P (fun h q k => erefl))) [E _] _] := TapHeads.layer (S := S) ok Wval Wout
  (fun _ _ => w) (fun _ => 0) (fun _ => 0) (P := P) (fun h q k => erefl).
have := E (line ord0) ord0 ord0; have := E (line ord_max) ord0 ord0; rewrite /tap /= /w !ffunE /=.
clear P gives E; case: r r1 B Wval Wout att => [|[|//]] _ B Wval Wout att.
  by rewrite !big_ord0 => /eqP; rewrite oppr_eq0 oner_eq0.
rewrite !big_ord1; move: (merged _ _ _ _ _) => m E2 E1; have [pos _] := att ord0.
have e1 : B ord0 (line ord0) * m = 1 :> rat by exact/esym/E1.
have e2 : B ord0 (line ord_max) * m = -1 :> rat by exact/esym/E2.
have m0 : 0 < m :> rat by rewrite -(pmulr_rgt0 _ (pos (line ord0))) e1 ltr01.
by have := mulr_gt0 (pos (line ord_max)) m0; rewrite e2.
Qed.
