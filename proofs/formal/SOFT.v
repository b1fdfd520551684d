(** * SOFT: Heads that are not exactly one-hot, as computed

    Claim: A sum in any order of which N summands count is off by gamma_N of these, and by twice
    what the others weigh, however many they are; where sums truncate, the others must weigh
    nothing. A softmax as computed, from exponentials off by a fraction D of their sum over the N
    keys that count, each divided by the sum, or multiplied with the reciprocal, and stored, is
    within ((v + g)(1 + D) + 2 D + lambda) / ((1 - g)(1 - D) - lambda) + N mu, in all, of its real
    value, g = gamma_N, v = (1 + u)^2 (1 + u') - 1, and what the other keys weigh as computed, and
    twice as they are. For scores s off by c |s| and exponentials off by a fraction d but at the
    nearest key, D is at most (1 + d)(M - 1) + d times the leak, M the mean of e^(c |s|), which over
    the keys of a box is at most (theta((1 - c) alpha) / theta(alpha))^n for a head on a key,
    whatever the box, and a product of such ratios for any scores that fall along each axis. Scores
    of quadratic heads are off by c = (1 + u)^4 (1 + gamma_n) - 1, by (1 + u)(1 + gamma_n) - 1 from
    integers up to 2^p squared, and once more by a rounding where the largest is subtracted; scores
    of absolute features by their sum of products. A mean with weights off by W in all is off by (W
    + gamma_N (1 + W)) X and what the others weigh, for |x| <= X; axis after axis, with bands and
    stored sums, these add up, each for tokens that reach further. A fused kernel, which takes keys
    in B blocks, rescales its sums to a running maximum and divides after mixing, is off by 2 g / (1
    - g) X, 1 + g = ((1 + r)(1 + d))^B, for sums off by r and exponentials off by d. Where the
    target's exponential is 1, no weight exceeds its exponential as stored, so all but the target's
    are at most (1 + u')(1 + d) (theta^n - 1) and underflow; if (1 + gamma) times the others' sum is
    at most u, or the quotient is within u'/2 of 1, the target's weight is exactly 1; then the mean
    is off by 2^(c + 1) G times what the others weigh, c the casts, and not by a fraction of the
    target. If each head reads within epsilon of what its tap reads, the layer and the convolution
    as computed differ by at most S epsilon and the rounding of both, the layer's on tokens that
    reach epsilon further.
    Source: Blanchard, Higham and Higham 2021 for the softmax; this project for the rest.
    Does not show: The error of a device's exponential, which is measured. What underflows in a
    fused kernel. Scores of real centres in arithmetic that flushes. *)
From Coq Require Import Reals ZArith Lra Lia.
From Flocq Require Import Core.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L2c T1 FLOAT.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Laws of the arithmetics *)
Section Formats.
Variables emin p : Z.
Hypothesis p1 : (1 < p)%Z.
Instance precision : Prec_gt_0 p. Proof. by rewrite /Prec_gt_0; lia. Qed.
Lemma nearer_le x z : in_format emin p x -> Rabs (rounded emin p z - z) <= Rabs (x - z).
Proof. by move=> fx; have [_ best] := round_N_pt radix2 (FLT_exp emin p)
  (fun t => negb (Z.even t)) z; exact: best. Qed.
Lemma near_sum_le x y : in_format emin p x -> Rabs (rounded emin p (x + y) - (x + y)) <= Rabs y.
Proof. move=> fx; apply: Rle_trans (nearer_le (x + y) fx) _; have -> : x - (x + y) = - y by ring.
by rewrite Rabs_Ropp; exact: Rle_refl. Qed.
Lemma gradual_laws : monotone (gradual emin p) /\ nearest (gradual emin p).
Proof.
split=> [x y|]; first exact: rounded_le.
by split=> [|x y fx] /=; [exact: Rlt_le (power_gt0 _) | rewrite Rplus_0_r; exact: near_sum_le].
Qed.
Lemma flushing_laws : monotone (flushing emin p) /\ nearest (flushing emin p).
Proof.
have s0 := power_gt0 (emin + p - 1); split=> [x y xy|].
  have := @rounded_le emin p p1 x y xy; rewrite /= /flush.
  do 2 case: Rlt_bool_spec; rewrite /Rabs; do ?case: Rcase_abs; move=> *; lra.
split=> [|x y [fx _]] /=; first exact: Rle_refl.
have near := near_sum_le y fx; rewrite /flush; case: Rlt_bool_spec => [small|_]; last lra.
have := Rabs_triang (- rounded emin p (x + y)) (rounded emin p (x + y) - (x + y));
  rewrite Rabs_Ropp.
by have -> : - rounded emin p (x + y) + (rounded emin p (x + y) - (x + y)) = 0 - (x + y);
  [ring | lra].
Qed.
End Formats.
Theorem nearest_arithmetics : SOFT_arithmetics.
Proof. by move=> emin p p1; have [a b] := gradual_laws emin p1; have [c d] := flushing_laws emin p1.
Qed.

Lemma growth_ge1 A T kappa n c : limits A T kappa n -> 1 <= growth A T kappa n c.
Proof.
move=> [soundA soundT _ k0 sm]; have [[u0 _ _] _] := soundA; have [[v0 _ _] _] := soundT.
have [_ _ K1 Kg] := factors_ge soundA soundT k0 n c; have P := power_le_gamma u0 sm.
apply: Rle_trans K1 (Rle_trans _ _ _ Kg _); rewrite /factor /growth; apply: Rmult_le_compat_r;
  first by apply: pow_le; lra.
by apply: Rmult_le_compat_l; [apply: pow_le; lra | exact: P].
Qed.
Lemma stored_le (I : Type) (t : order I) : (stored_on_a_way t <= stored_in_all t)%N.
Proof.
elim: t => //= s IHs t IHt; rewrite geq_max; apply/andP; split.
  by apply: leq_trans IHs _; exact: leq_addr.
by apply: leq_trans IHt _; exact: leq_addl.
Qed.

(** ** A sum, counted on few of its summands

    By induction on the order. Where two parts meet of which one holds none of the few, the other is
    a number of the format, so rounding moves it by no more than that part weighs ([beside_error]);
    a rounding counts only where both parts hold some, which happens at most as often as there are
    such summands ([few_rounds_le]). *)
Section Few.
Variables (A T : arithmetic) (cut : R -> R) (I : eqType) (few : pred I) (w x : I -> R) (kappa : R).
Hypotheses (soundA : sound A) (soundT : sound T).
Hypothesis wider : forall z, representable T z -> representable A z.
Hypothesis kappa0 : 0 <= kappa.
Hypothesis close : forall i, Rabs (cut (w i) - w i) <= kappa * Rabs (w i)
  /\ Rabs (cut (x i) - x i) <= kappa * Rabs (x i).
Hypothesis nearA : nearest A.
Let value := evaluate A T cut w x 0.
Let ours i := if few i then w i else 0.
Let rest i := if few i then 0 else w i.
Let lossesAT := losses A T (I := I).
Let zeroA : representable A 0. Proof. by have [_ [? _ _ _ _]] := soundA. Qed.
Definition is_few (i : option I) : bool := if i is Some i then few i else false.
Let no_few (t : order I) := ~~ has is_few (summands t).
(** How often a summand of the few is rounded beside others of them. *)
Fixpoint few_rounds (t : order I) : nat :=
  match t with
  | Zero | Bias => 0
  | Product i => few i
  | Plus s t => if no_few s then few_rounds t else
      if no_few t then few_rounds s else (maxn (few_rounds s) (few_rounds t)).+1
  | Fused i t => few i + few_rounds t
  | Stored t => few_rounds t
  end.
Lemma few_rounds_le t : (few_rounds t <= count is_few (summands t))%N.
Proof.
elim: t => //= [i|s IHs t IHt|i t IHt]; [by rewrite addn0 | | by rewrite leq_add2l].
rewrite count_cat /no_few; case: ifP => [_|/negbFE hs]; first exact: leq_trans IHt (leq_addl _ _).
case: ifP => [_|/negbFE ht]; first exact: leq_trans IHs (leq_addr _ _).
rewrite has_count in hs; rewrite has_count in ht; rewrite gtn_max.
apply/andP; split; [rewrite -[(few_rounds s).+1]addn1 | rewrite -add1n]; exact: leq_add.
Qed.
Lemma weight_splitE t : weight w x 0 t = weight ours x 0 t + weight rest x 0 t.
Proof.
rewrite /ours /rest; elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=; rewrite ?Rabs_R0 ?IHs ?IHt;
  try ring.
- by case: (few i); rewrite Rabs_R0; ring.
- by case: (few i); rewrite Rabs_R0; ring.
Qed.
Lemma no_few0 t : no_few t -> exact_value ours x 0 t = 0 /\ weight ours x 0 t = 0.
Proof.
rewrite /no_few /ours; elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; rewrite ?Rabs_R0 //.
- by rewrite orbF => /negbTE ->; rewrite Rabs_R0; split; ring.
- by rewrite has_cat negb_or => /andP [/IHs [-> ->] /IHt [-> ->]]; split; ring.
- by rewrite negb_or => /andP [/negbTE -> /IHt [-> ->]]; rewrite Rabs_R0; split; ring.
Qed.
Let own_ge0 t : 0 <= weight ours x 0 t. Proof. exact: weight_ge0. Qed.
Let rest0 t : 0 <= weight rest x 0 t. Proof. exact: weight_ge0. Qed.
Variables R C : nat.
Let G := factor A T kappa R C.
Let far t := G * (weight rest x 0 t + lossesAT t).
Let G_ge1 : 1 <= G.
Proof. by have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 R C; apply: Rle_trans K1 Kg. Qed.
Let lossesAT_ge0 t : 0 <= lossesAT t. Proof. exact: losses_ge0. Qed.
Let far_ge0 t : 0 <= far t.
Proof. by apply: Rmult_le_pos; [lra | have := rest0 t; have := lossesAT_ge0 t; lra]. Qed.
Lemma far_value_le t : no_few t -> (rounds t <= R)%N -> (stored_on_a_way t <= C)%N ->
  Rabs (value t) <= far t.
Proof.
move=> none rt ct; have E := error_le soundA soundT wider zeroA kappa0 close rt ct.
have [_ own] := no_few0 none; move: E (exact_le w x 0 t); rewrite weight_splitE own Rplus_0_l.
rewrite -/value -/lossesAT -/G /far; set y := value t; set z := exact_value _ _ _ _.
have := Rabs_triang (y - z) z; have -> : y - z + z = y by ring.
lra.
Qed.
(** Rounding a sum of which one part is a number moves it by no more than the other part. *)
Lemma beside_error_le a b m : representable A a ->
  Rabs (fl A (a + b) - m) <= Rabs (a - m) + 2 * Rabs b + sum_loss A.
Proof.
move=> fa; have [_ /(_ a b fa) near] := nearA.
have := Rabs_triang (fl A (a + b) - (a + b)) (a - m + b); have := Rabs_triang (a - m) b.
have -> : fl A (a + b) - (a + b) + (a - m + b) = fl A (a + b) - m by ring.
lra.
Qed.
(** What is said of an order below, for [r] roundings among its few and [c] casts on a way. *)
Let few_error r c (t : order I) : Prop := Rabs (value t - exact_value ours x 0 t)
  <= (factor A T kappa r c - 1) * weight ours x 0 t + factor A T kappa r c * (2 * far t).
Let counted_within (t : order I) := (rounds t <= R)%N /\ (stored_on_a_way t <= C)%N.
(** An order that holds none of the few weighs [far] at most, and nothing is expected of it. *)
Lemma none_error_le r c t : no_few t -> counted_within t -> few_error r c t.
Proof.
move=> none [rt ct]; have [E W] := no_few0 none.
rewrite /few_error E W Rminus_0_r Rmult_0_r Rplus_0_l.
have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 r c; have f0 := far_ge0 t.
have : 2 * far t <= factor A T kappa r c * (2 * far t).
  by rewrite -{1}[2 * far t]Rmult_1_l; apply: Rmult_le_compat_r; lra.
by have := far_value_le none rt ct; lra.
Qed.
(** One part [b] is not of the few: rounding moves the sum of the other part by no more than [b]. *)
Lemma aside_error_le r c a b m M far_a far_b e z : representable A a -> 0 <= e -> 0 <= far_b ->
  Rabs b <= far_b ->
  Rabs (a - m) <= (factor A T kappa r c - 1) * M + factor A T kappa r c * (2 * far_a) ->
  sum_loss A <= e -> far_a + far_b + G * e <= z ->
  Rabs (fl A (a + b) - m) <= (factor A T kappa r c - 1) * M + factor A T kappa r c * (2 * z).
Proof.
move=> fa e0 fb0 lb la le lz; have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 r c.
set F := factor A T kappa r c in la Kg *; have F1 : 1 <= F by lra.
have := beside_error_le b m fa; have Ge : e <= G * e by have := Rmult_le_compat_r e 1 G e0 G_ge1;
  lra.
have : 2 * far_b + e <= F * (2 * far_b + 2 * (G * e)).
  by have := Rmult_le_compat_r (2 * far_b + 2 * (G * e)) 1 F; lra.
have : F * (far_a + far_b + G * e) <= F * z by apply: Rmult_le_compat_l; lra.
by lra.
Qed.
(** A product of the few is rounded once, its operands cut. *)
Lemma few_product_error_le r c i : few i -> few_error r.+1 c (Product i).
Proof.
move=> fi; have [[u0 _ l0] [_ _ _ _ any]] := soundA.
have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 r c.
rewrite /few_error factorS /value /= /ours fi.
have m0 : 0 <= Rabs (w i) * Rabs (x i) by apply: Rmult_le_pos; exact: Rabs_pos.
have zm : Rabs (w i * x i) <= Rabs (w i) * Rabs (x i) by rewrite Rabs_mult; lra.
have off : Rabs (cut (w i) * cut (x i) - w i * x i)
    <= (factor A T kappa r c - 1) * (Rabs (w i) * Rabs (x i)) + factor A T kappa r c * 0.
  apply: Rle_trans (cut_product_le close i) _; rewrite Rmult_0_r Rplus_0_r.
  by apply: Rmult_le_compat_r => //; lra.
have := one_more_le (Rle_trans _ _ _ K1 Kg) u0 m0 l0 zm off (any _) (Rle_refl 0).
rewrite Rplus_0_l => le; apply: Rle_trans le _; apply: Rplus_le_compat_l.
apply: Rmult_le_compat_l; first by apply: Rmult_le_pos; lra.
rewrite /far /= /rest fi Rabs_R0 Rmult_0_l Rplus_0_l.
by have := Rmult_le_compat_r (loss A) _ _ l0 G_ge1; rewrite /lossesAT /=; lra.
Qed.
(** Adding a part without summands changes nothing. *)
Lemma empty_plus_error_le r c s t : nilp (summands s) -> few_error r c t ->
  few_error r c (Plus s t).
Proof.
move=> ns; rewrite /few_error /value (plus_empty cut w x soundA soundT wider zeroA t ns).
rewrite -/(value t); have -> : far (Plus s t) = far t.
  by rewrite /far /lossesAT /= ns (proj2 (exact_empty0 _ x 0 ns)) Rplus_0_l.
by rewrite /= (proj1 (exact_empty0 ours x 0 ns)) (proj2 (exact_empty0 ours x 0 ns)) !Rplus_0_l.
Qed.
Lemma plus_empty_error_le r c s t : ~~ nilp (summands s) -> nilp (summands t) -> few_error r c s ->
  few_error r c (Plus s t).
Proof.
move=> ns nt; rewrite /few_error /value (plus_emptyr cut w x soundA soundT wider zeroA s nt).
rewrite -/(value s); have -> : far (Plus s t) = far s.
  by rewrite /far /lossesAT /= (negbTE ns) nt (proj2 (exact_empty0 _ x 0 nt)) Rplus_0_r.
by rewrite /= (proj1 (exact_empty0 ours x 0 nt)) (proj2 (exact_empty0 ours x 0 nt)) !Rplus_0_r.
Qed.
Lemma far_plusE s t : ~~ nilp (summands s) -> ~~ nilp (summands t) ->
  far (Plus s t) = far s + far t + G * sum_loss A.
Proof. by move=> /negbTE ns /negbTE nt; rewrite /far /lossesAT /= ns nt; ring. Qed.
(** Of two parts with summands only one holds some of the few: no rounding counts. *)
Lemma aside_plus_error_le r c s t : ~~ nilp (summands s) -> ~~ nilp (summands t) -> no_few s ->
  counted_within s -> few_error r c t -> few_error r c (Plus s t) /\ few_error r c (Plus t s).
Proof.
move=> ns nt ms [rs cs] E; have [Es Ws] := no_few0 ms; have [[_ s0 _] _] := soundA.
have fs := far_ge0 s; have small := far_value_le ms rs cs.
rewrite /few_error !far_plusE //= Es Ws !Rplus_0_l !Rplus_0_r /value /= -/(value s) -/(value t).
have rep := value_representable cut w x soundA soundT wider zeroA t.
rewrite [value s + _]Rplus_comm; split;
  by apply: (aside_error_le (far_a := far t) (far_b := far s) (e := sum_loss A)) => //; lra.
Qed.
(** Both hold some: one rounding counts more. *)
Lemma few_plus_error_le r c s t : ~~ nilp (summands s) -> ~~ nilp (summands t) ->
  few_error r c s -> few_error r c t -> few_error r.+1 c (Plus s t).
Proof.
move=> ns nt Es Et; have [[u0 s0 _] [_ _ _ sums _]] := soundA.
have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 r c; have [fs ft] := (far_ge0 s, far_ge0 t).
rewrite /few_error factorS far_plusE // /value /= -/(value s) -/(value t).
have m0 : 0 <= weight ours x 0 s + weight ours x 0 t by have := own_ge0 s; have := own_ge0 t; lra.
have zm : Rabs (exact_value ours x 0 s + exact_value ours x 0 t) <= weight ours x 0 s
  + weight ours x 0 t.
  by apply: Rle_trans (Rabs_triang _ _) _; have := exact_le ours x 0 s;
    have := exact_le ours x 0 t; lra.
have off : Rabs (value s + value t - (exact_value ours x 0 s + exact_value ours x 0 t))
    <= (factor A T kappa r c - 1) * (weight ours x 0 s + weight ours x 0 t)
       + factor A T kappa r c * (2 * far s + 2 * far t).
  have := Rabs_triang (value s - exact_value ours x 0 s) (value t - exact_value ours x 0 t).
  have -> : value s - exact_value ours x 0 s + (value t - exact_value ours x 0 t)
    = value s + value t - (exact_value ours x 0 s + exact_value ours x 0 t) by ring.
  by move: Es Et; rewrite /few_error; lra.
have l1 : 0 <= 2 * far s + 2 * far t by lra.
have rep := sums _ _ (value_representable cut w x soundA soundT wider zeroA s)
  (value_representable cut w x soundA soundT wider zeroA t).
have := one_more_le (Rle_trans _ _ _ K1 Kg) u0 m0 s0 zm off rep l1 => le; apply: Rle_trans le _.
apply: Rplus_le_compat_l; apply: Rmult_le_compat_l; first by apply: Rmult_le_pos; lra.
by have := Rmult_le_compat_r _ _ _ s0 G_ge1; lra.
Qed.
(** A product of the few, fused with the sum that it is added to. *)
Lemma few_fused_error_le r c i t : few i -> few_error r c t -> few_error r.+1 c (Fused i t).
Proof.
move=> fi E; have [[u0 _ l0] [_ _ _ _ any]] := soundA; have ft := far_ge0 t.
have p0 : 0 <= Rabs (w i) * Rabs (x i) by apply: Rmult_le_pos; exact: Rabs_pos.
have farE : far (Fused i t) = far t + G * loss A.
  by rewrite /far /lossesAT /= /rest fi Rabs_R0; ring.
have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 r c.
rewrite /few_error factorS farE /value /= -/(value t) /ours fi -/ours.
have m0 : 0 <= Rabs (w i) * Rabs (x i) + weight ours x 0 t by have := own_ge0 t; lra.
have zm : Rabs (w i * x i + exact_value ours x 0 t) <= Rabs (w i) * Rabs (x i)
  + weight ours x 0 t.
  by apply: Rle_trans (Rabs_triang _ _) _; rewrite Rabs_mult; have := exact_le ours x 0 t; lra.
have off : Rabs (cut (w i) * cut (x i) + value t - (w i * x i + exact_value ours x 0 t))
    <= (factor A T kappa r c - 1) * (Rabs (w i) * Rabs (x i) + weight ours x 0 t)
       + factor A T kappa r c * (2 * far t).
  have := Rabs_triang (cut (w i) * cut (x i) - w i * x i) (value t - exact_value ours x 0 t).
  have -> : cut (w i) * cut (x i) - w i * x i + (value t - exact_value ours x 0 t)
    = cut (w i) * cut (x i) + value t - (w i * x i + exact_value ours x 0 t) by ring.
  have : ((1 + kappa) ^ 2 - 1) * (Rabs (w i) * Rabs (x i))
      <= (factor A T kappa r c - 1) * (Rabs (w i) * Rabs (x i)).
    by apply: Rmult_le_compat_r => //; lra.
  by have := cut_product_le close i; move: E; rewrite /few_error; lra.
have l1 : 0 <= 2 * far t by lra.
have := one_more_le (Rle_trans _ _ _ K1 Kg) u0 m0 l0 zm off (any _) l1 => le;
  apply: Rle_trans le _.
apply: Rplus_le_compat_l; apply: Rmult_le_compat_l; first by apply: Rmult_le_pos; lra.
by have := Rmult_le_compat_r _ _ _ l0 G_ge1; lra.
Qed.
(** Another product, fused with a sum: it moves that sum by no more than it weighs. *)
Lemma aside_fused_error_le r c i t : ~~ few i -> few_error r c t -> few_error r c (Fused i t).
Proof.
move=> /negbTE fi E; have [[_ _ l0] _] := soundA; have [sl _] := nearA.
have p0 : 0 <= Rabs (w i) * Rabs (x i) by apply: Rmult_le_pos; exact: Rabs_pos.
have exactE : ours i * x i + exact_value ours x 0 t = exact_value ours x 0 t.
  by rewrite /ours fi; ring.
have weightE : Rabs (ours i) * Rabs (x i) + weight ours x 0 t = weight ours x 0 t.
  by rewrite /ours fi Rabs_R0; ring.
rewrite /few_error /= exactE weightE /value /= -/(value t) [_ + value t]Rplus_comm.
apply: (aside_error_le (far_a := far t) (far_b := G * (Rabs (w i) * Rabs (x i))) (e := loss A)) =>
  //.
- exact: (value_representable cut w x soundA soundT wider zeroA t).
- by apply: Rmult_le_pos; lra.
- have := cut_product_le close i; have := Rabs_triang (cut (w i) * cut (x i) - w i * x i)
    (w i * x i).
  have -> : cut (w i) * cut (x i) - w i * x i + w i * x i = cut (w i) * cut (x i) by ring.
  have [_ _ _ Kg] := factors_ge soundA soundT kappa0 R C; have := Rmult_le_compat_r _ _ _ p0 Kg.
  by rewrite (Rabs_mult (w i) (x i)) -/G; lra.
- by rewrite /far /lossesAT /= /rest fi; right; ring.
Qed.
Lemma few_stored_error_le r c t : few_error r c t -> few_error r c.+1 (Stored t).
Proof.
move=> E; have [[_ v0 l0] [_ _ _ _ any]] := soundT.
have [_ v1 K1 Kg] := factors_ge soundA soundT kappa0 r c.
rewrite /few_error factorSr /value /= -/(value t).
have l1 : 0 <= 2 * far t by have := far_ge0 t; lra.
have := one_more_le (Rle_trans _ _ _ K1 Kg) v1 (own_ge0 t) l0 (exact_le ours x 0 t) E (any _) l1.
move=> le; apply: Rle_trans le _; apply: Rplus_le_compat_l; apply: Rmult_le_compat_l.
  by apply: Rmult_le_pos; lra.
have -> : far (Stored t) = far t + G * loss T by rewrite /far /lossesAT /=; ring.
by have := Rmult_le_compat_r _ _ _ l0 G_ge1; lra.
Qed.
(** By induction on the order, as in FLOAT. *)
Lemma few_error_le t : (rounds t <= R)%N -> (stored_on_a_way t <= C)%N ->
  forall r c, (few_rounds t <= r)%N -> (stored_on_a_way t <= c)%N ->
  Rabs (value t - exact_value ours x 0 t)
  <= (factor A T kappa r c - 1) * weight ours x 0 t + factor A T kappa r c * (2 * far t).
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] rR cC r c.
- by move=> _ _; apply: none_error_le.
- by move=> _ _; apply: none_error_le.
- case: (boolP (few i)) => fi; last first.
    by move=> _ _; apply: none_error_le; rewrite // /no_few /= orbF.
  by case: r => [|r] /=; rewrite fi // => _ _; exact: few_product_error_le.
