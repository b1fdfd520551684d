(** * FLOAT: Computed attention and convolution

    Claim: A sum of n products and a bias, as computed in any order, with or without fused multiply-
    adds, from zero or not, each summand stored at most c times on its way and m partial sums in
    all, is within (G - 1)(sum |w x| + |b|) + G (n e + m e') of its real value, G = (1 + kappa)^2 (1
    + gamma_n) (1 + u')^c: for round to nearest even with gradual underflow, for flushing and for
    truncating arithmetic, with operands cut by a fraction kappa or not. If the exponentials of each
    head are 1 at the key that its tap reads, at most half of the smallest number that is stored at
    the others, and too small together to move a sum of 1, then the weights as computed are exactly
    one-hot in every format, their means read exactly that key's token, and the layer as computed
    and the convolution as computed differ by at most what their two sums are off by. Heads that
    read tokens within epsilon add sum |w| epsilon and its rounding.
    Source: Higham 2002, Sec. 3.1 and Lemma 3.1; Hauser 1996 for sums that underflow; this project
    for the layers.
    Does not show: Heads that are not one-hot: SOFT. That a library sums directly. *)
From Coq Require Import Reals ZArith Lra Lia.
From Flocq Require Import Core Relative Plus_error.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 A46.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** The three arithmetics *)
Section Formats.
Variables emin p : Z.
Hypothesis p1 : (1 < p)%Z.
Let format := in_format emin p.
Instance prec : Prec_gt_0 p. Proof. by rewrite /Prec_gt_0; lia. Qed.
Lemma power_gt0 e : 0 < power e. Proof. exact: bpow_gt_0. Qed.
Lemma format0 : format 0. Proof. exact: generic_format_0. Qed.
Lemma rounded_format z : format (rounded emin p z).
Proof. apply: generic_format_round. Qed.
Lemma rounded_idE x : format x -> rounded emin p x = x. Proof. exact: round_generic. Qed.
Lemma rounded_le x y : x <= y -> rounded emin p x <= rounded emin p y. Proof. exact: round_le. Qed.
(** A rounding of a normal result, and of any. *)
Lemma normal_error_le z : power (emin + p - 1) <= Rabs z -> Rabs (rounded emin p z - z)
  <= power (- p) * Rabs z.
Proof.
move=> big; apply: Rle_trans (_ : / 2 * bpow radix2 (- p + 1) * Rabs z <= _).
  by apply: relative_error_N_FLT => //; exact: prec.
by right; rewrite /power bpow_plus; change (bpow radix2 1) with 2; field.
Qed.
Lemma any_error_le z : Rabs (rounded emin p z - z) <= power (- p) * Rabs z + power (emin - 1).
Proof.
have u0 := power_gt0 (- p); have e0 := power_gt0 (emin - 1); have z0 := Rabs_pos z.
case: (Rle_or_lt (power (emin + p - 1)) (Rabs z)) => [big|small].
  by have := normal_error_le big; nra.
apply: Rle_trans (_ : / 2 * ulp radix2 (FLT_exp emin p) z <= _); first exact: error_le_half_ulp.
have -> : ulp radix2 (FLT_exp emin p) z = bpow radix2 emin.
  apply: ulp_FLT_small; apply: Rlt_trans small _; apply: bpow_lt; lia.
have -> : power (emin - 1) = / 2 * bpow radix2 emin by rewrite /power bpow_plus Rmult_comm.
by have : 0 <= power (- p) * Rabs z; [apply: Rmult_le_pos; lra | lra].
Qed.
Lemma sum_error_le x y : format x -> format y -> Rabs (rounded emin p (x + y) - (x + y))
  <= power (- p) * Rabs (x + y).
Proof.
move=> fx fy; case: (Rle_or_lt (Rabs (x + y)) (bpow radix2 (p + emin))) => [small|large].
  rewrite rounded_idE; last by apply: FLT_format_plus_small.
  by rewrite Rminus_eq_0 Rabs_R0; apply: Rmult_le_pos;
    [exact: Rlt_le (power_gt0 _) | exact: Rabs_pos].
by apply: normal_error_le; apply: Rle_trans (Rlt_le _ _ large); apply: bpow_le; lia.
Qed.
Lemma gradual_sound : sound (gradual emin p).
Proof.
have u0 := power_gt0 (- p); have e0 := power_gt0 (emin - 1); split; first by split=> /=; lra.
split=> [||x|x y fx fy|z];
  [exact: format0 | exact: rounded_format | exact: rounded_idE | | exact: any_error_le].
by rewrite Rplus_0_r; exact: sum_error_le.
Qed.

Lemma flushing_sound : sound (flushing emin p).
Proof.
have u0 := power_gt0 (- p); have s0 := power_gt0 (emin + p - 1); split; first by split=> /=; lra.
have err z : Rabs (flush emin p z - z) <= power (- p) * Rabs z + power (emin + p - 1).
  have z0 := Rabs_pos z; have pz : 0 <= power (- p) * Rabs z by apply: Rmult_le_pos; lra.
  rewrite /flush; case: Rlt_bool_spec => [small|_].
    rewrite Rminus_0_l Rabs_Ropp; apply: Rnot_lt_le => gt.
    have big : power (emin + p - 1) <= Rabs z by lra.
    have fb : format (power (emin + p - 1)) by apply: generic_format_bpow; rewrite /FLT_exp; lia.
    have := rounded_le big; rewrite (rounded_idE fb).
    by have := @round_NE_abs radix2 (FLT_exp emin p) _ z;
      rewrite -/(rounded emin p _) -/(rounded emin p z) => ->; lra.
  case: (Rle_or_lt (power (emin + p - 1)) (Rabs z)) => [/normal_error_le|small]; first lra.
  have le : power (emin - 1) <= power (emin + p - 1) by apply: bpow_le; lia.
  by have := any_error_le z; lra.
split=> [||x|x y _ _|z]; last exact: err.
- by split; [exact: format0 | left].
- move=> z; rewrite /= /flush; case: Rlt_bool_spec => [_|ge]; split;
  [exact: format0 | by left | exact: rounded_format | by right].
