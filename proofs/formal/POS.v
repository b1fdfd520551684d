(** * POS: Absolute positions of full row rank

    Claim: If the position vectors of N tokens are linearly independent, the query and key weights
    of a stock transformer, of width n + 1, give every quadratic head exactly at all tokens, with
    any centre and sharpness, whatever the positions are; more generally weights of any width give
    any scores that are inner products of that width. Content changes nothing if it lies in a space
    that is independent of the positions. Where it moves the scores by at most e, the head leaks at
    most exp(2 e) times as much.
    Source: this project; against the paper's relative encoding, which ordinary transformers have
    not.
    Does not show: Layer norm and biases before the weights; how large the weights are, which the
    least singular value of the positions decides; what trained tables of positions are like. *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L2e.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Section Dual.
Variables (I D : finType) (v : I -> D -> R).
Hypothesis free : linearly_independent v.
Let inner (x y : D -> R) : R := \sum_d x d * y d.
Lemma inner_combinationE (r : seq I) (c : I -> R) (x : D -> R) (B : I -> D -> R) (y z : R) :
  inner (fun d => y * x d + z * \big[Rplus/0]_(i <- r) (c i * B i d)) =1
  (fun u => y * inner x u + z * \big[Rplus/0]_(i <- r) (c i * inner (B i) u)).
Proof.
move=> u; rewrite /inner.
have -> : \big[Rplus/0]_(i <- r) (c i * \sum_d B i d * u d)
  = \sum_d (\big[Rplus/0]_(i <- r) (c i * B i d)) * u d.
  under eq_bigr do rewrite big_distrr /=.
  rewrite exchange_big; apply: eq_bigr => d _; rewrite big_distrl /=; apply: eq_bigr => i _; ring.
by rewrite !big_distrr -big_split; apply: eq_bigr => d _ /=; ring.
Qed.
(** By induction on the list (Gram-Schmidt): what the dual of the others leaves of the new vector,
    [w], is not 0 since the vectors are independent; [w / |w|^2] is dual to it, and the others are
    corrected by it. *)
Lemma dual_of (r : seq I) : uniq r -> exists B : I -> D -> R,
  forall i j, i \in r -> j \in r -> inner (B i) (v j) = if i == j then 1 else 0.
Proof.
elim: r => [|i0 r IH] /=; first by exists (fun _ _ => 0).
move=> /andP [new ur]; have [B dual] := IH ur.
pose w d := 1 * v i0 d + -1 * \big[Rplus/0]_(i <- r) (inner (B i) (v i0) * v i d).
pose ww := inner w w.
have ww0 : 0 < ww.
  have ge0 : 0 <= ww by apply: rsum_ge0 => d _; exact: Rle_0_sqr.
  case: ge0 => // zero; exfalso.
  have w0 d : w d = 0.
    apply: Rsqr_0_uniq; apply: Rle_antisym; last exact: Rle_0_sqr.
    by rewrite zero; apply: (@rsum_term_le D (fun d => Rsqr (w d)) d) => j; exact: Rle_0_sqr.
  pose a i := if i == i0 then 1 else if i \in r then - inner (B i) (v i0) else 0.
  have comb d : \sum_i a i * v i d = 0.
    transitivity (w d); last exact: w0.
    rewrite (bigD1 i0) //= /a eqxx /w; congr (_ + _).
    rewrite big_uniq //= big_distrr /= big_mkcond [RHS]big_mkcond; apply: eq_bigr => i _.
    by case: (eqVneq i i0) => [->|ne]; rewrite ?(negbTE new) //=; case: ifP => _; ring.
  by have := free comb i0; rewrite /a eqxx; lra.
pose f d := / ww * w d + - / ww * \big[Rplus/0]_(i <- r) (inner w (v i) * B i d).
have fE x : inner f x = / ww * inner w x + - / ww * \big[Rplus/0]_(i <- r)
  (inner w (v i) * inner (B i) x).
  exact: (inner_combinationE r (fun i => inner w (v i)) w B).
have pick j (c : I -> R) : j \in r -> \big[Rplus/0]_(i <- r) (c i * inner (B i) (v j)) = c j.
  move=> jr; rewrite big_uniq //= (bigD1 j) //= dual // eqxx big1 => [|i /andP [ir ne]];
    first by ring.
  by rewrite dual // (negbTE ne); ring.
have f0 j : j \in r -> inner f (v j) = 0.
  by move=> jr; rewrite fE (pick j (fun i => inner w (v i))) //; ring.
have f1 : inner f (v i0) = 1.
  rewrite fE; have E : ww = inner w (v i0) - \big[Rplus/0]_(i <- r)
    (inner w (v i) * inner (B i) (v i0)).
    have symm x y : inner x y = inner y x by apply: eq_bigr => d _; ring.
    transitivity
      (inner (fun d => 1 * v i0 d + -1 * \big[Rplus/0]_(i <- r) (inner (B i) (v i0) * v i d)) w);
      first by [].
    rewrite (inner_combinationE r (fun i => inner (B i) (v i0)) (v i0) v 1 (-1) w) (symm (v i0)).
    have -> : \big[Rplus/0]_(i <- r) (inner w (v i) * inner (B i) (v i0))
      = \big[Rplus/0]_(i <- r) (inner (B i) (v i0) * inner (v i) w).
      by apply: eq_bigr => i _; rewrite (symm w); ring.
    ring.
  have -> : / ww * inner w (v i0) + - / ww * \big[Rplus/0]_(i <- r)
    (inner w (v i) * inner (B i) (v i0)) = / ww * ww.
    by rewrite {4}E; ring.
  by field; lra.
exists (fun i d => if i == i0 then f d else 1 * B i d + - inner (B i)
  (v i0) * \big[Rplus/0]_(j <- [:: i0]) (1 * f d)).
move=> i j; rewrite !inE; case: (eqVneq i i0) => [->|ne] /= ir;
  case: (eqVneq j i0) => [->|nj] /= jr.
- exact: f1.
- exact: f0.
- rewrite (negbTE ne) (inner_combinationE [:: i0] (fun _ => 1) (B i) (fun _ => f)) big_seq1 f1;
  ring.
- rewrite (inner_combinationE [:: i0] (fun _ => 1) (B i) (fun _ => f)) big_seq1 f0 // dual //; ring.
Qed.
Lemma dual_basis : exists B : I -> D -> R, forall i j, \sum_d v j d * B i d
  = if i == j then 1 else 0.
Proof.
have [B dual] := dual_of (index_enum_uniq I); exists B => i j.
by rewrite -(dual i j) ?mem_index_enum //; apply: eq_bigr => d _; ring.
Qed.
End Dual.
Theorem any_features : POS_features.
Proof.
move=> K I D position content scale [free s0] E f g; have [B dual] := dual_basis free.
pose weights (h : K -> E -> R) d e := \sum_k B (inl k) d * h k e.
have read (h : K -> E -> R) a q e : \sum_d token position content a q d * weights h d e = h q e.
  have at_k k : \sum_d token position content a q d * B (inl k) d = if k == q then 1 else 0.
    transitivity (\sum_d either position content (inl q) d * B (inl k) d
        + \sum_i a q i * \sum_d either position content (inr i) d * B (inl k) d).
      under [X in _ = _ + X]eq_bigr do rewrite big_distrr /=.
      rewrite [X in _ = _ + X]exchange_big -big_split; apply: eq_bigr => d _ /=.
      rewrite /token Rmult_plus_distr_r; congr (_ + _); rewrite big_distrl /=;
        apply: eq_bigr => i _; ring.
    rewrite dual [X in _ + X]big1 => [|i _]; last by rewrite dual /=; ring.
    by rewrite Rplus_0_r; have -> : (inl k == inl q :> K + I) = (k == q) by [].
  transitivity (\sum_k (\sum_d token position content a q d * B (inl k) d) * h k e).
    under eq_bigr do rewrite /weights big_distrr /=.
    rewrite exchange_big; apply: eq_bigr => k _; rewrite big_distrl /=; apply: eq_bigr => d _; ring.
  rewrite (bigD1 q) //= at_k eqxx big1 => [|k ne]; first by ring.
  by rewrite at_k (negbTE ne); ring.
exists (weights (fun q e => scale * f q e)), (weights g) => a q k; rewrite /stock_score.
have -> : \sum_e (\sum_d token position content a q d * weights (fun q e => scale * f q e) d e)
    * (\sum_d token position content a k d * weights g d e) = scale * \sum_e f q e * g k e.
  by rewrite big_distrr /=; apply: eq_bigr => e _; rewrite !read; ring.
by field.
Qed.
Theorem any_quadratic_head : POS.
Proof.
move=> n K I D position content free place alpha scale offset s0.
have [Wqry [Wkey E]] := any_features (conj free s0) (fun q => query_feature alpha (place q) offset)
  (fun k => key_feature (place k)).
exists Wqry, Wkey => a q away k; rewrite (softmax_ext (E a q)).
exact: absolute.
Qed.
Theorem content : POS_content.
Proof.
move=> K s moved e target small.
have e2 : exp (2 * e) = exp e * exp e by rewrite -exp_plus; congr exp; ring.
pose Z := \sum_k exp (s k); pose Z' := \sum_k exp (s k + moved k).
have Z0 : 0 < Z by apply: (rsum_gt0 target) => k; exact: exp_pos.
have Z0' : 0 < Z' by apply: (rsum_gt0 target) => k; exact: exp_pos.
have le x y : x <= y -> exp x <= exp y by case=> [/exp_increasing/Rlt_le|->] //; exact: Rle_refl.
have up k : exp (s k + moved k) <= exp e * exp (s k).
  by rewrite -exp_plus; apply: le; have := Rle_abs (moved k); have := small k; lra.
have down : Z <= exp e * Z'.
  rewrite /Z /Z' big_distrr /=; apply: rsum_le => k _; rewrite -exp_plus; apply: le.
  by have := small k; rewrite -Rabs_Ropp; have := Rle_abs (- moved k); lra.
set O := \big[Rplus/0]_(k | k != target) exp (s k).
set O' := \big[Rplus/0]_(k | k != target) exp (s k + moved k).
have ZE : Z = exp (s target) + O by rewrite /Z (bigD1 target).
have ZE' : Z' = exp (s target + moved target) + O' by rewrite /Z' (bigD1 target).
have OO : O' <= exp e * O by rewrite /O big_distrr /=; apply: rsum_le => k _; exact: up.
have O0 : 0 <= O by apply: rsum_ge0 => k _; exact/Rlt_le/exp_pos.
have -> : 1 - softmax s target = O / Z by rewrite /softmax -/Z; have := Z0; rewrite ZE => ?; field;
  lra.
have -> : 1 - softmax (fun k => s k + moved k) target = O' / Z'.
  by rewrite /softmax -/Z'; have := Z0'; rewrite ZE' => ?; field; lra.
apply: (Rmult_le_reg_r (Z' * Z)); first exact: Rmult_lt_0_compat.
have -> : O' / Z' * (Z' * Z) = O' * Z by field; lra.
have -> : exp (2 * e) * (O / Z) * (Z' * Z) = (exp e * O) * (exp e * Z') by rewrite e2; field; lra.
have O0' : 0 <= O' by apply: rsum_ge0 => k _; exact/Rlt_le/exp_pos.
by apply: Rmult_le_compat => //; lra.
Qed.

(** ** Instance

    Two tokens at places 0 and 1, of positions (1, 1) and (1, 2) and no content: some weights give
    the head that looks one to the right with alpha = ln 2, of which token 0 gives token 1 two
    thirds *)
Definition basis_position (k d : bool) : R := if k && d then 2 else 1.
Definition nothing (i : void) (d : bool) : R := 0.
Lemma free : linearly_independent (either basis_position nothing).
Proof.
move=> a E; have at_k k : a (inl k) = 0; last by case=> [k|[]]; exact: at_k.
have both d : a (inl true) * basis_position true d + a (inl false) * basis_position false d = 0.
  rewrite -(E d) (bigD1 (inl true)) //= (bigD1 (inl false)) //= big1 => [|[[]|[]]] //; ring.
by case: k; have := both true; have := both false; rewrite /basis_position /=; lra.
Qed.
Theorem instance : exists Wqry Wkey : bool -> option 'I_1 -> R,
  softmax (stock_score Wqry Wkey 3 (token basis_position nothing (fun _ _ => 0)) false) true
    = / (1 + / 2).
Proof.
have three : 3 <> 0 by lra.
have [Wqry [Wkey E]] := any_quadratic_head free (fun (k : bool) (_ : 'I_1) => if k then 1 else 0)
  (ln 2)
  (fun _ => 1) three.
exists Wqry, Wkey; rewrite E /softmax big_bool /dot !big_ord_recl !big_ord0.
have -> : - ln 2 * ((1 - 0 - 1) * (1 - 0 - 1) + 0) = 0 by ring.
have -> : - ln 2 * ((0 - 0 - 1) * (0 - 0 - 1) + 0) = - ln 2 by ring.
rewrite exp_0 exp_Ropp exp_ln; last lra.
by change (1 / (1 + / 2) = / (1 + / 2)); field.
Qed.

(** ** Mutants

    Positions that are not independent, content in their space, no scale; and content that moves the
    leak less *)
Definition differ (k : bool) (e : unit) : R := if k then 1 else 0.
Definition mutant := features_if (fun K I D position content scale => scale <> 0).
Theorem mutant_refuted : ~ mutant.
Proof.
move=> /(_ _ void_finType _ (fun (_ : bool) (_ : unit) => 1)
  (fun _ _ => 0) 1 R1_neq_R0 unit_finType differ (fun _ _ => 1)).
move=> [Wqry [Wkey E]]; have := E (fun _ _ => 0) true true; have := E (fun _ _ => 0) false true.
rewrite /stock_score /token /differ !rsum_unitE; lra.
Qed.
Definition mutant_content := features_if (fun K I D position content scale =>
  linearly_independent position /\ scale <> 0).
Definition one_token (_ _ : unit) : R := 1.
Theorem mutant_content_refuted : ~ mutant_content.
Proof.
have free1 : linearly_independent one_token.
  by move=> a E [] ; have := E tt; rewrite rsum_unitE /one_token; lra.
move=> /(_ _ _ _ _ one_token 1 (conj free1 R1_neq_R0) unit_finType (fun _ _ => 1) (fun _ _ => 1))
  [Wqry [Wkey E]].
have := E (fun _ _ => -1) tt tt; rewrite /stock_score /token !rsum_unitE /one_token;
  lra.
Qed.
Definition mutant_scale := features_if (fun K I D position content scale =>
  linearly_independent (either position content)).
Theorem mutant_scale_refuted : ~ mutant_scale.
Proof.
move=> /(_ _ _ _ _ _ 0 free unit_finType (fun _ _ => 1) (fun _ _ => 1)) [Wqry [Wkey E]].
have := E (fun _ _ => 0) true true; rewrite rsum_unitE.
by rewrite /stock_score /Rdiv Rinv_0 Rmult_0_r; lra.
Qed.
Definition mutant_leak := leaks_at_most exp.
Definition mutant_unmoved := leaks_at_most (fun _ => 1).
Lemma leaks_ge (factor : R -> R) : leaks_at_most factor -> 17 / 5 <= factor (ln 2).
Proof.
have l2 : 0 < ln 2 by apply: ln_gt0; lra.
move=> /(_ _ (fun k : bool => if k then ln 16 else 0) (fun k => if k then - ln 2 else ln 2)
  (ln 2) true).
have small (k : bool) : Rabs (if k then - ln 2 else ln 2) <= ln 2.
  by case: k; rewrite ?Rabs_Ropp Rabs_pos_eq; lra.
move=> /(_ small); rewrite /softmax !big_bool Rplus_0_l exp_plus exp_Ropp !exp_ln ?exp_0;
  [idtac | lra | lra].
change (1 - 16 * / 2 / (16 * / 2 + 2) <= factor (ln 2) * (1 - 16 / (16 + 1)) ->
  17 / 5 <= factor (ln 2)).
have -> : 1 - 16 * / 2 / (16 * / 2 + 2) = 1 / 5 by field.
by have -> : 1 - 16 / (16 + 1) = 1 / 17; [field | lra].
Qed.
Theorem mutant_leak_refuted : ~ mutant_leak.
Proof. by move=> /leaks_ge; rewrite exp_ln; lra. Qed.
Theorem mutant_unmoved_refuted : ~ mutant_unmoved.
Proof. by move=> /leaks_ge; lra. Qed.
