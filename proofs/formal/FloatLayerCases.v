(** * FLOAT: a mutant of the layer: a convolution that leaves out its bias *)
From Coq Require Import ZArith Reals Lra.
From mathcomp Require Import all_ssreflect.
From C2A Require Satisfiable.
From C2A Require Import Statements Sums L1 OnePixel FLOAT CutLayers ExactCases TokensCases.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.
Definition mutant_layer := forall n (g : geometry n), fits g -> forall emin p emin' p' : Z,
  (1 < p' <= p)%Z -> (emin <= emin' <= - p')%Z -> (emin <= - p)%Z ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals)
    (X : pixels g -> 'I_(G * ci) -> reals), bijective f ->
  let A := gradual emin p in let T := gradual emin' p' in
  (forall i c, representable T (X i c)) ->
  forall (e : H -> queries g -> keys g -> R) reciprocal (over : H -> queries g -> order (keys g)),
  (forall h q, each_once (fun _ => 1) (e h q) 0 (over h q)) ->
    (forall h q k, representable A (e h q k)) ->
  (forall h q k, if reads q (f h) k then e h q k = 1 else 0 <= e h q k <= power (emin' - 1)) ->
  INR #|{: keys g}| * roundoff A <= / 2 ->
  (forall h q, 2 * \big[Rplus/0]_(k | ~~ reads q (f h) k) e h q k <= roundoff A) ->
  let attention h q := computed_softmax A T reciprocal (e h q) (over h q) in
  forall (mix : H -> queries g -> 'I_(G * ci) -> order (keys g)),
  (forall h q c, each_once (attention h q) (fun k => zero_pad X k c) 0 (mix h q c)) ->
  let token h q c := evaluate A T id (attention h q) (fun k => zero_pad X k c) 0 (mix h q c) in
  forall A' T' cut' kappa' k' n' c' m' k N C M, limits A T 0 N -> limits A' T' kappa' n' ->
  forall q o (t : order (H * 'I_(G * ci))) (t' : order (taps g * 'I_(G * ci))),
  evaluation A T id 0 k N C M (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2)
    (b o) t ->
  let size := (\sum_t \sum_c Rabs (tap weight t c o) * Rabs (seen X q t c) + Rabs (b o))%R in
  Rabs (evaluate A T id (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t
        - evaluate A' T' cut' (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t')
  <= (growth A T 0 N C - 1 + (growth A' T' kappa' n' c' - 1)) * size
     + growth A T 0 N C * underflow A T k N M
       + growth A' T' kappa' n' c' * underflow A' T' k' n' m'.
Section Bias.
Let none (_ : 'I_(1 * 1)) (_ : nat) (_ : taps one_pixel) : reals := 0.
Let one_bias (_ : 'I_(1 * 1)) : reals := 1.
Let dark (_ : pixels one_pixel) (_ : 'I_(1 * 0)) : reals := 0.
Let A := gradual (-149) 24.
(** One head that attends to the one key of an image without channels: the layer is its bias. *)
Theorem mutant_layer_refuted : ~ mutant_layer.
Proof.
have idb : bijective (id : taps one_pixel -> taps one_pixel) by exists id.
have p1 : (1 < 24 <= 24)%Z by []. have r1 : (-149 <= -149 <= - 24)%Z by [].
have r2 : (-149 <= - 24)%Z by [].
have dark32 i (c : 'I_(1 * 0)) : representable A (dark i c) by case: c.
have once (h : taps one_pixel) (q : queries one_pixel) :
    each_once (fun _ => 1) (fun _ : keys one_pixel => 1) 0 (Product (here _ : keys one_pixel)).
  by split=> // -[k|] //; rewrite inE (hereE k) eqxx.
have stored (h : taps one_pixel) (q : queries one_pixel) (k : keys one_pixel) : representable A 1.
  exact: Satisfiable.one_format.
have hot (h : taps one_pixel) (q : queries one_pixel) (k : keys one_pixel) :
  if reads q (id h) k then 1 = 1 else 0 <= 1 <= power (-149 - 1) by rewrite all_read.
have u24 : roundoff A = / 16777216 by [].
have few : INR #|{: keys one_pixel}| * roundoff A <= / 2 by rewrite one_key u24 /=; lra.
have rest (h : taps one_pixel) (q : queries one_pixel) :
    2 * \big[Rplus/0]_(k : keys one_pixel | ~~ reads q (id h) k) (1 : R) <= roundoff A.
  by rewrite big_pred0 => [|k]; rewrite ?all_read // u24; lra.
move=> /(_ _ _ one_pixel_fits (-149)%Z 24%Z (-149)%Z 24%Z p1 r1 r2 1%N 0%N 1%N _ id none one_bias
  dark
  idb dark32 (fun _ _ _ => 1) false (fun _ _ => Product (here _ : keys one_pixel)) once stored hot
    few
  rest (fun _ _ _ => Zero _)).
have mixed (h : taps one_pixel) (q : queries one_pixel) (c : 'I_(1 * 0)) : each_once
  (computed_softmax A A false (fun _ : keys one_pixel => 1) (Product (here _ : keys one_pixel)))
  (fun k => zero_pad dark k c) 0 (Zero _) by case: c.
have one (i : taps one_pixel * 'I_(1 * 0)) : False by exact: no_channel i.
have sum1 (w x : taps one_pixel * 'I_(1 * 0) -> R) : evaluation A A id 0 0 1 0 0 w x 1 (Bias _).
  split; first by split=> //; [exact: Satisfiable.one_format | exact: bias_once].
  by split=> // i; case: (one i).
move=> /(_ mixed exact exact id 0 0%N 1%N 0%N 0%N 0%N 1%N 0%N 0%N (@Satisfiable.limitsA 1%N isT)
  (exact_limits 1) (here _) ord0 (Bias _) (Zero _) (sum1 _ _)).
cbv zeta; rewrite growth0 underflow0 /growth /underflow /gamma -/A u24 big1 => [|t _]; last first.
  by rewrite big1 // => -[].
by rewrite /one_bias /= Rminus_0_r Rabs_R1; lra.
Qed.
End Bias.
