(** * T1: unpadded heads of a finite alpha, and the convolution of the replicate-padded image *)
From Coq Require Import Reals Lra Lia ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L2a PAD L2c L2b T1 OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** The layer of PAD whose heads are one-hot at the nearest pixel, the clamp, is that convolution;
    each head leaks from its clamp what L2c says, and [T1.leak_le] adds the leaks up. *)
Theorem border_soft : T1_border.
Proof.
move=> n g ok side0 G ci co H D f Wval Wout weight b bij W alpha alpha0 X range spread q o.
rewrite -(clamping_layer ok b bij W X q o).
pose lo : point n := fun _ => 0%Z; pose hi : point n := fun a => (Z.of_nat (side g a) - 1)%Z.
have gridP : grid (@pixel_place n g).
  by move=> k k' E; apply/ffunP => a; apply: val_inj; apply: Nat2Z.inj; exact: E.
have ins (i : pixels g) : inside lo hi (pixel_place i).
  by move=> a; rewrite /lo /hi /pixel_place; have /ltP := ltn_ord (i a); lia.
have nearest_lt h a : (Z.to_nat (clamp lo hi (looked_at q (f h)) a) < side g a)%N.
  by have /ltP := side0 a; rewrite /clamp /lo /hi => ?; apply/ltP; lia.
pose target h : pixels g := [ffun a => Ordinal (nearest_lt h a)].
have at_clamp h : pixel_place (target h) =1 clamp lo hi (looked_at q (f h)).
  move=> a; rewrite /pixel_place ffunE /=; have /ltP := side0 a; rewrite /clamp /lo /hi => ?; lia.
