(** * L2a: Lemma 2: the quadratic encoding

    Claim: With v = -alpha (1, -2 Delta) and r = (|delta|^2, delta), the score v . r is -alpha
    (|delta - Delta|^2 - |Delta|^2), in any number n of dimensions; the encoding has D_p = n + 1
    components.
    Source: Cordonnier et al. 2020, Lemma 2, Eqs. (9), (14); n dimensions: slides of Lau 2021.
    Does not show: Anything about floats: the expanded form loses the peak in low precision, so the
    code computes the squared distance from integers. *)
From Coq Require Import ZArith Lia Ring Ring_theory.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Score.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
(** Without content weights, only [v . r] is left of Eq. (8). *)
Lemma position_onlyE (Cin Dp : finType) (v r : Dp -> S) (xq xk : Cin -> S) :
  score (fun _ _ => 0) (fun _ _ => 0) identity (fun _ => 0) v xq xk r = \sum_p v p * r p.
Proof.
have zero_content (x : Cin -> S) : \sum_c x c * 0 = 0 by apply: big1 => c _; rewrite mul0r.
rewrite -[RHS]add0l; congr (_ + _); last first.
  by apply: eq_bigr => e _; rewrite -(sum_pickE e r); congr (mul _ _); apply: eq_bigr => p _;
    rewrite mulC.
have first : \sum_(e : Dp) (\sum_c xq c * 0) * (\sum_c xk c * 0) = 0.
  by apply: big1 => e _; rewrite zero_content mul0l.
have second : \sum_(e : Dp) (\sum_c xq c * 0) * (\sum_p r p * identity p e) = 0.
  by apply: big1 => e _; rewrite zero_content mul0l.
have third : \sum_(e : Dp) 0 * (\sum_c xk c * 0) = 0 by apply: big1 => e _; rewrite mul0l.
by rewrite first second third !add0l.
Qed.
Lemma quadratic_scoreE n (Cin : finType) alpha (offset delta : 'I_n -> S) (xq xk : Cin -> S) :
  quadratic_score alpha offset xq xk delta = centred_square alpha offset delta.
Proof.
rewrite /centred_square /quadratic_score position_onlyE sum_optionE /=.
transitivity (\sum_a (- alpha * (delta a * delta a) + alpha * ((1 + 1) * offset a) * delta a)).
  by rewrite big_split -big_distrr.
transitivity
  (- alpha *
  (\sum_a ((delta a - offset a) * (delta a - offset a) + (- (1)) * (offset a * offset a)))).
  by rewrite big_distrr; apply: eq_bigr => a _ /=; ring.
rewrite big_split -big_distrr /=.
rewrite -/(squared_norm offset) -/(squared_norm (fun a => delta a - offset a)); ring.
Qed.
End Score.

Theorem quadratic : L2a.
Proof.
split=> [S n Cin alpha offset delta xq xk|n]; first exact: quadratic_scoreE.
by rewrite card_option card_ord.
Qed.

Theorem wider_key_space : L2a_wide.
Proof.
move=> S n Cin D place inj alpha offset delta v Ev xq xk;
  rewrite -(quadratic_scoreE alpha offset delta xq xk).
rewrite /quadratic_score position_onlyE /score.
have zero_content (x : Cin -> S) : (\sum_c x c * 0 = 0)%num by apply: big1 => c _; rewrite mul0r.
have first (F : D -> S) : (\sum_e (\sum_c xq c * 0) * F e = 0)%num.
  by apply: big1 => e _; rewrite zero_content mul0l.
have third : (\sum_(e : D) 0 * (\sum_c xk c * 0) = 0)%num by apply: big1 => e _; rewrite mul0l.
rewrite !first third !add0l.
transitivity (\sum_e \sum_p v e * (encoding delta p * identity (place p) e))%num.
  by apply: eq_bigr => e _; rewrite big_distrr.
rewrite exchange_big /=; apply: eq_bigr => p _; rewrite -Ev.
rewrite (bigD1 (place p)) //= /identity eqxx big1 => [|e /negbTE]; first by rewrite mul1r add0r.
by rewrite eq_sym => ->; rewrite !mul0r.
Qed.

(** ** Instance

    Alpha = 3, Delta = (1, -2), delta = (2, 1): - 3 (1 + 9 - 5) = -15, whatever the tokens *)
Definition integer_pair (x y : Z) (a : 'I_2) : integers := if a == ord0 then x else y.
Theorem instance (Cin : finType) (xq xk : Cin -> integers) :
  quadratic_score (3%Z : integers) (integer_pair 1 (-2)) xq xk (integer_pair 2 1) = (-15)%Z.
Proof.
have [E _] := quadratic; rewrite [LHS](E integers 2 Cin 3%Z (integer_pair 1 (-2)) (integer_pair 2
  1)).
by rewrite /centred_square /squared_norm !big_ord_recl !big_ord0.
Qed.

(** ** Mutants

    The factor 2 of [v] forgotten; the sign of alpha, the sign of the centre or the constant wrong;
    alpha squared *)
Lemma at_oneE v expected : scores_as v expected -> forall alpha,
  (v integers 1%N alpha (fun _ => 1) None + v integers 1%N alpha (fun _ => 1) (Some ord0)
    = expected integers 1%N alpha (fun _ => 1) (fun _ => 1))%Z.
Proof.
move=> /(_ integers 1%N [finType of unit] _ (fun _ => 1%Z) (fun _ => 1%Z) (fun _ => 0%Z)
  (fun _ => 0%Z)) E alpha.
by rewrite -E position_onlyE sum_optionE /= /squared_norm !big_ord_recl !big_ord0 /=; lia.
Qed.
Ltac on_integers := rewrite /= /centred_square /squared_norm !big_ord_recl !big_ord0.
Definition mutant := scores_as
  (fun S n alpha offset p => if p is Some a then alpha * offset a else - alpha)%num centred_square.
Theorem mutant_refuted : ~ mutant.
Proof. by move=> /at_oneE /(_ 1%Z); on_integers. Qed.
Definition mutant_sign := scores_as direction (fun S n alpha offset delta =>
  alpha * (squared_norm (fun a => delta a - offset a) - squared_norm offset))%num.
Theorem mutant_sign_refuted : ~ mutant_sign.
Proof. by move=> /at_oneE /(_ 1%Z); on_integers. Qed.
Definition mutant_offset := scores_as direction (fun S n alpha offset delta =>
  - alpha * (squared_norm (fun a => delta a + offset a) - squared_norm offset))%num.
Theorem mutant_offset_refuted : ~ mutant_offset.
Proof. by move=> /at_oneE /(_ 1%Z); on_integers. Qed.
Definition mutant_constant := scores_as direction (fun S n alpha offset delta =>
  - alpha * squared_norm (fun a => delta a - offset a))%num.
Theorem mutant_constant_refuted : ~ mutant_constant.
Proof. by move=> /at_oneE /(_ 1%Z); on_integers. Qed.
Definition mutant_square := scores_as direction (fun S n alpha offset delta =>
  - (alpha * alpha) * (squared_norm (fun a => delta a - offset a) - squared_norm offset))%num.
Theorem mutant_square_refuted : ~ mutant_square.
Proof. by move=> /at_oneE /(_ 2%Z); on_integers. Qed.
