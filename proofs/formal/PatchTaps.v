(** * PATCH: as many heads as displacements of tokens are necessary

    The lower bound of PATCH over a field: [PATCH_lower] of Statements.v. *)
From Coq Require Import Lia.
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require Import Statements Sums L1 OnePixel TAPS PATCH.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Matrices.

(** The arithmetic of one axis: [x] pixels to the left, and to the right. *)
Lemma leftwards p x y r : 0 < p -> p <= x -> x <= r + p.-1 ->
  [/\ r + p.-1 - x < r.*2.+1, 0 < p, p.-1 < p
    & y + p.-1 + r = 0 + (r + p.-1 - x) + (y + x)].
Proof.
move=> /ltP p0 /leP px /leP far; have L a b : (a < b)%coq_nat -> a < b by move=> /ltP.
by split; [apply: L | exact: L | apply: L | ]; rewrite -?addnn; move: p0 far px;
  rewrite -?subn1 -?plusE -?minusE; lia.
Qed.
Lemma rightwards p x y r : 0 < p -> p <= x -> x <= r + p.-1 ->
  [/\ r + x - p.-1 < r.*2.+1, p.-1 < p, 0 < p & y + x + 0 + r = p.-1 + (r + x - p.-1) + y].
Proof.
move=> /ltP p0 /leP px /leP far; have L a b : (a < b)%coq_nat -> a < b by move=> /ltP.
by split; [apply: L | apply: L | exact: L | ]; rewrite -?addnn; move: p0 far px;
  rewrite -?subn1 -?plusE -?minusE; lia.
Qed.
(** Each displacement of tokens is that of two pixels which one tap connects. *)
Lemma tap_exists r p s : 0 < p -> s < (patch_reach r p).*2.+1 ->
  exists t u v, [/\ t < r.*2.+1, u < p, v < p & s * p + v + r = u + t + patch_reach r p * p].
Proof.
move=> p0; set c := patch_reach r p; have le : c * p <= r + p.-1 := reach_le r p.
rewrite ltnS => s2.
case: (leqP s c) => [sc|cs].
  have [->|lt] : s = c \/ s < c by move: sc; rewrite leq_eqVlt => /orP [/eqP|]; [left | right].
    by exists r, 0, 0; split=> //; rewrite ?ltnS -?addnn ?leq_addl // add0n addn0 addnC.
  have far : (c - s) * p <= r + p.-1 by apply: leq_trans le; rewrite leq_mul2r leq_subr orbT.
  have E : c * p = s * p + (c - s) * p by rewrite -mulnDl subnKC // ltnW.
  have px : p <= (c - s) * p by rewrite leq_pmull // subn_gt0.
  exists (r + p.-1 - (c - s) * p), 0, p.-1; rewrite E.
  exact: leftwards p0 px far.
have far : (s - c) * p <= r + p.-1.
  by apply: leq_trans le; rewrite leq_mul2r leq_subLR addnn s2 orbT.
have E : s * p = c * p + (s - c) * p by rewrite -mulnDl subnKC // ltnW.
have px : p <= (s - c) * p by rewrite leq_pmull // subn_gt0.
exists (r + (s - c) * p - p.-1), p.-1, 0; rewrite E.
exact: rightwards p0 px far.
Qed.

Lemma same_sideE r s : 0 < s -> (r + s + r - 1 * (r.*2.+1 - 1) - 1) %/ 1 + 1 = s.
Proof. by move=> /ltP; rewrite divn1 mul1n -addnn -?plusE -?minusE; lia. Qed.
Lemma same_pixelE p s v r u t c m k : 0 < p -> s * p + v + r = u + t + c * p ->
  (r + (m * p + v) == k * p + u + t) = (c + m == k + s).
