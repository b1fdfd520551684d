(** * TAPS: As many heads as taps are necessary

    Claim: A layer whose attention does not depend on X and that expresses every convolution of a
    kernel, by choice of its value and output weights, has at least as many heads as the kernel has
    taps, whatever its maps and its widths. So K^2 heads, which Theorem 1 shows to suffice for a K x
    K kernel, are also necessary. Fewer do not even come near: if some output sees all taps, there
    is a tap whose shift every such layer misses by more than any eps < 1, at some image of ones and
    minus ones, where the layer 0 is off by 1.
    Source: this project; Cordonnier et al. 2020 show that K^2 heads suffice.
    Does not show: How many heads one given convolution needs: HEADS. *)
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require Import Statements Sums L1 L3.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Matrices. Local Open Scope ring_scope.

(** Shifts are independent where each sees a pixel: a combination of taps that [Phi] maps to zero is
    a combination of shifts that is zero. So [Phi] has independent rows, no more than columns. *)
Lemma spans_need_heads (F : fieldType) n (g : geometry n) (H : finType)
  (P : H -> queries g -> pixels g -> of_ring F) : fits g ->
  (forall t, exists q i, sees (g := g) q t i) -> spans_jointly P -> (#|{: taps g}| <= #|H|)%N.
Proof.
move=> ok visible [Phi joint].
pose M : 'M[F]_(#|{: taps g}|, #|H|) := \matrix_(t, h) (Phi (enum_val t) (enum_val h) : F).
suff /eqP <- : row_free M by exact: rank_leq_col.
apply/inj_row_free => v vM; apply/rowP => j; rewrite mxE.
pose a t : F := v 0 (enum_rank t).
have zero q i : \sum_t a t * (@shift (of_ring F) n g t q i : F) = 0.
  transitivity (\sum_h (\sum_t a t * (Phi t h : F)) * (P h q i : F)).
    under eq_bigr do rewrite joint mulr_sumr; rewrite exchange_big /=; apply: eq_bigr => h _.
    by rewrite mulr_suml; apply: eq_bigr => t _; rewrite mulrA.
  apply: big1 => h _; have := congr1 (fun w : 'rV_#|H| => w 0 (enum_rank h)) vM; rewrite !mxE => E.
  suff -> : \sum_t a t * (Phi t h : F) = 0 by rewrite mul0r.
  rewrite -[RHS]E (reindex (@enum_val _ (mem {: taps g}))) /=;
    last exact: (onW_bij _ (enum_val_bij _)).
  by apply: eq_bigr => t _; rewrite mxE /a enum_valK enum_rankK.
have [q [i see]] := visible (enum_val j).
have := zero q i; rewrite (bigD1 (enum_val j)) //= big1 ?addr0 => [|t ne].
  by rewrite /shift see mulr1 /a enum_valK.
rewrite /shift; case: ifP => [seen|_]; last exact: mulr0.
by case/eqP: ne; exact: (sees_inj ok seen see).
Qed.
Theorem as_many_heads_as_taps : TAPS.
Proof.
move=> F n g H P ci co d ok visible ci0 co0 all.
exact: spans_need_heads ok visible (necessary ci0 co0 all).
Qed.

(** ** Instance: a 3 x 3 kernel with SAME padding on an image of 3 x 3 pixels: nine heads *)
Definition image3 : geometry 2 := same_padding 3 3 3.
Lemma image3_fits : fits image3. Proof. by move=> a; rewrite /padded /=; case: (a == ord0). Qed.
Lemma three (a : 'I_2) : (1 < out_side image3 a)%N. Proof. by rewrite /out_side /padded /=;
  case: (a == ord0). Qed.
Lemma centre_sees (t : taps image3) : exists i, sees (g := image3)
  [ffun a => Ordinal (three a)] t i.
Proof.
have lt a : (t a < side image3 a)%N by rewrite /=; case: (a == ord0); exact: ltn_ord (t a).
by exists [ffun a => Ordinal (lt a)]; apply/forallP => a; rewrite !ffunE /= !muln1.
Qed.
Theorem instance (F : fieldType) (H : finType)
  (P : H -> queries image3 -> pixels image3 -> of_ring F) :
  expresses_all P 1 1 1 -> (9 <= #|H|)%N.
Proof.
move=> all; have seen t : exists q i, sees (g := image3) q t i by exists
  [ffun a => Ordinal (three a)]; exact: centre_sees.
have := as_many_heads_as_taps image3_fits seen (isT : 0 < 1)%N (isT : 0 < 1)%N all.
suff -> : #|{: taps image3}| = 9%N by [].
by rewrite card_dep_ffun foldrE big_map big_enum /= !big_ord_recl big_ord0 !card_ord.
Qed.

(** ** Mutants

    Taps that see no pixel count too: one pixel, a kernel of three taps, padded by one; more heads
    than taps *)
Definition mutant := as_many_heads (fun n g => True) leq.
Definition mutant_more := as_many_heads
  (fun n g => forall t, exists q i, sees (g := g) q t i) ltn.
Definition point1 : geometry 1 :=
  Geometry (fun _ => 1%N) (fun _ => 3%N) (fun _ => 1%N) (fun _ => 1%N) (fun _ => 1%N)
    (fun _ => 1%N).
Theorem mutant_refuted : ~ mutant.
Proof.
have ok : fits point1 by [].
pose P (_ : unit) (_ : queries point1) (_ : pixels point1) : of_ring rat_fieldType := 1.
have zero_tap (t : taps point1) q i : sees (g := point1) q t i = (t ord0 == 1%N :> nat).
  have q0 : q ord0 = 0%N :> nat by case: (q ord0) => -[].
  have i0 : i ord0 = 0%N :> nat by case: (i ord0) => -[].
  by rewrite /sees; apply/forallP/eqP => [/(_ ord0) /eqP|E a];
    rewrite ?(ord1 a) /= ?E q0 i0 !muln1 //= => <-.
have joint : spans_jointly P.
  exists (fun (t : taps point1) _ => if t ord0 == 1%N :> nat then 1 else 0) => t q i.
  rewrite /shift zero_tap (bigD1 tt) //= big1 => [|[]] //.
  by case: ifP => _; rewrite /= /P addr0 ?mulr1 ?mul0r.
have all : expresses_all P 1 1 1 by exact/(sufficient (isT : minn 1 1 <= 1)%N).
move=> /(_ _ _ _ _ _ 1%N 1%N 1%N ok I isT isT all); rewrite card_unit.
by rewrite card_dep_ffun foldrE big_map big_enum /= big_ord_recl big_ord0 card_ord.
Qed.
(** The shifts themselves are heads that express every convolution: as many as there are taps. *)
Theorem mutant_more_refuted : ~ mutant_more.
Proof.
have joint : spans_jointly (@shift (of_ring rat_fieldType) 2 image3).
  by exists (fun t h => if h == t then 1 else 0) => t q i; rewrite sum_pickE.
have all : expresses_all (@shift (of_ring rat_fieldType) 2 image3) 1 1 1.
  exact/(sufficient (isT : minn 1 1 <= 1)%N).
have seen t : exists q i, sees (g := image3) q t i.
  by exists [ffun a => Ordinal (three a)]; exact: centre_sees.
by move=> /(_ _ _ _ _ _ 1%N 1%N 1%N image3_fits seen isT isT all); rewrite /= ltnn.
Qed.