- move=> [fx nx]; rewrite /= /flush rounded_idE //; case: Rlt_bool_spec => // lt;
  case: nx => [->//|]; lra.
- exact: err.
Qed.

Lemma truncating_sound : sound (truncating emin p).
Proof.
pose tr := Generic_fmt.round radix2 (FLT_exp emin p) Ztrunc.
have u0 := power_gt0 (1 - p); have e0 := power_gt0 emin; split; first by split;
  [exact: Rlt_le | exact: Rle_refl | exact: Rlt_le].
have normal z : power (emin + p - 1) <= Rabs z -> Rabs (tr z - z) <= power (1 - p) * Rabs z.
  move=> big; apply: Rlt_le; have := @relative_error_FLT radix2 emin p prec Ztrunc _ z big.
  by have -> : (- p + 1 = 1 - p)%Z; [ring | exact].
have any z : Rabs (tr z - z) <= power (1 - p) * Rabs z + power emin.
  have z0 := Rabs_pos z; case: (Rle_or_lt (power (emin + p - 1)) (Rabs z)) => [/normal|small];
    first lra.
  have pz : 0 <= power (1 - p) * Rabs z by apply: Rmult_le_pos; lra.
  case: (Req_dec z 0) => [->|nz]; first by rewrite /tr round_0 Rminus_eq_0 Rabs_R0 Rmult_0_r; lra.
  have E : ulp radix2 (FLT_exp emin p) z = bpow radix2 emin.
    by apply: ulp_FLT_small; apply: Rlt_trans small _; apply: bpow_lt; lia.
  have lt : Rabs (tr z - z) < power emin by rewrite /power -E; exact: error_lt_ulp.
  by lra.
split=> [||x|x y fx fy|z];
  [exact: format0 | move=> z; exact: generic_format_round | exact: round_generic | | exact: any].
rewrite Rplus_0_r; case: (Rle_or_lt (Rabs (x + y)) (bpow radix2 (p + emin))) => [small|large].
  rewrite /= round_generic; last by apply: FLT_format_plus_small.
  by rewrite Rminus_eq_0 Rabs_R0; apply: Rmult_le_pos; [exact: Rlt_le u0 | exact: Rabs_pos].
by apply: normal; apply: Rle_trans (Rlt_le _ _ large); apply: bpow_le; lia.
Qed.
End Formats.

Theorem arithmetics : FLOAT_arithmetics.
Proof. by move=> emin p p1; split;
  [exact: gradual_sound | exact: flushing_sound | exact: truncating_sound]. Qed.

(** ** A sum of products in any order *)
Section Evaluation.
Variables (A T : arithmetic) (cut : R -> R) (I : Type) (w x : I -> R) (b : R).
Hypotheses (soundA : sound A) (soundT : sound T)
  (wider : forall z, representable T z -> representable A z).
Hypothesis bias : representable A b.
Let value := evaluate A T cut w x b.
Implicit Types t : order I.
Lemma value_representable t : representable A (value t).
Proof.
have [_ [zero image _ _ _]] := soundA; have [_ [_ imageT _ _ _]] := soundT.
by rewrite /value; case: t => [||i|s t|i t|t] //=; apply: wider.
Qed.
(** An order without summands gives 0, and adding it to another changes nothing. *)
Lemma value_empty0 t : nilp (summands t) -> value t = 0.
Proof.
have [_ [zero _ keep _ _]] := soundA; have [_ [zeroT _ keepT _ _]] := soundT.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; last by move=> /IHt E;
  rewrite /value /= -/(value t) E keepT.
rewrite /nilp size_cat addn_eq0 => /andP [/IHs Es /IHt Et].
by rewrite /value /= -/(value s) -/(value t) Es Et Rplus_0_l keep.
Qed.
Lemma plus_empty s t : nilp (summands s) -> value (Plus s t) = value t.
Proof.
have [_ [_ _ keep _ _]] := soundA => /value_empty0 E.
by rewrite /value /= -/(value s) -/(value t) E Rplus_0_l keep //; exact: value_representable.
Qed.
Lemma plus_emptyr s t : nilp (summands t) -> value (Plus s t) = value s.
Proof.
have [_ [_ _ keep _ _]] := soundA => /value_empty0 E.
by rewrite /value /= -/(value s) -/(value t) E Rplus_0_r keep //; exact: value_representable.
Qed.

(** How often a summand is rounded on its way, and what is lost in all. *)
Fixpoint rounds t : nat :=
  match t with
  | Zero | Bias => 0
  | Product _ => 1
  | Plus s t => if nilp (summands s) then rounds t else if nilp (summands t) then rounds s else
    (maxn (rounds s) (rounds t)).+1
  | Fused _ t => (rounds t).+1
  | Stored t => rounds t
  end.
Fixpoint losses t : R :=
  match t with
  | Zero | Bias => 0
  | Product _ => loss A
  | Plus s t => if nilp (summands s) then losses t else if nilp
    (summands t) then losses s else losses s + losses t + sum_loss A
  | Fused _ t => losses t + loss A
  | Stored t => losses t + loss T
  end.
Lemma rounds_le t : (rounds t <= size (summands t))%N.
Proof.
elim: t => //= s IHs t IHt; rewrite size_cat; case: ifP => [_|/negbT ns].
  exact: leq_trans IHt (leq_addl _ _).
case: ifP => [_|/negbT nt]; first exact: leq_trans IHs (leq_addr _ _).
rewrite gtn_max; move: ns nt; rewrite /nilp -!lt0n => ns nt.
apply/andP; split; [rewrite -[(rounds s).+1]addn1; exact: leq_add | rewrite -add1n; exact: leq_add].
Qed.
Lemma losses_ge0 t : 0 <= losses t.
Proof.
have [[u0 s0 l0] _] := soundA; have [[_ _ l0'] _] := soundT.
by elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=; do ?case: ifP => _; lra.
Qed.
Lemma losses_le t : losses t + (if nilp (summands t) then 0 else sum_loss A)
  <= INR (count isSome (summands t)) * loss A + INR (size (summands t)) * sum_loss A
    + INR (stored_in_all t) * loss T.
Proof.
have [[u0 s0 l0] _] := soundA; have [[_ _ l0'] _] := soundT.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=; rewrite ?Rmult_0_l ?Rmult_1_l; try lra.
- rewrite size_cat count_cat !plus_INR /nilp size_cat addn_eq0 -!/(nilp _).
  have ms := Rmult_le_pos _ _ (pos_INR (stored_in_all s)) l0';
    have mt := Rmult_le_pos _ _ (pos_INR (stored_in_all t)) l0'.
  have ls := losses_ge0 s; have lt := losses_ge0 t.
  move: IHs IHt; rewrite /nilp; case: (size (summands s) =P 0%N) => [->|_];
    case: (size (summands t) =P 0%N) => [->|_] /=; lra.
- rewrite -/(INR (size (summands t)).+1) -/(INR (count isSome (summands t)).+1) !S_INR; move: IHt;
  case: ifP => _; lra.
- rewrite -/(INR (stored_in_all t).+1) S_INR; move: IHt; rewrite /nilp; case: ifP => _; lra.
Qed.
Fixpoint exact_value t : R :=
  match t with
  | Zero => 0 | Bias => b | Product i => w i * x i | Plus s t => exact_value s + exact_value t
  | Fused i t => w i * x i + exact_value t | Stored t => exact_value t
  end.
Fixpoint weight t : R :=
  match t with
  | Zero => 0 | Bias => Rabs b | Product i => Rabs (w i) * Rabs (x i) | Plus s t => weight s
    + weight t
  | Fused i t => Rabs (w i) * Rabs (x i) + weight t | Stored t => weight t
  end.
Lemma weight_ge0 t : 0 <= weight t.
Proof.
have p i : 0 <= Rabs (w i) * Rabs (x i) by apply: Rmult_le_pos; exact: Rabs_pos.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=; try exact: Rabs_pos; try lra; first exact: p.
by have := p i; lra.
Qed.
Lemma exact_le t : Rabs (exact_value t) <= weight t.
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=; rewrite ?Rabs_R0 ?Rabs_mult; try lra.
- by apply: Rle_trans (Rabs_triang _ _) _; lra.
- by apply: Rle_trans (Rabs_triang _ _) _; rewrite Rabs_mult; lra.
Qed.
Lemma exact_empty0 t : nilp (summands t) -> exact_value t = 0 /\ weight t = 0.
Proof.
elim: t => //= s IHs t IHt; rewrite /nilp size_cat addn_eq0 => /andP [/IHs [-> ->] /IHt [-> ->]].
by rewrite Rplus_0_l.
Qed.

Variable kappa : R.
Hypothesis kappa0 : 0 <= kappa.
Hypothesis close : forall i, Rabs (cut (w i) - w i) <= kappa * Rabs (w i) /\
  Rabs (cut (x i) - x i) <= kappa * Rabs (x i).
Let u := roundoff A. Let v := roundoff T.
Let K := (1 + kappa) ^ 2.
Definition factor (r c : nat) : R := K * (1 + u) ^ r * (1 + v) ^ c.
Lemma cut_product_le i : Rabs (cut (w i) * cut (x i) - w i * x i)
  <= (K - 1) * (Rabs (w i) * Rabs (x i)).
Proof.
have [cw cx] := close i.
have -> : cut (w i) * cut (x i) - w i * x i
  = (cut (w i) - w i) * (cut (x i) - x i) + (cut (w i) - w i) * x i + w i * (cut (x i) - x i)
    by ring.
apply: Rle_trans (Rabs_triang _ _) _;
  apply: Rle_trans (Rplus_le_compat_r _ _ _ (Rabs_triang _ _)) _.
rewrite !Rabs_mult.
have := Rmult_le_compat _ _ _ _ (Rabs_pos _) (Rabs_pos _) cw cx.
have := Rmult_le_compat_r _ _ _ (Rabs_pos (x i)) cw;
  have := Rmult_le_compat_l _ _ _ (Rabs_pos (w i)) cx.
by rewrite /K /=; lra.
Qed.
Lemma factors_ge r c : [/\ 0 <= u, 0 <= v, 1 <= K & K <= factor r c].
Proof.
have [[u0 _ _] _] := soundA; have [[v0 _ _] _] := soundT.
have K1 : 1 <= K by rewrite /K /=; nra.
have U : 1 <= (1 + u) ^ r by apply: pow_R1_Rle; rewrite /u; lra.
have V : 1 <= (1 + v) ^ c by apply: pow_R1_Rle; rewrite /v; lra.
split=> //; rewrite /factor -{1}[K]Rmult_1_r Rmult_assoc; apply: Rmult_le_compat_l; first lra.
by have := Rmult_le_compat _ _ _ _ Rle_0_1 Rle_0_1 U V; lra.
Qed.
Lemma factorS r c : factor r.+1 c = (1 + u) * factor r c. Proof. by rewrite /factor /=; ring. Qed.
Lemma factorSr r c : factor r c.+1 = (1 + v) * factor r c. Proof. by rewrite /factor /=; ring. Qed.
(** One more rounding of a result [z], off by [(g - 1) m + g l]. *)
Lemma one_more_le g y z m l e f : 1 <= g -> 0 <= f -> 0 <= m -> 0 <= e -> Rabs z <= m ->
  Rabs (y - z) <= (g - 1) * m + g * l ->
  forall y', Rabs (y' - y) <= f * Rabs y + e -> 0 <= l -> Rabs (y' - z) <= ((1 + f) * g - 1) * m
    + ((1 + f) * g) * (l + e).
Proof.
move=> g1 f0 m0 e0 zm off y' more l0.
have ym : Rabs y <= g * m + g * l.
  by have := Rabs_triang (y - z) z; have -> : y - z + z = y; [ring | lra].
have := Rabs_triang (y' - y) (y - z); have -> : y' - y + (y - z) = y' - z by ring.
have fy : f * Rabs y <= f * (g * m + g * l) by exact: Rmult_le_compat_l.
have ge : e <= (1 + f) * g * e by rewrite -{1}[e]Rmult_1_l; apply: Rmult_le_compat_r => //; nra.
by lra.
Qed.
(** By induction on the order: each node adds one rounding to what its parts are off by
    ([one_more]); parts that are empty add none. *)
Lemma error_le t : forall r c, (rounds t <= r)%N -> (stored_on_a_way t <= c)%N ->
  Rabs (value t - exact_value t) <= (factor r c - 1) * weight t + factor r c * losses t.
Proof.
have [[_ s0 l0] [_ _ _ sums any]] := soundA; have [[_ _ l0'] [_ _ _ _ anyT]] := soundT.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] r c.
- by move=> _ _; rewrite /value /= Rminus_eq_0 Rabs_R0; lra.
- move=> _ _; have [_ _ K1 Kg] := factors_ge r c; have := Rabs_pos b;
  rewrite /value /= Rminus_eq_0 Rabs_R0.
  by move=> b0; rewrite Rmult_0_r Rplus_0_r; apply: Rmult_le_pos; lra.
- case: r => // r _ _; have [u0 _ K1 Kg] := factors_ge r c; rewrite factorS /value /=.
  have m0 : 0 <= Rabs (w i) * Rabs (x i) by apply: Rmult_le_pos; exact: Rabs_pos.
  have zm : Rabs (w i * x i) <= Rabs (w i) * Rabs (x i) by rewrite Rabs_mult; lra.
  have off : Rabs (cut (w i) * cut (x i) - w i * x i) <= (factor r c - 1) *
    (Rabs (w i) * Rabs (x i)) + factor r c * 0.
    by apply: Rle_trans (cut_product_le i) _; rewrite Rmult_0_r Rplus_0_r;
      apply: Rmult_le_compat_r => //; lra.
  have := one_more_le (Rle_trans _ _ _ K1 Kg) u0 m0 l0 zm off (any _) (Rle_refl 0).
  by rewrite Rplus_0_l.
- case: (boolP (nilp (summands s))) => ns.
    rewrite (plus_empty t ns) /= ns => rt ct; have [-> ->] := exact_empty0 ns; rewrite !Rplus_0_l.
    by apply: IHt => //; apply: leq_trans ct; exact: leq_maxr.
  case: (boolP (nilp (summands t))) => nt.
    rewrite (plus_emptyr s nt) /= (negbTE ns) nt => rs cs; have [-> ->] := exact_empty0 nt;
      rewrite !Rplus_0_r.
    by apply: IHs => //; apply: leq_trans cs; exact: leq_maxl.
  rewrite /= (negbTE ns) (negbTE nt); case: r => // r; rewrite ltnS geq_max => /andP [rs rt].
  rewrite geq_max => /andP [cs ct]; have [u0 _ K1 Kg] := factors_ge r c; rewrite factorS.
  have m0 : 0 <= weight s + weight t by have := weight_ge0 s; have := weight_ge0 t; lra.
  have l1 : 0 <= losses s + losses t by have := losses_ge0 s; have := losses_ge0 t; lra.
  have zm : Rabs (exact_value s + exact_value t) <= weight s + weight t.
    by apply: Rle_trans (Rabs_triang _ _) _; have := exact_le s; have := exact_le t; lra.
  have off : Rabs (value s + value t - (exact_value s + exact_value t))
      <= (factor r c - 1) * (weight s + weight t) + factor r c * (losses s + losses t).
    have := Rabs_triang (value s - exact_value s) (value t - exact_value t).
    have -> : value s - exact_value s + (value t - exact_value t) = value s + value t
      - (exact_value s + exact_value t) by ring.
    by have := IHs _ _ rs cs; have := IHt _ _ rt ct; lra.
  exact: (one_more_le (Rle_trans _ _ _ K1 Kg) u0 m0 s0 zm off
    (sums _ _ (value_representable s) (value_representable t)) l1).
- case: r => // r; rewrite /= ltnS => rt ct; have [u0 _ K1 Kg] := factors_ge r c;
  rewrite factorS /value /= -/(value t).
  have m1 : 0 <= Rabs (w i) * Rabs (x i) by apply: Rmult_le_pos; exact: Rabs_pos.
  have m0 : 0 <= Rabs (w i) * Rabs (x i) + weight t by have := weight_ge0 t; lra.
  have l1 := losses_ge0 t.
  have zm : Rabs (w i * x i + exact_value t) <= Rabs (w i) * Rabs (x i) + weight t.
    by apply: Rle_trans (Rabs_triang _ _) _; rewrite Rabs_mult; have := exact_le t; lra.
  have off : Rabs (cut (w i) * cut (x i) + value t - (w i * x i + exact_value t))
      <= (factor r c - 1) * (Rabs (w i) * Rabs (x i) + weight t) + factor r c * losses t.
    have := Rabs_triang (cut (w i) * cut (x i) - w i * x i) (value t - exact_value t).
    have -> : cut (w i) * cut (x i) - w i * x i + (value t - exact_value t)
      = cut (w i) * cut (x i) + value t - (w i * x i + exact_value t) by ring.
    have : (K - 1) * (Rabs (w i) * Rabs (x i)) <= (factor r c - 1) * (Rabs (w i) * Rabs (x i)).
      by apply: Rmult_le_compat_r => //; lra.
    by have := cut_product_le i; have := IHt _ _ rt ct; lra.
  exact: (one_more_le (Rle_trans _ _ _ K1 Kg) u0 m0 l0 zm off (any _) l1).
- case: c => // c rt ct; have [_ v0 K1 Kg] := factors_ge r c; rewrite factorSr /value /= -/(value
  t).
  exact: (one_more_le (Rle_trans _ _ _ K1 Kg) v0 (weight_ge0 t) l0' (exact_le t) (IHt _ _ rt ct)
    (anyT _) (losses_ge0 t)).
Qed.
End Evaluation.

(** Gamma. *)
Lemma power_le_gamma n u : 0 <= u -> INR n * u < 1 -> (1 + u) ^ n <= 1 + gamma n u.
Proof.
move=> u0 small; have H : (1 + u) ^ n * (1 - INR n * u) <= 1.
  elim: n {small} => [|n IH]; first by rewrite /=; lra.
  rewrite S_INR /=; have P : 0 <= (1 + u) ^ n by apply: pow_le; lra.
  have Q : 0 <= (1 + u) ^ n * ((INR n + 1) * (u * u)) by apply: Rmult_le_pos => //;
    apply: Rmult_le_pos; have := pos_INR n; nra.
  have -> : (1 + u) * (1 + u) ^ n * (1 - (INR n + 1) * u)
    = (1 + u) ^ n * (1 - INR n * u) - (1 + u) ^ n * ((INR n + 1) * (u * u)) by ring.
  by lra.
apply: (Rmult_le_reg_r (1 - INR n * u)); first lra.
by have -> : (1 + gamma n u) * (1 - INR n * u) = 1 by rewrite /gamma; field; lra.
Qed.

(** The summands of an order that takes each once are those of the sum. *)
Lemma sum_onceE (I : finType) (F : option I -> R) (s : seq (option I)) : uniq s ->
  (forall i, i \notin s -> F i = 0) ->
  \big[Rplus/0]_(i <- s) F i = \sum_i F (Some i) + F None.
Proof.
move=> us out; rewrite big_uniq //= Rplus_comm.
have <- : \sum_i F i = F None + \sum_i F (Some i).
  rewrite (bigD1 None) //=; congr (_ + _); rewrite (reindex_omap Some id) /=; last by case.
  by apply: eq_bigl => i; rewrite eqxx.
by rewrite [RHS](bigID (mem s)) /= [X in _ + X]big1 ?Rplus_0_r.
Qed.
Lemma exact_sumE I w x b (t : order I) : exact_value w x b t
  = \big[Rplus/0]_(i <- summands t) summand w x b i.
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=;
  rewrite ?big_nil ?big_cons ?big_nil ?big_cat ?IHs ?IHt //= Rplus_0_r //.
Qed.
Lemma weight_sum I w x b (t : order I) : weight w x b t
  = \big[Rplus/0]_(i <- summands t) (if i is Some i then Rabs (w i) * Rabs (x i) else Rabs b).
Proof.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=;
  rewrite ?big_nil ?big_cons ?big_nil ?big_cat ?IHs ?IHt //= Rplus_0_r //.
Qed.

Theorem sum_error_in_any_order : FLOAT_sum.
Proof.
move=> A T kappa k n c m [soundA soundT wider kappa0 small] cut I w x b t
  [[bias [us out] sz sw sa] [sk close]].
have E := error_le soundA soundT wider bias kappa0 close (leq_trans (rounds_le t) sz) sw.
have exactE : exact_value w x b t = \sum_i w i * x i + b by rewrite exact_sumE (sum_onceE us out).
have weightE : weight w x b t = magnitude w x b.
  rewrite weight_sum
    (sum_onceE (F := fun i => if i is Some i then Rabs (w i) * Rabs (x i) else Rabs b) us) // =>
    i /out.
  by case: i => [i|] /= Z; rewrite -?Rabs_mult Z Rabs_R0.
have [[u0 s0 l0] _] := soundA; have [[v0 _ l0'] _] := soundT.
have mag0 : 0 <= magnitude w x b by rewrite -weightE; exact: weight_ge0.
have grow : factor A T kappa n c <= growth A T kappa n c.
  rewrite /factor /growth; apply: Rmult_le_compat_r; first by apply: pow_le; lra.
  by apply: Rmult_le_compat_l; [apply: pow_le; lra | exact: power_le_gamma].
have g0 : 0 <= factor A T kappa n c by have [_ _] := factors_ge soundA soundT kappa0 n c; lra.
have lost : losses A T t <= underflow A T k n m.
  have := losses_le soundA soundT t; rewrite /underflow.
  have := Rmult_le_compat_r _ _ _ s0 (le_INR _ _ (leP sz));
    have := Rmult_le_compat_r _ _ _ l0 (le_INR _ _ (leP sk)).
  have := Rmult_le_compat_r _ _ _ l0' (le_INR _ _ (leP sa)).
  by case: ifP => _; lra.
have l1 := losses_ge0 soundA soundT t.
rewrite -exactE; apply: Rle_trans E _; rewrite weightE.
apply: Rplus_le_compat; first by apply: Rmult_le_compat_r => //; lra.
by apply: Rmult_le_compat.
Qed.

Theorem difference_of_two_layers : FLOAT_difference.
Proof.
move=> A T kappa k n c m A' T' kappa' k' n' c' m' ok ok' cut cut' I w x z b t t' err ev ev' near.
have E := sum_error_in_any_order ok ev; have E' := sum_error_in_any_order ok' ev'.
set D := \sum_i Rabs (w i) * err i.
have move_tokens : Rabs (\sum_i w i * z i + b - (\sum_i w i * x i + b)) <= D.
  have -> : \sum_i w i * z i + b - (\sum_i w i * x i + b) = \sum_i (w i * z i - w i * x i)
    by rewrite -rsum_minus; ring.
  apply: Rle_trans (rsum_abs_le _ _ _) _; apply: rsum_le => i _.
  have -> : w i * z i - w i * x i = w i * (z i - x i) by ring.
  by rewrite Rabs_mult; apply: Rmult_le_compat_l; [exact: Rabs_pos | exact: near].
have more : magnitude w z b <= magnitude w x b + D.
  rewrite /magnitude /D; have -> : forall p q r : R, p + q + r = p + r + q by move=> p q r; ring.
  apply: Rplus_le_compat_r; rewrite -big_split /=; apply: rsum_le => i _.
  have := Rabs_triang (x i) (z i - x i); have -> : x i + (z i - x i) = z i by ring.
  by have := near i; have := Rabs_pos (w i); nra.
have g1 : 0 <= growth A' T' kappa' n' c' - 1.
  have [soundA soundT _ k0 small] := ok'; have [[u0 _ _] _] := soundA; have [[v0 _ _] _] := soundT.
  have [_ _ K1 Kg] := factors_ge soundA soundT k0 n' c'; have G := power_le_gamma u0 small.
  have : factor A' T' kappa' n' c' <= growth A' T' kappa' n' c'; last lra.
  rewrite /factor /growth; apply: Rmult_le_compat_r; first by apply: pow_le; lra.
  by apply: Rmult_le_compat_l; [apply: pow_le; lra | exact: G].
have := Rmult_le_compat_l _ _ _ g1 more; move: E E' move_tokens.
set y' := evaluate A' T' cut' w z b t'; set y := evaluate A T cut w x b t.
set s := \sum_i w i * x i + b; set s' := \sum_i w i * z i + b => E E' near' more'.
have := Rabs_triang (y' - s') (s' - s + (s - y)); have -> : y' - s' + (s' - s + (s - y)) = y' - y
  by ring.
have := Rabs_triang (s' - s) (s - y); move: E; rewrite (Rabs_minus_sym y s) => E; lra.
Qed.

(** ** One-hot weights *)
Section OneHot.
Variables emin p : Z.
Hypotheses (p1 : (1 < p)%Z) (range : (emin <= - p)%Z).
Let A := gradual emin p.
Instance prec' : Prec_gt_0 p. Proof. by rewrite /Prec_gt_0; lia. Qed.
Lemma format_power e : (emin <= e)%Z -> in_format emin p (power e).
Proof. by move=> le; apply: generic_format_bpow; rewrite /FLT_exp; lia. Qed.
Lemma format_1 : in_format emin p 1.
Proof. by apply: (format_power (e := 0)); lia. Qed.
(** Half a unit in the last place is lost: the tie goes to 1, which is even. *)
Lemma rounded_half_unitE : rounded emin p (1 + power (- p)) = 1.
Proof.
have mag1 : mag radix2 (1 + power (- p)) = 1%Z :> Z.
  apply: mag_unique_pos; change (bpow radix2 (1 - 1)) with 1; change (bpow radix2 1) with 2.
  have := power_gt0 (- p); have : power (- p) < power 0 by apply: bpow_lt; lia.
  by change (power 0) with 1; lra.
have exp1 : cexp radix2 (FLT_exp emin p) (1 + power (- p)) = (1 - p)%Z
  by rewrite /cexp mag1 /FLT_exp; lia.
have scaled : scaled_mantissa radix2 (FLT_exp emin p) (1 + power (- p)) = IZR (2 ^ (p - 1)) + / 2.
  rewrite /scaled_mantissa exp1 Rmult_plus_distr_r Rmult_1_l /power -bpow_plus.
  have -> : (- p + - (1 - p) = -1)%Z by ring.
  by rewrite -(IZR_Zpower radix2) ?Z.opp_sub_distr; [congr (IZR (_ ^ _) + _); lia | lia].
rewrite /rounded /Generic_fmt.round scaled /ZnearestE /Znearest exp1.
have floor : Zfloor (IZR (2 ^ (p - 1)) + / 2) = (2 ^ (p - 1))%Z by apply: Zfloor_imp;
  rewrite plus_IZR; lra.
rewrite floor Rcompare_Eq; last by ring.
rewrite Z.even_pow; last lia.
change (IZR (2 ^ (p - 1)) * bpow radix2 (1 - p) = 1).
rewrite (IZR_Zpower radix2 (p - 1)); last lia.
by rewrite -bpow_plus; have -> : (p - 1 + (1 - p) = 0)%Z by ring.
Qed.
Lemma rounded_less_unitE y : 0 <= y <= power (- p) -> rounded emin p (1 + y) = 1.
Proof.
move=> [y0 le]; apply: Rle_antisym.
  by rewrite -[X in _ <= X]rounded_half_unitE; apply: rounded_le => //; lra.
by rewrite -{1}(rounded_idE (emin := emin) (p := p) format_1); apply: rounded_le => //; lra.
Qed.

Variables (K : finType) (e : K -> R) (target : K).
Hypotheses (format_e : forall k, in_format emin p (e k)) (top : e target = 1).
Hypothesis ge0 : forall k, k != target -> 0 <= e k.
Let rest := \big[Rplus/0]_(k | k != target) e k.
Variable N : nat.
Hypotheses (few : INR N * power (- p) < 1)
  (tiny : (1 + gamma N (power (- p))) * rest <= power (- p)).
Let value t := evaluate A A id (fun _ => 1) e 0 t.
Let soundA : sound A := gradual_sound emin p1.
Lemma e_ge0 k : 0 <= e k.
Proof. by case: (eqVneq k target) => [->|/ge0 //]; rewrite top; lra. Qed.
Lemma format_value t : in_format emin p (value t).
Proof.
exact: (value_representable id (fun _ => 1) e soundA soundA (fun z H => H) (format0 emin p) t).
Qed.
(** Sums of positive numbers of the format, without the target: positive and not much larger. *)
Let total t := exact_value (fun _ => 1) e 0 t.
Lemma total_ge0 t : 0 <= total t.
Proof.
rewrite /total; elim: t => [||i|s IHs t IHt|i t IHt|t IHt] /=; rewrite ?Rmult_1_l; try lra;
  first exact: e_ge0.
by have := e_ge0 i; lra.
Qed.
(** By induction on the order: a sum of two numbers of the format is off by a fraction, and never
    below 0; an empty part changes nothing. *)
Lemma value_le t : forall r, (rounds t <= r)%N -> 0 <= value t <= (1 + power (- p)) ^ r * total t.
Proof.
have u0 := power_gt0 (- p); have f0 := format0 emin p.
have pow1 r : 1 <= (1 + power (- p)) ^ r by apply: pow_R1_Rle; lra.
have step x y r X Y : in_format emin p x -> in_format emin p y ->
  0 <= x <= (1 + power (- p)) ^ r * X -> 0 <= y <= (1 + power (- p)) ^ r * Y ->
    0 <= rounded emin p (x + y) <= (1 + power (- p)) ^ r.+1 * (X + Y).
  move=> fx fy [x0 xX] [y0 yY]; split.
    by rewrite -{1}(rounded_idE (emin := emin) (p := p) f0); apply: rounded_le => //; lra.
  have := sum_error_le p1 fx fy; rewrite (Rabs_pos_eq (x + y)); last lra.
  move/(Rle_trans _ _ _ (Rle_abs _)) => le; rewrite /=.
  have : rounded emin p (x + y) <= (1 + power (- p)) * (x + y) by lra.
  move/Rle_trans; apply; rewrite Rmult_assoc; apply: Rmult_le_compat_l; lra.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] r.
- by rewrite /value /total /= Rmult_0_r; lra.
- by rewrite /value /total /= Rmult_0_r; lra.
- move=> _; rewrite /value /total /= !Rmult_1_l rounded_idE //; have := e_ge0 i => e0.
  by split=> //; rewrite -{1}[e i]Rmult_1_l; apply: Rmult_le_compat_r.
- case: (boolP (nilp (summands s))) => ns.
    rewrite /value (plus_empty id (fun _ => 1) e soundA soundA (fun z H => H) (format0 emin p)) //=
      ns; have [E _] := exact_empty0 (fun _ => 1) e 0 ns.
    by rewrite /total /= E Rplus_0_l; exact: IHt.
  case: (boolP (nilp (summands t))) => nt.
    rewrite /value (plus_emptyr id (fun _ => 1) e soundA soundA (fun z H => H) (format0 emin p)) //=
      (negbTE ns) nt; have [E _] := exact_empty0 (fun _ => 1) e 0 nt.
    by rewrite /total /= E Rplus_0_r; exact: IHs.
  rewrite /= (negbTE ns) (negbTE nt); case: r => // r; rewrite ltnS geq_max => /andP [rs rt].
  exact: (step _ _ _ _ _ (format_value s) (format_value t) (IHs _ rs) (IHt _ rt)).
- case: r => // r; rewrite /= ltnS => rt; rewrite /value /total /= -/(value t) -/(total t).
  rewrite Rmult_1_l; apply: step; [exact: format_e | exact: format_value | | exact: IHt].
  have e0 := e_ge0 i; split; first exact: e0.
  by rewrite -{1}[e i]Rmult_1_l; apply: Rmult_le_compat_r.
- move=> rt; rewrite /value /= -/(value t) rounded_idE; [exact: IHt | exact: format_value].
Qed.
Lemma rest_ge0 : 0 <= rest. Proof. by apply: rsum_ge0 => k /ge0. Qed.
Lemma total_rest_le t : uniq (summands t) -> Some target \notin summands t -> total t <= rest.
Proof.
move=> us out; rewrite /total exact_sumE big_uniq //=.
apply: (Rle_trans _ (\big[Rplus/0]_(i | i != Some target) (if i is Some k then e k else 0)));
  last first.
  rewrite big_mkcond (bigD1 None) //= Rplus_0_l (reindex_omap Some id) /=; last by case.
  rewrite (eq_bigl xpredT) => [|k]; last by rewrite eqxx.
  by rewrite /rest [X in _ <= X]big_mkcond; apply: rsum_le => k _; rewrite (inj_eq (@Some_inj _));
    apply: Rle_refl.
rewrite [X in _ <= X](bigID (mem (summands t))) /= -[X in X <= _]Rplus_0_r; apply: Rplus_le_compat.
  rewrite big_mkcond [X in _ <= X]big_mkcond; apply: rsum_le => i _; case: ifP => [ini|];
    last by rewrite andbF; lra.
  rewrite andbT; case: eqP => [E|_] /=; first by rewrite -E ini in out.
  by case: i {ini} => [k|] /=; rewrite ?Rmult_1_l; lra.
by apply: rsum_ge0 => -[k|] _; [exact: e_ge0 | lra].
Qed.
Lemma gamma_nearest_ge0 : 0 <= gamma N (power (- p)).
Proof.
have u0 := power_gt0 (- p); apply: Rmult_le_pos; first by apply: Rmult_le_pos;
  [exact: pos_INR | lra].
by apply/Rlt_le/Rinv_0_lt_compat; lra.
Qed.
Lemma value_small_le t : uniq (summands t) -> Some target \notin summands t ->
  (size (summands t) <= N)%N -> 0 <= value t <= power (- p).
Proof.
move=> us out sz; have u0 := power_gt0 (- p).
have [v0 le] := value_le (leq_trans (rounds_le t) sz); split=> //; apply: Rle_trans le _.
apply: Rle_trans tiny; apply: Rmult_le_compat;
  [apply: pow_le; lra | exact: total_ge0 | | exact: total_rest_le].
by apply: power_le_gamma => //; lra.
Qed.
Lemma value_oneE t : uniq (summands t) -> Some target \in summands t ->
  (size (summands t) <= N.+1)%N -> value t = 1.
Proof.
have f1 := rounded_idE (emin := emin) (p := p) format_1.
elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=.
- by rewrite inE => _ /eqP [<-]; rewrite /value /= top Rmult_1_l.
- rewrite cat_uniq mem_cat size_cat => /and3P [us /hasPn apart ut] ins_or sz.
  have has1 r : Some target \in summands r -> (0 < size (summands r))%N by case: (summands r).
  case/orP: ins_or => [ins|int].
    have out : Some target \notin summands t by apply/negP => /apart /negP; apply.
    have szt : (size (summands t) <= N)%N by rewrite -ltnS; apply: leq_trans sz;
      rewrite -add1n leq_add2r; exact: has1.
    have szs : (size (summands s) <= N.+1)%N by apply: leq_trans sz; exact: leq_addr.
    by rewrite /value /= -/(value s) -/(value t) IHs // rounded_less_unitE //;
      exact: value_small_le.
  have out := apart _ int.
  have szs : (size (summands s) <= N)%N by rewrite -ltnS; apply: leq_trans sz;
    rewrite -addn1 leq_add2l; exact: has1.
  have szt : (size (summands t) <= N.+1)%N by apply: leq_trans sz; exact: leq_addl.
  by rewrite /value /= -/(value s) -/(value t) IHt // Rplus_comm rounded_less_unitE //;
    exact: value_small_le.
- rewrite inE ltnS => /andP [new ut] ins_or sz; rewrite /value /= -/(value t) Rmult_1_l.
  case/orP: ins_or => [/eqP [E]|int].
    by rewrite -E top rounded_less_unitE //; apply: value_small_le => //; rewrite E.
  rewrite IHt // 1?Rplus_comm ?rounded_less_unitE ?(leqW sz) //;
    have ne : i != target by apply: contra new => /eqP ->.
  split; first exact: ge0.
  have : e i <= rest; last by have := Rmult_le_pos _ _ gamma_nearest_ge0 rest_ge0; lra.
  rewrite /rest (bigD1 i) //=; rewrite -[X in X <= _]Rplus_0_r; apply: Rplus_le_compat_l.
  by apply: rsum_ge0 => k /andP [/ge0].
- by move=> us ins sz; rewrite /value /= -/(value t) IHt.
Qed.
End OneHot.

Lemma wider_format emin p emin' p' : (1 < p' <= p)%Z -> (emin <= emin')%Z -> forall z,
  in_format emin' p' z -> in_format emin p z.
Proof. by move=> pp ee z; apply: generic_inclusion_mag => _; rewrite /FLT_exp; lia. Qed.

Theorem one_hot_weights : FLOAT_one_hot.
Proof.
move=> emin p emin' p' pp ee range K e target t reciprocal [us out] fe top low few tiny k.
have p1 : (1 < p)%Z by lia. have p1' : (1 < p')%Z by lia.
have inT : Some target \in summands t.
  apply/negPn/negP => /out; rewrite /= top Rmult_1_l => E; lra.
have ge0 j : j != target -> 0 <= e j by move=> /low [].
have one : evaluate (gradual emin p) (gradual emin p) id (fun _ => 1) e 0 t = 1.
  have sz : (size (summands t) <= #|K|.+1)%N by rewrite -card_option -(card_uniqP us);
    exact: max_card.
  have u0 := power_gt0 (- p); have few' : INR #|K| * power (- p) < 1 by lra.
  have tiny' : (1 + gamma #|K| (power (- p))) * \big[Rplus/0]_(k | k != target) e k <= power (- p).
    apply: Rle_trans tiny; apply: Rmult_le_compat_r; first by apply: rsum_ge0 => j /ge0.
    have -> : 2 = 1 + / 2 / (1 - / 2) by field.
    rewrite /gamma; apply: Rplus_le_compat_l; apply: Rmult_le_compat => //.
    - by apply: Rmult_le_pos; [exact: pos_INR | lra].
    - by apply/Rlt_le/Rinv_0_lt_compat; lra.
    - by apply: Rinv_le_contravar; lra.
  exact: (value_oneE p1 range fe top ge0 few' tiny' us inT sz).
rewrite /computed_softmax /quotient one /=.
have f1 : rounded emin p 1 = 1 by apply: rounded_idE => //; apply: format_1; lia.
have -> : (if reciprocal then rounded emin p (e k * rounded emin p (1 / 1)) else rounded emin p
  (e k / 1)) = e k.
  by case: reciprocal; rewrite /Rdiv Rinv_1 ?Rmult_1_r ?f1 ?Rmult_1_r rounded_idE.
rewrite /one_hot; case: (eqVneq k target) => [->|ne].
  by rewrite top; apply: rounded_idE => //; apply: format_1; lia.
have [low0 [lt|->]] := low k ne.
- by apply: (A46.below_is_zero _ _ 1%positive); [lia | rewrite Rabs_pos_eq].
- by apply: (A46.rounded_tie0 _ _ 1%positive); lia.
Qed.

Theorem rounded_scores : FLOAT_scores.
Proof.
move=> emin p p1 e0 alpha fa a0 d d1.
have one_le : 1 <= rounded emin p (IZR d).
  have f1 : in_format emin p 1 by apply: (generic_format_bpow radix2 _ 0); rewrite /FLT_exp; lia.
  by rewrite -{1}(rounded_idE f1); apply: rounded_le => //; exact: (IZR_le 1).
have fo : in_format emin p (- alpha) by exact: generic_format_opp.
by rewrite -[X in _ <= X](rounded_idE fo); apply: rounded_le => //; nra.
Qed.

(** ** The mean with one-hot weights *)
Theorem one_hot_mixing : FLOAT_mixing.
Proof.
move=> A T cut [_ [zero _ keep _ _]] [_ [zeroT _ keepT _ _]] cut0 cut1 K x target t [us out] fA fT.
have one i : fl A (cut (one_hot target i) * cut (x i)) = if i == target then cut (x target) else 0.
  by rewrite /one_hot; case: eqP => [->|_]; rewrite ?cut0 ?cut1 ?Rmult_0_l ?Rmult_1_l keep.
have pick s : uniq (summands s) ->
    evaluate A T cut (one_hot target) x 0 s = if Some target \in summands s then cut
      (x target) else 0.
  elim: s => [||i|s IHs s' IHs'|i s IHs|s IHs] //=.
  - by move=> _; rewrite one inE (inj_eq (@Some_inj _)) eq_sym.
  - rewrite cat_uniq mem_cat => /and3P [us' /hasPn apart us'']; rewrite IHs // IHs' //.
    case: ifP => [ins|_] /=; last by rewrite Rplus_0_l; case: ifP => _; exact: keep.
    have /negbTE -> : Some target \notin summands s' by apply/negP => /apart /negP; apply.
    by rewrite Rplus_0_r keep.
  - move=> /andP [new us']; rewrite IHs // inE (inj_eq (@Some_inj _)) [target == i]eq_sym.
    have E : cut (one_hot target i) * cut (x i) = if i == target then cut (x target) else 0.
      by rewrite /one_hot; case: eqP => [->|_]; rewrite ?cut0 ?cut1 ?Rmult_0_l ?Rmult_1_l.
    rewrite E; case: (eqVneq i target) new => [->|_] new /=; last by rewrite Rplus_0_l;
      case: ifP => _; exact: keep.
    by rewrite (negbTE new) Rplus_0_r keep.
  - by move=> us'; rewrite IHs //; case: ifP => _; exact: keepT.
rewrite pick //; case: ifP => // /negbT /out; rewrite /= /one_hot eqxx Rmult_1_l => ->.
by rewrite cut0.
Qed.
Lemma evaluate_ext A T cut (I : Type) (w w' x x' : I -> R) b t : w =1 w' -> x =1 x' ->
  evaluate A T cut w x b t = evaluate A T cut w' x' b t.
Proof. by move=> Ew Ex; elim: t => [||i|s IHs t IHt|i t IHt|t IHt] //=; rewrite ?Ew ?Ex ?IHs ?IHt.
Qed.
Lemma evaluation_ext A T cut kappa k n c m (I : finType) (w x x' : I -> R) b t : x =1 x' ->
  evaluation A T cut kappa k n c m w x b t -> evaluation A T cut kappa k n c m w x' b t.
Proof.
move=> E [[bias [us out] sz sw sa] [sk close]]; split; last by split=> // i; rewrite -E;
  exact: close.
by split=> //; split=> // i /out; case: i => //= i; rewrite E.
Qed.

(** ** The layers *)
(** The weights are exactly one-hot, so each token as computed is the pixel that its tap reads. Both
    layers then sum the same products, over heads or over taps; each is near that sum. *)
Theorem one_hot_layer : FLOAT.
Proof.
move=> n g ok emin p emin' p' pp ee range G ci co H f weight b X bij A T fX e reciprocal over
  once_over fe at_tap few tiny attention mix
  once_mix token A' T' cut' kappa' k' n' c' m' kA N C M okA okA' q o t t' ev ev' size_.
have p1 : (1 < p)%Z by lia. have p1' : (1 < p')%Z by lia.
have hot h k : attention h q k = one_hot (key ok q (f h)) k.
  rewrite /attention; apply: (one_hot_weights pp ee range) => //.
  - exact: fe.
  - by have := at_tap h q (key ok q (f h)); rewrite (readsE ok) eqxx.
  - by move=> j ne; have := at_tap h q j; rewrite (readsE ok) (negbTE ne).
  - have := tiny h q; rewrite (eq_bigl (fun k => k != key ok q (f h))) => [|j]; first exact.
    by rewrite (readsE ok).
have padded_format k c : in_format emin' p' (zero_pad X k c).
  rewrite /zero_pad;
    case: (pickP (fun i : pixels g => [forall a, k a == (before g a + i a)%N :> nat])) =>
    [i at_i|none].
    rewrite (big_pred1 i) => [|j]; first exact: fX.
    apply/idP/eqP => [/forallP at_j|-> //]; apply/ffunP => a; apply: val_inj.
    by have := eqP (at_j a); rewrite (eqP (forallP at_i a)) => /addnI.
  by rewrite big_pred0 //; exact: format0.
have read h c : token h q c = seen X q (f h) c.
  rewrite /token (evaluate_ext _ _ _ _ _ (hot h) (frefl _)).
  have fT := padded_format (key ok q (f h)) c; have fA := wider_format pp (proj1 ee) fT.
  have once : each_once (one_hot (key ok q (f h))) (fun k => zero_pad X k c) 0 (mix h q c).
    have [us out] := once_mix h q c; split=> // i /out.
    by case: i => //= k; rewrite hot.
  rewrite (one_hot_mixing (gradual_sound emin p1) (gradual_sound emin' p1') (erefl (id 0))
    (erefl (id 1)) once fA fT).
  exact: (@zero_pad_key reals n g ok _ X q (f h) c).
have ev0 := evaluation_ext (fun i => read i.1 i.2) ev.
have E := sum_error_in_any_order okA ev0; have E' := sum_error_in_any_order okA' ev'.
have over_heads (F : taps g -> 'I_(G * ci) -> R) : \big[Rplus/0]_(i : H * 'I_(G * ci)) F (f i.1) i.2
  = \sum_t \sum_c F t c.
  by rewrite -(pair_bigA _ (fun h c => F (f h) c)) /= [RHS](reindex f) /=; last exact: onW_bij.
have over_taps (F : taps g -> 'I_(G * ci) -> R) : \big[Rplus/0]_(i : taps g * 'I_(G * ci)) F i.1 i.2
  = \sum_t \sum_c F t c.
  by rewrite -(pair_bigA _ F).
move: E E'; rewrite /magnitude.
rewrite (over_heads (fun t c => tap weight t c o * seen X q t c))
  (over_heads (fun t c => Rabs (tap weight t c o) * Rabs (seen X q t c))).
rewrite (over_taps (fun t c => tap weight t c o * seen X q t c))
  (over_taps (fun t c => Rabs (tap weight t c o) * Rabs (seen X q t c))).
rewrite -/size_ (evaluate_ext _ _ _ _ _ (frefl _) (fun i => read i.1 i.2)).
set y := evaluate A T id _ _ _ t; set y' := evaluate A' T' cut' _ _ _ t'; set s := _ + b o => E E'.
have := Rabs_triang (y - s) (s - y'); have -> : y - s + (s - y') = y - y' by ring.
by move: E'; rewrite (Rabs_minus_sym y' s) => E'; lra.
Qed.

(** ** Instance

    Two products in float32, added in one way or the other: off by at most gamma_2 = 2 u / (1 - 2
    u), and underflow *)
Definition pair_order (first : bool) : order bool :=
  if first then Plus (Product true) (Product false) else Fused false (Product true).
Theorem instance (w x : bool -> R) first :
  Rabs (evaluate (gradual (-149) 24) (gradual (-149) 24) id w x 0 (pair_order first)
    - (w true * x true + w false * x false))
  <= gamma 2 (power (-24)) * (Rabs (w true) * Rabs (x true) + Rabs (w false) * Rabs (x false))
    + (1 + gamma 2 (power (-24))) * power (-149).
Proof.
have s32 : sound (gradual (-149) 24) by exact: gradual_sound.
have u32 : power (-24) = / 16777216 by [].
have ok : limits (gradual (-149) 24) (gradual (-149) 24) 0 2.
  by split=> //; [lra | change (2 * power (-24) < 1); rewrite u32; lra].
have ev : evaluation (gradual (-149) 24) (gradual (-149) 24) id 0 2 2 0 0 w x 0 (pair_order first).
  split; last by split; [case: first | move=> i; rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; lra].
  split; [exact: format0 | | by case: first | by case: first | by case: first].
  by split; [case: first | case=> [[]|] //; case: first].
have := sum_error_in_any_order ok ev;
  rewrite /magnitude /growth /underflow ![\sum_i _]big_bool Rabs_R0.
have -> : power (-149) = 2 * power (-150) by rewrite /power; have -> : (-149 = 1 + -150)%Z by [];
  rewrite bpow_plus.
rewrite /= !Rplus_0_r; move: (gamma 2 _) (/ IZR (Z.pow_pos 2 150)) => g e; lra.
Qed.


(** ** Mutants

    Nothing is lost by underflow; weights are one-hot as soon as the target's weight rounds to 1;
    scores that fall by 2 alpha, at the target too, for any alpha *)
Definition mutant := sums_lose (fun A T k n m => 0).
Theorem mutant_refuted : ~ mutant.
Proof.
have s32 : sound (gradual (-149) 24) by exact: gradual_sound.
have u32 : power (-24) = / 16777216 by [].
have ok : limits (gradual (-149) 24) (gradual (-149) 24) 0 1.
  by split=> //; [lra | change (1 * power (-24) < 1); rewrite u32; lra].
pose w (_ : unit) := power (-100).
have ev : evaluation (gradual (-149) 24) (gradual (-149) 24) id 0 1 1 0 0 w w 0 (Product tt).
  split; last by split=> // i; rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; lra.
  by split=> //; [exact: format0 | split=> //; case=> [[]|]].
move=> /(_ _ _ _ _ _ _ _ ok _ _ _ _ _ _ ev);
  rewrite /magnitude /growth !(bigD1 (tt : unit) (P := xpredT)) //= !big1 => [|[]|[]] //.
have small : power (-100) * power (-100) = power (-200) by rewrite /power -bpow_plus.
rewrite (Rabs_pos_eq (power (-100))); last exact: Rlt_le (power_gt0 _).
rewrite small (A46.below_is_zero _ _ 1%positive) //; last by rewrite Rabs_pos_eq;
  [exact: bpow_lt | exact: Rlt_le (power_gt0 _)].
have p200 := power_gt0 (-200); rewrite Rabs_R0 !Rplus_0_r Rminus_0_l Rabs_Ropp Rabs_pos_eq;
  last exact: Rlt_le.
have -> : gamma 1 (/ IZR (Z.pow_pos 2 24)) = / 16777215.
  by change (gamma 1 (/ 16777216) = / 16777215); rewrite /gamma /=; field.
by move: (power (-200)) p200 => y; lra.
Qed.
Definition mutant_one_hot := one_hot_if (fun emin' x => True).
Theorem mutant_one_hot_refuted : ~ mutant_one_hot.
Proof.
pose e (k : bool) := if k then 1 else power (-30).
have p30 := power_gt0 (-30); have one : power 0 = 1 by [].
have fp z : (-149 <= z)%Z -> in_format (-149) 24 (power z) by apply: format_power.
have fe k : in_format (-149) 24 (e k) by rewrite /e -one; case: k; exact: fp.
have once : each_once (fun _ => 1) e 0 (pair_order true) by split=> // -[[]|].
have rest : \big[Rplus/0]_(k | k != true) e k = power (-30)
  by rewrite big_mkcond big_bool /= Rplus_0_l.
have few : INR #|{: bool}| * power (- (24)) <= / 2.
  by rewrite card_bool; change (2 * (/ 16777216) <= / 2); lra.
have tiny : 2 * \big[Rplus/0]_(k | k != true) e k <= power (- (24)).
  by rewrite rest; change (2 * (/ 1073741824) <= / 16777216); lra.
have ge0 k : k != true -> 0 <= e k by case: k => // _; exact: Rlt_le.
have p1 : (1 < 24)%Z by []. have r : (-149 <= - (24))%Z by [].
have pp : (1 < 24 <= 24)%Z by []. have rr : (-149 <= -149 <= - (24))%Z by [].
move=> /(_ _ _ _ _ pp rr r _ e true (pair_order true) false once fe erefl
  (fun k ne => conj (ge0 k ne) I) few tiny false).
have sum1 : evaluate (gradual (-149) 24) (gradual (-149) 24) id (fun _ => 1) e 0 (pair_order true)
  = 1.
  have few1 : INR 1 * power (- (24)) < 1 by change (1 * / 16777216 < 1); lra.
  have tiny1 : (1 + gamma 1 (power (- (24)))) * \big[Rplus/0]_(k | k != true) e k <= power (- (24)).
    rewrite rest; have -> : gamma 1 (power (- (24))) = / 16777215.
      by change (gamma 1 (/ 16777216) = / 16777215); rewrite /gamma /=; field.
    by change ((1 + / 16777215) * / 1073741824 <= / 16777216); lra.
  exact: (value_oneE p1 r fe (target := true) erefl ge0 few1 tiny1).
rewrite /computed_softmax /quotient sum1 /= /Rdiv Rinv_1 Rmult_1_r /one_hot /= -/(power (-30)).
by rewrite !rounded_idE //; try exact: (fe false); lra.
Qed.
Lemma small_integer z : (Z.abs z <= 2)%Z -> in_format 0 2 (IZR z).
Proof.
move=> small; apply: generic_format_FLT; exists (Flocq.Core.Defs.Float radix2 z 0).
- by rewrite /F2R /= Rmult_1_r.
- by rewrite /=; lia.
- by [].
Qed.
Lemma fall_by_le sharp first most : scores_fall sharp first most -> forall alpha d : Z,
  (Z.abs alpha <=? 2)%Z -> (Z.abs d <=? 2)%Z -> (Z.abs (- alpha * d) <=? 2)%Z ->
  sharp (IZR alpha) -> (first <=? d)%Z -> IZR (- alpha * d) <= most (IZR alpha).
Proof.
move=> fall alpha d /Z.leb_spec0 a2 /Z.leb_spec0 d2 /Z.leb_spec0 ad2 ok /Z.leb_spec0 le.
have p1 : (1 < 2)%Z by []. have e0 : (0 <= 0)%Z by [].
have := fall 0%Z 2%Z p1 e0 _ (small_integer a2) ok d le.
by rewrite (rounded_idE (small_integer d2)) -opp_IZR -mult_IZR (rounded_idE (small_integer ad2)).
Qed.
Definition mutant_far := scores_fall (Rle 0) 1 (fun alpha => - (2 * alpha)).
Theorem mutant_far_refuted : ~ mutant_far.
Proof. by move=> /fall_by_le /(_ 1%Z 1%Z isT isT isT Rle_0_1 isT) /=; lra. Qed.
Definition mutant_target := scores_fall (Rle 0) 0 Ropp.
Theorem mutant_target_refuted : ~ mutant_target.
Proof. by move=> /fall_by_le /(_ 1%Z 0%Z isT isT isT Rle_0_1 isT) /=; lra. Qed.
Definition mutant_negative := scores_fall (fun alpha => True) 1 Ropp.
Theorem mutant_negative_refuted : ~ mutant_negative.
Proof. by move=> /fall_by_le /(_ (-1)%Z 2%Z isT isT isT I isT) /=; lra. Qed.
