(** * L3p, PAD, HEADS: mutants of layers at the border of an image *)
From Coq Require Import ZArith Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require PAD TapHeads.
From C2A Require Import Statements Sums L1 OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(** An image whose taps all see pixels *)
Definition mutant_inside := forall (S : numbers) n (g : geometry n), fits g ->
  (one : S) <> zero -> (exists q : queries g, forall t, exists i, sees q t i) ->
  only_each (@replicate n g S) (@shift S n g).
Theorem mutant_inside_refuted : ~ mutant_inside.
Proof.
move=> inside; have all : exists q : queries one_pixel, forall t, exists i, sees q t i.
  by exists (here _) => t; exists (here _); exact: all_see.
have [_] := inside integers 0 one_pixel one_pixel_fits (Z.neq_succ_diag_l 0) all; apply.
exists (fun t h => 1%Z) => t q i; rewrite (@sum_here integers (kernel one_pixel)).
rewrite /shift all_see /replicate; case: ifP => // /negP []; apply/forallP; by case.
Qed.
(** Heads that read the pixel nearest to a target outside, and zeros there. *)
Definition mutant_zeros := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> pixels g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> read_nearest f P -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o)
  ->
  forall X q o, mhsa P Wval Wout b X q o = torch_conv weight b X q o.
Theorem mutant_zeros_refuted : ~ mutant_zeros.
Proof.
move=> zeros; pose g : geometry 1 := Geometry (fun _ => 1) (fun _ => 1) (fun _ => 1) (fun _ => 1)
  (fun _ => 1) (fun _ => 0).
have ok : fits g by [].
pose times (_ : taps g) (_ : 'I_(1 * 1)) (_ : unit) : integers := 1%Z.
pose output (_ : taps g) (_ : unit) (_ : 'I_(1 * 1)) : integers := 1%Z.
pose weight (_ : 'I_(1 * 1)) (_ : nat) (_ : taps g) : integers := 1%Z.
pose none (_ : 'I_(1 * 1)) : integers := 0%Z.
pose X (_ : pixels g) (_ : 'I_(1 * 1)) : integers := 1%Z.
have merged1 h c o : merged times output h c o = tap weight (id h) c o.
  by rewrite /merged sum_unitE /tap (ord1 c) (ord1 o).
pose q : queries g := [ffun _ => ord0].
have nearest : read_nearest id (fun (_ : taps g) _ (_ : pixels g) => 1%Z : integers).
  move=> h q' i; rewrite ifT //; apply/forallP => j.
  suff -> : i = j by apply/Z.leb_le/Z.le_refl.
  by apply/ffunP => a; rewrite (ord1 (i a)) (ord1 (j a)).
have := zeros _ _ _ ok _ _ _ _ _ id _ times output weight none (same_bijective _) nearest merged1 X
  q ord0.
have -> : torch_conv weight none X q ord0 = 0%Z.
  rewrite /torch_conv big1 => [|t _]; first by [].
  apply: big1 => c _; rewrite big_pred0 => [|i]; first by [].
  apply/negP => /forallP /(_ ord0); rewrite ffunE /=.
  by have := ltn_ord (t ord0); case: (t ord0 : nat).
rewrite mhsaE (@sum_line integers 1 xpredT) !big_ord_recl !big_ord0 merged1.
by rewrite (@sum_line integers 1 xpredT) !big_ord_recl !big_ord0 /tap /weight /none /X.
Qed.
(** Crops of strided outputs. *)
Definition mutant_stride := forall (S : numbers) n (g : geometry n), fits g ->
  forall front behind (q : queries g), exists q1 : queries (more_padding g front behind),
  (forall a, q1 a = (q a + front a)%N :> nat) /\
  forall G ci co (weight : 'I_(G * co) -> nat -> taps g -> S) b
    (X : pixels g -> 'I_(G * ci) -> S) o,
  torch_conv weight b X q o
    = @torch_conv n (more_padding g front behind) S G ci co weight b X q1 o.
Theorem mutant_stride_refuted : ~ mutant_stride.
Proof.
move=> /(_ integers _ _ (@small_fits 2 isT) (fun _ => 0) (fun _ => 0) (@small_query 2 1 isT)).
move=> [q1 [place /(_ 1 1 1 (@small_weight 2 1 10) small_bias (@small_image 2) ord0)]].
rewrite small_valueE !ffunE => E; have : 37%Z = small_output (q1 : queries (small 1)) by exact: E.
rewrite /small_output small_valueE; have := place ord0; rewrite !ffunE /= => ->.
by [].
Qed.
(** Heads that weigh any keys. *)
Definition mutant_any_heads := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (B : H -> taps g -> S) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b b' : 'I_(G * co) -> S),
  (forall Z q o, mhsa P Wval Wout b' Z q o = conv_of_keys weight b Z q o) <->
  (forall t c o, tap weight t c o = (\sum_h B h t * merged Wval Wout h c o)%num) /\ b' =1 b.
Theorem mutant_any_heads_refuted : ~ mutant_any_heads.
Proof.
move=> /(_ integers _ _ one_pixel_fits 1 1 1 _ _ (fun _ _ => 1%Z) (full_attention (0%Z : integers))
  (times (1%Z : integers)) (@output integers) (weighs (1%Z : integers)) (bias (0%Z : integers))
  (bias (0%Z : integers))) [_ says].
have := says (conj _ (fun _ => erefl)) (fun _ _ => 1%Z) (here _) ord0.
rewrite layerE conv_of_keysE => absurd.
have : 0%Z = 1%Z by apply: absurd => t c o; rewrite (@sum_here integers (kernel one_pixel))
  merged_times (hereE t); exact/esym/mul1l.
by [].
Qed.
