(** * STR: Stride by queries or by pooling

    Claim: Computing every query and then keeping one in stride (the paper's appended fixed pooling
    layer) equals computing only the strided queries, for any attention and any linear pooling; the
    second costs stride^-n of the first.
    Source: Cordonnier et al. 2020, Section 3, Stride.
    Does not show: The cost, which is counted and not proved. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Theorem selection : STR.
Proof. by []. Qed.

Section Pooling.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Lemma pooledE (Q Q' K H D Cin Cout : finType) (w : Q' -> Q -> S) (P : H -> Q -> K -> S)
  (Wval : H -> Cin -> D -> S)
    (Wout : H -> D -> Cout -> S) b X q' o : \sum_q w q' q = 1 ->
  \sum_q w q' q * mhsa P Wval Wout b X q o
    = mhsa (fun h q' k => \sum_q w q' q * P h q k) Wval Wout b X q' o.
Proof.
move=> one; rewrite [RHS]mhsaE.
transitivity
  (\sum_q (w q' q * (\sum_h \sum_c (\sum_k P h q k * X k c) * merged Wval Wout h c o)
  + w q' q * b o)).
  by apply: eq_bigr => q _; rewrite mhsaE; ring.
rewrite big_split /=; congr (_ + _); last by rewrite -big_distrl /= one mul1l.
under eq_bigr do rewrite big_distrr; rewrite exchange_big /=; apply: eq_bigr => h _.
under eq_bigr do rewrite big_distrr; rewrite exchange_big /=; apply: eq_bigr => c _.
under eq_bigr do rewrite mulA; rewrite -big_distrl; congr (_ * _) => /=.
under eq_bigr do rewrite big_distrr; rewrite exchange_big /=; apply: eq_bigr => k _.
by rewrite big_distrl; apply: eq_bigr => q _; rewrite mulA.
Qed.
End Pooling.
Theorem pooling : STR_pooling. Proof. exact: pooledE. Qed.

Section Unstrided.
Variables (n : nat) (g : geometry n).
Hypothesis ok : fits g.
Lemma strided_lt (q : queries g) a : q a * stride g a < out_side (unstrided g) a.
Proof.
have Hq : q a < (padded g a - dilation g a * (kernel g a - 1) - 1) %/ stride g a + 1 :=
  ltn_ord (q a).
move: (q a : nat) Hq => x; rewrite /out_side /= divn1 !addn1 !ltnS => Hq.
exact: leq_trans (leq_mul Hq (leqnn _)) (leq_trunc_div _ _).
Qed.
End Unstrided.

Theorem strided_convolution : STR_conv.
Proof.
move=> S n g ok q; exists [ffun a => Ordinal (strided_lt q a)]; split=> [a|G ci co weight b X o];
  first by rewrite ffunE.
congr (add _ _); apply: eq_bigr => t _; apply: eq_bigr => c _; congr (mul _ _); apply: eq_bigl => i.
by apply: eq_forallb => a; rewrite ffunE /= muln1.
Qed.

(** ** Instance: the outputs 15, 26, 37 of L1's small convolution, every second one *)
Theorem instance : [:: small_output (@small_query 2 0 isT); small_output (@small_query 2 1 isT)]
  = [:: small_output (@small_query 1 0 isT); small_output (@small_query 1 2 isT)]
  /\ exists q1 : queries (small 1), q1 ord0 = 2 :> nat /\ small_output (@small_query 2 1 isT)
    = small_output q1.
Proof.
split; first by rewrite /small_output !small_valueE !ffunE.
have [q1 [E same]] := strided_convolution integers (@small_fits 2 isT) (@small_query 2 1 isT).
by exists q1; split; [rewrite E ffunE | exact: same].
Qed.

(** ** Mutants

    The query of the same number, its stride forgotten; the queries' selection left out, or made of
    the keys; pooling by any weights, or by weights that sum to 1 over the outputs *)
Definition mutant := forall (S : numbers) n (g : geometry n), fits g ->
  forall (q : queries g) (q1 : queries (unstrided g)),
  (forall a, q1 a = q a :> nat) ->
  forall G ci co (weight : 'I_(G * co) -> nat -> taps g -> S) b
    (X : pixels g -> 'I_(G * ci) -> S) o,
    torch_conv weight b X q o = @torch_conv n (unstrided g) S G ci co weight b X q1 o.
Theorem mutant_refuted : ~ mutant.
Proof.
move=> /(_ integers 1 (small 2) (@small_fits 2 isT) (@small_query 2 1 isT) (@small_query 1 1 isT))
  H.
have same a : @small_query 1 1 isT a = @small_query 2 1 isT a :> nat by rewrite !ffunE.
have := H same 1 1 1 (@small_weight 2 1 10) small_bias (@small_image 2) ord0.
by rewrite small_valueE (@small_valueE 1 1 10) !ffunE.
Qed.
Definition one_layer (Q K : finType) (P : unit -> Q -> K -> integers) (b : Z) (q : Q) : integers :=
  mhsa P (fun _ _ _ : unit => 1%Z : integers) (fun _ _ _ : unit => 1%Z : integers) (fun _ => b)
    (fun _ _ => 1%Z) q tt.
Ltac on_layer := rewrite /one_layer /mhsa !sum_unitE ?sum_bool /=.
Definition mutant_queries := forall (S : numbers) (Q K H D Cin Cout : finType) (select : Q -> Q)
    (P : H -> Q -> K -> S) (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q o,
  mhsa (fun h q => P h (select q)) Wval Wout b X q o = mhsa P Wval Wout b X q o.
Theorem mutant_queries_refuted : ~ mutant_queries.
Proof.
move=> H; have : one_layer (fun _ q (_ : unit) => if ~~ q then 1%Z else 0%Z) 0 true
  = one_layer (fun _ (q : bool) (_ : unit) => if q then 1%Z else 0%Z) 0 true.
  exact: (H integers _ _ _ _ _ _ negb (fun _ q _ => if q then 1%Z else 0%Z)).
by on_layer.
Qed.
Definition mutant_keys := forall (S : numbers) (Q K H D Cin Cout : finType) (select : K -> K)
    (P : H -> Q -> K -> S) (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q o,
  mhsa (fun h q k => P h q (select k)) Wval Wout b X q o
    = mhsa P Wval Wout b (fun k => X (select k)) q o.
Theorem mutant_keys_refuted : ~ mutant_keys.
Proof.
move=> H; have : one_layer (fun _ (_ : unit) (_ : bool) => 1%Z) 0 tt
  = one_layer (fun _ (_ : unit) (k : bool) => if k then 1%Z else 0%Z) 0 tt.
  exact: (H integers _ _ _ _ _ _ (fun _ => true) (fun _ _ (k : bool) => if k then 1%Z else 0%Z)).
by on_layer.
Qed.
Lemma pools_zero allowed (Q Q' : finType) (w : Q' -> Q -> integers) q' : pools allowed ->
  allowed integers Q Q' w q' -> (forall q, w q' q = 0%Z) -> False.
Proof.
pose zeros (_ _ _ : unit) : integers := 0%Z.
move=> H ok w0; have := H integers Q Q' [finType of unit] [finType of unit] [finType of unit]
  [finType of unit] [finType of unit] w (fun _ _ _ => 0%Z) zeros zeros (fun _ => 1%Z)
  (fun _ _ => 0%Z) q' tt ok.
by rewrite sum0 => [|q _]; rewrite ?w0 // /mhsa !sum_unitE /zeros /= !Z.mul_0_r.
Qed.
Definition mutant_any_weights := pools (fun S Q Q' w q' => True).
Theorem mutant_any_weights_refuted : ~ mutant_any_weights.
Proof. by move=> /(@pools_zero _ unit_finType unit_finType (fun _ _ => 0%Z) tt); apply. Qed.
Definition mutant_transposed := pools (fun S Q Q' w q' => forall q, (\sum_q' w q' q = one)%num).
Theorem mutant_transposed_refuted : ~ mutant_transposed.
Proof.
move=> H; apply: (@pools_zero _ _ _ (fun q' (_ : unit) => if q' then 1 else 0)%Z false H).
  by move=> q; rewrite sum_bool.
by [].
Qed.
