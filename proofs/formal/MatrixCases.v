(** * T1p, AND, HEADS: instances and mutants of their other theorems on matrices *)
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require AND HEADS TAPS.
From C2A Require Import Statements Sums L1 T1p OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Matrices. Local Open Scope ring_scope.

(** ** T1p: one head of dimension 1, one tap of rank 1; one channel of two *)
Theorem T1p_instance : exists (Wval : unit -> 'I_1 -> 'I_1 -> of_ring rat_fieldType)
    (Wout : unit -> 'I_1 -> 'I_1 -> of_ring rat_fieldType) (b' : 'I_1 -> of_ring rat_fieldType),
  forall (X : unit -> 'I_1 -> of_ring rat_fieldType) q o, mhsa map1 Wval Wout b' X q o
    = \sum_h \sum_c (\sum_k map1 h q k * X k c) * (1%:M : 'M[rat]_1) c o + (5%:R : rat).
Proof.
have [_ exist] := independent_maps map1_independent 1%N (fun _ => 1%:M : 'M[rat]_1) (fun _ => 5%:R).
by apply: exist => h; exact: rank_leq_row.
Qed.
Theorem T1p_instance_convolution (d : nat) :
  (exists (Wval : taps one_pixel -> 'I_(1 * 1) -> 'I_d -> of_ring rat_fieldType)
    (Wout : taps one_pixel -> 'I_d -> 'I_(1 * 1) -> of_ring rat_fieldType) b',
   forall X q o, mhsa (full_attention (one : of_ring rat_fieldType)) Wval Wout b' (zero_pad X) q o
     = torch_conv (weighs (one : of_ring rat_fieldType)) (bias zero) X q o)
  <-> forall t : taps one_pixel, (\rank (\matrix_(c < 1 * 1, o < 1 * 1)
    (tap (weighs (one : of_ring rat_fieldType)) t c o : rat)) <= d)%N.
Proof.
have seen (t : taps one_pixel) : exists q i, sees (g := one_pixel) q t i.
  by exists (here _), (here _); exact: all_see.
exact: (@convolution rat_fieldType _ _ one_pixel_fits 1 1 1 d _ _ _ _ _ (same_bijective _)
  (@attention_hard _) seen)%N.
Qed.
Theorem T1p_instance_exists (x : rat) :
  exists (Wval : taps one_pixel -> 'I_(1 * 1) -> 'I_1 -> of_ring rat_fieldType)
    (Wout : taps one_pixel -> 'I_1 -> 'I_(1 * 1) -> of_ring rat_fieldType),
  mhsa (full_attention (one : of_ring rat_fieldType)) Wval Wout (bias zero)
    (zero_pad (fun _ _ => x : of_ring rat_fieldType)) (here _) ord0 = x.
Proof.
have [|Wval [Wout same]] := @matrices_exist rat_fieldType _ _ one_pixel_fits 1%N 1%N 1%N 1%N _ _ _
  (weighs (one : of_ring rat_fieldType)) (bias zero) (same_bijective _) (@attention_hard _).
  by move=> t; exact: rank_leq_row.
exists Wval, Wout; rewrite same convE /weighs /bias /=.
by rewrite mulr1 addr0.
Qed.
Theorem T1p_instance_channels (W : 'M[rat]_(3, minn 1 2)) :
  exists (V : 'M[rat]_(3, 1)) (U : 'M[rat]_(1, 2)),
  forall c o, (V *m U) c (widen_ord (geq_minr 1 2) o) = W c o.
Proof.
have [_ give] := channels rat_fieldType 3%N 2%N 1%N.
by apply: give => x y /(congr1 val) E; exact: val_inj.
Qed.
(** Mutants: a tap that sees no pixel; any channels; a rank below the dimension. *)
Definition T1p_mutant_unseen := forall (F : fieldType) n (g : geometry n), fits g ->
  forall (G ci co d : nat) (H : finType) (f : H -> taps g)
    (P : H -> queries g -> keys g -> of_ring F)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b : 'I_(G * co) -> of_ring F),
  bijective f -> hard f P ->
  (exists (Wval : H -> 'I_(G * ci) -> 'I_d -> of_ring F)
    (Wout : H -> 'I_d -> 'I_(G * co) -> of_ring F) (b' : 'I_(G * co) -> of_ring F),
     forall X q o, mhsa P Wval Wout b' (zero_pad X) q o = torch_conv weight b X q o)
  <-> (forall t, \rank (\matrix_(c < G * ci, o < G * co) (tap weight t c o : F)) <= d)%N.
Theorem T1p_mutant_unseen_refuted : ~ T1p_mutant_unseen.
Proof.
pose g : geometry 1 := Geometry (fun _ => 1%N) (fun _ => 2%N) (fun _ => 1%N) (fun _ => 1%N)
  (fun _ => 0%N) (fun _ => 1%N); have ok : fits g by [].
pose S := of_ring rat_fieldType.
pose P (h : taps g) q k : S := if reads q h k then one else zero.
pose weight (_ : 'I_(1 * 1)) (_ : nat) (t : taps g) : S :=
  if t ord0 == 0%N :> nat then zero else one.
move=> /(_ rat_fieldType 1%N g ok 1%N 1%N 1%N 0%N _ id P weight (fun _ => zero) (same_bijective _)
  (fun h q k => erefl)) [wide _].
have /wide /(_ (line (ord_max : 'I_2))) : exists (Wval : taps g -> 'I_(1 * 1) -> 'I_0 -> S)
    (Wout : taps g -> 'I_0 -> 'I_(1 * 1) -> S) (b' : 'I_(1 * 1) -> S), forall X q o,
    mhsa P Wval Wout b' (zero_pad X) q o = torch_conv weight (fun _ => zero) X q o.
  exists (fun _ _ _ => zero), (fun _ _ _ => zero), (fun _ => zero) => X q o.
  rewrite /mhsa /torch_conv big1 => [|h _]; last by rewrite big_ord0.
  rewrite big1 // => t _; apply: big1 => c _; rewrite /weight; case: ifP => [_|/eqP t1].
    exact: (@Sums.mul0r S).
  rewrite big_pred0 => [|i]; first exact: (@Sums.mul0l S).
  apply/negP => /forallP /(_ ord0); have i0 : i ord0 = 0%N :> nat.
    by apply/eqP; rewrite -leqn0 -ltnS; exact: ltn_ord.
  by rewrite /= !muln1 i0 eq_sym addn_eq0 => /andP [_ /eqP].
rewrite leqn0 mxrank_eq0 => /eqP /matrixP /(_ ord0 ord0); rewrite !mxE /tap /weight /line ffunE /=.
by move/eqP; rewrite oner_eq0.
Qed.
Definition T1p_mutant_exists := exist_if (fun r d => r <= d.+1)%N.
Theorem T1p_mutant_exists_refuted : ~ T1p_mutant_exists.
Proof.
move=> says.
have [|Wval [Wout same]] := says rat_fieldType _ _ one_pixel_fits 1%N 1%N 1%N 0%N _ _ _
  (weighs (one : of_ring rat_fieldType)) (bias zero) (same_bijective _) (@attention_hard _).
  by move=> t; exact: rank_leq_row.
have := same (fun _ _ => one) (here _) ord0; rewrite convE /weighs /bias /= mulr1 addr0.
rewrite /mhsa big1 => [|h _]; last by rewrite big_ord0.
by rewrite /= addr0 => /eqP; rewrite eq_sym oner_eq0.
Qed.
Definition T1p_mutant_channels := forall (F : fieldType) (m n d : nat) (W : 'M[F]_(m, n)),
  exists (V : 'M[F]_(m, d)) (U : 'M[F]_(d, n)), V *m U = W.
Theorem T1p_mutant_channels_refuted : ~ T1p_mutant_channels.
Proof.
move=> /(_ rat_fieldType 1%N 1%N 0%N 1%:M) [V [U E]].
have [/(_ _ _ _ _ V U)] := rank_of_a_head.
by rewrite E mxrank1.
Qed.
Definition T1p_mutant_rank := forall (F : fieldType) (m n d : nat) (V : 'M[F]_(m, d))
  (U : 'M[F]_(d, n)), (\rank (V *m U) < d)%N.
Theorem T1p_mutant_rank_refuted : ~ T1p_mutant_rank.
Proof. by move=> /(_ rat_fieldType 1%N 1%N 1%N 1%:M 1%:M); rewrite mulmx1 mxrank1. Qed.

(** ** AND: the basis of the plane; and one vector, which is none *)
Theorem AND_instance (Phi : 'M[rat]_(2, 1)) : exists! Theta : 'M[rat]_(2, 1),
  Phi = (1%:M : 'M[rat]_2)^T *m Theta.
Proof. by apply: AND.proposition1; rewrite -?row_free_unit /row_free /row_full mxrank1. Qed.
Definition AND_mutant_free := forall (F : fieldType) (s t k : nat) (a : 'M[F]_(k, s)),
  row_free a -> forall Phi : 'M[F]_(s, t), exists! Theta : 'M[F]_(k, t), Phi = a^T *m Theta.
Theorem AND_mutant_free_refuted : ~ AND_mutant_free.
Proof.
have free : row_free (0 : 'M[rat]_(0, 1)) by rewrite /row_free mxrank0.
move=> /(_ _ _ 1%N _ _ free 1%:M) [Theta [/matrixP /(_ 0 0)]].
by rewrite !mxE big_ord0 eqxx => /eqP; rewrite oner_eq0.
Qed.

(** ** HEADS: one tap and one head; as many heads as the rank, positive everywhere; fewer heads for
    [-1, 0, 1], which are not softmaxes *)
Theorem HEADS_instance (M : 'M[rat]_1) : (\rank ((1%:M : 'M[rat]_1)^T *m M) <= 1)%N.
Proof. by apply: (@HEADS.lower _ _ _ _ 1%:M M). Qed.
Definition HEADS_mutant_rank := forall (F : realFieldType) (t p : nat) (W : 'M[F]_(t.+1, p)),
  exists B : 'M[F]_(\rank W, t.+1), attends B /\ (forall i j, 0 < B i j) /\ exists M,
    W = B^T *m M.
Theorem HEADS_mutant_rank_refuted : ~ HEADS_mutant_rank.
Proof.
move=> /(_ [realFieldType of rat] 2%N 1%N edge) [B [att [_ [M E]]]].
by have [rank1 no] := HEADS.one_head_is_not_enough; move: B att M E; rewrite rank1 => B att M;
  exact: no.
Qed.
Definition HEADS_mutant_any := \rank edge = 1%N /\ forall (B : 'M[rat]_(1, 3)) M, edge <> B^T *m M.
Theorem HEADS_mutant_any_refuted : ~ HEADS_mutant_any.
Proof. by move=> [_ /(_ edge^T 1%:M)]; rewrite trmxK mulmx1. Qed.
