(** * L2c: The target's share at finite alpha

    Claim: On every finite set of lattice points that contains the target, of every size and
    dimension n, the softmax of the quadratic head gives the target at least theta(e^-alpha)^-n,
    theta(q) the sum of q^(m^2) over all integers, which is at least (1 + 2/(e^alpha - 1))^-n. So
    the leaked mass is at most 1 - theta^-n, for all sizes at once. With one alpha for each axis, or
    with a real centre, the factor theta of an axis is the sum over all integers m of e^(-alpha (m^2
    - 2 m f)), f from the target to the centre. A gated head, which attends by position with a share
    g and by content with the rest, leaks at most 1 - g and g times that.
    Source: this project; Cordonnier et al. 2020, Lemma 2 and the remark on the magnitude of alpha.
    Does not show: That theta converges and that a sum of non-negative terms is at least any partial
    sum, which are used as such; that the steps make up the theorem, which the formal layer checks.
    The mass as floats compute it: A46. *)
From Coq Require Import Reals Lra Lia ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums PAD.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Section Theta.
Variable alpha : R.
Hypothesis alpha_gt0 : 0 < alpha.
Let a := exp alpha.
Let a_gt1 : 1 < a. Proof. by rewrite /a -exp_0; apply: exp_increasing. Qed.
Let w (z : Z) := exp (- alpha * IZR (z * z)).
Let c := theta_bound alpha.

(** ** One axis: 1 for the target, a geometric series on each side *)
Lemma geometricE N : (\big[Rplus/0]_(m < N) exp (- alpha * (INR m + 1))) * (a - 1) = 1
  - exp (- alpha * INR N).
Proof.
elim: N => [|N IH]; first by rewrite big_ord0 Rmult_0_r exp_0; ring.
rewrite big_ord_recr /= Rmult_plus_distr_r IH.
have -> : exp (- alpha * INR N) = exp (- alpha * (INR N + 1)) * a.
  by rewrite /a -exp_plus; congr exp; ring.
by rewrite -/(INR N.+1) S_INR; ring.
Qed.
Lemma side_le N : \big[Rplus/0]_(m < N) w (Z.of_nat m + 1) <= / (a - 1).
Proof.
apply: (Rle_trans _ (\big[Rplus/0]_(m < N) exp (- alpha * (INR m + 1)))).
  apply: rsum_le => m _; rewrite /w.
  have Hm : INR m + 1 <= IZR ((Z.of_nat m + 1) * (Z.of_nat m + 1)).
    by rewrite INR_IZR_INZ -plus_IZR; apply: IZR_le; nia.
  have : - alpha * IZR ((Z.of_nat m + 1) * (Z.of_nat m + 1)) <= - alpha * (INR m + 1) by nra.
  by case=> [/exp_increasing|->]; lra.
have H := geometricE N; have Hp := exp_pos (- alpha * INR N); set S := bigop _ _ _ in H *.
by apply: (Rmult_le_reg_r (a - 1)); [lra | rewrite H Rinv_l; lra].
Qed.
Lemma theta_bound_ge1 : 1 <= c.
Proof. by rewrite /c /theta_bound -/a; have := Rinv_0_lt_compat (a - 1); rewrite /Rdiv; lra. Qed.
Lemma axis_le N : \big[Rplus/0]_(m < (N + N).+1) w (Z.of_nat m - Z.of_nat N) <= c.
Proof.
rewrite -addnS big_split_ord /= (reindex_inj rev_ord_inj) /= big_ord_recl.
have -> : \big[Rplus/0]_(i < N) w (Z.of_nat (N - i.+1) - Z.of_nat N)
  = \big[Rplus/0]_(m < N) w (Z.of_nat m + 1).
  apply: eq_bigr => i _; rewrite /w; congr (exp (_ * IZR _)).
  have Hi : (i.+1 <= N)%coq_nat by apply/leP.
  by rewrite Nat2Z.inj_sub; lia.
have -> : \big[Rplus/0]_(i < N) w (Z.of_nat (N + lift ord0 i) - Z.of_nat N)
  = \big[Rplus/0]_(m < N) w (Z.of_nat m + 1).
  apply: eq_bigr => i _; rewrite /w; congr (exp (_ * IZR _)).
  by rewrite of_natD lift0 Nat2Z.inj_succ; lia.
