(** * T1p: Theorem 1: how wide a head must be

    Claim: With linearly independent attention maps, one head a tap, the layer expresses the
    convolution if and only if d_head >= rank W_h for every tap, which serves hard heads whether or
    not each tap sees a pixel; so min(D_in, D_out) always serves and the paper's D_h >= D_out is
    more than is needed; any d_head output channels of d_out can be expressed. The W_h are the
    matrices of the expansion over the heads' maps. For hard heads these are the taps; for soft
    heads they are not, and can have lower rank than the taps. W_val W_out has rank at most D_h, not
    D_out - D_h.
    Source: Cordonnier et al. 2020, Theorem 1 and the remark about D_h and D_out, corrected by this
    project.
    Does not show: Numerical rank of floats. The least width for dependent maps, whose W_h are not
    unique, is not given. *)
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require Import Statements Sums L1 L3.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Matrices. Local Open Scope ring_scope.

(** ** The rank of a matrix is the least width of its factors *)
Section Factors.
Variable F : fieldType.
Lemma factor_iff_rank (m n d : nat) (W : 'M[F]_(m, n)) :
  (exists (V : 'M_(m, d)) (U : 'M_(d, n)), W = V *m U) <-> (\rank W <= d)%N.
Proof.
split=> [[V [U ->]]|le_r_d]; first exact: leq_trans (mxrankM_maxl V U) (rank_leq_col V).
exists (col_ebase W *m pid_mx (\rank W)), (pid_mx (\rank W) *m row_ebase W).
by rewrite mulmxA -(mulmxA (col_ebase W)) mul_pid_mx minnn (minn_idPr le_r_d) mulmx_ebase.
Qed.
End Factors.

Theorem independent_maps : T1p.
Proof.
move=> F Q K H P ind m n d W b; pose S := of_ring F; split.
- case=> Wval [Wout [b' E]] h; apply/factor_iff_rank.
  exists (\matrix_(c, e) Wval h c e), (\matrix_(e, o) Wout h e o); apply/matrixP => c0 o.
  pose A h : F := merged Wval Wout h c0 o.
  have zero_map q k : \sum_h (A h - W h c0 o) * P h q k = 0.
    have bias : b' o = b o.
      have := E (fun _ _ => 0) q o;
        rewrite mhsaE probe0 (probe0 (S := S) (P ^~ q) (fun h c => W h c o)).
      by rewrite (@add0l S) [_ + b o](@add0l S).
    have := E (@spike S _ _ k c0) q o; rewrite mhsaE bias => /(@add_cancel S).
    rewrite (probeE (S := S) (P ^~ q)) (probeE (S := S) (P ^~ q) (fun h c => W h c o)) => same.
    by under eq_bigr do rewrite mulrBl; rewrite sumrB; apply/eqP; rewrite subr_eq0; apply/eqP.
  have /eqP := ind _ zero_map h; rewrite subr_eq0 => /eqP <-; rewrite !mxE.
  by apply: eq_bigr => e _; rewrite !mxE.
- move=> le_d; have factors h : exists VU : 'M[F]_(m, d) * 'M[F]_(d, n), W h = VU.1 *m VU.2.
    by have /factor_iff_rank [V [U ->]] := le_d h; exists (V, U).
  have [f Wf] := fin_all_exists factors.
  exists (fun h c e => (f h).1 c e), (fun h e o => (f h).2 e o), b => X q o.
  rewrite mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _; congr (_ * _).
  by rewrite Wf !mxE.
Qed.

(** ** Hard heads on the padded grid are independent maps of the image, if every tap sees a pixel *)
Section HardHeads.
Variables (S : numbers) (n : nat) (g : geometry n) (ok : fits g).
Lemma hard_zero_pad (H Cin : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
  (X : pixels g -> Cin -> S) h q c : hard f P ->
  (\sum_k P h q k * zero_pad X k c)%num = (\sum_i shift (f h) q i * X i c)%num.
Proof.
move=> hardP; rewrite -shiftE -(zero_pad_key ok X) -(sum_pickE (key ok q (f h)) (zero_pad X ^~ c)).
by apply: eq_bigr => k _; rewrite hardP (readsE ok).
Qed.
End HardHeads.

Theorem convolution : T1p_convolution.
Proof.
move=> F n g ok G ci co d H f P weight b bij hardP visible; pose S := of_ring F.
pose P' (h : H) q i : S := shift (f h) q i; pose W h : 'M[F]_(G * ci, G * co) :=
  \matrix_(c, o) tap weight (f h) c o.
have ind : independent (P' : H -> queries g -> pixels g -> F).
  move=> a zero h; have [q [i see]] := visible (f h); have := zero q i.
  rewrite (bigD1 h) //= big1 ?addr0 => [|j ne]; rewrite /P' /shift; first by rewrite see mulr1.
  case: ifP => [seen|_]; last exact: mulr0.
  by case/eqP: ne; apply: (bij_inj bij); exact: (sees_inj ok seen see).
have same (Wval : H -> 'I_(G * ci) -> 'I_d -> S) (Wout : H -> 'I_d -> 'I_(G * co) -> S) b' X q o :
    mhsa P Wval Wout b' (zero_pad X) q o = mhsa P' Wval Wout b' X q o.
  by rewrite !mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _;
    rewrite (hard_zero_pad ok _ _ _ _ hardP).
have conv X q o : torch_conv weight b X q o = \sum_h \sum_c (\sum_i P' h q i * X i c) * W h c o
  + b o.
  rewrite torch_convE; congr (_ + _); rewrite [LHS](reindex f) /=; last exact: onW_bij.
  by apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite !mxE; congr (_ * _);
    exact: (@shiftE S _ g _ X q (f h) c).
have width := independent_maps ind d W b; split=> [[Wval [Wout [b' E]]] t|le_d].
  have [f' _ fK] := bij; rewrite -(fK t); move: (f' t); apply/width; exists Wval, Wout, b' => X q o.
  by rewrite -same E conv.
have /width [Wval [Wout [b' E]]] : forall h, (\rank (W h) <= d)%N by move=> h; exact: le_d.
by exists Wval, Wout, b' => X q o; rewrite same E conv.
Qed.
Theorem matrices_exist : T1p_exists.
Proof.
move=> F n g ok G ci co d H f P weight b bij hardP le_d.
pose W h : 'M[F]_(G * ci, G * co) := \matrix_(c, o) tap weight (f h) c o.
have factors h : exists VU : 'M[F]_(G * ci, d) * 'M[F]_(d, G * co), W h = VU.1 *m VU.2.
  by have /factor_iff_rank [V [U E]] := le_d (f h); exists (V, U); rewrite /W E.
have [fac Wf] := fin_all_exists factors.
exists (fun h c e => (fac h).1 c e), (fun h e o => (fac h).2 e o) => X q o.
apply: (lemma1 ok) bij hardP _ X q o => h c o'.
by have /matrixP/(_ c o') := Wf h; rewrite !mxE => /esym.
Qed.

Theorem channels : T1p_channels.
Proof.
move=> F m n d; split=> [W|kept inj W]; first by rewrite leq_min rank_leq_row rank_leq_col.
have /factor_iff_rank [V [U E]] : (\rank W <= d)%N by apply: leq_trans (rank_leq_col W)
  (geq_minl d n).
exists V, (\matrix_(e, o) \sum_(j | kept j == o) U e j) => c o.
rewrite E !mxE; apply: eq_bigr => e _; rewrite !mxE (bigD1 o) //= big1 ?addr0 // => j /andP
  [/eqP /inj -> /eqP].
by [].
Qed.

Theorem rank_of_a_head : T1p_rank.
Proof.
have le (F : fieldType) m n d (V : 'M[F]_(m, d)) (U : 'M[F]_(d, n)) : (\rank (V *m U) <= d)%N
  by apply/factor_iff_rank; exists V, U.
split=> [|/(_ rat_fieldType 4%N 4%N 1%N isT) [V [U E]]]; first exact: le.
by have := le _ _ _ _ V U; rewrite E.
Qed.

(** ** Soft heads: E7 *)
Definition mixture (h k : bool) : rat := if h == k then 3%:Q / 4%:Q else 1 / 4%:Q.
Lemma mixtures_are_independent : independent (fun h (_ : unit) k => mixture h k).
Proof.
have lin (x y : rat) : x * 3%:Q + y = 0 -> x + y * 3%:Q = 0 -> x = 0 /\ y = 0.
  move=> /eqP; rewrite addrC addr_eq0 => /eqP -> /eqP;
    rewrite mulNr -mulrA subr_eq0 -{1}[x]mulr1 => /eqP E.
  suff x0 : x = 0 by rewrite x0 mul0r oppr0.
  by apply/eqP; apply/negPn/negP => nx; have := mulfI nx E => /eqP.
move=> a z; have := z tt false; have := z tt true.
rewrite ![\sum_(h : bool) _]big_bool /mixture /= !mulrA -!mulrDl !mulr1.
move=> /eqP; rewrite mulf_eq0 => /orP [/eqP E1|//] /eqP; rewrite mulf_eq0 => /orP [/eqP E2|//].
by have [a1 a0] := lin _ _ E1 E2; case.
Qed.
Theorem narrow_soft_heads : T1p_soft.
Proof.
pose diag (a b : rat) : 'M[rat]_2 := \matrix_(i, j) if i == j then (if i == 0 then a else b) else 0.
exists (fun t => if t then diag (3%:Q / 4%:Q) (1 / 4%:Q) else diag (1 / 4%:Q) (3%:Q / 4%:Q)).
exists mixture.
exists (fun h => if h then delta_mx 0 0 else delta_mx 1 0),
  (fun h => if h then delta_mx 0 0 else delta_mx 0 1).
split; first exact: mixtures_are_independent.
split; [|split; [|split]].
- move=> t; apply/eqP; rewrite -/(row_full _) -sub1mx; apply/submxP.
  exists (if t then diag (4%:Q / 3%:Q) 4%:Q else diag 4%:Q (4%:Q / 3%:Q)).
  by case: t; apply/matrixP => i j; rewrite !mxE !big_ord_recl big_ord0 !mxE;
    case: i => [[|[|//]] ?]; case: j => [[|[|//]] ?];
     apply/eqP; vm_compute.
- by case; case.
- by case; apply/eqP; vm_compute.
- move=> X; apply/rowP => j; rewrite !mxE !big_ord_recl !big_ord0 !mxE !big_ord_recl !big_ord0 !mxE.
  by case: j => [[|[|//]] ?] /=; rewrite !(mulr0, mulr1, addr0, add0r) (mulrC (X true _ _))
    (mulrC (X false _ _)).
Qed.

(** ** Instance

    One pixel, one tap, two channels: width 1 gives the tap [[1, 2], [2, 4]], of rank 1 *)
Theorem instance : exists (V : 'M[rat]_(2, 1)) (U : 'M[rat]_(1, 2)),
  V *m U = \matrix_(i, j) ((i + 1) * (j + 1))%N%:R /\ (\rank (V *m U) <= 1)%N.
Proof.
exists (\col_i (i + 1)%N%:R), (\row_j (j + 1)%N%:R); split; last by have [le _] := rank_of_a_head;
  exact: le.
by apply/matrixP => i j; rewrite !mxE big_ord1 !mxE natrM.
Qed.

(** ** Mutants: a head may be narrower than its tap's rank by one; it must be wider *)
Definition mutant := gives_taps_iff (fun rank d => rank <= d.+1)%N.
Definition mutant_strict := gives_taps_iff (fun rank d => rank < d)%N.
Definition map1 (_ _ _ : unit) : of_ring rat_fieldType := 1.
Lemma map1_independent : independent (map1 : unit -> unit -> unit -> rat).
Proof.
move=> a zero []; have := zero tt tt.
by rewrite (bigD1 tt) //= big1 => [|[]] //; rewrite addr0 mulr1.
Qed.
Theorem mutant_refuted : ~ mutant.
Proof.
move=> /(_ _ _ _ _ _ map1_independent 2%N 2%N 1%N (fun _ => 1%:M) (fun _ => 0)) [_].
rewrite mxrank1 => /(_ (fun _ => isT)).
by move/(independent_maps map1_independent) => /(_ tt); rewrite mxrank1.
Qed.
Theorem mutant_strict_refuted : ~ mutant_strict.
Proof.
move=> /(_ _ _ _ _ _ map1_independent 1%N 1%N 1%N (fun _ => 1%:M) (fun _ => 0)) [narrow _].
have [_ exist] := independent_maps map1_independent 1%N (fun _ => 1%:M : 'M[rat]_1) (fun _ => 0).
by have /narrow /(_ tt) := exist (fun _ => rank_leq_row _); rewrite mxrank1.
Qed.
