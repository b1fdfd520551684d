(** * SOFT: instances and mutants of the theorems on axes, and of tokens read *)
From Coq Require Import ZArith Reals Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require L2c.
From C2A Require Import Statements Sums L1 FLOAT SOFT KEYS AXES CutLayers ExactCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Scores of one axis, in exact arithmetic and in integers; an order that leaves the axis out *)
Definition axis_only : order 'I_1 := Product ord0.
Lemma axis_once (w x : 'I_1 -> R) : each_once w x 0 axis_only.
Proof. by split=> // -[i|] //; rewrite (ord1 i) inE eqxx. Qed.
Theorem instance_scores : Rabs (evaluate exact exact id (fun _ => 1)
  (fun a : 'I_1 => axis_score exact 3 (/ 2) 1) 0 axis_only - - 3 * ((1 - / 2) * (1 - / 2))) <= 0.
Proof.
have none : INR 1 * roundoff exact < 1 by rewrite /= Rmult_0_r; lra.
have three : 0 <= 3 by lra.
have := @AXES.scores exact 1%N axis_only 3 (fun _ => / 2) (fun _ => 1) exact_sound erefl three
  (fun _ => conj I I) none (axis_once _ _) erefl isT.
rewrite /score_error /score_lost /= gamma0 !big_ord_recl !big_ord0 => le.
by move: le; rewrite Rplus_0_r => le; apply: Rle_trans le _; right; ring.
Qed.
Definition mutant_scores := forall A n (t : order 'I_n) (alpha : R) (f z : 'I_n -> R), sound A ->
  sum_loss A = 0 -> 0 <= alpha ->
  (forall a, representable A (z a) /\ representable A (- f a)) -> INR n * roundoff A < 1 ->
  let term a := axis_score A alpha (f a) (z a) in
  stored_in_all t = 0%N -> None \notin summands t ->
  let distance := \sum_a (z a - f a) * (z a - f a) in
  Rabs (evaluate A A id (fun _ => 1) term 0 t - - alpha * distance)
  <= score_error n (roundoff A) * (alpha * distance) + score_lost n (roundoff A) alpha (loss A).
Theorem mutant_scores_refuted : ~ mutant_scores.
Proof.
have none : INR 1 * roundoff exact < 1 by rewrite /= Rmult_0_r; lra.
move=> /(_ exact 1%N (Zero _) 1 (fun _ => 0) (fun _ => 1) exact_sound erefl Rle_0_1
  (fun _ => conj I I) none erefl isT).
rewrite /score_error /score_lost /= gamma0 !big_ord_recl !big_ord0.
by rewrite /Rabs; case: Rcase_abs => ?; lra.
Qed.
Lemma one_axis_small : INR 1 * roundoff (gradual 0 2) < 1.
Proof. by change (1 * / 4 < 1); lra. Qed.
Theorem instance_integer_scores : Rabs (evaluate (gradual 0 2) (gradual 0 2) id (fun _ => 1)
  (fun a : 'I_1 => axis_score (gradual 0 2) 1 (IZR 0) (IZR 2)) 0 axis_only - - 1 * 4) <= 10 / 3.
Proof.
have p1 : (1 < 2)%Z by []. have e0 : (0 <= 0)%Z by [].
have small (a : 'I_1) : (Z.abs (2 - 0) * Z.abs (2 - 0) <= 2 ^ 2)%Z by [].
have := @integer_scores 0%Z 2%Z p1 e0 1%N axis_only 1 (fun _ => 0%Z) (fun _ => 2%Z)
  (@small_integer 1 ltac:(lia)) Rle_0_1 small one_axis_small (axis_once _ _) erefl isT.
rewrite big_ord_recl big_ord0 => le; apply: Rle_trans le _; right.
rewrite /integer_error /gamma; change (roundoff (gradual 0 2)) with (/ 4).
by change (loss (gradual 0 2)) with (/ 2); rewrite /=; field.
Qed.
Definition mutant_integers := forall emin p : Z, (1 < p)%Z -> (emin <= 0)%Z ->
  let A := gradual emin p in
  forall n (t : order 'I_n) (alpha : R) (f z : 'I_n -> Z), in_format emin p alpha -> 0 <= alpha ->
  (forall a, Z.abs (z a - f a) * Z.abs (z a - f a) <= 2 ^ p)%Z -> INR n * roundoff A < 1 ->
  let term a := axis_score A alpha (IZR (f a)) (IZR (z a)) in
  stored_in_all t = 0%N -> None \notin summands t ->
  let d := IZR (\big[Z.add/0%Z]_a ((z a - f a) * (z a - f a))%Z) in
  Rabs (evaluate A A id (fun _ => 1) term 0 t - - alpha * d)
  <= integer_error n (roundoff A) * (alpha * d) + (1 + gamma n (roundoff A)) * (INR n * loss A).
Theorem mutant_integers_refuted : ~ mutant_integers.
Proof.
have p1 : (1 < 2)%Z by []. have e0 : (0 <= 0)%Z by [].
have small (a : 'I_1) : (Z.abs (2 - 0) * Z.abs (2 - 0) <= 2 ^ 2)%Z by [].
move=> /(_ 0%Z 2%Z p1 e0 1%N (Zero _) 1 (fun _ => 0%Z) (fun _ => 2%Z)
  (@small_integer 1 ltac:(lia)) Rle_0_1 small one_axis_small erefl isT).
rewrite big_ord_recl big_ord0 /integer_error /gamma; change (roundoff (gradual 0 2)) with (/ 4).
change (loss (gradual 0 2)) with (/ 2); rewrite /= Rabs_pos_eq; lra.
Qed.
(** ** Mixing over no axes, which is the image; of an image that is another one *)
Theorem instance_axes (X : box (fun _ : 'I_0 => 0%N) -> R) q : (forall k, Rabs (X k) <= 7) ->
  Rabs (X q - \big[Rplus/0]_k (softmax (fun _ => \big[Rplus/0]_(a < 0) 0) k * X k)) <= 0.
Proof.
move=> small; exact: (@axes 0%N _ (fun _ _ => 0) (fun _ _ => 0) (fun _ => predT) X (fun _ => X)
  (fun _ => plain) (fun _ _ => Zero _) (fun _ => 0%N) (fun _ => 0) (fun _ => 0) 7 small (frefl _)
  (fun a => False_ind _ (notF (ltn_ord a))) (fun a => False_ind _ (notF (ltn_ord a))) q).
Qed.
