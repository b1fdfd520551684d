(** * T1: Theorem 1 with its bound

    Claim: A layer of quadratic heads at the offsets of a kernel, with W_val W_out of each head the
    tap's matrix, differs from the convolution by at most the leaked mass times the sum over taps
    and channels of |w| times the range of that channel of the padded input, zeros of the padding
    included; the bound tends to 0 as alpha grows, for all sizes at once. The same holds for any
    tokens on the keys, with their range: images padded in any mode, cropped, or stuffed with zeros
    for a transposed convolution; for unpadded heads, with the convolution of the replicate-padded
    image; and for heads of two encoding dimensions (D2), with the leak of one axis. Hence every
    convolution is the limit of such layers, uniformly over inputs that are bounded by one number,
    and equals one where the softmax is exactly one-hot.
    Source: Cordonnier et al. 2020, Theorem 1; the bound is this project's.
    Does not show: Floating point: rounding is bounded apart. The triangle inequality for sums is
    used as such. *)
From Coq Require Import Reals Lra Lia ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L2a PAD L2c L2b.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Heads that leak, against heads that do not *)
Section Leak.
Variables (H K C : finType) (p : H -> K -> R) (target : H -> K) (w : H -> C -> R) (x : K -> C -> R)
  (range : C -> R).
Hypothesis p_ge0 : forall h k, 0 <= p h k.
Hypothesis p_sum1 : forall h, \sum_k p h k = 1.
Hypothesis spread : forall c k k', Rabs (x k c - x k' c) <= range c.
Definition soft := \sum_h \sum_c (\sum_k p h k * x k c) * w h c.
Definition sharp_layer := \sum_h \sum_c x (target h) c * w h c.
Lemma head_error_le h c : Rabs (\sum_k p h k * x k c - x (target h) c)
  <= (1 - p h (target h)) * range c.
Proof.
have -> : \sum_k p h k * x k c - x (target h) c = \sum_k p h k * (x k c - x (target h) c).
  rewrite -[x (target h) c in LHS]Rmult_1_l -(p_sum1 h) big_distrl rsum_minus /=.
  by apply: eq_bigr => k _; ring.
have -> : 1 - p h (target h) = \big[Rplus/0]_(k | k != target h) p h k.
  by rewrite -(p_sum1 h) (bigD1 (target h)) //=; ring.
rewrite (bigD1 (target h)) //= Rminus_eq_0 Rmult_0_r Rplus_0_l big_distrl /=.
apply: Rle_trans (rsum_abs_le _ _ _) _; apply: rsum_le => k _.
by rewrite Rabs_mult (Rabs_pos_eq _ (p_ge0 h k)); apply: Rmult_le_compat_l.
Qed.
Lemma leak_le : Rabs (soft - sharp_layer) <= \sum_h (1 - p h (target h)) * \sum_c range c * Rabs (w
  h c).
Proof.
rewrite /soft /sharp_layer rsum_minus; apply: Rle_trans (rsum_abs_le _ _ _) _; apply: rsum_le => h
  _.
rewrite rsum_minus big_distrr /=; apply: Rle_trans (rsum_abs_le _ _ _) _; apply: rsum_le => c _.
by rewrite -Rmult_minus_distr_r Rabs_mult -Rmult_assoc; apply: Rmult_le_compat_r;
  [exact: Rabs_pos | exact: head_error_le].
Qed.
End Leak.

(** ** The attention of Eq. (8) is a quadratic head at the key that the tap reads *)
Section Converted.
Variables (n : nat) (g : geometry n).
Hypothesis ok : fits g.
Lemma keys_grid : grid (@position n g).
Proof. by move=> k k' E; apply/ffunP => a; apply: val_inj; apply: Nat2Z.inj; exact: E. Qed.
Lemma convertedE (H Cin : finType) alpha (f : H -> taps g) (Xq : queries g -> Cin -> R) X h q :
  converted alpha f Xq X h q =1 quadratic_head (@position n g) alpha (position (key ok q (f h))).
