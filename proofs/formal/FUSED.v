(** * FUSED: a fused kernel, which rescales its sums as the maximum grows and divides after mixing

    Part of claim SOFT. Each block of keys multiplies what the sums are off by, by (1 + r) (1 + d);
    so both are near those of exact arithmetic, and their quotient is near the mean. *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Lemma abs_between_le y b : Rabs y <= b -> - b <= y <= b.
Proof. by rewrite /Rabs; case: Rcase_abs; lra. Qed.
Section Fused.
Variables (K : finType) (s x : K -> R) (d r range : R).
Hypotheses (d01 : 0 <= d <= 1) (r0 : 0 <= r) (small : forall k, Rabs (x k) <= range).
Let L keys m := \big[Rplus/0]_(k <- keys) exp (s k - m).
Let O keys m := \big[Rplus/0]_(k <- keys) (exp (s k - m) * x k).
Let g n := ((1 + r) * (1 + d)) ^ n - 1.
Lemma g_ge0 n : 0 <= g n.
Proof. by rewrite /g; have := pow_R1_Rle ((1 + r) * (1 + d)) n ltac:(nra); lra. Qed.
Lemma range_ge0 (k : K) : 0 <= range. Proof. by have := Rabs_pos (x k); have := small k; lra. Qed.
Lemma L_ge0 keys m : 0 <= L keys m. Proof. by apply: rsum_ge0 => k _; exact/Rlt_le/exp_pos. Qed.
Lemma O_le keys m : Rabs (O keys m) <= range * L keys m.
Proof.
rewrite /L big_distrr /=; apply: Rle_trans (rsum_abs_le _ _ _) _; apply: rsum_le => k _.
rewrite Rabs_mult (Rabs_pos_eq (exp _)); last exact/Rlt_le/exp_pos.
by rewrite Rmult_comm; apply: Rmult_le_compat_r; [exact/Rlt_le/exp_pos | exact: small].
Qed.
Lemma movedE keys m m' :
  L keys m' = L keys m * exp (m - m') /\ O keys m' = O keys m * exp (m - m').
Proof.
have E k : exp (s k - m') = exp (s k - m) * exp (m - m') by rewrite -exp_plus; congr exp; ring.
by split; rewrite /L /O big_distrl /=; apply: eq_bigr => k _; rewrite E; ring.
Qed.
Lemma sums_near_le (A : K -> R) block (F G : K -> R) : (forall k, Rabs (F k - G k) <= A k) ->
  Rabs (\big[Rplus/0]_(k <- block) F k - \big[Rplus/0]_(k <- block) G k)
    <= \big[Rplus/0]_(k <- block) A k.
Proof.
move=> H; elim: block => [|k block IH]; first by rewrite !big_nil Rminus_eq_0 Rabs_R0; lra.
rewrite !big_cons; have := Rabs_triang (F k - G k) (\big[Rplus/0]_(j <- block) F j
  - \big[Rplus/0]_(j <- block) G j); set u := \big[_/_]_(j <- block) F j in IH *.
set v := \big[_/_]_(j <- block) G j in IH *.
have -> : F k - G k + (u - v) = F k + u - (G k + v) by ring.
by have := H k; lra.
Qed.
(** A rescaled sum [T] of [O], off by [q0 B], where [B] bounds [O], and what a block adds. *)
Lemma rescaled_le q0 a c T O0 B : 0 <= q0 -> 0 <= a -> Rabs (c - a) <= d * a -> Rabs O0 <= B ->
  Rabs (T - O0) <= q0 * B ->
  Rabs (T * c - O0 * a) <= ((1 + q0) * (1 + d) - 1) * (B * a) /\
  Rabs T * c <= (1 + q0) * (1 + d) * (B * a).
Proof.
move=> q00 a0 near OB TO; have B0 : 0 <= B by have := Rabs_pos O0; lra.
have c_le : 0 <= c <= (1 + d) * a by move: near; rewrite /Rabs; case: Rcase_abs; nra.
have T_le : Rabs T <= (1 + q0) * B.
  have := Rabs_triang (T - O0) O0; have -> : T - O0 + O0 = T by ring.
  by lra.
