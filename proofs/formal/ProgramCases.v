(** * SPAN, ROW: instances and mutants of what the programs read, and of a refuted certificate *)
From Coq Require Import ZArith Reals Lra List.
From mathcomp Require Import all_ssreflect.
From C2A Require Checker Rows SPAN SpanLayers ROW.
From C2A Require Import Statements Sums L1 OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Files: three certificates of which one is wrong; a row of negative weights *)
Definition three_certificates : seq Z := Checker.written SPAN.first_alone
  ++ Checker.written (SPAN.both (-9)) ++ Checker.written (SPAN.both 9).
Lemma three_answers : Checker.answers 3 three_certificates = Some [:: true; true; false].
Proof. by vm_compute. Qed.
Theorem SPAN_instance : exists cs, three_certificates = List.concat (List.map Checker.written cs) /\
  [:: true; true; false] = List.map Checker.check cs.
Proof. exact: SPAN.reading three_answers. Qed.
Definition SPAN_mutant_right := forall n x answers, Checker.answers n x = Some answers ->
  exists cs, x = List.concat (List.map Checker.written cs) /\ answers = List.map (fun _ => true) cs.
Theorem SPAN_mutant_right_refuted : ~ SPAN_mutant_right.
Proof. by move=> /(_ _ _ _ three_answers) [[|a [|b [|c cs]]] []]. Qed.
Definition no_setting : Rows.setting := Rows.Setting 0 0 0 0 0 0 0 0 0 0.
Definition negative : Rows.row := Rows.Row (-1) 0 0 no_setting no_setting None.
Lemma negative_answers : Rows.answers 1 (Rows.written negative) = Some [:: None].
Proof. by vm_compute. Qed.
Theorem ROW_instance : exists rows,
  Rows.written negative = List.concat (List.map Rows.written rows) /\
  [:: None] = List.map Rows.answer rows.
Proof. by have [rows [read [answered _]]] := ROW.row_reading negative_answers; exists rows. Qed.
Definition ROW_mutant_any := forall n x answers, Rows.answers n x = Some answers -> exists rows,
  x = List.concat (List.map Rows.written rows) /\
  answers = List.map (fun r => Some (Rows.bound r)) rows.
Theorem ROW_mutant_any_refuted : ~ ROW_mutant_any.
Proof. by move=> /(_ _ _ _ negative_answers) [[|r rows] []]. Qed.

(** ** A head that attends to nothing is refuted; one that attends to the pixel is not *)
Section Far.
Variable z : Z.
Definition alleged := Checker.Certificate true 1 1 1 0 0 (-1) 1 1 [:: 1]%Z
  [:: Checker.Query [:: 1]%Z [:: [:: z]%Z] [:: 1]%Z].
Definition alleged_head (h : nat) (_ : queries one_pixel) (_ : pixels one_pixel) : reals :=
  if h == 0%N then IZR z else 0.
Lemma alleged_speaks (t : taps one_pixel) : speaks_of alleged_head t (fun _ => True) alleged.
Proof.
exists (fun _ => ord0); first by exists (fun _ => here _) => i; rewrite ?(hereE i) ?(ord1 i) //;
  exact/esym/hereE.
have same q (i : pixels one_pixel) : span_entry alleged [:: 1]%Z (ord0 : 'I_1)
    = shift (S := reals) t q i /\
    forall h, span_entry alleged (List.nth h [:: [:: z]%Z] nil) (ord0 : 'I_1) = alleged_head h q i.
  rewrite /shift all_see /span_entry /alleged_head /=; split; first by field.
  by case=> [|[|h]] /=; field.
split=> [q _|r [<-|[]]].
  by exists (Checker.Query [:: 1]%Z [:: [:: z]%Z] [:: 1]%Z); [left | exact: same].
by exists (here _) => //; exact: same.
Qed.
End Far.
Theorem SPAN_instance_far (t : taps one_pixel) :
  exists (X : pixels one_pixel -> 'I_(1 * 1) -> reals) q o,
  0 < Rabs (mhsa (fun h : 'I_1 => alleged_head 0 h : _ -> _ -> reals) (fun _ _ (_ : 'I_1) => 1)
    (fun _ _ _ => 1) (fun _ => 3) X q o - torch_conv (one_tap t) (fun _ => 4) X q o).
Proof.
have ok : Checker.check (alleged 0) = true by vm_compute.
have [|X [q [o [_ _ far]]]] := @SpanLayers.layers_far _ _ _ t _ _ ok erefl (alleged_speaks 0 t) 1%N
  (fun _ _ _ => 1) (fun _ _ _ => 1) (fun _ => 4) (fun _ => 3); first by [].
exists X, q, o; apply: Rle_lt_trans far; right; rewrite /=; field.
Qed.
Definition SPAN_mutant_alleged := forall n (g : geometry n) (P : nat -> queries g -> pixels g -> R)
    (t : taps g) (asked : queries g -> Prop) (c : Checker.certificate),
  Checker.refutes c = true -> speaks_of P t asked c ->
  forall (d : nat) (Wval : 'I_(Checker.heads c) -> 'I_(1 * 1) -> 'I_d -> reals)
    (Wout : 'I_(Checker.heads c) -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals),
  exists (X : pixels g -> 'I_(1 * 1) -> reals) q o, [/\ asked q, forall i k, Rabs (X i k) = 1 &
  0 < Rabs (mhsa (fun h : 'I_(Checker.heads c) => P h : _ -> _ -> reals) Wval Wout b' X q o
      - torch_conv (one_tap t) b X q o)].
Theorem SPAN_mutant_alleged_refuted : ~ SPAN_mutant_alleged.
Proof.
move=> /(_ _ _ _ (here _) _ (alleged 1) erefl (alleged_speaks 1 (here _)) 1%N (fun _ _ _ => 1)
  (fun _ _ _ => 1) (fun _ => 0) (fun _ => 0)) [X [q [o [_ _]]]].
rewrite (ord1 o) (@convE reals) /one_tap eqxx mhsaE big_ord_recl big_ord0 sum_one_channel.
rewrite (@sum_here reals (side one_pixel)) /merged big_ord_recl big_ord0 /alleged_head /=.
set x := X _ _; have -> : 1 * x * (1 * 1 + 0) + 0 + 0 - (x * 1 + 0) = 0 by ring.
by rewrite Rabs_R0; lra.
Qed.
