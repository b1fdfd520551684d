(** * L3, L3p: instances and mutants of their other theorems *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require L3 L3p TapHeads.
From C2A Require Import Statements Sums L1 OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Instances: one head on one pixel that attends to it, or to nothing *)
Lemma shift1 (S : numbers) (t : taps one_pixel) q i : shift (S := S) t q i = one.
Proof. by rewrite /shift all_see. Qed.
Lemma leavesE (p : reals) t phi q : leaves (full_attention p) t phi q = Rabs (1 - phi (here _) * p).
Proof.
rewrite /leaves (@sum_here reals (side one_pixel)) shift1; congr (Rabs (_ - _)).
by rewrite (@sum_here reals (kernel one_pixel)).
Qed.
Theorem instance_only_if n (g : geometry n) q : spans_at (@shift integers n g) q.
Proof. exact: (L3.only_if (isT : 0 < 1)%N (isT : 0 < 1)%N (@L3.instance n g 1 1 isT isT) q). Qed.
Theorem instance_dual (t : taps one_pixel) phi :
  exists q, / 2 < leaves (full_attention (0 : reals)) t phi q.
Proof.
apply: (@L3.dual _ _ _ _ t (/ 2) (fun _ _ => 1) (fun _ => 1)) => [h|q|].
- by rewrite big1 // => q _; rewrite big1 // => i _; exact: Rmult_0_r.
- by split=> [|i]; rewrite ?Rabs_R1; lra.
rewrite !(@sum_here reals (out_side one_pixel)) (@sum_here reals (side one_pixel)) shift1 /=; lra.
Qed.
Lemma nothing_leaves (t : taps one_pixel) (phi : taps one_pixel -> R) : True ->
  exists2 q, True & / 2 < leaves (full_attention (0 : reals)) t phi q.
