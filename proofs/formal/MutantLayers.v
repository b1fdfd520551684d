(** * Mutants of the claims about grids and layers: STR, PAD, SOFT, L1

    Near misses, as in MutantHeads.v, refuted on small instances. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums MutantHeads.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** STR: one head, one channel, tokens 1 *)
Lemma sole_of (S : numbers) (F : unit -> S) : (\sum_k F k = F tt)%num. Proof.
by rewrite (big_pred1 tt) // => -[]. Qed.
Lemma two_of (S : numbers) (F : bool -> S) : (\sum_k F k = F true + F false)%num. Proof.
exact: big_bool. Qed.
Definition one_layer (Q K : finType) (P : unit -> Q -> K -> integers) (b : Z) (q : Q) : integers :=
  mhsa P (fun _ _ _ : unit => 1%Z : integers) (fun _ _ _ : unit => 1%Z : integers) (fun _ => b)
    (fun _ _ => 1%Z) q tt.
Ltac on_layer := rewrite /one_layer /mhsa !sole_of ?sole_of ?two_of /=.
Definition STR_queries := forall (S : numbers) (Q K H D Cin Cout : finType) (select : Q -> Q)
  (P : H -> Q -> K -> S)
    (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q o,
  mhsa (fun h q => P h (select q)) Wval Wout b X q o = mhsa P Wval Wout b X q o.
Theorem STR_queries_refuted : ~ STR_queries.
Proof.
move=> H; have : one_layer (fun _ q (_ : unit) => if ~~ q then 1%Z else 0%Z) 0 true
  = one_layer (fun _ (q : bool) (_ : unit) => if q then 1%Z else 0%Z) 0 true.
  exact: (H integers _ _ _ _ _ _ negb (fun _ q _ => if q then 1%Z else 0%Z)).
by on_layer.
Qed.
Definition STR_keys := forall (S : numbers) (Q K H D Cin Cout : finType) (select : K -> K)
  (P : H -> Q -> K -> S)
    (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b (X : K -> Cin -> S) q o,
  mhsa (fun h q k => P h q (select k)) Wval Wout b X q o = mhsa P Wval Wout b
    (fun k => X (select k)) q o.
Theorem STR_keys_refuted : ~ STR_keys.
Proof.
move=> H; have : one_layer (fun _ (_ : unit) (_ : bool) => 1%Z) 0 tt
  = one_layer (fun _ (_ : unit) (k : bool) => if k then 1%Z else 0%Z) 0 tt.
  exact: (H integers _ _ _ _ _ _ (fun _ => true) (fun _ _ (k : bool) => if k then 1%Z else 0%Z)).
by on_layer.
Qed.
Definition STR_any_weights := forall (S : numbers) (Q Q' K H D Cin Cout : finType)
  (w : Q' -> Q -> S) (P : H -> Q -> K -> S)
    (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q' o,
  (\sum_q w q' q * mhsa P Wval Wout b X q o
    = mhsa (fun h q' k => \sum_q w q' q * P h q k) Wval Wout b X q' o)%num.
Theorem STR_any_weights_refuted : ~ STR_any_weights.
Proof.
move=> H; have := H integers [finType of unit] [finType of unit] [finType of unit] [finType of unit]
  [finType of unit] [finType of unit] [finType of unit]
  (fun _ _ => 0%Z) (fun _ _ _ => 0%Z) (fun _ _ _ => 0%Z) (fun _ _ _ => 0%Z) (fun _ => 1%Z)
    (fun _ _ => 0%Z) tt tt.
by rewrite /mhsa !sole_of.
Qed.
Definition STR_transposed := forall (S : numbers) (Q K H D Cin Cout : finType) (w : Q -> Q -> S)
  (P : H -> Q -> K -> S)
    (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q' o, (\sum_q w q' q = one)%num ->
  (\sum_q w q' q * mhsa P Wval Wout b X q o
    = mhsa (fun h q' k => \sum_q w q q' * P h q k) Wval Wout b X q' o)%num.
Theorem STR_transposed_refuted : ~ STR_transposed.
Proof.
move=> H; have := H integers [finType of bool] [finType of unit] [finType of unit] [finType of unit]
  [finType of unit] [finType of unit]
  (fun _ q => if q then 1%Z else 0%Z) (fun _ _ _ => 1%Z) (fun _ _ _ => 1%Z) (fun _ _ _ => 1%Z)
    (fun _ => 0%Z) (fun _ _ => 1%Z) false tt.
by rewrite /mhsa !two_of !sole_of /= ?two_of => /(_ erefl).
Qed.

(** ** PAD *)
Local Open Scope Z_scope.
Definition on (x : Z) : point 1 := fun _ => x.
Definition PAD_strict := forall n (lo hi : point n), (forall a, lo a <= hi a) -> forall x y,
  inside lo hi y ->
  distance (clamp lo hi x) x < distance y x.
Theorem PAD_strict_refuted : ~ PAD_strict.
Proof. by move=>
  /(_ 1%N (on 0) (on 0) (fun _ => Z.le_refl 0) (on 0) (on 0)
  (fun _ => conj (Z.le_refl 0) (Z.le_refl 0))); rewrite !distance1. Qed.
Definition PAD_outside := forall n (lo hi : point n), (forall a, lo a <= hi a) -> forall x y,
  distance (clamp lo hi x) x <= distance y x.
Theorem PAD_outside_refuted : ~ PAD_outside.
Proof. by move=> /(_ 1%N (on 0) (on 0) (fun _ => Z.le_refl 0) (on 1) (on 1)); rewrite !distance1;
  apply. Qed.
Definition PAD_empty := forall n (lo hi : point n) x, inside lo hi (clamp lo hi x).
Theorem PAD_empty_refuted : ~ PAD_empty.
Proof. by move=> /(_ 1%N (on 1) (on 0) (on 0) ord0) [_]; apply. Qed.
Definition PAD_flat := forall n (w : 'I_n -> R) (lo hi : point n), (forall a, lo a <= hi a) ->
  forall x y, inside lo hi y -> (weighted w y x <= weighted w (clamp lo hi x) x)%R ->
    y =1 clamp lo hi x.
Theorem PAD_flat_refuted : ~ PAD_flat.
Proof.
have lohi (a : 'I_1) : on 0 a <= on 1 a by []. have ins : inside (on 0) (on 1) (on 1) by [].
move=> /(_ 1%N (fun _ => 0%R) _ _ lohi (on 0) (on 1) ins);
  rewrite /weighted !big_ord_recl !big_ord0 !Rmult_0_l.
by move=> /(_ (Rle_refl _) ord0).
Qed.

(** ** SOFT: keys within a distance *)
Definition SOFT_one_side := forall n (K : finType) (pos : K -> point n), grid pos ->
  forall target (r : nat),
  (#|[pred k | (k != target) && (distance (pos k) (pos target) <=? Z.of_nat (r * r))%Z]| <= r.+1 ^ n
    - 1)%N.
Definition SOFT_target_too := forall n (K : finType) (pos : K -> point n), grid pos ->
  forall target (r : nat),
  (#|[pred k | (distance (pos k) (pos target) <=? Z.of_nat (r * r))%Z]| <= (r + r).+1 ^ n - 1)%N.
Definition SOFT_no_grid := forall n (K : finType) (pos : K -> point n) target (r : nat),
  (#|[pred k | (k != target) && (distance (pos k) (pos target) <=? Z.of_nat (r * r))%Z]| <=
    (r + r).+1 ^ n - 1)%N.
Theorem SOFT_one_side_refuted : ~ SOFT_one_side.
Proof.
move=> /(_ _ _ _ ends_grid None 1%N); rewrite (eq_card (B := [pred k | k != None])) => [|[[]|]];
  rewrite ?inE /= ?distance1 //.
by rewrite (cardD1 (Some true)) (cardD1 (Some false)) !inE.
Qed.
Theorem SOFT_target_too_refuted : ~ SOFT_target_too.
Proof.
have inj : grid (fun (_ : unit) (_ : 'I_0) => 0) by case=> -[].
by move=> /(_ _ _ _ inj tt 0%N); rewrite (cardD1 tt) !inE /distance big_ord0.
Qed.
Theorem SOFT_no_grid_refuted : ~ SOFT_no_grid.
Proof. by move=> /(_ _ _ (fun (_ : bool) (_ : 'I_0) => 0) true 0%N);
  rewrite (cardD1 false) !inE /distance big_ord0. Qed.

(** ** L1: one axis *)
Local Open Scope nat_scope.
Definition axis (side kernel : nat) : geometry 1 :=
  Geometry (fun _ => side) (fun _ => kernel) (fun _ => 1) (fun _ => 1) (fun _ => 0) (fun _ => 0).
Definition L1_one_tap := forall n (g : geometry n), fits g -> forall (q : queries g) (k : keys g),
  exists! t, reads q t k.
Theorem L1_one_tap_refuted : ~ L1_one_tap.
Proof.
have ok : fits (axis 2 1) by [].
move=> /(_ _ _ ok [ffun _ => Ordinal (isT : 0 < 2)] [ffun _ => Ordinal (isT : 1 < 2)])
  [t [/forallP /(_ ord0)]].
by rewrite !ffunE /=; case: (t ord0) => [[|[]]].
Qed.
Definition L1_offset_sign := forall n (g : geometry n) (q : queries g) (t : taps g) (k : keys g),
  reads q t k <-> forall a, (site q a - position k a = offset t a)%Z.
Theorem L1_offset_sign_refuted : ~ L1_offset_sign.
Proof.
move=> /(_ 1 (axis 2 2) [ffun _ => Ordinal (isT : 0 < 1)] [ffun _ => Ordinal (isT : 1 < 2)]
  [ffun _ => Ordinal (isT : 1 < 2)]) [H _].
have /H /(_ ord0) : reads (g := axis 2 2) [ffun _ => Ordinal (isT : 0 < 1)]
  [ffun _ => Ordinal (isT : 1 < 2)] [ffun _ => Ordinal (isT : 1 < 2)].
  by apply/forallP => a; rewrite !ffunE.
by rewrite /site /position /offset !ffunE.
Qed.
Definition L1_little_padding := forall mode side before after, may_pad mode side before after ->
  before <= side /\ after <= side.
Theorem L1_little_padding_refuted : ~ L1_little_padding.
Proof. by move=> /(_ replicated 1 2 0 (conj isT (or_introl erefl))) []. Qed.
Definition L1_any_key := forall mode side before after, may_pad mode side before after ->
  forall z, (0 <= mode (Z.of_nat side) z < Z.of_nat side)%Z.
Theorem L1_any_key_refuted : ~ L1_any_key.
Proof. by move=>
  /(_ wrapped 1 0 0 (conj isT (or_intror (or_intror (conj erefl (conj isT isT))))) 5%Z) []. Qed.
