(** * Satisfiable: all premises of FLOAT, and of SOFT, are met together

    No claim of its own: two pixels, one tap, float32, every image of float32 numbers. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 FLOAT SOFT.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.
Definition g1 : geometry 1 := Geometry (fun _ => 2%N) (fun _ => 1%N) (fun _ => 1%N) (fun _ => 1%N)
  (fun _ => 0%N) (fun _ => 0%N).
Lemma g1_fits : fits g1. Proof. by move=> a; split. Qed.
Definition A := gradual (-149) 24.
Lemma soundA : sound A. Proof. exact: gradual_sound. Qed.
Lemma one_format : representable A 1. Proof. by have -> : 1 = power 0 by []; apply: format_power.
Qed.
Lemma zero_format : representable A 0. Proof. exact: format0. Qed.
Lemma keys2 : #|{: keys g1}| = 2%N.
Proof. by rewrite card_dep_ffun foldrE big_map big_enum /= !big_ord_recl big_ord0 !card_ord. Qed.
Lemma taps1 : #|{: taps g1}| = 1%N.
Proof. by rewrite card_dep_ffun foldrE big_map big_enum /= !big_ord_recl big_ord0 !card_ord. Qed.
(* the order that adds all *)
Section All.
Variable I : finType.
Definition all_of : order I := foldr (fun i t => Plus (Product i) t) (Zero I) (enum I).
Lemma all_summandsE : summands all_of = map Some (enum I).
Proof. by rewrite /all_of; elim: (enum I) => //= i s ->. Qed.
Lemma all_stored0 : stored_on_a_way all_of = 0%N /\ stored_in_all all_of = 0%N.
Proof. by rewrite /all_of; elim: (enum I) => //= i s [-> ->]. Qed.
Lemma all_once (w x : I -> R) : each_once w x 0 all_of.
Proof.
rewrite /each_once all_summandsE; split; first by rewrite map_inj_uniq ?enum_uniq // => i j [].
by move=> [i|] //; rewrite mem_map ?mem_enum // => a b [].
Qed.
Lemma all_evaluation (w x : I -> R) : evaluation A A id 0 #|I| #|I| 0 0 w x 0 all_of.
Proof.
have [s1 s2] := all_stored0; split.
  split; [exact: zero_format | exact: all_once | by rewrite all_summandsE size_map cardE |
    by rewrite s1 | by rewrite s2].
split; first by apply: leq_trans (count_size _ _) _; rewrite all_summandsE size_map cardE.
by move=> i; rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; split; exact: Rle_refl.
Qed.
End All.
Lemma u24 : power (- (24)) = / 16777216. Proof. by []. Qed.
Lemma limitsA n : (n <= 2)%N -> limits A A 0 n.
Proof.
move=> n2; have := le_INR n 2 (ltac:(by apply/leP)); have -> : INR 2 = 2 by rewrite /=; ring.
by move=> le; split=> //; try exact: soundA; [exact: Rle_refl | rewrite [roundoff A]u24; lra].
Qed.
Definition w1 : 'I_(1 * 1) -> nat -> taps g1 -> reals := fun _ _ _ => 1.
Definition b1 : 'I_(1 * 1) -> reals := fun _ => 0.
Definition T := [finType of taps g1].
Lemma id_bij : bijective (@id (taps g1)). Proof. by exists id. Qed.
Lemma card_itE : #|{: taps g1 * 'I_(1 * 1)}| = 1%N. Proof. by rewrite card_prod taps1 card_ord. Qed.
Definition e1 (h : taps g1) (q : queries g1) (k : keys g1) : R := if reads q h k then 1 else 0.
Theorem FLOAT_satisfiable (X : pixels g1 -> 'I_(1 * 1) -> reals)
  (fX : forall i c, representable A (X i c)) (q0 : queries g1) (o0 : 'I_(1 * 1)) :
  exists total bound computed convolution : R,
  Rabs (computed - convolution) <= bound /\
    bound = (growth A A 0 1 0 - 1 + (growth A A 0 1 0 - 1)) * total
    + growth A A 0 1 0 * underflow A A 1 1 0 + growth A A 0 1 0 * underflow A A 1 1 0.
Proof.
have p1 : (1 < 24 <= 24)%Z by []. have r1 : (-149 <= -149 <= - 24)%Z by [].
have r2 : (-149 <= - 24)%Z by [].
have fe (h : T) q k : representable A (e1 h q k) by rewrite /e1; case: ifP => _;
  [exact: one_format | exact: zero_format].
have pe (h : T) q k : if reads q h k then e1 h q k = 1 else 0 <= e1 h q k <= power (-149 - 1).
  by rewrite /e1; case: (reads q h k) => //; split; [exact: Rle_refl | exact: Rlt_le (power_gt0 _)].
have n2 : INR #|{: keys g1}| * roundoff A <= / 2.
  by rewrite keys2 [roundoff A]u24; change ((1 + 1) * / 16777216 <= / 2); lra.
have rest (h : T) q : 2 * \big[Rplus/0]_(k | ~~ reads q h k) e1 h q k <= roundoff A.
  rewrite big1 => [|k /negbTE E]; last by rewrite /e1 E.
  by rewrite Rmult_0_r; exact: Rlt_le (power_gt0 _).
have done := @FLOAT.one_hot_layer 1%N g1 g1_fits (-149)%Z 24%Z
  (-149)%Z 24%Z p1 r1 r2 1%N 1%N 1%N T id w1 b1 X id_bij fX
  e1 false (fun _ _ => all_of _) (fun h q => all_once _ _) fe pe n2 rest (fun _ _ _ => all_of _)
    (fun h q c => all_once _ _)
  A A id 0 1%N 1%N 0%N 0%N 1%N 1%N 0%N 0%N (limitsA (isT : 1 <= 2)%N)
    (limitsA (isT : 1 <= 2)%N) q0 o0 (all_of _) (all_of _).
have c1 : #|{: T * 'I_(1 * 1)}| = 1%N := card_itE.
have E (w x : T * 'I_(1 * 1) -> R) : evaluation A A id 0 1 1 0 0 w x 0 (all_of _) by have :=
  all_evaluation w x; rewrite c1.
eexists; eexists; eexists; eexists; split; [exact: done (E _ _) (E _ _) | reflexivity].
Qed.
(* SOFT: a neighbour weighs 2^-30 *)
Definition s1 (h : T) (q : queries g1) (k : keys g1) : R := if reads q h k then 0 else
  - (30 * ln 2).
Definition x1 (h : T) (q : queries g1) (k : keys g1) : R := exp (s1 h q k).
Lemma x1E h q k : x1 h q k = if reads q h k then 1 else power (-30).
Proof.
rewrite /x1 /s1; case: ifP => _; first exact: exp_0.
have -> : 30 * ln 2 = INR 30 * ln 2 by rewrite /=; ring.
by rewrite exp_Ropp -ln_pow ?exp_ln ?pow_IZR; [ | apply: IZR_lt | lra].
Qed.
Definition S1 n := Setting A A id 0 n n 0 0.
Lemma set1 (I : finType) (w x : I -> R) : (#|I| <= 2)%N -> as_set (S1 #|I|) w x 0 (all_of I).
Proof. by move=> le; split; [exact: limitsA | exact: all_evaluation]. Qed.
(** Each premise of SOFT is shown for the layer of two pixels, with every step exact in float32; the
    theorem then gives the bound. *)
Theorem SOFT_satisfiable (X : pixels g1 -> 'I_(1 * 1) -> reals) range
  (bX : forall k c, Rabs (zero_pad X k c) <= range) (q0 : queries g1) (o0 : 'I_(1 * 1)) :
  exists bound computed convolution : R,
  Rabs (computed - convolution) <= bound.
Proof.
have big (h : T) q : exists k, 0 <= s1 h q k.
  exists (key g1_fits q h); have -> : s1 h q (key g1_fits q h) = 0
    by rewrite /s1 (readsE g1_fits) eqxx.
  exact: Rle_refl.
have sm : small_enough A 2 #|{: keys g1}| 0 0.
  rewrite keys2; have I2 : INR 2 = 2 by rewrite /=; ring.
  have G : gamma 2 (roundoff A) = 2 / (16777216 - 2) by rewrite /gamma I2 [roundoff A]u24; field;
    lra.
  split; [lra | lra | rewrite I2 [roundoff A]u24; lra | rewrite G; lra |].
  rewrite /total_lost G I2; have -> : sum_loss A = 0 by [].
  have : loss A <= / 1024 by change (power (-150) <= / 1024); have -> : / 1024 = power (-10) by [];
    apply: Flocq.Core.Raux.bpow_le.
  by move=> l; lra.
have xs (h : T) q : exponentials A predT (s1 h q) (x1 h q) 0 0 0 /\ summed (x1 h q) (all_of _).
  split; last by have [_ s2] := all_stored0 [finType of keys g1]; split;
    [exact: all_once | by rewrite all_summandsE; apply/mapP => -[] | exact: s2].
  split.
  - have [k k0] := big h q; exists (key g1_fits q h) => //.
    have E : s1 h q (key g1_fits q h) = 0 by rewrite /s1 (readsE g1_fits) eqxx.
    by rewrite x1E (readsE g1_fits) eqxx E; split; [exact: Rle_refl | ].
  - move=> k; split; first by rewrite x1E; case: ifP => _;
    [exact: one_format | apply: format_power].
    rewrite x1E; case: ifP => _; first lra.
    by split; [exact: Rlt_le (power_gt0 _) | have -> : 2 = power 1 by [];
      apply: Flocq.Core.Raux.bpow_le].
  - by rewrite big1 => [|k _];
    [rewrite Rmult_0_l; exact: Rle_refl | rewrite /x1 Rminus_eq_0 Rabs_R0].
  - by rewrite big_pred0 //; exact: Rle_refl.
  - by rewrite big_pred0 //; exact: Rle_refl.
have leak (h : T) q k : reads q (id h) k -> 1 - softmax (s1 h q) k <= 1.
  move=> _; have : 0 <= softmax (s1 h q) k by apply: Rlt_le; exact: softmax_gt0.
  by move=> ?; lra.
have le2 : (#|[finType of keys g1]| <= 2)%N by have -> : #|[finType of keys g1]| = 2%N
  by exact: keys2.
have c1 : #|{: T * 'I_(1 * 1)}| = 1%N := card_itE.
have p1 : (1 < 24)%Z by []. have [mA nA] := gradual_laws (-149) p1.
have few (h : T) (q : queries g1) : (#|(predT : pred (keys g1))| <= 2)%N by exact: le2.
have all : (2 <= #|{: keys g1}|)%N by rewrite keys2.
have done := @SOFT.soft_layer 1%N g1 g1_fits 1%N 1%N 1%N T id w1 b1 X id_bij range bX A A
  false
  (And3 soundA mA nA) (And3 soundA mA nA) one_format (fun _ _ => predT) s1 x1
    (fun _ _ => all_of _) 2%N 0 0 0 1 few all sm xs leak
  (S1 #|{: keys g1}|) (fun _ _ _ => all_of _)
  (fun _ _ => or_introl nA) all (fun h q c => set1 _ _ le2)
  (S1 #|{: T * 'I_(1 * 1)}|) (S1 #|{: T * 'I_(1 * 1)}|) q0 o0 (all_of _) (all_of _).
have c2 : (#|{: T * 'I_(1 * 1)}| <= 2)%N by rewrite c1.
by eexists; eexists; eexists; exact: done (set1 _ _ c2) (set1 _ _ c2).
Qed.
