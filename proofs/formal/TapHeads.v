From Coq Require Import Ring_theory Ring.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope num_scope.
(** ** Layers *)
Section Link.
Variables (S : numbers) (n : nat) (g : geometry n).
Add Ring numbers_ring : (laws S).
Hypothesis ok : fits g.
Variables (G ci co : nat).
Definition applied (V : taps g -> 'I_(G * ci) -> 'I_(G * co) -> S) (b : 'I_(G * co) -> S)
  (Z : keys g -> 'I_(G * ci) -> S) q o : S :=
  \sum_(t : taps g) (\sum_c Z (key ok q t) c * V t c o) + b o.
Lemma conv_of_keys_tapE (weight : 'I_(G * co) -> nat -> taps g -> S) b Z q o : conv_of_keys weight b
  Z q o
  = applied (tap weight) b Z q o.
Proof.
congr (_ + _); apply: eq_bigr => t _; rewrite big_mkcond; apply: eq_bigr => c _; rewrite /tap.
rewrite (big_pred1 (key ok q t)) => [|k]; last by rewrite (readsE ok).
by case: eqP => // _; rewrite mul0r.
Qed.
Lemma headsE (H D : finType) (B : H -> taps g -> S) P (Wval : H -> 'I_(G * ci) -> D -> S)
  (Wout : H -> D -> 'I_(G * co) -> S) b Z q o :
  on_taps B P -> mhsa P Wval Wout b Z q o
    = applied (fun t c o => \sum_h B h t * merged Wval Wout h c o) b Z q o.
Proof.
move=> on; rewrite mhsaE; congr (_ + _).
have E h c : \sum_k P h q k * Z k c = \sum_(t : taps g) B h t * Z (key ok q t) c.
  under eq_bigr do rewrite on big_distrl /=.
  rewrite (exchange_big_dep xpredT) //=; apply: eq_bigr => t _.
  by rewrite (big_pred1 (key ok q t)) // => k; rewrite (readsE ok).
under eq_bigr do under eq_bigr do rewrite E big_distrl /=.
transitivity (\sum_h \sum_(t : taps g) \sum_c (B h t * Z (key ok q t) c * merged Wval Wout h c o)).
  by apply: eq_bigr => h _; rewrite exchange_big.
rewrite exchange_big; apply: eq_bigr => t _; rewrite exchange_big; apply: eq_bigr => c _.
by rewrite big_distrr; apply: eq_bigr => h _ /=; ring.
Qed.
Lemma probe (V W : taps g -> 'I_(G * ci) -> 'I_(G * co) -> S) b b' (q : queries g) :
  (forall Z o, applied V b Z q o = applied W b' Z q o) -> (forall t c o, V t c o = W t c o) /\
    b =1 b'.
Proof.
move=> E; have bb o : b o = b' o.
  have := E (fun _ _ => 0) o; rewrite /applied !sum0 ?add0l // => t _; apply: sum0 => c _;
    exact: mul0l.
split=> // t c o; pose Z k c' : S := if (k == key ok q t) && (c' == c) then 1 else 0.
have pick (U : taps g -> 'I_(G * ci) -> 'I_(G * co) -> S) : \sum_(t' : taps g)
  (\sum_c' Z (key ok q t') c' * U t' c' o) = U t c o.
  rewrite (bigD1 t) //= [X in _ + X]sum0 ?add0r => [|t' /negbTE ne]; last first.
    by apply: sum0 => c' _; rewrite /Z (inj_eq (@key_inj _ _ ok q)) ne /= mul0l.
  by rewrite -[RHS](sum_pickE c (fun c' => U t c' o)); apply: eq_bigr => c' _; rewrite /Z eqxx.
by have := E Z o; rewrite /applied !pick bb => /add_cancel.
Qed.
End Link.
Theorem layer : HEADS_layer.
Proof.
move=> S n g ok G ci co H D B P Wval Wout weight b b' on.
have out0 a : (0 < out_side g a)%N by rewrite /out_side addn1.
pose q0 : queries g := [ffun a => Ordinal (out0 a)].
split=> [E|[E bb] Z q o].
  have [] := @probe S n g ok G ci co (tap weight)
    (fun t c o => \sum_h B h t * merged Wval Wout h c o) b b' q0 => [Z o|V bb].
    by rewrite -conv_of_keys_tapE -(headsE ok Wval Wout b' Z q0 o on) E.
  by split=> // o; rewrite bb.
rewrite (headsE ok Wval Wout b' Z q o on) (conv_of_keys_tapE ok) /applied bb; congr (_ + _).
by apply: eq_bigr => t _; apply: eq_bigr => c _; rewrite E.
Qed.
