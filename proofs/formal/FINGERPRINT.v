(** * FINGERPRINT: Equal fingerprints of different formulas, in part

    Claim: Two networks are evaluated over the product of k fields of primes, drawn from N primes of
    b bits without repetition after both are fixed; other operators are oracles: independent uniform
    functions into the product. Let every difference that is compared be a polynomial of degree at
    most D with a coefficient a / d, 0 < |a| <= 2^h, and no prime divide d. Two words of an oracle
    in the field of one prime, of 64 bits, agree for different arguments with chance at most
    2^(b-64), and at most D such pairs make a difference vanish. Then a pair of different values
    agrees with chance at most (D / 2^(b-1) + h / ((b-1) N) + D 2^(b-64))^k, and any of M values
    with at most M^2 / 2 times that. Equal fingerprints make two networks one formula but for this
    chance; unequal ones refute nothing. Formulas are rewritten before by laws of real functions:
    exp(z - m) = exp(z) / exp(m), exp(log w) = w, (e t) / (f t) = e / f; a maximum over windows of
    maxima is one over their union. That changes no function, and the chance is that of the formulas
    as rewritten.
    Source: this project; Schwartz 1980, Zippel 1979; Maclaurin's inequality for draws without
    repetition.
    Does not show: That multiply-xorshift words act as independent ones but for one pair that
    agrees: several at once are not counted. Maclaurin's inequality for more than two primes, and
    that runs with real and ideal oracles agree until two different arguments of one oracle are
    equal, are used as such. *)
From mathcomp Require Import all_ssreflect all_algebra.
From C2A Require Import Statements.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Matrices. Local Open Scope ring_scope.

Lemma value0 (F : finFieldType) n x : value (0 : polynomials F n) x = 0.
Proof. by case: n => //= n; rewrite map_poly0 horner0. Qed.

Lemma tuples_consE (T : finType) n (Q : pred (seq T)) :
  #|[set x : n.+1.-tuple T | Q x]| = (\sum_(y : n.-tuple T) #|[set a | Q (a :: y)]|)%N.
Proof.
pose glue (ay : n.-tuple T * T) : n.+1.-tuple T := [tuple of ay.2 :: ay.1].
have bij : bijective glue.
  exists (fun x : n.+1.-tuple T => ([tuple of behead x], thead x)) => [[y a]|x].
    by congr (_, _); apply: val_inj.
  by rewrite [RHS]tuple_eta; exact: val_inj.
rewrite -sum1_card (reindex glue) /=; last exact: onW_bij.
under [RHS]eq_bigr do rewrite -sum1_card.
by rewrite pair_big_dep /=; apply: eq_bigl => -[y a]; rewrite !inE.
Qed.

(** The leading coefficient of the first variable, a polynomial of the others, is 0 at few of their
    points; at each other at most as many values of the first are roots as it has exponents. *)
Theorem zeros : FINGERPRINT_zeros.
Proof.
move=> F; elim=> [|n IH] p p0.
  by rewrite (_ : [set _ | _] = set0) ?cards0 //; apply/setP => x; rewrite !inE (negbTE p0).
set q := #|F|; pose c : polynomials F n := lead_coef (p : {poly polynomials F n}).
have c0 : c != 0 by rewrite lead_coef_eq0.
pose k := (size (p : {poly polynomials F n})).-1.
have sz : size (p : {poly polynomials F n}) = k.+1.
  by rewrite prednK // lt0n size_poly_eq0.
have roots y : (#|[set a | value p (a :: y) == 0%R]| <= (value c y == 0%R) * q + k)%N.
  case: eqP => [_|/eqP cy].
    by rewrite mul1n; apply: leq_trans (max_card _) (leq_addr _ _).
  pose P : {poly F} := map_poly (fun d => value d y) (p : {poly polynomials F n}).
  have P0 : P != 0.
    apply: contra cy => /eqP E; have := congr1 (fun P : {poly F} => P`_k) E.
    by rewrite coef0 coef_map_id0 ?value0 // => ->.
  rewrite mul0n add0n -ltnS -sz cardE; apply: (@leq_trans (size P)); last exact: size_poly.
  apply: max_poly_roots P0 _ (enum_uniq _); apply/allP => a; rewrite mem_enum inE => root_a.
  exact: root_a.
have counted : (#|[set x : n.+1.-tuple F | value p x == 0%R]|
    <= #|[set y : n.-tuple F | value c y == 0%R]| * q + k * q ^ n)%N.
  rewrite (tuples_consE n (fun x => value p x == 0%R)).
  apply: (@leq_trans (\sum_(y : n.-tuple F) ((value c y == 0%R) * q + k))%N).
    by apply: leq_sum => y _; exact: roots.
  rewrite big_split /= -big_distrl /= sum_nat_const card_tuple -/q [(k * _)%N]mulnC leq_add2r.
  rewrite leq_mul2r -sum1_card big_mkcond /=; apply/orP; right; rewrite eq_leq //.
  by rewrite [RHS]big_mkcond; apply: eq_bigr => y _; rewrite inE; case: eqP.
have lead : (k + degree c <= degree p)%N.
  have lt : (k < size (p : {poly polynomials F n}))%N by rewrite sz.
  exact: (leq_bigmax (Ordinal lt) : _ <= \max_(i < size (p : {poly polynomials F n})) _)%N.
apply: leq_trans (leq_mul counted (leqnn _)) _.
apply: leq_trans (_ : (degree c * q ^ n * q + k * q ^ n * q <= _)%N); last first.
  by rewrite -mulnDl -mulnDl addnC -mulnA -expnSr leq_mul2r lead orbT.
by rewrite mulnDl leq_add2r leq_mul2r (IH _ c0) orbT.
Qed.

(** ** Instance: x over the field of five elements *)
Theorem instance : (#|[set x : 1.-tuple 'F_5 | value ('X : polynomials [finFieldType of 'F_5] 1) x
  == 0%R]| <= 1)%N.
Proof.
pose F := [finFieldType of 'F_5]; pose p : polynomials F 1 := 'X.
have p0 : p != 0 by rewrite polyX_eq0.
have D : degree p = 1%N.
  by rewrite /degree /= size_polyX !big_ord_recl big_ord0.
have := zeros p0; rewrite -[id (degree p)]/(degree p) D mul1n expn1 -[X in (_ <= X)%N]mul1n
  leq_pmul2r //.
by rewrite card_Fp.
Qed.

(** ** Mutants: also the polynomial 0; fewer zeros than the degree *)
Definition mutant := vanishes_if (fun F n p => true) id.
Theorem mutant_refuted : ~ mutant.
Proof.
pose F := [finFieldType of 'F_2]; move=> /(_ F 0%N 0 isT); rewrite /= mul0n leqn0 muln_eq0.
have -> : [set x : 0.-tuple F | (0 : F) == 0] = setT by apply/setP => x; rewrite !inE eqxx.
by rewrite cardsT card_tuple expn0 card_Fp.
Qed.
Definition mutant_fewer := vanishes_if (fun F n p => p != 0) predn.
Theorem mutant_fewer_refuted : ~ mutant_fewer.
Proof.
pose F := [finFieldType of 'F_2]; pose p : polynomials F 1 := 'X.
have p0 : p != 0 by rewrite polyX_eq0.
move=> /(_ F 1%N p p0); have -> : degree p = 1%N.
  by rewrite /degree /= size_polyX !big_ord_recl big_ord0.
rewrite mul0n leqn0 muln_eq0 card_Fp // orbF cards_eq0 => /eqP /setP /(_ [tuple 0]).
by rewrite !inE /= map_poly_id // hornerX eqxx.
Qed.
