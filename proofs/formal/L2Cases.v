(** * L2a, L2b, L2c: instances and mutants of their other theorems *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require L2a.
From C2A Require Import Statements Sums L2b L2c.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Instances

    A key space of one more component, which reads nothing; three keys in a line, alpha = ln 3 or
    ln 5. *)
Definition wider (d : option (option 'I_1)) : integers :=
  if d is Some p then @direction integers 1 3%Z (fun _ => 1%Z) p else 7%Z.
Theorem instance_wide (Cin : finType) (xq xk : Cin -> integers) :
  score (fun _ _ => zero) (fun _ _ => zero) (fun p e => identity (Some p) e) (fun _ => zero)
    wider xq xk (@encoding integers 1 (fun _ => 2%Z)) = 0%Z.
Proof.
have some : injective (@Some (option 'I_1)) by move=> x y [].
have := L2a.wider_key_space some (fun _ => 2%Z : integers)
  (v := wider) (fun _ => erefl) xq xk => ->.
by rewrite /centred_square /squared_norm !big_ord_recl !big_ord0.
Qed.
Lemma hundredth : 0 < / 100. Proof. lra. Qed.
Theorem instance_uniform : exists alpha0 : R, forall alpha, alpha0 < alpha ->
  Rabs (quadratic_head ends alpha (ends None) None - 1) <= / 100.
Proof.
have [alpha0 says] := uniform_limit 1%N hundredth; exists alpha0 => alpha lt.
exact: (says alpha lt _ _ ends_grid None None).
Qed.
Lemma ln5_gt0 : 0 < ln 5. Proof. by apply: ln_gt0; lra. Qed.
Lemma ln3_gt0 : 0 < ln 3. Proof. by apply: ln_gt0; lra. Qed.
Lemma half_gt0 : 0 < / 2. Proof. lra. Qed.
Lemma ln5_is : ln (1 + 2 * INR 1 / (/ 2)) <= ln 5.
Proof. by have -> : 1 + 2 * INR 1 / (/ 2) = 5; [rewrite /=; field | exact: Rle_refl]. Qed.
Theorem instance_rate : 1 - quadratic_head ends (ln 5) (ends None) None <= / 2.
Proof. exact: (rate half_gt0 ln5_gt0 ln5_is ends_grid None). Qed.
Definition low : point 1 := fun _ => (-1)%Z. Definition high : point 1 := fun _ => 1%Z.
Definition far_right : point 1 := fun _ => 5%Z.
Lemma ends_inside k : inside low high (ends k).
Proof. by move=> a; case: k => [[]|]. Qed.
Definition right_end : option bool := Some true.
Lemma nearest_end : ends right_end =1 clamp low high far_right.
Proof. by move=> a. Qed.
Theorem instance_clamp : 1 - quadratic_head ends (ln 5) far_right right_end <= / 2 /\
  / 2 <= quadratic_head ends (ln 3) far_right right_end.
Proof.
split; first exact: (rate_of_clamp half_gt0 ln5_gt0 ln5_is ends_grid ends_inside nearest_end).
have := share_of_clamp ln3_gt0 ends_grid ends_inside nearest_end.
rewrite /theta_bound exp_ln; last lra.
by have -> : (1 + 2 / (3 - 1)) ^ 1 = 2 by field.
Qed.
Theorem instance_axes : exists theta, 1 <= theta <= 2 /\
  / theta <= softmax (fun k => - ln 3 * IZR (ends k ord0 * ends k ord0)) None.
Proof.
have [theta [sum le]] := theta_series ln3_gt0; exists theta; split.
  move: le; rewrite /theta_bound exp_ln; last lra.
  by have -> : 1 + 2 / (3 - 1) = 2 by field.
have := share_of_axes (s := fun=> _) (fun=> sum) ends_grid None.
rewrite big_ord_recl big_ord0 Rmult_0_r exp_0 Rmult_1_r /Rdiv Rmult_1_l => axes.
apply: Rle_trans axes _; right; apply: softmax_ext => k.
by rewrite big_ord_recl big_ord0 Rplus_0_r Z.sub_0_r.
Qed.
Theorem instance_centre : exists total, over_integers (centred 1 (/ 4)) total /\
  / total <= softmax (fun k => - 1 * ((IZR (ends k ord0) - / 4) * (IZR (ends k ord0) - / 4))) None.
Proof.
have [total sum] := series (/ 4) Rlt_0_1; exists total; split=> //.
have beside (a : 'I_1) :
  [/\ 0 < 1, Rabs (/ 4 - 0) <= / 2 & over_integers (centred 1 (/ 4 - 0)) total].
  by rewrite Rminus_0_r Rabs_pos_eq; [split=> //; lra | lra].
have near : ends None =1 clamp low high (fun=> 0%Z) by move=> a.
have := share_of_centre beside ends_grid ends_inside near.
rewrite big_ord_recl big_ord0 Rmult_1_r => le; apply: Rle_trans le _.
right; apply: softmax_ext => k.
by rewrite big_ord_recl big_ord0 Rplus_0_r.
Qed.

(** ** Mutants: the factor 2 forgotten; keys that share a place; a one-sided series; alpha = 0 *)
Definition mutant_wide := forall (S : numbers) n (Cin D : finType) (place : option 'I_n -> D),
  injective place -> forall (alpha : S) (offset delta : 'I_n -> S) (v : D -> S),
  (forall p, v (place p) = (if p is Some a then alpha * offset a else - alpha)%num) ->
  forall xq xk : Cin -> S,
  score (fun _ _ => zero) (fun _ _ => zero) (fun p e => identity (place p) e)
    (fun _ => zero) v xq xk (encoding delta) = centred_square alpha offset delta.
Theorem mutant_wide_refuted : ~ mutant_wide.
Proof.
move=> wide; apply: L2a.mutant_refuted => S n Cin alpha offset delta xq xk.
have same : injective (@id (option 'I_n)) by [].
exact: (wide S n Cin _ id same alpha offset delta _ (fun _ => erefl) xq xk).
Qed.
Definition shared (_ : bool) (_ : 'I_0) : Z := 0%Z.
Lemma shared_half alpha target : quadratic_head shared alpha target true = / 2.
Proof. by rewrite /quadratic_head /softmax rsum_bool !distance0 Rmult_0_r exp_0; field. Qed.
Definition mutant_uniform_places := forall n (eps : R), 0 < eps -> exists alpha0 : R, forall alpha,
  alpha0 < alpha -> forall (K : finType) (pos : K -> point n) target k,
  Rabs (quadratic_head pos alpha (pos target) k - one_hot target k) <= eps.
Theorem mutant_uniform_places_refuted : ~ mutant_uniform_places.
Proof.
move=> /(_ 0%N _ hundredth) [alpha0 /(_ (alpha0 + 1))]; have lt : alpha0 < alpha0 + 1 by lra.
move=> /(_ lt _ shared true true); rewrite shared_half /one_hot eqxx Rabs_left; lra.
Qed.
Definition mutant_clamp_rate := forall n (eps alpha : R), 0 < eps -> 0 < alpha ->
  ln (1 + 2 * INR n / eps) <= alpha -> forall (lo hi : point n) (K : finType) (pos : K -> point n),
  (forall k, inside lo hi (pos k)) -> forall (target : point n) nearest,
  pos nearest =1 clamp lo hi target -> 1 - quadratic_head pos alpha target nearest <= eps.
Definition mutant_clamp_share := forall n (alpha : R), 0 < alpha ->
  forall (lo hi : point n) (K : finType) (pos : K -> point n), (forall k, inside lo hi (pos k)) ->
  forall (target : point n) nearest, pos nearest =1 clamp lo hi target ->
  / theta_bound alpha ^ n <= quadratic_head pos alpha target nearest.
Definition nowhere : point 0 := fun _ => 0%Z.
Lemma shared_inside k : inside nowhere nowhere (shared k). Proof. by case. Qed.
Lemma shared_near : shared true =1 clamp nowhere nowhere nowhere. Proof. by case. Qed.
Theorem mutant_clamp_rate_refuted : ~ mutant_clamp_rate.
Proof.
move=> /(_ 0%N _ 1 hundredth Rlt_0_1); rewrite /= Rmult_0_r /Rdiv Rmult_0_l Rplus_0_r ln_1.
move=> /(_ Rle_0_1 _ _ _ _ shared_inside _ _ shared_near); rewrite shared_half; lra.
Qed.
Theorem mutant_clamp_share_refuted : ~ mutant_clamp_share.
Proof.
move=> /(_ 0%N 1 Rlt_0_1 _ _ _ _ shared_inside _ _ shared_near); rewrite shared_half /=; lra.
Qed.
Definition mutant_theta := forall alpha : R, 0 < alpha ->
  exists theta, over_integers (fun z => - alpha * IZR (z * z)) theta /\
    1 <= theta <= 1 + 1 / (exp alpha - 1).
Theorem mutant_theta_refuted : ~ mutant_theta.
Proof.
move=> /(_ _ ln4_gt0) [theta [sum]]; rewrite exp_ln; last lra.
move=> [ge le]; have := share_of_axes (s := fun=> _) (fun=> sum) ends_grid None.
rewrite big_ord_recl big_ord0 Rmult_0_r exp_0 Rmult_1_r /Rdiv Rmult_1_l.
have -> : softmax (fun k => \big[Rplus/0]_(a < 1) (- ln 4 * IZR ((ends k a - ends None a)
    * (ends k a - ends None a)))) None = quadratic_head ends (ln 4) (ends None) None.
  apply: softmax_ext => k; rewrite big_ord_recl big_ord0 Rplus_0_r; congr (_ * IZR _).
  by rewrite distance1.
rewrite ends_shareE => [inv|]; last lra.
have := Rmult_le_compat_l theta _ _ ltac:(lra) inv; rewrite Rinv_r; lra.
Qed.
Definition mutant_axes_places := forall n (s : 'I_n -> Z -> R) (total : 'I_n -> R),
  (forall a, over_integers (s a) (total a)) -> forall (K : finType) (pos : K -> point n) target,
  \prod_a (exp (s a 0%Z) / total a)
    <= softmax (fun k => \sum_a s a (pos k a - pos target a)%Z) target.
Definition mutant_centre_places := forall n (alpha centre total : 'I_n -> R) (m : point n),
  (forall a, [/\ 0 < alpha a, Rabs (centre a - IZR (m a)) <= / 2 &
    over_integers (centred (alpha a) (centre a - IZR (m a))) (total a)]) ->
  forall (lo hi : point n) (K : finType) (pos : K -> point n), (forall k, inside lo hi (pos k)) ->
  forall nearest, pos nearest =1 clamp lo hi m -> \prod_a / total a <= softmax
    (fun k => \sum_a - alpha a * ((IZR (pos k a) - centre a) * (IZR (pos k a) - centre a))) nearest.
Lemma no_axes (F : bool -> 'I_0 -> R) : softmax (fun k => \sum_a F k a) true = / 2.
Proof. by rewrite /softmax rsum_bool !big_ord0 exp_0; field. Qed.
Theorem mutant_axes_places_refuted : ~ mutant_axes_places.
Proof.
have none (a : 'I_0) : over_integers (fun=> 0) 0 by case: a.
move=> /(_ 0%N _ _ none _ shared true); rewrite no_axes big_ord0; lra.
Qed.
Theorem mutant_centre_places_refuted : ~ mutant_centre_places.
Proof.
have none (a : 'I_0) : [/\ 0 < 1, Rabs (0 - IZR (nowhere a)) <= / 2 &
    over_integers (centred 1 (0 - IZR (nowhere a))) 0] by case: a.
move=> /(_ 0%N (fun=> 1) (fun=> 0) (fun=> 0) nowhere none nowhere nowhere _ _ shared_inside true
  shared_near); rewrite no_axes big_ord0; lra.
Qed.
Definition mutant_flat_series := forall alpha f : R, 0 <= alpha -> exists total,
  over_integers (centred alpha f) total.
Theorem mutant_flat_series_refuted : ~ mutant_flat_series.
Proof.
move=> /(_ 0 0 (Rle_refl 0)) [total [right [left [sum _]]]]; have half := half_gt0.
have [N near] := sum _ half; have := near N (le_n N); have := near N.+1 (le_S _ _ (le_n N)).
have one m : exp (centred 0 0 (Z.of_nat m)) = 1 by rewrite /centred Ropp_0 Rmult_0_l exp_0.
by rewrite tech5 one /R_dist; set x := sum_f_R0 _ _; rewrite /Rabs; do 2 case: Rcase_abs; lra.
Qed.
