(** * GRAD: Gradients of hard and of soft heads

    Claim: Hard heads whose positions are frozen have the convolution's derivative along every curve
    of images, weights and biases: training the weights of the layer is training the convolution.
    The mean that a quadratic head reads of any numbers y of the keys moves with its centre by 2
    alpha times the covariance of the coordinate and y under its attention. That covariance is at
    most what leaks from any one key times the spreads of the coordinate and of y: sharp heads
    hardly move their centres, and one-hot ones not at all.
    Source: this project; Cordonnier et al. 2020, Sec. 3, for the layers.
    Does not show: What an optimiser makes of it, gradients in floats, and those of alpha. *)
From Coq Require Import Reals Lra FunctionalExtensionality.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** By Lemma 1 they are one function of the curve. *)
Theorem gradients : GRAD.
Proof.
move=> n g ok G ci co H D f P Wval Wout weight b X bij hardP same q o t slope.
suff -> : (fun t => mhsa P (Wval t) (Wout t) (b t) (zero_pad (X t)) q o)
  = (fun t => torch_conv (weight t) (b t) (X t) q o) by [].
by apply: functional_extensionality => t'; exact: (L1.lemma1 ok _ bij hardP (same t')).
Qed.

Lemma derivable_sum (K : Type) (r : seq K) (F : K -> R -> R) (slope : K -> R) x :
  (forall k, derivable_pt_lim (F k) x (slope k)) ->
  derivable_pt_lim (fun t => \big[Rplus/0]_(k <- r) F k t) x (\big[Rplus/0]_(k <- r) slope k).
Proof.
move=> each; elim: r => [|k r IH].
  rewrite big_nil; under [X in derivable_pt_lim X]functional_extensionality do rewrite big_nil.
  exact: derivable_pt_lim_const.
rewrite big_cons; have -> : (fun t => \big[Rplus/0]_(j <- k :: r) F j t)
  = (F k + (fun t => \big[Rplus/0]_(j <- r) F j t))%F.
  by apply: functional_extensionality => t; rewrite big_cons.
exact: derivable_pt_lim_plus.
Qed.
Lemma derivable_exp (u v : R) : derivable_pt_lim (fun t => exp (u + t * v)) 0 (v * exp u).
Proof.
have lin : derivable_pt_lim (fun t => u + t * v) 0 v.
  have -> : (fun t => u + t * v) = (fct_cte u + mult_real_fct v id)%F.
    by apply: functional_extensionality => t; rewrite /plus_fct /fct_cte /mult_real_fct /id; ring.
  have {2}-> : v = 0 + v * 1 by ring.
  apply: derivable_pt_lim_plus; first exact: derivable_pt_lim_const.
  by apply: derivable_pt_lim_scal; exact: derivable_pt_lim_id.
have := derivable_pt_lim_comp _ exp 0 _ _ lin (derivable_pt_lim_exp (u + 0 * v)).
by rewrite Rmult_0_l Rplus_0_r Rmult_comm.
Qed.

