(** * L1: Lemma 1, hard heads are a convolution

    Claim: if the heads are in bijection with the taps, the head of tap [t] puts all attention of output [q] on the key
    that [t] reads, and [W_val W_out] of that head is the tap's matrix, then the multi-head self-attention is the
    convolution as PyTorch computes it, for every input: any number of axes, sizes, stride, dilation, zero padding
    (different in front and behind), groups and bias, over every commutative ring.
    Source: Cordonnier et al. 2020, Lemma 1, Eqs. (5), (10) to (13); the sign convention is E4's correction.
    Does not show: that a softmax is one-hot (L2b, L2c, A46); other padding modes, which are another linear map in front
    of the keys and a convolution without padding after it; anything about rounding.
    Licenses: conv2attn.convert, conv2attn.certify. *)
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
have Hq : q a < (padded g a - dilation g a * (kernel g a - 1) - 1) %/ stride g a + 1 := ltn_ord (q a).
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
Lemma mhsaE (Q K H D Cin Cout : finType) (P : H -> Q -> K -> S) (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S)
    b X q o :
  mhsa P Wval Wout b X q o = \sum_h \sum_c (\sum_k P h q k * X k c) * merged Wval Wout h c o + b o.
Proof.
congr (_ + _); apply: eq_bigr => h _.
under eq_bigr do rewrite big_distrl.
rewrite exchange_big; apply: eq_bigr => c _; rewrite /merged big_distrr.
by apply: eq_bigr => e _ /=; ring.
Qed.

Variables (n : nat) (g : geometry n) (G ci co : nat).
Variables (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S) (X : pixels g -> 'I_(G * ci) -> S).
Lemma torch_convE q o :
  torch_conv weight b X q o = \sum_t \sum_c (\sum_(i | sees q t i) X i c) * tap weight t c o + b o.
Proof.
congr (_ + _); apply: eq_bigr => t _; rewrite big_mkcond; apply: eq_bigr => c _; rewrite /tap.
by case: eqP => // _; rewrite mul0r.
Qed.
Lemma zero_pad_key (ok : fits g) q t c : zero_pad X (key ok q t) c = \sum_(i | sees q t i) X i c.
Proof. by apply: eq_bigl => i; apply: eq_forallb => a; rewrite ffunE /= eq_sym. Qed.
End Algebra.

Theorem lemma1 : L1.
Proof.
move=> S n g ok G ci co H D f P Wval Wout weight b bij hardP W X q o.
rewrite mhsaE torch_convE; congr (add _ _); rewrite [RHS](reindex f) /=; last exact: onW_bij.
apply: eq_bigr => h _; apply: eq_bigr => c _; rewrite W -(zero_pad_key _ ok); congr (mul _ _).
rewrite -(sum_pick (key ok q (f h)) (zero_pad X ^~ c)); apply: eq_bigr => k _.
by rewrite hardP (readsE ok).
Qed.