- have [cs ct] : (stored_on_a_way s <= C)%N /\ (stored_on_a_way t <= C)%N.
    by move: cC; rewrite /= geq_max => /andP.
  have none u : nilp (summands u) -> no_few u by rewrite /no_few => /nilP ->.
  rewrite /= [(maxn (stored_on_a_way s) _ <= c)%N]geq_max => fr /andP [cs' ct'].
  case: (boolP (nilp (summands s))) => ns.
    apply: empty_plus_error_le => //; apply: IHt => //; first by move: rR; rewrite /= ns.
    by move: fr; rewrite none.
  case: (boolP (nilp (summands t))) => nt.
    have rs : (rounds s <= R)%N by move: rR; rewrite /= (negbTE ns) nt.
    apply: plus_empty_error_le => //; case: (boolP (no_few s)) => ms; first exact: none_error_le.
    by apply: IHs => //; move: fr; rewrite (negbTE ms) none.
  have [rs rt] : (rounds s <= R)%N /\ (rounds t <= R)%N.
    move: rR; rewrite /= (negbTE ns) (negbTE nt) => lt.
    by split; apply: leq_trans (leq_trans (leqnSn _) lt); [exact: leq_maxl | exact: leq_maxr].
  case: (boolP (no_few s)) fr => ms.
    by move=> fr; apply: (proj1 (aside_plus_error_le ns nt ms _ _)) => //; exact: IHt.
  case: (boolP (no_few t)) => mt.
    by move=> fr; apply: (proj2 (aside_plus_error_le nt ns mt _ _)) => //; exact: IHs.
  case: r => // r; rewrite ltnS geq_max => /andP [fs ft].
  by apply: few_plus_error_le => //; [exact: IHs | exact: IHt].
- have rt : (rounds t <= R)%N by apply: leq_trans rR; rewrite /=.
  case: (boolP (few i)) => fi /=.
    rewrite fi; case: r => // r; rewrite add1n ltnS => ft ct.
    by apply: few_fused_error_le => //; exact: IHt.
  by rewrite (negbTE fi) add0n => ft ct; apply: aside_fused_error_le => //; exact: IHt.
- case: c => // c ft ct; apply: few_stored_error_le; apply: IHt => //.
  exact: leq_trans (leqnSn _) cC.
Qed.
End Few.
(** Summands whose weight is 0 may be left out, in any arithmetic: they are 0 as computed, and
  adding
    0 to a number of the format changes nothing. *)
Section Kept.
Variables (A T : arithmetic) (cut : R -> R) (I : eqType) (few : pred I) (w x : I -> R).
Hypotheses (soundA : sound A) (soundT : sound T).
Hypothesis wider : forall z, representable T z -> representable A z.
Hypotheses (cut0 : cut 0 = 0) (none : forall i, ~~ few i -> w i = 0).
Fixpoint kept (t : order I) : order I :=
  match t with
  | Zero | Bias => Zero I
  | Product i => if few i then Product i else Zero I
  | Plus s t => Plus (kept s) (kept t)
  | Fused i t => if few i then Fused i (kept t) else kept t
  | Stored t => Stored (kept t)
  end.
Lemma keptE t : evaluate A T cut w x 0 (kept t) = evaluate A T cut w x 0 t.
Proof.
have [_ [zero _ keep _ _]] := soundA.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; rewrite ?IHs ?IHt //.
- case: (boolP (few i)) => //= /none ->; rewrite cut0 Rmult_0_l keep //.
- case: (boolP (few i)) => [_|/none ->] /=; first by rewrite IHt.
  rewrite cut0 Rmult_0_l Rplus_0_l IHt keep //.
  exact: (value_representable cut w x soundA soundT wider zero t).
Qed.
Lemma kept_summands t : summands (kept t) = [seq i <- summands t | is_few few i].
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; first by case: (few i).
  by rewrite filter_cat IHs IHt.
