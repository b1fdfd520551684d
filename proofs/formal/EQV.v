(** * EQV: Without positions, equivariant

    Claim: If scores depend on the two tokens alone, shuffling the tokens shuffles the outputs of
    self-attention alike: it is equivariant. It is not invariant: the outputs at given places
    change.
    Source: Cordonnier et al. 2020, Section 2.1, Eqs. (1)-(3), its definition of equivariance
    corrected.
    Does not show: Translations of a relative encoding, under which a layer with positions is
    equivariant. *)
From Coq Require Import ZArith Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Theorem attention_shuffled : EQV_attention.
Proof.
move=> H K Cin s shuffle bij X h q k; rewrite /token_attention /softmax; congr (_ / _).
by rewrite [RHS](reindex shuffle) //=; exact: onW_bij.
Qed.
Theorem equivariant : EQV.
Proof.
move=> H K D Cin Cout s Wval Wout b shuffle bij X q o Y.
rewrite /mhsa; congr Rplus; apply: eq_bigr => h _; apply: eq_bigr => e _; congr Rmult.
apply: eq_bigr => c _; congr Rmult; rewrite [RHS](reindex shuffle) /=; last exact: onW_bij.
by apply: eq_bigr => k _; congr Rmult; exact: attention_shuffled.
Qed.

(** ** Instance

    Tokens 0 and 1, score 0 but for a token that looks at itself: ln 2. Outputs 1/3 and 2/3, which
    change places *)
Definition own_score (_ : unit) (x y : unit -> R) : R :=
  if Rle_dec (x tt) (y tt) then if Rle_dec (y tt) (x tt) then ln 2 else 0 else 0.
Definition tokens (k : bool) (_ : unit) : reals := if k then 1 else 0.
Definition unit_weights (_ _ _ : unit) : reals := 1.
Definition output_of (X : bool -> unit -> reals) (q : bool) : R :=
  mhsa (D := [finType of unit]) (token_attention own_score X) unit_weights unit_weights
    (fun _ : unit => 0 : reals) X q tt.
Lemma outputE X q : output_of X q = softmax (fun k => own_score tt (X q) (X k)) true * X true tt
  + softmax (fun k => own_score tt (X q) (X k)) false * X false tt.
Proof. by rewrite /output_of /mhsa /= !rsum_unitE big_bool /unit_weights /token_attention /=; ring.
  Qed.
Lemma bij_negb : bijective negb. Proof. by exists negb; case. Qed.
Lemma first_outputE : output_of tokens false = 1 / 3.
Proof.
rewrite outputE /softmax !big_bool /own_score /tokens; repeat (case: Rle_dec => ?; try lra).
by rewrite /= exp_0 exp_ln; lra.
Qed.
Lemma second_outputE : output_of tokens true = 2 / 3.
Proof.
rewrite outputE /softmax !big_bool /own_score /tokens; repeat (case: Rle_dec => ?; try lra).
by rewrite /= exp_0 exp_ln; lra.
Qed.
Theorem instance : output_of (fun k => tokens (negb k)) true = 1 / 3 /\
  output_of (fun k => tokens (negb k)) false = 2 / 3.
Proof. by rewrite /output_of !(equivariant own_score unit_weights unit_weights _ bij_negb)
  -!/(output_of _ _)
  first_outputE
  second_outputE. Qed.

Theorem not_invariant : EQV_not_invariant.
Proof.
exists own_score, tokens, negb; split; first exact: bij_negb.
move=> one_head Y H; have : output_of (fun k => tokens (negb k)) true = output_of tokens true by
  exact: H.
by have [-> _] := instance; rewrite second_outputE; lra.
Qed.

(** ** Mutants

    The same output, as the words after "that is" have it; attention that does not move, or moves by
    queries or by keys alone; a map of tokens that is no reordering *)
Definition mutant := outputs_move (fun K shuffle q => q).
Theorem mutant_refuted : ~ mutant.
Proof.
move=> H; have : output_of (fun k => tokens (negb k)) true = output_of tokens true.
  exact: (H _ _ _ _ _ own_score unit_weights unit_weights (fun _ => 0) _ bij_negb tokens true tt).
by have [-> _] := instance; rewrite second_outputE; lra.
Qed.
Definition reads_key (_ : unit) (_ y : unit -> R) : R := ln 2 * y tt.
Definition reads_both (_ : unit) (x y : unit -> R) : R := ln 2 * (x tt * y tt).
Ltac on_tokens := rewrite /token_attention /reads_key /reads_both /softmax !rsum_bool /tokens /=
  ?Rmult_0_l ?Rmult_0_r ?Rmult_1_l ?Rmult_1_r ?Rmult_0_r ?exp_0 ?(proj1 exp_ln2E); lra.
Definition mutant_fixed :=
  attention_moves (fun K => @bijective K K) (fun K shuffle q => q) (fun K shuffle k => k).
Theorem mutant_fixed_refuted : ~ mutant_fixed.
Proof. by move=> /(_ _ _ _ reads_key _ bij_negb tokens tt true true); on_tokens. Qed.
Definition mutant_queries :=
  attention_moves (fun K => @bijective K K) (fun K shuffle => shuffle) (fun K shuffle k => k).
Theorem mutant_queries_refuted : ~ mutant_queries.
Proof. by move=> /(_ _ _ _ reads_key _ bij_negb tokens tt true true); on_tokens. Qed.
Definition mutant_keys :=
  attention_moves (fun K => @bijective K K) (fun K shuffle q => q) (fun K shuffle => shuffle).
Theorem mutant_keys_refuted : ~ mutant_keys.
Proof. by move=> /(_ _ _ _ reads_both _ bij_negb tokens tt true true); on_tokens. Qed.
Definition mutant_any_map :=
  attention_moves (fun K f => True) (fun K shuffle => shuffle) (fun K shuffle => shuffle).
Theorem mutant_any_map_refuted : ~ mutant_any_map.
Proof. by move=> /(_ _ _ _ reads_key (fun _ => true) I tokens tt true true); on_tokens. Qed.
