(** * TAPS: fewer heads than taps come no nearer than nothing

    The quantitative form of TAPS over the real numbers: [TAPS_far] of Statements.v. *)
From Coq Require Import Reals Lra Classical.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L3.
From C2A Require TAPS.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** More vectors than coordinates are dependent: Steinitz, one coordinate after the other. *)
Lemma dependent (T : finType) n : forall (A : {set T}) (v : T -> nat -> R), (n < #|A|)%N ->
  exists y : T -> R, [/\ exists2 t, t \in A & y t <> 0, forall t, t \notin A -> y t = 0 &
    forall h, (h < n)%N -> \sum_t y t * v t h = 0].
Proof.
elim: n => [|n IH] A v big.
  have [t At] : exists t, t \in A by apply/set0Pn; rewrite -card_gt0.
  exists (fun t => if t \in A then 1 else 0); split; [|by move=> s /negbTE ->|by []].
  by exists t => //; rewrite At; lra.
case: (classic (forall t, t \in A -> v t n = 0)) => [zero|].
  have [y [[t At yt] out van]] := IH A v (ltnW big).
  exists y; split; [by exists t | by [] |] => h.
  rewrite ltnS leq_eqVlt => /orP [/eqP ->|]; last exact: van.
  apply: big1 => s _; case: (boolP (s \in A)) => [/zero ->|/out ->]; ring.
move=> /not_all_ex_not [t0 no]; have [A0 v0] := imply_to_and _ _ no.
pose c t := v t n / v t0 n; pose w t h := v t h - c t * v t0 h.
have [|y [[t At yt] out van]] := IH (A :\ t0) w; first by move: big; rewrite (cardsD1 t0) A0.
have y0 : y t0 = 0 by apply: out; rewrite !inE eqxx.
pose k := \sum_s y s * c s.
exists (fun s => if s == t0 then - k else y s); split.
- exists t; first by move: At; rewrite !inE => /andP [].
  by move: At; rewrite !inE => /andP [/negbTE -> _].
- move=> s sA; have : s != t0 by apply: contraNneq sA => ->.
  by move=> /negbTE ne; rewrite ne; apply: out; rewrite !inE ne.
have E h : \sum_s (if s == t0 then - k else y s) * v s h = \sum_s y s * w s h.
  have -> : \sum_s (if s == t0 then - k else y s) * v s h
    = - k * v t0 h + \sum_s y s * v s h.
    rewrite (bigD1 t0) //= eqxx [in RHS](bigD1 t0) //= y0 Rmult_0_l Rplus_0_l; congr (_ + _).
    by apply: eq_bigr => s /negbTE ->.
  have -> : \sum_s y s * w s h = \sum_s (y s * v s h + - v t0 h * (y s * c s)).
    by apply: eq_bigr => s _; rewrite /w; ring.
  by rewrite big_split -big_distrr /= -/k; ring.
move=> h; rewrite ltnS leq_eqVlt E => /orP [/eqP ->|]; last exact: van.
by apply: big1 => s _; rewrite /w /c; field.
Qed.

Section Few.
Variables (n : nat) (g : geometry n) (A : {set taps g}) (q : queries g) (H : finType).
Variable P : H -> queries g -> pixels g -> reals.
Hypotheses (ok : fits g) (all_see : forall t, t \in A -> exists i, sees q t i).
Hypothesis few : (#|H| < #|A|)%N.
Let e t i : R := shift (S := reals) t q i.
Lemma e01 t i : e t i = 1 \/ e t i = 0. Proof. by rewrite /e /shift; case: ifP; [left | right]. Qed.
(** A combination of shifts loses nothing: each pixel is seen by one tap at most. *)
Lemma shifts_abs (y : taps g -> R) i : Rabs (\sum_t y t * e t i) = \sum_t Rabs (y t) * e t i.
Proof.
case: (pickP (fun t => sees q t i)) => [t see|none]; last first.
  by rewrite !big1 ?Rabs_R0 // => t _; rewrite /e /shift none /=; ring.
have off s : s != t -> e s i = 0.
  rewrite /e /shift; case: ifP => // see' /eqP ne; case: ne; exact: (sees_inj ok see' see).
have on : e t i = 1 by rewrite /e /shift see.
rewrite !(bigD1 (P := xpredT) t) //= on !big1 => [|s /off ->|s /off ->]; try ring.
by rewrite !Rmult_1_r !Rplus_0_r.
Qed.
(** Were all near, the matrix of their weights would have fewer columns than rows, so some [y] mixes
    its rows to 0, and the same mix of shifts, which loses nothing, would be less than itself. *)
Lemma some_tap_is_far : exists2 t, t \in A & forall phi : H -> R, 1 <= leaves P t phi q.
Proof.
apply: NNPP => none.
have near t : exists phi : H -> R, t \in A -> leaves P t phi q < 1.
  case: (boolP (t \in A)) => [At|_]; last by exists (fun _ => 0).
  apply: NNPP => no; apply: none; exists t => // phi; apply: Rnot_lt_le => lt; apply: no.
  by exists phi.
have [Phi small] := fin_all_exists near.
have [y [[t0 A0 y0] out van]] := @dependent _ #|H| A (fun t h =>
  if insub h is Some j then Phi t (enum_val (j : 'I_#|H|)) else 0) few.
have zero h : \sum_t y t * Phi t h = 0.
  have := van (enum_rank h) (ltn_ord _); under eq_bigr do rewrite valK enum_rankK; exact.
pose r t i : R := e t i - \sum_h Phi t h * P h q i.
have yE i : \sum_t y t * e t i = \sum_t y t * r t i.
  have -> : \sum_t y t * r t i = \sum_t (y t * e t i + -1 * (y t * \sum_h Phi t h * P h q i)).
    by apply: eq_bigr => t _; rewrite /r; ring.
  rewrite big_split -big_distrr /=.
  suff -> : \sum_t y t * (\sum_h Phi t h * P h q i) = 0 by ring.
  have -> : \sum_t y t * (\sum_h Phi t h * P h q i) = \sum_h (\sum_t y t * Phi t h) * P h q i.
    under eq_bigr do rewrite big_distrr /=; rewrite exchange_big; apply: eq_bigr => h _ /=.
    by rewrite big_distrl /=; apply: eq_bigr => t _; ring.
  by apply: big1 => h _; rewrite zero; ring.
have whole t : t \in A -> 1 <= \sum_i e t i.
  move=> /all_see [i see]; have E : e t i = 1 by rewrite /e /shift see.
  apply: Rle_trans (_ : e t i <= _); first by rewrite E; exact: Rle_refl.
  by apply: (@rsum_term_le _ (e t) i) => j; case: (e01 t j) => ->; lra.
have low : \sum_t Rabs (y t) <= \sum_t Rabs (y t) * leaves P t (Phi t) q.
  apply: Rle_trans (_ : \sum_t Rabs (y t) * (\sum_i e t i) <= _).
    apply: rsum_le => t _; case: (boolP (t \in A)) => [/whole le|/out ->]; last first.
      by rewrite Rabs_R0 Rmult_0_l; exact: Rle_refl.
    by rewrite -[X in X <= _]Rmult_1_r; apply: Rmult_le_compat_l; first exact: Rabs_pos.
  have -> : \sum_t Rabs (y t) * (\sum_i e t i) = \sum_i Rabs (\sum_t y t * e t i).
    under [RHS]eq_bigr do rewrite shifts_abs.
    by rewrite [RHS]exchange_big; apply: eq_bigr => t _; rewrite big_distrr.
  apply: Rle_trans (_ : \sum_i \sum_t Rabs (y t) * Rabs (r t i) <= _).
    apply: rsum_le => i _; rewrite yE; apply: Rle_trans (rsum_abs_le _ _ _) _.
    by apply: rsum_le => t _; rewrite Rabs_mult; exact: Rle_refl.
  rewrite exchange_big; apply: rsum_le => t _ /=; rewrite /leaves big_distrr /=; exact: Rle_refl.
have high : \sum_t Rabs (y t) * leaves P t (Phi t) q < \sum_t Rabs (y t).
  rewrite (bigD1 t0) //= [X in _ < X](bigD1 t0) //=; apply: Rplus_lt_le_compat.
    by rewrite -[X in _ < X]Rmult_1_r; apply: Rmult_lt_compat_l;
      [exact: Rabs_pos_lt | exact: small].
  apply: rsum_le => t _; case: (boolP (t \in A)) => [/small lt|/out ->]; last first.
    by rewrite Rabs_R0 Rmult_0_l; exact: Rle_refl.
  by rewrite -[X in _ <= X]Rmult_1_r; apply: Rmult_le_compat_l; [exact: Rabs_pos | exact/Rlt_le].
exact: (Rlt_not_le _ _ high low).
Qed.
End Few.

Theorem taps_far : TAPS_far.
Proof.
move=> n g ok A q see H P few; have [t At away] := some_tap_is_far P ok see few.
exists t => // d Wval Wout b b' eps lt.
have far_t (phi : H -> R) : True -> exists2 q', q' = q & eps < leaves P t phi q'.
  by exists q => //; apply: Rlt_le_trans lt (away phi).
have [X [q' [o [-> one miss]]]] := @far _ _ _ _ _ _ _ _ far_t _ Wval Wout b b' I.
by exists X, o.
Qed.

(** ** Instance: eight heads and the nine taps of a 3 x 3 kernel *)
Theorem instance (P : 'I_8 -> queries TAPS.image3 -> pixels TAPS.image3 -> reals) :
  exists t : taps TAPS.image3, forall (Wval : 'I_8 -> 'I_(1 * 1) -> 'I_1 -> reals)
    (Wout : 'I_8 -> 'I_1 -> 'I_(1 * 1) -> reals),
  exists (X : pixels TAPS.image3 -> 'I_(1 * 1) -> reals) q o, / 2 <
    Rabs (mhsa P Wval Wout (fun _ => 0) X q o - torch_conv (one_tap t) (fun _ => 0) X q o).
Proof.
have few : (#|{: 'I_8}| < #|[set: taps TAPS.image3]|)%N.
  by rewrite cardsT card_dep_ffun foldrE big_map big_enum /= !big_ord_recl big_ord0 !card_ord.
have [t _ away] := taps_far TAPS.image3_fits (fun t _ => TAPS.centre_sees t) P few.
exists t => Wval Wout; have half : / 2 < 1 by lra.
by have [X [o [_ lt]]] := away 1%N Wval Wout (fun _ => 0) (fun _ => 0) _ half;
  eexists; eexists; exists o; exact: lt.
Qed.

(** ** Mutant: as many heads as taps, the shifts themselves, miss none *)
Definition mutant := far_with leq.
Theorem mutant_refuted : ~ mutant.
Proof.
pose P := @shift reals 2 TAPS.image3.
have joint : spans_jointly P.
  by exists (fun t h => if h == t then 1 else 0) => t q i; rewrite sum_pickE.
have every : (#|{: taps TAPS.image3}| <= #|[set: taps TAPS.image3]|)%N by rewrite cardsT.
move=> /(_ _ _ TAPS.image3_fits _ _ (fun t _ => TAPS.centre_sees t) _ P every) [t _ away].
have w1 : (minn 1 1 <= 1)%N by [].
have [Wval [Wout [b' same]]] := sufficient w1 joint (one_tap t) (fun _ => 0).
have [X [o [_]]] := away 1%N Wval Wout (fun _ => 0) b' 0 Rlt_0_1.
by rewrite same Rminus_eq_0 Rabs_R0; exact: Rlt_irrefl.
Qed.
