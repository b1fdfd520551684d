(** * L3: Lemma 3 in its joint form

    Claim: a layer whose attention [P] does not depend on the input gives every convolution of a kernel, by the choice of
    [W_val], [W_out] and the bias, if and only if one [Phi] writes every shift, at all queries at once, as a combination
    of the heads' attention. The condition of the printed lemma, one [Phi] a query, is necessary (and not sufficient, L3p).
    Source: Cordonnier et al. 2020, Lemma 3, corrected by this project (E2).
    Does not show: anything about attention that depends on X (E12, in L3p), or about nearly spanning.
    Licenses: conv2attn.check_span, conv2attn.express. *)
From Coq Require Import ZArith Reals Ring Ring_theory.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1 T1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Joint.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.

(** A layer, or a convolution, as one matrix for each pair of a query and a key: Eqs. (16) and (17). *)
Lemma by_key (I K C : finType) (B : I -> K -> S) (M : I -> C -> S) (X : K -> C -> S) :
  \sum_i \sum_c (\sum_k B i k * X k c) * M i c = \sum_c \sum_k X k c * \sum_i B i k * M i c.
Proof.
rewrite exchange_big; apply: eq_bigr => c _.
transitivity (\sum_i \sum_k X k c * (B i k * M i c)).
  by apply: eq_bigr => i _; rewrite big_distrl; apply: eq_bigr => k _ /=; ring.
by rewrite exchange_big; apply: eq_bigr => k _; rewrite big_distrr.
Qed.

(** Inputs that are 1 at one key and channel, and inputs that are 0, read off the matrices. *)
Definition spike (K C : finType) (k0 : K) (c0 : C) k c : S := if k == k0 then (if c == c0 then 1 else 0) else 0.
Lemma probe (I K C : finType) (B : I -> K -> S) (W : I -> C -> S) k0 c0 :
  \sum_j \sum_c (\sum_k B j k * spike k0 c0 k c) * W j c = \sum_j W j c0 * B j k0.
Proof.
rewrite by_key (bigD1 c0) //= [Z in add _ Z]big1 ?add0r => [|c ne]; last first.
  by apply: sum0 => k _; rewrite /spike (negbTE ne); case: eqP => _; rewrite mul0l.
rewrite (bigD1 k0) //= [Z in add _ Z]big1 ?add0r => [|k ne]; last by rewrite /spike (negbTE ne) mul0l.
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
exists (@value S _ _ _ d M), (@output S _ _ _ d M), b => X q o.
rewrite mhsaE torch_convE; congr (_ + _).
under eq_bigr do under eq_bigr do rewrite factored //.
under [RHS]eq_bigr do under eq_bigr do rewrite shiftE.
rewrite (by_key (P ^~ q) (fun h c => M h c o)) (by_key (fun t => shift t q) (fun t c => tap weight t c o)).
apply: eq_bigr => c _; apply: eq_bigr => i _; congr (_ * _); rewrite /M.
under eq_bigr do rewrite big_distrr.
rewrite exchange_big; apply: eq_bigr => t _; rewrite joint big_distrl; apply: eq_bigr => h _ /=; ring.
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
  rewrite (probe (P ^~ q)) (probe (fun t' => shift t' q)).
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
Proof. by move=> S n g H P ci co d ci0 co0 all q; have [Phi E] := necessary ci0 co0 all; exists Phi => t i. Qed.

(** ** Instance: heads that are the shifts themselves, zero rows at the border, give every convolution of every kernel *)
Theorem instance : forall n (g : geometry n) ci co, 0 < ci -> 0 < co -> expresses_all (@shift integers n g) ci co (minn ci co).
Proof.
move=> n g ci co ci0 co0; apply/(lemma3 _ ci0 co0 (leqnn _)).
by exists (fun t h => if h == t then one else zero) => t q i; rewrite sum_pick.
Qed.

(** ** Mutant: heads of any dimension, even 0, do *)
Definition mutant := forall (S : numbers) n (g : geometry n) (H : finType) (P : H -> queries g -> pixels g -> S) (ci co d : nat),
  0 < ci -> 0 < co -> spans_jointly P -> expresses_all P ci co d.
Theorem mutant_refuted : ~ mutant.
Proof.
pose g : geometry 0 := Geometry (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0).
have joint : spans_jointly (@shift integers 0 g).
  by exists (fun t h => if h == t then one else zero) => t q i; rewrite sum_pick.
pose x : box (fun _ : 'I_0 => 0) := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
pose q : queries g := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
move=> /(_ integers 0 g _ _ 1 1 0 isT isT joint (fun _ _ _ => 1%Z) (fun _ => 0%Z)) [Wval [Wout [b' E]]].
have zero_layer X : mhsa (@shift integers 0 g) Wval Wout b' X q ord0 = b' ord0.
  by rewrite mhsaE sum0 ?add0l // => h _; apply: sum0 => c _; rewrite /merged big_ord0 mul0r.
have all_see (t : taps g) (i : pixels g) : sees (g := g) q t i by apply/forallP; case.
have one_box (i : box (fun _ : 'I_0 => 0)) : i = x by apply/ffunP; case.
have value_at (v : integers) : torch_conv (G := 1) (ci := 1) (co := 1) (fun _ _ _ => 1%Z : integers) (fun _ => 0%Z) (fun (_ : pixels g) (_ : 'I_(1 * 1)) => v) q ord0 = v.
  rewrite torch_convE (big_pred1 (x : taps g)) => [|t]; last by rewrite (one_box t) /= eqxx.
  rewrite big_ord_recl big_ord0 (big_pred1 (x : pixels g)) => [|i]; last by rewrite all_see (one_box i) /= eqxx.
  by rewrite /tap /= !Z.add_0_r Z.mul_1_r.
have := E (fun _ _ => 1%Z) q ord0; have := E (fun _ _ => 0%Z) q ord0; rewrite !zero_layer !value_at => -> .
by [].
Qed.
