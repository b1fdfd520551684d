(** * PAD: Unpadded hard heads replicate borders

    Claim: In a box, the key nearest to any lattice point in an axis-aligned quadratic distance is
    its clamp, and it is the only one; so an unpadded hard head reads the replicate-padded image,
    not zeros. For a full covariance and for the enumerated encoding the nearest key is another one.
    Zero padding by floor(K/2) and cropping gives the convolution with SAME padding. Nor is any
    network of softmax attention a zero-padded shift that sees a pixel at one output and none at
    another: equal tokens stay equal through it, whatever its scores read, without a token beside
    those of the image.
    Source: Cordonnier et al. 2020, Section 3, Padding, made precise by this project; Luo et al.
    2022 for equal tokens.
    Does not show: Real centres between two keys: there the clamp per axis of the real point is no
    key, and two keys can tie. *)
From Coq Require Import Lia ZArith Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope Z_scope.

Lemma distance_ext n (x x' y y' : point n) : x =1 x' -> y =1 y' -> distance x y = distance x' y'.
Proof. by move=> Ex Ey; apply: eq_bigr => i _; rewrite Ex Ey. Qed.
Lemma distance_ge0 n (x y : point n) : 0 <= distance x y.
Proof.
rewrite /distance; elim/big_ind: _ => [|u v|i _];
  [lia | exact: Z.add_nonneg_nonneg | exact: Z.square_nonneg].
Qed.
Lemma distance_ge1 n (x y : point n) i : x i <> y i -> 1 <= distance x y.
Proof.
move=> ne; rewrite /distance (bigD1 i) //=; set r := bigop _ _ _.
have r0 : 0 <= r.
  by rewrite /r; elim/big_ind: _ => [|u v|j _];
    [lia | exact: Z.add_nonneg_nonneg | exact: Z.square_nonneg].
rewrite -[1]/(1 + 0); apply: Z.add_le_mono => //; nia.
Qed.

Section Clamp.
Variables (n : nat) (lo hi : point n).
Hypothesis lohi : forall i, lo i <= hi i.
Lemma clamp_inside x : inside lo hi (clamp lo hi x).
Proof. by move=> i; have := @lohi i; rewrite /clamp; lia. Qed.
(** Every key is farther than the clamp by at least its own squared distance from the clamp. *)
Lemma clamp_gap_le x y : inside lo hi y -> distance (clamp lo hi x) x + distance y (clamp lo hi x)
  <= distance y x.
Proof.
move=> Hy; rewrite /distance -big_split /=; apply: zsum_le => i _.
by have := @lohi i; have := Hy i; rewrite /clamp; nia.
Qed.
End Clamp.

Theorem nearest_key_of_box : PAD.
Proof.
split=> [n lo hi lohi x|n lo hi lohi x y Hy|n lo hi lohi x y Hy le i]; first exact: clamp_inside.
  by have := clamp_gap_le lohi (x := x) Hy; have := @distance_ge0 n y (clamp lo hi x); lia.
case: (Z.eq_dec (y i) (clamp lo hi x i)) => // ne.
by have := clamp_gap_le lohi (x := x) Hy; have := distance_ge1 ne; lia.
Qed.

Theorem axis_aligned : PAD_axes.
Proof.
move=> n w lo hi w0 lohi x y Hy; set c := clamp lo hi x.
have sq a : (0 <= (y a - c a) * (y a - c a))%Z by exact: Z.square_nonneg.
have term0 a : (0 <= w a * IZR ((y a - c a) * (y a - c a)))%R.
  by apply: Rmult_le_pos; [exact/Rlt_le/w0 | exact: IZR_le].
have gap : (weighted w c x + weighted w y c <= weighted w y x)%R.
  rewrite /weighted -big_split /=; apply: rsum_le => a _.
  have le : ((c a - x a) * (c a - x a) + (y a - c a) * (y a - c a) <= (y a - x a) * (y a - x a))%Z.
    by have := @lohi a; have := Hy a; rewrite /c /clamp; nia.
  rewrite -Rmult_plus_distr_l -plus_IZR; apply: Rmult_le_compat_l;
    [exact/Rlt_le/w0 | exact: IZR_le].