Proof. by exists (here _) => //; rewrite leavesE Rmult_0_r Rminus_0_r Rabs_R1; lra. Qed.
Theorem instance_far (t : taps one_pixel) :
  exists (X : pixels one_pixel -> 'I_(1 * 1) -> reals) q o,
  / 2 < Rabs (mhsa (full_attention (0 : reals)) (fun _ _ (_ : 'I_1) => 1 : reals) (fun _ _ _ => 1)
    (fun _ => 3) X q o - torch_conv (one_tap t) (fun _ => 4) X q o).
Proof.
have [X [q [o [_ _ far]]]] := L3.far (@nothing_leaves t) (Wval := fun _ _ (_ : 'I_1) => 1 : reals)
  (Wout := fun _ _ _ => 1) (fun _ => 4) (fun _ => 3) I.
by exists X, q, o.
Qed.
Theorem instance_near : exists (Wval : taps one_pixel -> 'I_(1 * 1) -> 'I_1 -> reals)
    (Wout : taps one_pixel -> 'I_1 -> 'I_(1 * 1) -> reals),
  forall X, (forall i c, Rabs (X i c) <= 1) -> forall o,
  Rabs (mhsa (full_attention (1 : reals)) Wval Wout (bias (5 : reals)) X (here _) o
    - torch_conv (weighs (7 : reals)) (bias (5 : reals)) X (here _) o) <= 0.
Proof.
have [Wval [Wout [_ near]]] := L3.near (full_attention (1 : reals)) (isT : minn 1 1 <= 1)%N
  (fun _ _ => 1) (weighs (7 : reals)) (bias (5 : reals)).
exists Wval, Wout => X small o.
have exact_there t : leaves (full_attention (1 : reals)) t (fun _ => 1) (here _) <= 0.
  by rewrite leavesE Rmult_1_r Rminus_eq_0 Rabs_R0; exact: Rle_refl.
have := near _ (fun _ => 0) exact_there X 1 Rle_0_1 small o.
by rewrite big1 ?Rmult_0_r // => t _; rewrite Rmult_0_l.
Qed.
Theorem instance_replicate :
  only_each (@replicate 1 (small 1) integers) (@shift integers 1 (small 1)).
Proof.
apply: (L3p.replicate_heads (@small_fits 1 isT)) => //.
  exists (@small_query 1 1 isT) => t; have lt : (t ord0 < 3)%N by apply: ltn_trans (ltn_ord _) _.
  exists (line (Ordinal lt)); apply/forallP => a; rewrite !ffunE /= (ord1 a) !muln1.
  by rewrite add1n.
exists (@small_query 1 0 isT), (line (ord0 : 'I_2)) => i; apply/negP => /forallP /(_ ord0).
by rewrite !ffunE.
Qed.

(** ** Mutants: no channels; a dual that only just reaches; weights that leave just eps *)
Definition mutant_no_channels := forall (S : numbers) n (g : geometry n) (H : finType)
  (P : H -> queries g -> pixels g -> S) (ci co d : nat),
  (0 < co)%N -> expresses_all P ci co d -> forall q, spans_at P q.
Theorem mutant_no_channels_refuted : ~ mutant_no_channels.
Proof.
have all : expresses_all (full_attention (0%Z : integers)) 0 1 1.
  move=> weight b; exists (fun _ _ _ => 0%Z), (fun _ _ _ => 0%Z), b => X q o.
  rewrite mhsaE /torch_conv !big1 // => t _; last by apply: big1 => -[].
  by apply: big1 => -[].
move=> /(_ _ _ _ _ _ _ _ _ (isT : 0 < 1)%N all (here _)) [Phi].
move=> /(_ (here _) (here _)); rewrite shift1 big1 // => h _.
by rewrite /full_attention mul0r.
Qed.
Definition mutant_just := forall n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> reals) (t : taps g) (eps : R)
    (y : queries g -> pixels g -> R) (peak : queries g -> R),
  (forall h, \sum_q \big[Rplus/0]_i (y q i * P h q i) = 0) ->
  (forall q, 0 <= peak q /\ forall i, Rabs (y q i) <= peak q) ->
  eps * (\sum_q peak q) <= \sum_q \big[Rplus/0]_i (y q i * shift (S := reals) t q i) ->
  forall phi, exists q, eps < leaves P t phi q.
Theorem mutant_just_refuted : ~ mutant_just.
Proof.
have no_head (h : taps one_pixel) :
    \big[Rplus/0]_(q : queries one_pixel)
      \big[Rplus/0]_i (1 * full_attention (0 : reals) h q i) = 0.
  by rewrite big1 // => q _; rewrite big1 // => i _; exact: Rmult_0_r.
have peak (q : queries one_pixel) : 0 <= 1 /\ (pixels one_pixel -> Rabs 1 <= 1).
  by split=> [|i]; rewrite ?Rabs_R1; lra.
move=> /(_ _ _ _ _ (here _) 1 (fun _ _ => 1) (fun _ => 1) no_head peak) just.
have [|q] := just _ (fun _ => 0).
  rewrite !(@sum_here reals (out_side one_pixel)) (@sum_here reals (side one_pixel)) shift1 /=; lra.
by rewrite leavesE Rmult_0_l Rminus_0_r Rabs_R1; lra.
Qed.
Definition mutant_reach := forall n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> reals) (t : taps g) (eps : R)
    (some : (H -> R) -> Prop) (asked : queries g -> Prop),
  (forall phi : H -> R, some phi -> exists2 q, asked q & eps <= leaves P t phi q) ->
  forall (d : nat) (Wval : H -> 'I_(1 * 1) -> 'I_d -> reals)
    (Wout : H -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals),
  some (fun h => merged Wval Wout h ord0 ord0) ->
  exists (X : pixels g -> 'I_(1 * 1) -> reals) q o, [/\ asked q, forall i c, Rabs (X i c) = 1 &
  eps < Rabs (mhsa P Wval Wout b' X q o - torch_conv (one_tap t) b X q o)].
Theorem mutant_reach_refuted : ~ mutant_reach.
Proof.
move=> /(_ _ _ _ (full_attention (0 : reals)) (here _) 1 (fun _ => True) (fun _ => True)) reach.
have [phi _|X [q [o [_ one]]]] := reach _ 0%N (fun _ _ _ => 0) (fun _ _ _ => 0) (fun _ => 0)
  (fun _ => 0) I.
  by exists (here _) => //; rewrite leavesE Rmult_0_r Rminus_0_r Rabs_R1; lra.
rewrite (ord1 o) (@convE reals) /one_tap eqxx mhsaE big1 => [|h _]; last first.
  by apply: big1 => c _; rewrite /merged big_ord0 /= Rmult_0_r.
have := one (here _) ord0; set x := X _ _ => x1.
have -> : 0 + 0 - (x * 1 + 0) = - x by ring.
by rewrite Rabs_Ropp x1; lra.
Qed.
