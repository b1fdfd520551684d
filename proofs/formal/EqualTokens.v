(** * PAD: equal tokens stay equal through networks of softmax attention

    Source: Luo, Li, Zheng, Liu, Wang, He, NeurIPS 2022, for one layer with relative positions; here
    for any network of such layers, and for the convolution that it is not. *)
From Coq Require Import Reals Lra FunctionalExtensionality.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Lemma sums_to_one (K : finType) (k0 : K) (p : K -> R) : softmax_weights p -> \sum_k p k = 1.
Proof. by case=> s ->; exact: softmax_sum1 k0. Qed.
Lemma one_tapE n (g : geometry n) (t : taps g) b (X : pixels g -> 'I_(1 * 1) -> reals) q o :
  torch_conv (one_tap t) b X q o = \big[Rplus/0]_(j | sees q t j) X j ord0 + b o.
Proof.
rewrite /torch_conv (bigD1 t) //= [X in _ + X + _]big1 => [|s /negbTE ne]; last first.
  by apply: big1 => c _; rewrite /one_tap ne /=; ring.
rewrite (big_pred1 ord0) => [|c]; last by rewrite (ord1 c) (ord1 o).
by rewrite /one_tap eqxx /=; ring.
Qed.
(** Weights that sum to 1 mix equal tokens to the token itself; a zero-padded shift of the image of
    ones is 1 where it sees a pixel and 0 where it sees none. *)
Theorem equal_tokens : PAD_stack.
Proof.
have equal (K C C' : finType) (F : (K -> C -> reals) -> K -> C' -> reals) :
    stack_of softmax_weights F -> forall X, (forall k k', X k = X k') ->
    forall k k', F X k = F X k'.
  elim=> {C C' F} [C C' f X same k k'|C C' H D P Wval Wout b mixes X same k k'
      |C C' F G _ IF _ IG X same k k'|C C' C'' F G _ IF _ IG X same k k'].
  - by rewrite (same k k').
  - apply: functional_extensionality => o; rewrite /mhsa; congr (_ + _).
    apply: eq_bigr => h _; apply: eq_bigr => e _; congr (_ * _).
    apply: eq_bigr => c _; congr (_ * _).
    have read q : \sum_i P X h q i * X i c = X k c.
      transitivity (\sum_i P X h q i * X k c); first by apply: eq_bigr => i _; rewrite (same i k).
      by rewrite -big_distrl /= (sums_to_one k (mixes X h q)) Rmult_1_l.
    exact: etrans (read k) (esym (read k')).
  - by rewrite (IF X same k k') (IG X same k k').
  - by apply: IG => i j; exact: IF.
split=> // n g t q q' i seen unseen F stacked at_pixel b says.
pose X (_ : pixels g) (_ : 'I_(1 * 1)) : reals := 1.
have outputs : F X (at_pixel q) = F X (at_pixel q') by apply: equal stacked _ _ _ _.
have conv p : torch_conv (one_tap t) b X p ord0 = \big[Rplus/0]_(j | sees p t j) 1 + b ord0
  by rewrite one_tapE.
have := says X q ord0; have := says X q' ord0; rewrite outputs => ->; rewrite !conv.
rewrite [in LHS]big1 => [|j]; last by rewrite (negbTE (unseen j)).
rewrite (bigD1 i) //=.
have : 0 <= \big[Rplus/0]_(j | sees q t j && (j != i)) 1 by apply: rsum_ge0 => *; lra.
by set r := bigop _ _ _; lra.
Qed.

(** ** Instance: two pixels, and the shift to the second *)
Definition edge_grid : geometry 1 := Geometry (fun _ => 2%N) (fun _ => 2%N) (fun _ => 1%N)
  (fun _ => 1%N) (fun _ => 0%N) (fun _ => 1%N).
Definition pixel_of_two (j : nat) (lt : (j < 2)%N) : pixels edge_grid := [ffun _ => Ordinal lt].
Definition front_pixel : pixels edge_grid := pixel_of_two (isT : (0 < 2)%N).
Definition rear_pixel : pixels edge_grid := pixel_of_two (isT : (1 < 2)%N).
Lemma next_seen :
  sees (front_pixel : queries edge_grid) (rear_pixel : taps edge_grid) rear_pixel.
Proof. by apply/forallP => a; rewrite !ffunE. Qed.
Lemma none_seen j : ~~ sees (rear_pixel : queries edge_grid) (rear_pixel : taps edge_grid) j.
Proof.
apply/forallP => /(_ ord0); rewrite !ffunE /=.
by have := ltn_ord (j ord0); case: (nat_of_ord (j ord0)) => [|[|]].
Qed.
Theorem instance (F : (pixels edge_grid -> 'I_(1 * 1) -> reals) -> pixels edge_grid ->
    'I_(1 * 1) -> reals) : stack_of softmax_weights F ->
  ~ forall X q o,
    F X q o = torch_conv (one_tap (rear_pixel : taps edge_grid)) (fun _ => 0) X q o.
Proof.
move=> stacked; exact: (proj2 equal_tokens _ _ _ _ _ _ next_seen none_seen _ stacked id).
Qed.
(** ** Mutant

    Weights need not sum to 1, as those of a head that reads explicit zeros do not. *)
Definition mutant := no_shift (fun _ _ => True).
Theorem mutant_refuted : ~ mutant.
Proof.
case=> _ /(_ _ _ _ _ _ _ next_seen none_seen) says.
pose P (X : pixels edge_grid -> 'I_(1 * 1) -> reals) (_ : unit) (q i : pixels edge_grid)
  : reals := shift (S := reals) (rear_pixel : taps edge_grid) (q : queries edge_grid) i.
pose W (_ : unit) (_ : 'I_(1 * 1)) (_ : unit) : reals := 1.
pose V (_ : unit) (_ : unit) (_ : 'I_(1 * 1)) : reals := 1.
have stacked : stack_of (fun _ _ => True) (fun X => mhsa (P X) W V (fun _ => 0) X).
  exact: Attention.
apply: (says _ stacked id (fun _ => 0)) => X q o.
rewrite one_tapE /mhsa !rsum_unitE (big_pred1 ord0) => [|c]; last by rewrite (ord1 c).
rewrite [in RHS]big_mkcond /W /V /P /shift /=.
have -> : (\sum_i (if sees q (rear_pixel : taps edge_grid) i then 1 else 0) * X i ord0
  = \sum_i (if sees q (rear_pixel : taps edge_grid) i then X i ord0 else 0))%R.
  by apply: eq_bigr => i _; case: ifP => _; ring.
by rewrite /= !Rmult_1_r.
Qed.
