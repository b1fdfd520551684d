(** * LEFT: Keys that are left out

    Claim: Leaving out any set of keys but the target's only takes from what leaks: the share of the
    target in the softmax of the others is no smaller, so the mean of the others, as computed, is as
    near to the target's number as the mean of all, whatever the keys weigh that are left out. And
    the bound of ROW holds as it stands where the keys beyond an interval of each axis, which holds
    the target, have the exponential 0: over all keys at once, and axis after axis. For ROW is of
    any scores that fall on both sides of the target, so also of scores that are lower beyond the
    interval, by as much as makes an exponential less than what the row lets one lose.
    Source: this project.
    Does not show: That an engine leaves out what lies beyond an interval: its scores fall as
    computed, since rounding keeps the order of numbers. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Checker Rows.
From C2A Require Import Statements Sums L1 FLOAT SOFT ROW.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** The sum of fewer exponentials is smaller, so that the target's share is larger. *)
Theorem left_out : LEFT.
Proof.
move=> s K few kept z w x t target N off far range leak keeps set few_ok NK offw farw small leaks.
pose p := share_of kept z; pose Z := \big[Rplus/0]_(j | kept j) exp (z j).
have e0 j : 0 <= exp (z j) by exact/Rlt_le/exp_pos.
have Z0 : 0 < Z.
  rewrite /Z (bigD1 target) //=; apply: Rplus_lt_le_0_compat; first exact: exp_pos.
  by apply: rsum_ge0 => j _.
have p0 i : 0 <= p i.
  rewrite /p /share_of; case: ifP => _; last exact: Rle_refl.
  by apply: Rmult_le_pos => //; exact/Rlt_le/Rinv_0_lt_compat.
have p1 : \sum_i p i = 1.
  rewrite /p /share_of -big_mkcond /= /Rdiv -big_distrl /=; apply: Rinv_r.
  exact: Rgt_not_eq.
have more : 1 - p target <= leak.
  apply: Rle_trans leaks; rewrite /p /share_of keeps /softmax; apply: Rplus_le_compat_l.
  apply: Ropp_le_contravar; apply: Rmult_le_compat_l => //; apply: Rinv_le_contravar => //.
  exact: rsum_part_le.
have M := SOFT.mixing set few_ok NK p0 p1 offw farw small.
have read : Rabs (\sum_i p i * x i - x target) <= 2 * leak * range.
  have -> : \sum_i p i * x i - x target = \sum_i p i * (x i - x target).
    have {1}-> : x target = \sum_i p i * x target by rewrite -big_distrl /= p1 Rmult_1_l.
    by rewrite rsum_minus; apply: eq_bigr => i _; ring.
  apply: Rle_trans (rsum_abs_le _ _ _) _.
  rewrite (bigD1 target) //= Rminus_eq_0 Rmult_0_r Rabs_R0 Rplus_0_l.
  have r0 : 0 <= range by apply: Rle_trans (small target); exact: Rabs_pos.
  apply: Rle_trans (_ : (1 - p target) * (2 * range) <= _); last by nra.
  have -> : 1 - p target = \big[Rplus/0]_(i | i != target) p i.
    by rewrite -p1 (bigD1 target) //=; ring.
  rewrite big_distrl /=; apply: rsum_le => i _; rewrite Rabs_mult (Rabs_pos_eq _ (p0 i)).
  apply: Rmult_le_compat_l => //; have := Rabs_triang (x i) (- x target); rewrite Rabs_Ropp.
  by have := small i; have := small target; rewrite /Rminus; lra.
have := Rabs_triang (computed s w x 0 t - \sum_i p i * x i) (\sum_i p i * x i - x target).
set m := \sum_i _ in M read *.
have -> : computed s w x 0 t - m + (m - x target) = computed s w x 0 t - x target by ring.
by lra.
Qed.

(** ** Scores that are lower beyond an interval

    [ROW] is of any scores that fall on both sides of the target, so also of these. *)
Definition lowered (lowest highest : Z) (L : R) (s : Z -> R) (x : Z) : R :=
  s x - (if ((lowest <=? x) && (x <? highest))%Z then 0 else L).
(** They fall on both sides of 0 as before, if 0 is in the interval. *)
Lemma lowered_sharp hd lowest highest L s : (lowest <= 0 < highest)%Z -> 0 <= L -> sharp hd s ->
  sharp hd (lowered lowest highest L s).
Proof.
move=> [l0 h0] L0 [[s0 falling] low]; rewrite /lowered; split; last first.
  by move=> x; have := low x; case: ifP => _; lra.
split=> [|x y xy].
  have -> : ((lowest <=? 0) && (0 <? highest))%Z
    by apply/andP; split; [apply/Z.leb_le | apply/Z.ltb_lt].
  by rewrite s0; ring.
have [down up] := falling _ _ xy; split.
- case: ifP => [/andP [/Z.leb_le y1 /Z.ltb_lt y2]|_]; last by case: ifP => _; lra.
  rewrite ifT; first lra.
  by apply/andP; split; [apply/Z.leb_le; lia | apply/Z.ltb_lt; lia].
- case: ifP => [/andP [/Z.leb_le y1 /Z.ltb_lt y2]|_]; last by case: ifP => _; lra.
  rewrite ifT; first lra.
  by apply/andP; split; [apply/Z.leb_le; lia | apply/Z.ltb_lt; lia].
Qed.
(** An exponential of no more than what the row lets one lose may be 0. *)
Lemma left_out_off hd (c0 : (0 <= Rows.score hd)%Z) (l0 : (0 <= Rows.score_lost hd)%Z)
  (d0 : (0 <= Rows.ulps hd)%Z) (here : bool) u :
  exp u <= dyadic (Rows.exp_lost hd) ->
  Rabs (0 - exp u) <= ((1 + (if here then 0 else dyadic (Rows.ulps hd)))
    * exp (dyadic (Rows.score hd) * Rabs u + dyadic (Rows.score_lost hd)) - 1) * exp u
    + dyadic (Rows.exp_lost hd).
Proof.
move=> small.
have grown : 1 <= (1 + (if here then 0 else dyadic (Rows.ulps hd)))
    * exp (dyadic (Rows.score hd) * Rabs u + dyadic (Rows.score_lost hd)).
  have e1 : 1 <= exp (dyadic (Rows.score hd) * Rabs u + dyadic (Rows.score_lost hd)).
    have p : 0 <= dyadic (Rows.score hd) * Rabs u + dyadic (Rows.score_lost hd).
      by have := Rabs_pos u; have := val_ge0 c0; have := val_ge0 l0; nra.
    by have := exp_ineq1_le (dyadic (Rows.score hd) * Rabs u + dyadic (Rows.score_lost hd)); lra.
  by have := val_ge0 d0; case: here; nra.
rewrite Rminus_0_l Rabs_Ropp Rabs_pos_eq; last exact/Rlt_le/exp_pos.
set G := _ * exp (_ + _) in grown *; have e0 := exp_pos u.
have : 0 <= (G - 1) * exp u by apply: Rmult_le_pos; lra.
by lra.
Qed.
Lemma lowered_exp_le hd L u : (0 < Rows.exp_lost hd)%Z ->
  L = Rabs (ln (dyadic (Rows.exp_lost hd))) -> u <= - L -> exp u <= dyadic (Rows.exp_lost hd).
Proof.
move=> eta0 -> le; have eta : 0 < dyadic (Rows.exp_lost hd) by rewrite -val0; exact: val_lt.
rewrite -[X in _ <= X]exp_ln //; have {}le : u <= ln (dyadic (Rows.exp_lost hd)).
  by have := Rle_abs (- ln (dyadic (Rows.exp_lost hd))); rewrite Rabs_Ropp; lra.
by case: le => [lt|->]; [left; exact: exp_increasing | right].
Qed.
(** On the interval nothing is lowered, and beyond it by [L]; [j] and the target are places. *)
Lemma loweredE (first last target j : nat) L s :
  lowered (Z.of_nat first - Z.of_nat target) (Z.of_nat last - Z.of_nat target) L s
    (Z.of_nat j - Z.of_nat target)
  = s (Z.of_nat j - Z.of_nat target)%Z - (if (first <= j < last)%N then 0 else L).
Proof.
rewrite /lowered; congr (_ - _).
have -> : ((Z.of_nat first - Z.of_nat target <=? Z.of_nat j - Z.of_nat target)
    && (Z.of_nat j - Z.of_nat target <? Z.of_nat last - Z.of_nat target))%Z = (first <= j < last)%N.
  by congr andb; [apply/Z.leb_spec0/idP => [|/leP] | apply/Z.ltb_spec0/idP => [|/ltP]];
    move=> H; try (apply/leP); lia.
by [].
Qed.
Lemma sharp_le0 hd (a0 : (0 <= Rows.alpha hd)%Z) s x : sharp hd s -> s x <= 0.
Proof.
move=> [_ low]; have sq : 0 <= IZR (x * x) by apply: IZR_le; nia.
by have := Rmult_le_pos _ _ (val_ge0 a0) sq; have := low x; lra.
Qed.
Lemma lowered_axis hd A N (target : 'I_N) (s : Z -> R) (e kept : 'I_N -> R) first last L :
  L = Rabs (ln (dyadic (Rows.exp_lost hd))) -> sound A -> (0 <= Rows.score hd)%Z ->
  (0 <= Rows.score_lost hd)%Z -> (0 <= Rows.ulps hd)%Z -> (0 < Rows.exp_lost hd)%Z ->
  (0 <= Rows.alpha hd)%Z -> sharp hd s -> (first <= target < last)%N ->
  device_exponentials hd A target (fun j => s (Z.of_nat j - Z.of_nat target)%Z) kept ->
  (forall j, e j = if (first <= j < last)%N then kept j else 0) ->
  device_exponentials hd A target (fun j => lowered (Z.of_nat first - Z.of_nat target)
    (Z.of_nat last - Z.of_nat target) L s (Z.of_nat j - Z.of_nat target)) e.
Proof.
move=> LE soundA c0 l0 d0 eta0 a0 sharp_s held [at1 kept_ok near] eE; split.
- by rewrite eE held.
- move=> j; rewrite eE; case: ifP => _; first exact: kept_ok.
  by have [_ [zero_ok _ _ _ _]] := soundA; split=> //; lra.
move=> j; rewrite loweredE eE; case: ifP => [_|out]; first by rewrite Rminus_0_r; exact: near.
apply: left_out_off => //; apply: (lowered_exp_le (L := L)) => //.
have := sharp_le0 a0 (Z.of_nat j - Z.of_nat target)%Z sharp_s.
by move: (s _) => x; lra.
Qed.
(** Beyond the box one axis at least is lowered, and no score is above 0. *)
Lemma lowered_box hd A n (size : 'I_n -> nat) (target : box size) (s : 'I_n -> Z -> R)
  (e kept : box size -> R) (first last : 'I_n -> nat) L :
  L = Rabs (ln (dyadic (Rows.exp_lost hd))) -> sound A -> (0 <= Rows.score hd)%Z ->
  (0 <= Rows.score_lost hd)%Z -> (0 <= Rows.ulps hd)%Z ->
  (0 < Rows.exp_lost hd)%Z -> (0 <= Rows.alpha hd)%Z -> (forall a, sharp hd (s a)) ->
  (forall a, first a <= target a < last a)%N ->
  device_exponentials hd A target (around s target) kept ->
  (forall k, e k = if [forall a, first a <= k a < last a]%N then kept k else 0) ->
  device_exponentials hd A target (around (fun a => lowered
    (Z.of_nat (first a) - Z.of_nat (target a)) (Z.of_nat (last a) - Z.of_nat (target a)) L (s a))
    target) e.
Proof.
move=> LE soundA c0 l0 d0 eta0 a0 sharp_s held [at1 kept_ok near] eE; split.
- by rewrite eE; have -> : [forall a, first a <= target a < last a]%N by exact/forallP.
- move=> k; rewrite eE; case: ifP => _; first exact: kept_ok.
  by have [_ [zero_ok _ _ _ _]] := soundA; split=> //; lra.
have L0 : 0 <= L by rewrite LE; exact: Rabs_pos.
move=> k; rewrite eE; case: ifP => [/forallP inside|/forallPn [a out]].
  have -> : around (fun a => lowered (Z.of_nat (first a) - Z.of_nat (target a))
      (Z.of_nat (last a) - Z.of_nat (target a)) L (s a)) target k = around s target k.
    by apply: eq_bigr => a _; rewrite loweredE inside Rminus_0_r.
  exact: near.
apply: left_out_off => //; apply: (lowered_exp_le (L := L)) => //.
rewrite /around (bigD1 a) //= loweredE (negbTE out).
have := sharp_le0 a0 (Z.of_nat (k a) - Z.of_nat (target a))%Z (sharp_s a).
set rest := bigop _ _ _; have : rest <= 0; last by move: rest (s a _) => x y; lra.
have -> : 0 = \big[Rplus/0]_(b < n | b != a) 0 by rewrite big1.
apply: rsum_le => b _; rewrite loweredE.
by have := sharp_le0 a0 (Z.of_nat (k b) - Z.of_nat (target b))%Z (sharp_s b);
  move: (s b _) => y; case: ifP => _; lra.
Qed.
(** Each head's scores are lowered beyond its interval, by as much as makes their exponentials less
    than what the row lets one lose; they are as sharp as before, so that [ROW.apart] is of them. *)
Theorem axis_after_axis : LEFT_apart.
Proof.
move=> z hd n g ok keysE G ci co H f X A T reciprocal s e over premises made.
have [fz hsoft ap nE bij within sharp_s dev] := premises.
have [_ [_ _ hf]] := fits_parts fz; rewrite hsoft in hf; have facts := heads_factsP hf.
have made' (i : H * queries g * 'I_n) : exists FL : nat * nat, let: (h, q, a) := i in
    let t := key ok q (f h) in (0 < Rows.exp_lost hd)%Z /\ (FL.1 <= t a < FL.2)%N /\
    exists2 kept, device_exponentials hd A (t a)
      (fun j : 'I_(padded g a) => s h q a (Z.of_nat j - Z.of_nat (t a))%Z) kept &
    forall j, e h q a j = if (FL.1 <= j < FL.2)%N then kept j else 0.
  case: i => [[h q] a].
  have [|eta [first [last [kept [held dk eE]]]]] := made h q (key ok q (f h)) a.
    by rewrite (readsE ok) eqxx.
  by exists (first, last); split=> //; split=> //; exists kept.
have [FL FLE] := fin_all_exists made'.
pose s' h q a := let t := key ok q (f h) in
  lowered (Z.of_nat (FL (h, q, a)).1 - Z.of_nat (t a)) (Z.of_nat (FL (h, q, a)).2 - Z.of_nat (t a))
    (Rabs (ln (dyadic (Rows.exp_lost hd)))) (s h q a).
apply: (@ROW.apart z hd n g ok keysE G ci co H f X A T reciprocal s' e over).
  split=> // h q a; have [_ [/andP [/leP lo /ltP hi] _]] := FLE (h, q, a).
  apply: lowered_sharp => //; last exact: Rabs_pos.
  have := inj_le _ _ lo; have := inj_lt _ _ hi.
  by move: (Z.of_nat _) (Z.of_nat _) (Z.of_nat _) => x y w; lia.
move=> h q target a; rewrite (readsE ok) => /eqP ->.
have [eta [held [kept dk eE]]] := FLE (h, q, a).
have soundA : sound A by have [[[sA _ _] _ _] _] := dev.
have [[c0 _] [l0 _]] := (score_range facts, lost_range facts).
exact: (lowered_axis erefl soundA c0 l0 (ulps_ge0 facts) eta
  (Z.lt_le_incl _ _ (alpha_pos facts)) (sharp_s h q a) held dk eE).
Qed.
(** The same over all keys at once, with an interval for each axis. *)
Theorem at_once : LEFT_whole.
Proof.
move=> z hd n g ok keysE G ci co H f X A T reciprocal s e over premises made.
have [fz hsoft ap nE bij within sharp_s dev] := premises.
have [_ [_ _ hf]] := fits_parts fz; rewrite hsoft in hf; have facts := heads_factsP hf.
have made' (i : H * queries g) : exists FL : {ffun 'I_n -> nat} * {ffun 'I_n -> nat},
    let: (h, q) := i in let t := key ok q (f h) in (0 < Rows.exp_lost hd)%Z /\
    (forall a, FL.1 a <= t a < FL.2 a)%N /\
    exists2 kept, device_exponentials hd A t (around (s h q) t) kept &
    forall k, e h q k = if [forall a, FL.1 a <= k a < FL.2 a]%N then kept k else 0.
  case: i => [h q].
  have [|eta [first [last [kept [held dk eE]]]]] := made h q (key ok q (f h)).
    by rewrite (readsE ok) eqxx.
  exists ([ffun a => first a], [ffun a => last a]); split=> //.
  split=> [a|]; first by have := held a; rewrite /= !ffunE.
  exists kept => // k; rewrite eE.
  have -> // : [forall a, first a <= k a < last a]%N = [forall a, [ffun a => first a] a <= k a
    < [ffun a => last a] a]%N by apply: eq_forallb => a; rewrite !ffunE.
have [FL FLE] := fin_all_exists made'.
pose s' h q a := let t := key ok q (f h) in
  lowered (Z.of_nat ((FL (h, q)).1 a) - Z.of_nat (t a))
    (Z.of_nat ((FL (h, q)).2 a) - Z.of_nat (t a))
    (Rabs (ln (dyadic (Rows.exp_lost hd)))) (s h q a).
apply: (@ROW.whole z hd n g ok keysE G ci co H f X A T reciprocal s' e over).
  split=> // h q a; have [_ [held _]] := FLE (h, q); have /andP [/leP lo /ltP hi] := held a.
  apply: lowered_sharp => //; last exact: Rabs_pos.
  have := inj_le _ _ lo; have := inj_lt _ _ hi.
  by move: (Z.of_nat _) (Z.of_nat _) (Z.of_nat _) => x y w; lia.
move=> h q target; rewrite (readsE ok) => /eqP ->.
have [eta [held [kept dk eE]]] := FLE (h, q).
have soundA : sound A by have [[[sA _ _] _ _] _] := dev.
have [[c0 _] [l0 _]] := (score_range facts, lost_range facts).
exact: (lowered_box erefl soundA c0 l0 (ulps_ge0 facts) eta (Z.lt_le_incl _ _ (alpha_pos facts))
  (sharp_s h q) held dk eE).
Qed.
