(** * SPAN: what a confirmed certificate says of layers

    The two ends of the robust Lemma 3 for the certificates of [Checker]: [SPAN_near] and [SPAN_far]
    of Statements.v. *)
From Coq Require Import Reals ZArith List Lra Classical.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums OnePixel Checker SPAN L3.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** What weights leave of a certificate's row is what they leave of the shift. *)
Lemma leftE n (g : geometry n) (P : nat -> Statements.queries g -> pixels g -> R) t q
    (c : certificate) (number : pixels g -> 'I_(keys c)) (r : query) (phi : 'I_(heads c) -> R) :
  bijective number ->
  (forall i, span_entry c (target r) (number i) = shift (S := reals) t q i /\
    forall h, span_entry c (List.nth h (rows r) nil) (number i) = P h q i) ->
  leaves (fun h : 'I_(heads c) => P h : _ -> _ -> reals) t phi q = span_left phi r.
Proof.
move=> bij same; rewrite /span_left (reindex number) /=; last exact: onW_bij.
apply: eq_bigr => i _; have [-> rows_same] := same i.
by congr (Rabs (_ - _)); apply: eq_bigr => h _; rewrite rows_same.
Qed.

Theorem layers_near : SPAN_near.
Proof.
move=> n g ci co d N P asked c wide all.
have serves t : exists phi : 'I_N -> R, forall q, asked q ->
  leaves (fun h : 'I_N => P h : _ -> _ -> reals) t phi q
    <= (IZR (eps (c t)) + IZR (per_norm (c t)) * \sum_h Rabs (phi h)) / IZR (limit_scale (c t)).
  have [ok kind <- [number bij [every _]]] := all t.
  have := confirmed ok; rewrite kind => -[phi [_ left]]; exists phi => q asked_q.
  by have [r inr same] := every q asked_q; rewrite (leftE phi bij same); exact: left.
have [Phi small] := fin_all_exists serves; exists Phi => weight b.
have [Wval [Wout [_ near]]] :=
  L3.near (fun h : 'I_N => P h : _ -> _ -> reals) wide Phi weight b.
by exists Wval, Wout => q asked_q; exact: near (fun t => small t q asked_q).
Qed.

Theorem layers_far : SPAN_far.
Proof.
move=> n g P t asked c ok kind [number bij [_ each]] d Wval Wout b b' phi norm.
have no := confirmed ok; rewrite kind in no.
set away := (_ / _); pose attention (h : 'I_(heads c)) : _ -> _ -> reals := P h.
have lt (psi : 'I_(heads c) -> R) : psi = phi ->
    exists2 q, asked q & away < leaves attention t psi q.
  move=> ->; apply: NNPP => none; apply: no; exists phi; split=> // r inr.
  have [q asked_q same] := each r inr; rewrite -(leftE phi bij same).
  by apply: Rnot_lt_le => more; apply: none; exists q.
exact: (@L3.far _ _ _ _ _ _ _ _ lt _ Wval Wout b b' erefl).
Qed.

(** ** Instance: the head that is the shift of one pixel, on a grid without axes *)
Definition own_certificate := Certificate false 1 1 1 0 0 (-1) 1 1 [:: 1]%Z
  [:: Query [:: 1]%Z [:: [:: 1]%Z] nil].
Definition shift_head (h : nat) (_ : Statements.queries one_pixel) (_ : pixels one_pixel) : reals :=
  if h == 0%N then 1 else 0.
Lemma own_speaks (s : taps one_pixel) : speaks_of shift_head s (fun _ => True) own_certificate.
Proof.
pose x : pixels one_pixel := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
exists (fun _ => ord0); first by exists (fun _ => x) => i; [apply/ffunP; case | rewrite (ord1 i)].
have same q (i : pixels one_pixel) : span_entry own_certificate [:: 1]%Z (ord0 : 'I_1) = shift (S :=
  reals) s q i /\
    forall h, span_entry own_certificate (List.nth h [:: [:: 1]%Z] nil) (ord0 : 'I_1)
      = shift_head h q i.
  have -> : shift (S := reals) s q i = 1.
    by rewrite /shift; have -> : sees (g := one_pixel) q s i by apply/forallP; case.
  by rewrite /span_entry /shift_head /=; split; [field | case=> [|[|h]] /=; field].
split=> [q _|r [<-|[]]]; first by exists (Query [:: 1]%Z [:: [:: 1]%Z] nil); [left | exact: same].
by exists [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))] => //; exact: same.
Qed.
Theorem instance (weight : 'I_(1 * 1) -> nat -> taps one_pixel -> reals) :
  exists (Wval : 'I_1 -> 'I_(1 * 1) -> 'I_1 -> reals) (Wout : 'I_1 -> 'I_1 -> 'I_(1 * 1) -> reals),
  forall X q o, (forall i c, Rabs (X i c) <= 1) ->
  mhsa (fun h : 'I_1 => shift_head h) Wval Wout (fun _ => 0) X q o
  = torch_conv weight (fun _ => 0) X q o.
Proof.
have all s : [/\ check own_certificate = true, refutes own_certificate = false, heads
  own_certificate = 1%N &
    speaks_of shift_head s (fun _ => True) own_certificate] by split; last exact: own_speaks.
have [Phi near] := layers_near (c := fun _ => own_certificate) (isT : minn 1 1 <= 1)%N all.
have [Wval [Wout same]] := near weight (fun _ => 0).
exists Wval, Wout => X q o small; have := same q I X 1 Rle_0_1 small o.
rewrite big1 => [|s _]; first by rewrite Rmult_0_r => le;
  apply: Rminus_diag_uniq; move: le; rewrite /Rabs; case: Rcase_abs => /= *; lra.
by rewrite /id /= Rmult_0_l Rplus_0_l /Rdiv Rmult_0_l Rmult_0_l.
Qed.

(** ** Mutant: what a certificate lets through costs nothing

    A head that attends to nothing, and a certificate that lets a whole pixel through. *)
Definition mutant := span_near_with (fun _ => 0).
(** The head's layer is its bias, and [L3.far] has an image at which that is not the shift. *)
Theorem mutant_refuted : ~ mutant.
Proof.
pose g : geometry 0 := Geometry (fun _ => 0%N) (fun _ => 0%N) (fun _ => 0%N) (fun _ => 0%N)
  (fun _ => 0%N) (fun _ => 0%N).
pose x : box (fun _ : 'I_0 => 0%N) := [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
pose t : taps g := x; pose P (_ : nat) (_ : Statements.queries g) (_ : pixels g) : R := 0.
pose c := Certificate false 1 1 1 1 0 (-1) 1 1 [:: 1]%Z [:: Query [:: 1]%Z [:: [:: 0]%Z] nil].
have one_box (i : box (fun _ : 'I_0 => 0%N)) : i = x by apply/ffunP; case.
have seen s q i : shift (S := reals) (g := g) s q i = 1.
  by rewrite /shift; have -> : sees (g := g) q s i by apply/forallP; case.
have speaks s : speaks_of P s (fun _ => True) c.
  exists (fun _ => ord0); first by exists (fun _ => x) => i; rewrite ?(one_box i) ?(ord1 i).
  have same q i : span_entry c [:: 1]%Z (ord0 : 'I_1) = shift (S := reals) s q i /\
      forall h, span_entry c (List.nth h [:: [:: 0]%Z] nil) (ord0 : 'I_1) = P h q i.
    rewrite seen /span_entry /P /=; split; first by field.
    by case=> [|[|h]] /=; field.
  split=> [q _|r [<-|[]]]; first by exists (Query [:: 1]%Z [:: [:: 0]%Z] nil); [left | exact: same].
  by exists [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))] => //; exact: same.
have all s : [/\ check c = true, refutes c = false, heads c = 1%N &
    speaks_of P s (fun _ => True) c].
  by split.
move=> /(_ 0%N g 1%N 1%N 1%N 1%N P (fun _ => True) (fun _ => c) isT all) [Phi].
move=> /(_ (one_tap t) (fun _ => 0)) [Wval [Wout near]].
pose Q (h : 'I_1) : _ -> _ -> reals := P h.
have away phi : True -> exists2 q, True & 0 < leaves Q t phi q.
  exists [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))] => //; apply: Rlt_le_trans Rlt_0_1 _.
  have E i : Rabs (shift (S := reals) t [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))] i
      - \sum_h phi h * Q h [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))] i) = 1.
    by rewrite seen big1 => [|h _]; [rewrite Rminus_0_r Rabs_R1 | exact: Rmult_0_r].
  rewrite /leaves (eq_bigr (fun _ => 1)) => [|i _]; last exact: E.
  by apply: (@rsum_term_le _ (fun _ => 1) (x : pixels g)) => j; exact: Rle_0_1.
have [X [q [o [_ one lt]]]] := @L3.far _ _ _ _ _ _ _ _ away _ Wval Wout (fun _ => 0) (fun _ => 0) I.
have := near q I X 1 Rle_0_1 (fun i k => Req_le _ _ (one i k)) o.
rewrite big1 => [|s _]; last exact: Rmult_0_l.
by rewrite Rmult_0_r => le; exact: (Rlt_not_le _ _ lt le).
Qed.