have ge0 : (0 <= weighted w y c)%R by apply: rsum_ge0 => a _; exact: term0.
split=> [|le a]; first lra.
have zero : (w a * IZR ((y a - c a) * (y a - c a)) <= 0)%R.
  have := @rsum_term_le _ (fun a => w a * IZR ((y a - c a) * (y a - c a)))%R a term0;
    rewrite -/(weighted w y c); lra.
case: (Z.eq_dec (y a) (c a)) => // ne; exfalso.
have one : (1 <= IZR ((y a - c a) * (y a - c a)))%R by apply: (IZR_le 1); nia.
by have := w0 a; nra.
Qed.

(** Heads that read the clamp of where their tap looks, which is the nearest pixel *)
Lemma clamping_layer (S : numbers) n (g : geometry n) : fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (Wval : H -> 'I_(G * ci) -> D -> S)
    (Wout : H -> D -> 'I_(G * co) -> S) (weight : 'I_(G * co) -> nat -> taps g -> S) b,
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) -> forall X q o,
  mhsa (fun h => replicate S (f h)) Wval Wout b X q o = conv_of_keys weight b (replicate_pad X) q o.
Proof.
move=> ok G ci co H D f Wval Wout weight b bij W X q o.
rewrite mhsaE; congr (add _ _); rewrite [RHS](reindex f) /=; last exact: onW_bij.
apply: eq_bigr => h _; rewrite [RHS]big_mkcond; apply: eq_bigr => c _; rewrite W /tap.
have -> : bigop zero (index_enum _)
  (fun i => BigBody i (@add S) true (mul (replicate S (f h) q i) (X i c)))
    = \big[@add S/zero]_(k | reads q (f h) k) replicate_pad X k c.
  rewrite [RHS](big_pred1 (key ok q (f h))) => [|k]; last by rewrite (readsE ok).
  rewrite /replicate_pad [RHS]big_mkcond; apply: eq_bigr => i _; rewrite /replicate.
  have -> : [forall a, Z.eqb (Z.of_nat (i a)) (clamp (fun=> 0) (fun a => Z.of_nat (side g a) - 1)
      (fun a => Z.of_nat (key ok q (f h) a) - Z.of_nat (before g a)) a)]
    = [forall a, Z.eqb (Z.of_nat (i a)) (clamp (fun=> 0) (fun a => Z.of_nat (side g a) - 1)
      (fun a => Z.of_nat (q a * stride g a + f h a * dilation g a) - Z.of_nat (before g a)) a)].
    by apply: eq_forallb => a; rewrite /clamp ffunE.
  by case: ifP => _; rewrite ?mul1l ?mul0l.
by case: eqP => // _; rewrite (@mulC S) (@mul0l S).
Qed.

Lemma nearestE n (g : geometry n) (q : queries g) (t : taps g) (i : pixels g) :
  [forall j : pixels g, distance (pixel_place i) (looked_at q t)
    <=? distance (pixel_place j) (looked_at q t)]
  = [forall a, Z.eqb (Z.of_nat (i a)) (clamp (fun=> 0) (fun a => Z.of_nat (side g a) - 1)
      (fun a => Z.of_nat (q a * stride g a + t a * dilation g a) - Z.of_nat (before g a)) a)].
Proof.
pose lo : point n := fun=> 0; pose hi : point n := fun a => Z.of_nat (side g a) - 1.
have ins (j : pixels g) : inside lo hi (pixel_place j).
  by move=> a; rewrite /lo /hi /pixel_place; have /ltP := ltn_ord (j a); lia.
have lohi : not_empty lo hi by move=> a; have := ins i a; lia.
have [_ near unique] := nearest_key_of_box; set x := looked_at q t.
apply/forallP/forallP => [le a|same j]; last first.
  have at_clamp : pixel_place i =1 clamp lo hi x by move=> a; apply/Z.eqb_eq; exact: same.
  by apply/Z.leb_le; rewrite (distance_ext at_clamp (fun=> erefl)); exact: near (ins j).
