(** * PATCH: Convolutions on patch tokens

    Claim: On tokens that are patches of P^n pixels a convolution with an odd kernel of side K,
    stride 1 and padding (K - 1) / 2 is one hard head per token displacement within ceil((K - 1) /
    2P) along each axis: (2 ceil((K - 1) / 2P) + 1)^n heads, 3^n while 1 < K <= 2 P + 1. Position-
    only attention that expresses every such convolution has at least as many.
    Source: Li et al. 2021, arXiv 2111.01353, for sufficiency; necessity is this project's.
    Does not show: How many heads one given convolution needs. *)
From Coq Require Import Ring_theory Ring ZArith Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(** ** One axis *)
Lemma radius_le r p : 0 < p -> r <= patch_reach r p * p.
Proof.
move=> p0; have := ltn_ceil (r + p.-1) p0; rewrite -/(patch_reach r p) mulSn.
by rewrite -[in X in _ < X + _](prednK p0) addSn ltnS addnC leq_add2l.
Qed.
Lemma reach_le r p : patch_reach r p * p <= r + p.-1. Proof. exact: leq_trunc_div. Qed.
(** What tap [t] of the pixel at [u] reads, counted from the first pixel within reach. *)
Lemma slot_lt u t r p c : u < p -> t < r.*2.+1 -> r <= c * p ->
  (u + t + c * p - r) %/ p < c.*2.+1.
Proof.
move=> up; rewrite ltn_divLR; last exact: leq_ltn_trans up.
rewrite mulSn -!addnn mulnDl; move: (c * p) up => x /ltP up /ltP tr /leP rx; apply/ltP.
by move: up tr rx; rewrite -!plusE -!minusE; lia.
Qed.

