(** * FLOAT, SOFT: instances and mutants of whole layers, of a bias alone *)
From Coq Require Import ZArith Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 OnePixel FLOAT SOFT AXES CutLayers ExactCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Tokens that are what the taps read *)
Theorem instance_tokens (q : queries one_pixel) :
  Rabs (computed plain (fun i => tap unit_weight i.1 i.2 ord0) (fun i => 5) 0 one_product
    - computed plain (fun i => tap unit_weight i.1 i.2 ord0)
        (fun i => seen (pixel_of 5) q i.1 i.2) 0 one_product) <= 0.
Proof.
have small k c : Rabs (zero_pad (pixel_of 5) (k : keys one_pixel) c) <= 5.
  by rewrite paddedE Rabs_pos_eq; lra.
have same (h : taps one_pixel) (q' : queries one_pixel) (c : 'I_(1 * 1)) :
    Rabs (5 - seen (pixel_of 5) q' (id h) c) <= 0.
  by rewrite seenE Rminus_eq_0 Rabs_R0; exact: Rle_refl.
have idb : bijective (id : taps one_pixel -> taps one_pixel) by exists id.
have := @tokens_read 0%N one_pixel one_pixel_fits 1%N 1%N 1%N _ id unit_weight (fun _ => 0)
  (pixel_of 5) idb
  5 0 small (fun _ _ _ => 5) same plain plain q ord0 one_product one_product (one_each _ _)
  (one_each _ _).
by rewrite plain_costs_nothing Rmult_0_r.
Qed.
(** ** A convolution that leaves out its bias, of no channels *)
Section Bias.
Let none (_ : 'I_(1 * 1)) (_ : nat) (_ : taps one_pixel) : reals := 0.
Let one_bias (_ : 'I_(1 * 1)) : reals := 1.
Let dark (_ : pixels one_pixel) (_ : 'I_(1 * 0)) : reals := 0.
Let idb : bijective (id : taps one_pixel -> taps one_pixel). Proof. by exists id. Qed.
Lemma no_channel (H : Type) (i : H * 'I_(1 * 0)) : False. Proof. by case: i => _ []. Qed.
Lemma bias_once (H : finType) (w x : H * 'I_(1 * 0) -> R) : each_once w x 1 (Bias _).
Proof. by split=> // -[i|] //; case: (no_channel i). Qed.
Lemma bias_plain (H : finType) (w x : H * 'I_(1 * 0) -> R) : as_set plain w x 1 (Bias _).
Proof.
split; first exact: exact_limits.
split; first by split=> //; exact: bias_once.
by split=> // i; case: (no_channel i).
Qed.
Definition mutant_tokens := forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals)
    (X : pixels g -> 'I_(G * ci) -> reals), bijective f ->
  forall range e, (forall k c, Rabs (zero_pad X k c) <= range) ->
  forall (token : H -> queries g -> 'I_(G * ci) -> R),
    (forall h q c, Rabs (token h q c - seen X q (f h) c) <= e) ->
  forall first second q o (t : order (taps g * 'I_(G * ci))) (t' : order (H * 'I_(G * ci))),
  as_set second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t' ->
  Rabs (computed second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t'
        - computed first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t)
  <= difference (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs (tap weight t c o))
    (Rabs (b o)) range e first second.
Theorem mutant_tokens_refuted : ~ mutant_tokens.
Proof.
have small k (c : 'I_(1 * 0)) : Rabs (zero_pad dark (k : keys one_pixel) c) <= 0 by case: c.
have same (h : taps one_pixel) (q : queries one_pixel) (c : 'I_(1 * 0)) :
  Rabs (0 - seen dark q (id h) c) <= 0 by case: c.
move=> /(_ _ _ one_pixel_fits 1%N 0%N 1%N _ id none one_bias dark idb 0 0 small (fun _ _ _ => 0)
  same
  plain plain (here _) ord0 (Zero _) (Bias _) (bias_plain _ _)).
by rewrite plain_costs_nothing Rmult_0_r /computed /= Rminus_0_r Rabs_R1; lra.
Qed.
Definition mutant_layer := forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals)
    (X : pixels g -> 'I_(G * ci) -> reals), bijective f ->
  forall range, (forall k c, Rabs (zero_pad X k c) <= range) ->
  forall A T reciprocal, rounds_to_nearest A -> rounds_to_nearest T -> representable A 1 ->
  forall (few : H -> queries g -> pred (keys g)) (s e : H -> queries g -> keys g -> R)
    (over : H -> queries g -> order (keys g)) N D far far' leak,
  (forall h q, #|few h q| <= N)%N -> (N <= #|{: keys g}|)%N ->
    small_enough A N #|{: keys g}| D far ->
  (forall h q, exponentials A (few h q) (s h q) (e h q) D far far' /\ summed (e h q) (over h q)) ->
  (forall h q k, reads q (f h) k -> 1 - softmax (s h q) k <= leak) ->
  let attention h q := computed_softmax A T reciprocal (e h q) (over h q) in
  forall mixing (mix : H -> queries g -> 'I_(G * ci) -> order (keys g)),
  nearest (sums mixing) -> (N <= terms mixing)%N ->
  (forall h q c, as_set mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c)) ->
  let token h q c := computed mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c) in
  forall first second q o (t : order (taps g * 'I_(G * ci))) (t' : order (H * 'I_(G * ci))),
  as_set second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t' ->
  Rabs (computed second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t'
        - computed first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t)
  <= difference (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs (tap weight t c o)) (Rabs (b o)) range
       (2 * leak * range + mixing_bound mixing N (computed_bound A T N #|{: keys g}| D far far')
                             (far_weights T #|{: keys g}| far) range) first second.
Lemma one_key : #|{: keys one_pixel}| = 1%N.
Proof.
by rewrite (eq_card (B := pred1 (here _ : keys one_pixel))) ?card1 // => k; rewrite (hereE k) !inE
  eqxx.
Qed.
Theorem mutant_layer_refuted : ~ mutant_layer.
Proof.
have small k (c : 'I_(1 * 0)) : Rabs (zero_pad dark (k : keys one_pixel) c) <= 0 by case: c.
have few (h : taps one_pixel) (q : queries one_pixel) : (#|(predT : pred (keys one_pixel))| <= 1)%N.
  by rewrite -one_key max_card.
have all : (1 <= #|{: keys one_pixel}|)%N by rewrite one_key.
have enough : small_enough exact 1 #|{: keys one_pixel}| 0 0.
  by rewrite one_key; split; rewrite /total_lost /= ?gamma0; lra.
have sum1 (F : keys one_pixel -> R) : \sum_k F k = F (here _ : keys one_pixel).
  by rewrite (big_pred1 (here _ : keys one_pixel)) // => k; rewrite (hereE k) /= eqxx.
have exps (h : taps one_pixel) (q : queries one_pixel) : exponentials exact predT
    (fun _ : keys one_pixel => 0) (fun _ => 1) 0 0 0 /\
    summed (fun _ => 1) (Product (here _ : keys one_pixel)).
  split.
    split=> [|k|||]; [by exists (here _ : keys one_pixel); split=> //; exact: Rle_refl |
      by split=> //; lra | | by rewrite big_pred0 //; exact: Rle_refl |
      by rewrite big_pred0 //; exact: Rle_refl].
    by rewrite !sum1 exp_0 Rminus_eq_0 Rabs_R0; lra.
  by split=> //; split=> // -[k|] //; rewrite (hereE k) inE eqxx.
have leak (h : taps one_pixel) (q : queries one_pixel) (k : keys one_pixel) : reads q (id h) k ->
    1 - softmax (fun _ : keys one_pixel => 0) k <= 0.
  by move=> _; rewrite /softmax sum1 exp_0; lra.
move=> /(_ _ _ one_pixel_fits 1%N 0%N 1%N _ id none one_bias dark idb 0 small exact exact false
  exact_rounds exact_rounds I (fun _ _ => predT) _ _ _ 1%N 0 0 0 0 few all enough exps leak plain
  (fun _ _ _ => Zero _) exact_nearest (leqnn 1)).
have mixed (h : taps one_pixel) (q : queries one_pixel) (c : 'I_(1 * 0)) : as_set plain
  (computed_softmax exact exact false (fun _ : keys one_pixel => 1) (Product (here _ : keys
    one_pixel)))
  (fun k => zero_pad dark k c) 0 (Zero _) by case: c.
move=> /(_ mixed plain plain (here _) ord0 (Zero _) (Bias _) (bias_plain _ _)).
rewrite plain_costs_nothing /computed /= Rminus_0_r Rabs_R1 big1 => [|t _]; first lra.
by rewrite big1 // => -[].
Qed.
End Bias.
