(** * D2: Two encoding dimensions

    Claim: Number the displacements of a grid by an injective integer t, on a padded grid of width W
    as t = M d_1 + d_2 with M >= 2 W - 1. With r = (t, t^2) and v = alpha (2 t_Delta, -1) the score
    is -alpha (t - t_Delta)^2 up to a constant, so every displacement is the unique peak of some v,
    and D_p = 2 suffices in any number of axes. D_p = 1 cannot serve three keys, so 2 is the
    minimum.
    Source: this project; against Cordonnier et al. 2019 (arXiv v1), conjecture D_p >= 3, and
    Theorem 1, D_p >= 3.
    Does not show: The price in range: t^2 grows like the square of the number of displacements,
    which floats do not hold; the code computes the scores from integers. *)
From Coq Require Import Reals ZArith Lra Lia Psatz.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Theorem two_suffice : D2.
Proof.
move=> D t inj alpha alpha0 target d /eqP ne.
have apart : t d - t target <> 0 by move=> E; apply: ne; apply: inj; lra.
by have : 0 < (t d - t target) * (t d - t target); rewrite /enumerated_score; nra.
Qed.

Theorem two_numbers : D2_two.
Proof.
move=> D; pose t (d : D) := INR (enum_rank d).
exists (fun d p => if p == ord0 then t d else t d * t d),
  (fun d p => if p == ord0 then 1 * (2 * t d) else -1) => target k ne.
have inj : injective t by move=> x y /INR_eq /val_inj /enum_rank_inj.
have := two_suffice inj Rlt_0_1 ne; rewrite /enumerated_score !big_ord_recl !big_ord0 /=; lra.
Qed.