Proof.
move=> k; rewrite /converted /quadratic_head.
set off := fun a => IZR (offset (f h) a).
rewrite -[RHS](softmax_shift _ (alpha * @squared_norm reals n off)); apply: softmax_ext => j.
rewrite quadratic_scoreE /centred_square /squared_norm /distance IZR_sum.
have split (u v : R) : - alpha * (u - v) = - alpha * u + alpha * v by ring.
rewrite [LHS]split; congr (_ * _ + _).
have target a : position (key ok q (f h)) a = (site q a + offset (f h) a)%Z.
  have /sites /(_ a) : reads q (f h) (key ok q (f h)) by rewrite (readsE ok).
  lia.
apply: eq_bigr => a _; rewrite target /off.
move: (position j a) (site q a) (offset (f h) a) => x y z.
change ((IZR (x - y) - IZR z) * (IZR (x - y) - IZR z) = IZR ((x - (y + z)) * (x - (y + z)))).
by rewrite mult_IZR !minus_IZR plus_IZR; ring.
Qed.
Lemma converted_share_ge (H Cin : finType) alpha (f : H -> taps g) (Xq : queries g -> Cin ->
  R) X h q
  : 0 < alpha ->
  / theta_bound alpha ^ n <= converted alpha f Xq X h q (key ok q (f h)).
Proof. by move=> alpha0; rewrite convertedE; apply: share => //; exact: keys_grid. Qed.
End Converted.

Theorem bound : T1_bound.
Proof.
move=> n g ok G ci co H D f Wval Wout weight b bij W alpha alpha0 Xq X range spread q o.
pose p h := converted alpha f Xq (zero_pad X) h q; pose w h (c : 'I_(G * ci)) : R :=
  tap weight (f h) c o.
pose target h := key ok q (f h).
have Es : mhsa (converted alpha f Xq (zero_pad X) : H -> _ -> _ -> reals) Wval Wout b
  (zero_pad X) q o
    = soft p w (zero_pad X) + b o.
  rewrite mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _.
  by rewrite W.
have Eh : torch_conv weight b X q o = sharp_layer target w (zero_pad X) + b o.
  rewrite torch_convE [X in add X _](reindex f) /=; last exact: onW_bij.
  congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _.
  by rewrite /target zero_pad_key.
rewrite Es Eh; have -> : forall s t u : R, s + u - (t + u) = s - t by move=> s t u; ring.
have p_ge0 h k : 0 <= p h k by apply: Rlt_le; exact: softmax_gt0.
have p_sum1 h : \sum_k p h k = 1 by exact: softmax_sum1 (target h).
apply: Rle_trans (leak_le target w p_ge0 p_sum1 spread) _.
rewrite [X in _ <= _ * X](reindex f) /=; last exact: onW_bij.
rewrite big_distrr /=; apply: rsum_le => h _; apply: Rmult_le_compat_r.
  apply: rsum_ge0 => c _; apply: Rmult_le_pos; last exact: Rabs_pos.
  by apply: Rle_trans (spread c (target h) (target h)); exact: Rabs_pos.
by have := converted_share_ge ok f Xq (zero_pad X) h q alpha0; rewrite /p /target; lra.
Qed.

(** ** Factors of the taps: one of the two is an identity, padded with zeros *)
Section Factor.
Variables (S : numbers) (T : finType) (m n d : nat) (W : T -> 'I_m -> 'I_n -> S).
Definition narrow_in := (m <= n)%N.
Definition wide_value (t : T) (c : 'I_m) (e : 'I_d) : S :=
  if narrow_in then (if val e == val c then one else zero)
  else if insub (val e) is Some o then W t c o else zero.
Definition wide_output (t : T) (e : 'I_d) (o : 'I_n) : S :=
  if narrow_in then (if insub (val e) is Some c then W t c o else zero)
  else if val e == val o then one else zero.
Lemma factoredE t c o : (minn m n <= d)%N -> merged wide_value wide_output t c o = W t c o.
Proof.
rewrite /merged /wide_value /wide_output /narrow_in /minn ltn_neqAle.
case: (leqP m n) => [le|lt]; rewrite ?andbT ?andbF.
- have -> : (if m != n then m else n) = m by case: eqP => //= ->.
  move=> le_d; rewrite (bigD1 (widen_ord le_d c)) //= eqxx big1 => [|e ne].
    by rewrite add0r valK mul1l.
  by have /negbTE -> : val e != val c;
    [apply: contra ne => /eqP E; apply/eqP; exact: val_inj | rewrite mul0l].
- move=> le_d; rewrite (bigD1 (widen_ord le_d o)) //= eqxx big1 => [|e ne].
    by rewrite add0r valK mul1r.
  by have /negbTE -> : val e != val o;
    [apply: contra ne => /eqP E; apply/eqP; exact: val_inj | rewrite mul0r].
Qed.
End Factor.

Theorem theorem1 : T1.
Proof.
move=> n g ok G ci co d le_d weight b.
pose W := @tap n g reals G ci co weight.
exists (@wide_value reals _ _ _ d W), (@wide_output reals _ _ _ d W) => X eps eps0.
pose gap c k k' := Rabs (zero_pad X k c - zero_pad X k' c).
pose range c := \sum_k \sum_k' gap c k k'.
have gap0 c k k' : 0 <= gap c k k' by exact: Rabs_pos.
have row0 c k : 0 <= \sum_k' gap c k k' by apply: rsum_ge0.
have spread c k k' : gap c k k' <= range c by exact: Rle_trans (rsum_term_le _ _) (rsum_term_le _
  _).