by case: (few i); rewrite /= IHt.
Qed.
Lemma kept_stored t : (stored_on_a_way (kept t) <= stored_on_a_way t)%N /\
  (stored_in_all (kept t) <= stored_in_all t)%N.
Proof.
elim: t => [||i|s [IHs1 IHs2] t [IHt1 IHt2]|i t [IHt1 IHt2]|t IHt] //=; first by case: (few i).
- split; last exact: leq_add.
  by rewrite geq_max !leq_max IHs1 IHt1 orbT.
- by case: (few i).
Qed.
End Kept.
Lemma few_summands (I : finType) (few : pred I) (s : seq (option I)) : uniq s ->
  (size [seq i <- s | is_few few i] <= #|few|)%N.
Proof.
move=> us; have us' : uniq [seq i <- s | is_few few i] by exact: filter_uniq.
have sub : {subset [seq i <- s | is_few few i] <= [seq Some i | i <- enum few]}.
  by move=> [i|]; rewrite mem_filter //= => /andP [fi _]; apply: map_f; rewrite mem_enum.
by have := uniq_leq_size us' sub; rewrite size_map -cardE.
Qed.
(** So only the others are rounded, by FLOAT; what SOFT says is no less. *)
Lemma kept_sums s (I : finType) (few : pred I) (w x : I -> R) t N : as_set s w x 0 t ->
  cutting s 0 = 0 -> (forall i, ~~ few i -> w i = 0) -> (#|few| <= N <= terms s)%N ->
  Rabs (computed s w x 0 t - \big[Rplus/0]_(i | few i) (w i * x i))
  <= few_bound s N (\big[Rplus/0]_(i | few i) (Rabs (w i) * Rabs (x i)))
       (\big[Rplus/0]_(i | ~~ few i) (Rabs (w i) * Rabs (x i))).
Proof.
case: s => A T cut kappa k n c m [/= ok [[bias [us out] sz sw sa] [sk close]]] cut0 none /andP
  [fN Nn].
have [soundA soundT wider kappa0 small] := ok.
have [[u0 s0 l0] _] := soundA; have [[v0 _ l0'] _] := soundT.
have okN : limits A T kappa N.
  split=> //; apply: Rle_lt_trans small; apply: Rmult_le_compat_r => //; apply/le_INR/leP => //.
have [sw' sa'] := kept_stored few t.
have ev : evaluation A T cut kappa k N c m w x 0 (kept few t).
  split; [split=> // | split=> //].
  - split=> [|i]; rewrite kept_summands ?filter_uniq // mem_filter negb_and.
    by case: i => [i|] //= /orP [/none ->|/out] //; rewrite Rmult_0_l.
  - by rewrite kept_summands; apply: leq_trans (few_summands few us) fN.
  - exact: leq_trans sw' sw.
  - exact: leq_trans sa' sa.
  - rewrite kept_summands count_filter; apply: leq_trans sk; apply: sub_count => i /andP [] //.
have := sum_error_in_any_order okN ev; rewrite keptE // /magnitude Rabs_R0 !Rplus_0_r.
have pick (F : I -> R) : (forall i, ~~ few i -> F i = 0) -> \sum_i F i = \big[Rplus/0]_(i | few i) F
  i.
  by move=> F0; rewrite [RHS]big_mkcond; apply: eq_bigr => i _; case: (boolP (few i)) => // /F0.
rewrite !pick => [|i /none ->|i /none ->]; rewrite ?Rabs_R0 ?Rmult_0_l //.
rewrite /few_bound /computed /cost /lost /growth_of /= => le; apply: Rle_trans le _.
apply: Rplus_le_compat_l; apply: Rmult_le_compat_l; first by have := growth_ge1 c okN; lra.
have G1 := growth_ge1 c ok; set g := growth A T kappa n c in G1 *.
have far0 : 0 <= \big[Rplus/0]_(i | ~~ few i) (Rabs (w i) * Rabs (x i)).
  by apply: rsum_ge0 => i _; apply: Rmult_le_pos; exact: Rabs_pos.
have kl := Rmult_le_pos _ _ (pos_INR k) l0; have ml := Rmult_le_pos _ _ (pos_INR m) l0'.
have ns := Rmult_le_pos _ _ (pos_INR N) s0.
have Nn' := Rmult_le_compat_r _ _ _ s0 (le_INR _ _ (leP Nn)).
have more : underflow A T k N m <= underflow A T k n m by rewrite /underflow; lra.
have pos : 0 <= underflow A T k N m by rewrite /underflow; lra.
have gu := Rmult_le_compat_r (underflow A T k n m) _ _ ltac:(lra) G1.
have gf : 0 <= g * \big[Rplus/0]_(i | ~~ few i) (Rabs (w i) * Rabs (x i)).
  by apply: Rmult_le_pos => //; lra.
lra.
Qed.
(** [few_error] for the whole order; its counts are bounded by those of the setting, and its sums
    over summands are sums over the keys. *)
Theorem few_sums : SOFT_few.
Proof.
move=> s I few w x t N as_s [near|[cut0 none]] NKn; last exact: kept_sums.
move: s as_s near NKn; case=> A T cut kappa k n c m [/= ok [[bias [us out] sz sw sa] [sk close]]]
  near /andP [fN Nn].
have [soundA soundT wider kappa0 small] := ok.
have [[u0 s0 l0] _] := soundA; have [[v0 _ l0'] _] := soundT.
have smallN : INR N * roundoff A < 1.
  by apply: Rle_lt_trans small; apply: Rmult_le_compat_r => //; apply/le_INR/leP.
have grow M : INR M * roundoff A < 1 -> factor A T kappa M c <= growth A T kappa M c.
  move=> lt; rewrite /factor /growth; apply: Rmult_le_compat_r; first by apply: pow_le; lra.
  by apply: Rmult_le_compat_l; [apply: pow_le; lra | exact: power_le_gamma].
have lo : losses A T t <= underflow A T k n m.
  have := losses_le soundA soundT t; rewrite /underflow.
  have := Rmult_le_compat_r _ _ _ s0 (le_INR _ _ (leP sz));
    have := Rmult_le_compat_r _ _ _ l0 (le_INR _ _ (leP sk)).
  have := Rmult_le_compat_r _ _ _ l0' (le_INR _ _ (leP sa)).
  by case: ifP => _; lra.
have sumE (F : I -> R) : (forall i, Some i \notin summands t -> F i = 0) ->
    \big[Rplus/0]_(i <- summands t) (if i is Some i then F i else 0) = \sum_i F i.
  by move=> Z; rewrite (sum_onceE us) ?Rplus_0_r // => -[i|] // /Z.
have zero (p : pred I) i : Some i \notin summands t -> (if p i then w i else 0) * x i = 0.
  by move=> /out /= Z; case: (p i) => //; ring.
have pick (p : pred I) : weight (fun i => if p i then w i else 0) x 0 t
    = \big[Rplus/0]_(i | p i) (Rabs (w i) * Rabs (x i)).
  rewrite weight_sum [RHS]big_mkcond -sumE => [|i /zero Z]; last first.
    by have := Z p; case: (p i) => // /Rmult_integral; rewrite -Rabs_mult => -[] ->;
      rewrite ?Rmult_0_l ?Rmult_0_r Rabs_R0.
  apply: eq_bigr => -[i|] _; last by rewrite Rabs_R0.
  by case: (p i); rewrite ?Rabs_R0 ?Rmult_0_l.
have exactE : exact_value (fun i => if few i then w i else 0) x 0 t
  = \big[Rplus/0]_(i | few i) (w i * x i).
  rewrite exact_sumE [RHS]big_mkcond -sumE => [|i /zero Z]; last by have := Z few; case: (few i).
  by apply: eq_bigr => -[i|] _ //=; case: (few i); rewrite ?Rmult_0_l.
have restE : weight (fun i => if few i then 0 else w i) x 0 t = \big[Rplus/0]_(i | ~~ few i)
  (Rabs (w i) * Rabs (x i)).
  rewrite -pick !weight_sum; apply: eq_bigr => -[i|] _ //; by case: (few i).
have few_le : (few_rounds few t <= N)%N.
  apply: leq_trans (few_rounds_le few t) _; apply: leq_trans fN; rewrite -size_filter.
  exact: few_summands.
have E := few_error_le soundA soundT wider kappa0 close near (leq_trans (rounds_le t) sz) sw few_le
  sw.
move: E; rewrite exactE pick restE /few_bound /computed /cost /growth_of /=.
set M := bigop _ _ _; set V := bigop _ _ _; set W := bigop _ _ _ => E; apply: Rle_trans E _.
have M0 : 0 <= V by apply: rsum_ge0 => i _; apply: Rmult_le_pos; exact: Rabs_pos.
have W0 : 0 <= W by apply: rsum_ge0 => i _; apply: Rmult_le_pos; exact: Rabs_pos.
have gN := grow _ smallN; have gn := grow _ small; have l1 := losses_ge0 soundA soundT t.
have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 N c; have [_ _ _ Kn] :=
  factors_ge soundA soundT kappa0 n c.
apply: Rplus_le_compat; first by apply: Rmult_le_compat_r => //; lra.
have inner : factor A T kappa n c * (W + losses A T t) <= growth A T kappa n c * W
  + growth A T kappa n c * underflow A T k n m.
  by rewrite -Rmult_plus_distr_l; apply: Rmult_le_compat; lra.
have f0 : 0 <= factor A T kappa n c * (W + losses A T t) by apply: Rmult_le_pos; lra.
by rewrite /lost /growth_of /=; apply: Rmult_le_compat; lra.
Qed.

(** ** Heads that are not one-hot *)
Lemma rsum_constE (K : finType) (a : R) : \big[Rplus/0]_(k : K) a = INR #|K| * a.
Proof.
rewrite big_const; elim: #|K| => [|n IH]; first by rewrite /=; ring.
by rewrite iterS IH S_INR; ring.
Qed.
Lemma rsum_pred_constE (K : finType) (p : pred K) (a : R) : \big[Rplus/0]_(k | p k) a = INR #|p| *
  a.
Proof.
rewrite big_const; elim: #|p| => [|n IH]; first by rewrite /=; ring.
by rewrite iterS IH S_INR; ring.
Qed.
Lemma rsum_pred_minusE (K : finType) (p : pred K) (F G : K -> R) :
  \big[Rplus/0]_(k | p k) F k - \big[Rplus/0]_(k | p k) G k = \big[Rplus/0]_(k | p k) (F k - G k).
Proof.
have -> : \big[Rplus/0]_(k | p k) (F k - G k) = \big[Rplus/0]_(k | p k) (F k + -1 * G k)
  by apply: eq_bigr => i _; ring.
by rewrite big_split -big_distrr /=; ring.
Qed.
(** The few weights are compared with the softmax over the few keys alone, [exp (s k) / Z]. *)
Section Among.
Variables (K : finType) (few : pred K) (s e w : K -> R) (total D g lambda v mu far far' : R).
Hypotheses (D01 : 0 <= D <= 1) (g01 : 0 <= g <= 1) (lambda0 : 0 <= lambda) (v0 : 0 <= v)
  (least0 : 0 < (1 - g) * (1 - D) - lambda).
Hypotheses (top : exists2 k, few k & 0 <= s k) (e0 : forall k, 0 <= e k).
Let Z := \big[Rplus/0]_(k | few k) exp (s k). Let Ze := \big[Rplus/0]_(k | few k) e k.
Let far_s := \big[Rplus/0]_(k | ~~ few k) exp (s k).
Hypotheses (moved : \big[Rplus/0]_(k | few k) Rabs (e k - exp (s k)) <= D * Z)
  (sumd : Rabs (total - Ze) <= g * Ze + lambda)
  (quotients : forall k, few k -> Rabs (w k - e k / total) <= v * (e k / total) + mu)
  (far_w : \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far) (far_p : far_s <= far').
Let least := (1 - g) * (1 - D) - lambda.
Let own k := exp (s k) / Z.
Lemma among_ge1 : 1 <= Z.
Proof.
have [k few_k k0] := top; rewrite /Z (bigD1 k) //=; have : 1 <= exp (s k).
  by rewrite -exp_0; case: k0 => [/exp_increasing/Rlt_le|<-] //; exact: Rle_refl.
have : 0 <= \big[Rplus/0]_(j | few j && (j != k)) exp (s j) by apply: rsum_ge0 => j _;
  exact/Rlt_le/exp_pos.
lra.
Qed.
Lemma exponentials_within : Ze <= (1 + D) * Z /\ (1 - D) * Z <= Ze.
Proof.
have close : Rabs (Ze - Z) <= D * Z by rewrite /Ze /Z rsum_pred_minusE;
  apply: Rle_trans (rsum_abs_le _ _ _) moved.
by move: close; rewrite /Rabs; case: Rcase_abs; lra.
Qed.
(** So no quotient divides by less than [least Z]. *)
Lemma total_ge : least * Z <= total.
Proof.
have Z1 := among_ge1; have [_ down] := exponentials_within.
have : (1 - g) * Ze - lambda <= total by move: sumd; rewrite /Rabs; case: Rcase_abs; lra.
have : (1 - g) * ((1 - D) * Z) <= (1 - g) * Ze by apply: Rmult_le_compat_l; lra.
have : lambda <= lambda * Z by have := Rmult_le_compat_l _ _ _ lambda0 Z1; lra.
by rewrite /least; lra.
Qed.
Let total_gt0 : 0 < total.
Proof.
have Z1 := among_ge1; apply: Rlt_le_trans total_ge.
by apply: Rmult_lt_0_compat => //; lra.
Qed.
(** Quotient, exponential and sum are off, each by its part. *)
Lemma weight_among_le k : few k -> Rabs (w k - own k)
  <= v * (e k * / total) + mu + Rabs (e k - exp (s k)) * / total
    + exp (s k) * (Rabs (Z - total) * / (total * Z)).
Proof.
move=> fk; have Z1 := among_ge1; have t0 := total_gt0.
have -> : w k - own k = (w k - e k / total)
  + ((e k - exp (s k)) / total + exp (s k) * ((Z - total) / (total * Z))).
  by rewrite /own; field; lra.
have q := quotients fk; have i0 : 0 < / total by exact: Rinv_0_lt_compat.
have iz : 0 < / (total * Z) by apply/Rinv_0_lt_compat/Rmult_lt_0_compat; lra.
apply: Rle_trans (Rabs_triang _ _) _;
  apply: Rle_trans (Rplus_le_compat_l _ _ _ (Rabs_triang _ _)) _.
rewrite [Rabs (_ / total)]Rabs_mult (Rabs_pos_eq (/ total)); last lra.
rewrite [Rabs (exp _ * _)]Rabs_mult (Rabs_pos_eq (exp _)); last exact/Rlt_le/exp_pos.
rewrite [Rabs (_ / (total * Z))]Rabs_mult (Rabs_pos_eq (/ (total * Z))); last lra.
by move: q; rewrite /Rdiv; lra.
Qed.
Lemma weights_among_le : \big[Rplus/0]_(k | few k) Rabs (w k - own k)
  <= ((v + g) * (1 + D) + 2 * D + lambda) / least + INR #|few| * mu.
Proof.
have Z1 := among_ge1; have t0 := total_gt0; have [up _] := exponentials_within.
have Ze0 : 0 <= Ze by apply: rsum_ge0 => k _; exact: e0.
have i0 : 0 < / total by exact: Rinv_0_lt_compat.
have lz : 0 < least * Z by apply: Rmult_lt_0_compat; rewrite /least; lra.
apply: Rle_trans (_ : \big[Rplus/0]_(k | few k) _ <= _); first by apply: rsum_le => k fk;
  exact: weight_among_le.
rewrite !big_split /= rsum_pred_constE -big_distrr -!big_distrl /= -/Ze -/Z.
have -> : Z * (Rabs (Z - total) * / (total * Z)) = Rabs (Z - total) * / total by field; lra.
have off : Rabs (Z - total) <= D * Z + (g * Ze + lambda).
  have close : Rabs (Ze - Z) <= D * Z by rewrite /Ze /Z rsum_pred_minusE;
    apply: Rle_trans (rsum_abs_le _ _ _) moved.
  have := Rabs_triang (Z - Ze) (Ze - total); have -> : Z - Ze + (Ze - total) = Z - total by ring.
  by rewrite (Rabs_minus_sym Z Ze) (Rabs_minus_sym Ze total); lra.
set M := (v + g) * (1 + D) + 2 * D + lambda.
have M0 : 0 <= M by rewrite /M; have := Rmult_le_pos (v + g) (1 + D); lra.
set S := \big[Rplus/0]_(k | few k) Rabs (e k - exp (s k)).
have S_le : S <= D * Z := moved.
have num : v * Ze + S + Rabs (Z - total) <= M * Z.
  have : (v + g) * Ze <= (v + g) * ((1 + D) * Z) by apply: Rmult_le_compat_l; lra.
  have : lambda <= lambda * Z by have := Rmult_le_compat_l _ _ _ lambda0 Z1; lra.
  by rewrite /M; lra.
have : (v * Ze + S + Rabs (Z - total)) * / total <= M / least; last lra.
apply: Rle_trans (Rmult_le_compat_r _ _ _ (Rlt_le _ _ i0) num) _.
have le_inv : / total <= / (least * Z) by apply: Rinv_le_contravar => //; exact: total_ge.
apply: Rle_trans (Rmult_le_compat_l (M * Z) _ _ _ le_inv) _; first by apply: Rmult_le_pos; lra.
by right; field; rewrite /least; lra.
Qed.
(** The softmax over all keys gives the others a share of [far'] at most. *)
Let far_ge0 : 0 <= far_s. Proof. by apply: rsum_ge0 => k _; exact/Rlt_le/exp_pos. Qed.
Let allE : \sum_k exp (s k) = Z + far_s. Proof. by rewrite (bigID few). Qed.
Let share : far_s * / (Z + far_s) <= far'.
Proof.
have Z1 := among_ge1; apply: Rle_trans far_p; rewrite -[X in _ <= X]Rmult_1_r.
apply: Rmult_le_compat_l => //; rewrite -Rinv_1; apply: Rinv_le_contravar; have := far_ge0; lra.
Qed.
Lemma softmax_among_le : \big[Rplus/0]_(k | few k) Rabs (own k - softmax s k) <= far'.
Proof.
have Z1 := among_ge1; have fs0 := far_ge0; apply: Rle_trans share; right.
have -> : far_s * / (Z + far_s) = Z * (far_s * / (Z * (Z + far_s))) by field; lra.
rewrite {1}/Z big_distrl /=; apply: eq_bigr => k _.
have -> : own k - softmax s k = exp (s k) * (far_s * / (Z * (Z + far_s))).
  by rewrite /own /softmax allE; field; lra.
rewrite Rabs_pos_eq //; apply: Rmult_le_pos; first exact/Rlt_le/exp_pos.
by apply: Rmult_le_pos => //; apply/Rlt_le/Rinv_0_lt_compat/Rmult_lt_0_compat; lra.
Qed.
Lemma far_softmax_le : \big[Rplus/0]_(k | ~~ few k) Rabs (w k - softmax s k) <= far + far'.
Proof.
have Z1 := among_ge1; have fs0 := far_ge0.
have ia : 0 < / (Z + far_s) by apply: Rinv_0_lt_compat; lra.
apply: Rle_trans (_ : \big[Rplus/0]_(k | ~~ few k) (Rabs (w k) + softmax s k) <= _).
  apply: rsum_le => k _; apply: Rle_trans (Rabs_triang _ _) _;
    rewrite Rabs_Ropp (Rabs_pos_eq (softmax s k)); first lra.
  by rewrite /softmax allE; apply: Rmult_le_pos; [exact/Rlt_le/exp_pos | lra].
rewrite big_split /=; apply: Rplus_le_compat => //; apply: Rle_trans share; right.
by rewrite /far_s big_distrl /=; apply: eq_bigr => k _; rewrite /softmax allE.
Qed.
Lemma few_softmax_le : \sum_k Rabs (w k - softmax s k)
  <= ((v + g) * (1 + D) + 2 * D + lambda) / least + INR #|few| * mu + far + 2 * far'.
Proof.
rewrite (bigID few) /=; have := weights_among_le; have := softmax_among_le; have := far_softmax_le.
have : \big[Rplus/0]_(k | few k) Rabs (w k - softmax s k)
    <= \big[Rplus/0]_(k | few k) Rabs (w k - own k) + \big[Rplus/0]_(k | few k) Rabs
      (own k - softmax s k).
  rewrite -big_split /=; apply: rsum_le => k _.
  have -> : w k - softmax s k = (w k - own k) + (own k - softmax s k) by ring.
  exact: Rabs_triang.
lra.
Qed.
End Among.
Theorem softmax_error : SOFT_softmax.
Proof.
move=> K few s e w total D g lambda v mu far far' [D01 g01 lambda0 v0 least0] top e0 moved sumd
  quotients far_w far_p.
exact: (few_softmax_le D01 g01 lambda0 v0 least0 top e0 moved sumd quotients far_w far_p).
Qed.
Lemma summed_size_le (K : finType) (e : K -> R) t : summed e t -> (size (summands t) <= #|K|)%N.
Proof.
move=> [[us _] none _]; have : (size (None :: summands t) <= #|{: option K}|)%N.
  by rewrite -(card_uniqP _) ?max_card //= none.
by rewrite card_option.
Qed.
(** ** Weights are no larger than their exponentials, where one exponential is 1 *)
Section Leak.
Variables (A T : arithmetic) (reciprocal : bool).
Hypotheses (soundA : sound A) (monoA : monotone A) (monoT : monotone T) (soundT : sound T)
  (one : representable A 1).
Variables (K : finType) (e : K -> R) (target : K).
Hypotheses (fe : forall k, representable A (e k) /\ 0 <= e k) (top : e target = 1).
Let value t := evaluate A A id (fun _ => 1) e 0 t.
Lemma fl_ge0 x : 0 <= x -> 0 <= fl A x.
Proof. by have [_ [zero _ keep _ _]] := soundA => /monoA; rewrite keep. Qed.
Lemma fl_ge1 x : 1 <= x -> 1 <= fl A x.
Proof. by have [_ [_ _ keep _ _]] := soundA => /monoA; rewrite keep. Qed.
Lemma value_ge0 t : 0 <= value t.
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt]; rewrite /value /= -/(value _); try exact: Rle_refl;
  apply: fl_ge0.
- by have [_] := fe i; rewrite Rmult_1_l.
- by rewrite -/(value s) -/(value t); lra.
- by have [_] := fe i; rewrite Rmult_1_l; lra.
- exact: IHt.
Qed.
Lemma value_ge1 t : Some target \in summands t -> 1 <= value t.
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; rewrite /value /= -/(value _).
- by rewrite inE => /eqP [<-]; apply: fl_ge1; rewrite top; lra.
- rewrite mem_cat -/(value s) -/(value t); have := value_ge0 s; have := value_ge0 t.
  by move=> t0 s0 /orP [/IHs|/IHt] le; apply: fl_ge1; lra.
- have [_ e0] := fe i; have := value_ge0 t; rewrite inE Rmult_1_l => t0 /orP [/eqP [E]|/IHt le];
  apply: fl_ge1; last lra.
  by rewrite -E top; lra.
- by move=> /IHt; exact: fl_ge1.
Qed.
Lemma weight_le t : summed e t -> forall k, 0 <= computed_softmax A T reciprocal e t k
  <= fl T (e k).
Proof.
move=> [[us out] _ _] k; have [_ [zero _ keep _ _]] := soundA;
  have [_ [zeroT _ keepT _ _]] := soundT.
have t1 : 1 <= value t.
  by apply: value_ge1; apply/negPn/negP => /out; rewrite /= top Rmult_1_l => E; lra.
have [fk e0] := fe k; have i0 : 0 < / value t by apply: Rinv_0_lt_compat; lra.
have i1 : / value t <= 1 by rewrite -Rinv_1; apply: Rinv_le_contravar; lra.
have down x : 0 <= x <= e k -> 0 <= fl A x <= e k.
  by move=> [x0 xe]; split; [exact: fl_ge0 | rewrite -(keep _ fk); exact: monoA].
rewrite /computed_softmax /quotient -/(value t); set y := if reciprocal then _ else _.
have [y0 ye] : 0 <= y <= e k.
  rewrite /y; case: reciprocal; apply: down; last by rewrite /Rdiv; split; nra.
  have r0 : 0 <= fl A (1 / value t) by apply: fl_ge0; rewrite /Rdiv; lra.
  have r1 : fl A (1 / value t) <= 1 by have := @monoA (1 / value t) 1; rewrite (keep _ one) => le;
    apply: le; rewrite /Rdiv; lra.
  by split; nra.
by split; [rewrite -(keepT _ zeroT); exact: monoT | exact: monoT].
Qed.
End Leak.
Lemma gamma_ge0 n u : 0 <= u -> INR n * u < 1 -> 0 <= gamma n u.
Proof.
move=> u0 small; apply: Rmult_le_pos; first by apply: Rmult_le_pos => //; exact: pos_INR.
by apply/Rlt_le/Rinv_0_lt_compat; lra.
Qed.
(** A quotient is rounded once, or twice through the reciprocal. *)
Lemma divided_error_le A (reciprocal : bool) e total : sound A -> 0 <= e <= 2 -> 0 < total ->
  Rabs ((if reciprocal then fl A (e * fl A (1 / total)) else fl A (e / total)) - e / total)
  <= ((1 + roundoff A) ^ 2 - 1) * (e / total) + (3 + 2 * roundoff A) * loss A.
Proof.
move=> [[u0 _ l0] [_ _ _ _ any]] [e0 e2] t0; set u := roundoff A in u0 any *.
have i0 : 0 < / total by exact: Rinv_0_lt_compat.
set x := e / total; have x0 : 0 <= x by apply: Rmult_le_pos => //; exact: Rlt_le.
case: reciprocal; last first.
  have := any x; rewrite (Rabs_pos_eq x) //; have := Rmult_le_pos _ _ u0 x0.
  have := Rmult_le_pos _ _ u0 (Rmult_le_pos _ _ u0 x0); have := Rmult_le_pos _ _ u0 l0; lra.
set r := fl A (1 / total).
have r_near : Rabs (e * r - x) <= u * x + 2 * loss A.
  have -> : e * r - x = e * (r - 1 / total) by rewrite /x /Rdiv; ring.
  rewrite Rabs_mult (Rabs_pos_eq e) //.
  apply: Rle_trans (Rmult_le_compat_l _ _ _ e0 (any _)) _; rewrite Rabs_pos_eq; last first.
    by rewrite /Rdiv Rmult_1_l; exact: Rlt_le.
  have -> : e * (u * (1 / total) + loss A) = u * x + e * loss A by rewrite /x /Rdiv; ring.
  by apply: Rplus_le_compat_l; apply: Rmult_le_compat_r.
have er : Rabs (e * r) <= (1 + u) * x + 2 * loss A.
  have := Rabs_triang (e * r - x) x; have -> : e * r - x + x = e * r by ring.
  by rewrite (Rabs_pos_eq x) //; lra.
have := Rabs_triang (fl A (e * r) - e * r) (e * r - x).
have -> : fl A (e * r) - e * r + (e * r - x) = fl A (e * r) - x by ring.
have := any (e * r); have := Rmult_le_compat_l _ _ _ u0 er; lra.
Qed.
Lemma quotient_error_le A T reciprocal e total : sound A -> sound T -> 0 <= e <= 2 -> 0 < total ->
  Rabs (quotient A T reciprocal e total - e / total)
  <= ((1 + roundoff A) ^ 2 * (1 + roundoff T) - 1) * (e / total)
    + ((1 + roundoff T) * (3 + 2 * roundoff A) * loss A + loss T).
Proof.
move=> soundA [[v0 _ _] [_ _ _ _ any]] ee t0; have near := divided_error_le reciprocal soundA ee t0.
have x0 : 0 <= e / total by case: ee => e0 _; apply: Rmult_le_pos => //;
  exact/Rlt_le/Rinv_0_lt_compat.
rewrite /quotient; set y := if reciprocal then _ else _ in near *.
set x := e / total in near x0 *; set u := roundoff A in near *.
have ay : Rabs y <= (1 + u) ^ 2 * x + (3 + 2 * u) * loss A.
  by have := Rabs_triang (y - x) x; have -> : y - x + x = y;
    [ring | rewrite (Rabs_pos_eq x) //; lra].
have := Rabs_triang (fl T y - y) (y - x); have -> : fl T y - y + (y - x) = fl T y - x by ring.
by have := any y; have := Rmult_le_compat_l _ _ _ v0 ay; lra.
Qed.
Section Total.
Variables (A : arithmetic) (K : finType) (few : pred K) (e : K -> R) (t : order K) (N : nat)
  (far : R).
Hypotheses (soundA : sound A) (small : INR #|K| * roundoff A < 1) (NK : (N <= #|K|)%N).
Let smallN : INR N * roundoff A < 1.
Proof. by have [[u0 _ _] _] := soundA; apply: Rle_lt_trans small; apply: Rmult_le_compat_r => //;
  apply/le_INR/leP. Qed.
Lemma total_lost_ge0 : 0 <= far -> 0 <= total_lost A N #|K| far.
Proof.
move=> far0; have [[u0 s0 l0] _] := soundA.
have g0 := gamma_ge0 u0 smallN; have gn0 := gamma_ge0 u0 small.
apply: Rmult_le_pos; first lra; apply: Rmult_le_pos; first lra; apply: Rmult_le_pos; first lra.
by have := Rmult_le_pos _ _ (pos_INR #|K|) l0; have := Rmult_le_pos _ _ (pos_INR #|K|) s0; lra.
Qed.
(** The sum as computed is near that of the few exponentials ([few_sums]). *)
Lemma total_error_le : nearest A -> (#|few| <= N)%N -> (forall k, 0 <= e k) -> summed e t ->
  \big[Rplus/0]_(k | ~~ few k) e k <= far ->
  Rabs (evaluate A A id (fun _ => 1) e 0 t - \big[Rplus/0]_(k | few k) e k)
  <= gamma N (roundoff A) * \big[Rplus/0]_(k | few k) e k + total_lost A N #|K| far.
Proof.
move=> nearA fN e0 sumd far_e; have [once none stored] := sumd; have sz := summed_size_le sumd.
have [[u0 s0 l0] [z0 _ _ _ _]] := soundA.
have g0 := gamma_ge0 u0 smallN; have gn0 := gamma_ge0 u0 small.
pose S := Setting A A id 0 #|K| #|K| 0 0.
have as_S : as_set S (fun _ => 1) e 0 t.
  split; first by split=> //; first [exact: small | exact: Rle_refl].
  split; first by split=> //=; [rewrite -stored; exact: stored_le | rewrite stored].
  split=> [|i] /=; first by apply: leq_trans (count_size _ _) sz.
  by rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; lra.
have NKn : (#|few| <= N <= terms S)%N by rewrite fN.
have := few_sums as_S (or_introl nearA) NKn;
  rewrite /few_bound /cost /Statements.lost /growth_of /growth /underflow /computed /=.
have -> : \big[Rplus/0]_(k | few k) (1 * e k) = \big[Rplus/0]_(k | few k) e k
  by apply: eq_bigr => k _; ring.
have absE p : \big[Rplus/0]_(k | p k) (Rabs 1 * Rabs (e k)) = \big[Rplus/0]_(k | p k) e k.
  by apply: eq_bigr => k _; rewrite Rabs_R1 Rmult_1_l Rabs_pos_eq.
rewrite !absE => le; apply: Rle_trans le _;
  rewrite !(Rplus_0_r, Rmult_1_r, Rmult_1_l, Rmult_0_l).
apply: Rplus_le_compat; first by right; ring.
rewrite /total_lost; apply: Rmult_le_compat_l; first lra.
apply: Rmult_le_compat_l; first lra.
by rewrite -(Rmult_plus_distr_l (1 + gamma #|K| (roundoff A))); apply: Rmult_le_compat_l;
  [lra | apply: Rplus_le_compat_r; exact: far_e].
Qed.
End Total.
(** A far weight is at most its exponential as stored, and so at most twice it. *)
Lemma far_weights_le T (K : finType) (few : pred K) (e w : K -> R) far : sound T -> nearest T ->
  (forall k, 0 <= e k) -> (forall k, 0 <= w k <= fl T (e k)) ->
  \big[Rplus/0]_(k | ~~ few k) e k <= far ->
  \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far_weights T #|K| far.
Proof.
move=> [[_ s0 _] [zero _ _ _ _]] nearT e0 we far_e; have le k : Rabs (w k) <= 2 * e k + sum_loss T.
  have [w0 wl] := we k; rewrite Rabs_pos_eq //; apply: Rle_trans wl _.
  have [_ /(_ 0 (e k) zero)] := nearT; rewrite !Rplus_0_l (Rabs_pos_eq (e k)) //.
  by rewrite /Rabs; case: Rcase_abs; lra.
apply: Rle_trans (_ : \big[Rplus/0]_(k | ~~ few k) (2 * e k + sum_loss T) <= _);
  first by apply: rsum_le => k _; exact: le.
rewrite big_split /= -big_distrr /= rsum_pred_constE /far_weights.
apply: Rplus_le_compat; first lra.
by apply: Rmult_le_compat_r => //; apply/le_INR/leP; exact: max_card.
Qed.
(** Sum, quotients and far weights are the premises of [softmax_error]. *)
Theorem computed_softmax_error : SOFT_computed.
Proof.
move=> A T reciprocal [soundA monoA nearA] [soundT monoT nearT] one K few s e t N D far far' /andP
  [fN NK].
move=> [D01 far_ge0 small g1 least0] [[top ftop [top0 top1]] each moved far_e far_p] sumd w.
have [once _ _] := sumd; have [[u0 _ l0] _] := soundA; have [[v0 _ lT0] _] := soundT.
have fe k : representable A (e k) /\ 0 <= e k by have [f [e0 _]] := each k.
have e0 k : 0 <= e k by case: (fe k).
set total := evaluate A A id (fun _ => 1) e 0 t.
have t0 : 0 < total.
  apply: Rlt_le_trans Rlt_0_1 _; apply: (value_ge1 soundA monoA one fe top1).
  by apply/negPn/negP => /(proj2 once); rewrite /= top1 Rmult_1_l => E; lra.
have far_w : \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far_weights T #|K| far.
  by apply: (far_weights_le soundT nearT e0) far_e;
    exact: (weight_le reciprocal soundA monoA monoT soundT one fe top1 sumd).
split=> //; set v := (1 + roundoff A) ^ 2 * (1 + roundoff T) - 1.
set mu := (1 + roundoff T) * (3 + 2 * roundoff A) * loss A + loss T.
have mu0 : 0 <= mu.
  have : 0 <= (1 + roundoff T) * (3 + 2 * roundoff A) by apply: Rmult_le_pos; lra.
  by move=> /Rmult_le_pos /(_ l0); rewrite /mu; lra.
have v_ge0 : 0 <= v.
  have : 1 <= (1 + roundoff A) ^ 2 by apply: pow_R1_Rle; lra.
  by move=> /(Rmult_le_compat_r (1 + roundoff T) 1); rewrite /v; lra.
have smallN : INR N * roundoff A < 1.
  by apply: Rle_lt_trans small; apply: Rmult_le_compat_r => //; apply/le_INR/leP.
have fewN : INR #|few| * mu <= INR N * mu by apply: Rmult_le_compat_r => //; apply/le_INR/leP.
have close := total_error_le soundA small NK nearA fN e0 sumd far_e.
have quotients k : Rabs (w k - e k / total) <= v * (e k / total) + mu.
  by apply: quotient_error_le => //; case: (each k).
apply: Rle_trans (softmax_error _ _ e0 moved close (fun k _ => quotients k) far_w far_p) _.
- by split=> //; [split=> //; exact: gamma_ge0 | exact: total_lost_ge0].
- by exists top.
- by rewrite /computed_bound /softmax_bound -/v -/mu; lra.
Qed.

(** ** Sums without the summands that are zero *)
Section Pruned.
Variables (I : eqType) (drop : pred I).
Fixpoint pruned (t : order I) : order I :=
  match t with
  | Product i => if drop i then @Zero I else t
  | Plus s t => Plus (pruned s) (pruned t)
  | Fused i t => if drop i then pruned t else Fused i (pruned t)
  | Stored t => Stored (pruned t)
  | _ => t
  end.
Definition stays (i : option I) := if i is Some i then ~~ drop i else true.
Lemma pruned_summandsE t : summands (pruned t) = [seq i <- summands t | stays i].
Proof. by elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; rewrite ?filter_cat ?IHs ?IHt //;
  case: ifP => //= _; rewrite ?IHt. Qed.
Lemma pruned_way_le t : (stored_on_a_way (pruned t) <= stored_on_a_way t)%N.
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; try by case: ifP.
by rewrite geq_max !leq_max IHs IHt orbT.
Qed.
Lemma pruned_all t : stored_in_all (pruned t) = stored_in_all t.
Proof. by elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; rewrite ?IHs ?IHt //; case: ifP. Qed.
Variables (A T : arithmetic) (cut : R -> R) (w x : I -> R) (b : R).
Hypotheses (soundA : sound A) (soundT : sound T)
  (wider : forall z, representable T z -> representable A z).
Hypotheses (bias : representable A b) (zeros : forall i, drop i -> cut (w i) * cut (x i) = 0).
Lemma pruned_valueE t : evaluate A T cut w x b (pruned t) = evaluate A T cut w x b t.
Proof.
have [_ [zero img keep _ _]] := soundA.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; rewrite -?IHs -?IHt //.
  by case: ifP => // /zeros ->; rewrite keep.
case: ifP => [/zeros ->|_] //=; rewrite Rplus_0_l keep //;
  exact: (value_representable cut w x soundA soundT wider bias).
Qed.
End Pruned.
Lemma pruned_once (I : finType) (drop : pred I) (w x : I -> R) b (t : order I) :
  (forall i, drop i -> w i * x i = 0) ->
  each_once w x b t -> each_once w x b (pruned drop t).
Proof.
move=> zeros [us out]; rewrite /each_once pruned_summandsE; split; first exact: filter_uniq.
move=> i; rewrite mem_filter negb_and => /orP [|/out //]; case: i => //= i; rewrite negbK;
  exact: zeros.
Qed.
Lemma pruned_size_le (I : finType) (few : pred I) (t : order I) : uniq (summands t) ->
  None \notin summands t ->
  (size (summands (pruned (fun i => i \notin few) t)) <= #|few|)%N.
Proof.
move=> us none; rewrite pruned_summandsE.
have sub : {subset [seq i <- summands t | stays (fun i => i \notin few) i] <=
  [seq Some i | i <- enum few]}.
  move=> [i|]; rewrite mem_filter /=; last by move=> ins; rewrite ins in none.
  by rewrite negbK => /andP [f _]; apply: map_f; rewrite mem_enum.
by have := uniq_leq_size (filter_uniq _ us) sub; rewrite size_map -cardE.
Qed.

(** ** What leaks *)
Theorem leak : SOFT_leak.
Proof. move=> A T r sA mA mT sT one K e target t sumd fe top;
  exact: (weight_le r sA mA mT sT one fe top sumd). Qed.
Theorem leak_in_all : SOFT_leak_in_all.
Proof.
move=> A T r sA mA mT sT one K s e target t few N d eta sumd fe top d0 eta0 out cnt.
have fe' k : representable A (e k) /\ 0 <= e k by have [f [e0 _]] := fe k.
have le := weight_le r sA mA mT sT one fe' top sumd.
have [[v0 _ l0] [_ _ _ _ any]] := sT; set C := (1 + roundoff T) * eta + loss T.
have C0 : 0 <= C by rewrite /C; nra.
have each k : computed_softmax A T r e t k <= (1 + roundoff T) * (1 + d) * exp (s k)
  + (if k \in few then C else 0).
  have x0 := exp_pos (s k); case: ifPn => [_|/out ->]; last by have :=
    Rmult_le_pos (1 + roundoff T) ((1 + d) * exp (s k)); nra.
  have [_ up] := le k; have [_ [e0 eu]] := fe k; apply: Rle_trans up _.
  have := any (e k); rewrite (Rabs_pos_eq (e k)) // /C => /(Rle_trans _ _ _ (Rle_abs _)) E.
  have := Rmult_le_compat_l (1 + roundoff T) _ _ _ eu; lra.
apply: Rle_trans
  (_ : \big[Rplus/0]_(k | k != target)
  ((1 + roundoff T) * (1 + d) * exp (s k) + (if k \in few then C else 0)) <= _).
  by apply: rsum_le => k _; exact: each.
rewrite big_split /= -big_distrr /=; apply: Rplus_le_compat_l.
have -> : \big[Rplus/0]_(k | k != target) (if k \in few then C else 0)
  = INR #|[pred k in few | k != target]| * C.
  rewrite -big_mkcondr /= -[RHS]/(_ * C) big_const.
  rewrite (eq_card (B := [pred k in few | k != target])) => [|k]; last by rewrite !inE andbC.
  by elim: #|_| => [|m IH]; rewrite ?iterS ?IH ?S_INR /=; ring.
by apply: Rmult_le_compat_r => //; apply/le_INR/leP.
Qed.
Theorem lattice : SOFT_lattice.
Proof.
split=> [n K pos inj target alpha theta total|n K pos inj target r]; last rewrite /another.
  have := partition_le (fun N => axis_le_total N total) inj (pos target);
    rewrite (bigD1 target) //= weight_diag1 // /key_weight; lra.
pose near := [pred k | (distance (pos k) (pos target) <=? Z.of_nat (r * r))%Z].
have self : target \in near.
  rewrite inE /distance big1 => [|a _]; last by rewrite Z.sub_diag.
  by apply/Z.leb_spec0; lia.
pose code k : {ffun 'I_n -> 'I_(r + r).+1} :=
  [ffun i => inord (Z.to_nat (pos k i - pos target i + Z.of_nat r))].
have range k i : k \in near -> (Z.abs (pos k i - pos target i) <= Z.of_nat r)%Z.
  rewrite inE /distance => /Z.leb_spec0; rewrite (bigD1 i) //= of_natM.
  have : (0 <= \big[Z.add/0]_(j < n | j != i)
    ((pos k j - pos target j) * (pos k j - pos target j)))%Z.
    by elim/big_ind: _ => // [x y|j _]; [lia | exact: Z.square_nonneg].
  by set S := bigop _ _ _; move: (pos k i - pos target i)%Z (Z.of_nat r) (Zle_0_nat r) =>
    y m m0 S0 le; nia.
have codeK k i : k \in near -> (Z.of_nat (code k i) - Z.of_nat r = pos k i - pos target i)%Z.
  move=> /(range k i); rewrite ffunE; move: (pos k i - pos target i)%Z => y le.
  by rewrite inordK ?ltnS //; first lia; apply/leP; rewrite -plusE; lia.
have inj' : {in near &, injective code}.
  by move=> k k' nk nk' E; apply: inj => i; have := codeK _ i nk; have := codeK _ i nk'; rewrite E;
    lia.
have : (#|near| <= (r + r).+1 ^ n)%N.
  by rewrite -(card_in_imset inj'); apply: leq_trans (max_card _) _; rewrite card_ffun !card_ord.
rewrite (cardD1 target) self add1n => le; rewrite -ltnS subn1 prednK ?expn_gt0 //;
  apply: leq_trans le.
Qed.

(** ** The mean of a target of weight 1 *)
Section Hard.
Variables (A T : arithmetic) (cut : R -> R) (I : eqType) (w x : I -> R) (target : I) (kappa : R).
Hypotheses (soundA : sound A) (soundT : sound T)
  (wider : forall z, representable T z -> representable A z) (kappa0 : 0 <= kappa).
Hypothesis close : forall i, Rabs (cut (w i) - w i) <= kappa * Rabs (w i) /\
  Rabs (cut (x i) - x i) <= kappa * Rabs (x i).
Hypotheses (uncut : forall z, cut z = z) (nearA : nearest A) (nearT : nearest T).
Hypotheses (one : w target = 1) (repA : representable A (x target))
  (repT : representable T (x target)).
Let value := evaluate A T cut w x 0.
Let others := weight (fun i => if i == target then 0 else w i) x 0.
Let lossesAT := losses A T (I := I).
Let zeroA : representable A 0. Proof. by have [_ [? _ _ _ _]] := soundA. Qed.
Lemma others_ge0 t : 0 <= others t. Proof. exact: weight_ge0. Qed.
Lemma others_all t : Some target \notin summands t -> weight w x 0 t = others t.
Proof.
rewrite /others; elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=.
- by rewrite inE => ne; rewrite ifN // eq_sym; apply: contra ne => /eqP ->.
- by rewrite mem_cat negb_or => /andP [/IHs -> /IHt ->].
- by rewrite inE negb_or => /andP [ne /IHt ->]; rewrite ifN // eq_sym; apply: contra ne => /eqP ->.
Qed.
(** What stands beside the target is small. *)
Lemma beside_le t r c : Some target \notin summands t -> (rounds t <= r)%N ->
  (stored_on_a_way t <= c)%N ->
  Rabs (value t) <= factor A T kappa r c * (others t + lossesAT t).
Proof.
move=> /others_all E rt ct.
have := error_le soundA soundT wider zeroA kappa0 close rt ct; rewrite -/(value t) E -/(lossesAT t).
have := exact_le w x 0 t; rewrite E; have := Rabs_triang (value t - exact_value w x 0 t)
  (exact_value w x 0 t).
have -> : value t - exact_value w x 0 t + exact_value w x 0 t = value t by ring.
lra.
Qed.
Lemma added_le a b : representable A a -> Rabs (fl A (a + b) - x target) <= Rabs (a - x target)
  + 2 * Rabs b + sum_loss A.
Proof.
move=> fa; have [_ /(_ a b fa) near] := nearA.
have := Rabs_triang (fl A (a + b) - (a + b)) (a - x target + b);
  have := Rabs_triang (a - x target) b.
have -> : fl A (a + b) - (a + b) + (a - x target + b) = fl A (a + b) - x target by ring.
lra.
Qed.
(** Along the way of the target: what is added beside it moves the sum by twice what it weighs, and
    a store doubles what the sum is off by. *)
Section Way.
Variables r C : nat.
Let G := factor A T kappa r C.
Let target_error c t : Prop :=
  Rabs (value t - x target) <= 2 ^ c * (2 * G) * (others t + lossesAT t).
Let G_ge1 : 1 <= G.
Proof. by have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 r C; exact: Rle_trans K1 Kg. Qed.
Lemma doubled_le c d y : 0 <= d -> 0 <= y -> d <= 2 * G * y -> d <= 2 ^ c * (2 * G) * y.
Proof.
move=> d0 y0 le; have P : 1 <= 2 ^ c by apply: pow_R1_Rle; lra.
by have := Rmult_le_compat_r (2 * G * y) 1 (2 ^ c) (Rle_trans _ _ _ d0 le) P; lra.
Qed.
Lemma more_beside_le c m d b e y z : m <= 2 ^ c * (2 * G) * y -> 0 <= b -> 0 <= e -> 0 <= z ->
  b <= G * z -> d <= m + 2 * b + e -> d <= 2 ^ c * (2 * G) * (y + (z + e)).
Proof.
move=> hm b0 e0 z0 hb hd; have g1 := G_ge1.
have : 2 * b + e <= 2 ^ c * (2 * G) * (z + e) by apply: doubled_le;
  [lra | lra | have := Rmult_le_compat_r e 1 G e0 g1; lra].
by lra.
Qed.
Lemma target_product_error_le c : target_error c (Product target).
Proof.
have [[_ _ l0] [_ _ keep _ _]] := soundA; have g1 := G_ge1.
rewrite /target_error /value /= !uncut one Rmult_1_l keep // Rminus_eq_0 Rabs_R0.
rewrite /others /= eqxx Rabs_R0 Rmult_0_l Rplus_0_l; apply: Rmult_le_pos => //.
by apply: Rmult_le_pos; [apply: pow_le|]; lra.
Qed.
Lemma target_plus_error_le c s t : ~~ nilp (summands s) -> ~~ nilp (summands t) ->
  target_error c s -> Some target \notin summands t -> (rounds t <= r)%N ->
  (stored_on_a_way t <= C)%N -> target_error c (Plus s t) /\ target_error c (Plus t s).
Proof.
move=> /negbTE ns /negbTE nt E out rt ct; have [[_ s0 _] _] := soundA.
have ot := others_ge0 t; have lt := losses_ge0 soundA soundT t.
have near := added_le (value t) (value_representable cut w x soundA soundT wider zeroA s).
have le : Rabs (fl A (value s + value t) - x target)
    <= 2 ^ c * (2 * G) * (others s + lossesAT s + (others t + lossesAT t + sum_loss A)).
  by apply: (more_beside_le E (Rabs_pos _) s0 _ (beside_le out rt ct) near); rewrite /lossesAT; lra.
rewrite /target_error /lossesAT /others /= ns nt; split.
  by apply: Rle_trans le _; right; rewrite /others /lossesAT; ring.
rewrite /value /= [_ + evaluate _ _ _ _ _ _ s]Rplus_comm.
by apply: Rle_trans le _; right; rewrite /others /lossesAT; ring.
Qed.
Lemma target_fused_error_le c t : Some target \notin summands t -> (rounds t <= r)%N ->
  (stored_on_a_way t <= C)%N -> target_error c (Fused target t).
Proof.
move=> out rt ct; have [[_ _ l0] _] := soundA; have [sl _] := nearA.
have ot := others_ge0 t; have lt := losses_ge0 soundA soundT t.
rewrite /target_error; have -> : others (Fused target t) + lossesAT (Fused target t)
  = 0 + (others t + lossesAT t + loss A).
  by rewrite /others /lossesAT /= eqxx Rabs_R0; ring.
apply: (more_beside_le (m := 0) (b := Rabs (value t))); [|exact: Rabs_pos|lra| | |].
- by rewrite Rmult_0_r; lra.
- by rewrite /lossesAT; lra.
- exact: beside_le.
- have := added_le (value t) repA; rewrite Rminus_eq_0 Rabs_R0 /value /= !uncut one Rmult_1_l.
  by lra.
Qed.
Lemma beside_fused_error_le c i t : i != target -> target_error c t -> target_error c (Fused i t).
Proof.
move=> ne E; have [[_ _ l0] _] := soundA; have [sl _] := nearA; have g1 := G_ge1.
have p0 : 0 <= Rabs (w i) * Rabs (x i) by apply: Rmult_le_pos; exact: Rabs_pos.
rewrite /target_error; have -> : others (Fused i t) + lossesAT (Fused i t)
  = others t + lossesAT t + (Rabs (w i) * Rabs (x i) + loss A).
  by rewrite /others /lossesAT /= (negbTE ne); ring.
apply: (more_beside_le (b := Rabs (w i * x i)) E); [exact: Rabs_pos|lra|lra| |].
- by rewrite Rabs_mult; have := Rmult_le_compat_r _ _ _ p0 g1; lra.
- have := added_le (w i * x i) (value_representable cut w x soundA soundT wider zeroA t).
  by rewrite /value /= !uncut [w i * x i + _]Rplus_comm; lra.
Qed.
Lemma target_stored_error_le c t : target_error c t -> target_error c.+1 (Stored t).
Proof.
move=> E; have [[_ _ l0] _] := soundT; have [_ nT] := nearT; have [slT _] := nearT.
have near : Rabs (fl T (value t) - x target) <= 2 * Rabs (value t - x target) + loss T.
  have := nT _ (value t - x target) repT; have -> : x target + (value t - x target) = value t
    by ring.
  have := Rabs_triang (fl T (value t) - value t) (value t - x target).
  have -> : fl T (value t) - value t + (value t - x target) = fl T (value t) - x target by ring.
  lra.
have : loss T <= 2 ^ c.+1 * (2 * G) * loss T by apply: doubled_le => //;
  have := Rmult_le_compat_r _ 1 G l0 G_ge1; lra.
by move: E near; rewrite /target_error /lossesAT /value /= -/(value t) /others /= -/(others t); lra.
Qed.
(** By induction on the order; of the two parts of a sum one holds the target. *)
Lemma target_error_le t : uniq (summands t) -> Some target \in summands t -> (rounds t <= r)%N ->
  forall c, (stored_on_a_way t <= c <= C)%N ->
  Rabs (value t - x target) <= 2 ^ c * (2 * factor A T kappa r C) * (others t + lossesAT t).
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //.
- move=> _ /=; rewrite inE => /eqP E _ c _; have -> : i = target by case: E.
  exact: target_product_error_le.
- case: (boolP (nilp (summands s))) => ns.
    rewrite /value (plus_empty cut w x soundA soundT wider zeroA t ns) -/(value t) /=
      (nilP ns) /= => us inn.
    rewrite /lossesAT /others /= ?ns /= (proj2 (exact_empty0 _ x 0 ns)) Rplus_0_l => rt c /andP
      [ct cC].
    by apply: IHt => //; rewrite cC andbT; apply: leq_trans ct; exact: leq_maxr.
  case: (boolP (nilp (summands t))) => nt.
    rewrite /value (plus_emptyr cut w x soundA soundT wider zeroA s nt) -/(value s) /=
      (nilP nt) cats0 => us inn.
    rewrite /lossesAT /others /= ?(negbTE ns) ?nt /= (proj2 (exact_empty0 _ x 0 nt)) Rplus_0_r =>
      rs c /andP [cs cC].
    by apply: IHs => //; rewrite cC andbT; apply: leq_trans cs; exact: leq_maxl.
  move=> us inn rr c cc; rewrite -/(target_error c (Plus s t)); move: us inn rr cc.
  rewrite /= (negbTE ns) (negbTE nt) cat_uniq mem_cat => /and3P [us apart ut] inn rr /andP [].
  rewrite geq_max => /andP [cs ct] cC.
  have rs : (rounds s <= r)%N := leq_trans (leq_trans (leq_maxl _ _) (leqnSn _)) rr.
  have rt : (rounds t <= r)%N := leq_trans (leq_trans (leq_maxr _ _) (leqnSn _)) rr.
  have once u v : ~~ has (mem (summands u)) (summands v) -> Some target \in summands u ->
      Some target \notin summands v.
    by move=> disjoint inu; apply: contra disjoint => inv; apply/hasP; exists (Some target).
  case/orP: inn => inn.
    apply: (proj1 (target_plus_error_le ns nt _ (once _ _ apart inn) rt (leq_trans ct cC))).
    by apply: IHs => //; rewrite cs.
  have out : Some target \notin summands s by apply: contra apart => ins; apply/hasP;
    exists (Some target).
  apply: (proj2 (target_plus_error_le nt ns _ out rs (leq_trans cs cC))).
  by apply: IHt => //; rewrite ct.
- move=> us inn rr c cc; rewrite -/(target_error c (Fused i t)); move: us inn rr cc.
  rewrite /= inE => /andP [fresh ut] inn rr /andP [ct cC].
  have rt : (rounds t <= r)%N := leq_trans (leqnSn _) rr.
  case: (eqVneq i target) fresh inn => [-> fresh _|ne _].
    by apply: target_fused_error_le => //; exact: leq_trans ct cC.
  case/orP=> [/eqP [E]|inn]; first by rewrite E eqxx in ne.
  by apply: beside_fused_error_le => //; apply: IHt => //; rewrite ct.
- move=> ut inn rt [|c] // /andP [ct cC]; apply: target_stored_error_le.
  by apply: IHt => //; rewrite -ltnS ct ltnW.
Qed.
End Way.
End Hard.

(** [target_error] for the whole order; counts and losses are bounded by those of the setting, and
    what stands beside the target is the sum over the other keys. *)
Theorem hard_mixing : SOFT_hard_mixing.
Proof.
case=> A T cut kappa k n c m K w x target t
  [/= [soundA soundT wider kappa0 small] [[bias [us out] sz sw sa] [sk close]]].
move=> uncut nearA nearT one repA repT; rewrite /computed /lost /growth_of /=.
have [[u0 s0 l0] _] := soundA; have [[v0 _ l0'] _] := soundT.
have grow : factor A T kappa n c <= growth A T kappa n c.
  rewrite /factor /growth; apply: Rmult_le_compat_r; first by apply: pow_le; lra.
  by apply: Rmult_le_compat_l; [apply: pow_le; lra | exact: power_le_gamma].
have [_ _ K1 Kg] := factors_ge soundA soundT kappa0 n c.
have lost : losses A T t <= underflow A T k n m.
  have := losses_le soundA soundT t; rewrite /underflow.
  have := Rmult_le_compat_r _ _ _ s0 (le_INR _ _ (leP sz));
    have := Rmult_le_compat_r _ _ _ l0 (le_INR _ _ (leP sk)).
  have := Rmult_le_compat_r _ _ _ l0' (le_INR _ _ (leP sa)).
  by case: ifP => _; lra.
have o0 := others_ge0 w x target t; set o := weight _ _ _ _ in o0.
have restE : \big[Rplus/0]_(i | i != target) (Rabs (w i) * Rabs (x i)) = o.
  rewrite /o weight_sum; set f := fun i => if i == target then 0 else w i.
  rewrite (sum_onceE (F := fun i => if i is Some i then Rabs (f i) * Rabs (x i) else Rabs 0) us) =>
    [|[i|] /out /=]; last by rewrite Rabs_R0.
    rewrite Rabs_R0 Rplus_0_r big_mkcond; apply: eq_bigr => i _; rewrite /f.
    by case: eqP => _; rewrite ?Rabs_R0 ?Rmult_0_l.
  by rewrite /f; case: eqP => [_ _|_]; rewrite ?Rabs_R0 ?Rmult_0_l // -Rabs_mult => ->;
    rewrite Rabs_R0.
rewrite restE; have l1 := losses_ge0 soundA soundT t.
have bound : factor A T kappa n c * (o + losses A T t) <= growth A T kappa n c * o
  + growth A T kappa n c * underflow A T k n m.
  by rewrite -Rmult_plus_distr_l; apply: Rmult_le_compat; lra.
have [inn|nin] := boolP (Some target \in summands t).
  have := target_error_le soundA soundT wider kappa0 close uncut nearA nearT one repA repT us inn
    (leq_trans (rounds_le t) sz) (C := c) (c := c); rewrite sw leqnn -/o => /(_ isT) E;
      apply: Rle_trans E _.
  have P : 0 <= 2 * 2 ^ c by apply: Rmult_le_pos; [lra | apply: pow_le; lra].
  have := Rmult_le_compat_l _ _ _ P bound; move: (2 ^ c) (factor _ _ _ _ _) => y f.
  by have -> : y * (2 * f) * (o + losses A T t) = 2 * y * (f * (o + losses A T t)) by ring.
have zero : x target = 0 by have := out _ nin; rewrite /= one Rmult_1_l.
rewrite zero Rminus_0_r.
have := beside_le soundA soundT wider kappa0 close nin (leq_trans (rounds_le t) sz) sw;
  rewrite -/o => E.
apply: Rle_trans E _; apply: Rle_trans bound _; set z := _ + _.
have z0 : 0 <= z by rewrite /z -Rmult_plus_distr_l; apply: Rmult_le_pos; lra.
have P : 1 <= 2 * 2 ^ c by have := pow_R1_Rle 2 c; lra.
by have := Rmult_le_compat_r _ _ _ z0 P; rewrite Rmult_1_l.
Qed.

Lemma growths_ge1 s N : limits (sums s) (stores s) (cut_by s) (terms s) -> (N <= terms s)%N ->
  1 <= growth_of (among s N) /\ 1 <= growth_of s.
Proof.
move=> ok Nn; split; last exact: growth_ge1 ok.
apply: growth_ge1; have [sA sT wide k0 small] := ok; split=> //.
have [[u0 _ _] _] := sA; apply: Rle_lt_trans small.
by apply: Rmult_le_compat_r => //; apply/le_INR/leP.
Qed.
Lemma lost_ge0 s : limits (sums s) (stores s) (cut_by s) (terms s) -> 0 <= lost s.
Proof.
move=> ok; have G := growth_ge1 (casts s) ok; have [sA sT _ _ _] := ok.
have [[_ s0 l0] _] := sA; have [[_ _ l0'] _] := sT.
rewrite /lost /growth_of /underflow; apply: Rmult_le_pos; first lra.
have := Rmult_le_pos _ _ (pos_INR (products s)) l0; have := Rmult_le_pos _ _ (pos_INR (terms s)) s0.
by have := Rmult_le_pos _ _ (pos_INR (stored_sums s)) l0'; lra.
Qed.
Lemma few_bound_le s N near far near' far' : limits (sums s) (stores s) (cut_by s) (terms s) ->
  (N <= terms s)%N ->
  near <= near' -> far <= far' -> few_bound s N near far <= few_bound s N near' far'.
Proof.
move=> ok Nn le le'; have [G_ge1 G2] := growths_ge1 ok Nn; rewrite /few_bound /cost;
  apply: Rplus_le_compat.
  by apply: Rmult_le_compat_l; lra.
apply: Rmult_le_compat_l; first lra; apply: Rmult_le_compat_l; first lra.
by apply: Rplus_le_compat_r; apply: Rmult_le_compat_l; lra.
Qed.
(** [few_sums] compares the computed mean with that of the few computed weights; the rest of these
    and what they are off by weigh at most [far] and [off], times the range. *)
Theorem mixing : SOFT_mixing.
Proof.
move=> s K few p w x t N off far range as_s near NKn p0 p1 offw farw small.
have ok := proj1 as_s; have /andP [_ Nn] := NKn; have E := few_sums as_s near NKn.
have r0 : 0 <= range.
  have [i _|none] := pickP (fun _ : K => true);
    first by apply: Rle_trans (Rabs_pos (x i)) (small i).
  by exfalso; move: p1; rewrite big_pred0 //; lra.
have scaled (q : pred K) : \big[Rplus/0]_(i | q i) (Rabs (w i) * Rabs (x i))
  <= (\big[Rplus/0]_(i | q i) Rabs (w i)) * range.
  by rewrite big_distrl /=; apply: rsum_le => i _; apply: Rmult_le_compat_l;
    [exact: Rabs_pos | exact: small].
have all_w : \sum_i Rabs (w i) <= 1 + off.
  rewrite -p1; apply: Rle_trans (Rplus_le_compat_l _ _ _ offw); rewrite -big_split /=;
    apply: rsum_le => i _.
  have := Rabs_triang (p i) (w i - p i); have -> : p i + (w i - p i) = w i by ring.
  by rewrite (Rabs_pos_eq (p i)).
have near_w : \big[Rplus/0]_(i | few i) (Rabs (w i) * Rabs (x i)) <= (1 + off) * range.
  apply: Rle_trans (scaled few) _; apply: Rmult_le_compat_r => //; apply: Rle_trans all_w.
  by apply: rsum_part_le => i; exact: Rabs_pos.
have far_w : \big[Rplus/0]_(i | ~~ few i) (Rabs (w i) * Rabs (x i)) <= far * range.
  by apply: Rle_trans (scaled (fun i => ~~ few i)) _; apply: Rmult_le_compat_r.
have moved : Rabs (\big[Rplus/0]_(i | few i) (w i * x i) - \sum_i p i * x i) <= (off + far) * range.
  have -> : \big[Rplus/0]_(i | few i) (w i * x i) - \sum_i p i * x i
    = (\sum_i w i * x i - \sum_i p i * x i) - \big[Rplus/0]_(i | ~~ few i) (w i * x i).
    by rewrite [\sum_i w i * x i](bigID few) /=; ring.
  rewrite rsum_minus; apply: Rle_trans (Rabs_triang _ _) _; rewrite Rabs_Ropp Rmult_plus_distr_r;
    apply: Rplus_le_compat.
    apply: Rle_trans (rsum_abs_le _ _ _) _;
      apply: Rle_trans (_ : (\sum_i Rabs (w i - p i)) * range <= _).
      rewrite big_distrl /=; apply: rsum_le => i _;
        have -> : w i * x i - p i * x i = (w i - p i) * x i by ring.
      by rewrite Rabs_mult; apply: Rmult_le_compat_l; [exact: Rabs_pos | exact: small].
    exact: Rmult_le_compat_r.
  apply: Rle_trans (rsum_abs_le _ _ _) _; apply: Rle_trans far_w; apply: rsum_le => i _;
    rewrite Rabs_mult; exact: Rle_refl.
rewrite /mixing_bound; have le := few_bound_le ok Nn near_w far_w.
set y := computed _ _ _ _ _ in E *; set z := \big[Rplus/0]_(i | few i) _ in E moved.
have := Rabs_triang (y - z) (z - \sum_i p i * x i).
have -> : y - z + (z - \sum_i p i * x i) = y - \sum_i p i * x i by ring.
lra.
Qed.

(** ** A target whose weight is exactly 1 *)
Lemma rounded_below_oneE emin p : (1 < p)%Z -> (emin <= - p)%Z ->
  rounded emin p (1 - power (- p - 1))
  = 1.
Proof.
move=> p1 range; have h0 := power_gt0 (- p - 1); have h1 : power (- p - 1) <= power (-2)
  by apply: bpow_le; lia.
have q : power (-2) = / 4 by [].
have mag0 : mag radix2 (1 - power (- p - 1)) = 0%Z :> Z.
  apply: mag_unique_pos; change (bpow radix2 (0 - 1)) with (/ 2); change (bpow radix2 0) with 1;
    lra.
have exp0 : cexp radix2 (FLT_exp emin p) (1 - power (- p - 1)) = (- p)%Z
  by rewrite /cexp mag0 /FLT_exp; lia.
have pp : bpow radix2 p = IZR (2 ^ p) by rewrite -(IZR_Zpower radix2) //; lia.
have scaled : scaled_mantissa radix2 (FLT_exp emin p) (1 - power (- p - 1)) = IZR (2 ^ p - 1) + / 2.
  rewrite /scaled_mantissa exp0 Z.opp_involutive Rmult_minus_distr_r Rmult_1_l /power -bpow_plus.
  have -> : (- p - 1 + p = -1)%Z by ring.
  by rewrite pp minus_IZR; change (bpow radix2 (-1)) with (/ 2); lra.
rewrite /rounded /Generic_fmt.round scaled /ZnearestE /Znearest exp0.
have floor : Zfloor (IZR (2 ^ p - 1) + / 2) = (2 ^ p - 1)%Z by apply: Zfloor_imp; rewrite plus_IZR;
  lra.
rewrite floor Rcompare_Eq; last by ring.
have odd : Z.even (2 ^ p - 1) = false.
  by rewrite Z.even_sub Z.even_pow //; lia.
rewrite odd /= Zceil_floor_neq floor; last first.
  by move=> E; have : IZR (2 ^ p - 1) + / 2 = IZR (2 ^ p - 1) by []; lra.
have -> : (2 ^ p - 1 + 1 = 2 ^ p)%Z by ring.
by rewrite /F2R /= -pp -bpow_plus; have -> : (p + - p = 0)%Z by ring.
Qed.
(** A quotient above the point halfway below 1 is stored as 1. *)
Lemma quotient_stored_as_1 emin p emin' p' total : (1 < p' <= p)%Z -> (emin <= emin' <= - p')%Z ->
  (emin <= - p)%Z -> 1 <= total -> (1 - power (- p' - 1)) * total <= 1 - power (- p) ->
  rounded emin' p' (rounded emin p (/ total)) = 1.
Proof.
move=> pp ee range t1 P; have p1 : (1 < p)%Z by lia. have p1' : (1 < p')%Z by lia.
have u0 := power_gt0 (- p).
have f1 : rounded emin p 1 = 1 by apply: rounded_idE; apply: format_1; lia.
have f1' : rounded emin' p' 1 = 1 by apply: rounded_idE; apply: format_1; lia.
have i0 : 0 < / total by apply: Rinv_0_lt_compat; lra.
have i1 : / total <= 1 by rewrite -Rinv_1; apply: Rinv_le_contravar; lra.
have h0 := power_gt0 (- p' - 1); have h4 : power (- p' - 1) <= / 4.
  by have <- : power (-2) = / 4; [ | apply: bpow_le; lia].
have pos : 0 < (1 - power (- p' - 1)) * total by apply: Rmult_lt_0_compat; lra.
have inv : (1 - power (- p' - 1)) * / (1 - power (- p)) <= / total.
  apply: (Rmult_le_reg_r (total * (1 - power (- p)))); first by apply: Rmult_lt_0_compat; lra.
  have -> : (1 - power (- p' - 1)) * / (1 - power (- p)) * (total * (1 - power (- p)))
    = (1 - power (- p' - 1)) * total by field; lra.
  by have -> : / total * (total * (1 - power (- p))) = 1 - power (- p) by field; lra.
have d0 : 0 < 1 - power (- p) by lra.
have d1 : 1 <= / (1 - power (- p)) by rewrite -{1}Rinv_1; apply: Rinv_le_contravar; lra.
have half : / 2 <= / total.
  apply: Rle_trans inv; have := Rmult_le_compat_l (1 - power (- p' - 1)) _ _ ltac:(lra) d1; lra.
have y1 : rounded emin p (/ total) <= 1 by rewrite -f1; exact: rounded_le.
have yl : 1 - power (- p' - 1) <= rounded emin p (/ total).
  have norm : power (emin + p - 1) <= Rabs (/ total).
    rewrite (Rabs_pos_eq (/ total)); last lra; apply: Rle_trans half.
    by have <- : power (-1) = / 2; [ | apply: bpow_le; lia].
  have := normal_error_le p1 norm; rewrite (Rabs_pos_eq (/ total)); last lra.
  rewrite /Rabs; case: Rcase_abs => D E;
    have M := Rmult_le_compat_l (1 - power (- p)) _ _ (Rlt_le _ _ d0) inv;
    have Q : (1 - power (- p)) * ((1 - power (- p' - 1)) * / (1 - power (- p))) = 1
      - power (- p' - 1) by field; lra.
  - by rewrite Q in M; lra.
  - by rewrite Q in M; have := Rmult_le_pos _ _ (Rlt_le _ _ u0) (Rlt_le _ _ i0); lra.
apply: Rle_antisym; first by rewrite -f1'; exact: rounded_le.
by rewrite -(rounded_below_oneE p1' (proj2 ee)); exact: rounded_le.
Qed.
(** Keys of weight 0 are pruned from the order. Either what is left does not move the 1 of the
    target, so the total is 1, or the quotient of 1 and the total is stored as 1. *)
Theorem target_is_one : SOFT_one.
Proof.
move=> emin p emin' p' pp ee range K e target t reciprocal few N
  [once none stored] fe top out cnt small rest enough.
have p1 : (1 < p)%Z by lia. have p1' : (1 < p')%Z by lia.
have u0 := power_gt0 (- p); have sA := gradual_sound emin p1.
have [mA _] := gradual_laws emin p1.
have one : in_format emin p 1 by apply: format_1; lia.
have one' : in_format emin' p' 1 by apply: format_1; lia.
have f1 := rounded_idE (emin := emin) (p := p) one; have f1' :=
  rounded_idE (emin := emin') (p := p') one'.
have fe' k : in_format emin p (e k) by case: (fe k).
have ge0 k : k != target -> 0 <= e k by move=> _; case: (fe k).
have intarget : target \in few by apply/negPn/negP => /out; rewrite top => E; lra.
have size_few : (#|few| <= N.+1)%N.
  rewrite (cardD1 target) intarget add1n ltnS; apply: leq_trans cnt; apply: subset_leq_card.
  by apply/subsetP => k; rewrite !inE andbC.
have zeros k : k \notin few -> id 1 * id (e k) = 0 by move=> /out /= ->; rewrite Rmult_0_r.
set r := pruned (fun k => k \notin few) t.
have value : evaluate (gradual emin p) (gradual emin p) id (fun _ => 1) e 0 t
    = evaluate (gradual emin p) (gradual emin p) id (fun _ => 1) e 0 r.
  by rewrite /r (@pruned_valueE _ _ _ _ id _ _ _ sA sA (fun z H => H) (format0 emin p) zeros).
have [us outr] : each_once (fun _ => 1) e 0 r by apply: pruned_once once => k /out ->;
  rewrite Rmult_0_r.
have int : Some target \in summands r by apply/negPn/negP => /outr; rewrite /= top Rmult_1_l => E;
  lra.
have sz : (size (summands r) <= N.+1)%N.
  by apply: leq_trans size_few; case: once => ut _; exact: pruned_size_le.
have rest0 : 0 <= rest by apply: rsum_ge0 => k /ge0.
rewrite /computed_softmax /quotient value top /=.
set total := evaluate _ _ _ _ _ _ r.
have t1 : 1 <= total.
  by apply: (value_ge1 sA mA one (fun k => conj (fe' k) (proj2 (fe k))) top int).
have twice : rounded emin p (1 * rounded emin p (1 / total)) = rounded emin p (1 / total).
  by rewrite Rmult_1_l rounded_idE //; exact: rounded_format.
have -> : (if reciprocal then rounded emin p (1 * rounded emin p (1 / total)) else rounded emin p
  (1 / total)) = rounded emin p (1 / total).
  by case: reciprocal.
rewrite /Rdiv Rmult_1_l; case: enough => [tiny|cast].
  have few' : INR N * power (- p) < 1 by move: small; rewrite S_INR; lra.
  have -> : total = 1 by exact: (value_oneE p1 range fe' top ge0 few' tiny us int sz).
  by rewrite Rinv_1 f1 f1'.
have up : total <= (1 + gamma N.+1 (power (- p))) * (1 + rest).
  have [_ le] := value_le p1 fe' top ge0 (leq_trans (rounds_le r) sz); apply: Rle_trans le _.
  have exact : exact_value (fun _ => 1) e 0 r = 1 + rest.
    rewrite exact_sumE (sum_onceE us outr) Rplus_0_r (bigD1 target) //= top Rmult_1_l;
      congr (_ + _).
    by apply: eq_bigr => k _; rewrite Rmult_1_l.
  by rewrite exact; apply: Rmult_le_compat_r; [lra | apply: power_le_gamma; lra].
apply: quotient_stored_as_1 pp ee range t1 _; apply: Rle_trans cast; apply: Rmult_le_compat_l => //.
have : power (- p' - 1) <= power (-2) by apply: bpow_le; lia.
have -> : power (-2) = / 4 by []. lra.
Qed.

(** ** The layers *)
(** Both sums are near their real values (FLOAT), the second of tokens within [e] of what the taps
    read; these real values differ by at most [S e], heads being in bijection with taps. *)
Theorem tokens_read : SOFT_tokens.
Proof.
move=> n g ok G ci co H f weight b X bij range e small token near first second q o t t' [ok1 ev]
  [ok2 ev'].
have E := sum_error_in_any_order ok1 ev; have E' := sum_error_in_any_order ok2 ev'.
have over_heads (F : taps g -> 'I_(G * ci) -> R) : \big[Rplus/0]_(h : H) \big[Rplus/0]_c F (f h) c
  = \sum_t \sum_c F t c.
  by rewrite [RHS](reindex f) //=; exact: onW_bij.
set S := \sum_t \sum_c _.
have seen_le s c : Rabs (seen X q s c) <= range
  by rewrite /seen -(@zero_pad_key reals n g ok _ X q s c); exact: small.
have W0 s c : 0 <= Rabs (tap weight s c o) by exact: Rabs_pos.
have m1 : magnitude (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) <= S * range
  + Rabs (b o).
  apply: Rplus_le_compat_r;
    rewrite -(pair_bigA _ (fun s c => Rabs (tap weight s c o) * Rabs (seen X q s c))) /=.
  rewrite /S big_distrl; apply: rsum_le => s _; rewrite big_distrl; apply: rsum_le => c _.
  exact: Rmult_le_compat_l.
have m2 : magnitude (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o)
  <= S * range + Rabs (b o) + S * e.
  have -> : S * range + Rabs (b o) + S * e = S * (range + e) + Rabs (b o) by ring.
  apply: Rplus_le_compat_r;
    rewrite -(pair_bigA _ (fun h c => Rabs (tap weight (f h) c o) * Rabs (token h q c))) /=.
  rewrite /S -(over_heads (fun s c => Rabs (tap weight s c o))) big_distrl; apply: rsum_le => h _;
    rewrite big_distrl; apply: rsum_le => c _.
  apply: Rmult_le_compat_l => //; have := Rabs_triang (token h q c - seen X q (f h) c)
    (seen X q (f h) c).
  have -> : token h q c - seen X q (f h) c + seen X q (f h) c = token h q c by ring.
  by have := near h q c; have := seen_le (f h) c; lra.
have moved : Rabs ((\sum_i tap weight (f i.1) i.2 o * token i.1 q i.2 + b o)
  - (\sum_i tap weight i.1 i.2 o * seen X q i.1 i.2 + b o)) <= S * e.
  rewrite -(pair_bigA _ (fun h c => tap weight (f h) c o * token h q c))
    -(pair_bigA _ (fun s c => tap weight s c o * seen X q s c)) /=.
  rewrite -(over_heads (fun s c => tap weight s c o * seen X q s c)) /S
    -(over_heads (fun s c => Rabs (tap weight s c o))).
  have -> : forall y z v : R, y + v - (z + v) = y - z by move=> y z v; ring.
  rewrite rsum_minus; apply: Rle_trans (rsum_abs_le _ _ _) _; rewrite big_distrl;
    apply: rsum_le => h _.
  rewrite rsum_minus; apply: Rle_trans (rsum_abs_le _ _ _) _; rewrite big_distrl;
    apply: rsum_le => c _ /=.
  by rewrite -Rmult_minus_distr_l Rabs_mult; apply: Rmult_le_compat_l.
rewrite /difference /cost /lost /growth_of /computed.
have g1 := growth_ge1 (casts first) ok1; have g2 := growth_ge1 (casts second) ok2.
have c1 :=
  Rmult_le_compat_l (growth (sums first) (stores first) (cut_by first) (terms first) (casts first)
  - 1) _ _ _ m1.
have c2 :=
  Rmult_le_compat_l
  (growth (sums second) (stores second) (cut_by second) (terms second) (casts second) - 1) _ _ _ m2.
move: E E' moved c1 c2; set y := evaluate (sums first) _ _ _ _ _ t;
  set y' := evaluate (sums second) _ _ _ _ _ t'.
set s := _ + b o; set s' := _ + b o => E E' moved c1 c2.
have := Rabs_triang (y' - s') (s' - s + (s - y)); have -> : y' - s' + (s' - s + (s - y)) = y' - y
  by ring.
have := Rabs_triang (s' - s) (s - y); move: E; rewrite (Rabs_minus_sym y s) => E.
by have := c1 ltac:(lra); have := c2 ltac:(lra); lra.
Qed.
Theorem soft_layer : SOFT.
Proof.
move=> n g ok G ci co H f weight b X bij range small A T reciprocal nA nT one few s e over N D far
  far' leaked fN NK enough.
move=> given leaks attention way mix near Nt as_mixed token first second q o t t' set1 set2.
apply: (tokens_read ok bij small) set1 set2 => // h q' c.
have [ex sumd] := given h q'; set k0 := key ok q' (f h).
have NK' : (#|few h q'| <= N <= #|{: keys g}|)%N by rewrite fN.
have Nt' : (#|few h q'| <= N <= terms way)%N by rewrite fN.
have [W farW] := computed_softmax_error reciprocal nA nT one NK' enough ex sumd.
have p0 i : 0 <= softmax (s h q') i by apply/Rlt_le/softmax_gt0.
have p1 := softmax_sum1 (s h q') k0.
have M := mixing (as_mixed h q' c) (near h q') Nt' p0 p1 W farW (fun k => small k c).
have spread (c' : 'I_(G * ci)) k k' : Rabs (zero_pad X k c' - zero_pad X k' c') <= 2 * range.
  have := Rabs_triang (zero_pad X k c') (- zero_pad X k' c'); rewrite Rabs_Ropp; have := small k c';
    have := small k' c'.
  by move=> a1 a2 a3; apply: Rle_trans a3 _; lra.
have near_t := @head_error_le unit_finType _ _ (fun _ => softmax (s h q')) (fun _ => k0)
  (fun k c => zero_pad X k c) (fun _ => 2 * range)
  (fun _ => p0) (fun _ => p1) spread tt c.
have l : 1 - softmax (s h q') k0 <= leaked by apply: (leaks h q'); rewrite (readsE ok) eqxx.
have r0 : 0 <= range by apply: Rle_trans (Rabs_pos _) (small k0 c).
have le2 : (1 - softmax (s h q') k0) * (2 * range) <= leaked * (2 * range)
  by apply: Rmult_le_compat_r; lra.
have -> : seen X q' (f h) c = zero_pad X k0 c
  by rewrite /seen -(@zero_pad_key reals n g ok _ X q' (f h) c).
move: M near_t; rewrite /token; set B := mixing_bound _ _ _ _ _; set y := computed _ _ _ _ _;
  set z := \sum_i _ => M /= near_t.
have := Rabs_triang (y - z) (z - zero_pad X k0 c); have -> : y - z + (z - zero_pad X k0 c) = y
  - zero_pad X k0 c by ring.
lra.
Qed.

(** ** Instance

    Exponentials 1 and 2^-30 in float32: the target's weight is exactly 1, though the other is not
    0 *)
Definition two_weights (k : bool) : R := if k then 1 else power (-30).
Lemma summed_pair (e : bool -> R) : summed e (pair_order true).
Proof. by split=> //; split=> // -[[]|]. Qed.
Theorem instance : computed_softmax (gradual (-149) 24) (gradual (-149) 24) false two_weights
  (pair_order true) true = 1.
Proof.
have p1 : (1 < 24 <= 24)%Z by []. have r1 : (-149 <= -149 <= - 24)%Z by [].
have r2 : (-149 <= - 24)%Z by [].
have one : power 0 = 1 by [].
have fe k : in_format (-149) 24 (two_weights k) /\ 0 <= two_weights k.
  by rewrite /two_weights -one; case: k; split; try exact/Rlt_le/power_gt0; exact: format_power.
have cnt : (#|[pred k in predT | k != true]| <= 1)%N
  by rewrite (eq_card (B := pred1 false)) ?card1 // => -[].
have few : INR 2 * power (- (24)) < 1 by change ((1 + 1) * / 16777216 < 1); lra.
have all (k : bool) : k \notin predT -> two_weights k = 0 by [].
have done := target_is_one p1 r1 r2 false (summed_pair two_weights) fe
  (erefl : two_weights true = 1) all cnt few.
apply: done; left.
have -> : \big[Rplus/0]_(k | k != true) two_weights k = power (-30)
  by rewrite big_mkcond big_bool /= Rplus_0_l.
have -> : gamma 1 (power (- (24))) = / 16777215.
  by change (gamma 1 (/ 16777216) = / 16777215); rewrite /gamma /=; field.
by change ((1 + / 16777215) * / 1073741824 <= / 16777216); lra.
Qed.

(** ** Mutants

    The target's weight is 1 whatever the others weigh; keys within a distance on one side, counted
    with the target, or sharing a place *)
Definition mutant := forall (K : finType) (e : K -> R) (target : K) (t : order K), summed e t ->
  (forall k, in_format (-149) 24 (e k) /\ 0 <= e k) -> e target = 1 ->
  computed_softmax (gradual (-149) 24) (gradual (-149) 24) false e t target = 1.
Theorem mutant_refuted : ~ mutant.
Proof.
have p1 : (1 < 24)%Z by []. have one : power 0 = 1 by [].
have f0 : in_format (-149) 24 (power 0) by exact: format_power.
move=> /(_ _ (fun _ : bool => power 0) true (pair_order true) (summed_pair _)) H.
have {H} := H (fun _ => conj f0 (Rlt_le _ _ (power_gt0 0))) one.
have two2 : power 0 + power 0 = power 1 by rewrite one; change (1 + 1 = 2); ring.
have half : power 0 / power 1 = power (-1) by rewrite one; change (1 / 2 = / 2); field.
rewrite /computed_softmax /quotient /= !Rmult_1_l !(rounded_idE (emin := -149) (p := 24) f0) two2.
have r2 : rounded (-149) 24 (power 1) = power 1 by rewrite rounded_idE //; exact: format_power.
have rh : rounded (-149) 24 (power (-1)) = power (-1) by rewrite rounded_idE //;
  exact: format_power.
rewrite r2 half !rh.
by change (/ 2 = 1 -> False); lra.
Qed.
Definition mutant_one_side := counts grid another S.
Theorem mutant_one_side_refuted : ~ mutant_one_side.
Proof.
move=> /(_ _ _ _ ends_grid None 1%N).
rewrite (eq_card (B := [pred k | k != None])) => [|[[]|]]; rewrite ?inE /= ?distance1 //.
by rewrite (cardD1 (Some true)) (cardD1 (Some false)) !inE.
Qed.
Definition mutant_target_too := counts grid (fun K target => xpredT) (fun r => (r + r).+1).
Theorem mutant_target_too_refuted : ~ mutant_target_too.
Proof.
have inj : grid (fun (_ : unit) (_ : 'I_0) => 0%Z) by case=> -[].
by move=> /(_ _ _ _ inj tt 0%N); rewrite (cardD1 tt) !inE distance0.
Qed.
Definition mutant_no_grid := counts (fun K n pos => True) another (fun r => (r + r).+1).
Theorem mutant_no_grid_refuted : ~ mutant_no_grid.
Proof.
move=> /(_ _ _ (fun (_ : bool) (_ : 'I_0) => 0%Z) I true 0%N).
by rewrite (cardD1 false) !inE distance0.
Qed.
