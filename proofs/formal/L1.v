(** * L1: Lemma 1: hard heads are a convolution

    Claim: If the heads are in bijection with the taps, and the head of tap t puts all attention of
    output q on the key q * stride + dilation * t of the padded grid, and W_val W_out of that head
    is the tap's matrix, then the multi-head self-attention equals the convolution as PyTorch
    computes it, for every input: any number of axes, stride, dilation, padding, groups, bias, and
    every finite size.
    Source: Cordonnier et al. 2020, Lemma 1, Eqs. (5), (11)-(13), (17); PyTorch's Conv1d/2d/3d for
    the site map.
    Does not show: That a softmax is one-hot (L2b, L2c, A46); anything about rounding of the channel
    product. Axes are independent, so the geometry is stated for one axis of unnamed index; that n
    axes together are n such statements is read by a person. *)
From Coq Require Import ZArith Lia Ring Ring_theory.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(** ** The key that a tap reads *)
Section Key.
Variables (n : nat) (g : geometry n).
Hypothesis ok : fits g.
Lemma key_lt (q : queries g) (t : taps g) a : q a * stride g a + t a * dilation g a < padded g a.
Proof.
have [s0 d0 k0 room] := ok a; have Ht := ltn_ord (t a).
have Hq : q a < (padded g a - dilation g a * (kernel g a - 1) - 1) %/ stride g a + 1 :=
  ltn_ord (q a).
rewrite addn1 ltnS in Hq.
have H1 : q a * stride g a <= padded g a - dilation g a * (kernel g a - 1) - 1.
  exact: leq_trans (leq_mul Hq (leqnn _)) (leq_trunc_div _ _).
have H2 : t a * dilation g a <= dilation g a * (kernel g a - 1).
  by rewrite mulnC leq_mul2l; apply/orP; right; rewrite leq_subRL // add1n.
apply: leq_ltn_trans (leq_add H1 H2) _.
by rewrite -subnDA addn1 addnC -addSn subnKC.
Qed.
Definition key (q : queries g) (t : taps g) : keys g := [ffun a => Ordinal (key_lt q t a)].
Lemma readsE q t k : reads q t k = (k == key q t).
Proof.
apply/forallP/eqP => [E|-> a]; last by rewrite ffunE.
by apply/ffunP => a; apply: val_inj; rewrite ffunE /=; exact/eqP.
Qed.
Lemma key_inj q : injective (key q).
Proof.
move=> t u E; apply/ffunP => a; apply: val_inj.
have /(congr1 (fun k : keys g => val (k a))) := E; rewrite !ffunE /= => /addnI /eqP.
by have [_ d0 _ _] := ok a; rewrite eqn_pmul2r // => /eqP.
Qed.
Lemma sees_inj q i (t u : taps g) : sees q t i -> sees q u i -> t = u.
Proof.
move=> /forallP Et /forallP Eu; apply/ffunP => a; apply: val_inj; have [_ d0 _ _] := ok a.
by have := eqP (Eu a); rewrite (eqP (Et a)) => /addnI /eqP; rewrite eqn_pmul2r // => /eqP.
Qed.
End Key.

Theorem total : L1_total.
Proof.
move=> n g ok q t; exists (key ok q t); split; first by rewrite readsE.
by move=> k; rewrite (readsE ok) => /eqP.
Qed.

Theorem sites : L1_offset.
Proof.
move=> n g q t k; rewrite /position /site /offset; split=> [/forallP E a|E].
  rewrite (eqP (E a)) !of_natD; lia.
by apply/forallP => a; apply/eqP; apply: Nat2Z.inj; have := E a; rewrite !of_natD; lia.
Qed.

(** ** The layer and the convolution, each as a sum of tokens times matrices *)
Section Algebra.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Lemma mhsaE (Q K H D Cin Cout : finType) (P : H -> Q -> K -> S) (Wval : H -> Cin -> D -> S)
  (Wout : H -> D -> Cout -> S)
    b X q o :
  mhsa P Wval Wout b X q o = \sum_h \sum_c (\sum_k P h q k * X k c) * merged Wval Wout h c o + b o.
Proof.
congr (_ + _); apply: eq_bigr => h _.
under eq_bigr do rewrite big_distrl.
rewrite exchange_big; apply: eq_bigr => c _; rewrite /merged big_distrr.
by apply: eq_bigr => e _ /=; ring.
Qed.