pose B o := \sum_t \sum_c range c * Rabs (tap weight t c o).
have B0 o : 0 <= B o.
  by do 2! (apply: rsum_ge0 => ? _); apply: Rmult_le_pos;
    [apply: rsum_ge0 => ? _ | exact: Rabs_pos].
have S0 : 0 < 1 + \sum_o B o by have := rsum_ge0 (index_enum _) (fun o (_ : true) => B0 o); lra.
have [alpha0 [pos small]] := leak_small_le n (Rdiv_lt_0_compat _ _ eps0 S0).
exists alpha0 => alpha lt Xq q o.
have W_eq h c o' : merged (@wide_value reals _ _ _ d W) (@wide_output reals _ _ _ d W) h c o' = W h
  c o'
  by exact: factoredE.
have bij : bijective (@id (taps g)) by exists id.
apply: Rle_trans (bound ok b bij W_eq (Rle_lt_trans _ _ _ pos lt) Xq spread q o) _; rewrite -/(B o).
apply: Rle_trans (Rmult_le_compat_r _ _ _ (B0 o) (small _ lt)) _.
apply: (Rmult_le_reg_r (1 + \sum_o B o)) => //.
have -> : eps / (1 + \sum_o B o) * B o * (1 + \sum_o B o) = eps * B o by field; lra.
apply: Rmult_le_compat_l; first lra.
by have := rsum_term_le o B0; lra.
Qed.

Lemma zero_pad_le n (g : geometry n) (C : finType) (X : pixels g -> C -> reals) range :
  0 <= range -> (forall i c, Rabs (X i c) <= range) -> forall k c, Rabs (zero_pad X k c) <= range.