have lt b : (Z.to_nat (clamp lo hi x b) < side g b)%N.
  by have := clamp_inside lohi x b; rewrite /lo /hi => ?; apply/ltP; lia.
pose c : pixels g := [ffun b => Ordinal (lt b)].
have at_clamp : pixel_place c =1 clamp lo hi x.
  by move=> b; rewrite /pixel_place ffunE /=; have := clamp_inside lohi x b; rewrite /lo; lia.
apply/Z.eqb_eq; apply: (unique n lo hi lohi x (pixel_place i) (ins i)).
by rewrite -(distance_ext at_clamp (fun=> erefl)); apply/Z.leb_le; exact: le.
Qed.

Theorem replicating_layer : PAD_layer.
Proof.
move=> S n g ok G ci co H D f P Wval Wout weight b bij nearest W X q o.
rewrite -(clamping_layer ok b bij W X q o) !mhsaE; congr (add _ _).
apply: eq_bigr => h _; apply: eq_bigr => c _; congr (mul _ _); apply: eq_bigr => i _.
by rewrite nearest nearestE.
Qed.

(** The form 5 u^2 + 9 u v + 5 v^2, the column [x_1 = 0], the target (1, 0): (0, 1) is nearer than
    the clamp (0, 0). *)
Theorem full_covariance : PAD_covariance.
Proof. by exists 5, 9, 5, 0, 0, (-1), 1, 1, 0, 0, 1; do ![split]; lia. Qed.

(** The numbers 5 d_1 + d_2 of a grid of width 3: (0, 0) is nearer to the target (-1, 2) than its
    clamp (0, 2). *)
Theorem enumerated_border : PAD_enumerated.
Proof. by exists 5, 0, 0, 0, 2, (-1), 2, 0, 0; rewrite /=; lia. Qed.

