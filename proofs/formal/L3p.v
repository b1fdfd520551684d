(** * L3p: Lemma 3 as printed is false

    Claim: The printed condition, that at each query the shifts lie in the span of that query's
    attention rows, does not suffice: there are (a) two quadratic heads on two pixels, (b) the nine
    unpadded heads of a 3 x 3 kernel on a 3 x 3 image, hard or soft, (c) box heads on six tokens,
    (d) heads that swap their shifts, for which it holds at every query and no single set of weights
    gives the convolution. (a), on 2 x 1 pixels with K = 1, and (b) with soft heads, with K = 3,
    meet all that the lemma asks for: odd K, N_h >= K^2, D_h >= D_out. It is necessary (L3). It also
    needs attention that does not depend on X.
    Source: Cordonnier et al. 2020, Lemma 3 and its proof (the step "there exists Phi"), refuted by
    this project.
    Does not show: How often the printed condition misleads on trained attention. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 L3.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** (a) Two pixels, alpha = ln 2: the weights are 2/3, 1/3; 1/3, 2/3 and 1/3, 2/3; 1/9, 8/9 *)
Lemma exp_ln2 (z : Z) : exp (- ln 2 * IZR z) = / powerRZ 2 z.
Proof.
rewrite powerRZ_Rpower; last lra.
by rewrite /Rpower -exp_Ropp; congr exp; ring.
Qed.
Lemma pair_table h q k : pair_head h q k = match h, q, k with
  | false, false, false => 2 / 3 | false, false, true => 1 / 3 | false, true,
    false => 1 / 3 | false, true, true => 2 / 3
  | true, false, false => 1 / 3 | true, false, true => 2 / 3 | true, true, false => 1 / 9 | true,
    true, true => 8 / 9 end.
Proof.
rewrite /pair_head /quadratic_head /softmax rsum_bool /distance !big_ord_recl !big_ord0 !exp_ln2.
by case: h; case: q; case: k; rewrite /pixel /=; field.
Qed.
Theorem quadratic_pair : L3p_a.
Proof.
split=> [q|[Phi joint]].
  exists (fun _ h => match h, q with false, false => 2 | true, false => -1 | false,
    true => - (1 / 2) | true, true => 3 / 2 end).
  move=> [] k; rewrite [RHS]rsum_bool !pair_table /own /one_hot.
  by case: q; case: k; rewrite /=; lra.
have E q k := joint tt q k; move: (E false true) (E true false) (E false false).
by rewrite ![\big[_/_]_(i : bool) _]rsum_bool !pair_table /own /one_hot /=; lra.
Qed.

(** ** (b) Hard heads, one a tap

    At a border they read another pixel, and the interior has fixed [Phi] *)
Theorem replicate_heads : L3p_b.
Proof.
move=> S n g ok ne0 [qi seen] [qb [t0 unseen]].
have agree (q : queries g) t i : sees q t i -> forall j, replicate S t q j
  = if j == i then one else zero.
  move=> /forallP see j; rewrite /replicate; congr (if _ then _ else _).
  apply/forallP/eqP => [E|-> a].
    apply/ffunP => a; apply: val_inj; have /Z.eqb_eq := E a;
      rewrite /clamp -(eqP (see a)) of_natD => H.
    by apply: Nat2Z.inj => /=; have /ltP := ltn_ord (i a); lia.
  apply/Z.eqb_eq; rewrite /clamp -(eqP (see a)) of_natD.
  by have /ltP := ltn_ord (i a); lia.