Variables (n : nat) (g : geometry n) (G ci co : nat).
Variables (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S)
  (X : pixels g -> 'I_(G * ci) -> S).
Lemma torch_convE q o :
  torch_conv weight b X q o = \sum_t \sum_c (\sum_(i | sees q t i) X i c) * tap weight t c o + b o.
Proof.
congr (_ + _); apply: eq_bigr => t _; rewrite big_mkcond; apply: eq_bigr => c _; rewrite /tap.
by case: eqP => // _; rewrite mul0r.
Qed.
Lemma zero_pad_key (ok : fits g) (Cin : finType) (Z : pixels g -> Cin -> S) q t c :
  zero_pad Z (key ok q t) c = \sum_(i : pixels g | sees q t i) Z i c.
Proof. by apply: eq_bigl => i; apply: eq_forallb => a; rewrite ffunE /= eq_sym. Qed.
End Algebra.

Theorem lemma1 : L1.
Proof.
move=> S n g ok G ci co H D f P Wval Wout weight b bij hardP W X q o.
rewrite mhsaE torch_convE; congr (add _ _); rewrite [RHS](reindex f) /=; last exact: onW_bij.
apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite W -(zero_pad_key ok _); congr (mul _ _).
rewrite -(sum_pickE (key ok q (f h)) (zero_pad X ^~ c)); apply: eq_bigr => k _.
by rewrite hardP (readsE ok).
Qed.

(** ** Any map in front of the keys, and transposed convolutions *)
Theorem any_map : L1_any.
Proof.
move=> S n g ok G ci co H D f P Wval Wout weight b bij hardP W Z q o.
rewrite mhsaE; congr (add _ _); rewrite [RHS](reindex f) /=; last exact: onW_bij.
apply: eq_bigr => h _; rewrite [RHS]big_mkcond; apply: eq_bigr => c _; rewrite W /tap.
have -> : bigop zero (index_enum _) (fun k => BigBody k (@add S) true (mul (P h q k) (Z k c)))
    = \big[@add S/zero]_(k | reads q (f h) k) Z k c.
  rewrite [RHS](big_pred1 (key ok q (f h))) => [|k]; last by rewrite (readsE ok).
  rewrite -(sum_pickE (key ok q (f h)) (Z ^~ c)).
  by apply: eq_bigr => k _; rewrite hardP (readsE ok).
by case: eqP => // _; rewrite (@mulC S) (@mul0l S).
Qed.
Theorem padding_modes : L1_modes.
Proof.
move=> S n g mode ok may; split=> [k|G ci co H D f P Wval Wout weight b bij hardP W X q o padded];
  last by exact: (@any_map S n g ok G ci co H D f P Wval Wout weight b bij hardP W padded q o).
have range a : (0 <= mode (Z.of_nat (side g a)) (Z.of_nat (k a) - Z.of_nat (before g a))
  < Z.of_nat (side g a))%Z.
  have lt : (k a < before g a + side g a + after g a)%N := ltn_ord (k a).
  move: (may a) lt; rewrite /may_pad; move: (nat_of_ord (k a)) (side g a) (before g a)
    (after g a) => x s b e.
  case=> /ltP s0 which /ltP; rewrite -!plusE => lt.
  case: which => [->|[[-> [/ltP b0 /ltP e0]]|[-> [/leP b0 /leP e0]]]].
  - by rewrite /replicated; lia.
  - by rewrite /reflected; case: Z.ltb_spec0 => ?; last case: Z.ltb_spec0 => ?; lia.
  by rewrite /wrapped; case: Z.ltb_spec0 => ?; last case: Z.ltb_spec0 => ?; lia.
have lt a : Z.to_nat (mode (Z.of_nat (side g a)) (Z.of_nat (k a) - Z.of_nat (before g a))%Z)
  < side g a.
  by apply/ltP; have := range a; lia.
exists [ffun a => Ordinal (lt a)]; split=> [|i /forallP E].
  by apply/forallP => a; rewrite ffunE /=; apply/Z.eqb_spec; have := range a; lia.
apply/ffunP => a; apply: val_inj; rewrite ffunE /=; have := range a; have /Z.eqb_spec := E a; lia.
Qed.
Theorem zero_padding : L1_zero_pad.
Proof.
move=> S n g ok G ci co weight b X q o; congr (add _ _).
apply: eq_bigr => t _; apply: eq_bigr => c _; congr (mul _ _).
rewrite (big_pred1 (key ok q t)) => [|k]; last by rewrite (readsE ok).
by rewrite zero_pad_key.
Qed.

Section Transposed.
Variables (n : nat) (side out kernel stride dilation padding : 'I_n -> nat).
Hypothesis sizes : forall a, [/\ 0 < out a, 0 < kernel a & 0 < dilation a].
Let g := stuffed_grid out kernel dilation.
Lemma stuffed_fits : fits g.
Proof.
move=> a; have [out0 k0 d0] := sizes a; split=> //.
by rewrite /padded /g /= add0n addn0 -[X in X < _]add0n ltn_add2r.
Qed.
Lemma stuffed_outE a : out_side g a = out a.
Proof.
have [out0 _ _] := sizes a.
by rewrite /out_side /padded /g /= add0n addn0 divn1 addnK subnK.
Qed.
Definition same_place (q : queries g) : box out := [ffun a => cast_ord (stuffed_outE a) (q a)].
Definition back (q : box out) : queries g := [ffun a => cast_ord (esym (stuffed_outE a)) (q a)].
Lemma same_placeK : cancel same_place back.
Proof. by move=> q; apply/ffunP => a; rewrite !ffunE cast_ordK. Qed.
Lemma backK : cancel back same_place.
Proof. by move=> q; apply/ffunP => a; rewrite !ffunE cast_ordKV. Qed.
Lemma flippedK : involutive (@flipped n kernel).
Proof. by move=> t; apply/ffunP => a; rewrite !ffunE rev_ordK. Qed.
(** The key that the flipped tap reads holds what the tap adds. *)
Lemma stuffs_keyE (i : box side) (t : box kernel) (q : queries g) :
  stuffs stride padding i (key stuffed_fits q (flipped t)) = adds stride dilation padding i t
    (same_place q).
Proof.
apply: eq_forallb => a; rewrite !ffunE /= !ffunE /= muln1.
have /subnKC E : t a < kernel a := ltn_ord (t a).
have -> : dilation a * (kernel a - 1) = t a * dilation a + (kernel a - (t a).+1) * dilation a.
  by rewrite -mulnDl mulnC; congr (_ * _); rewrite -[in LHS]E addSn subn1.
by rewrite addnA [X in _ == X]addnAC eqn_add2r.
Qed.
End Transposed.
Theorem transposed : L1_transposed.
Proof.
move=> S n side out kernel stride dilation padding sizes g; split; first exact: stuffed_fits.
exists (same_place sizes); split; first by exists (back sizes); [exact: same_placeK | exact: backK].
  by move=> q a; rewrite ffunE.
move=> G ci co H D f P Wval Wout weight b bij hardP W X q o.
pose weight' (o : 'I_(G * co)) (c : nat) (t : taps g) : S :=
  if [pick c' : 'I_(G * ci) | (c' %/ ci == o %/ co) && (c' %% ci == c)] is Some c' then weight c'
    (o %% co) (flipped t) else zero.
have W' h c o' : merged Wval Wout h c o' = tap weight' (f h) c o'.
  rewrite W /tap /weight'; case: eqP => // same; case: pickP => [c' /andP [/eqP E1 /eqP E2]|/(_ c)];
    last by rewrite same !eqxx.
  by have -> : c = c'; first by apply: val_inj;
    rewrite /= (divn_eq c ci) (divn_eq c' ci) same E1 E2.
rewrite (any_map (stuffed_fits sizes) b bij hardP W') /conv_of_keys /torch_conv_transpose;
  congr (add _ _).
have flip_bij : bijective (@flipped n kernel) by exists (@flipped n kernel); exact: flippedK.
rewrite (reindex (@flipped n kernel)) /=; last exact: onW_bij.
apply: eq_bigr => t _; apply: eq_bigr => c /eqP same; congr (mul _ _); last first.
  rewrite /weight'; case: pickP => [c' /andP [/eqP E1 /eqP E2]|/(_ c)]; last by rewrite same !eqxx.
  by have -> : c' = c;
    [apply: val_inj; rewrite /= (divn_eq c ci) (divn_eq c' ci) same E1 E2 | rewrite flippedK].
rewrite (big_pred1 (key (stuffed_fits sizes) q (flipped t))) => [|k];
  last by rewrite (readsE (stuffed_fits sizes)).
by apply: eq_bigl => i; exact: stuffs_keyE.
Qed.

(** ** Instance

    3 pixels 1, 2, 3, one zero in front, kernel (1, 10), bias 5: PyTorch gives 15, 26, 37; with
    stride 2: 15, 37 *)
Section Small.
Definition small (s : nat) : geometry 1 :=
  Geometry (fun _ => 3) (fun _ => 2) (fun _ => s) (fun _ => 1) (fun _ => 1) (fun _ => 0).
Lemma small_fits s : 0 < s -> fits (small s). Proof. by move=> s0 a. Qed.
Definition line s (i : 'I_s) : box (fun _ : 'I_1 => s) := [ffun _ => i].
Lemma sum_line (S : numbers) s (A : pred (box (fun _ : 'I_1 => s)))
  (F : box (fun _ : 'I_1 => s) -> S) :
  \big[@add S/zero]_(k | A k) F k = \big[@add S/zero]_(i < s | A (line i)) F (line i).
Proof.
rewrite (reindex (@line s)) //; exists (fun k : box (fun _ : 'I_1 => s) => k ord0) => [i|k] _;
  first by rewrite /line ffunE.
by apply/ffunP => a; rewrite ffunE (ord1 a).
Qed.
Lemma all_axesE (A : pred 'I_1) : [forall a, A a] = A ord0.
Proof. by apply/forallP/idP => [/(_ ord0)|H a] //; rewrite (ord1 a). Qed.
Variables (s : nat) (w0 w1 : Z).
Definition small_weight (o : 'I_(1 * 1)) (c : nat) (t : taps (small s)) : integers :=
  if t ord0 == 0 :> nat then w0 else w1.
Definition small_bias (o : 'I_(1 * 1)) : integers := 5%Z.
Definition small_image (i : pixels (small s)) (c : 'I_(1 * 1)) : integers := Z.of_nat (i ord0 + 1).
Definition small_padded (j : nat) : Z :=
  if j is j'.+1 then (if j' < 3 then Z.of_nat j else 0%Z) else 0%Z.
Lemma small_seesE (q : queries (small s)) (t : taps (small s)) c :
  \big[@add integers/zero]_(i : pixels (small s) | sees q t i) small_image i c
    = small_padded (q ord0 * s + t ord0).
Proof.
rewrite (@sum_line integers 3 (fun i => sees (g := small s) q t i) (fun i => small_image i c)).
rewrite (eq_bigl (fun i : 'I_3 => 1 + i == q ord0 * s + t ord0)) => [|i]; last first.
  by rewrite /sees all_axesE ffunE /= muln1.
rewrite /small_image /small_padded; under eq_bigr do rewrite ffunE.
rewrite big_mkcond !big_ord_recl big_ord0 /=; move: (q ord0 * s + t ord0) => j.
by move: j => [|[|[|[|j]]]].
Qed.
Lemma small_valueE (q : queries (small s)) : torch_conv small_weight small_bias small_image q ord0
  = (w0 * small_padded (q ord0 * s) + w1 * small_padded (q ord0 * s + 1) + 5)%Z.
Proof.
rewrite torch_convE
  (@sum_line integers 2 xpredT
  (fun t => bigop _ _ (fun c => BigBody c _ _ (mul _ (tap small_weight t c ord0))))).
rewrite !big_ord_recl !big_ord0 /tap /small_weight !ffunE /= !(small_seesE q) /line !ffunE /=
  /small_bias addn0.
have -> : bump 0 0 = 1 by [].
by move: (small_padded _) (small_padded _) => x y; rewrite /=; lia.
Qed.
End Small.
Definition small_query s (i : nat) (lt : i < (4 - 1 * (2 - 1) - 1) %/ s + 1) : queries (small s) :=
  [ffun _ => Ordinal lt].
Definition small_heads (h : taps (small 1)) (q : queries (small 1)) (k : keys (small 1)) : integers
  :=
  if reads q h k then one else zero.
Definition small_value_weight (h : taps (small 1)) (c : 'I_(1 * 1)) (e : unit) : integers :=
  small_weight 1 10 ord0 0 h.
Definition small_output_weight (h : taps (small 1)) (e : unit) (o : 'I_(1 * 1)) : integers := 1%Z.
Lemma small_mergedE h c o : merged small_value_weight small_output_weight h c o
  = tap (@small_weight 1 1 10) h c o.
Proof.
rewrite /merged (bigD1 tt) //= big1 => [|[]] //;
  rewrite /tap (ord1 c) (ord1 o) /small_value_weight /small_output_weight /=.
by rewrite /small_weight; case: ifP.
Qed.
Definition small_output s (q : queries (small s)) : Z :=
  torch_conv (@small_weight s 1 10) small_bias (@small_image s) q ord0.
Theorem instance : [:: small_output (@small_query 1 0 isT); small_output (@small_query 1 1 isT);
    small_output (@small_query 1 2 isT)] = [:: 15; 26; 37]%Z
  /\ [:: small_output (@small_query 2 0 isT); small_output (@small_query 2 1 isT)] = [:: 15; 37]%Z
  /\ forall q, mhsa small_heads small_value_weight small_output_weight small_bias
    (zero_pad (@small_image 1)) q ord0
    = small_output q.
Proof.
split; first by rewrite /small_output !small_valueE !ffunE.
split=> [|q]; first by rewrite /small_output !small_valueE !ffunE.
have id_bij : bijective (@id (taps (small 1))) by exists id.
exact: (lemma1 (@small_fits 1 isT) small_bias id_bij (fun h q k => erefl) small_mergedE).
Qed.

(** ** Mutants

    The heads in the order of the paper's sign, [f h = q - k] (E4): each reads the reversed tap;
    that sign of an offset; a tap for each key; modes that pad any amount, or map any
    coordinate *)
Definition reversed n (g : geometry n) (t : taps g) : taps g := [ffun a => rev_ord (t a)].
Lemma reversedK n (g : geometry n) : involutive (@reversed n g).
Proof. by move=> t; apply/ffunP => a; rewrite !ffunE rev_ordK. Qed.
Definition mutant := convolves reversed.
Theorem mutant_refuted : ~ mutant.
Proof.
pose g := small 1; pose P (h : taps g) q k : integers :=
  if reads q (reversed h) k then 1%Z else 0%Z.
pose weight' := @small_weight 1 10 1.
have W' h c o : merged small_value_weight small_output_weight h c o = tap weight' (reversed h) c o.
  rewrite small_mergedE /tap; case: ifP => // _; rewrite /weight' /small_weight ffunE /=.
  by case: (h ord0) => [[|[|//]] ?].
have ok := @small_fits 1 isT; have id_bij : bijective (@id (taps g)) by exists id.
have rev_bij : bijective (@reversed 1 g) by exists (@reversed 1 g); exact: reversedK.
move=> /(_ integers 1 g ok 1 1 1 _ _ id P _ _ _ small_bias id_bij (fun h q k => erefl) small_mergedE
  (@small_image 1)).
move=> /(_ (@small_query 1 0 isT) ord0);
  rewrite (lemma1 ok small_bias rev_bij (fun h q k => erefl) W').
by rewrite !small_valueE ffunE.
Qed.
Definition axis (side kernel : nat) : geometry 1 :=
  Geometry (fun _ => side) (fun _ => kernel) (fun _ => 1) (fun _ => 1) (fun _ => 0) (fun _ => 0).
Definition mutant_offset_sign := offset_is (fun key query => query - key)%Z.
Theorem mutant_offset_sign_refuted : ~ mutant_offset_sign.
Proof.
move=> /(_ 1 (axis 2 2) [ffun _ => Ordinal (isT : 0 < 1)] [ffun _ => Ordinal (isT : 1 < 2)]
  [ffun _ => Ordinal (isT : 1 < 2)]) [H _].
have /H /(_ ord0) : reads (g := axis 2 2) [ffun _ => Ordinal (isT : 0 < 1)]
  [ffun _ => Ordinal (isT : 1 < 2)] [ffun _ => Ordinal (isT : 1 < 2)].
  by apply/forallP => a; rewrite !ffunE.
by rewrite /site /position /offset !ffunE.
Qed.
Definition mutant_one_tap := forall n (g : geometry n), fits g ->
  forall (q : queries g) (k : keys g), exists! t, reads q t k.
Theorem mutant_one_tap_refuted : ~ mutant_one_tap.
Proof.
have ok : fits (axis 2 1) by [].
move=> /(_ _ _ ok [ffun _ => Ordinal (isT : 0 < 2)] [ffun _ => Ordinal (isT : 1 < 2)])
  [t [/forallP /(_ ord0)]].
by rewrite !ffunE /=; case: (t ord0) => [[|[]]].
Qed.
Definition mutant_little_padding := forall mode side before after,
  may_pad mode side before after -> before <= side /\ after <= side.
Theorem mutant_little_padding_refuted : ~ mutant_little_padding.
Proof. by move=> /(_ replicated 1 2 0 (conj isT (or_introl erefl))) []. Qed.
Definition mutant_any_key := forall mode side before after, may_pad mode side before after ->
  forall z, (0 <= mode (Z.of_nat side) z < Z.of_nat side)%Z.
Theorem mutant_any_key_refuted : ~ mutant_any_key.
Proof.
by move=> /(_ wrapped 1 0 0 (conj isT (or_intror (or_intror (conj erefl (conj isT isT))))) 5%Z) [].
Qed.