have -> : w (Z.of_nat (N + @ord0 N) - Z.of_nat N) = 1.
  by rewrite /w addn0 Z.sub_diag /= Rmult_0_r; exact: exp_0.
by have := side_le N; rewrite /c /theta_bound -/a /Rdiv; lra.
Qed.
End Theta.

(** ** All axes: the grid is part of a box around the target, on which the sum is a product *)
Lemma rprod_le n (F G : 'I_n -> R) : (forall i, 0 <= F i <= G i) -> 0 <= \prod_i F i <= \prod_i G i.
Proof.
move=> H; elim/big_ind2: _ => [|x1 x2 y1 y2 Hx Hy|i _]; [lra | | exact: H].
by split; [apply: Rmult_le_pos; lra | apply: Rmult_le_compat; lra].
Qed.
Section Axes.
Variables (n : nat) (s : 'I_n -> Z -> R) (total : 'I_n -> R).
Hypothesis bounded : forall a N, \big[Rplus/0]_(m < (N + N).+1) exp (s a (Z.of_nat m - Z.of_nat N))
  <= total a.
Variables (K : finType) (pos : K -> point n).
Hypothesis pos_inj : grid pos.
Lemma box_sum_le (target : point n) : \sum_k exp (\sum_a s a (pos k a - target a)%Z)
  <= \prod_a total a.
Proof.
pose N := (\max_k \max_i Z.abs_nat (pos k i - target i))%N.
have HN k i : (Z.abs (pos k i - target i) <= Z.of_nat N)%Z.
  have /leP H1 : (Z.abs_nat (pos k i - target i) <= N)%N.
    apply: leq_trans (@leq_bigmax K (fun k => \max_i Z.abs_nat (pos k i - target i)) k);
      exact: leq_bigmax.
  by move: (N) H1 => M; lia.
pose code k : {ffun 'I_n -> 'I_(N + N).+1} :=
  [ffun i => inord (Z.to_nat (pos k i - target i + Z.of_nat N))].
pose w a z := exp (s a z).
pose F (f : {ffun 'I_n -> 'I_(N + N).+1}) := \prod_i w i (Z.of_nat (f i) - Z.of_nat N)%Z.
have codeK k i : (Z.of_nat (code k i) - Z.of_nat N = pos k i - target i)%Z.
  have := HN k i; rewrite ffunE; move: (pos k i - target i)%Z => u Hu.
  have Hlt : (Z.to_nat (u + Z.of_nat N) < (N + N).+1)%N.
    by rewrite ltnS; apply/leP; rewrite -plusE; clear -Hu; move: (N) Hu => M; lia.
  by rewrite inordK //; clear -Hu; move: (N) Hu => M; lia.
have -> : \sum_k exp (\sum_a s a (pos k a - target a)%Z) = \sum_k F (code k).
  by apply: eq_bigr => k _; rewrite exp_rsumE; apply: eq_bigr => i _; rewrite codeK.
rewrite -(big_map code xpredT F) /= big_uniq; last first.
  rewrite map_inj_uniq ?index_enum_uniq // => x y E; apply: pos_inj => i.
  by have := codeK x i; have := codeK y i; rewrite E; lia.
apply: (Rle_trans _ (\sum_f F f)).
  apply: rsum_part_le => f; rewrite /F; elim/big_ind: _ => [|x y Hx Hy|i _];
    [lra | exact: Rmult_le_pos | exact/Rlt_le/exp_pos].
rewrite /F -(bigA_distr_bigA (fun i (j : 'I_(N + N).+1) => w i (Z.of_nat j - Z.of_nat N)%Z)).
apply: (proj2 (rprod_le _)) => i; split; last exact: bounded.
by apply: rsum_ge0 => j _; apply/Rlt_le/exp_pos.
Qed.
End Axes.

(** ** A quadratic head; [theta] bounds the sum over one axis *)
Section Quadratic.
Variables (alpha theta : R).
Hypothesis alpha_gt0 : 0 < alpha.
Hypothesis axis : forall N, \big[Rplus/0]_(m < (N + N).+1) exp
  (- alpha * IZR ((Z.of_nat m - Z.of_nat N) * (Z.of_nat m - Z.of_nat N))) <= theta.
Variables (n : nat) (K : finType) (pos : K -> point n).
Hypothesis pos_inj : grid pos.
Definition key_weight (x target : point n) := exp (- alpha * IZR (distance x target)).
Lemma weight_diag1 x target : x =1 target -> key_weight x target = 1.
Proof. by move=> E; rewrite /key_weight /distance big1 ?Rmult_0_r ?exp_0 // => i _;
  rewrite E Z.sub_diag. Qed.
Lemma partition_le (target : point n) : \sum_k key_weight (pos k) target <= theta ^ n.
Proof.
have -> : theta ^ n = \big[Rmult/1]_(i < n) theta by rewrite big_const_ord; elim: n => //= k ->.
apply: Rle_trans
  (box_sum_le (s := fun _ z => - alpha * IZR (z * z)) (fun _ => axis) pos_inj target); right.
by apply: eq_bigr => k _; rewrite /key_weight IZR_sum big_distrr.
Qed.

(** A key [nearest] of which all others are farther by at least their own squared distance from
    it. *)
Lemma share_ge (target : point n) nearest :
  (forall k, distance (pos nearest) target + distance (pos k) (pos nearest)
    <= distance (pos k) target)%Z ->
  / theta ^ n <= quadratic_head pos alpha target nearest.
Proof.
move=> gap; rewrite /quadratic_head /softmax.
set e := exp _; set Z := \sum_j _.
have e0 : 0 < e := exp_pos _.
have Z0 : 0 < Z by apply: (rsum_gt0 nearest) => j; exact: exp_pos.
have c0 : 0 < theta ^ n.
  by apply: Rlt_le_trans (partition_le (pos nearest)); apply: (rsum_gt0 nearest) => j;
    exact: exp_pos.
have Hle : Z <= e * theta ^ n.
  apply: (Rle_trans _ (e * \sum_k key_weight (pos k) (pos nearest))); last first.
    by apply: Rmult_le_compat_l; [lra | exact: partition_le].
  rewrite big_distrr /=; apply: rsum_le => k _; rewrite /e /key_weight -exp_plus.
  have H : - alpha * IZR (distance (pos k) target)
      <= - alpha * IZR (distance (pos nearest) target) + - alpha * IZR
        (distance (pos k) (pos nearest)).
    by have := IZR_le _ _ (gap k); rewrite plus_IZR; nra.
  by case: H => [/exp_increasing|->]; lra.
apply: (Rmult_le_reg_r (theta ^ n * Z)); first exact: Rmult_lt_0_compat.
have -> : / theta ^ n * (theta ^ n * Z) = Z by field; lra.
by have -> : e / Z * (theta ^ n * Z) = e * theta ^ n by field; lra.
Qed.
End Quadratic.

(** ** Sums over all integers *)
Lemma big_sum_f_R0 (u : nat -> R) N : \big[Rplus/0]_(m < N.+1) u m = sum_f_R0 u N.
Proof. by elim: N => [|N IH]; rewrite big_ord_recr /= ?big_ord0 ?Rplus_0_l // IH. Qed.
Lemma partial_le (u : nat -> R) l N : (forall m, 0 <= u m) -> infinite_sum u l ->
  \big[Rplus/0]_(m < N) u m <= l.
Proof.
move=> u0 lim; have le M : sum_f_R0 u M <= l by apply: sum_incr.
case: N => [|N]; last by rewrite big_sum_f_R0.
by rewrite big_ord0; have := le 0%N; have := u0 0%N; rewrite /=; lra.
Qed.
Lemma sum_exists (u : nat -> R) bound : (forall m, 0 <= u m) ->
  (forall N, \big[Rplus/0]_(m < N) u m <= bound) ->
  exists l, infinite_sum u l /\ l <= bound.
Proof.
move=> u0 le.
have ub : has_ub (sum_f_R0 u) by exists bound => x [N ->]; rewrite -big_sum_f_R0.
have grows : Un_growing (sum_f_R0 u) by move=> N /=; have := u0 N.+1; lra.
have [l cv] := growing_cv _ grows ub; exists l; split=> //; apply: Rnot_lt_le => lt;
  have [N close] := cv (l - bound) ltac:(lra).
by have := close N (le_n N); have := le N.+1; rewrite big_sum_f_R0 /R_dist => ? /Rabs_def2; lra.
Qed.
Lemma axis_of_sidesE (s : Z -> R) N : \big[Rplus/0]_(m < (N + N).+1) exp
  (s (Z.of_nat m - Z.of_nat N)%Z)
  = \big[Rplus/0]_(m < N.+1) exp (s (Z.of_nat m)) + \big[Rplus/0]_(m < N) exp
    (s (- Z.of_nat m - 1)%Z).
Proof.
rewrite -addnS big_split_ord /= (reindex_inj rev_ord_inj) /= Rplus_comm; congr (_ + _);
  apply: eq_bigr => i _; congr (exp (s _)).
  by rewrite of_natD; lia.
have Hi : (i.+1 <= N)%coq_nat by apply/leP.
by rewrite Nat2Z.inj_sub; lia.
Qed.
Lemma axis_le_total s total N : over_integers s total ->
  \big[Rplus/0]_(m < (N + N).+1) exp (s (Z.of_nat m - Z.of_nat N)%Z) <= total.
Proof.
case=> r [l [cr [cl ->]]]; rewrite axis_of_sidesE; apply: Rplus_le_compat.
  by apply: (partial_le (u := fun m => exp (s (Z.of_nat m)))) => // m; apply/Rlt_le/exp_pos.
by apply: (partial_le (u := fun m => exp (s (- Z.of_nat m - 1)%Z))) => // m; apply/Rlt_le/exp_pos.
Qed.

Theorem theta_series : L2c_theta.
Proof.
move=> alpha a0; have side := side_le a0; have c1 := theta_bound_ge1 a0.
have E : theta_bound alpha = 1 + / (exp alpha - 1) + / (exp alpha - 1)
  by rewrite /theta_bound /Rdiv; ring.
have [||l [cl lb]] :=
  sum_exists (u := fun m => exp (- alpha * IZR ((- Z.of_nat m - 1) * (- Z.of_nat m - 1))))
  (bound := / (exp alpha - 1)).
- by move=> m; apply/Rlt_le/exp_pos.
- move=> N; apply: Rle_trans (side N); right; apply: eq_bigr => m _; congr (exp (_ * IZR _)); lia.
have [||r [cr rb]] := sum_exists (u := fun m => exp (- alpha * IZR (Z.of_nat m * Z.of_nat m)))
  (bound := 1 + / (exp alpha - 1)).
- by move=> m; apply/Rlt_le/exp_pos.
- case=> [|N]; first by rewrite big_ord0; have := side 0%N; rewrite big_ord0; lra.
  rewrite big_ord_recl /= Rmult_0_r exp_0; apply: Rplus_le_compat_l; apply: Rle_trans (side N);
    right.
  by apply: eq_bigr => m _; congr (exp (_ * IZR _)); rewrite /bump /=; lia.
exists (r + l); split; first by exists r, l.
have := partial_le 1 (fun m => Rlt_le _ _ (exp_pos _)) cr;
  have := partial_le 0 (fun m => Rlt_le _ _ (exp_pos _)) cl.
by rewrite big_ord_recl !big_ord0 /= Rmult_0_r exp_0; lra.
Qed.

Theorem share_of_axes : L2c_axes.
Proof.
move=> n s total sums K pos inj target; rewrite /softmax.
have le := box_sum_le (fun a N => axis_le_total N (sums a)) inj (pos target).
set Z := \sum_j _ in le *; have Z0 : 0 < Z by apply: (rsum_gt0 target) => j; exact: exp_pos.
have -> : exp (\sum_a s a (pos target a - pos target a)%Z)
  = (\prod_a (exp (s a 0%Z) / total a)) * \prod_a total a.
  rewrite exp_rsumE -big_split /=; apply: eq_bigr => a _; rewrite Z.sub_diag; field.
  have := axis_le_total 0 (sums a); rewrite big_ord_recl big_ord0 /=; have := exp_pos (s a 0%Z);
    lra.
set x := \prod_a (_ / _); set T := \prod_a total a in le *.
have x0 : 0 <= x.
  rewrite /x; elim/big_ind: _ => [|y z Hy Hz|a _]; [lra | exact: Rmult_le_pos |].
  have p := exp_pos (s a 0%Z); apply/Rlt_le/Rdiv_lt_0_compat => //.
  by have := axis_le_total 0 (sums a); rewrite big_ord_recl big_ord0 /=; lra.
by apply: (Rmult_le_reg_r Z) => //; rewrite /Rdiv Rmult_assoc Rinv_l ?Rmult_1_r;
  [apply: Rmult_le_compat_l | lra].
Qed.

(** ** A real centre *)
(** Beyond a constant, [alpha (z^2 - 2 z f)] grows like [alpha |z|]: a geometric series bounds the
    sum. *)
Theorem series : L2c_series.
Proof.
move=> alpha f a0; pose C := exp (alpha * ((Rabs f + / 2) * (Rabs f + / 2))).
have C0 : 0 < C by exact: exp_pos.
have a1 : 1 < exp alpha by rewrite -exp_0; apply: exp_increasing.
have le (z : Z) (m : nat) : (Z.abs z = Z.of_nat m)%Z -> exp (centred alpha f z)
  <= C * exp (- alpha * INR m).
  move=> E; rewrite /C -exp_plus /centred mult_IZR.
  have zm : Rabs (IZR z) = INR m by rewrite -abs_IZR E -INR_IZR_INZ.
  have zz : IZR z * IZR z = INR m * INR m.
    by rewrite -zm -Rabs_mult Rabs_pos_eq //; exact: Rle_0_sqr.
  have zf : IZR z * f <= INR m * Rabs f by rewrite -zm -Rabs_mult; exact: Rle_abs.
  have sq : 0 <= (INR m - (Rabs f + / 2)) * (INR m - (Rabs f + / 2)) by exact: Rle_0_sqr.
  have : - alpha * (IZR z * IZR z - 2 * IZR z * f)
      <= alpha * ((Rabs f + / 2) * (Rabs f + / 2)) + - alpha * INR m.
    have : 0 <= alpha * ((INR m - (Rabs f + / 2)) * (INR m - (Rabs f + / 2))
      + 2 * (INR m * Rabs f - IZR z * f)) by apply: Rmult_le_pos; lra.
    by rewrite zz; lra.
  by case=> [/exp_increasing/Rlt_le|->] //; exact: Rle_refl.
have geo N : \big[Rplus/0]_(m < N) (C * exp (- alpha * INR m)) <= C * (1 + / (exp alpha - 1)).
  rewrite -big_distrr; apply: Rmult_le_compat_l; first lra.
  case: N => [|N]; first by rewrite big_ord0; have := Rinv_0_lt_compat (exp alpha - 1); lra.
  rewrite big_ord_recl /= Rmult_0_r exp_0; apply: Rplus_le_compat_l.
  apply: (Rmult_le_reg_r (exp alpha - 1)); first lra; rewrite Rinv_l; last lra.
  have -> : \big[Rplus/0]_(i < N) exp (- alpha * INR (bump 0 i))
    = \big[Rplus/0]_(m < N) exp (- alpha * (INR m + 1)).
    by apply: eq_bigr => m _; congr (exp (_ * _)); rewrite /bump -[(true + m)%N]/(m.+1) S_INR.
  by rewrite geometricE; have := exp_pos (- alpha * INR N); lra.
have side (z : nat -> Z) : (forall m, exists m', (m <= m')%N /\ (Z.abs (z m) = Z.of_nat m')%Z) ->
    exists l, infinite_sum (fun m => exp (centred alpha f (z m))) l.
  move=> far; have [||l [cl _]] := sum_exists (u := fun m => exp (centred alpha f (z m)))
    (bound := C * (1 + / (exp alpha - 1))).
  - by move=> m; apply/Rlt_le/exp_pos.
  - move=> N; apply: Rle_trans (geo N); apply: rsum_le => m _; have [m' [mm E]] := far m.
    apply: Rle_trans (le _ _ E) _; apply: Rmult_le_compat_l; first lra.
    have : - alpha * INR m' <= - alpha * INR m by have := le_INR _ _ (leP mm); nra.
    by case=> [/exp_increasing/Rlt_le|->] //; exact: Rle_refl.
  by exists l.
have [r cr] : exists l, infinite_sum (fun m => exp (centred alpha f (Z.of_nat m))) l.
  by apply: side => m; exists m; split=> //; lia.
have [l cl] : exists l, infinite_sum (fun m => exp (centred alpha f (- Z.of_nat m - 1)%Z)) l.
  by apply: side => m; exists m.+1; split=> //; rewrite Nat2Z.inj_succ; lia.
by exists (r + l), r, l.
Qed.
(** From the nearest key on, a key scores no more than it would about the lattice point nearest to
    the centre: the two are the same, or all keys lie on the far side. *)
Theorem share_of_centre : L2c_centre.
Proof.
move=> n alpha centre total m axes lo hi K pos inj ins nearest E.
pose s a := centred (alpha a) (centre a - IZR (m a)).
have bounded a N : \big[Rplus/0]_(j < (N + N).+1) exp (s a (Z.of_nat j - Z.of_nat N)%Z) <= total a.
  by have [_ _ sums] := axes a; exact: axis_le_total.
have le := box_sum_le bounded inj (pos nearest).
set Z := \sum_k _ in le; have Z0 : 0 < Z by apply: (rsum_gt0 nearest) => k; exact: exp_pos.
pose score k := \sum_a - alpha a * ((IZR (pos k a) - centre a) * (IZR (pos k a) - centre a)).
have gap k : score k <= score nearest + \sum_a s a (pos k a - pos nearest a)%Z.
  rewrite /score -big_split; apply: rsum_le => a _ /=; have [a0 half _] := axes a.
  have [/= lk hk] := ins k a; have [ln hn] := ins nearest a; rewrite /s /centred.
  set y := (pos k a - pos nearest a)%Z; have Ey : IZR (pos k a) = IZR (pos nearest a) + IZR y.
    by rewrite -plus_IZR /y; congr IZR; ring.
  have fa : 0 <= alpha a * (2 * IZR y * (IZR (pos nearest a) - IZR (m a))).
    have near := E a; rewrite /clamp in near; set v := pos nearest a in near ln hn y Ey *.
    have [y0|[y0|y0]] : (v = m a \/ m a < v /\ 0 <= y \/ v < m a /\ y <= 0)%Z by rewrite /y; lia.
    - by rewrite y0 Rminus_eq_0 !Rmult_0_r; exact: Rle_refl.
    - have := IZR_lt _ _ (proj1 y0); have := IZR_le _ _ (proj2 y0) => y1 v1.
      by apply: Rmult_le_pos; [lra | apply: Rmult_le_pos; lra].
    - have := IZR_lt _ _ (proj1 y0); have := IZR_le _ _ (proj2 y0) => y1 v1.
      have -> : 2 * IZR y * (IZR v - IZR (m a)) = 2 * - IZR y * (IZR (m a) - IZR v) by ring.
      by apply: Rmult_le_pos; [lra | apply: Rmult_le_pos; lra].
  by rewrite Ey mult_IZR; nra.
rewrite /softmax; set W := \sum_j exp _.
have W0 : 0 < W by apply: (rsum_gt0 nearest) => k; exact: exp_pos.
have WZ : W <= exp (score nearest) * Z.
  rewrite /Z big_distrr /=; apply: rsum_le => k _; rewrite -exp_plus.
  by case: (gap k) => [/exp_increasing/Rlt_le|<-] //; exact: Rle_refl.
have e0 := exp_pos (score nearest); set P := \prod_a total a in le.
have P0 : 0 < P by lra.
have -> : \prod_a / total a = / P.
  apply: (Rmult_eq_reg_r P); last lra; rewrite Rinv_l; last lra.
  rewrite /P -big_split /=; apply: big1 => a _; rewrite Rinv_l //.
  by have := bounded a 0%N; rewrite big_ord_recl big_ord0 /=; have := exp_pos (s a (0 - 0)%Z);
    rewrite /=; lra.
apply: (Rmult_le_reg_r (P * W)); first exact: Rmult_lt_0_compat.
have -> : / P * (P * W) = W by field; lra.
rewrite -/(score nearest); have -> : exp (score nearest) / W * (P * W) = exp (score nearest) * P
  by field; lra.
by apply: Rle_trans WZ _; apply: Rmult_le_compat_l; lra.
Qed.

Theorem share : L2c.
Proof.
move=> n alpha alpha0 K pos inj target; apply: (share_ge alpha0 (axis_le alpha0)) => // k.
by rewrite {1}/distance big1 => [|i _]; lia.
Qed.

Theorem share_of_clamp : L2c_clamp.
Proof.
move=> n alpha alpha0 lo hi K pos inj ins target nearest E;
  apply: (share_ge alpha0 (axis_le alpha0)) => // k.
have lohi i : (lo i <= hi i)%Z by have := ins nearest i; lia.
rewrite (distance_ext E (frefl target)) (distance_ext (frefl (pos k)) E); exact: clamp_gap_le.
Qed.

(** ** Instance: on any grid of the plane, alpha = ln 3 gives the target at least 1/4 *)
Theorem instance : forall (K : finType) (pos : K -> point 2), grid pos -> forall target,
  / 4 <= quadratic_head pos (ln 3) (pos target) target.
Proof.
move=> K pos inj target; have ln3 : 0 < ln 3 by rewrite -ln_1; apply: ln_increasing; lra.
have := share ln3 inj target; rewrite /theta_bound exp_ln; last lra.
by have -> : (1 + 2 / (3 - 1)) ^ 2 = 4 by field.
Qed.

(** ** Mutants

    The bound without its power, as if more axes cost nothing; neighbours on one side; keys that
    share a place; a strict bound; any key *)
Lemma ln4_gt0 : 0 < ln 4. Proof. by apply: ln_gt0; lra. Qed.
Definition mutant := shares grid Rle (fun n alpha => theta_bound alpha).
Definition cross (k : option 'I_3) : point 3 :=
  fun a => if k is Some i then if a == i then 1%Z else 0%Z else 0%Z.
Theorem mutant_refuted : ~ mutant.
Proof.
have inj : grid cross.
  by case=> [i|] [j|] //; [move/(_ i) | move/(_ i) | move/(_ j)]; rewrite /cross ?eqxx // ;
    case: eqP => // ->.
move=> /(_ 3%N _ ln4_gt0 _ _ inj None); rewrite /quadratic_head /softmax /theta_bound exp_ln;
  last lra.
have D (i : 'I_3) : distance (cross (Some i)) (cross None) = 1%Z.
  rewrite /distance (bigD1 i) //= eqxx big1 // => j /negbTE ->; lia.
have D0 : distance (cross None) (cross None) = 0%Z by rewrite /distance big1.
have -> : \sum_k exp (- ln 4 * IZR (distance (cross k) (cross None))) = 7 / 4.
  rewrite (@sum_optionE reals) /= D0 Rmult_0_r exp_0.
  by rewrite !big_ord_recl big_ord0 !D Rmult_1_r exp_Ropp exp_ln; [field | lra].
by rewrite D0 Rmult_0_r exp_0; lra.
Qed.
Definition mutant_one_side := shares grid Rle (fun n alpha => (1 + 1 / (exp alpha - 1)) ^ n).
Theorem mutant_one_side_refuted : ~ mutant_one_side.
Proof. by move=> /(_ 1%N _ ln4_gt0 _ _ ends_grid None); rewrite ends_shareE ?exp_ln /=; lra. Qed.
Definition mutant_no_grid :=
  shares (fun K n pos => True) Rle (fun n alpha => theta_bound alpha ^ n).
Theorem mutant_no_grid_refuted : ~ mutant_no_grid.
Proof.
move=> /(_ 0%N _ Rlt_0_1 _ (fun (_ : bool) (_ : 'I_0) => 0%Z) I true).
by rewrite /quadratic_head /softmax rsum_bool !distance0 Rmult_0_r exp_0 /=; lra.
Qed.
Definition mutant_strict := shares grid Rlt (fun n alpha => theta_bound alpha ^ n).
Theorem mutant_strict_refuted : ~ mutant_strict.
Proof.
have one : grid (fun (_ : unit) (_ : 'I_0) => 0%Z) by case=> -[].
move=> /(_ 0%N _ Rlt_0_1 _ _ one tt).
by rewrite /quadratic_head /softmax rsum_unitE distance0 Rmult_0_r exp_0 /=; lra.
Qed.
Definition mutant_any_key := forall n (alpha : R), 0 < alpha ->
  forall (K : finType) (pos : K -> point n), grid pos ->
  forall target key, / theta_bound alpha ^ n <= quadratic_head pos alpha (pos target) key.
Theorem mutant_any_key_refuted : ~ mutant_any_key.
Proof.
move=> /(_ 1%N _ ln4_gt0 _ _ ends_grid None (Some true)); rewrite /theta_bound exp_ln; last lra.
rewrite /quadratic_head /softmax rsum_threeE !distance1 /= Rmult_0_r exp_0 !Rmult_1_r exp_Ropp.
by rewrite exp_ln; lra.
Qed.