have -> : T * c - O0 * a = (T - O0) * c + O0 * (c - a) by ring.
split; last by have := Rabs_pos T; have := Rmult_le_pos _ _ B0 a0; nra.
apply: Rle_trans (Rabs_triang _ _) _; rewrite !Rabs_mult (Rabs_pos_eq c); last lra.
have p1 : Rabs (T - O0) * c <= q0 * B * ((1 + d) * a).
  by apply: Rmult_le_compat; [exact: Rabs_pos | lra | exact: TO | lra].
have p2 : Rabs O0 * Rabs (c - a) <= B * (d * a).
  by apply: Rmult_le_compat => //; exact: Rabs_pos.
by lra.
Qed.
(** By induction on the blocks: the sums are rescaled, the block is added, and the additions round;
    each multiplies what the sums of absolute values are off by. *)
Lemma off_le keys n state : fused (fun m m' => exp (m - m')) s x d r keys n state ->
  Rabs (weight_sum state - L keys (highest state)) <= g n * L keys (highest state) /\
  (forall k : K, Rabs (token_sum state - O keys (highest state))
    <= g n * (range * L keys (highest state))).
Proof.
elim=> [m|{}keys {}n before block after _ [IHW IHT] [c [e [near_c near_e W T]]]].
  by rewrite /L /O !big_nil /=; split=> [|k]; rewrite Rminus_eq_0 Rabs_R0; rewrite /g /=; lra.
