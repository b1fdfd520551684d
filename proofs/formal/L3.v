(** * L3: Lemma 3, joint form

    Claim: Heads with attention P^h that does not depend on X express every convolution over the
    taps t (E^t the shift of tap t, as a map from keys to queries) if and only if there is one
    matrix Phi with E^t = sum_h Phi[t, h] P^h at all queries at once: the rows of [E_q1 E_q2 ...]
    lie in the rows of [A_q1 A_q2 ...]. A Phi for all q is one for each q, so the printed condition
    is necessary; it is not sufficient (L3p). If a dual vector meets no head, but the shift of a tap
    in more than eps times the sum of its peaks, every layer of these heads, of any width, differs
    by more than eps from the convolution that is this shift, at some image of ones and minus ones.
    Conversely, if Phi leaves at most eps_t of the shift of tap t at every query, summed over the
    keys, the layer with the weights that Phi mixes differs from each convolution by at most max |X|
    sum_t eps_t sum_c |w_tco|.
    Source: Cordonnier et al. 2020, Lemma 3, Eqs. (15)-(17), corrected by this project.
    Does not show: Whether given floats satisfy the condition; that is decided for each attention by
    check_span. *)
From Coq Require Import ZArith Reals Ring Ring_theory Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 T1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Joint.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.

(** A layer, or a convolution, as one matrix for each pair of a query and a key: Eqs. (16) and
    (17). *)
Lemma by_keyE (I K C : finType) (B : I -> K -> S) (M : I -> C -> S) (X : K -> C -> S) :
  \sum_i \sum_c (\sum_k B i k * X k c) * M i c = \sum_c \sum_k X k c * \sum_i B i k * M i c.
Proof.
rewrite exchange_big; apply: eq_bigr => c _.
transitivity (\sum_i \sum_k X k c * (B i k * M i c)).
  by apply: eq_bigr => i _; rewrite big_distrl; apply: eq_bigr => k _ /=; ring.
by rewrite exchange_big; apply: eq_bigr => k _; rewrite big_distrr.
Qed.

(** Inputs that are 1 at one key and channel, and inputs that are 0, read off the matrices. *)
Definition spike (K C : finType) (k0 : K) (c0 : C) k c : S :=
  if k == k0 then (if c == c0 then 1 else 0) else 0.
Lemma probeE (I K C : finType) (B : I -> K -> S) (W : I -> C -> S) k0 c0 :
  \sum_j \sum_c (\sum_k B j k * spike k0 c0 k c) * W j c = \sum_j W j c0 * B j k0.
Proof.
rewrite by_keyE (bigD1 c0) //= [Z in add _ Z]big1 ?add0r => [|c ne]; last first.
  by apply: sum0 => k _; rewrite /spike (negbTE ne); case: eqP => _; rewrite mul0l.
rewrite (bigD1 k0) //= [Z in add _ Z]big1 ?add0r => [|k ne];
  last by rewrite /spike (negbTE ne) mul0l.
by rewrite /spike !eqxx mul1l; apply: eq_bigr => j _; rewrite mulC.
Qed.
Lemma probe0 (I K C : finType) (B : I -> K -> S) (W : I -> C -> S) :
  \sum_j \sum_c (\sum_k B j k * 0) * W j c = 0.
Proof. by apply: sum0 => j _; apply: sum0 => c _; rewrite sum0 ?mul0l // => k _; rewrite mul0r. Qed.

Variables (n : nat) (g : geometry n) (H : finType) (P : H -> queries g -> pixels g -> S).
Lemma shiftE (Cin : finType) (X : pixels g -> Cin -> S) q t c :
  \sum_(i : pixels g | sees q t i) X i c = \sum_i shift t q i * X i c.
Proof. by rewrite big_mkcond; apply: eq_bigr => i _; rewrite /shift; case: sees; ring. Qed.

