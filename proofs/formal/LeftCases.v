(** * LEFT: instances and mutants of rows with keys left out

    The line of RowSatisfiable.v, whose heads leave out the neighbour of weight 2^-30; the row lets
    an exponential lose 2^-56. *)
From Coq Require Import Reals ZArith Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Checker Rows.
From C2A Require Import Statements Sums L1 FLOAT SOFT Satisfiable ROW RowSatisfiable LEFT.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.
Definition loss_of_line : Z := (2 ^ 200)%Z.
Lemma loss0 : (0 <= loss_of_line)%Z. Proof. by []. Qed.
Local Transparent Rows.one Rows.exp_down Rows.up Rows.mul Rows.geom Rows.sums_of.
Lemma cut_line_fits : Rows.fits (line_row true 2 loss_of_line) = true /\
  Rows.fits (line_row false 2 loss_of_line) = true.
Proof. by split; vm_compute. Qed.
Lemma cut_line_negative : (Rows.bound (line_row true below_nothing loss_of_line) < 0)%Z /\
  (Rows.bound (line_row false below_nothing loss_of_line) < 0)%Z.
Proof. by split; vm_compute. Qed.
Local Opaque Rows.one.
Definition ends_cut (h : T) (q : queries g1) (a : 'I_1) (j : 'I_(padded g1 a)) : R :=
  if j == key g1_fits q h a then 1 else 0.
Lemma exps_ends reach (h : T) (q : queries g1) target a : reads q (id h) target ->
  ends_left_out (line_heads true reach loss_of_line) A (target a)
    (fun j : 'I_(padded g1 a) => s h q a (Z.of_nat j - Z.of_nat (target a))%Z) (@ends_cut h q a).
Proof.
move=> rd; split=> //; exists (target a : nat), (target a).+1, (@x_along h q a).
split; [by rewrite leqnn ltnSn | exact: (@exps_along reach _ loss0 h q target a rd) |].
move=> j; move: rd; rewrite (readsE g1_fits) => /eqP ->; rewrite /ends_cut /x_along ltnS -eqn_leq.
by rewrite eq_sym val_eqE; case: (_ == _).
Qed.
Theorem instance_apart (X : pixels g1 -> 'I_(1 * 1) -> reals) (q0 : queries g1) :
  (forall k c, Rabs (zero_pad X k c) <= 1) ->
  exists computed convolution : R,
    Rabs (computed - convolution) <= dyadic (Rows.bound (line_row true 2 loss_of_line)).
Proof. exact: (apart_says LEFT.axis_after_axis q0 (@exps_ends 2) (proj1 cut_line_fits)). Qed.
Definition box_cut (h : T) (q : queries g1) (k : keys g1) : R :=
  if k == key g1_fits q h then 1 else 0.
Lemma exps_box reach (h : T) (q : queries g1) target : reads q (id h) target ->
  box_kept (line_heads false reach loss_of_line) A target (s h q) (box_cut h q).
Proof.
move=> rd; split=> //; exists (fun a => target a : nat), (fun a => (target a).+1), (x1 h q).
split; [by move=> a; rewrite leqnn ltnSn | exact: (@exps _ _ _ loss0 h q target rd) |].
move=> k; move: (rd); rewrite (readsE g1_fits) => /eqP E.
have -> : [forall a, target a <= k a < (target a).+1]%N = (k == target).
  apply/forallP/eqP => [same|-> a]; last by rewrite leqnn ltnSn.
  by apply/ffunP => a; apply: val_inj; apply/eqP; rewrite eq_sym eqn_leq -ltnS; exact: same.
by rewrite /box_cut -E; case: eqP => [->|//]; rewrite x1E rd.
Qed.
Theorem instance_whole (X : pixels g1 -> 'I_(1 * 1) -> reals) (q0 : queries g1) :
  (forall k c, Rabs (zero_pad X k c) <= 1) ->
  exists computed convolution : R,
    Rabs (computed - convolution) <= dyadic (Rows.bound (line_row false 2 loss_of_line)).
Proof. exact: (whole_says LEFT.at_once q0 (@exps_box 2) (proj2 cut_line_fits)). Qed.

(** ** Mutants: any numbers are a row, whether or not they fit *)
Definition mutant_apart := apart_left_out (fun _ => true).
Theorem mutant_apart_refuted : ~ mutant_apart.
Proof.
move=> /(@apart_says below_nothing loss_of_line _ _ (@ends_cut)) says.
have [x [y]] := says _ first_query (@exps_ends below_nothing) erefl no_image.
exact: (not_negative (proj1 cut_line_negative)).
Qed.
Definition mutant_whole := whole_left_out (fun _ => true).
Theorem mutant_whole_refuted : ~ mutant_whole.
Proof.
move=> /(@whole_says _ _ below_nothing loss_of_line box_cut) says.
have [x [y]] := says _ first_query (@exps_box below_nothing) erefl no_image.
exact: (not_negative (proj2 cut_line_negative)).
Qed.