have g0 := g_ge0 n; set q := (1 + g n) * (1 + d) - 1.
have gE : g n.+1 = (1 + r) * (1 + q) - 1 by rewrite /g /q /=; rewrite /g; ring.
have dq : d <= q by rewrite /q; nra.
set m := highest before in near_c IHW IHT *; set m' := highest after in near_c near_e *.
have a0 := exp_pos (m - m'); set a := exp (m - m') in near_c a0 *.
have [LE OE] := movedE keys m m'; rewrite -/a in LE OE.
have Lcat : L (keys ++ block) m' = L keys m * a + L block m' by rewrite /L big_cat /= -LE.
have Ocat : O (keys ++ block) m' = O keys m * a + O block m' by rewrite /O big_cat /= -OE.
have L0 := L_ge0 keys m; have S0 := L_ge0 block m'.
have La0 : 0 <= L keys m * a by nra.
have sumE : Rabs (\big[Rplus/0]_(k <- block) e k - L block m') <= d * L block m'.
  by rewrite /L [d * _]big_distrr /=; apply: sums_near_le.
have eW k : Rabs (e k * x k - exp (s k - m') * x k) <= d * range * exp (s k - m').
  have -> : e k * x k - exp (s k - m') * x k = (e k - exp (s k - m')) * x k by ring.
  rewrite Rabs_mult; have -> : d * range * exp (s k - m') = d * exp (s k - m') * range by ring.
  by apply: Rmult_le_compat; [exact: Rabs_pos | exact: Rabs_pos | exact: near_e | exact: small].
have sumT : Rabs (\big[Rplus/0]_(k <- block) (e k * x k) - O block m') <= d * range * L block m'.
  by rewrite /L [_ * \big[_/_]_(k <- block) _]big_distrr /=; apply: sums_near_le.
have [W1 W2] := rescaled_le g0 (Rlt_le _ _ a0) near_c (Req_le _ _ (Rabs_pos_eq _ L0)) IHW.
rewrite -/q in W1.
have close (y y' z bound b : R) : Rabs (y - z) <= r * b -> Rabs (z - y') <= q * bound ->
    b <= (1 + q) * bound -> Rabs (y - y') <= g n.+1 * bound.
  move=> H1 H2 H3; have := Rabs_triang (y - z) (z - y').
  have -> : y - z + (z - y') = y - y' by ring.
  by have := Rmult_le_compat_l r _ _ r0 H3; rewrite gE; lra.
have split2 (u v u' v' : R) : Rabs (u + v - (u' + v')) <= Rabs (u - u') + Rabs (v - v').
  have -> : u + v - (u' + v') = u - u' + (v - v') by ring.
  exact: Rabs_triang.
split.
  rewrite Lcat; apply: close W _ _.
    by apply: Rle_trans (split2 _ _ _ _) _; have := Rmult_le_compat_r _ _ _ S0 dq; lra.
  have := Rle_abs (weight_sum before * c - L keys m * a); move: W1 sumE => W1.
  by move=> /abs_between_le; have := Rmult_le_compat_r _ _ _ S0 dq; lra.
move=> k0; have R0 := range_ge0 k0.
have [T1 T2] := rescaled_le g0 (Rlt_le _ _ a0) near_c (O_le keys m) (IHT k0); rewrite -/q in T1 T2.
have RS0 := Rmult_le_pos _ _ R0 S0; have dS := Rmult_le_compat_r _ _ _ RS0 dq.
rewrite Lcat Ocat; apply: close T _ _.
  by apply: Rle_trans (split2 _ _ _ _) _; lra.
have eX : \big[Rplus/0]_(k <- block) (e k * Rabs (x k)) <= (1 + d) * (range * L block m').
  have -> : (1 + d) * (range * L block m') = (1 + d) * range * L block m' by ring.
  rewrite /L [_ * \big[_/_]_(k <- block) _]big_distrr /=; apply: rsum_le => k _.
  have e_le : e k <= (1 + d) * exp (s k - m').
    by have := near_e k; move=> /abs_between_le; lra.
  have := exp_pos (s k - m') => E0; have := Rabs_pos (x k); have := small k => xr x0.
  have := Rmult_le_compat_r _ _ _ x0 e_le; have : 0 <= (1 + d) * exp (s k - m') by nra.
  move=> p; have := Rmult_le_compat_l _ _ _ p xr; lra.
have qE : (1 + g n) * (1 + d) = 1 + q by rewrite /q; ring.
by rewrite qE in T2; lra.
Qed.
End Fused.

(** The two sums are near their exact values, so their quotient is near the quotient of these, which
    does not depend on the maximum: the softmax drops it. *)
Theorem fused_attention : SOFT_fused.
Proof.
move=> K s x d r range keys n state d01 r0 small some perm run g g1.
have /card_gt0P [k0 _] := some.
have [W T] := off_le d01 r0 small run; have {}T := T k0; have g0 := g_ge0 d01 r0 n.
rewrite -/g in g0 W T.
have all (F : K -> R) : \big[Rplus/0]_(k <- keys) F k = \sum_k F k.
  by rewrite (perm_big _ perm) /= big_enum.
set m := highest state in W T; rewrite !all in W T.
pose Z := \sum_k exp (s k - m); have Z0 : 0 < Z by apply: (rsum_gt0 k0) => k; exact: exp_pos.
pose O := \sum_k exp (s k - m) * x k; rewrite -/Z -/O in W T.
have Oz : Rabs O <= range * Z by have := @O_le K s x range small (enum K) m; rewrite !big_enum.
have -> : \sum_k softmax s k * x k = O / Z.
  rewrite /O /Rdiv big_distrl /=; apply: eq_bigr => k _; rewrite -(softmax_shift _ (- m)).
  by change (exp (s k - m) / Z * x k = exp (s k - m) * x k * / Z); rewrite /Rdiv; ring.
have W0 : (1 - g) * Z <= weight_sum state by move: W => /abs_between_le; lra.
have w0 : 0 < weight_sum state by apply: Rlt_le_trans W0; apply: Rmult_lt_0_compat; lra.
set w := weight_sum state in W W0 w0 *; set t := token_sum state in T *.
have -> : t / w - O / Z = ((t - O) * Z - O * (w - Z)) / (w * Z) by field; lra.
have R0 : 0 <= range by have := Rabs_pos (x k0); have := small k0; lra.
rewrite /Rdiv Rabs_mult (Rabs_pos_eq (/ _)); last by apply/Rlt_le/Rinv_0_lt_compat; nra.
have top_le : Rabs ((t - O) * Z - O * (w - Z)) <= 2 * g * range * Z * Z.
  apply: Rle_trans (Rabs_triang _ _) _; rewrite Rabs_Ropp !Rabs_mult (Rabs_pos_eq Z); last lra.
  have := Rmult_le_compat_r Z _ _ (Rlt_le _ _ Z0) T.
  have := Rmult_le_compat _ _ _ _ (Rabs_pos O) (Rabs_pos (w - Z)) Oz W; lra.
apply: Rle_trans (Rmult_le_compat_r _ _ _ _ top_le) _; first by apply/Rlt_le/Rinv_0_lt_compat; nra.
apply: (Rmult_le_reg_r (w * (1 - g))); first nra.
have -> : 2 * g * range * Z * Z * / (w * Z) * (w * (1 - g)) = 2 * g * range * ((1 - g) * Z)
  by field; lra.
have -> : 2 * g * / (1 - g) * range * (w * (1 - g)) = 2 * g * range * w by field; lra.
by apply: Rmult_le_compat_l => //; nra.
Qed.

(** ** Mutants: half of the bound; and sums that are not rescaled to the new maximum *)
Definition both_keys : seq bool := [:: true; false].
Lemma both_perm : perm_eq both_keys (enum bool_finType).
Proof. by apply: uniq_perm; rewrite ?enum_uniq // => -[]; rewrite mem_enum. Qed.
Lemma some_key_gt0 : (0 < #|bool_finType|)%N. Proof. by rewrite card_bool. Qed.
Lemma sum_bothE (F : bool -> R) : \big[Rplus/0]_(k <- both_keys) F k = F true + F false.
Proof. by rewrite !big_cons big_nil Rplus_0_r. Qed.
Lemma no_error_le : 0 <= 0 <= 1. Proof. by lra. Qed.
Ltac on_numbers := rewrite /Rabs; repeat case: Rcase_abs; lra.
Definition mutant_half := fused_within (fun m m' => exp (m - m')) (fun g => g / (1 - g)).
Theorem mutant_half_refuted : ~ mutant_half.
Proof.
have run : fused (fun m m' => exp (m - m')) (fun _ => 0) (fun _ => 1) 0 (/ 4) both_keys 1
    (Running 0 (3 / 2) (5 / 2)).
  apply: (@Another_block _ _ _ _ _ _ [::] 0 (Running 0 0 0) both_keys); first exact: No_block.
  exists 1, (fun _ => 1); rewrite /= !sum_bothE Rminus_0_r exp_0.
  by split=> [|k||]; on_numbers.
have r0 : 0 <= / 4 by lra. have x1 (k : bool) : Rabs 1 <= 1 by rewrite Rabs_R1; lra.
move=> /(_ _ _ _ _ _ _ _ _ _ no_error_le r0 x1 some_key_gt0 both_perm run).
rewrite /= rsum_bool /softmax rsum_bool exp_0 => /(_ ltac:(lra)) /abs_between_le; lra.
Qed.
Definition mutant_not_rescaled := fused_within (fun m m' => 1) (fun g => 2 * g / (1 - g)).
Theorem mutant_not_rescaled_refuted : ~ mutant_not_rescaled.
Proof.
pose s (k : bool) := if k then 0 else ln 2; pose x (k : bool) := if k then 1 else 0.
have l2 := proj1 exp_ln2E.
have run : fused (fun m m' => 1) s x 0 0 both_keys 2 (Running (ln 2) 2 1).
  apply: (@Another_block _ _ _ _ _ _ [:: true] 1 (Running 0 1 1) [:: false]).
    apply: (@Another_block _ _ _ _ _ _ [::] 0 (Running 0 0 0) [:: true]); first exact: No_block.
    exists 1, (fun k => exp (s k - 0)); rewrite /= !big_cons !big_nil /s /x /= !Rminus_0_r exp_0.
    by split=> [|k||]; rewrite ?Rminus_eq_0 ?Rmult_0_l ?Rabs_R0 ?Rabs_R1; on_numbers.
  exists 1, (fun k => exp (s k - ln 2)); rewrite /= !big_cons !big_nil /s /x /= !Rminus_eq_0 exp_0.
  by split=> [|k||]; rewrite ?Rminus_eq_0 ?Rmult_0_l ?Rabs_R0 ?Rabs_R1; on_numbers.
have x1 k : Rabs (x k) <= 1 by rewrite /x; case: k; on_numbers.
move=> /(_ _ _ _ _ _ _ _ _ _ no_error_le (Rle_refl 0) x1 some_key_gt0 both_perm run).
rewrite /= rsum_bool /softmax !rsum_bool /s /x l2 exp_0 => /(_ ltac:(lra)) /abs_between_le; lra.
Qed.
