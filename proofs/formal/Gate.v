(** * L2c: a gated head, as ConViT has them *)
From Coq Require Import Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L2c.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

Theorem gated : L2c_gate.
Proof.
move=> n g alpha [g0 g1] a0 K pos ok target content c0.
have := L2c.share a0 ok target; have := c0 target.
set c := content target; set p := quadratic_head _ _ _ _; set t := / _ => c_ge p_ge.
by have : 0 <= (1 - g) * c by [apply: Rmult_le_pos; lra]; nra.
Qed.

(** ** Instance: half of the attention by content, on one key *)
Theorem instance (content : unit -> R) : (forall k, 0 <= content k) ->
  1 - ((1 - / 2) * content tt + / 2 * quadratic_head (fun (_ : unit) (_ : 'I_0) => 0%Z) 1
    (fun _ => 0%Z) tt) <= / 2.
Proof.
move=> c0; have ok : grid (fun (_ : unit) (_ : 'I_0) => 0%Z) by case=> -[].
have half : 0 <= / 2 <= 1 by lra.
have := gated half Rlt_0_1 ok tt c0; rewrite /= Rinv_1; lra.
Qed.

(** ** Mutant: attention by content leaks nothing *)
Definition mutant_gate := gate_leaks (fun g leak => g * leak).
Theorem mutant_gate_refuted : ~ mutant_gate.
Proof.
have ok : grid (fun (_ : unit) (_ : 'I_0) => 0%Z) by case=> -[].
have none : 0 <= 0 <= 1 by lra.
move=> /(_ _ _ _ none Rlt_0_1 _ _ ok tt (fun _ => 0) (fun _ => Rle_refl 0)).
by rewrite !Rmult_0_r !Rmult_0_l; lra.
Qed.
