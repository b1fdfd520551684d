(** * Mutants of the claims about one head: L2a to L2e, LIT, GQ, EQV, and the softmax of AND

    Near misses of the statements of Statements.v: a sign, an index, a quantifier or a condition
    differs, and a small instance refutes them. The file of each claim has one more. No theorem is
    used. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Small instances: two keys, three keys on a line, and weights that are powers of 2 *)
Lemma two (F : bool -> R) : \sum_k F k = F true + F false. Proof. exact: big_bool. Qed.
Lemma sole (F : unit -> R) : \sum_k F k = F tt. Proof. by rewrite (big_pred1 tt) // => -[]. Qed.
Lemma pairs (F : unit * bool -> R) : \sum_k F k = F (tt, true) + F (tt, false).
Proof. by rewrite (reindex (fun b : bool => (tt, b))) ?two //; exists snd => [b|[[] b]] _. Qed.
Lemma halves : exp (ln 2) = 2 /\ exp (- ln 2) = / 2.
Proof. have E : exp (ln 2) = 2 by apply: exp_ln; lra. by rewrite exp_Ropp E. Qed.
Lemma three (F : option bool -> R) : \sum_k F k = F None + (F (Some true) + F (Some false)).
Proof. by rewrite (@sum_option reals) big_bool. Qed.
Definition ends (k : option bool) : point 1 := fun _ => if k is Some b then if b then 1%Z else
  (-1)%Z else 0%Z.
Lemma ends_grid : grid ends. Proof. by move=> [[]|] [[]|] // /(_ ord0). Qed.
Lemma distance1 (x y : point 1) : distance x y = ((x ord0 - y ord0) * (x ord0 - y ord0))%Z.
Proof. by rewrite /distance big_ord_recl big_ord0 Z.add_0_r. Qed.
Lemma distance0 (x y : point 0) : distance x y = 0%Z. Proof. by rewrite /distance big_ord0. Qed.
Lemma ends_share (x : R) : 0 < x -> quadratic_head ends (ln x) (ends None) None = / (1 + 2 / x).
Proof.
move=> x0; rewrite /quadratic_head /softmax three !distance1 /= Rmult_0_r exp_0 !Rmult_1_r exp_Ropp
  exp_ln //; field; lra.
Qed.