Section Centre.
Variables (n : nat) (K : finType) (pos : K -> 'I_n -> R) (alpha : R) (centre : 'I_n -> R).
Variables (y : K -> R) (a : 'I_n) (k0 : K).
Let u k : R := - alpha * \sum_b ((pos k b - centre b) * (pos k b - centre b)).
Let v k : R := 2 * alpha * pos k a - 2 * alpha * centre a.
Lemma score_movedE (k : K) (t : R) : (- alpha * (\sum_b ((pos k b
      - (centre b + if b == a then t else 0)) * (pos k b - (centre b + if b == a then t else 0))))
  = u k + t * v k + - alpha * (t * t))%R.
Proof.
rewrite /u (bigD1 a) //= [X in _ = - alpha * X + _ + _](bigD1 a) //= eqxx.
rewrite (eq_bigr (fun b => (pos k b - centre b) * (pos k b - centre b))) => [|b /negbTE ->];
  last by rewrite Rplus_0_r.
by rewrite /v; ring.
Qed.
(** The square of the step cancels, so the mean is a quotient of sums of exponentials. *)
Lemma moved_meanE (t : R) : moved_mean pos alpha centre y a t
  = (\sum_k exp (u k + t * v k) * y k) / \sum_k exp (u k + t * v k).
Proof.
rewrite /moved_mean /Rdiv big_distrl /=; apply: eq_bigr => k _.
rewrite (softmax_ext (t := fun j => (u j + t * v j) + - alpha * (t * t))) => [|j];
  last exact: score_movedE.
by rewrite softmax_shift /softmax /Rdiv; ring.
Qed.
(** Of the quotient's derivative [(N' Z - Z' N) / Z^2] the centre cancels. *)
Lemma centre_slope : derivable_pt_lim (moved_mean pos alpha centre y a) 0
  (2 * alpha * covariance (softmax u) (fun k => pos k a) y).
Proof.
pose Z := \sum_k exp (u k); pose Sx := \sum_k exp (u k) * pos k a.
pose Sy := \sum_k exp (u k) * y k; pose Sxy := \sum_k exp (u k) * (pos k a * y k).
have Z0 : 0 < Z by exact: (softmax_den_gt0 u k0).
have at0 (w : K -> R) : \sum_k exp (u k + 0 * v k) * w k = \sum_k exp (u k) * w k.
  by apply: eq_bigr => k _; rewrite Rmult_0_l Rplus_0_r.
have dN : derivable_pt_lim (fun t => \sum_k exp (u k + t * v k) * y k) 0
  (2 * alpha * Sxy - 2 * alpha * centre a * Sy).
  have -> : 2 * alpha * Sxy - 2 * alpha * centre a * Sy = \sum_k (v k * exp (u k)) * y k.
    have -> : 2 * alpha * Sxy - 2 * alpha * centre a * Sy
      = 2 * alpha * Sxy + - (2 * alpha * centre a) * Sy by ring.
    rewrite /Sxy /Sy !big_distrr -big_split /=; apply: eq_bigr => k _; rewrite /v; ring.
  apply: derivable_sum => k; have -> : (fun t => exp (u k + t * v k) * y k)
    = ((fun t => exp (u k + t * v k)) * fct_cte (y k))%F by [].
  have -> : v k * exp (u k) * y k = v k * exp (u k) * fct_cte (y k) 0
    + exp (u k + 0 * v k) * 0 by rewrite /fct_cte; ring.
  by apply: derivable_pt_lim_mult; [exact: derivable_exp | exact: derivable_pt_lim_const].
have dZ : derivable_pt_lim (fun t => \sum_k exp (u k + t * v k)) 0
  (2 * alpha * Sx - 2 * alpha * centre a * Z).
  have -> : 2 * alpha * Sx - 2 * alpha * centre a * Z = \sum_k v k * exp (u k).
    have -> : 2 * alpha * Sx - 2 * alpha * centre a * Z
      = 2 * alpha * Sx + - (2 * alpha * centre a) * Z by ring.
    rewrite /Sx /Z !big_distrr -big_split /=; apply: eq_bigr => k _; rewrite /v; ring.
  by apply: derivable_sum => k; exact: derivable_exp.
have Z00 : \sum_k exp (u k + 0 * v k) = Z.
  by apply: eq_bigr => k _; rewrite Rmult_0_l Rplus_0_r.
have := derivable_pt_lim_div _ _ 0 _ _ dN dZ; rewrite Z00 at0 => /(_ (Rgt_not_eq _ _ Z0)) slope.
have -> : moved_mean pos alpha centre y a = ((fun t => \sum_k exp (u k + t * v k) * y k)
    / (fun t => \sum_k exp (u k + t * v k)))%F.
  by apply: functional_extensionality => t; rewrite moved_meanE.
have share (w : K -> R) : \sum_k softmax u k * w k = (\sum_k exp (u k) * w k) / Z.
  rewrite /Rdiv big_distrl /=; apply: eq_bigr => k _; rewrite /softmax -/Z /Rdiv; ring.
have <- : (((2 * alpha * Sxy - 2 * alpha * centre a * Sy) * Z
    - (2 * alpha * Sx - 2 * alpha * centre a * Z) * Sy) / Rsqr Z)
  = 2 * alpha * covariance (softmax u) (fun k => pos k a) y.
  by rewrite /covariance !share -/Sx -/Sy -/Sxy /Rsqr; field; exact: Rgt_not_eq.
exact: slope.
Qed.
End Centre.
Theorem centres : GRAD_centre.
Proof. by move=> n K pos alpha centre y a k0; exact: centre_slope. Qed.

(** The mean is within the range of each number, so that the target's own place adds nothing, and
    every other key at most its weight. *)
Lemma covariance_le (K : finType) (p x y : K -> R) target leak reach range : (forall k, 0 <= p k) ->
  \sum_k p k = 1 -> 1 - p target <= leak -> (forall i j, Rabs (x i - x j) <= reach) ->
  (forall i j, Rabs (y i - y j) <= range) -> Rabs (covariance p x y) <= leak * reach * range.
Proof.
move=> p0 p1 light far wide; pose mean := \sum_k p k * y k.
have apart k : Rabs (y k - mean) <= range.
  have -> : y k - mean = \sum_j p j * (y k - y j).
    have {1}-> : y k = (\sum_j p j) * y k by rewrite p1 Rmult_1_l.
    by rewrite big_distrl rsum_minus; apply: eq_bigr => j _ /=; ring.
  apply: Rle_trans (rsum_abs_le _ _ _) _.
  rewrite -[range]Rmult_1_l -p1 big_distrl /=; apply: rsum_le => j _.
  by rewrite Rabs_mult (Rabs_pos_eq _ (p0 j)); apply: Rmult_le_compat_l.
have E : covariance p x y = \sum_k p k * ((x k - x target) * (y k - mean)).
  have -> : \sum_k p k * ((x k - x target) * (y k - mean))
    = \sum_k (p k * (x k * y k) + (- mean * (p k * x k) + (- x target * (p k * y k)
      + x target * mean * p k))) by apply: eq_bigr => k _; ring.
  by rewrite !big_split -!big_distrr /= p1 /covariance -/mean; ring.
have r0 : 0 <= reach by apply: Rle_trans (far target target); exact: Rabs_pos.
have s0 : 0 <= range by apply: Rle_trans (wide target target); exact: Rabs_pos.
rewrite E; apply: Rle_trans (rsum_abs_le _ _ _) _.
rewrite (bigD1 target) //= Rminus_eq_0 Rmult_0_l Rmult_0_r Rabs_R0 Rplus_0_l.
apply: Rle_trans (_ : (1 - p target) * (reach * range) <= _); last first.
  by rewrite Rmult_assoc; apply: Rmult_le_compat_r => //; exact: Rmult_le_pos.
have -> : 1 - p target = \big[Rplus/0]_(k | k != target) p k.
  by rewrite -p1 (bigD1 target) //=; ring.
rewrite big_distrl /=; apply: rsum_le => k _.
rewrite Rabs_mult (Rabs_pos_eq _ (p0 k)) Rabs_mult; apply: Rmult_le_compat_l => //.
by apply: Rmult_le_compat; try exact: Rabs_pos.
Qed.
Theorem bounded_moves : GRAD_bounded.
Proof.
move=> n K pos alpha centre y a target leak reach range alpha0 light far wide.
eexists; first exact: (centres pos alpha centre y a target).
set p := softmax _ in light *; rewrite Rabs_mult Rabs_pos_eq; last by lra.
have -> : 2 * alpha * leak * reach * range = 2 * alpha * (leak * reach * range) by ring.
apply: Rmult_le_compat_l; first by lra.
apply: covariance_le light _ _ => //; first by move=> k; exact/Rlt_le/softmax_gt0.
exact: softmax_sum1 target.
Qed.

(** ** Instance: a head between two keys moves by half of alpha *)
Definition two (k : bool) (_ : 'I_1) : R := if k then 1 else 0.
Lemma sum_two (F : bool -> R) : \sum_k F k = F true + F false.
Proof. by rewrite big_bool /=; ring. Qed.
Theorem instance alpha : derivable_pt_lim
  (moved_mean two alpha (fun _ => / 2) (two ^~ ord0) ord0) 0 (alpha / 2).
Proof.
have := centres two alpha (fun _ => / 2) (two ^~ ord0) ord0 true.
set p := softmax _; have p2 k : p k = / 2.
  have even j : (- alpha * (\sum_b ((two j b - / 2) * (two j b - / 2))) = - alpha * / 4)%R.
    by rewrite big_ord_recl big_ord0 /two; case: j; field.
  rewrite /p /softmax sum_two !even; have e0 := exp_pos (- alpha * / 4).
  by field; apply: Rgt_not_eq; lra.
have -> : 2 * alpha * covariance p (fun k => two k ord0) (two ^~ ord0) = alpha / 2; last by [].
by rewrite /covariance !sum_two !p2 /two; field.
Qed.

(** ** Mutants

    Heads that attend to anything; a centre that moves by alpha times the covariance, or the other
    way *)
Definition mutant := derivatives_if (fun n g H f P => True).
Definition mutant_half := moves_by (fun alpha c => alpha * c).
Definition mutant_sign := moves_by (fun alpha c => - (2 * alpha * c)).
(** One pixel whose value is the time, and a head that reads nothing. *)
Theorem mutant_refuted : ~ mutant.
Proof.
pose g : geometry 0 := Geometry (fun _ => 0%N) (fun _ => 0%N) (fun _ => 0%N) (fun _ => 0%N)
  (fun _ => 0%N) (fun _ => 0%N).
have ok : fits g by case.
pose x : box (fun _ : 'I_0 => 0%N) := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
pose q : queries g := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
have all_see (t : taps g) (i : pixels g) : sees (g := g) q t i by apply/forallP; case.
have one_box (i : box (fun _ : 'I_0 => 0%N)) : i = x by apply/ffunP; case.
pose weight (t : R) (_ : 'I_(1 * 1)) (_ : nat) (_ : taps g) : reals := 1.
pose none (t : R) (_ : 'I_(1 * 1)) : reals := 0.
pose X (t : R) (_ : pixels g) (_ : 'I_(1 * 1)) : reals := t.
have conv t : torch_conv (weight t) (none t) (X t) q ord0 = t.
  rewrite torch_convE (big_pred1 (x : taps g)) => [|s]; last by rewrite (one_box s) /= eqxx.
  rewrite big_ord_recl big_ord0 (big_pred1 (x : pixels g)) => [|i];
    last by rewrite all_see (one_box i) /= eqxx.
  by rewrite /tap /weight /none /X /=; ring.
pose P (_ : taps g) (_ : queries g) (_ : keys g) : reals := 0.
pose unit_weight (t : R) (_ : taps g) (_ : 'I_(1 * 1)) (_ : unit) : reals := 1.
pose unit_output (t : R) (_ : taps g) (_ : unit) (_ : 'I_(1 * 1)) : reals := 1.
have merged1 t h c o : merged (unit_weight t) (unit_output t) h c o = tap (weight t) (id h) c o.
  rewrite /merged (bigD1 tt) //= big1 => [|[]] //; rewrite /tap /weight (ord1 c) (ord1 o) /=.
  by rewrite /unit_weight /unit_output; ring.
move=> /(_ 0%N g ok 1%N 1%N 1%N _ _ id P unit_weight unit_output weight none X) says.
have := says (Bijective (fun _ => erefl) (fun _ => erefl)) I merged1 q ord0 0 0.
have -> : (fun t => mhsa P (unit_weight t) (unit_output t) (none t) (zero_pad (X t)) q ord0)
  = fct_cte 0.
  apply: functional_extensionality => t; rewrite mhsaE /fct_cte /none /= big1 => [|h _];
    first by ring.
  apply: big1 => c _; rewrite big1 => [|k _]; last by rewrite /P /=; ring.
  by rewrite /=; ring.
have -> : (fun t => torch_conv (weight t) (none t) (X t) q ord0) = id.
  by apply: functional_extensionality => t; exact: conv.
move=> [/(_ (derivable_pt_lim_const 0 0)) zero _].
by have := uniqueness_limite _ _ _ _ zero (derivable_pt_lim_id 0); lra.
Qed.
(** Two keys, alpha = 1: the instance says how fast. *)
Lemma wrong_slope (slope : R -> R -> R) : moves_by slope -> slope 1 (/ 4) = / 2.
Proof.
move=> says; have := says _ _ two 1 (fun _ => / 2) (two ^~ ord0) ord0 true.
set p := softmax _; have p2 k : p k = / 2.
  have even j : (- (1) * (\sum_b ((two j b - / 2) * (two j b - / 2))) = - / 4)%R.
    by rewrite big_ord_recl big_ord0 /two; case: j; field.
  rewrite /p /softmax sum_two !even; have e0 := exp_pos (- / 4).
  by field; apply: Rgt_not_eq; lra.
have -> : covariance p (fun k => two k ord0) (two ^~ ord0) = / 4.
  by rewrite /covariance !sum_two !p2 /two; field.
move=> moved; have := uniqueness_limite _ _ _ _ moved (instance 1); lra.
Qed.
Theorem mutant_half_refuted : ~ mutant_half.
Proof. by move=> /wrong_slope; lra. Qed.
Theorem mutant_sign_refuted : ~ mutant_sign.
Proof. by move=> /wrong_slope; lra. Qed.
Lemma even_half (k : bool) (alpha : R) : softmax (fun j => - alpha
  * \sum_b ((two j b - / 2) * (two j b - / 2))) k = / 2.
Proof.
have even j : (- alpha * (\sum_b ((two j b - / 2) * (two j b - / 2))) = - alpha * / 4)%R.
  by rewrite big_ord_recl big_ord0 /two; case: j; field.
rewrite /softmax sum_two !even; have e0 := exp_pos (- alpha * / 4).
by field; apply: Rgt_not_eq; lra.
Qed.
Lemma two_near (i j : bool) : Rabs (two i ord0 - two j ord0) <= 1.
Proof. by rewrite /two; case: i; case: j; rewrite ?Rminus_eq_0 /Rabs; case: Rcase_abs; lra. Qed.
Lemma two_move bound : moves_at_most bound -> / 2 <= bound 1 (/ 2).
Proof.
move=> /(_ _ _ two 1 (fun _ => / 2) (two ^~ ord0) ord0 true (/ 2) 1 1 Rle_0_1) says.
have [|slope moved] := says _ two_near two_near; first by rewrite even_half; lra.
have -> := uniqueness_limite _ _ _ _ moved (instance 1).
by rewrite Rabs_pos_eq; lra.
Qed.
Theorem instance_bounded : / 2 <= 2 * 1 * / 2.
Proof. exact: two_move bounded_moves. Qed.
(** A move of the order of the leak's square. *)
Definition mutant_squared := moves_at_most (fun alpha leak => alpha * leak * leak).
Theorem mutant_squared_refuted : ~ mutant_squared.
Proof. by move=> /two_move; lra. Qed.