Section MorePadding.
Variables (n : nat) (g : geometry n) (front behind : 'I_n -> nat).
Hypothesis ok : fits g.
Hypothesis stride1 : forall a, stride g a = 1%N.
Lemma cropped_lt (q : queries g) a : (q a + front a < out_side (more_padding g front behind) a)%N.
Proof.
have Hq : (q a < (padded g a - dilation g a * (kernel g a - 1) - 1) %/ stride g a + 1)%N :=
  ltn_ord (q a).
have [_ _ _ room] := ok a; move: (q a : nat) Hq => x;
  rewrite stride1 /out_side /padded /= !divn1 !addn1 !ltnS => Hq.
rewrite /padded in room; move: Hq room; set r := (dilation g a * _)%N; clearbody r.
move: (before g a) (side g a) (after g a) (front a) (behind a) => b s e f h Hq room.
apply: leq_trans (leq_add Hq (leqnn f)) _.
rewrite -!subnDA addnBAC; last by rewrite addn1.
apply: leq_sub2r; rewrite -!addnA leq_add2l addnCA [X in (_ <= X)%N]addnC.
by apply/leP; rewrite -!plusE; lia.
Qed.
End MorePadding.

Theorem crop : PAD_crop.
Proof.
move=> S n g ok stride1 front behind q;
  exists [ffun a => Ordinal (cropped_lt front behind ok stride1 q a)].
split=> [a|G ci co weight b X o]; first by rewrite ffunE.
congr (add _ _); apply: eq_bigr => t _; apply: eq_bigr => c _; congr (mul _ _); apply: eq_bigl => i.
apply: eq_forallb => a; rewrite ffunE /= stride1 !muln1.
by rewrite addnAC [(q a + front a + _)%N]addnAC eqn_add2r.
Qed.

(** ** Instance

    A 2 x 3 box, the target (-4, 7): the clamp is (0, 2), at squared distance 41; (1, 2) is at 50 *)
Definition pair_of (x y : Z) : point 2 := fun a => if a == ord0 then x else y.
Theorem instance : clamp (pair_of 0 0) (pair_of 1 2) (pair_of (-4) 7) =1 pair_of 0 2 /\
  distance (pair_of 0 2) (pair_of (-4) 7) = 41
  /\ distance (pair_of 1 2) (pair_of (-4) 7) = 50
  /\ forall y, inside (pair_of 0 0) (pair_of 1 2) y -> 41 <= distance y (pair_of (-4) 7).
Proof.
have E : clamp (pair_of 0 0) (pair_of 1 2) (pair_of (-4) 7) =1 pair_of 0 2.
  by move=> a; rewrite /clamp /pair_of; case: eqP.
have d : distance (pair_of 0 2) (pair_of (-4) 7) = 41 by rewrite /distance !big_ord_recl !big_ord0.
split=> //; split=> //; split; first by rewrite /distance !big_ord_recl !big_ord0.
have lohi a : pair_of 0 0 a <= pair_of 1 2 a by rewrite /pair_of; case: eqP.
have [_ near _] := nearest_key_of_box; move=> y /(near _ _ _ lohi (pair_of (-4) 7)).
by rewrite (distance_ext E (fun _ => erefl)) d.
Qed.

(** ** Mutants

    The nearest key also for a key set with a hole, the clamp removed; a strict bound, also for the
    clamp; keys outside; an empty box; weights of 0 *)
Definition mutant := forall n (lo hi : point n) (visible : point n -> Prop) x,
  (forall a, lo a <= hi a) ->
  (exists y, inside lo hi y /\ visible y) ->
  exists y, visible y /\ inside lo hi y /\ forall z, visible z -> inside lo hi z ->
    distance z x <= distance y x -> z =1 y.
Definition on (x : Z) : point 1 := fun _ => x.
Theorem mutant_refuted : ~ mutant.
Proof.
have some : exists y, inside (on (-1)) (on 1) y /\ y ord0 <> 0 by exists (on 1).
have lohi a : on (-1) a <= on 1 a by [].
move=> /(_ 1%N (on (-1)) (on 1) (fun y => y ord0 <> 0) (on 0) lohi some) [y [vis [ins unique]]].
have Hy := ins ord0; have one : y ord0 = 1 \/ y ord0 = -1 by rewrite /on in Hy; lia.
have tie : forall z, z = 1 \/ z = -1 -> z = y ord0.
  move=> z Hz; apply: (unique (on z) _ _ _ ord0); rewrite /on.
  - lia.
  - by move=> a; lia.
  - by rewrite !distance1; case: Hz => ->; case: one => ->.
by have := tie 1 (or_introl erefl); have := tie (-1) (or_intror erefl); lia.
Qed.
Lemma sole_key : not_empty (on 0) (on 0). Proof. by []. Qed.
Definition mutant_strict := clamp_is_nearest inside Z.lt.
Theorem mutant_strict_refuted : ~ mutant_strict.
Proof.
have ins : inside (on 0) (on 0) (on 0) by [].
by move=> /(_ _ _ _ sole_key (on 0) (on 0) ins); rewrite !distance1.
Qed.
Definition mutant_outside := clamp_is_nearest (fun n lo hi y => True) Z.le.
Theorem mutant_outside_refuted : ~ mutant_outside.
Proof. by move=> /(_ _ _ _ sole_key (on 1) (on 1) I); rewrite !distance1; apply. Qed.
Definition mutant_empty := clamps_inside (fun n lo hi => True).
Theorem mutant_empty_refuted : ~ mutant_empty.
Proof. by move=> /(_ _ (on 1) (on 0) I (on 0) ord0) [_]; apply. Qed.
Definition mutant_flat := clamps_axes (Rle 0).
Theorem mutant_flat_refuted : ~ mutant_flat.
Proof.
have lohi : not_empty (on 0) (on 1) by []. have ins : inside (on 0) (on 1) (on 1) by [].
move=> /(_ _ (fun _ => 0%R) _ _ (fun _ => Rle_refl 0) lohi (on 0) (on 1) ins) [_].
by rewrite /weighted !big_ord_recl !big_ord0 !Rmult_0_l => /(_ (Rle_refl _) ord0).
Qed.