Proof.
move=> r0 small k c; rewrite /zero_pad.
have [i at_i|none] := pickP (fun i : pixels g => [forall a, k a == (before g a + i a)%N :> nat]).
  rewrite (big_pred1 i) => [|j]; first exact: small.
  apply/idP/eqP => [/forallP at_j|-> //]; apply/ffunP => a; apply: val_inj.
  by have /eqP := at_j a; have /forallP/(_ a)/eqP -> := at_i; move/addnI.
by rewrite big_pred0 //= Rabs_R0.
Qed.
Theorem bounded_images : T1_uniform.
Proof.
move=> n g ok G ci co d le_d weight b; pose W := @tap n g reals G ci co weight.
exists (@wide_value reals _ _ _ d W), (@wide_output reals _ _ _ d W) => range eps eps0.
have r0 : 0 <= Rabs range by exact: Rabs_pos.
pose B o := \big[Rplus/0]_(t : taps g) \big[Rplus/0]_(c : 'I_(G * ci))
  (2 * Rabs range * Rabs (tap weight t c o)).
have B0 o : 0 <= B o.
  by do 2! (apply: rsum_ge0 => ? _); apply: Rmult_le_pos; [lra | exact: Rabs_pos].
have S0 : 0 < 1 + \sum_o B o by have := rsum_ge0 (index_enum _) (fun o (_ : true) => B0 o); lra.
have [alpha0 [pos small]] := leak_small_le n (Rdiv_lt_0_compat _ _ eps0 S0).
exists alpha0 => alpha lt X bounded Xq q o.
have W_eq h c o' : merged (@wide_value reals _ _ _ d W) (@wide_output reals _ _ _ d W) h c o'
  = W h c o' by exact: factoredE.
have bij : bijective (@id (taps g)) by exists id.
have spread c k k' : Rabs (zero_pad X k c - zero_pad X k' c) <= 2 * Rabs range.
  have near := @zero_pad_le _ g _ X _ r0 (fun i c => Rle_trans _ _ _ (bounded i c) (Rle_abs _)).
  have := Rabs_triang (zero_pad X k c) (- zero_pad X k' c); rewrite Rabs_Ropp.
  by have := near k c; have := near k' c; rewrite /Rminus; lra.
apply: Rle_trans (bound ok b bij W_eq (Rle_lt_trans _ _ _ pos lt) Xq spread q o) _; rewrite -/(B o).
apply: Rle_trans (Rmult_le_compat_r _ _ _ (B0 o) (small _ lt)) _.
apply: (Rmult_le_reg_r (1 + \sum_o B o)) => //.
have -> : eps / (1 + \sum_o B o) * B o * (1 + \sum_o B o) = eps * B o by field; lra.
apply: Rmult_le_compat_l; first lra.
by have := rsum_term_le o B0; lra.
Qed.

(** ** Any tokens on the keys, of which a padding mode is one; and the enumerated encoding *)
Theorem any_tokens : T1_any.
Proof.
move=> n g ok G ci co H D f Wval Wout weight b bij W alpha alpha0 Xq Z range spread q o.
pose p h := converted alpha f Xq Z h q; pose w h (c : 'I_(G * ci)) : R := tap weight (f h) c o.
pose target h := key ok q (f h).
have Es : mhsa (converted alpha f Xq Z : H -> _ -> _ -> reals) Wval Wout b Z q o = soft p w Z + b o.
  by rewrite mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite W.
have Eh : conv_of_keys weight b Z q o = sharp_layer target w Z + b o.
  rewrite /conv_of_keys [X in add X _](reindex f) /=; last exact: onW_bij.
  congr (_ + _); apply: eq_bigr => h _; rewrite big_mkcond; apply: eq_bigr => c _.
  rewrite /target /w /tap (big_pred1 (key ok q (f h))) => [|k]; last by rewrite (readsE ok).
  by case: eqP => // _; exact/esym/Rmult_0_r.
rewrite Es Eh; have -> : forall s t u : R, s + u - (t + u) = s - t by move=> s t u; ring.
have p_ge0 h k : 0 <= p h k by apply: Rlt_le; exact: softmax_gt0.
have p_sum1 h : \sum_k p h k = 1 by exact: softmax_sum1 (target h).
apply: Rle_trans (leak_le target w p_ge0 p_sum1 spread) _.
rewrite [X in _ <= _ * X](reindex f) /=; last exact: onW_bij.
rewrite big_distrr /=; apply: rsum_le => h _; apply: Rmult_le_compat_r.
  apply: rsum_ge0 => c _; apply: Rmult_le_pos; last exact: Rabs_pos.
  by apply: Rle_trans (spread c (target h) (target h)); exact: Rabs_pos.
by have := converted_share_ge ok f Xq Z h q alpha0; rewrite /p /target; lra.
Qed.
(** Zero padding is one instance, with whatever bound. *)
Lemma zero_padding_of leak : tokens_within leak -> outputs_within padded_within leak.
Proof.
move=> all n g ok G ci co H D f Wval Wout weight b bij W alpha alpha0 Xq X range spread q o.
by rewrite -(zero_padding ok); exact: all.
Qed.
(** A score of two dimensions is, up to a constant, that of the quadratic head on a line of numbers,
    so the share of the target is that of one axis (L2c). *)
Theorem enumerated : T1_enumerated.
Proof.
move=> n g ok number inj G ci co H D f P Wval Wout weight b alpha bij W alpha0 att.
move=> Z range spread q o.
pose w h (c : 'I_(G * ci)) : R := tap weight (f h) c o; pose target h := key ok q (f h).
pose pos (k : keys g) : point 1 := fun _ => number k.
have gridP : grid pos by move=> k k' E; exact/inj/(E ord0).
have read h : reads q (f h) (target h) by rewrite (readsE ok).
have pE h : P h q =1 quadratic_head pos alpha (pos (target h)).
  move=> k; rewrite (att _ _ _ (read h)) /quadratic_head.
  rewrite -[RHS](softmax_shift _ (alpha * (IZR (number (target h)) * IZR (number (target h))))).
  apply: softmax_ext => j; rewrite distance1 /pos mult_IZR minus_IZR; ring.
have Es : mhsa P Wval Wout b Z q o = soft (fun h => P h q) w Z + b o.
  by rewrite mhsaE; congr (_ + _); apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite W.
have Eh : conv_of_keys weight b Z q o = sharp_layer target w Z + b o.
  rewrite /conv_of_keys [X in add X _](reindex f) /=; last exact: onW_bij.
  congr (_ + _); apply: eq_bigr => h _; rewrite big_mkcond; apply: eq_bigr => c _.
  rewrite /target /w /tap (big_pred1 (key ok q (f h))) => [|k]; last by rewrite (readsE ok).
  by case: eqP => // _; exact/esym/Rmult_0_r.
rewrite Es Eh; have -> : forall s t u : R, s + u - (t + u) = s - t by move=> s t u; ring.
have p_ge0 h k : 0 <= P h q k by rewrite pE; apply: Rlt_le; exact: softmax_gt0.
have p_sum1 h : \sum_k P h q k = 1.
  by under eq_bigr do rewrite pE; exact: softmax_sum1 (target h).
apply: Rle_trans (leak_le target w p_ge0 p_sum1 spread) _.
rewrite [X in _ <= _ * X](reindex f) /=; last exact: onW_bij.
rewrite big_distrr /=; apply: rsum_le => h _; apply: Rmult_le_compat_r.
  apply: rsum_ge0 => c _; apply: Rmult_le_pos; last exact: Rabs_pos.
  by apply: Rle_trans (spread c (target h) (target h)); exact: Rabs_pos.
have := @share 1%N alpha alpha0 _ pos gridP (target h); rewrite pE /= Rmult_1_r; lra.
Qed.

(** ** Instance

    On any image the error at alpha = ln 3 is at most 3/4 of the sum of ranges times weights; on
    volumes the factor is 7/8; at alpha = ln 201, where the bound on the theta series is 1.01, less
    than 2 % on images *)
Theorem instance : (forall (g : geometry 2), fits g ->
  forall (f : taps g -> taps g) (Wval : taps g -> 'I_(1 * 1) -> unit -> reals)
    (Wout : taps g -> unit -> 'I_(1 * 1) -> reals)
    (weight : 'I_(1 * 1) -> nat -> taps g -> reals) (b : 'I_(1 * 1) -> reals),
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall Xq (X : pixels g -> 'I_(1 * 1) -> reals) (range : 'I_(1 * 1) -> R),
  (forall c k k', Rabs (zero_pad X k c - zero_pad X k' c) <= range c) -> forall q o,
  Rabs (mhsa (converted (ln 3) f Xq (zero_pad X) : taps g -> _ -> _ -> reals) Wval Wout b
    (zero_pad X) q o
        - torch_conv weight b X q o) <= 3 / 4 * \sum_t \sum_c range c * Rabs (tap weight t c o))
  /\ 1 - / theta_bound (ln 3) ^ 3 = 7 / 8 /\ 1 - / theta_bound (ln 201) ^ 2 < 2 / 100.
Proof.
have E3 : theta_bound (ln 3) = 2 by rewrite /theta_bound exp_ln; [field | lra].
have E201 : theta_bound (ln 201) = 101 / 100 by rewrite /theta_bound exp_ln; [field | lra].
split=> [g ok f Wval Wout weight b bij W Xq X range spread q o|].
  have ln3 : 0 < ln 3 by rewrite -ln_1; apply: ln_increasing; lra.
  have := bound ok b bij W ln3 Xq spread q o.
  by rewrite E3; have -> : 1 - / 2 ^ 2 = 3 / 4 by field.
rewrite E3 E201; split; first by field.
have -> : / (101 / 100) ^ 2 = 10000 / 10201 by field.
by lra.
Qed.

(** ** Mutants

    The range over the pixels of the image alone, the zeros of the padding not counted; no leak; the
    leak of one axis fewer *)
Definition mutant := outputs_within
  (fun n g Cin X range => forall c i j, Rabs (X i c - X j c) <= range c)
  (fun alpha n => 1 - / theta_bound alpha ^ n).
Definition mutant_no_leak := outputs_within padded_within (fun _ _ => 0).
Definition mutant_fewer_axes := outputs_within padded_within
  (fun alpha n => 1 - / theta_bound alpha ^ n.-1).
(** One pixel of value 1 behind one zero, K = 1: the head at the pixel leaks to the zero. *)
Definition pixel_behind_zero : geometry 1 :=
  Geometry (fun _ => 1%N) (fun _ => 1%N) (fun _ => 1%N) (fun _ => 1%N) (fun _ => 1%N)
    (fun _ => 0%N).
(** At alpha = 1 and with one head the zero takes a part of the attention, so the outputs differ: no
    bound of 0 holds, whatever range is said of one pixel of value 1. *)
Lemma pixel_leaks (within : ranges) (leak : R -> nat -> R) (range : R) :
  within 1%N pixel_behind_zero _ (fun _ _ => 1) (fun _ : 'I_(1 * 1) => range) ->
  leak 1 1%N * range = 0 -> ~ outputs_within within leak.
Proof.
move=> spread none.
pose g := pixel_behind_zero; have ok : fits g by [].
have id_bij : bijective (@id (taps g)) by exists id.
pose weight (o : 'I_(1 * 1)) (c : nat) (t : taps g) : reals := 1.
pose Wval (h : taps g) (c : 'I_(1 * 1)) (e : unit) : reals := 1.
pose Wout (h : taps g) (e : unit) (o : 'I_(1 * 1)) : reals := 1.
pose X (i : pixels g) (c : 'I_(1 * 1)) : reals := 1.
have W (h : taps g) (c o : 'I_(1 * 1)) : merged Wval Wout h c o = tap weight h c o.
  rewrite /merged (bigD1 tt) //= big1 => [|[]] //;
    rewrite /tap (ord1 c) (ord1 o) /Wval /Wout /weight /=; ring.
have one0 : 0 < 1 by lra.
pose q : queries g := [ffun _ => Ordinal (isT : (1 < 2)%N)].
pose p := converted 1 (@id (taps g)) (fun _ _ => 0) (zero_pad X).
have padded_value (k : keys g) (c : 'I_(1 * 1)) : zero_pad X k c
  = if k ord0 == 1%N :> nat then 1 else 0.
  rewrite /zero_pad
    (@sum_line reals 1 (fun i => [forall a, k a == (before g a + i a)%N :> nat]) (fun i => X i c)).
  rewrite (eq_bigl (fun _ => k ord0 == 1%N :> nat)) => [|i];
    last by rewrite all_axesE ffunE (ord1 i).
  by rewrite big_mkcond big_ord_recl big_ord0 /=; case: ifP => _; ring.
have one_head F : @bigop reals (taps g) 0 (index_enum _)
  (fun h => BigBody h (@add reals) true (F h)) = F (line ord0).
  by rewrite (@sum_line reals 1 xpredT F) big_ord_recl big_ord0 /=; ring.
pose h0 : taps g := line (ord0 : 'I_1).
pose k0 : keys g := [ffun _ => Ordinal (isT : (0 < 2)%N)]; pose k1 : keys g :=
  [ffun _ => Ordinal (isT : (1 < 2)%N)].
have two_keys (F : keys g -> reals) : \big[Rplus/0]_k F k = F k0 + F k1.
  rewrite [LHS](@sum_line reals 2 xpredT F) !big_ord_recl big_ord0 /= Rplus_0_r.
  by congr (F _ + F _); apply/ffunP => a; rewrite !ffunE; apply: val_inj.
have share1 : p h0 q k0 + p h0 q k1 = 1 by rewrite -[LHS](two_keys (p h0 q));
  exact: softmax_sum1 k0.
have leaks : 0 < p h0 q k0 by exact: softmax_gt0.
move=> /(_ 1%N g ok 1%N 1%N 1%N _ _ (@id (taps g)) Wval Wout weight (fun _ => 0) id_bij W 1 one0
  (fun _ _ => 0) X (fun _ => range) spread q ord0).
have -> : mhsa (converted 1 id (fun _ _ => 0) (zero_pad X) : taps g -> _ -> _ -> reals) Wval Wout
  (fun _ => 0) (zero_pad X) q ord0 = p h0 q k1.
  rewrite mhsaE one_head big_ord_recl big_ord0 W /tap /weight.
  rewrite [Z in mul Z _](two_keys (fun k => p h0 q k * zero_pad X k ord0)) !padded_value !ffunE /=;
    ring.
have -> : torch_conv weight (fun _ => 0) X q ord0 = 1.
  rewrite torch_convE one_head big_ord_recl big_ord0 -(zero_pad_key ok) padded_value ffunE /tap
    /weight /= /q /line !ffunE /=; ring.
rewrite (one_head (fun t => \sum_c range * Rabs (tap weight t c ord0))) big_ord_recl big_ord0.
rewrite /tap /weight /= Rabs_R1 Rmult_1_r Rplus_0_r none => small.
have := Rle_abs (- (p h0 q k1 - 1)); rewrite Rabs_Ropp => ge.
by have := Rle_trans _ _ _ ge small; lra.
Qed.
Lemma padded_ones_within : padded_within (g := pixel_behind_zero) (fun _ _ => 1)
  (fun _ : 'I_(1 * 1) => 1).
Proof.
move=> c k k'.
have unit j : 0 <= zero_pad (g := pixel_behind_zero) (fun _ _ => 1 : reals) j c <= 1.
  rewrite /zero_pad (@sum_line reals 1 _ (fun=> 1)) big_mkcond big_ord_recl big_ord0 /=.
  by case: ifP => _; lra.
by have := unit k; have := unit k'; move=> u u'; apply: Rabs_le; lra.
Qed.
Theorem mutant_refuted : ~ mutant.
Proof.
apply: (@pixel_leaks _ _ 0); last exact: Rmult_0_r.
by move=> c i j; rewrite Rminus_eq_0 Rabs_R0; exact: Rle_refl.
Qed.
Theorem mutant_no_leak_refuted : ~ mutant_no_leak.
Proof. by apply: (pixel_leaks padded_ones_within); ring. Qed.
Theorem mutant_fewer_axes_refuted : ~ mutant_fewer_axes.
Proof. by apply: (pixel_leaks padded_ones_within); rewrite /= Rinv_1; ring. Qed.
Definition mutant_tokens := tokens_within (fun _ _ => 0).
Theorem mutant_tokens_refuted : ~ mutant_tokens.
Proof. by move=> /zero_padding_of; exact: mutant_no_leak_refuted. Qed.