pose p h := quadratic_head (@pixel_place n g) alpha (looked_at q (f h)).
pose w h (c : 'I_(G * ci)) : R := tap weight (f h) c o.
have Es : mhsa (fun h q => quadratic_head (@pixel_place n g) alpha (looked_at q (f h)) : _ -> reals)
    Wval Wout b X q o = soft p w X + b o.
  by rewrite mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite W.
have Eh : mhsa (fun h => replicate reals (f h)) Wval Wout b X q o = sharp_layer target w X + b o.
  rewrite mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite W.
  congr (_ * _); rewrite (bigD1 (target h)) //= big1 => [|i ne].
    rewrite /replicate ifT; first by rewrite /=; ring.
    by apply/forallP => a; apply/Z.eqb_eq; have := at_clamp h a; rewrite /pixel_place.
  rewrite /replicate ifF; first by rewrite /=; ring.
  apply/negbTE; apply: contra ne => /forallP same; apply/eqP/gridP => a.
  by rewrite (at_clamp h a); have /Z.eqb_eq := same a.
rewrite Es Eh; have -> : forall s t u : R, s + u - (t + u) = s - t by move=> s t u; ring.
have p_ge0 h k : 0 <= p h k by apply: Rlt_le; exact: softmax_gt0.
have p_sum1 h : \sum_k p h k = 1 by exact: softmax_sum1 (target h).
apply: Rle_trans (leak_le target w p_ge0 p_sum1 spread) _.
rewrite [X in _ <= _ * X](reindex f) /=; last exact: onW_bij.
rewrite big_distrr /=; apply: rsum_le => h _; apply: Rmult_le_compat_r.
  apply: rsum_ge0 => c _; apply: Rmult_le_pos; last exact: Rabs_pos.
  by apply: Rle_trans (spread c (target h) (target h)); exact: Rabs_pos.
have := @share_of_clamp n alpha alpha0 lo hi _ _ gridP ins (looked_at q (f h)) (target h)
  (at_clamp h).
by rewrite /p; lra.
Qed.

(** ** Instance: one pixel *)
Theorem instance_soft (x : reals) :
  let X (_ : pixels one_pixel) (_ : 'I_(1 * 1)) := x in
  Rabs (mhsa (fun (h : taps one_pixel) q => quadratic_head (@pixel_place _ one_pixel) 1
      (looked_at q h) : _ -> reals) (times (2 : reals)) (@output reals) (bias (1 : reals))
      X (here _) ord0
    - @conv_of_keys _ one_pixel reals 1 1 1 (weighs (2 : reals)) (bias (1 : reals))
      (replicate_pad X) (here _) ord0) <= 0.
Proof.
move=> X; have one0 : 0 < 1 by lra.
have side0 (a : 'I_0) : (0 < side one_pixel a)%N by case: a.
have spread c i j : Rabs (X i c - X j c) <= (fun _ : 'I_(1 * 1) => 0) c.
  by rewrite Rminus_eq_0 Rabs_R0; exact: Rle_refl.
have := border_soft one_pixel_fits side0 (bias (1 : reals)) (same_bijective _)
  (merged_times (2 : reals)) one0 spread (here _) ord0.
by rewrite /= Rinv_1 Rminus_eq_0 Rmult_0_l.
Qed.

(** ** Mutant: heads of a finite alpha are the convolution *)
Definition mutant_soft := border_within (fun _ _ => 0).
Definition pixel_pair : geometry 1 := Geometry (fun _ => 2%N) (fun _ => 1%N) (fun _ => 1%N)
  (fun _ => 1%N) (fun _ => 0%N) (fun _ => 0%N).
Definition pixel_at (j : nat) (lt : (j < 2)%N) : pixels pixel_pair := [ffun _ => Ordinal lt].
(** Two pixels of values 0 and 1, K = 1: the head at the first reads some of the second. *)
Theorem mutant_soft_refuted : ~ mutant_soft.
Proof.
move=> says; pose g := pixel_pair; have ok : fits g by [].
have side0 (a : 'I_1) : (0 < side g a)%N by [].
pose w (o : 'I_(1 * 1)) (c : nat) (t : taps g) : reals := 1.
pose V (h : taps g) (c : 'I_(1 * 1)) (e : unit) : reals := 1.
pose U (h : taps g) (e : unit) (o : 'I_(1 * 1)) : reals := 1.
pose none (o : 'I_(1 * 1)) : reals := 0.
pose X (i : pixels g) (c : 'I_(1 * 1)) : reals := INR (i ord0).
have W h c o : merged V U h c o = tap w (id h) c o.
  by rewrite /merged rsum_unitE /tap (ord1 c) (ord1 o) /V /U /w /=; ring.
have one0 : 0 < 1 by lra.
have spread c i j : Rabs (X i c - X j c) <= (fun _ => 1) c.
  rewrite /X; have := ltn_ord (i ord0); have := ltn_ord (j ord0).
  case: (nat_of_ord (i ord0)) (nat_of_ord (j ord0)) => [|[|?]] [|[|?]] //= _ _;
    rewrite /Rabs; case: Rcase_abs; lra.
pose q : queries g := [ffun _ => Ordinal (isT : (0 < 2)%N)].
have := says 1%N g ok side0 1%N 1%N 1%N _ _ id V U w none (same_bijective _) W 1 one0 X _ spread q
  ord0.
set L := mhsa _ _ _ _ _ _ _; rewrite Rmult_0_l.
have -> : conv_of_keys w none (replicate_pad X) q ord0 = 0.
  rewrite /conv_of_keys big1 => [|t _]; first by rewrite /none /=; ring.
  apply: big1 => c _; rewrite [X in mul X _]big1 => [|k rd]; first by rewrite /=; ring.
  have k0 : nat_of_ord (k ord0) = 0%N.
    have /forallP /(_ ord0) /eqP -> := rd; have := ltn_ord (t ord0); rewrite /q ffunE /=.
    by case: (nat_of_ord (t ord0)).
  apply: big1 => i /forallP /(_ ord0) /Z.eqb_eq; rewrite /clamp k0 /X /=.
  by case: (nat_of_ord (i ord0)).
suff : 0 < L by move=> L0; rewrite Rminus_0_r Rabs_pos_eq; lra.
rewrite /L mhsaE /none /= Rplus_0_r.
have term h c : 0 < (\sum_k quadratic_head (@pixel_place _ g) 1 (looked_at q h) k * X k c)
    * merged V U h c ord0.
  have -> : merged V U h c ord0 = 1 by rewrite W /tap (ord1 c).
  rewrite Rmult_1_r (bigD1 (pixel_at (isT : (1 < 2)%N))) //=.
  apply: Rplus_lt_le_0_compat.
    by rewrite /X /pixel_at ffunE /= Rmult_1_r; exact: softmax_gt0.
  apply: rsum_ge0 => k _; apply: Rmult_le_pos; [exact/Rlt_le/softmax_gt0 | exact: pos_INR].
apply: (rsum_gt0 [ffun _ => ord0] ) => h; apply: (rsum_gt0 ord0) => c; exact: term.
Qed.