have shift_seen (q : queries g) t i : sees q t i -> forall j,
  @shift S n g t q j = if j == i then one else zero.
  move=> see j; rewrite /shift; case: (eqVneq j i) => [->|ne]; first by rewrite see.
  case: ifP => // /forallP see'; case/eqP: ne; apply/ffunP => a; apply: val_inj.
  by have := eqP (see' a); rewrite -(eqP (forallP see a)) => /addnI.
split=> [q|[Phi joint]].
  exists (fun t h => if [exists i, sees q t i] && (t == h) then one else zero) => t j.
  case: existsP => [[i see]|none] /=.
    rewrite (bigD1 t) //= eqxx sum0 => [|h /negbTE ne]; last by rewrite eq_sym ne mul0l.
    by rewrite add0r mul1l (agree _ _ _ see) (shift_seen _ _ _ see).
  rewrite sum0 => [|h _]; last by rewrite mul0l.
  by rewrite /shift; case: ifP => // see; case: none; exists j.
pose s t := xchoose (seen t); have see t : sees qi t (s t) := xchooseP (seen t).
have PhiE h : Phi t0 h = if h == t0 then one else zero.
  have := joint t0 qi (s h); rewrite (bigD1 h) //= sum0 => [|h' ne]; last first.
    rewrite (agree _ _ _ (see h')); case: eqP => [E|_]; last exact: mul0r.
    by case/eqP: ne; apply: (sees_inj ok (see h')); rewrite -E; exact: see.
  rewrite (agree _ _ _ (see h)) eqxx mul1r add0r => <-; rewrite (shift_seen _ _ _ (see t0)).
  case: (eqVneq h t0) => [->|ne]; first by rewrite eqxx.
  by case: eqP => // E; case/eqP: ne; apply: (sees_inj ok (see h)); rewrite E; exact: see.
have room a : (0 < side g a)%N.
  by case: (side g a) (s t0 a) => // -[].
pose border a := (Z.of_nat (qb a * stride g a + t0 a * dilation g a) - Z.of_nat (before g a))%Z.
have lt a :
  (Z.to_nat (clamp (n := n) (fun _ => 0%Z) (fun a => (Z.of_nat (side g a) - 1)%Z) border a)
  < side g a)%N.
  by apply/ltP; rewrite /clamp; have /ltP := room a; lia.
pose j : pixels g := [ffun a => Ordinal (lt a)].
have := joint t0 qb j; rewrite (bigD1 t0) //= PhiE eqxx sum0 => [|h /negbTE ne];
  last by rewrite PhiE ne mul0l.
have -> : replicate S t0 qb j = one.
  rewrite /replicate; have -> // : [forall a, Z.eqb (Z.of_nat (j a)) (clamp (fun _ => 0%Z)
    (fun a => (Z.of_nat (side g a) - 1)%Z) border a)].
  apply/forallP => a; apply/Z.eqb_eq; rewrite ffunE /= Z2Nat.id // /clamp; have /ltP := room a; lia.
rewrite /shift (negbTE (unseen j)) mul1l add0r => E; exact: ne0.
Qed.

(** ** (c) Box heads on six tokens: [Phi] is (3, -2) inside and (2, -1) at the border *)
Definition near_box (h : bool) (q k : 'I_6) : bool :=
  ((k == q) && h) || (k == q.+1 :> nat) || (k.+1 == q :> nat).
Definition box_size (h : bool) (q : 'I_6) : R :=
  (if (q == 0%N :> nat) || (q == 5%N :> nat) then 1 else 2) + (if h then 1 else 0).
Lemma box_sumE h q : \sum_j (if near_box h q j then 1 else 0) = box_size h q.
Proof.
rewrite !big_ord_recl big_ord0 /near_box /box_size -!val_eqE /=.
by case: h; case: q => [[|[|[|[|[|[|//]]]]]] ?] /=; ring.
Qed.
Lemma box_headE h q k : box_head h q k = (if near_box h q k then 1 else 0) / box_size h q.
Proof. by rewrite -box_sumE. Qed.
Ltac box_value := rewrite !box_headE /near_box /box_size -!val_eqE /=; field; lra.
Theorem boxes : L3p_c.
Proof.
split=> [q|[Phi joint]].
  exists (fun _ h => if (q == 0%N :> nat) || (q == 5%N :> nat) then (if h then 2 else -1) else
    (if h then 3 else -2)).
  move=> [] k; rewrite [RHS]rsum_bool /own /one_hot.
  case: q => [[|[|[|[|[|[|//]]]]]] ?]; case: k => [[|[|[|[|[|[|//]]]]]] ?]; rewrite -val_eqE /=;
    box_value.
pose at_ (i : nat) (lt : (i < 6)%N) : 'I_6 := Ordinal lt.
pose e := at_ 0%N isT; pose f := at_ 1%N isT; pose i := at_ 2%N isT.
have T0 : box_head true e e = 1 / 2 by box_value.
have T1 : box_head true e f = 1 / 2 by box_value.
have F0 : box_head false e e = 0 by box_value.
have F1 : box_head false e f = 1 by box_value.
have T2 : box_head true i i = 1 / 3 by box_value.
have T3 : box_head true i f = 1 / 3 by box_value.
have F2 : box_head false i i = 0 by box_value.
have F3 : box_head false i f = 1 / 2 by box_value.
have H1 := joint tt e e; have H2 := joint tt e f; have H3 := joint tt i i; have H4 := joint tt i f.
move: H1 H2 H3 H4;
  rewrite ![\big[_/_]_(h : bool) _]rsum_bool T0 T1 T2 T3 F0 F1 F2 F3 /own /one_hot -!val_eqE /=.
by lra.
Qed.

(** ** (d) Hard heads that swap: [Phi] picks the head that has the shift at this query *)
Theorem swapping : L3p_d.
Proof.
split=> [q|[Phi joint]].
  exists (fun t h => if t == odd q (+) h then 1 else 0) => t k;
    rewrite [RHS]rsum_bool /circle_shift /swap_head.
  by case: (odd q); case: t; rewrite /= ?Rmult_1_l ?Rmult_0_l ?Rplus_0_l ?Rplus_0_r.
pose at_ (i : nat) (lt : (i < 6)%N) : 'I_6 := Ordinal lt.
have H1 := joint false (at_ 0%N isT) (at_ 0%N isT);
  have H2 := joint false (at_ 1%N isT) (at_ 2%N isT).
move: H1 H2; rewrite ![\big[_/_]_(i : bool) _]rsum_bool /circle_shift /swap_head /one_hot -!val_eqE
  /= !inordK //=.
by lra.
Qed.

(** ** E12: scores that depend on [X] *)
Lemma exp_ln2_powerE (r : R) (z : Z) : r = IZR z -> exp (ln 2 * r) = powerRZ 2 z.
Proof. by move=> ->; rewrite powerRZ_Rpower /Rpower; [congr exp; ring | lra]. Qed.
Lemma content_tableE (x y : Z) h q k : content_head (image (IZR x) (IZR y)) h q k
  = if h then powerRZ 2 ((if q then y else x) * (if k then y else x))
            / (powerRZ 2 ((if q then y else x) * y) + powerRZ 2 ((if q then y else x) * x)) else 1 /
              2.
Proof.
rewrite /content_head /softmax rsum_bool; case: h; last by rewrite exp_0; field.
rewrite /image; case: q; case: k; by rewrite !(exp_ln2_powerE (esym (mult_IZR _ _))).
Qed.
Theorem content_heads : L3p_content.
Proof.
split; [|split].
- by exists (5 / 3), (- (2 / 3)) => q k; rewrite !(content_tableE 1 (-1)) /one_hot; case: q;
  case: k;
  rewrite /=; field.
- by exists (257 / 255), (- (2 / 255)) => q k; rewrite !(content_tableE 2 (-2)) /one_hot; case: q;
  case: k; rewrite /=; field.
case=> a [b same]; have := same _ (or_introl erefl) false; have := same _ (or_intror erefl) false.
by rewrite !rsum_bool !(content_tableE 1 (-1)) !(content_tableE 2 (-2)) /image /=; lra.
Qed.

(** ** The printed lemma

    The pair of (a), as two heads of the paper's layer on an image of 2 x 1 pixels with K = 1 *)
Definition pair_grid : geometry 2 := same_padding 2 1 1.
Section Line.
Variable size : 'I_2 -> nat.
Hypothesis sizes : forall a, size a = (if a == ord0 then 2 else 1)%N.
Lemma line_lt (b : bool) a : ((if a == ord0 then nat_of_bool b else 0) < size a)%N.
Proof. by rewrite sizes; case: eqP => _; case: b. Qed.
Definition to_box (b : bool) : box size := [ffun a => Ordinal (line_lt b a)].
Definition of_box (i : box size) : bool := (i ord0 == 1%N :> nat).
Lemma coordinateE (i : box size) a : i a = (if a == ord0 then nat_of_bool (of_box i) else 0%N)
  :> nat.
Proof.
have := ltn_ord (i a); rewrite [X in (_ < X)%N]sizes /of_box; case: (eqVneq a ord0) => [->|_].
  by move: (nat_of_ord (i ord0)) => [|[|m]].
by move: (nat_of_ord (i a)) => [|m].
Qed.
Lemma to_boxK : cancel to_box of_box. Proof. by case; rewrite /of_box ffunE. Qed.
Lemma of_boxK : cancel of_box to_box.
Proof. by move=> i; apply/ffunP => a; rewrite ffunE; apply: val_inj; rewrite [LHS]/= -coordinateE.
Qed.
End Line.
Lemma pixel_sizesE a : side pair_grid a = (if a == ord0 then 2 else 1)%N. Proof. by []. Qed.
Lemma query_sizesE a : out_side pair_grid a = (if a == ord0 then 2 else 1)%N.
Proof. by rewrite /out_side /padded /=; case: eqP. Qed.
Notation of_pixel := (@of_box (side pair_grid)).
Notation of_query := (@of_box (out_side pair_grid)).
Notation to_pixel := (to_box pixel_sizesE).
Notation to_query := (to_box query_sizesE).
Definition pair_scores (h : 'I_2) (q : queries pair_grid) (k : pixels pair_grid) : R :=
  - ln 2 * IZR
    (distance (pixel (of_pixel k)) (fun a => (pixel (of_query q) a + pixel (h == ord_max) a)%Z)).
Lemma pair_softmaxE h q k : softmax (pair_scores h q) k = pair_head (h == ord_max) (of_query q)
  (of_pixel k).
Proof.
rewrite /pair_head /quadratic_head /softmax; congr (_ / _); rewrite (reindex to_pixel).
  by apply: eq_bigr => j _; rewrite /pair_scores to_boxK.
by exists of_pixel => i _; [exact: to_boxK | exact: of_boxK].
Qed.
Lemma pair_shiftE (t : taps pair_grid) (q : queries pair_grid) (k : pixels pair_grid) :
  @shift reals 2 pair_grid t q k = own tt (of_query q) (of_pixel k).
Proof.
have t0 a : t a = 0%N :> nat by case: (t a) => -[].
rewrite /shift /own /one_hot; congr (if _ then _ else _); apply/forallP/eqP => [H|E a].
  by have := eqP (H ord0); rewrite t0 muln1 mul0n addn0 /= add0n /of_box => ->.
by apply/eqP; rewrite t0 muln1 mul0n addn0 [LHS]add0n (coordinateE pixel_sizesE k a)
  (coordinateE query_sizesE q a) E.
Qed.
Lemma sum_pair (F : bool -> R) : \big[Rplus/0]_(h : 'I_2) F (h == ord_max) = \sum_h F h.
Proof. by rewrite big_ord_recl big_ord_recl big_ord0 rsum_bool /= Rplus_0_r Rplus_comm. Qed.

Theorem printed_is_false : L3p.
Proof.
have [each joint] := quadratic_pair => printed.
have [_ all] := printed 2%N 1%N 1%N isT 2%N pair_scores 1%N 1%N 1%N isT isT isT isT.
have spans q : spans_at (fun h q => softmax (pair_scores h q) : pixels pair_grid -> reals) q.
  have [Phi E] := each (of_query q); exists (fun _ h => Phi tt (h == ord_max)) => t i.
  rewrite pair_shiftE E -(sum_pair (fun h => Phi tt h * pair_head h (of_query q) (of_pixel i))).
  by apply: eq_bigr => h _; rewrite pair_softmaxE.
have [Phi E] := @necessary _ _ _ _ _ 1%N 1%N 1%N isT isT (all spans); apply: joint.
exists (fun _ b => Phi [ffun _ => ord0] (if b then ord_max else ord0)) => -[] q k.
have := E [ffun _ => ord0] (to_query q) (to_pixel k); rewrite pair_shiftE !to_boxK => ->.
rewrite -(sum_pair (fun h => Phi [ffun _ => ord0] (if h then ord_max else ord0) * pair_head h q k)).
apply: eq_bigr => h _; rewrite pair_softmaxE !to_boxK; congr (_ * _); congr Phi.
by case: (eqVneq h ord_max) => [->//|]; case: h => [[|[|//]] ?] //= ne; apply: val_inj.
Qed.

(** ** Instance

    (a)'s [Phi_0 = (2, -1)] gives the identity at the first query, and not at the second; no other
    Phi does either *)
Theorem instance : (forall k, 2 * pair_head false false k - pair_head true false k
  = one_hot false k)
  /\ 2 * pair_head false true false - pair_head true true false = 5 / 9
  /\ ~ exists Phi : unit -> bool -> reals, forall t q k,
    own t q k = (\sum_h Phi t h * pair_head h q k)%num.
Proof.
split; [|split]; last by have [_ joint] := quadratic_pair.
- by case; rewrite !pair_table /one_hot /=; lra.
- by rewrite !pair_table; lra.
Qed.

(** ** Mutant: what holds at each query holds jointly, on two pixels *)
Definition mutant := forall P : bool -> bool -> bool -> reals,
  (forall q, exists Phi : unit -> bool -> reals, forall t k,
    own t q k = (\sum_h Phi t h * P h q k)%num) ->
  exists Phi : unit -> bool -> reals, forall t q k, own t q k = (\sum_h Phi t h * P h q k)%num.
Theorem mutant_refuted : ~ mutant.
Proof. by have [each joint] := quadratic_pair => /(_ _ each). Qed.
(** Mutant of L3: the condition at each query, in place of the joint one. *)
Definition mutant_each := expresses_iff (fun ci co d => minn ci co <= d)%N
  (fun S n g H P => forall q, spans_at P q).
Theorem mutant_each_refuted : ~ mutant_each.
Proof.
move=> enough; apply: printed_is_false => W He K _ g Nh A Din Dout Dh P i o _ le.
by apply: enough => //; exact: leq_trans (geq_minr _ _) le.
Qed.