Variables (ci co d : nat).
Lemma sufficient : minn ci co <= d -> spans_jointly P -> expresses_all P ci co d.
Proof.
rewrite -{1}[ci]mul1n -{1}[co]mul1n => le_d [Phi joint] weight b.
pose M h c o := \sum_t Phi t h * @tap n g S 1 ci co weight t c o.
exists (@wide_value S _ _ _ d M), (@wide_output S _ _ _ d M), b => X q o.
rewrite mhsaE torch_convE; congr (_ + _).
under eq_bigr do under eq_bigr do rewrite factoredE //.
under [RHS]eq_bigr do under eq_bigr do rewrite shiftE.
rewrite (by_keyE (P ^~ q) (fun h c => M h c o))
  (by_keyE (fun t => shift t q) (fun t c => tap weight t c o)).
apply: eq_bigr => c _; apply: eq_bigr => i _; congr (_ * _); rewrite /M.
under eq_bigr do rewrite big_distrr.
rewrite exchange_big; apply: eq_bigr => t _; rewrite joint big_distrl; apply: eq_bigr => h _ /=;
  ring.
Qed.

Lemma necessary : 0 < ci -> 0 < co -> expresses_all P ci co d -> spans_jointly P.
Proof.
rewrite -{1}[ci]mul1n -{1}[co]mul1n => ci0 co0 all; pose c0 := Ordinal ci0; pose o0 := Ordinal co0.
have one_tap t : exists phi : H -> S, forall q i, shift t q i = \sum_h phi h * P h q i.
  pose weight (o : 'I_(1 * co)) (c : nat) (t' : taps g) : S := if t' == t then 1 else 0.
  have [Wval [Wout [b' E]]] := all weight (fun _ => 0).
  exists (fun h => merged Wval Wout h c0 o0) => q i.
  have bias : b' o0 = 0.
    have := E (fun _ _ => 0) q o0; rewrite mhsaE torch_convE probe0 add0l => ->.
    rewrite sum0 ?add0l // => t' _; apply: sum0 => c _; by rewrite sum0 ?mul0l.
  have := E (spike i c0) q o0; rewrite mhsaE torch_convE bias !add0r.
  under [in X in _ = X -> _]eq_bigr do under eq_bigr do rewrite shiftE.
  rewrite (probeE (P ^~ q)) (probeE (fun t' => shift t' q)).
  move=> ->; rewrite (bigD1 t) //= [Z in add _ Z]big1 => [|t' /negbTE ne]; rewrite /tap /weight.
    by rewrite eqxx !div0n eqxx; ring.
  by rewrite ne; case: ifP => _; rewrite mul0l.
have [Phi joint] := fin_all_exists one_tap; exists Phi => t q i; exact: joint.
Qed.
End Joint.

Theorem lemma3 : L3.
Proof.
by move=> S n g H P ci co d ci0 co0 le_d; split; [exact: necessary | exact: sufficient].
Qed.

Theorem only_if : L3_only_if.
Proof. by move=> S n g H P ci co d ci0 co0 all q; have [Phi E] := necessary ci0 co0 all;
  exists Phi => t i. Qed.

(** ** Heads that do not span a shift are far from it *)
Section Far.
Variables (n : nat) (g : geometry n) (H : finType) (P : H -> queries g -> pixels g -> reals).
Variables (t : taps g) (eps : R).
Local Open Scope R_scope.
Let left (phi : H -> R) q i : R := shift (S := reals) t q i - \big[Rplus/0]_h (phi h * P h q i).
Lemma far_by_dual_le (y : queries g -> pixels g -> R) peak phi :
  (forall h, \sum_q \big[Rplus/0]_i (y q i * P h q i) = 0) ->
  (forall q, 0 <= peak q /\ forall i, Rabs (y q i) <= peak q) ->
  (forall q, leaves P t phi q <= eps) ->
  \sum_q \big[Rplus/0]_i (y q i * shift (S := reals) t q i) <= eps * (\sum_q peak q).
Proof.
move=> none small near.
have -> : \sum_q \big[Rplus/0]_i (y q i * shift (S := reals) t q i)
    = \sum_q \big[Rplus/0]_i (y q i * left phi q i).
  have E q : \big[Rplus/0]_i (y q i * left phi q i)
      = \big[Rplus/0]_i (y q i * shift (S := reals) t q i)
      - \big[Rplus/0]_h (phi h * \big[Rplus/0]_i (y q i * P h q i)).
    have -> : \big[Rplus/0]_h (phi h * \big[Rplus/0]_i (y q i * P h q i))
        = \big[Rplus/0]_i (y q i * \big[Rplus/0]_h (phi h * P h q i)).
      under eq_bigr do rewrite big_distrr /=.
      rewrite exchange_big; apply: eq_bigr => i _; rewrite big_distrr; apply: eq_bigr => h _ /=.
      by ring.
    by rewrite rsum_minus; apply: eq_bigr => i _; rewrite /left; ring.
  under [RHS]eq_bigr do rewrite E.
  rewrite -rsum_minus [X in _ - X]exchange_big /= [X in _ - X]big1 ?Rminus_0_r // => h _.
  by rewrite -big_distrr /= none Rmult_0_r.
rewrite big_distrr /=; apply: rsum_le => q _; have [p0 le] := small q.
apply: Rle_trans (_ : peak q * leaves P t phi q <= _); last first.
  by rewrite Rmult_comm; apply: Rmult_le_compat_r.
apply: Rle_trans (Rle_abs _) _; apply: Rle_trans (rsum_abs_le _ _ _) _.
rewrite /leaves big_distrr /=; apply: rsum_le => i _; rewrite Rabs_mult.
by apply: Rmult_le_compat_r; [exact: Rabs_pos | exact: le].
Qed.

Variables (d : nat) (Wval : H -> 'I_(1 * 1) -> 'I_d -> reals).
Variables (Wout : H -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals).
Let phi h : R := merged Wval Wout h ord0 ord0.
Lemma differenceE (X : pixels g -> 'I_(1 * 1) -> reals) q :
  mhsa P Wval Wout b' X q ord0 - torch_conv (one_tap t) b X q ord0
  = b' ord0 - b ord0 - \big[Rplus/0]_i (left phi q i * X i ord0).
Proof.
rewrite mhsaE torch_convE.
under [X in add X (b ord0)]eq_bigr do under eq_bigr do rewrite shiftE.
rewrite (by_keyE (P ^~ q) (fun h c => merged Wval Wout h c ord0)).
rewrite (by_keyE (fun t' => shift t' q) (fun t' c => tap (one_tap t) t' c ord0)).
have only i : \big[Rplus/0]_t' (shift (S := reals) t' q i
    * tap (G := 1) (ci := 1) (co := 1) (one_tap t) t' ord0 ord0) = shift (S := reals) t q i.
  rewrite (bigD1 t) //= big1 => [|t' /negbTE ne];
    rewrite /tap /one_tap !div0n /= ?eqxx ?ne /=; ring.
have one_c (F : 'I_(1 * 1) -> R) : \big[Rplus/0]_c F c = F ord0.
  by rewrite big_ord_recl big_ord0 Rplus_0_r.
pose A := \big[Rplus/0]_i (X i ord0 * \big[Rplus/0]_h (P h q i * phi h)).
pose B := \big[Rplus/0]_i (X i ord0 * \big[Rplus/0]_t' (shift (S := reals) t' q i
    * tap (G := 1) (ci := 1) (co := 1) (one_tap t) t' ord0 ord0)).
transitivity (A + b' ord0 - (B + b ord0)).
  by apply: (f_equal2 Rminus); apply: (f_equal2 Rplus) => //; exact: one_c.
have BE : B = \big[Rplus/0]_i (X i ord0 * shift (S := reals) t q i).
  by apply: eq_bigr => i _; rewrite only.
have E : \big[Rplus/0]_i (left phi q i * X i ord0) = B - A.
  rewrite BE rsum_minus; apply: eq_bigr => i _; rewrite /left.
  have -> : \big[Rplus/0]_h (P h q i * phi h) = \big[Rplus/0]_h (phi h * P h q i).
    by apply: eq_bigr => h _; ring.
  by ring.
have moved (u v x y : R) : x + u - (y + v) = u - v - (y - x) by ring.
by rewrite E; exact: moved.
Qed.
End Far.
Theorem dual : L3_dual.
Proof.
move=> n g H P t eps y peak none small gain phi.
case: (pickP (fun q => if Rlt_dec eps (leaves P t phi q) then true else false)) => [q|near].
  by case: Rlt_dec => // lt _; exists q.
exfalso; apply: (Rlt_not_le _ _ gain); apply: (far_by_dual_le (phi := phi)) => // q.
by have := near q; case: Rlt_dec => // no _; exact: Rnot_lt_le.
Qed.
(** At the query where the residual is large, the image has its signs, or the opposite ones where
    the biases would help. *)
Theorem far : L3_far.
Proof.
move=> n g H P t eps some asked away d Wval Wout b b' some_phi.
pose phi h : R := merged Wval Wout h ord0 ord0; have [q asked_q lt] := away phi some_phi.
pose left i : R := (shift (S := reals) t q i - \big[Rplus/0]_h (phi h * P h q i))%R.
pose sign (x : R) : R := if Rle_lt_dec 0 x then 1%R else (-1)%R.
have sign1 x : Rabs (sign x) = 1%R /\ (sign x * x)%R = Rabs x.
  by rewrite /sign; case: (Rle_lt_dec 0 x) => le /=; rewrite /Rabs; split;
    case: Rcase_abs => ?; lra.
pose c : R := (b' ord0 - b ord0)%R.
pose X (i : pixels g) (_ : 'I_(1 * 1)) : reals := (- sign c * sign (left i))%R.
exists X, q, ord0; split=> [//|i c0|].
  by rewrite /X Rabs_mult Rabs_Ropp (proj1 (sign1 c)) (proj1 (sign1 _)) Rmult_1_l.
rewrite differenceE -/phi -/c.
have -> : (\big[Rplus/0]_i ((shift (S := reals) t q i
    - \big[Rplus/0]_h (phi h * P h q i)) * X i ord0) = - sign c * leaves P t phi q)%R.
  rewrite /leaves big_distrr /=; apply: eq_bigr => i _.
  by rewrite /X -/(left i) -(proj2 (sign1 (left i))); ring.
have [one pos] := sign1 c; apply: Rlt_le_trans lt _.
have L0 : (0 <= leaves P t phi q)%R by apply: rsum_ge0 => i _; exact: Rabs_pos.
move: (leaves _ _ _ _) L0 one pos; rewrite /sign => L L0.
by case: (Rle_lt_dec 0 c) => le /= _ _; rewrite /Rabs; case: Rcase_abs => ?; lra.
Qed.

(** ** Near enough is good enough *)
Section Near.
Local Open Scope R_scope.
(** The output weights are mixed by [Phi]; what is left of tap [t] at a pixel enters times that
    tap's weights, so the difference is a sum of what is left, key by key. *)
Theorem near : L3_near.
Proof.
move=> n g H P ci co d le_d Phi weight b.
pose W t c o : R := @tap n g reals 1 ci co weight t c o.
pose M h c o : reals := \sum_t Phi t h * W t c o.
rewrite -{1}[ci]mul1n -{1}[co]mul1n in le_d.
exists (@wide_value reals _ _ _ d M), (@wide_output reals _ _ _ d M).
split=> [h c o|q eps small X range range0 lim o]; first by rewrite T1.factoredE.
pose r t i : R := shift (S := reals) t q i - \sum_h Phi t h * P h q i.
have -> : mhsa P (@wide_value reals _ _ _ d M) (@wide_output reals _ _ _ d M) b X q o
    - torch_conv weight b X q o
    = - \sum_c \sum_i X i c * \sum_t r t i * W t c o.
  rewrite mhsaE torch_convE.
  under [X in add X (b o)]eq_bigr do under eq_bigr do rewrite T1.factoredE //.
  under [X in Rminus _ (add X (b o))]eq_bigr do under eq_bigr do rewrite shiftE.
  rewrite (by_keyE (P ^~ q) (fun h c => M h c o)).
  rewrite (by_keyE (fun t => shift t q) (fun t c => tap weight t c o)).
  pose A := \big[Rplus/0]_c \big[Rplus/0]_i (X i c * \big[Rplus/0]_h (P h q i * M h c o)).
  pose B := \big[Rplus/0]_c \big[Rplus/0]_i
    (X i c * \big[Rplus/0]_t (shift (S := reals) t q i * W t c o)).
  transitivity (A + b o - (B + b o)); first by [].
  suff -> : \sum_c \sum_i X i c * (\sum_t r t i * W t c o) = B - A by ring.
  rewrite /A /B rsum_minus; apply: eq_bigr => c _; rewrite rsum_minus; apply: eq_bigr => i _.
  have -> : \big[Rplus/0]_h (P h q i * M h c o) = \sum_t (\sum_h Phi t h * P h q i) * W t c o.
    have -> : \sum_t (\sum_h Phi t h * P h q i) * W t c o
      = \sum_t \sum_h Phi t h * P h q i * W t c o by apply: eq_bigr => t _; rewrite big_distrl.
    rewrite exchange_big; apply: eq_bigr => h _; rewrite /M big_distrr.
    by apply: eq_bigr => t _ /=; ring.
  rewrite -Rmult_minus_distr_l rsum_minus; congr (_ * _); apply: eq_bigr => t _.
  by rewrite /r; ring.
rewrite Rabs_Ropp; apply: Rle_trans (rsum_abs_le _ _ _) _.
pose U := \big[Rplus/0]_c \big[Rplus/0]_i (range * \big[Rplus/0]_t (Rabs (r t i) * Rabs (W t c o))).
apply: (Rle_trans _ U).
  apply: rsum_le => c _; apply: Rle_trans (rsum_abs_le _ _ _) _; apply: rsum_le => i _.
  rewrite Rabs_mult; apply: Rmult_le_compat; try exact: Rabs_pos; first exact: lim.
  apply: Rle_trans (rsum_abs_le _ _ _) _; apply: rsum_le => t _; rewrite Rabs_mult.
  exact: Rle_refl.
have -> : U = \sum_t \sum_c range * Rabs (W t c o) * leaves P t (Phi t) q.
  rewrite [RHS]exchange_big; apply: eq_bigr => c _ /=.
  have -> : \sum_t range * Rabs (W t c o) * leaves P t (Phi t) q
      = \sum_t \sum_i range * Rabs (W t c o) * Rabs (r t i).
    by apply: eq_bigr => t _; rewrite /leaves big_distrr.
  rewrite [RHS]exchange_big; apply: eq_bigr => i _ /=; rewrite big_distrr.
  by apply: eq_bigr => t _ /=; ring.
rewrite big_distrr; apply: rsum_le => t _ /=.
have -> : range * (eps t * \sum_c Rabs (W t c o)) = \sum_c range * Rabs (W t c o) * eps t.
  by rewrite !big_distrr /=; apply: eq_bigr => c _; ring.
apply: rsum_le => c _; apply: Rmult_le_compat_l; last exact: small.
by apply: Rmult_le_pos => //; exact: Rabs_pos.
Qed.
End Near.

(** ** Instance

    Heads that are the shifts themselves, zero rows at the border, give every convolution of every
    kernel *)
Theorem instance : forall n (g : geometry n) ci co, 0 < ci -> 0 < co ->
  expresses_all (@shift integers n g) ci co (minn ci co).
Proof.
move=> n g ci co ci0 co0; apply/(lemma3 _ ci0 co0 (leqnn _)).
by exists (fun t h => if h == t then one else zero) => t q i; rewrite sum_pickE.
Qed.

(** ** Mutant: heads of any dimension, even 0, do *)
Definition mutant := expresses_iff (fun ci co d => true) spans_jointly.
Theorem mutant_refuted : ~ mutant.
Proof.
pose g : geometry 0 := Geometry (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0)
  (fun _ => 0).
have joint : spans_jointly (@shift integers 0 g).
  by exists (fun t h => if h == t then one else zero) => t q i; rewrite sum_pickE.
pose x : box (fun _ : 'I_0 => 0) := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
pose q : queries g := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
move=> /(_ integers 0 g _ (@shift integers 0 g) 1 1 0 isT isT isT)
  [_ /(_ joint (fun _ _ _ => 1%Z) (fun _ => 0%Z))] [Wval [Wout [b' E]]].
have zero_layer X : mhsa (@shift integers 0 g) Wval Wout b' X q ord0 = b' ord0.
  by rewrite mhsaE sum0 ?add0l // => h _; apply: sum0 => c _; rewrite /merged big_ord0 mul0r.
have all_see (t : taps g) (i : pixels g) : sees (g := g) q t i by apply/forallP; case.
have one_box (i : box (fun _ : 'I_0 => 0)) : i = x by apply/ffunP; case.
have value_at (v : integers) : torch_conv (G := 1) (ci := 1) (co := 1) (fun _ _ _ => 1%Z : integers)
  (fun _ => 0%Z) (fun (_ : pixels g) (_ : 'I_(1 * 1)) => v) q ord0 = v.
  rewrite torch_convE (big_pred1 (x : taps g)) => [|t]; last by rewrite (one_box t) /= eqxx.
  rewrite big_ord_recl big_ord0 (big_pred1 (x : pixels g)) => [|i];
    last by rewrite all_see (one_box i) /= eqxx.
  by rewrite /tap /= !Z.add_0_r Z.mul_1_r.
have := E (fun _ _ => 1%Z) q ord0; have := E (fun _ _ => 0%Z) q ord0;
  rewrite !zero_layer !value_at => -> .
by [].
Qed.
(** ** Mutant: what is left of a shift costs nothing

    One head that attends to nothing leaves all of a shift of one pixel; by [far] its layer differs
    from that shift. *)
Definition mutant_near := near_enough (fun _ => 0%R).
Theorem mutant_near_refuted : ~ mutant_near.
Proof.
pose g : geometry 0 := Geometry (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0)
  (fun _ => 0).
pose x : box (fun _ : 'I_0 => 0) := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
pose q : queries g := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
pose P (_ : unit) (_ : queries g) (_ : pixels g) : reals := 0%R.
pose t : taps g := x.
have left s phi q' : leaves P s phi q' = (\big[Rplus/0]_(i : pixels g) 1)%R.
  apply: eq_bigr => i _; rewrite /shift; have -> : sees q' s i by apply/forallP; case.
  by rewrite big1 => [|h _]; [rewrite /= Rminus_0_r Rabs_R1 | exact: Rmult_0_r].
have whole : (1 <= \big[Rplus/0]_(i : pixels g) 1)%R.
  apply: (@rsum_term_le _ (fun _ => 1%R) (x : pixels g)) => j; exact: Rle_0_1.
have away phi : True -> exists2 q, True & (0 < leaves P t phi q)%R.
  by exists q => //; rewrite left; lra.
move=> /(_ 0 g _ P 1 1 1 isT (fun _ _ => 0%R) (one_tap t) (fun _ => 0%R)) [Wval [Wout [_ near]]].
have [X [q' [o [_ one lt]]]] := @far _ _ _ _ _ _ _ _ away _ Wval Wout (fun _ => 0%R)
  (fun _ => 0%R) I.
have := near q' (fun _ => \big[Rplus/0]_(i : pixels g) 1)%R (fun s => Req_le _ _ (left s _ q')).
move=> /(_ X 1%R Rle_0_1 (fun i c => Req_le _ _ (one i c)) o).
rewrite (eq_bigr (fun _ => 0%R)) => [|s _]; last by rewrite Rmult_0_l.
by rewrite big1 // Rmult_0_r; lra.
Qed.
