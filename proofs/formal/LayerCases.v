(** * T1, PAD, HEADS: instances and mutants of their other theorems on layers *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require T1 PAD TapHeads.
From C2A Require Import Statements Sums L1 OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** T1: heads of dimension 1 for a kernel of two taps; one pixel *)
Theorem T1_instance (weight : 'I_(1 * 1) -> nat -> taps (small 1) -> reals) b :
  exists (Wval : taps (small 1) -> 'I_(1 * 1) -> 'I_1 -> reals)
    (Wout : taps (small 1) -> 'I_1 -> 'I_(1 * 1) -> reals),
  forall (X : pixels (small 1) -> 'I_(1 * 1) -> reals), exists alpha : R, forall Xq q o,
  Rabs (mhsa (converted alpha id Xq (zero_pad X) : taps (small 1) -> _ -> _ -> reals) Wval Wout b
    (zero_pad X) q o - torch_conv weight b X q o) <= / 1000.
Proof.
have [Wval [Wout says]] := T1.theorem1 (@small_fits 1 isT) (isT : minn (1 * 1) (1 * 1) <= 1)%N
  weight b.
exists Wval, Wout => X; have e0 : 0 < / 1000 by lra.
have [alpha0 near] := says X _ e0; have lt : alpha0 < alpha0 + 1 by lra.
by exists (alpha0 + 1) => Xq q o; exact: near lt Xq q o.
Qed.
Theorem T1_instance_tokens (Z : keys one_pixel -> 'I_(1 * 1) -> reals) Xq q :
  Rabs (mhsa (converted 1 id Xq Z : taps one_pixel -> _ -> _ -> reals) (times (7 : reals))
    (@output reals) (bias (5 : reals)) Z q ord0 - (Z (here _) ord0 * 7 + 5)) <= 0.
Proof.
have still c (k k' : keys one_pixel) : Rabs (Z k c - Z k' c) <= 0.
  by rewrite (hereE k) (hereE k') Rminus_eq_0 Rabs_R0; exact: Rle_refl.
have := T1.any_tokens one_pixel_fits (bias (5 : reals)) (same_bijective _)
  (@merged_times reals 7) Rlt_0_1 Xq still q ord0.
rewrite conv_of_keysE => le; apply: Rle_trans le _; right.
by rewrite /theta_bound /= Rinv_1; ring.
Qed.
Lemma number_injective : injective (fun _ : keys one_pixel => 3%Z).
Proof. by move=> x y _; rewrite (hereE x) (hereE y). Qed.
Section Enumerated.
Variable Z : keys one_pixel -> 'I_(1 * 1) -> reals.
Let numbered (h : taps one_pixel) (q : queries one_pixel) : keys one_pixel -> reals :=
  softmax (fun k => 1 * (2 * 3) * 3 - 1 * (3 * 3)).
Theorem T1_instance_enumerated (q : queries one_pixel) :
  Rabs (mhsa numbered (times (7 : reals)) (@output reals) (bias (5 : reals)) Z q ord0
    - (Z (here _) ord0 * 7 + 5)) <= 0.
Proof.
have still c (k k' : keys one_pixel) : Rabs (Z k c - Z k' c) <= 0.
  by rewrite (hereE k) (hereE k') Rminus_eq_0 Rabs_R0; exact: Rle_refl.
have := @T1.enumerated _ _ one_pixel_fits _ number_injective 1%N 1%N 1%N _ _ id numbered _ _ _
  (bias (5 : reals)) 1 (same_bijective _) (@merged_times reals 7) Rlt_0_1
  (fun _ _ _ _ _ => erefl) Z (fun _ => 0) still q ord0.
rewrite conv_of_keysE => le; apply: Rle_trans le _; right.
by rewrite big1 ?Rmult_0_r // => t _; rewrite big1 // => c _; rewrite Rmult_0_l.
Qed.
End Enumerated.
(** Instance and mutant of the uniform limit: one pixel of at most 3; one dimension too few. *)
Theorem T1_instance_uniform (x : reals) : Rabs x <= 3 ->
  let X (_ : pixels one_pixel) (_ : 'I_(1 * 1)) := x in
  exists (Wval : taps one_pixel -> 'I_(1 * 1) -> 'I_1 -> reals)
    (Wout : taps one_pixel -> 'I_1 -> 'I_(1 * 1) -> reals) (alpha : R),
  Rabs (mhsa (converted alpha id (fun _ _ => 0) (zero_pad X) : taps one_pixel -> _ -> _ -> reals)
    Wval Wout (bias (1 : reals)) (zero_pad X) (here _) ord0 - (x * 2 + 1)) <= / 2.
Proof.
move=> small X; have half : 0 < / 2 by lra.
have [Wval [Wout says]] := T1.bounded_images one_pixel_fits (erefl : (minn (1 * 1) (1 * 1) <= 1)%N)
  (weighs (2 : reals)) (bias (1 : reals)).
have [alpha0 near] := says 3 _ half; have lt : alpha0 < alpha0 + 1 by lra.
exists Wval, Wout, (alpha0 + 1).
by have := near _ lt X (fun _ _ => small) (fun _ _ => 0) (here _) ord0; rewrite convE.
Qed.
Definition T1_mutant_uniform := uniformly (fun c o d => minn c o <= d.+1)%N.
Theorem T1_mutant_uniform_refuted : ~ T1_mutant_uniform.
Proof.
move=> /(_ _ _ one_pixel_fits 1%N 1%N 1%N 0%N erefl (weighs (1 : reals)) (bias (0 : reals)))
  [Wval [Wout says]].
have half : 0 < / 2 by lra.
have [alpha0 near] := says 1 _ half; have lt : alpha0 < alpha0 + 1 by lra.
have one (i : pixels one_pixel) (c : 'I_(1 * 1)) : Rabs 1 <= 1 by rewrite Rabs_R1; exact: Rle_refl.
have := near _ lt (fun _ _ => 1) one (fun _ _ => 0) (here _) ord0.
rewrite convE /mhsa big1 => [|h _].
  by rewrite /weighs /bias /= Rabs_left; lra.
by rewrite big_ord0.
Qed.
(** Mutants: heads of dimension 0; a number that several keys share. *)
Definition T1_mutant_narrow := forall n (g : geometry n), fits g ->
  forall (G ci co d : nat) (weight : 'I_(G * co) -> nat -> taps g -> reals)
    (b : 'I_(G * co) -> reals),
  exists (Wval : taps g -> 'I_(G * ci) -> 'I_d -> reals)
    (Wout : taps g -> 'I_d -> 'I_(G * co) -> reals),
  forall (X : pixels g -> 'I_(G * ci) -> reals) (eps : R), 0 < eps ->
  exists alpha0 : R, forall alpha, alpha0 < alpha -> forall Xq q o,
  Rabs (mhsa (converted alpha id Xq (zero_pad X) : taps g -> _ -> _ -> reals) Wval Wout b
    (zero_pad X) q o - torch_conv weight b X q o) <= eps.
Theorem T1_mutant_narrow_refuted : ~ T1_mutant_narrow.
Proof.
move=> /(_ _ _ one_pixel_fits 1%N 1%N 1%N 0%N (weighs (1 : reals)) (bias (0 : reals)))
  [Wval [Wout says]].
have half : 0 < / 2 by lra.
have [alpha0 near] := says (fun _ _ => 1) _ half; have lt : alpha0 < alpha0 + 1 by lra.
have := near _ lt (fun _ _ => 0) (here _) ord0; rewrite convE /mhsa big1 => [|h _].
  by rewrite /weighs /bias /= Rabs_left; lra.
by rewrite big_ord0.
Qed.
Definition T1_mutant_shared := forall n (g : geometry n), fits g -> forall (number : keys g -> Z),
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> reals)
    (Wval : H -> 'I_(G * ci) -> D -> reals) (Wout : H -> D -> 'I_(G * co) -> reals)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals) alpha,
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) -> 0 < alpha ->
  (forall h q target, reads q (f h) target -> P h q =1 softmax (fun k =>
    alpha * (2 * IZR (number target)) * IZR (number k)
    - alpha * (IZR (number k) * IZR (number k)))) ->
  forall (Z : keys g -> 'I_(G * ci) -> reals) (range : 'I_(G * ci) -> R),
  (forall c k k', Rabs (Z k c - Z k' c) <= range c) -> forall q o,
  Rabs (mhsa P Wval Wout b Z q o - conv_of_keys weight b Z q o)
  <= (1 - / theta_bound alpha) * \sum_t \sum_c range c * Rabs (tap weight t c o).
Theorem T1_mutant_shared_refuted : ~ T1_mutant_shared.
Proof.
pose g : geometry 1 := Geometry (fun _ => 2%N) (fun _ => 1%N) (fun _ => 1%N) (fun _ => 1%N)
  (fun _ => 0%N) (fun _ => 0%N); have ok : fits g by [].
have l5 : 0 < ln 5 by apply: ln_gt0; lra.
pose one (_ : taps g) (_ : 'I_(1 * 1)) (_ : unit) : reals := 1.
pose out (_ : taps g) (_ : unit) (_ : 'I_(1 * 1)) : reals := 1.
pose weight (_ : 'I_(1 * 1)) (_ : nat) (_ : taps g) : reals := 1.
pose none (_ : 'I_(1 * 1)) : reals := 0.
pose P (_ : taps g) (_ : queries g) : keys g -> reals :=
  softmax (fun k => ln 5 * (2 * 0) * 0 - ln 5 * (0 * 0)).
pose Z (k : keys g) (_ : 'I_(1 * 1)) : reals := INR (k ord0).
have merged1 h c o : merged one out h c o = tap weight (id h) c o.
  by rewrite /merged sum_unitE /tap (ord1 c) (ord1 o) /one /out /weight /=; ring.
have spread c (k k' : keys g) : Rabs (Z k c - Z k' c) <= 1.
  rewrite /Z; have := ltn_ord (k ord0); have := ltn_ord (k' ord0); rewrite /padded /=.
  move: (nat_of_ord (k ord0)) (nat_of_ord (k' ord0)) => [|[|x]] [|[|y]] //= _ _;
    rewrite /Rabs; case: Rcase_abs => ?; lra.
pose q : queries g := [ffun _ => ord0].
move=> /(_ 1%N g ok (fun _ => 0%Z) 1%N 1%N 1%N _ _ id P one out weight none (ln 5)
  (same_bijective _) merged1 l5 (fun _ _ _ _ _ => erefl) Z (fun _ => 1) spread q ord0).
have half h k : P h q k = / 2.
  rewrite /P /softmax (@sum_line reals 2 xpredT) !big_ord_recl big_ord0 /=.
  set e := exp _; have e0 : 0 < e by exact: exp_pos.
  by field; lra.
rewrite mhsaE (TapHeads.conv_of_keys_tapE ok) /TapHeads.applied !(@sum_line reals 1 xpredT)
  !big_ord_recl
  !big_ord0 !(@sum_line reals 2 xpredT) !big_ord_recl !big_ord0 !half merged1 /tap /weight /none.
rewrite /Z !ffunE /= /theta_bound exp_ln; last lra.
have -> : (q ord0 * 1 + line (ord0 : 'I_1) ord0 * 1)%N = 0%N by rewrite /q /line !ffunE.
by rewrite Rabs_R1 /Rabs /=; case: Rcase_abs => ?; lra.
Qed.

(** ** PAD: two axes of weights 2 and 3; one pixel; one more zero on each side; and layers that see
    zeros outside *)
Theorem PAD_instance (lo hi x y : point 2) : not_empty lo hi -> inside lo hi y ->
  let w (a : 'I_2) : R := if a == ord0 then 2 else 3 in
  weighted w (clamp lo hi x) x <= weighted w y x.
Proof.
move=> some ins w; have w0 a : 0 < w a by rewrite /w; case: eqP; lra.
by have [] := PAD.axis_aligned w0 some x ins.
Qed.
Theorem PAD_instance_layer (X : pixels one_pixel -> 'I_(1 * 1) -> reals) q :
  mhsa (fun (_ : taps one_pixel) (_ : queries one_pixel) (_ : pixels one_pixel) => 1 : reals)
    (times (7 : reals)) (@output reals) (bias (5 : reals)) X q ord0 = X (here _) ord0 * 7 + 5.
Proof.
have nearest : read_nearest id (fun (_ : taps one_pixel) _ (_ : pixels one_pixel) => 1 : reals).
  move=> h q' i; rewrite ifT //; apply/forallP => j.
  by rewrite (hereE i) (hereE j); exact/Z.leb_le/Z.le_refl.
have := PAD.replicating_layer one_pixel_fits (bias (5 : reals)) (same_bijective _) nearest
  (@merged_times reals 7) X q ord0 => ->.
rewrite conv_of_keysE /replicate_pad /bias /weighs /=; congr (_ * _ + _).
rewrite -(@sum_here reals (side one_pixel) (fun i => X i ord0)); apply: eq_bigl => i.
by apply/forallP; case.
Qed.
Theorem PAD_instance_crop (weight : 'I_(1 * 1) -> nat -> taps (small 1) -> integers) b
  (X : pixels (small 1) -> 'I_(1 * 1) -> integers) o (q : queries (small 1)) :
  exists q1 : queries (more_padding (small 1) (fun _ => 1%N) (fun _ => 1%N)),
  q1 ord0 = (q ord0 + 1)%N :> nat /\
  torch_conv weight b X q o = @torch_conv 1 (more_padding (small 1) (fun _ => 1%N) (fun _ => 1%N))
    integers 1 1 1 weight b X q1 o.
Proof.
have [q1 [place says]] := PAD.crop integers (@small_fits 1 isT) (fun _ => erefl) (fun _ => 1%N)
  (fun _ => 1%N) q.
by exists q1; split; [exact: place | exact: says].
Qed.
Theorem HEADS_instance_layer (weight : 'I_(1 * 1) -> nat -> taps one_pixel -> integers) b b' :
  (forall Z q o, mhsa (full_attention (1%Z : integers)) (times (7%Z : integers)) (@output integers)
    b' Z
    q o = conv_of_keys weight b Z q o) <->
  (forall t c o, tap weight t c o = (\sum_h (if h == t then one else zero)
    * merged (times (7%Z : integers)) (@output integers) h c o)%num) /\ b' =1 b.
Proof.
have on : on_taps (fun h t => if h == t then one else zero) (full_attention (1%Z : integers)).
  move=> h q k; rewrite (big_pred1 (here _)) => [|t]; last by rewrite all_read (hereE t) /= eqxx.
  by rewrite (hereE h) eqxx.
exact: (@TapHeads.layer _ _ _ one_pixel_fits 1%N 1%N 1%N _ _ _ _ _ _ weight b b' on).
Qed.
