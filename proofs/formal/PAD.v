(** * PAD: unpadded hard heads of an axis-aligned encoding are replicate padding

    Claim: of the keys of a box, the one nearest to any lattice point is its clamp, and no other is as near. So a hard
    quadratic head that looks outside the grid reads the border pixel that replicate padding puts there.
    Source: this project (E8); Cordonnier et al. 2020 say "SAME padding by default".
    Does not show: ... *)
From Coq Require Import Lia ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope Z_scope.

Lemma distance_ext n (x x' y y' : point n) : x =1 x' -> y =1 y' -> distance x y = distance x' y'.
Proof. by move=> Ex Ey; apply: eq_bigr => i _; rewrite Ex Ey. Qed.
Lemma distance_ge0 n (x y : point n) : 0 <= distance x y.
Proof.
rewrite /distance; elim/big_ind: _ => [|u v|i _]; [lia | exact: Z.add_nonneg_nonneg | exact: Z.square_nonneg].
Qed.
Lemma distance_gt0 n (x y : point n) i : x i <> y i -> 1 <= distance x y.
Proof.
move=> ne; rewrite /distance (bigD1 i) //=; set r := bigop _ _ _.
have r0 : 0 <= r.
  by rewrite /r; elim/big_ind: _ => [|u v|j _]; [lia | exact: Z.add_nonneg_nonneg | exact: Z.square_nonneg].
rewrite -[1]/(1 + 0); apply: Z.add_le_mono => //; nia.
Qed.

Section Clamp.
Variables (n : nat) (lo hi : point n).
Hypothesis lohi : forall i, lo i <= hi i.
Lemma clamp_inside x : inside lo hi (clamp lo hi x).
Proof. by move=> i; have := @lohi i; rewrite /clamp; lia. Qed.
(** Every key is farther than the clamp by at least its own squared distance from the clamp. *)
Lemma clamp_gap x y : inside lo hi y -> distance (clamp lo hi x) x + distance y (clamp lo hi x) <= distance y x.
Proof.
move=> Hy; rewrite /distance -big_split /=; apply: zsum_le => i _.
by have := @lohi i; have := Hy i; rewrite /clamp; nia.
Qed.
End Clamp.
