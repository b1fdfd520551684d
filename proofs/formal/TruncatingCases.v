(** * SOFT: where sums truncate, the least of weights moves them by a unit

    A mutant of SOFT_few: sums in any sound arithmetic may be counted on few of their summands. *)
From Coq Require Import Reals ZArith Lra Lia.
From Flocq Require Import Core.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums FLOAT SOFT.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** Four bits, truncated: numbers between 1/2 and 1 are sixteenths. *)
Definition cut4 := truncating (-20) 4.
Lemma sixteenthsE (m : Z) z : (8 <= m < 16)%Z -> IZR m / 16 <= z < (IZR m + 1) / 16 ->
  fl cut4 z = IZR m / 16.
Proof.
move=> [m8 m16] [lo hi].
have b8 : 8 <= IZR m by apply: (IZR_le 8).
have b16 : IZR m + 1 <= 16 by rewrite -(plus_IZR m 1); apply: IZR_le; lia.
have mag0 : mag radix2 z = 0%Z :> Z.
  apply: mag_unique_pos; change (bpow radix2 (0 - 1)) with (/ 2); change (bpow radix2 0) with 1.
  lra.
have e4 : cexp radix2 (FLT_exp (-20) 4) z = (-4)%Z by rewrite /cexp mag0.
rewrite /= /Generic_fmt.round /F2R /= /scaled_mantissa e4.
change (bpow radix2 (- -4)) with 16; change (bpow radix2 (-4)) with (/ 16).
have -> : Ztrunc (z * 16) = m.
  rewrite Ztrunc_floor; last lra.
  by apply: Zfloor_imp; rewrite plus_IZR; lra.
by [].
Qed.
(** One of weight 1, and three of weight - 2^-10, each of which is taken for a sixteenth. *)
Definition four_weights (i : option (option bool)) : R := if i is Some _ then - power (-10) else 1.
Definition four_order : order (option (option bool)) :=
  Fused (Some None) (Fused (Some (Some true)) (Fused (Some (Some false)) (Product None))).
Definition four_sums := Setting cut4 cut4 id 0 4 4 0 0.
Lemma four_as_set : as_set four_sums four_weights (fun _ => 1) 0 four_order.
Proof.
have sA : sound cut4 by exact: truncating_sound.
have u : power (-3) = / 8 by [].
split; first by split=> //; [exact: Rle_refl | change (INR 4 * power (-3) < 1); rewrite u /=; lra].
split; last by split=> // i; rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; split; exact: Rle_refl.
split=> //; first by case: sA => _ [].
by split=> // -[[[[]|]|]|].
Qed.
Lemma four_computedE : computed four_sums four_weights (fun _ => 1) 0 four_order = 13 / 16.
Proof.
have t : power (-10) = / 1024 by [].
have -> : computed four_sums four_weights (fun _ => 1) 0 four_order
    = fl cut4 (- power (-10) * 1 + fl cut4 (- power (-10) * 1 + fl cut4 (- power (-10) * 1
      + fl cut4 (1 * 1)))) by [].
rewrite t !Rmult_1_r.
have one : fl cut4 1 = 1.
  have [_ [_ _ keep _ _]] : sound cut4 by exact: truncating_sound.
  apply: keep; apply: (generic_format_bpow radix2 _ 0); rewrite /FLT_exp; lia.
rewrite one.
have -> : fl cut4 (- / 1024 + 1) = 15 / 16 by apply: (sixteenthsE (m := 15)); [lia | lra].
have -> : fl cut4 (- / 1024 + 15 / 16) = 14 / 16 by apply: (sixteenthsE (m := 14)); [lia | lra].
by apply: (sixteenthsE (m := 13)); [lia | lra].
Qed.
Lemma four_bound : few_bound four_sums 1 1 (3 * / 1024)
  = / 7 + 8 / 7 * (2 * (2 * (3 * / 1024) + 2 * (4 * / 1048576))).
Proof.
have u : roundoff cut4 = / 8 by []. have l : loss cut4 = / 1048576 by [].
have none : sum_loss cut4 = 0 by [].
rewrite /few_bound /cost /Statements.lost /growth_of /growth /underflow /gamma.
cbn [sums stores cut_by terms casts products stored_sums among four_sums].
by rewrite u l none /=; field.
Qed.
Definition mutant_truncating := counted_if (fun s I few w => True).
Theorem mutant_truncating_refuted : ~ mutant_truncating.
Proof.
have one : (#|(pred1 None : pred (option (option bool)))| <= 1 <= terms four_sums)%N by rewrite
  card1.
have w k : four_weights (Some k) = - / 1024 by [].
move=> /(_ _ _ (pred1 None) _ _ _ 1%N four_as_set I one).
rewrite four_computedE !big_pred1_eq [X in few_bound _ _ _ X](_ : _ = 3 * / 1024); last first.
  rewrite big_mkcond !rsum_optionE rsum_bool !w /= Rabs_Ropp Rabs_R1.
  by rewrite Rabs_pos_eq; lra.
rewrite /four_weights !Rabs_R1 !Rmult_1_r four_bound Rabs_left; lra.
Qed.
