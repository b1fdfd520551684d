(** * GQ, EQV, STR, AND, POS, GRAD: instances and mutants of their other theorems *)
From Coq Require Import ZArith Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require GQ EQV STR Masks POS GRAD.
From C2A Require Import Statements Sums OnePixel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** GQ: the precision 1 on three keys in a line *)
Theorem GQ_instance : let s k := generalised_score (fun _ _ : 'I_1 => 1)
    (fun a => IZR (ends None a)) (fun a => IZR (ends k a)) in
  s (Some true) < s None.
Proof.
have one : definite (fun _ _ : 'I_1 => 1) 1.
  by split=> [|x]; [lra | rewrite /bilinear !big_ord_recl !big_ord0; lra].
by have [peak _] := GQ.peak_and_share one ends_grid None; exact: peak.
Qed.

(** ** EQV: two tokens that change places *)
Theorem EQV_instance X q k :
  token_attention EQV.own_score (fun k => X (negb k)) tt q k
  = token_attention EQV.own_score X tt (negb q) (negb k).
Proof. exact: (EQV.attention_shuffled _ EQV.bij_negb). Qed.

(** ** STR: the weights 2 and -1 *)
Definition two_minus_one (q' : unit) (q : bool) : integers := if q then 2%Z else (-1)%Z.
Definition unit_integers (_ _ _ : unit) : integers := 1%Z.
Theorem STR_instance (P : unit -> bool -> unit -> integers) (X : unit -> unit -> integers) :
  (\sum_q two_minus_one tt q * mhsa P unit_integers unit_integers (fun _ => 3%Z : integers) X q tt
   = mhsa (fun h q' k => \sum_q two_minus_one q' q * P h q k) unit_integers unit_integers (fun _ =>
     3%Z : integers) X
     tt tt)%num.
Proof.
apply: (@STR.pooling integers _ _ _ _ _ _ _ two_minus_one P unit_integers unit_integers _ X tt tt).
by rewrite sum_bool.
Qed.

(** ** AND: one of two inputs is masked *)
Definition half_masked (k : bool) : option R := if k then None else Some 0.
Theorem AND_instance_masks : masked_softmax half_masked true = 0 /\
  masked_softmax (fun k => rectified (half_masked k)) true <> 0.
Proof.
have [zero never] := Masks.masks half_masked 1; split; last exact: never.
by have [] := zero true erefl.
Qed.

(** ** POS: two positions give any scores; content moves the scores of two tokens by 1 at most; and
    positions that are all zero give no head *)
Theorem POS_instance_features : exists Wqry Wkey : bool -> unit -> R, forall q k,
  stock_score Wqry Wkey 3 (token POS.basis_position POS.nothing (fun _ _ => 0)) q k = 5.
Proof.
have three : 3 <> 0 by lra.
have [Wqry [Wkey E]] := POS.any_features (conj POS.free three) (fun _ (_ : unit) => 1)
  (fun _ _ => 5).
by exists Wqry, Wkey => q k; rewrite E rsum_unitE Rmult_1_l.
Qed.
Theorem POS_instance_content (s : bool -> R) :
  1 - softmax (fun k => s k + (if k then 1 else -1)) true <= exp 2 * (1 - softmax s true).
Proof.
have small (k : bool) : Rabs (if k then 1 else -1) <= 1.
  by case: k; rewrite ?Rabs_R1 ?Rabs_left; lra.
by have := POS.content s true small; rewrite Rmult_1_r.
Qed.
Definition POS_mutant_any := forall n (K I D : finType) (position : K -> D -> R)
    (content : I -> D -> R) (place : K -> 'I_n -> R) (alpha scale : R) (offset : 'I_n -> R),
  scale <> 0 -> exists Wqry Wkey : D -> option 'I_n -> R, forall (a : K -> I -> R) q,
  let away k b := place k b - place q b - offset b in
  softmax (stock_score Wqry Wkey scale (token position content a) q) =1 softmax
    (fun k => - alpha * dot (away k) (away k)).
Theorem POS_mutant_any_refuted : ~ POS_mutant_any.
Proof.
move=> /(_ 1%N bool_finType void_finType unit_finType (fun _ _ => 0) (fun _ _ => 0)
  (fun k _ => if k then 1 else 0) (ln 2) 1 (fun _ => 1) R1_neq_R0) [Wqry [Wkey E]].
have := E (fun _ _ => 0) false true; rewrite /softmax !rsum_bool /dot !big_ord_recl !big_ord0.
have zero q k : stock_score Wqry Wkey 1 (token (fun (_ : bool) (_ : unit) => 0)
    (fun (_ : void) _ => 0) (fun _ _ => 0)) q k = 0.
  rewrite /stock_score big1 => [|e _]; first by rewrite /Rdiv Rmult_0_l.
  by rewrite /token !rsum_unitE big1 => [|[]] //; ring.
rewrite !zero; have -> : - ln 2 * ((1 - 0 - 1) * (1 - 0 - 1) + 0) = 0 by ring.
have -> : - ln 2 * ((0 - 0 - 1) * (0 - 0 - 1) + 0) = - ln 2 by ring.
by rewrite exp_0 (proj2 exp_ln2E); lra.
Qed.

(** ** GRAD: one pixel of value 1 whose weight is the time *)
Definition bright (_ : pixels one_pixel) (_ : 'I_(1 * 1)) : reals := 1.
Theorem GRAD_instance : derivable_pt_lim (fun t : R => mhsa (full_attention (1 : reals))
  (times (t : reals)) (@OnePixel.output reals) (bias (0 : reals)) (zero_pad bright)
  (here _) ord0) 0 1.
Proof.
have [_] := GRAD.gradients one_pixel_fits (fun _ => bias (0 : reals))
  (fun _ => bright) (same_bijective _) (@attention_hard reals)
  (fun t => @merged_times reals t) (here _) ord0 0 1; apply.
have E (t : R) : torch_conv (weighs (t : reals)) (bias (0 : reals)) bright
    (here (out_side one_pixel)) ord0 = t by rewrite convE /weighs /bias /bright /=; ring.
move=> eps e0; have [d near] := derivable_pt_lim_id 0 eps e0.
by exists d => h h0 hd; rewrite !E; exact: near h0 hd.
Qed.
