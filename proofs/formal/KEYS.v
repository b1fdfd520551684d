From Coq Require Import Reals ZArith Lra Lia.
From Flocq Require Import Core.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L2c L2d.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Lemma exp_le x y : x <= y -> exp x <= exp y.
Proof. by case=> [/exp_increasing/Rlt_le|->] //; exact: Rle_refl. Qed.

(** ** One side of one axis *)
Lemma limit_ge (v : nat -> R) l x M : infinite_sum v l ->
  (forall n, (M <= n)%N -> x <= sum_f_R0 v n) -> x <= l.
Proof.
move=> lim ge; apply: Rnot_lt_le => lt; have [N close] := lim (x - l) ltac:(lra).
have := close (maxn M N) ltac:(by apply/leP; exact: leq_maxr); have := ge (maxn M N) (leq_maxl _ _).
by rewrite /R_dist => le /Rabs_def2; lra.
Qed.
Lemma infinite_sum_minus u v l l' R : infinite_sum u l -> infinite_sum v l' ->
  infinite_sum (fun m => v m - R * u m) (l' - R * l).
Proof.
move=> cu cv eps e0; have d0 : 0 < 1 + Rabs R by have := Rabs_pos R; lra.
have e2 : 0 < eps / 2 by lra. have e3 : 0 < eps / 2 / (1 + Rabs R) by apply: Rdiv_lt_0_compat.
have [N1 c1] := cv _ e2; have [N2 c2] := cu _ e3; exists (maxn N1 N2) => n ge.
have g1 : (n >= N1)%coq_nat by apply/leP; apply: leq_trans (leq_maxl _ _) (introT leP ge).
have g2 : (n >= N2)%coq_nat by apply/leP; apply: leq_trans (leq_maxr _ _) (introT leP ge).
have E : sum_f_R0 (fun m => v m - R * u m) n = sum_f_R0 v n - R * sum_f_R0 u n.
  by elim: n {ge g1 g2} => [|n IH] //=; rewrite IH; ring.
rewrite /R_dist E; have -> : sum_f_R0 v n - R * sum_f_R0 u n - (l' - R * l)
  = (sum_f_R0 v n - l') - R * (sum_f_R0 u n - l) by ring.
apply: Rle_lt_trans (Rabs_triang _ _) _; rewrite Rabs_Ropp Rabs_mult.
have := c1 n g1; have := c2 n g2; rewrite /R_dist => lt2 lt1.
have : Rabs R * Rabs (sum_f_R0 u n - l) <= eps / 2.
  apply: Rle_trans (_ : (1 + Rabs R) * (eps / 2 / (1 + Rabs R)) <= _); last by right; field; lra.
  apply: Rmult_le_compat; [exact: Rabs_pos | exact: Rabs_pos | lra | lra].
lra.
Qed.
Section Side.
Variables (u r : nat -> R) (T T' rho : R).
Hypotheses (u0 : forall m, 0 <= u m) (r1 : forall m, 1 <= r m)
  (grows : forall i j, (i <= j)%N -> r i <= r j).
Hypotheses (sumu : infinite_sum u T) (sumv : infinite_sum (fun m => u m * r m) T').
Hypothesis ratio : / 2 + T' <= rho * (/ 2 + T).
Lemma part_le (v : nat -> R) M N : (forall m, (M <= m)%N -> 0 <= v m) -> (M <= N)%N ->
  \big[Rplus/0]_(m < M) v m <= \big[Rplus/0]_(m < N) v m.
Proof.
move=> v0 /subnK <-; elim: (N - M)%N => [|d IH]; first exact: Rle_refl.
rewrite addSn big_ord_recr /= -[X in X <= _]Rplus_0_r; apply: Rplus_le_compat => //;
  exact: v0 (leq_addl _ _).
Qed.
(** Longer sides have larger ratios: a summand that is added has a larger one, [R], than all before.
    So the whole side has at least [R] times as much behind [M]; if [R <= rho] the part is below
    [rho] itself, else because the whole is. *)
Lemma side_part_le M : / 2 + \big[Rplus/0]_(m < M) (u m * r m)
  <= rho * (/ 2 + \big[Rplus/0]_(m < M) u m).
Proof.
pose R := if M is M.+1 then r M else 1.
have [R1 before behind] : [/\ 1 <= R, forall m, (m < M)%N -> r m <= R & forall m, (M <= m)%N ->
  R <= r m].
  rewrite /R; case: M {R} => [|M]; first by split=> //; lra.
  by split=> [|m lt|m /ltnW]; [exact: r1 | exact: grows | exact: grows].
set U := \big[Rplus/0]_(m < M) u m; set V := \big[Rplus/0]_(m < M) (u m * r m).
have U0 : 0 <= U by apply: rsum_ge0 => m _.
have VR : V <= R * U.
  rewrite /U big_distrr; apply: rsum_le => m _ /=; rewrite Rmult_comm.
  by apply: Rmult_le_compat_r => //; exact: before.
have TU : U <= T by exact: partial_le.
have tails : V - R * U <= T' - R * T.
  apply: (limit_ge (M := M) (infinite_sum_minus R sumu sumv)) => n Mn.
  rewrite -(big_sum_f_R0 (fun m => u m * r m - R * u m)).
  have -> : V - R * U = \big[Rplus/0]_(m < M) (u m * r m - R * u m).
    by rewrite /U big_distrr /= rsum_minus.
  apply: (part_le (v := fun m => u m * r m - R * u m)); last exact: leqW.
  by move=> m /behind le;
    have := Rmult_le_pos _ _ (u0 m) (Rle_trans _ _ _ (Rle_trans _ _ _ Rle_0_1 R1) le); have := u0 m;
    nra.
have [le|gt] := Rle_or_lt R rho.
  by have := Rmult_le_compat_r (/ 2 + U) _ _ ltac:(lra) le; nra.
by have := Rmult_le_compat_r (T - U) rho R ltac:(lra) (Rlt_le _ _ gt); nra.
Qed.
End Side.

(** ** One axis *)
Lemma axis_splitE (F : Z -> R) N (p : 'I_N) : \big[Rplus/0]_(j < N) F (Z.of_nat j - Z.of_nat p)%Z
  = F 0%Z + \big[Rplus/0]_(m < N - p.+1) F (1 * (Z.of_nat m + 1))%Z
    + \big[Rplus/0]_(m < p) F (-1 * (Z.of_nat m + 1))%Z.
Proof.
have E : N = (p + (N - p.+1).+1)%N by rewrite addnS -addSn subnKC.
rewrite -(big_mkord xpredT (fun j => F (Z.of_nat j - Z.of_nat p)%Z)) {1}E big_mkord big_split_ord
  [LHS]Rplus_comm.
congr (_ + _).
  rewrite big_ord_recl; congr (_ + _); first by congr F; rewrite [nat_of_ord _]/= addn0; lia.
  apply: eq_bigr => j _; congr F; have -> : nat_of_ord (rshift p (lift ord0 j)) = (p + j.+1)%N by
    [].
  by rewrite of_natD Nat2Z.inj_succ; lia.
rewrite (reindex_inj rev_ord_inj); apply: eq_bigr => j _; congr F.
have le : (j.+1 <= p)%coq_nat by apply/leP.
by rewrite [nat_of_ord (lshift _ _)]/= Nat2Z.inj_sub // Nat2Z.inj_succ; lia.
Qed.
(** On each side the ratio of a term with the smaller score to the term without grows with the
    distance, so a part of the side has a smaller ratio than the whole ([side_part]); half of the
    near key belongs to each side. *)
Lemma axis_le_ratio s c rho N (p : 'I_N) : 0 <= c <= 1 -> axis_ratio s c rho ->
  \big[Rplus/0]_(j < N) exp ((1 - c) * s (Z.of_nat j - Z.of_nat p)%Z)
  <= rho * \big[Rplus/0]_(j < N) exp (s (Z.of_nat j - Z.of_nat p)%Z).
Proof.
move=> [c0 c1] [[s0 down] right left].
rewrite (axis_splitE (fun z => exp ((1 - c) * s z))) (axis_splitE (fun z => exp (s z))) s0 Rmult_0_r
  exp_0.
have one side M : side = 1%Z \/ side = (-1)%Z -> side_ratio s c rho side ->
    / 2 + \big[Rplus/0]_(m < M) exp ((1 - c) * s (side * (Z.of_nat m + 1))%Z)
    <= rho * (/ 2 + \big[Rplus/0]_(m < M) exp (s (side * (Z.of_nat m + 1))%Z)).
  move=> dir [T [T' [cT cT' le]]]; pose z m := (side * (Z.of_nat m + 1))%Z.
  pose u m := exp (s (z m)); pose r m := exp (- c * s (z m)).
  have E m : exp ((1 - c) * s (z m)) = u m * r m by rewrite /u /r -exp_plus; congr exp; ring.
  have fall i j : (i <= j)%N -> s (z j) <= s (z i).
    move=> /leP ij; have [|up dn] := down (Z.of_nat i + 1)%Z (Z.of_nat j + 1)%Z; first lia.
    by rewrite /z; case: dir => ->; rewrite ?Z.mul_1_l // !Z.mul_opp_l !Z.mul_1_l.
  have low m : s (z m) <= 0.
    have [|up dn] := down 0%Z (Z.of_nat m + 1)%Z; first lia.
    by rewrite -s0 /z; case: dir => ->; rewrite ?Z.mul_1_l // Z.mul_opp_l Z.mul_1_l.
  have u0 m : 0 <= u m by exact/Rlt_le/exp_pos.
  have r1 m : 1 <= r m by rewrite -exp_0; apply: exp_le; have := low m; nra.
  have grows i j : (i <= j)%N -> r i <= r j by move=> /fall le'; apply: exp_le; nra.
  have cu : infinite_sum (fun m => u m * r m) T'.
    move=> eps e0; have [L cl] := cT' eps e0; exists L => k kL.
    have <- : sum_f_R0 (fun m => exp ((1 - c) * s (z m))) k = sum_f_R0 (fun m => u m * r m) k.
      by apply: PartSum.sum_eq => m _; exact: E.
    exact: cl.
  have := side_part_le u0 r1 grows cT cu le M.
  have -> : \big[Rplus/0]_(m < M) exp ((1 - c) * s (side * (Z.of_nat m + 1))%Z)
    = \big[Rplus/0]_(m < M) (u m * r m).
    by apply: eq_bigr => m _; exact: E.
  by [].
have := one 1%Z (N - p.+1)%N (or_introl erefl) right; have := one (-1)%Z p (or_intror erefl) left.
lra.
Qed.

(** ** A box: sums over the axes make products *)
Lemma box_momentE n (size : 'I_n -> nat) (near : box size) (s : 'I_n -> Z -> R) (b : R) :
  \sum_k exp (b * around s near k)
  = \prod_a (\big[Rplus/0]_(j < size a) exp (b * s a (Z.of_nat j - Z.of_nat (near a))%Z)).
Proof.
rewrite (prod_sumE (fun a j => exp (b * s a (Z.of_nat j - Z.of_nat (near a))%Z)) near);
  apply: eq_bigr => k _.
by rewrite /around big_distrr /= exp_rsumE.
Qed.
Lemma around_le0 n (size : 'I_n -> nat) (near k : box size) (s : 'I_n -> Z -> R) :
  (forall a, falls (s a)) -> around s near k <= 0.
Proof.
move=> down; rewrite /around; elim/big_ind: _ => [|x y|a _]; [exact: Rle_refl | lra |].
have [s0 fall] := down a; rewrite -s0; set z := (_ - _)%Z.
have [le|lt] := Z_le_gt_dec 0 z; first by have [|] := fall 0%Z z; first lia.
by have [|_] := fall 0%Z (- z)%Z; first lia; rewrite Z.opp_involutive.
Qed.
Lemma rprod_le_all (I : finType) (F G : I -> R) : (forall i, 0 <= F i <= G i) ->
  0 <= \prod_i F i <= \prod_i G i.
Proof.
move=> H; elim/big_ind2: _ => [|x1 x2 y1 y2 Hx Hy|i _]; [lra | | exact: H].
by split; [apply: Rmult_le_pos; lra | apply: Rmult_le_compat; lra].
Qed.
Theorem moment : SOFT_moment.
Proof.
move=> n size near s c rho c01 ratios.
have down a : falls (s a) by case: (ratios a).
pose axis b a := \big[Rplus/0]_(j < size a) exp (b * s a (Z.of_nat j - Z.of_nat (near a))%Z).
have Z0 : 0 < \sum_k exp (around s near k) by apply: (rsum_gt0 near) => k; exact: exp_pos.
have E : \sum_k exp (around s near k) = \prod_a axis 1 a.
  by rewrite -box_momentE; apply: eq_bigr => k _; rewrite Rmult_1_l.
have -> : \sum_k softmax (around s near) k * exp (c * Rabs (around s near k))
  = (\sum_k exp ((1 - c) * around s near k)) * / (\sum_k exp (around s near k)).
  rewrite big_distrl /=; apply: eq_bigr => k _; rewrite /softmax /Rdiv.
  have -> : exp ((1 - c) * around s near k) = exp (around s near k) * exp
    (c * Rabs (around s near k)).
    by rewrite -exp_plus; congr exp; rewrite Rabs_left1; [ring | exact: around_le0].
  by rewrite Rmult_assoc [_ * exp _]Rmult_comm -Rmult_assoc.
rewrite box_momentE E in Z0 *; apply: (Rmult_le_reg_r (\prod_a axis 1 a)) => //.
rewrite Rmult_assoc Rinv_l ?Rmult_1_r; last lra.
have -> : \prod_a rho a * \prod_a axis 1 a = \prod_a (rho a * axis 1 a) by rewrite big_split.
apply: (proj2 (rprod_le_all _)) => a; split; first by apply: rsum_ge0 => j _; exact/Rlt_le/exp_pos.
have := axis_le_ratio (near a) c01 (ratios a); rewrite /axis.
by have -> : \big[Rplus/0]_(j < size a) exp (1 * s a (Z.of_nat j - Z.of_nat (near a))%Z)
  = \big[Rplus/0]_(j < size a) exp (s a (Z.of_nat j - Z.of_nat (near a))%Z)
    by apply: eq_bigr => j _; rewrite Rmult_1_l.
Qed.

(** ** The squared distance to a key *)
Lemma sum_shift (u : nat -> R) l : infinite_sum (fun m => u m.+1) l -> infinite_sum u (u 0%N + l).
Proof.
move=> cu eps e0; have [N cl] := cu eps e0; exists N.+1 => -[|n] ge; first by move/leP: ge.
have -> : sum_f_R0 u n.+1 = u 0%N + sum_f_R0 (fun m => u m.+1) n.
  by rewrite -!big_sum_f_R0 big_ord_recl; congr (_ + _); apply: eq_bigr.
rewrite /R_dist; have -> : u 0%N + sum_f_R0 (fun m => u m.+1) n - (u 0%N + l)
  = sum_f_R0 (fun m => u m.+1) n - l by ring.
by apply: cl; apply/leP; move/leP: ge.
Qed.
Lemma theta_sides alpha theta : over_integers (fun z => - alpha * IZR (z * z))%R theta ->
  exists T, [/\ 0 <= T, theta = 1 + 2 * T & forall side, side = 1%Z \/ side = (-1)%Z ->
    infinite_sum
      (fun m => exp (- alpha * IZR ((side * (Z.of_nat m + 1)) * (side * (Z.of_nat m + 1))))) T].
Proof.
move=> [r [l [cr [cl ->]]]]; exists l.
have same (v : nat -> R) : (forall m, exp (- alpha * IZR ((- Z.of_nat m - 1) * (- Z.of_nat m - 1)))
  = v m) -> infinite_sum v l.
  move=> E eps e0; have [N near] := cl eps e0; exists N => n ge;
    have <- := PartSum.sum_eq _ _ n (fun m _ => E m).
  exact: near.
have l0 : 0 <= l by have := partial_le 0 (fun m => Rlt_le _ _ (exp_pos _)) cl; rewrite big_ord0.
split=> //; last first.
  by move=> side dir; apply: same => m; congr (exp (_ * IZR _)); case: dir => ->; ring.
have c0 := same (fun m => exp (- alpha * IZR (Z.of_nat m.+1 * Z.of_nat m.+1))) _.
have {}c0 := sum_shift (u := fun m => exp (- alpha * IZR (Z.of_nat m * Z.of_nat m))) (c0 _).
have -> : r = 1 + l.
  apply: (uniqueness_sum (fun m => exp (- alpha * IZR (Z.of_nat m * Z.of_nat m)))) => //.
  have -> : 1 = exp (- alpha * IZR (Z.of_nat 0 * Z.of_nat 0)) by rewrite /= Rmult_0_r exp_0.
  by apply: c0 => m; congr (exp (_ * IZR _)); rewrite Nat2Z.inj_succ; ring.
ring.
Qed.
Theorem theta_ratio : SOFT_theta.
Proof.
move=> alpha c theta theta' a0 [c0 c1] ct ct'; have [T [T0 thetaE sides]] := theta_sides ct.
have [T' [T0' thetaE' sides']] := theta_sides ct'.
have side dir : dir = 1%Z \/ dir = (-1)%Z -> side_ratio (fun z => - alpha * IZR (z * z)) c
  (theta' / theta) dir.
  move=> d; exists T, T'; split; first exact: sides.
    move=> eps e0; have [N near] := sides' dir d eps e0; exists N => n ge.
    have <- : sum_f_R0
      (fun m => exp (- ((1 - c) * alpha) * IZR (dir * (Z.of_nat m + 1) * (dir * (Z.of_nat m + 1)))))
      n
      = sum_f_R0
        (fun m => exp
        ((1 - c) * (- alpha * IZR (dir * (Z.of_nat m + 1) * (dir * (Z.of_nat m + 1)))))) n.
      by apply: PartSum.sum_eq => m _; congr exp; ring.
    exact: near.
  by rewrite thetaE thetaE'; right; field; lra.
split; [|exact: side (or_introl erefl) | exact: side (or_intror erefl)].
split=> [|x y xy]; first by rewrite /= Rmult_0_r.
have le : IZR (x * x) <= IZR (y * y) by apply: IZR_le; nia.
by rewrite !Z.mul_opp_opp; nra.
Qed.

(** ** What exponentials are off by, of their sum *)
(** Key [k] is off by [off_part k + eta], [off_part k] a multiple of [exp (s k)] by [exp (c |s
    k|)]. *)
Definition off_part (K : finType) (near : K) (s : K -> R) (c c0 d : R) (k : K) : R :=
  ((1 + (if k == near then 0 else d)) * (exp c0 * exp (c * Rabs (s k))) - 1) * exp (s k).
Lemma off_part_ge0 (K : finType) (near : K) s c c0 d (k : K) : 0 <= c -> 0 <= c0 -> 0 <= d ->
  0 <= off_part near s c c0 d k.
Proof.
move=> c_0 c00 d0; apply: Rmult_le_pos; last exact/Rlt_le/exp_pos.
have g1 : 1 <= exp c0 by rewrite -exp_0; exact: exp_le.
have gk : 1 <= exp (c * Rabs (s k)).
  by rewrite -exp_0; apply: exp_le; apply: Rmult_le_pos => //; exact: Rabs_pos.
have p : 1 <= exp c0 * exp (c * Rabs (s k)) by have := Rmult_le_compat 1 _ 1 _ ltac:(lra) ltac:(lra)
  g1 gk; lra.
by case: eqP => _; have := Rmult_le_pos _ _ d0 (Rle_trans _ _ _ Rle_0_1 p); lra.
Qed.
(** Over all keys these sum to [M] times the sum of exponentials. The near key has no error [d] of
    its own, which leaves [d] times the leak. *)
Lemma off_parts_le (K : finType) (near : K) (s : K -> R) c c0 d M leak : 0 <= c -> 0 <= c0 ->
  0 <= d -> s near = 0 -> \sum_k softmax s k * exp (c * Rabs (s k)) <= M ->
  1 - softmax s near <= leak ->
  \sum_k off_part near s c c0 d k
  <= ((1 + d) * (exp c0 * M - 1) + d * leak) * \sum_k exp (s k).
Proof.
move=> c_0 c00 d0 s0 moment share; set Z := \sum_k exp (s k); pose g k := exp (c * Rabs (s k)).
have Z0 : 0 < Z by apply: (rsum_gt0 near) => k; exact: exp_pos.
have [g1 z1] : 1 <= exp c0 /\ exp (s near) = 1.
  by rewrite s0 exp_0; split=> //; rewrite -exp_0; exact: exp_le.
have gn : g near = 1 by rewrite /g s0 Rabs_R0 Rmult_0_r exp_0.
have sumg : \sum_k exp (s k) * g k <= M * Z.
  apply: (Rmult_le_reg_r (/ Z)); first exact: Rinv_0_lt_compat.
  rewrite [M * Z * _]Rmult_assoc Rinv_r ?Rmult_1_r; last lra.
  apply: Rle_trans moment; right; rewrite big_distrl /=; apply: eq_bigr => k _.
  by rewrite /softmax -/Z /g /Rdiv; ring.
have E : \sum_k off_part near s c c0 d k <= (1 + d) * exp c0 * (\sum_k exp (s k) * g k) - Z - d.
  have -> : \sum_k off_part near s c c0 d k = \sum_k ((1 + d) * exp c0 * (exp (s k) * g k)
      - exp (s k) - (if k == near then d * (exp c0 * g k) * exp (s k) else 0)).
    by apply: eq_bigr => k _; rewrite /off_part -/(g k); case: eqP => _; ring.
  rewrite -!rsum_minus -big_distrr /= -/Z; apply: Rplus_le_compat_l; apply: Ropp_le_contravar.
  rewrite -big_mkcond big_pred1_eq z1 gn !Rmult_1_r -{1}[d]Rmult_1_r.
  exact: Rmult_le_compat_l.
have shareZ : Z <= 1 + leak * Z.
  have : 1 - / Z <= leak by move: share; rewrite /softmax -/Z z1 /Rdiv Rmult_1_l.
  move/(Rmult_le_compat_r Z _ _ (Rlt_le _ _ Z0)); rewrite Rmult_minus_distr_r Rinv_l; lra.
have de : 0 <= (1 + d) * exp c0 by apply: Rmult_le_pos; lra.
have := Rmult_le_compat_l _ _ _ de sumg; have := Rmult_le_compat_l _ _ _ d0 shareZ; lra.
Qed.
(** Far keys are added up one by one. *)
Theorem by_key : SOFT_by_key.
Proof.
move=> K few near s e c c0 d eta M leak far' [c_0 c00 d0 eta0] fnear s0 low off moment share far_s.
set Z := \sum_k exp (s k); have Z0 : 0 < Z by apply: (rsum_gt0 near) => k; exact: exp_pos.
have z1 : exp (s near) = 1 by rewrite s0 exp_0.
pose r := off_part near s c c0 d.
have offE k : Rabs (e k - exp (s k)) <= r k + eta.
  by apply: Rle_trans (off k) _; rewrite exp_plus /r /off_part Rmult_comm
    [exp (c * _) * _]Rmult_comm Rmult_comm; exact: Rle_refl.
have r0 k : 0 <= r k by exact: off_part_ge0.
have total : \sum_k r k <= ((1 + d) * (exp c0 * M - 1) + d * leak) * Z by exact: off_parts_le.
set Zf := \big[Rplus/0]_(k | few k) exp (s k).
have Zf1 : 1 <= Zf.
  rewrite /Zf (bigD1 near) //= z1; have : 0 <= \big[Rplus/0]_(k | few k && (k != near)) exp (s k);
    last lra.
  by apply: rsum_ge0 => k _; exact/Rlt_le/exp_pos.
have ZE : Z <= (1 + far') * Zf.
  have -> : Z = Zf + \big[Rplus/0]_(k | ~~ few k) exp (s k) by rewrite /Z (bigID few).
  set fs := bigop _ _ _ in far_s *; have fs0 : 0 <= fs by apply: rsum_ge0 => k _;
    exact/Rlt_le/exp_pos.
  nra.
set D := (1 + d) * (exp c0 * M - 1) + d * leak in total *.
have D0 : 0 <= D.
  have : 0 <= D * Z by apply: Rle_trans total; apply: rsum_ge0 => k _; exact: r0.
  by move=> P; apply: (Rmult_le_reg_r Z) => //; rewrite Rmult_0_l.
split.
  apply: Rle_trans (_ : \big[Rplus/0]_(k | few k) (r k + eta) <= _); first by apply: rsum_le => k _;
    exact: offE.
  have -> : \big[Rplus/0]_(k | few k) (r k + eta) = \big[Rplus/0]_(k | few k) r k
    + INR #|few| * eta.
    rewrite big_split /=; congr (_ + _); rewrite big_const; elim: #|few| => [|n IH];
      first by rewrite /=; ring.
    by rewrite iterS IH S_INR; ring.
  have := rsum_part_le few r0; have ne : 0 <= INR #|few| * eta by apply: Rmult_le_pos => //;
    exact: pos_INR.
  by rewrite /key_error -/D; nra.
apply: Rle_trans (_ : \big[Rplus/0]_(k | ~~ few k) ((1 + d) * exp c0 * exp ((1 - c) * s k) + eta)
  <= _).
  apply: rsum_le => k fk; have ne : (k == near) = false by apply: contraNF fk => /eqP ->.
  have := off k; rewrite ne exp_plus; have -> : exp ((1 - c) * s k)
    = exp (s k) * exp (c * Rabs (s k)).
    by rewrite -exp_plus; congr exp; rewrite Rabs_left1 //; ring.
  by move=> /(Rle_trans _ _ _ (Rle_abs _)); lra.
rewrite big_split -big_distrr /=; apply: Rplus_le_compat_l.
rewrite big_const; have -> : iter #|[pred k | ~~ few k]| (Rplus eta) 0
  = INR #|[pred k | ~~ few k]| * eta.
  by elim: #|_| => [|n IH]; rewrite ?iterS ?IH ?S_INR /=; ring.
by apply: Rmult_le_compat_r => //; apply/le_INR/leP; exact: max_card.
Qed.

Theorem exponentials_off : SOFT_exponentials.
Proof.
move=> K near s s' e c c0 d eta d0 scores exps k; have near_s := scores k; have near_e := exps k.
set y := if k == near then 0 else d in near_e *; have y0 : 0 <= y by rewrite /y; case: eqP => _;
  lra.
set b := c * Rabs (s k) + c0 in near_s *; have p := exp_pos (s k).
have [up down] : exp (s' k) <= exp b * exp (s k) /\ exp (s k) <= exp b * exp (s' k).
  by rewrite -!exp_plus; split; apply: exp_le; move: near_s; rewrite /Rabs; case: Rcase_abs; lra.
have b1 : 1 <= exp b by rewrite -exp_0; apply: exp_le; exact: Rle_trans (Rabs_pos _) near_s.
have moved : Rabs (exp (s' k) - exp (s k)) <= (exp b - 1) * exp (s k).
  have low : (2 - exp b) * exp (s k) <= exp (s' k).
    have q := exp_pos (s' k); have e0 := exp_pos b.
    apply: (Rmult_le_reg_l (exp b)) => //.
    have : exp b * ((2 - exp b) * exp (s k)) <= exp (s k).
      have : 0 <= (exp b - 1) * (exp b - 1) * exp (s k) by apply: Rmult_le_pos;
        [exact: Rle_0_sqr | lra].
      lra.
    lra.
  by apply: Rabs_le; split; lra.
have := Rmult_le_compat_l _ _ _ y0 up.
have := Rabs_triang (e k - exp (s' k)) (exp (s' k) - exp (s k)).
have -> : e k - exp (s' k) + (exp (s' k) - exp (s k)) = e k - exp (s k) by ring.
lra.
Qed.
Theorem quadratic_falls : SOFT_falls.
Proof.
move=> alpha f a0 small; have [lo hi] := Rabs_le_inv _ _ small; split; last first.
  move=> z; rewrite /centred; have zz : Rabs (IZR z) <= IZR (z * z).
    by rewrite -abs_IZR; apply: IZR_le; nia.
  have := Rmult_le_compat _ _ _ _ (Rabs_pos (IZR z)) (Rabs_pos f) zz (Rle_refl (Rabs f)).
  have := Rle_abs (IZR z * f); rewrite Rabs_mult => le le'.
  have := Rmult_le_compat_l _ _ _ a0 (Rle_trans _ _ _ le le'); lra.
split=> [|x y [x0 xy]]; first by rewrite /centred /=; ring.
have sides g : Rabs g <= / 2 -> - alpha * (IZR (y * y) - 2 * IZR y * g) <=
  - alpha * (IZR (x * x) - 2 * IZR x * g).
  move=> /Rabs_le_inv [lg hg]; case: (Z_le_lt_eq_dec _ _ xy) => [lt|->]; last exact: Rle_refl.
  have h : 0 <= (IZR y - IZR x) * (IZR y + IZR x - 2 * g).
    have xR := IZR_le _ _ x0; have yR : IZR x + 1 <= IZR y by rewrite -plus_IZR; apply: IZR_le; lia.
    by apply: Rmult_le_pos; lra.
  have := Rmult_le_compat_l _ _ _ a0 h; rewrite !mult_IZR; lra.
split; first exact: sides.
have := sides (- f); rewrite Rabs_Ropp => /(_ small).
by rewrite /centred !Z.mul_opp_opp !opp_IZR; lra.
Qed.

(** ** The keys near the target, and what the others weigh *)
Section Beyond.
Variables (s : Z -> R) (total : R).
Hypothesis sums : over_integers s total.
Let u side m := exp (s (side * (Z.of_nat m + 1))%Z).
Let part side M := \big[Rplus/0]_(m < M) u side m.
Lemma u_ge0 side m : 0 <= u side m. Proof. exact/Rlt_le/exp_pos. Qed.
Lemma part_grows_le side M N : (M <= N)%N -> part side M <= part side N.
Proof. by move=> le; apply: (part_le (v := u side)) => // m _; exact: u_ge0. Qed.
Lemma parts_le_total M N : exp (s 0%Z) + part 1 M + part (-1) N <= total.
Proof.
pose L := maxn M N; apply: Rle_trans (axis_le_total L sums).
have lt : (L < (L + L).+1)%N by rewrite ltnS leq_addr.
have E : \big[Rplus/0]_(m < (L + L).+1) exp (s (Z.of_nat m - Z.of_nat L)%Z)
  = \big[Rplus/0]_(m < (L + L).+1) exp (s (Z.of_nat m - Z.of_nat (Ordinal lt))%Z) by [].
rewrite E (axis_splitE (fun z => exp (s z))) /=.
have -> : ((L + L).+1 - L.+1 = L)%N by rewrite subSS addnK.
by apply: Rplus_le_compat; [apply: Rplus_le_compat_l|]; apply: part_grows_le;
  [exact: leq_maxl | exact: leq_maxr].
Qed.
Lemma beyondE r : beyond s total r = total - (exp (s 0%Z) + part 1 r + part (-1) r).
Proof.
have lt : (r < (r + r).+1)%N by rewrite ltnS leq_addr.
rewrite /beyond; congr (_ - _).
have -> : \big[Rplus/0]_(m < (r + r).+1) exp (s (Z.of_nat m - Z.of_nat r)%Z)
  = \big[Rplus/0]_(m < (r + r).+1) exp (s (Z.of_nat m - Z.of_nat (Ordinal lt))%Z) by [].
by rewrite (axis_splitE (fun z => exp (s z))) /=; have -> : ((r + r).+1 - r.+1 = r)%N
  by rewrite subSS addnK.
Qed.
Lemma axis_le_all N (p : 'I_N) : \big[Rplus/0]_(j < N) exp (s (Z.of_nat j - Z.of_nat p)%Z) <= total.
Proof. rewrite (axis_splitE (fun z => exp (s z))); exact: parts_le_total. Qed.
Definition outside r z : R := if (Z.abs z <=? Z.of_nat r)%Z then 0 else exp (s z).
Lemma axis_beyond_le N (p : 'I_N) r : \big[Rplus/0]_(j < N) outside r (Z.of_nat j - Z.of_nat p)%Z
  <= beyond s total r.
Proof.
rewrite axis_splitE beyondE; have -> : outside r 0 = 0 by rewrite /outside; case: Z.leb_spec0 => //;
  lia.
have side M d : d = 1%Z \/ d = (-1)%Z ->
    \big[Rplus/0]_(m < M) outside r (d * (Z.of_nat m + 1))%Z + part d r <= part d (maxn M r).
  move=> dir; have E m : outside r (d * (Z.of_nat m + 1)) = if (m < r)%N then 0 else u d m.
    rewrite /outside /u; case: Z.leb_spec0 => le; case: ltnP => /leP lt //; exfalso.
      by case: dir le => ->; lia.
    by case: dir le => ->; lia.
  have in_all : part d r = \big[Rplus/0]_(m < maxn M r) (if (m < r)%N then u d m else 0).
    rewrite /part (big_ord_widen (maxn M r) (u d) (leq_maxr M r)) big_mkcond.
    by apply: eq_bigr => m _.
  have out_all : \big[Rplus/0]_(m < M) outside r (d * (Z.of_nat m + 1))%Z
      <= \big[Rplus/0]_(m < maxn M r) (if (m < r)%N then 0 else u d m).
    under eq_bigr do rewrite E.
    apply: (part_le (v := fun m => if (m < r)%N then 0 else u d m)); last exact: leq_maxl.
    by move=> m _; case: ifP => _; [exact: Rle_refl | exact: u_ge0].
  have -> : part d (maxn M r) = \big[Rplus/0]_(m < maxn M r) (if (m < r)%N then 0 else u d m)
      + \big[Rplus/0]_(m < maxn M r) (if (m < r)%N then u d m else 0).
    by rewrite /part -big_split; apply: eq_bigr => m _ /=; case: ifP => _; ring.
  by rewrite in_all; lra.
have := side (N - p.+1)%N 1%Z (or_introl erefl); have := side p (-1)%Z (or_intror erefl).
by have := parts_le_total (maxn (N - p.+1) r) (maxn p r); lra.
Qed.
End Beyond.
(** Keys of the cube differ in their places along the axes, of which there are [2 r + 1]. A key
    outside is far along some axis; the sum over those that are far along one axis is a product of
    sums over the axes. *)
Theorem near_keys : SOFT_cube.
Proof.
move=> n size near r; split.
  pose code (k : box size) : {ffun 'I_n -> 'I_(r + r).+1} :=
    [ffun i => inord (Z.to_nat (Z.of_nat (k i) - Z.of_nat (near i) + Z.of_nat r))].
  have codeK k i : k \in cube near r ->
    (Z.of_nat (code k i) - Z.of_nat r = Z.of_nat (k i) - Z.of_nat (near i))%Z.
    rewrite /cube unfold_in => /forallP /(_ i) /Z.leb_spec0; rewrite ffunE.
    move: (Z.of_nat (k i) - Z.of_nat (near i))%Z => y le.
    by rewrite inordK ?ltnS //; first lia; apply/leP; rewrite -plusE; lia.
  have inj : {in cube near r &, injective code}.
    move=> k k' nk nk' E; apply/ffunP => i; apply: val_inj; apply: Nat2Z.inj.
    change (Z.of_nat (nat_of_ord (k i)) = Z.of_nat (nat_of_ord (k' i))).
    by have := codeK _ i nk; have := codeK _ i nk'; rewrite E; lia.
  by rewrite -(card_in_imset inj); apply: leq_trans (max_card _) _; rewrite card_ffun !card_ord.
move=> s total sums.
have each a
  : \big[Rplus/0]_(k : box size | ~~ (Z.abs (Z.of_nat (k a) - Z.of_nat (near a)) <=? Z.of_nat r)%Z)
  exp (around s near k)
    <= beyond (s a) (total a) r * \big[Rmult/1]_(b | b != a) total b.
  pose F b (j : 'I_(size b)) := if b == a then outside (s b) r (Z.of_nat j - Z.of_nat (near b))%Z
    else exp (s b (Z.of_nat j - Z.of_nat (near b))%Z).
  have -> :
    \big[Rplus/0]_(k : box size | ~~ (Z.abs (Z.of_nat (k a) - Z.of_nat (near a)) <=? Z.of_nat r)%Z)
    exp (around s near k)
      = \prod_b \big[Rplus/0]_(j < size b) F b j.
    rewrite (prod_sumE F near) big_mkcond /=; apply: eq_bigr => k _.
    rewrite /around exp_rsumE (bigD1 a) //= [RHS](bigD1 a) //= /F eqxx /outside;
      case: (Z.abs _ <=? _)%Z => /=.
      by rewrite Rmult_0_l.
    by congr (_ * _); apply: eq_bigr => b /negbTE ->.
  rewrite (bigD1 a) //=; apply: Rmult_le_compat.
  - by apply: rsum_ge0 => j _; rewrite /F eqxx /outside; case: ifP => _;
    [exact: Rle_refl | exact/Rlt_le/exp_pos].
  - elim/big_ind: _ => [|x y|b ne]; [lra | exact: Rmult_le_pos |].
    by apply: rsum_ge0 => j _; rewrite /F (negbTE ne); exact/Rlt_le/exp_pos.
  - by under eq_bigr do rewrite /F eqxx; exact: axis_beyond_le.
  - suff : 0 <= \big[Rmult/1]_(b | b != a) (\big[Rplus/0]_(j < size b) F b j)
    <= \big[Rmult/1]_(b | b != a) total b by case.
    elim/big_ind2: _ => [|x1 x2 y1 y2 Hx Hy|b ne]; first by split; lra.
      by split; [apply: Rmult_le_pos; lra | apply: Rmult_le_compat; lra].
    have -> : \big[Rplus/0]_(j < size b) F b j = \big[Rplus/0]_(j < size b) exp
      (s b (Z.of_nat j - Z.of_nat (near b))%Z).
      by apply: eq_bigr => j _; rewrite /F (negbTE ne).
    by split; [apply: rsum_ge0 => j _; exact/Rlt_le/exp_pos | exact: axis_le_all].
apply: Rle_trans
  (_ : \sum_a
  \big[Rplus/0]_(k : box size | ~~ (Z.abs (Z.of_nat (k a) - Z.of_nat (near a)) <=? Z.of_nat r)%Z)
    exp (around s near k) <= _); last by apply: rsum_le => a _; exact: each.
under [X in _ <= X]eq_bigr do rewrite big_mkcond.
rewrite exchange_big [X in X <= _]big_mkcond /=; apply: rsum_le => k _.
case: (boolP (cube near r k)) => [_|] /=.
  by apply: rsum_ge0 => a _; case: ifP => _; [exact/Rlt_le/exp_pos | exact: Rle_refl].
rewrite /cube negb_forall => /existsP [a far_a]; rewrite (bigD1 a) //= far_a.
rewrite -{1}[exp _]Rplus_0_r; apply: Rplus_le_compat_l; apply: rsum_ge0 => b _.
by case: ifP => _; [exact/Rlt_le/exp_pos | exact: Rle_refl].
Qed.

(** ** Mutant

    What all scores are off by costs nothing, since a softmax does not change when all scores
    move *)
Definition mutant := off_by_keys (fun _ => 0).
Theorem mutant_refuted : ~ mutant.
Proof.
have l2 : 0 < ln 2 by apply: ln_gt0; lra.
have one : xpredT =1 pred1 tt by case.
move=> /(_ _ predT tt (fun _ => 0) (fun _ => 2) 0 (ln 2) 0 0 1 0 0).
rewrite /off_by_key /key_error /softmax !(big_pred1 tt one) exp_0 Rmult_0_l exp_0 big_pred0 //.
have a : [/\ 0 <= 0, 0 <= ln 2, 0 <= 0 & 0 <= 0] by split; lra.
have b (k : unit) : Rabs (2 - 1) <= ((1 + (if k == tt then 0 else 0)) * exp (0 + ln 2) - 1) * 1 + 0.
  rewrite Rplus_0_l exp_ln; last lra.
  by rewrite Rabs_pos_eq; [case: eqP => _; lra | lra].
have c : 1 / 1 * 1 <= 1 by lra. have d : 1 - 1 / 1 <= 0 by lra.
move=> /(_ a isT erefl (fun _ => Rle_refl 0) b c d (Rle_refl 0)) [+ _].
have -> : 2 - 1 = 1 :> R by ring.
by rewrite Rabs_R1; lra.
Qed.