Proof.
move=> p0 E; rewrite -[RHS](eqn_pmul2r p0) !mulnDl.
move: (s * p) (m * p) (c * p) (k * p) E => x y z w E.
by apply/eqP/eqP; move: E; rewrite -?plusE; lia.
Qed.
Section Lower.
Variables (F : fieldType) (n : nat) (sides patch radius : 'I_n -> nat).
Hypothesis pos : forall a, (0 < sides a)%N /\ (0 < patch a)%N.
Let g := patched_image sides patch radius.
Let tokens := token_grid sides (fun a => patch_reach (radius a) (patch a)).
Variables (H D : finType) (P : H -> queries tokens -> pixels tokens -> of_ring F).
Hypothesis every : forall weight : 'I_(1 * 1) -> nat -> taps g -> of_ring F,
  exists (Wval : H -> box patch * 'I_(1 * 1) -> D -> of_ring F)
    (Wout : H -> D -> box patch * 'I_(1 * 1) -> of_ring F) (b : box patch * 'I_(1 * 1) -> of_ring
      F),
  forall X (k : queries tokens) (u : box patch) (q : queries g) o,
  (forall a, q a = (k a * patch a + u a)%N :> nat) ->
  mhsa P Wval Wout b (patches X) k (u, o) = torch_conv weight (fun _ => zero) X q o.
Add Ring ring_F : (laws (of_ring F)).
Lemma pixel_lt (m : box sides) (v : box patch) a : m a * patch a + v a < sides a * patch a.
Proof.
apply: leq_trans (_ : (m a).+1 * patch a <= _); first by rewrite mulSn addnC ltn_add2r.
by rewrite leq_mul2r (ltn_ord (m a)) orbT.
Qed.
Definition pixel_of_token (m : box sides) (v : box patch) : pixels g :=
  [ffun a => Ordinal (pixel_lt m v a)].
Lemma in_patchE k v m w :
  in_patch (radius := radius) k v (pixel_of_token m w) = ((k, v) == (m, w)).
Proof.
rewrite xpair_eqE; apply/forallP/andP => [E|[/eqP -> /eqP ->] a]; last by rewrite ffunE.
have both a : m a = k a :> nat /\ w a = v a :> nat.
  have := eqP (E a); rewrite ffunE /= => E'.
  have := edivn_eq (m a) (ltn_ord (w a)); rewrite E' edivn_eq; last exact: ltn_ord (v a).
  by case=> -> ->.
by split; apply/eqP/ffunP => a; apply: val_inj; have [E1 E2] := both a.
Qed.
Lemma query_lt (k : queries tokens) (u : box patch) a :
  k a * patch a + u a < out_side g a.
Proof.
have [s0 p0] := pos a; have kl : k a < sides a.
  by apply: leq_trans (ltn_ord (k a)) _; rewrite [out_side _ _]same_sideE.
have E : out_side g a = sides a * patch a by apply: same_sideE; rewrite muln_gt0 s0 p0.
apply: leq_trans (_ : (k a).+1 * patch a <= _); first by rewrite mulSn addnC ltn_add2r.
by apply: leq_trans (_ : sides a * patch a <= _); [rewrite leq_mul2r kl orbT | rewrite E].
Qed.
(** The convolution with the one tap between two pixels, of an image whose one pixel lies in one
    token: the layer reads that token by its matrix entry, the convolution by the shift. *)
Lemma shift_of_tokens (s : taps tokens) : exists phi : H -> F, forall k m,
  shift (S := of_ring F) s k m = (\sum_h phi h * P h k m)%R.
Proof.
have parts a : exists x : 'I_(radius a).*2.+1 * ('I_(patch a) * 'I_(patch a)),
    s a * patch a + x.2.2 + radius a
    = x.2.1 + x.1 + patch_reach (radius a) (patch a) * patch a :> nat.
  have [_ p0] := pos a; have [t [u [v [tl ul vl E]]]] := tap_exists p0 (ltn_ord (s a)).
  by exists (Ordinal tl, (Ordinal ul, Ordinal vl)).
have [x E] := fin_all_exists parts.
pose t : taps g := [ffun a => (x a).1]; pose u : box patch := [ffun a => (x a).2.1].
pose v : box patch := [ffun a => (x a).2.2].
pose weight (_ : 'I_(1 * 1)) (_ : nat) (t' : taps g) : of_ring F := if t' == t then one else zero.
have [Wval [Wout [b layer]]] := every weight.
exists (fun h => merged Wval Wout h (v, ord0) (u, ord0)) => k m.
pose q : queries g := [ffun a => Ordinal (query_lt k u a)].
have at_q a : q a = (k a * patch a + u a)%N :> nat by rewrite ffunE.
have convE (X : pixels g -> 'I_(1 * 1) -> of_ring F) :
    torch_conv weight (fun _ => zero) X q ord0
    = (\big[@add (of_ring F)/zero]_(i | sees q t i) X i ord0)%num.
  rewrite torch_convE (eq_bigr (fun t' => if t' == t then
      \big[@add (of_ring F)/zero]_(i | sees q t i) X i ord0 else zero)) => [|t' _].
    by rewrite -big_mkcond big_pred1_eq Sums.add0r.
  rewrite (@sum_one_channel (of_ring F)) /tap /weight !div0n eqxx.
  by case: eqP => [->|_]; [exact: (@Sums.mul1r (of_ring F)) | exact: (@Sums.mul0r (of_ring F))].
have bias : b (u, ord0) = zero.
  have := layer (fun _ _ => zero) k u q ord0 at_q; rewrite convE big1 // mhsaE big1 => [|h _].
    by rewrite Sums.add0l.
  apply: big1 => d _; rewrite big1 => [|j _]; first exact: (@Sums.mul0l (of_ring F)).
  by rewrite /patches big1 //; exact: (@Sums.mul0r (of_ring F)).
pose spot (i : pixels g) (_ : 'I_(1 * 1)) : of_ring F :=
  if i == pixel_of_token m v then one else zero.
have := layer spot k u q ord0 at_q; rewrite mhsaE bias Sums.add0r convE.
have spotE j d : patches spot j d = if (j, d.1) == (m, v) then one else zero :> of_ring F.
  rewrite /patches /spot -big_mkcondr /= -in_patchE; case: (boolP (in_patch _ _ _)) => held.
    rewrite (big_pred1 (pixel_of_token m v)) // => i; rewrite /= andbC.
    by case: eqP => // ->.
  by rewrite big_pred0 // => i; apply/andP => -[held' /eqP E']; rewrite -E' held' in held.
have -> : (\big[@add (of_ring F)/zero]_(i | sees q t i) spot i ord0)%num
    = shift (S := of_ring F) s k m.
  rewrite /spot -big_mkcondr /= /shift; have same : sees q t (pixel_of_token m v) = sees k s m.
    apply: eq_forallb => a; have [_ p0] := pos a.
    have Ea : s a * patch a + v a + radius a
      = u a + t a + patch_reach (radius a) (patch a) * patch a by rewrite !ffunE; exact: E.
    by rewrite [pixel_of_token _ _ _]ffunE /= at_q !muln1; exact: same_pixelE p0 Ea.
  rewrite -same; case: (boolP (sees q t _)) => see.
    rewrite (big_pred1 (pixel_of_token m v)) // => i; rewrite /= andbC.
    by case: eqP => // ->.
  by rewrite big_pred0 // => i; apply/andP => -[see' /eqP E']; rewrite -E' see' in see.
move=> <-; apply: eq_bigr => h _.
have rowE d : (\big[@add (of_ring F)/zero]_j (P h k j * patches spot j d))%num
    = if d.1 == v then P h k m else zero.
  rewrite (eq_bigr (fun j => if j == m then (if d.1 == v then P h k m else zero) else zero))
    => [|j _]; first by rewrite -big_mkcond big_pred1_eq.
  rewrite spotE xpair_eqE; case: eqP => [->|_] /=; last exact: (@Sums.mul0r (of_ring F)).
  by case: eqP => _; [exact: (@Sums.mul1r (of_ring F)) | exact: (@Sums.mul0r (of_ring F))].
rewrite (eq_bigr (fun d => if d == (v, ord0) then
    (P h k m * merged Wval Wout h (v, ord0) (u, ord0))%num else zero)) => [|[w c] _].
  by rewrite -big_mkcond big_pred1_eq; exact: (@Sums.mulC (of_ring F)).
rewrite rowE (ord1 c) xpair_eqE eqxx andbT /=; case: eqP => [->|_] //; exact: (@Sums.mul0l (of_ring
  F)).
Qed.
End Lower.

Theorem patch_tokens_need : PATCH_lower.
Proof.
move=> F n sides patch radius pos g tokens seen H D P every.
apply: (spans_need_heads (tokens_fit radius pos) seen).
have [Phi joint] := fin_all_exists (shift_of_tokens pos every).
by exists Phi => t q i; exact: joint.
Qed.

(** ** Instance: a line of two tokens of two pixels and a kernel of three taps: three heads *)
Definition expressed_in_pairs (F : fieldType) (H D : finType)
  (P : H -> queries (pair_tokens 1) -> pixels (pair_tokens 1) -> of_ring F) :=
  forall weight : 'I_(1 * 1) -> nat -> taps (pairs 1) -> of_ring F,
  exists (Wval : H -> pair_place * 'I_(1 * 1) -> D -> of_ring F)
    (Wout : H -> D -> pair_place * 'I_(1 * 1) -> of_ring F) (b : pair_place * 'I_(1 * 1) -> of_ring
      F),
  forall X (k : queries (pair_tokens 1)) (u : pair_place) (q : queries (pairs 1)) o,
  (forall a, q a = (k a * 2 + u a)%N :> nat) ->
  mhsa P Wval Wout b (patches X) k (u, o) = torch_conv weight (fun _ => zero) X q o.
Lemma card_three : #|{: taps (pair_tokens 1)}| = 3.
Proof. by rewrite card_dep_ffun foldrE big_map big_enum /= big_ord_recl big_ord0 card_ord. Qed.
Theorem instance (F : fieldType) (H D : finType)
  (P : H -> queries (pair_tokens 1) -> pixels (pair_tokens 1) -> of_ring F) :
  @expressed_in_pairs F H D P -> (3 <= #|H|)%N.
Proof.
move=> every; rewrite -card_three.
apply: (patch_tokens_need (sides := fun _ => 2) (patch := fun _ => 2) (radius := fun _ => 1) _ _
  every) => [a|t] //.
have lt j : j < 2 -> j < out_side (pair_tokens 1) ord0 by [].
pose at_ j (j2 : j < 2) : queries (pair_tokens 1) := [ffun a => Ordinal (lt j j2)].
pose on j (j2 : j < 2) : pixels (pair_tokens 1) := [ffun a => Ordinal j2].
have t3 := ltn_ord (t ord0).
have [t0|[t1|t2]] : t ord0 = 0 :> nat \/ t ord0 = 1 :> nat \/ t ord0 = 2 :> nat.
  by move: (t ord0) t3 => [[|[|[|j]]] lt3] // _; auto.
- exists (at_ 1 isT), (on 0 isT); rewrite /sees all_axesE !ffunE /= t0 //.
- exists (at_ 0 isT), (on 0 isT); rewrite /sees all_axesE !ffunE /= t1 //.
- exists (at_ 0 isT), (on 1 isT); rewrite /sees all_axesE !ffunE /= t2 //.
Qed.

(** ** Mutant: displacements that no token sees count too: one token of one pixel, padded by one *)
Definition mutant := patches_need (fun n g => True).
(** One head reads the one token; a convolution is the product with its middle tap, the others
    see nothing ([same]). *)
Theorem mutant_refuted : ~ mutant.
Proof.
pose S := of_ring rat_fieldType.
move=> /(_ rat_fieldType 1 (fun _ => 1) (fun _ => 1) (fun _ => 1) (fun _ => conj isT isT) I
  unit_finType unit_finType (fun _ _ _ => one)) need.
have card : #|{: taps (token_grid (fun _ : 'I_1 => 1) (fun _ => 1))}| = 3.
  by rewrite card_dep_ffun foldrE big_map big_enum /= big_ord_recl big_ord0 card_ord.
suff : (#|{: taps (token_grid (fun _ : 'I_1 => 1) (fun _ => 1))}| <= #|{: unit}|)%N.
  by rewrite card card_unit.
apply: need => weight.
pose g : geometry 1 := patched_image (fun _ => 1) (fun _ => 1) (fun _ => 1).
pose t1 : taps g := [ffun _ => Ordinal (isT : 1 < 3)].
pose x : box (fun _ : 'I_1 => 1) := [ffun _ => ord0].
pose i0 : pixels g := [ffun _ => Ordinal (isT : 0 < 1)].
have oneb (y : box (fun _ : 'I_1 => 1)) : y = x.
  by apply/ffunP => a; rewrite ffunE; exact: ord1.
exists (fun _ _ _ => one), (fun _ _ _ => weight ord0 0 t1), (fun _ => zero) => X k u q o at_q.
rewrite mhsaE torch_convE; congr (add _ _); rewrite sum_unitE.
have onei i : i = i0.
  by apply/ffunP => a; apply: val_inj; rewrite ffunE /=; case: (i a) => -[].
have patchE j d : patches X j d = X i0 ord0.
  rewrite /patches (big_pred1 i0) => [|i]; first by rewrite (ord1 d.2).
  rewrite (onei i) /= eqxx; apply/forallP => a; rewrite ffunE /=.
  by rewrite [j a]ord1 [d.1 a]ord1.
have same q' t i : sees (g := g) q' t i = (t == t1).
  have q0 : q' ord0 = 0 :> nat by case: (q' ord0) => -[].
  rewrite /sees all_axesE (onei i) ffunE /= q0 !muln1 add0n.
  apply/eqP/eqP => [e|->]; last by rewrite ffunE.
  by apply/ffunP => a; apply: val_inj; rewrite (ord1 a) ffunE; exact: esym e.
rewrite (big_pred1 (x, ord0)) => [|[w c]]; last first.
  by rewrite (oneb w) (ord1 c) /= eqxx.
rewrite (big_pred1 x) => [|j]; last by rewrite [j]oneb /= eqxx.
rewrite patchE /merged sum_unitE (eq_bigr (fun t => if t == t1 then
  (X i0 ord0 * weight ord0 0%N t1)%num else (zero : S))) => [|t _].
  by rewrite -big_mkcond big_pred1_eq !(@Sums.mul1l S).
rewrite (@sum_one_channel S) /tap (ord1 o) eqxx; case: eqP => [->|ne].
  by rewrite (big_pred1 i0) // => i; rewrite same eqxx [i]onei /= eqxx.
rewrite big_pred0 => [|i]; first exact: (@Sums.mul0l S).
by rewrite same; apply/eqP.
Qed.