Section Upper.
Variables (n : nat) (sides patch radius : 'I_n -> nat).
Hypothesis pos : forall a, 0 < sides a /\ 0 < patch a.
Let c a := patch_reach (radius a) (patch a).
Let g := patched_image sides patch radius.
Let tokens := token_grid sides c.
Let p0 a : 0 < patch a. Proof. by case: (pos a). Qed.
Let within a : radius a <= c a * patch a. Proof. exact: radius_le. Qed.
Lemma tokens_fit : fits tokens.
Proof.
move=> a; split=> //; rewrite /padded /= mul1n subn1 /= -addnn -addnA ltn_add2l.
by rewrite -[X in X < _]add0n ltn_add2r; case: (pos a).
Qed.
(** The tap of tokens, and the place in its patch, that one pixel reads through one tap. *)
Definition meets (s : taps tokens) (v u : box patch) (t : taps g) :=
  [forall a, s a * patch a + v a + radius a == u a + t a + c a * patch a :> nat].
Definition token_tap (u : box patch) (t : taps g) : taps tokens :=
  [ffun a => Ordinal (slot_lt (ltn_ord (u a)) (ltn_ord (t a)) (within a))].
Definition place (u : box patch) (t : taps g) : box patch :=
  [ffun a => Ordinal (ltn_pmod (u a + t a + c a * patch a - radius a) (p0 a))].
Lemma meetsE s v u t : meets s v u t = ((s, v) == (token_tap u t, place u t)).
Proof.
rewrite xpair_eqE; apply/forallP/andP => [E|[/eqP -> /eqP ->] a].
  have V a : u a + t a + c a * patch a - radius a = s a * patch a + v a.
    by rewrite -(eqP (E a)) addnK.
  split; apply/eqP/ffunP => a; apply: val_inj; rewrite ffunE /= V.
    by rewrite divnMDl // divn_small ?addn0.
  by rewrite modnMDl modn_small.
rewrite !ffunE /= -divn_eq subnK //; exact: leq_trans (within a) (leq_addl _ _).
Qed.
Lemma token_lt (i : pixels g) a : i a %/ patch a < sides a.
Proof. by rewrite ltn_divLR //; exact: ltn_ord (i a). Qed.
Definition token_of (i : pixels g) : box sides := [ffun a => Ordinal (token_lt i a)].

Variables (S : numbers) (C : finType) (X : pixels g -> C -> S).
Variables (k : queries tokens) (u : box patch) (q : queries g).
Hypothesis at_q : forall a, q a = k a * patch a + u a :> nat.
(** A pixel is seen by tap [t] of [q] if and only if the token that holds it, and no other, is seen
    by the tap of tokens, and holds it at the place. *)
Lemma seen_in_patch t i m : sees k (token_tap u t) m && in_patch (radius := radius) m (place u t) i
  = sees q t i && (m == token_of i).
Proof.
have M a : token_tap u t a * patch a + place u t a + radius a = u a + t a + c a * patch a.
  by have := meetsE (token_tap u t) (place u t) u t; rewrite eqxx => /forallP /(_ a) /eqP.
have small a : place u t a < patch a by exact: ltn_ord.
apply/andP/andP => [[/forallP see /forallP held]|[/forallP see /eqP ->]].
  split; last first.
    apply/eqP/ffunP => a; apply: val_inj; rewrite ffunE /= (eqP (held a)).
    by rewrite divnMDl // divn_small ?addn0.
  apply/forallP => a; rewrite /= (eqP (held a)) at_q !muln1.
  have := eqP (see a); rewrite /= !muln1 => E; have := M a.
  have := congr1 (muln^~ (patch a)) E; rewrite /= !mulnDl.
  rewrite -(eqn_add2r (c a * patch a)); move: (c a * patch a) (m a * patch a) (k a * patch a)
    (token_tap u t a * patch a) (nat_of_ord (place u t a)) => x y z w v E1 E2; apply/eqP.
  by move: E1 E2; rewrite -!plusE; lia.
have D a := divn_eq (i a) (patch a).
have both a : c a + i a %/ patch a = k a + token_tap u t a /\ i a %% patch a = place u t a.
  have E : (c a + i a %/ patch a) * patch a + i a %% patch a
      = (k a + token_tap u t a) * patch a + place u t a.
    have := eqP (see a); rewrite /= at_q !muln1 {1}(D a) !mulnDl; have := M a.
    move: (c a * patch a) (i a %/ patch a * patch a) (k a * patch a) (token_tap u t a * patch a)
      (i a %% patch a) (nat_of_ord (place u t a)) => x y z w v v' E1 E2.
    by move: E1 E2; rewrite /= -!plusE; lia.
  have := edivn_eq (c a + i a %/ patch a) (ltn_pmod (i a) (p0 a)).
  by rewrite E edivn_eq // => -[-> ->].
split; apply/forallP => a; rewrite !ffunE /=; have [E1 E2] := both a.
  by rewrite !muln1 E1 ffunE.
by rewrite [X in X == _](D a) E2 ffunE.
Qed.
Lemma token_readE t x : zero_pad (patches X : pixels tokens -> _ -> S)
    (key tokens_fit k (token_tap u t)) (place u t, x)
  = (\big[@add S/zero]_(i | sees q t i) X i x)%num.
Proof.
rewrite zero_pad_key /patches (exchange_big_dep (sees q t)) /= => [|m i see held]; last first.
  by have := seen_in_patch t i m; rewrite see held => /esym /andP [].
apply: eq_bigr => i see; rewrite (big_pred1 (token_of i)) // => m.
by rewrite seen_in_patch see.
Qed.
End Upper.

Section Layer.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Lemma merged_identityE (H D O : finType) (W : H -> D -> O -> S) h d o :
  merged (fun _ => identity) W h d o = W h d o.
Proof.
rewrite /merged /identity -[RHS](sum_pickE d (fun e => W h e o)).
by apply: eq_bigr => e _; rewrite eq_sym.
Qed.
End Layer.

(** Values are the channels of a patch; the output matrix of a head holds, between two places, the
    taps that read from one through its displacement to the other ([meets]). *)
Theorem patch_tokens : PATCH.
Proof.
move=> S n sides patch radius pos g tokens G ci co H f P bij hot weight b.
pose ok := tokens_fit radius pos.
pose W h (d : box patch * 'I_(G * ci)) (o : box patch * 'I_(G * co)) : S :=
  (\sum_(t : taps g | meets (f h) d.1 o.1 t) tap weight t d.2 o.2)%num.
exists (fun _ => identity), W, (fun o => b o.2) => X k u q o at_q.
rewrite mhsaE torch_convE; congr (add _ _); set Z := zero_pad _.
have readE h d : (\sum_x P h k x * Z x d)%num = Z (key ok k (f h)) d.
  rewrite -(sum_pickE (key ok k (f h)) (Z ^~ d)); apply: eq_bigr => x _.
  by rewrite hot (readsE ok).
pose part h v x t : S := if meets (f h) v u t
  then mul (Z (key ok k (f h)) (v, x)) (tap weight t x o) else zero.
transitivity (\big[@add S/zero]_h \big[@add S/zero]_x \big[@add S/zero]_v \big[@add S/zero]_t
    part h v x t).
  apply: eq_bigr => h _; rewrite exchange_big pair_bigA /=; apply: eq_bigr => -[v x] _.
  by rewrite readE merged_identityE /W big_distrr big_mkcond.
transitivity (\big[@add S/zero]_x \big[@add S/zero]_t \big[@add S/zero]_h \big[@add S/zero]_v
    part h v x t).
  rewrite exchange_big; apply: eq_bigr => x _; rewrite [RHS]exchange_big; apply: eq_bigr => h _.
  exact: exchange_big.
rewrite exchange_big; apply: eq_bigr => t _; apply: eq_bigr => x _.
rewrite -(token_readE pos X at_q t x) -/Z.
transitivity (\big[@add S/zero]_s \big[@add S/zero]_v (if meets s v u t
    then mul (Z (key ok k s) (v, x)) (tap weight t x o) else zero)).
  by rewrite [RHS](reindex f) /=; last exact: onW_bij.
rewrite pair_bigA -big_mkcond (big_pred1 (token_tap pos u t, place pos u t)) //.
by move=> -[s v]; exact: meetsE.
Qed.

(** ** Instance: a line of two tokens of two pixels, a kernel (1, 10, 100), bias 5: three heads *)
Definition pairs (radius : nat) : geometry 1 :=
  patched_image (fun _ => 2) (fun _ => 2) (fun _ => radius).
Definition pair_tokens (reach : nat) : geometry 1 := token_grid (fun _ => 2) (fun _ => reach).
Definition hot_heads reach (h : taps (pair_tokens reach)) (k : queries (pair_tokens reach))
  (x : keys (pair_tokens reach)) : integers := if reads k h x then 1%Z else 0%Z.
Lemma pairs_positive (a : 'I_1) : 0 < 2 /\ 0 < 2. Proof. by []. Qed.
Definition powers (o : 'I_(1 * 1)) (c : nat) (t : taps (pairs 1)) : integers :=
  (10 ^ Z.of_nat (t ord0))%Z.
Definition pair_place := box (fun _ : 'I_1 => 2).
Theorem instance : exists
  (Wval : taps (pair_tokens 1) -> pair_place * 'I_(1 * 1) -> pair_place * 'I_(1 * 1) -> integers)
  (Wout : taps (pair_tokens 1) -> pair_place * 'I_(1 * 1) -> pair_place * 'I_(1 * 1) -> integers)
  (b' : pair_place * 'I_(1 * 1) -> integers),
  forall X (k : queries (pair_tokens 1)) (u : pair_place) (q : queries (pairs 1)) o,
  (forall a, q a = k a * 2 + u a :> nat) ->
  mhsa (@hot_heads 1) Wval Wout b'
    (zero_pad (patches X : pixels (pair_tokens 1) -> pair_place * 'I_(1 * 1) -> integers)) k (u, o)
  = torch_conv powers (fun _ => 5%Z : integers) X q o.
Proof.
apply: (@patch_tokens integers 1 (fun _ => 2) (fun _ => 2) (fun _ => 1) pairs_positive 1 1 1 _ id).
  by exists id.
by [].
Qed.

(** ** Mutant: the reach is rounded down

    One head reads the own token alone, and not the pixel to the right of its last one. *)
Definition mutant := patch_heads divn.
Definition right_tap (o : 'I_(1 * 1)) (c : nat) (t : taps (pairs 1)) : integers :=
  if t ord0 == 2 :> nat then 1%Z else 0%Z.
Definition bright_at (j : nat) (i : pixels (pairs 1)) (c : 'I_(1 * 1)) : integers :=
  if i ord0 == j :> nat then 1%Z else 0%Z.
(** The layer gives its bias for an image that is 0 on the first patch ([own]); the convolution
    reads pixel 2, the first of the other ([convE]). *)
Theorem mutant_refuted : ~ mutant.
Proof.
have idb : bijective (id : taps (pair_tokens 0) -> taps (pair_tokens 0)) by exists id.
move=> /(_ integers 1 (fun _ => 2) (fun _ => 2) (fun _ => 1) pairs_positive 1 1 1 _ id
  (@hot_heads 0) idb (fun _ _ _ => erefl) right_tap (fun _ => 0%Z : integers)) [Wval [Wout [b' E]]].
pose k : queries (pair_tokens 0) := [ffun _ => Ordinal (isT : 0 < 2)].
pose u : pair_place := [ffun _ => Ordinal (isT : 1 < 2)].
pose q : queries (pairs 1) := [ffun _ => Ordinal (isT : 1 < 4)].
have at_q a : q a = k a * 2 + u a :> nat by rewrite !ffunE.
have ok : fits (pair_tokens 0) by move=> a.
have own j : 2 <= j -> mhsa (@hot_heads 0) Wval Wout b' (zero_pad (patches (bright_at j) : pixels
  (pair_tokens 0) -> _ -> integers)) k
    (u, ord0) = b' (u, ord0).
  move=> j2; rewrite mhsaE big1 ?add0l // => h _; apply: big1 => -[v c] _.
  have -> : (\sum_x hot_heads h k x * zero_pad (patches (bright_at j) : pixels (pair_tokens 0) -> _
    -> integers) x
      (v, c))%num = 0%Z.
    rewrite big1 // => x _; rewrite /hot_heads; case: ifP => [|_]; last exact: mul0l.
    rewrite (readsE ok) => /eqP ->; rewrite mul1l zero_pad_key big1 // => m see.
    rewrite /patches big1 // => i held; rewrite /bright_at; case: eqP => // ij.
    have m0 : m ord0 = 0 :> nat.
      have := eqP (forallP see ord0); rewrite /= !ffunE /= !muln1 add0n => ->.
      by case: (h ord0) => -[].
    have := eqP (forallP held ord0); rewrite /= m0 mul0n add0n ij => E'.
    by have := ltn_ord (v ord0); rewrite -E' ltnNge j2.
  exact: mul0l.
pose t2 : taps (pairs 1) := [ffun _ => Ordinal (isT : 2 < 3)].
pose i2 : pixels (pairs 1) := [ffun _ => Ordinal (isT : 2 < 4)].
have convE j : torch_conv right_tap (fun _ => 0%Z : integers) (bright_at j) q ord0
    = bright_at j i2 ord0.
  rewrite torch_convE (eq_bigr (fun t => if t == t2 then bright_at j i2 ord0 else zero)) => [|t _].
    by rewrite -big_mkcond big_pred1_eq add0r.
  case: eqP => [->|ne].
    rewrite (@sum_one_channel integers) (big_pred1 i2) => [|i].
      by rewrite /tap /right_tap ffunE /=; exact: Z.mul_1_r.
    rewrite /sees all_axesE !ffunE /= !muln1; apply/eqP/eqP => [|->]; last by rewrite ffunE.
    by rewrite !add1n => -[E']; apply/ffunP => a; apply: val_inj; rewrite (ord1 a) ffunE.
  apply: big1 => c _; rewrite /tap /right_tap; case: ifP => _; last exact: mul0r.
  case: eqP => [t_2|_]; last exact: mul0r.
  by case: ne; apply/ffunP => a; apply: val_inj; rewrite (ord1 a) ffunE.
have := E (bright_at 2) k u q ord0 at_q; have := E (bright_at 9) k u q ord0 at_q.
by rewrite !own // => ->; rewrite !convE /bright_at !ffunE.
Qed.