(** ** L2a *)
Ltac on_integers := rewrite sum_option /= /squared_norm !big_ord_recl !big_ord0.
Definition L2a_sign := forall (S : numbers) n (alpha : S) (offset delta : 'I_n -> S),
  (\sum_p direction alpha offset p * encoding delta p
  = alpha * (squared_norm (fun a => delta a - offset a) - squared_norm offset))%num.
Theorem L2a_sign_refuted : ~ L2a_sign.
Proof. by move=> /(_ integers 1%N 1%Z (fun _ => 1%Z) (fun _ => 1%Z)); on_integers. Qed.
Definition L2a_offset := forall (S : numbers) n (alpha : S) (offset delta : 'I_n -> S),
  (\sum_p direction alpha offset p * encoding delta p
  = - alpha * (squared_norm (fun a => delta a + offset a) - squared_norm offset))%num.
Theorem L2a_offset_refuted : ~ L2a_offset.
Proof. by move=> /(_ integers 1%N 1%Z (fun _ => 1%Z) (fun _ => 1%Z)); on_integers. Qed.
Definition L2a_constant := forall (S : numbers) n (alpha : S) (offset delta : 'I_n -> S),
  (\sum_p direction alpha offset p * encoding delta p = - alpha * squared_norm
    (fun a => delta a - offset a))%num.
Theorem L2a_constant_refuted : ~ L2a_constant.
Proof. by move=> /(_ integers 1%N 1%Z (fun _ => 1%Z) (fun _ => 1%Z)); on_integers. Qed.
Definition L2a_square := forall (S : numbers) n (alpha : S) (offset delta : 'I_n -> S),
  (\sum_p direction alpha offset p * encoding delta p
  = - (alpha * alpha) * (squared_norm (fun a => delta a - offset a) - squared_norm offset))%num.
Theorem L2a_square_refuted : ~ L2a_square.
Proof. by move=> /(_ integers 1%N 2%Z (fun _ => 1%Z) (fun _ => 1%Z)); on_integers. Qed.

(** ** L2b *)
Definition slope (x : R) (k : bool) : R := if k then 0 else x.
Lemma slope_share x : softmax (slope x) true = / (1 + exp x).
Proof. by rewrite /softmax two /= exp_0; field; have := exp_pos x; lra. Qed.
Lemma slope_max x : x < 0 -> forall k, k != true -> slope x k < slope x true. Proof.
by move=> x0 []. Qed.
Definition L2b_order := forall (K : finType) (s : K -> R) (target : K),
  (forall k, k != target -> s k < s target) ->
  exists alpha0 : R, forall eps, 0 < eps -> forall alpha, alpha0 < alpha ->
  forall k, Rabs (softmax (fun j => alpha * s j) k - one_hot target k) <= eps.
Theorem L2b_order_refuted : ~ L2b_order.
Proof.
have neg : -1 < 0 by lra.
move=> /(_ _ _ _ (slope_max neg)) [a H]; set s := (fun j : bool => (a + 1) * slope (-1) j).
have p := softmax_gt0 s false; have lt : a < a + 1 by lra.
have := H _ (Rdiv_lt_0_compat _ 2 p Rlt_0_2) _ lt false;
  rewrite -/s /one_hot /= Rminus_0_r Rabs_pos_eq; lra.
Qed.
Definition L2b_uniform := forall eps : R, 0 < eps -> exists alpha0 : R, forall alpha,
  alpha0 < alpha ->
  forall (K : finType) (s : K -> R) (target : K), (forall k, k != target -> s k < s target) ->
  forall k, Rabs (softmax (fun j => alpha * s j) k - one_hot target k) <= eps.
Theorem L2b_uniform_refuted : ~ L2b_uniform.
Proof.
have e0 : 0 < / 4 by lra.
move=> /(_ _ e0) [a0 H]; pose a := Rmax a0 0 + 1.
have [a1 a2] := (Rmax_l a0 0, Rmax_r a0 0); have ap : 0 < a by rewrite /a; lra.
have ln2 : 0 < ln 2 by rewrite -ln_1; apply: ln_increasing; lra.
have ia := Rinv_0_lt_compat _ ap; have neg : - ln 2 / a < 0 by rewrite /Rdiv; nra.
have := H a ltac:(rewrite /a; lra) _ _ _ (slope_max neg) true.
rewrite (softmax_ext (t := slope (- ln 2))) => [|[]]; rewrite /slope; [|lra | field; lra].
rewrite -/(slope _) slope_share (proj2 halves) /one_hot eqxx Rabs_left; lra.
Qed.
Definition L2b_rate_of_one_side := forall n (eps alpha : R), 0 < eps -> 0 < alpha ->
  ln (1 + INR n / eps) <= alpha ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target,
  1 - quadratic_head pos alpha (pos target) target <= eps.
Theorem L2b_rate_of_one_side_refuted : ~ L2b_rate_of_one_side.
Proof.
have e0 : 0 < / 4 by lra.
have l0 : 0 < ln 5 by rewrite -ln_1; apply: ln_increasing; lra.
move=> /(_ 1%N _ (ln 5) e0 l0); have -> : 1 + INR 1 / / 4 = 5 by rewrite /=; field.
by move=> /(_ (Rle_refl _) _ _ ends_grid None); rewrite ends_share; lra.
Qed.

(** ** L2c *)
Lemma ln4 : 0 < ln 4. Proof. by rewrite -ln_1; apply: ln_increasing; lra. Qed.
Definition L2c_one_side := forall n (alpha : R), 0 < alpha ->
  forall (K : finType) (pos : K -> point n), grid pos ->
  forall target, / (1 + 1 / (exp alpha - 1)) ^ n <= quadratic_head pos alpha (pos target) target.
Theorem L2c_one_side_refuted : ~ L2c_one_side.
Proof. by move=> /(_ 1%N _ ln4 _ _ ends_grid None); rewrite ends_share ?exp_ln /=; lra. Qed.
Definition L2c_no_grid := forall n (alpha : R), 0 < alpha ->
  forall (K : finType) (pos : K -> point n) target,
  / theta_bound alpha ^ n <= quadratic_head pos alpha (pos target) target.
Theorem L2c_no_grid_refuted : ~ L2c_no_grid.
Proof.
move=> /(_ 0%N _ Rlt_0_1 _ (fun (_ : bool) (_ : 'I_0) => 0%Z) true).
by rewrite /quadratic_head /softmax two !distance0 Rmult_0_r exp_0 /=; lra.
Qed.
Definition L2c_strict := forall n (alpha : R), 0 < alpha ->
  forall (K : finType) (pos : K -> point n), grid pos ->
  forall target, / theta_bound alpha ^ n < quadratic_head pos alpha (pos target) target.
Theorem L2c_strict_refuted : ~ L2c_strict.
Proof.
have one : grid (fun (_ : unit) (_ : 'I_0) => 0%Z) by case=> -[].
move=> /(_ 0%N _ Rlt_0_1 _ _ one tt).
by rewrite /quadratic_head /softmax sole distance0 Rmult_0_r exp_0 /=; lra.
Qed.
Definition L2c_any_key := forall n (alpha : R), 0 < alpha ->
  forall (K : finType) (pos : K -> point n), grid pos ->
  forall target key, / theta_bound alpha ^ n <= quadratic_head pos alpha (pos target) key.
Theorem L2c_any_key_refuted : ~ L2c_any_key.
Proof.
move=> /(_ 1%N _ ln4 _ _ ends_grid None (Some true)); rewrite /theta_bound exp_ln; last lra.
rewrite /quadratic_head /softmax three !distance1 /= Rmult_0_r exp_0 !Rmult_1_r exp_Ropp exp_ln;
  lra.
Qed.

(** ** L2d: mixing by a softmax over two axes *)
Definition L2d_product := forall (K1 K2 : finType) (s1 : K1 -> R) (s2 : K2 -> R) (X : K1 * K2 -> R),
  \sum_k softmax (fun k => s1 k.1 * s2 k.2) k * X k = \sum_k2 softmax s2 k2 *
    (\sum_k1 softmax s1 k1 * X (k1, k2)).
Theorem L2d_product_refuted : ~ L2d_product.
Proof.
move=> /(_ _ _ (fun _ : unit => 0) (slope (ln 2)) (fun k => if k.2 then 1 else 0)).
rewrite pairs two !sole slope_share (proj1 halves) /softmax pairs sole /= !Rmult_0_l exp_0; lra.
Qed.
Definition L2d_difference := forall (K1 K2 : finType) (s1 : K1 -> R) (s2 : K2 -> R)
  (X : K1 * K2 -> R),
  \sum_k softmax (fun k => s1 k.1 - s2 k.2) k * X k = \sum_k2 softmax s2 k2 *
    (\sum_k1 softmax s1 k1 * X (k1, k2)).
Theorem L2d_difference_refuted : ~ L2d_difference.
Proof.
move=> /(_ _ _ (fun _ : unit => 0) (slope (ln 2)) (fun k => if k.2 then 1 else 0)).
rewrite pairs two !sole slope_share (proj1 halves) /softmax pairs sole /= Rminus_0_r Rminus_0_l
  exp_0 (proj2 halves); lra.
Qed.
Definition L2d_unnormalised := forall (K1 K2 : finType) (s1 : K1 -> R) (s2 : K2 -> R)
  (X : K1 * K2 -> R),
  \sum_k softmax (fun k => s1 k.1 + s2 k.2) k * X k = \sum_k2 softmax s2 k2 *
    (\sum_k1 exp (s1 k1) * X (k1, k2)).
Theorem L2d_unnormalised_refuted : ~ L2d_unnormalised.
Proof.
move=> /(_ _ _ (fun _ : unit => ln 2) (slope 0) (fun _ => 1)).
rewrite pairs two !sole /softmax pairs two /= (proj1 halves) Rplus_0_r (proj1 halves) exp_0; lra.
Qed.
Definition L2d_one_axis := forall (K1 K2 : finType) (s1 : K1 -> R) (s2 : K2 -> R)
  (X : K1 * K2 -> R),
  \sum_k softmax (fun k => s1 k.1 + s2 k.2) k * X k = \sum_k2 \sum_k1 softmax s1 k1 * X (k1, k2).
Theorem L2d_one_axis_refuted : ~ L2d_one_axis.
Proof.
move=> /(_ _ _ (fun _ : unit => 0) (slope 0) (fun _ => 1)).
rewrite pairs two !sole /softmax pairs sole /= Rplus_0_r exp_0; lra.
Qed.

(** ** LIT *)
Definition LIT_half := forall (K : finType) (s : K -> R) (target other : K), other != target ->
  softmax s target < / 2.
Theorem LIT_half_refuted : ~ LIT_half.
Proof. by move=> /(_ _ (slope (- ln 2)) true false isT); rewrite slope_share (proj2 halves); lra.
Qed.
Definition LIT_uniform := exists c, c < 1 /\
  forall (K : finType) (s : K -> R) (target other : K), other != target -> softmax s target <= c.
Theorem LIT_uniform_refuted : ~ LIT_uniform.
Proof.
move=> [c [c1 /(_ _ (slope (ln ((1 - c) / 2))) true false isT)]]; rewrite slope_share exp_ln;
  last lra.
move=> le; have := Rmult_le_compat_l (1 + (1 - c) / 2) _ _ ltac:(lra) le; rewrite Rinv_r;
  [nra | lra].
Qed.
Definition LIT_one_pixel := forall (score : (unit -> R) -> unit -> unit -> R) (w : R),
  ~ forall X q, (\sum_k softmax (score X q) k * X k) * w = X q.
Theorem LIT_one_pixel_refuted : ~ LIT_one_pixel.
Proof. by move=> /(_ (fun _ _ _ => 0) 1); apply=> X []; rewrite sole /softmax sole exp_0; lra. Qed.
Definition LIT_one_image := forall (score : (bool -> R) -> bool -> bool -> R) (w : R) X,
  ~ forall q, (\sum_k softmax (score X q) k * X k) * w = X q.
Theorem LIT_one_image_refuted : ~ LIT_one_image.
Proof. by move=> /(_ (fun _ _ _ => 0) 1 (fun _ => 0)); apply=> q; rewrite two; ring. Qed.

(** ** L2e and GQ

    One axis, alpha = 1, keys 0 and 1. Equal shares of two keys have equal differences of scores *)
Lemma gap (s s' : bool -> R) : softmax s true = softmax s' true ->
  s false - s true = s' false - s' true.
Proof.
have share r : softmax r true = / (1 + exp (r false - r true)).
  by rewrite /softmax two /Rminus exp_plus exp_Ropp; have := exp_pos (r true);
    have := exp_pos (r false); move=> *; field; lra.
rewrite !share => E; apply: exp_inv.
have := exp_pos (s false - s true); have := exp_pos (s' false - s' true) => a b.
have : 1 + exp (s false - s true) = 1 + exp (s' false - s' true)
  by rewrite -[LHS]Rinv_inv E Rinv_inv.
lra.
Qed.
Definition at01 (k : bool) (_ : 'I_1) : R := if k then 1 else 0.
Ltac on_axis := rewrite /generalised_score /bilinear ?(@sum_option reals) /query_feature
  /key_feature /at01 /dot !big_ord_recl !big_ord0 /=.
Definition L2e_sign := forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (q offset : 'I_n -> R),
  softmax (fun k => \sum_p query_feature alpha q offset p * key_feature (pos k) p)
  =1 softmax (fun k => alpha * dot (fun a => pos k a - q a - offset a)
    (fun a => pos k a - q a - offset a)).
Theorem L2e_sign_refuted : ~ L2e_sign.
Proof. move=> /(_ 1%N _ at01 1 (fun _ => 0) (fun _ => 0) true) /gap; rewrite !(@sum_option reals);
  on_axis; lra. Qed.
Definition L2e_offset := forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (q offset : 'I_n -> R),
  softmax (fun k => \sum_p query_feature alpha q offset p * key_feature (pos k) p)
  =1 softmax (fun k => - alpha * dot (fun a => pos k a - q a + offset a)
    (fun a => pos k a - q a + offset a)).
Theorem L2e_offset_refuted : ~ L2e_offset.
Proof. move=> /(_ 1%N _ at01 1 (fun _ => 0) (fun _ => 1) true) /gap; rewrite !(@sum_option reals);
  on_axis; lra. Qed.
Definition L2e_keys_centred := forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (q offset m : 'I_n -> R),
  softmax (fun k => \sum_p query_feature alpha q offset p * key_feature (fun a => pos k a - m a) p)
  =1 softmax (fun k => \sum_p query_feature alpha q offset p * key_feature (pos k) p).
Theorem L2e_keys_centred_refuted : ~ L2e_keys_centred.
Proof. move=> /(_ 1%N _ at01 1 (fun _ => 0) (fun _ => 0) (fun _ => 1) true) /gap;
  rewrite !(@sum_option reals); on_axis; lra. Qed.
Definition L2e_scores := forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (q offset : 'I_n -> R) k,
  \sum_p query_feature alpha q offset p * key_feature (pos k) p
  = - alpha * dot (fun a => pos k a - q a - offset a) (fun a => pos k a - q a - offset a).
Theorem L2e_scores_refuted : ~ L2e_scores.
Proof. move=> /(_ 1%N _ at01 1 (fun _ => 1) (fun _ => 0) false); on_axis; lra. Qed.
Definition GQ_sign := forall n (M : 'I_n -> 'I_n -> R), symmetric M -> forall offset delta,
  generalised_score M offset delta = / 2 * bilinear M (fun a => delta a - offset a)
    (fun a => delta a - offset a).
Lemma ones_symmetric n : symmetric (fun _ _ : 'I_n => 1). Proof. by []. Qed.
Theorem GQ_sign_refuted : ~ GQ_sign.
Proof. move=> /(_ 1%N _ (@ones_symmetric 1) (fun _ => 0) (fun _ => 1)); on_axis; lra. Qed.
Definition GQ_half := forall n (M : 'I_n -> 'I_n -> R), symmetric M -> forall offset delta,
  generalised_score M offset delta
  = \sum_i (\sum_j M i j * offset j) * delta i
    + \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (i <= j)%N) (- M i j * (delta i * delta j))
    - / 2 * bilinear M offset offset.
Theorem GQ_half_refuted : ~ GQ_half.
Proof. move=> /(_ 1%N _ (@ones_symmetric 1) (fun _ => 0) (fun _ => 1));
  under [X in _ + X - _]eq_bigr do rewrite big_mkcond; on_axis; lra. Qed.
Definition GQ_constant := forall n (M : 'I_n -> 'I_n -> R), symmetric M -> forall offset delta,
  generalised_score M offset delta
  = \sum_i (\sum_j M i j * offset j) * delta i
    + \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (i <= j)%N)
      ((if i == j then - (/ 2 * M i i) else - M i j) * (delta i * delta j)).
Theorem GQ_constant_refuted : ~ GQ_constant.
Proof. move=> /(_ 1%N _ (@ones_symmetric 1) (fun _ => 1) (fun _ => 0));
  under [X in _ + X]eq_bigr do rewrite big_mkcond; on_axis; lra. Qed.
Definition GQ_flat := forall n (M : 'I_n -> 'I_n -> R), symmetric M ->
  forall (K : finType) (pos : K -> point n), grid pos ->
  forall target k, k != target -> generalised_score M (fun a => IZR (pos target a))
    (fun a => IZR (pos k a))
    < generalised_score M (fun a => IZR (pos target a)) (fun a => IZR (pos target a)).
Theorem GQ_flat_refuted : ~ GQ_flat.
Proof.
have inj : grid (fun (k : bool) (_ : 'I_1) => if k then 1%Z else 0%Z) by case; case=> // /(_ ord0).
move=> /(_ 1%N (fun _ _ => 0) (fun _ _ => erefl) _ _ inj true false isT); on_axis; lra.
Qed.

(** ** EQV *)
Definition reads_key (_ : unit) (_ y : unit -> R) : R := ln 2 * y tt.
Definition reads_both (_ : unit) (x y : unit -> R) : R := ln 2 * (x tt * y tt).
Definition bit (k : bool) (_ : unit) : R := if k then 1 else 0.
Ltac on_bits := rewrite /token_attention /reads_key /reads_both /softmax !two /bit /=
  ?Rmult_0_l ?Rmult_0_r ?Rmult_1_l ?Rmult_1_r ?Rmult_0_r ?exp_0 ?(proj1 halves); lra.
Definition EQV_fixed := forall (H K Cin : finType) (s : H -> (Cin -> R) -> (Cin -> R) -> R)
  (shuffle : K -> K), bijective shuffle ->
  forall (X : K -> Cin -> R) h q k, token_attention s (fun k => X (shuffle k)) h q k
    = token_attention s X h q k.
Definition EQV_queries := forall (H K Cin : finType) (s : H -> (Cin -> R) -> (Cin -> R) -> R)
  (shuffle : K -> K), bijective shuffle ->
  forall (X : K -> Cin -> R) h q k, token_attention s (fun k => X (shuffle k)) h q k
    = token_attention s X h (shuffle q) k.
Definition EQV_keys := forall (H K Cin : finType) (s : H -> (Cin -> R) -> (Cin -> R) -> R)
  (shuffle : K -> K), bijective shuffle ->
  forall (X : K -> Cin -> R) h q k, token_attention s (fun k => X (shuffle k)) h q k
    = token_attention s X h q (shuffle k).
Definition EQV_any_map := forall (H K Cin : finType) (s : H -> (Cin -> R) -> (Cin -> R) -> R)
  (shuffle : K -> K),
  forall (X : K -> Cin -> R) h q k, token_attention s (fun k => X (shuffle k)) h q k
    = token_attention s X h (shuffle q) (shuffle k).
Lemma negb_bijective : bijective negb. Proof. by exists negb; case. Qed.
Theorem EQV_fixed_refuted : ~ EQV_fixed.
Proof. by move=> /(_ _ _ _ reads_key _ negb_bijective bit tt true true); on_bits. Qed.
Theorem EQV_queries_refuted : ~ EQV_queries.
Proof. by move=> /(_ _ _ _ reads_key _ negb_bijective bit tt true true); on_bits. Qed.
Theorem EQV_keys_refuted : ~ EQV_keys.
Proof. by move=> /(_ _ _ _ reads_both _ negb_bijective bit tt true true); on_bits. Qed.
Theorem EQV_any_map_refuted : ~ EQV_any_map.
Proof. by move=> /(_ _ _ _ reads_key (fun _ => true) bit tt true true); on_bits. Qed.

(** ** AND: the softmax *)
Definition AND11_factor := forall (K : finType) (s : K -> R) (xi : R),
  softmax (fun k => s k * xi) =1 softmax s.
Theorem AND11_factor_refuted : ~ AND11_factor.
Proof. by move=> /(_ _ (slope (ln 2)) 0 true);
  rewrite slope_share /softmax two /= !Rmult_0_r exp_0 (proj1 halves); lra. Qed.
Definition AND11_each_key := forall (K : finType) (s xi : K -> R),
  softmax (fun k => s k + xi k) =1 softmax s.
Theorem AND11_each_key_refuted : ~ AND11_each_key.
Proof.
by move=> /(_ _ (slope 0) (slope (ln 2)) true);
  rewrite slope_share /softmax two /= !Rplus_0_l exp_0 (proj1 halves); lra.
Qed.
Definition AND11_rectified := forall (K : finType) (s : K -> R) (xi : R),
  masked_softmax (fun k => rectified (Some (s k + xi))) =1 masked_softmax
    (fun k => rectified (Some (s k))).
Theorem AND11_rectified_refuted : ~ AND11_rectified.
Proof.
have l := proj1 halves; have ln2 : 0 < ln 2 by rewrite -ln_1; apply: ln_increasing; lra.
move=> /(_ _ (slope (ln 2)) (- ln 2) true); rewrite /masked_softmax !two /= Rplus_0_l Rplus_opp_r.
rewrite (Rmax_left 0 0) ?(Rmax_left 0 (- ln 2)) ?(Rmax_right 0 (ln 2)); try lra.
rewrite exp_0 l; lra.
Qed.
Definition AND_masked_zero := forall (K : finType) (s : K -> option R) k, s k = None ->
  masked_softmax (fun k => rectified (s k)) k = 0.
Theorem AND_masked_zero_refuted : ~ AND_masked_zero.
Proof. by move=> /(_ _ (fun _ : unit => None) tt erefl); rewrite /masked_softmax sole /= exp_0; lra.
Qed.
