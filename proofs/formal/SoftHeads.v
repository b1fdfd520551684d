(** * SoftHeads: counterexample (b) of L3p with soft heads

    Nine quadratic heads at the taps of a 3 x 3 kernel, alpha = ln 2, unpadded on 3 x 3 pixels: at
    each query the shifts are combinations of the heads' attention, and no one [Phi] serves all
    queries. The attention and the shifts are products over the two axes, so one axis decides. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L3p.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** One axis: key [k] of a target at [c] weighs 2^-(k - c)^2 over their sum *)
Lemma rsum3 (F : 'I_3 -> R) : \sum_k F k = F ord0 + F (inord 1) + F (inord 2).
Proof.
rewrite !big_ord_recl big_ord0 Rplus_0_r -Rplus_assoc; congr (_ + F _ + F _); apply: val_inj;
  by rewrite /= inordK.
Qed.
Lemma cases3 (P : 'I_3 -> Prop) : P ord0 -> P (inord 1) -> P (inord 2) -> forall k, P k.
Proof.
move=> P0 P1 P2; case=> [[|[|[|//]]] lt].
- by have -> : Ordinal lt = ord0 by apply: val_inj.
- by have -> : Ordinal lt = inord 1 by apply: val_inj; rewrite /= inordK.
- by have -> : Ordinal lt = inord 2 by apply: val_inj; rewrite /= inordK.
Qed.
Definition bump (c k : Z) : R := / powerRZ 2 ((k - c) * (k - c)).
Lemma line_headE (h q k : 'I_3) : let c := (Z.of_nat q + Z.of_nat h - 1)%Z in
  line_head h q k = bump c (Z.of_nat k) / (bump c 0 + bump c 1 + bump c 2).
Proof.
have E c (j : 'I_3) : exp (- ln 2 * IZR (distance (on_line j) (fun _ => c))) = bump c (Z.of_nat j).
  by rewrite /distance big_ord_recl big_ord0 Z.add_0_r exp_ln2.
by rewrite /line_head /quadratic_head /softmax rsum3 !E /= !inordK.
Qed.
(** The coefficients that give key [k] at query [q]. *)
Definition line_table (q k h : nat) : R := match q, k, h with
  | 0, 0, 0 => 289 / 180 | 0, 0, 1 => - (25 / 36) | 0, 0, _ => 4 / 45
  | 0, 1, 0 => - (289 / 72) | 0, 1, 1 => 425 / 72 | 0, 1, _ => - (8 / 9)
  | 0, _, 0 => 289 / 45 | 0, _, 1 => - (100 / 9) | 0, _, _ => 256 / 45
  | 1, 0, 0 => 20 / 9 | 1, 0, 1 => - (16 / 9) | 1, 0, _ => 5 / 9
  | 1, 1, 0 => - (25 / 18) | 1, 1, 1 => 34 / 9 | 1, 1, _ => - (25 / 18)
  | 1, _, 0 => 5 / 9 | 1, _, 1 => - (16 / 9) | 1, _, _ => 20 / 9
  | _, 0, 0 => 256 / 45 | _, 0, 1 => - (100 / 9) | _, 0, _ => 289 / 45
  | _, 1, 0 => - (8 / 9) | _, 1, 1 => 425 / 72 | _, 1, _ => - (289 / 72)
  | _, _, 0 => 4 / 45 | _, _, 1 => - (25 / 36) | _, _, _ => 289 / 180 end.
Definition line_phi (q t h : 'I_3) : R := if (0 < q + t <= 3)%N then line_table q
  (q + t).-1 h else 0.
Lemma line_eachE q t k : line_shift t q k = \sum_h line_phi q t h * line_head h q k.
Proof.
rewrite rsum3 !line_headE /line_shift /line_phi /bump; move: q t k.
by apply: cases3; apply: cases3; apply: cases3; rewrite /= ?inordK //=; field.
Qed.
Lemma line_joint : ~ exists phi : 'I_3 -> R, forall q k, line_shift ord0 q k
  = \sum_h phi h * line_head h q k.
Proof.
case=> phi E; have := E (inord 1) ord0; have := E ord0 (inord 2); have := E ord0 (inord 1);
  have := E ord0 ord0.
rewrite !rsum3 !line_headE /line_shift /bump /= !inordK //=; lra.
Qed.
(** Two axes: the attention and the shifts are products. *)
Lemma sum_squareE (a b : 'I_3 -> R) : \sum_k a k.1 * b k.2 = (\sum_i a i) * (\sum_j b j).
Proof.
rewrite big_distrl /= -(pair_bigA _ (fun i j => a i * b j)) /=; apply: eq_bigr => i _.
by rewrite big_distrr.
Qed.
Lemma RmulACA (a b c d : R) : a * c * (b * d) = a * b * (c * d). Proof. ring. Qed.
Lemma square_headE h q k : square_head h q k = line_head h.1 q.1 k.1 * line_head h.2 q.2 k.2.
Proof.
rewrite /square_head /line_head /quadratic_head /softmax.
set A := fun j : 'I_3 => exp
  (- ln 2 * IZR (distance (on_line j) (fun=> (Z.of_nat q.1 + Z.of_nat h.1 - 1)%Z))).
set B := fun j : 'I_3 => exp
  (- ln 2 * IZR (distance (on_line j) (fun=> (Z.of_nat q.2 + Z.of_nat h.2 - 1)%Z))).
have E j : exp
  (- ln 2 * IZR (distance (on_square j) (fun a => (Z.of_nat (if a == ord0 then q.1 else q.2)
    + Z.of_nat (if a == ord0 then h.1 else h.2) - 1)%Z))) = A j.1 * B j.2.
  rewrite /A /B -exp_plus /distance !big_ord_recl !big_ord0 /on_square /on_line /= !Z.add_0_r
    plus_IZR; congr exp; ring.
rewrite E (eq_bigr (fun j => A j.1 * B j.2)) => [|j _]; last exact: E.
rewrite sum_squareE -/(A k.1) -/(B k.2).
have a0 : 0 < \sum_j A j by apply: (rsum_gt0 ord0) => j; exact: exp_pos.
have b0 : 0 < \sum_j B j by apply: (rsum_gt0 ord0) => j; exact: exp_pos.
change (A k.1 * B k.2 / ((\sum_j A j) * \sum_j B j) = A k.1 / (\sum_j A j) * (B k.2 / \sum_j B j)
  :> R); field; lra.
Qed.
Theorem soft_heads : L3p_b_soft.
Proof.
split=> [q|[Phi joint]].
  exists (fun t h => line_phi q.1 t.1 h.1 * line_phi q.2 t.2 h.2) => t k.
  rewrite /square_shift !line_eachE -sum_squareE; apply: eq_bigr => h _; rewrite square_headE /=;
    exact: RmulACA.
apply: line_joint; exists (fun i => \sum_j Phi (ord0, inord 1) (i, j)) => q k.
have one h i : \sum_j line_head h i j = 1 := softmax_sum1 _ ord0.
transitivity (\sum_j square_shift (ord0, inord 1) (q, ord0) (k, j)).
  rewrite rsum3 /square_shift /=.
  have -> : line_shift (inord 1) ord0 ord0 = 1 by rewrite /line_shift /= !inordK.
  have -> : line_shift (inord 1) ord0 (inord 1) = 0 by rewrite /line_shift /= !inordK.
  have -> : line_shift (inord 1) ord0 (inord 2) = 0 by rewrite /line_shift /= !inordK.
  by rewrite Rmult_1_r !Rmult_0_r !Rplus_0_r.
under eq_bigr do rewrite joint; rewrite exchange_big /=.
transitivity (\sum_h Phi (ord0, inord 1) h * line_head h.1 q k).
  by apply: eq_bigr => h _; under eq_bigr do rewrite square_headE /=;
    rewrite -!big_distrr /= one Rmult_1_r.
transitivity (\sum_i \sum_j Phi (ord0, inord 1) (i, j) * line_head i q k).
  by rewrite pair_bigA /=; apply: eq_bigr => -[i j] _.
by apply: eq_bigr => i _; rewrite big_distrl.
Qed.