Theorem number : D2_number.
Proof.
move=> W M wide d1 d2 d1' d2' lt lt' E.
have d : (M * (d1 - d1') = d2' - d2)%Z by lia.
suff : (d1 - d1' = 0)%Z by lia.
have small : (Z.abs (d2' - d2) < M)%Z by lia.
by rewrite -d in small; nia.
Qed.

Theorem any_axes : D2_axes.
Proof.
move=> W M n wide d d' lt; elim: n => [|n IH] //= E a.
have [/= e1 e2] : mixed_radix M d n = mixed_radix M d' n /\ d n = d' n.
  apply: (@number (W n) (M n) (wide n)); [exact: (proj1 (lt n)) | exact: (proj2 (lt n)) | lia].
by rewrite ltnS leq_eqVlt => /orP [/eqP -> //|]; exact: IH.
Qed.

(** On a line, a strict maximum of [v r] among three is an end, and three points have only two
    ends. *)
Theorem one_is_not_enough : D2_minimum.
Proof.
move=> r v peak.
have ends (w a b c : R) : w * a < w * b -> w * c < w * b -> (a < b /\ c < b) \/ (b < a /\ b < c).
  by move=> H1 H2; case: (Rle_lt_dec w 0) => Hw; [right | left]; split; nra.
pose i0 : 'I_3 := ord0; pose i1 : 'I_3 := inord 1; pose i2 : 'I_3 := inord 2.
have n01 : i0 != i1 by rewrite -val_eqE /= inordK.
have n02 : i0 != i2 by rewrite -val_eqE /= inordK.
have n12 : i1 != i2 by rewrite -val_eqE /= !inordK.
have := ends _ _ _ _ (peak i0 i1 ltac:(by rewrite eq_sym)) (peak i0 i2 ltac:(by rewrite eq_sym)).
have := ends _ _ _ _ (peak i1 i0 n01) (peak i1 i2 ltac:(by rewrite eq_sym)).
have := ends _ _ _ _ (peak i2 i0 n02) (peak i2 i1 n12).
by lra.
Qed.

Theorem score_of_number : D2_score.
Proof. by move=> alpha u t; rewrite /enumerated_score; ring. Qed.
Theorem extremes : D2_extremes.
Proof.
move=> D r high low up down; exists 1, (-1); split=> d ne; first by have := up d ne; lra.
by have := down d ne; lra.
Qed.

(** ** Instance

    A grid of width 3, [M = 5]: displacement (1, -2) has number 3, its score is 9, that of (0, 2) is
    8 *)
Definition number5 (d : Z * Z) : R := IZR (5 * d.1 + d.2).
Theorem instance : let score d := 2 * number5 (1, -2)%Z * number5 d - number5 d * number5 d in
  score (1, -2)%Z = 9 /\ score (0, 2)%Z = 8 /\ forall d1 d2, (Z.abs d2 < 3)%Z ->
    (d1, d2) <> (1, -2)%Z -> score (d1, d2) < 9.
Proof.
split; [|split]; rewrite /number5 /=; [lra | lra | move=> d1 d2 lt ne].
have apart : (5 * d1 + d2 <> 3)%Z.
  move=> E; apply: ne.
  by case: (@number 3%Z 5%Z ltac:(lia) d1 d2 1%Z (-2)%Z lt ltac:(lia) ltac:(lia)) => -> ->.
have : (1 <= (5 * d1 + d2 - 3) * (5 * d1 + d2 - 3))%Z by nia.
move/IZR_le; rewrite mult_IZR !minus_IZR; move: (IZR (5 * d1 + d2)) => x; nra.
Qed.

(** ** Mutants

    Numbers that are not injective; no sharpness; the wrong sign; the centre halved, the factor 2 of
    [v] forgotten; one number; a base of the mixed radix that is 1 too small *)
Definition bit (k : bool) : R := if k then 1 else 0.
Lemma bit_injective : injective bit. Proof. by case; case=> //; rewrite /bit; lra. Qed.
Ltac on_bits := rewrite /enumerated_score /bit /id /=; lra.
Definition mutant := peaks_if (fun D t => True) (Rlt 0) id Rlt.
Theorem mutant_refuted : ~ mutant.
Proof. by move=> /(_ _ (fun _ : bool => 0) I 1 Rlt_0_1 true false isT); on_bits. Qed.
Definition mutant_no_sharpness := peaks_if (fun D t => injective t) (fun alpha => True) id Rlt.
Theorem mutant_no_sharpness_refuted : ~ mutant_no_sharpness.
Proof. by move=> /(_ _ _ bit_injective 0 I true false isT); on_bits. Qed.
Definition mutant_sign := peaks_if (fun D t => injective t) (Rlt 0) id Rgt.
Theorem mutant_sign_refuted : ~ mutant_sign.
Proof. by move=> /(_ _ _ bit_injective 1 Rlt_0_1 true false isT); on_bits. Qed.
Definition mutant_linear := peaks_if (fun D t => injective t) (Rlt 0) (fun t => t / 2) Rlt.
Theorem mutant_linear_refuted : ~ mutant_linear.
Proof. by move=> /(_ _ _ bit_injective 1 Rlt_0_1 true false isT); on_bits. Qed.
Definition mutant_one := peaks_in 1.
Theorem mutant_one_refuted : ~ mutant_one.
Proof.
move=> /(_ [finType of 'I_3]) [r [v peak]].
apply: (@one_is_not_enough (fun k => r k ord0) (fun h => v h ord0)) => h k /(peak h).
by rewrite !big_ord_recl !big_ord0 !Rplus_0_r.
Qed.
Definition mutant_narrow := numbers_apart (fun W => 2 * W - 2)%Z.
Theorem mutant_narrow_refuted : ~ mutant_narrow.
Proof.
pose d (k : nat) : Z := if k is 1%N then 1%Z else 0%Z.
pose d' (k : nat) : Z := if k is 1%N then (-1)%Z else 1%Z.
move=> /(_ (fun _ => 2%Z) (fun _ => 2%Z) 2%N (fun _ => Z.le_refl 2) d d').
have small a : (Z.abs (d a) < 2 /\ Z.abs (d' a) < 2)%Z by case: a => [|[|a]].
by move=> /(_ small erefl 0%N isT).
Qed.
