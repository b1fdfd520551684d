(** * L1: instances and mutants of its other theorems *)
From Coq Require Import ZArith Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require TapHeads.
From C2A Require Import Statements Sums L1 OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(** ** Instances: the three pixels of L1, and one pixel *)
Theorem instance_total (t : taps (small 2)) : exists! k, reads (@small_query 2 1 isT) t k.
Proof. exact: total (@small_fits 2 isT) _ t. Qed.
Theorem instance_any (Z : keys one_pixel -> 'I_(1 * 1) -> integers) q :
  mhsa (full_attention (1%Z : integers)) (times (7%Z : integers)) (@output integers)
    (bias (5%Z : integers)) Z q ord0 = (Z (here _) ord0 * 7 + 5)%Z.
Proof.
have := any_map one_pixel_fits (bias (5%Z : integers)) (same_bijective _) (@attention_hard integers)
  (@merged_times integers 7%Z) Z q ord0 => ->.
by rewrite conv_of_keysE.
Qed.
Theorem instance_zero_padding :
  conv_of_keys (@small_weight 1 1 10) small_bias (zero_pad (@small_image 1)) (@small_query 1 0 isT)
    ord0 = 15%Z.
Proof.
rewrite (zero_padding (@small_fits 1 isT)).
by rewrite small_valueE !ffunE.
Qed.
(** One more pixel in front, in a circle. *)
Theorem instance_modes (k : keys (small 1)) : exists! i, source wrapped (g := small 1) k i.
Proof.
have wraps (a : 'I_1) : may_pad wrapped 3 1 0 by split=> //; right; right.
by have [one _] := padding_modes integers (@small_fits 1 isT) wraps; exact: one.
Qed.
(** One pixel of value 1 and two outputs: the transposed convolution gives the taps themselves. *)
Section Transposed.
Variables (S : numbers) (x y : S).
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Let two (_ : 'I_1) := 2. Let one (_ : 'I_1) := 1%N. Let zero (_ : 'I_1) := 0%N.
Let g := stuffed_grid two two one.
Let sizes (a : 'I_1) : [/\ 0 < two a, 0 < two a & 0 < one a]%N. Proof. by []. Qed.
Definition up_weight (c : 'I_(1 * 1)) (o : nat) (t : box two) : S :=
  if t ord0 == 0%N :> nat then x else y.
Definition ones (i : box one) (c : 'I_(1 * 1)) : S := 1.
Lemma upE (q : box two) :
  torch_conv_transpose one one zero up_weight (bias (0 : S)) ones q ord0 = up_weight ord0 0 q.
Proof.
rewrite /torch_conv_transpose (bigD1 q) // [X in _ + X + _]sum0 => [|t ne]; last first.
  apply: sum0 => c _; rewrite big_pred0 => [|i]; first by ring.
  apply/negP => /forallP /(_ ord0); rewrite /one /zero !muln1 addn0.
  have := ltn_ord (i ord0); rewrite {2}/one; case: (i ord0 : nat) => // _; rewrite add0n => /eqP E.
  by case/eqP: ne; apply/ffunP => a; rewrite (ord1 a); apply: val_inj.
rewrite big_mkcond sum_one_channel /=.
have -> : \sum_(i : box one | adds one one zero i q q) ones i ord0 = 1.
  rewrite (@sum_line S 1 (fun i => adds one one zero i q q)) big_mkcond big_ord_recl big_ord0.
  by rewrite /adds all_axesE ffunE /one /zero !muln1 addn0 /= add0n eqxx /ones; ring.
by rewrite /bias /up_weight /=; ring.
Qed.
Variable flip : box two -> box two.
Definition up_heads (h : taps g) (q : queries g) (k : keys g) : S := if reads q h k then 1 else 0.
Definition up_values (h : taps g) (c : 'I_(1 * 1)) (e : unit) : S := up_weight c 0 (flip h).
Definition up_outputs (h : taps g) (e : unit) (o : 'I_(1 * 1)) : S := 1.
Lemma up_merged h c o : merged up_values up_outputs h c o
  = if c %/ 1 == o %/ 1 then up_weight c (o %% 1) (flip h) else 0.
Proof.
by rewrite /merged sum_unitE (ord1 c) (ord1 o) /up_values /up_outputs /up_weight /=; ring.
Qed.
End Transposed.
Section Integers.
Let two (_ : 'I_1) := 2. Let one (_ : 'I_1) := 1%N. Let zero (_ : 'I_1) := 0%N.
Let sizes (a : 'I_1) : [/\ 0 < two a, 0 < two a & 0 < one a]. Proof. by []. Qed.
Let zeros : 'I_(1 * 1) -> integers := bias (0%Z : integers).
Theorem instance_transposed (q : box two) :
  exists q' : queries (stuffed_grid two two one), mhsa (@up_heads integers)
    (up_values (1%Z : integers) (10%Z : integers) (@flipped 1 two)) (@up_outputs integers) zeros
    (@stuff 1 one two two one one zero integers _ (@ones integers)) q' ord0
  = if q ord0 == 0 :> nat then 1%Z else 10%Z.
Proof.
have [_ [same [[back sameK backK] _ says]]] :=
  @transposed integers 1 one two two one one zero sizes.
exists (back q); have := says 1 1 1 _ _ id (@up_heads integers) _ _ _ zeros (same_bijective _)
  (fun _ _ _ => erefl) (up_merged (1%Z : integers) (10%Z : integers) (@flipped 1 two))
  (@ones integers) (back q) ord0 => ->.
by rewrite backK upE.
Qed.

(** ** Mutants: heads in the paper's order, behind any tokens; keys outside that show the border; a
    transposed convolution whose taps are not flipped *)
Definition mutant_any := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard (fun h => reversed (f h)) P ->
  (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall Z q o, mhsa P Wval Wout b Z q o = conv_of_keys weight b Z q o.
Theorem mutant_any_refuted : ~ mutant_any.
Proof.
move=> any; apply: mutant_refuted => S n g ok G ci co H D f P Wval Wout weight b fb hd E X q o.
by rewrite (any _ _ _ ok _ _ _ _ _ _ _ _ _ _ b fb hd E) (zero_padding ok).
Qed.
Definition mutant_border := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S)
    (x : S) q o,
  conv_of_keys weight b (fun _ (c : 'I_(G * ci)) => x) q o
  = @torch_conv n g S G ci co weight b (fun _ _ => x) q o.
Theorem mutant_border_refuted : ~ mutant_border.
Proof.
pose g : geometry 1 := Geometry (fun _ => 1) (fun _ => 1) (fun _ => 1) (fun _ => 1) (fun _ => 1)
  (fun _ => 0).
have ok : fits g by [].
pose q : queries g := [ffun _ => ord0].
move=> /(_ integers 1 g ok 1 1 1 (fun _ _ _ => 1%Z) (fun _ => 0%Z) 1%Z q ord0).
rewrite (TapHeads.conv_of_keys_tapE ok) /TapHeads.applied (@sum_line integers 1 xpredT) /tap.
rewrite !big_ord_recl !big_ord0 /= /torch_conv big1 => [|t _]; first by [].
apply: big1 => c _; rewrite big_pred0 => [|i]; first by [].
apply/negP => /forallP /(_ ord0); rewrite ffunE /=.
by have := ltn_ord (t ord0); case: (t ord0 : nat).
Qed.
Definition mutant_unflipped := forall (S : numbers) n
  (side out kernel stride dilation padding : 'I_n -> nat),
  (forall a, [/\ 0 < out a, 0 < kernel a & 0 < dilation a]) ->
  forall same : queries (stuffed_grid out kernel dilation) -> box out,
  (forall q a, same q a = q a :> nat) ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps (stuffed_grid out kernel dilation))
    (P : H -> queries _ -> keys _ -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * ci) -> nat -> box kernel -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard f P ->
  (forall h c o, merged Wval Wout h c o = if c %/ ci == o %/ co then weight c (o %% co) (f h)
    else Statements.zero) ->
  forall X q o, mhsa P Wval Wout b (@stuff n side out kernel stride dilation padding S _ X) q o
    = torch_conv_transpose stride dilation padding weight b X (same q) o.
Theorem mutant_unflipped_refuted : ~ mutant_unflipped.
Proof.
have [_ [same [[back sameK backK] place says]]] :=
  @transposed integers 1 one two two one one zero sizes.
pose turned := up_weight (10%Z : integers) (1%Z : integers).
have E h c o : merged (up_values (1%Z : integers) (10%Z : integers) (@flipped 1 two))
    (@up_outputs integers) h c o
    = if c %/ 1 == o %/ 1 then turned c (o %% 1) h else Statements.zero.
  rewrite up_merged /turned /up_weight /flipped ffunE /=; case: ifP => // _.
  by case: (h ord0) => [[|[|//]] ?].
pose q : box two := [ffun _ => ord0].
move=> /(_ integers 1 one two two one one zero sizes same place 1 1 1 _ _ id
  (@up_heads integers) _ _ turned zeros (same_bijective _) (fun _ _ _ => erefl) E
  (@ones integers) (back q) ord0).
have := says 1 1 1 _ _ id (@up_heads integers) _ _ _ zeros (same_bijective _)
  (fun _ _ _ => erefl) (up_merged (1%Z : integers) (10%Z : integers) (@flipped 1 two))
  (@ones integers) (back q) ord0 => ->.
by rewrite backK /turned !upE /up_weight ffunE.
Qed.
End Integers.
