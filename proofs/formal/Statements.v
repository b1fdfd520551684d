(** * What is claimed: definitions only, nothing is proved in this file.

    A reader who believes these definitions need not read any other file of this folder but
    Checker.v and Rows.v, the programs that SPAN and ROW are about: every theorem has as its type
    one of the names below, and [check.py] asks Coq which axioms it rests on. The order is that of
    the paper (Cordonnier, Loukas, Jaggi, ICLR 2020; its equations are cited by number): numbers,
    the layer, the convolution, the softmax, and then one group of statements a claim. Where a
    statement is an instance of a predicate, its mutants are others: false variants, refuted in the
    file of the claim.

    Index sets are finite types, so a tensor is a function: [X k c] is channel [c] of the token at
    key [k], and each statement holds for all sizes at once. Always offset = key - query, as in
    PyTorch's cross-correlation; Lemma 1 of the paper prints the opposite sign (E4). Scores never
    depend on [X], which the paper assumes silently (E12). *)
From Coq Require Import ZArith Reals Ring_theory.
From mathcomp Require Import all_ssreflect.
From mathcomp Require ssralg ssrint ssrnum rat poly finalg matrix mxalgebra.
From Flocq Require Core.
From C2A Require Checker Rows.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(** ** Numbers: any commutative ring; the reals and the integers are two *)
Record numbers := Numbers {
  number :> Type; zero : number; one : number;
  add : number -> number -> number; mul : number -> number -> number;
  sub : number -> number -> number; opp : number -> number;
  laws : ring_theory zero one add mul sub opp eq }.
Arguments zero {_}. Arguments one {_}.
Definition reals : numbers := Numbers RTheory.
Definition integers : numbers := Numbers Zth.


Declare Scope num_scope. Delimit Scope num_scope with num. Bind Scope num_scope with number.
Notation "x + y" := (add x y) : num_scope.
Notation "x - y" := (sub x y) : num_scope.
Notation "x * y" := (mul x y) : num_scope.
Notation "- x" := (opp x) : num_scope.
Notation "0" := zero : num_scope.
Notation "1" := one : num_scope.
Notation "\sum_ ( i | P ) F" := (\big[@add _/zero]_(i | P) F%num) : num_scope.
Notation "\sum_ ( i : T | P ) F" := (\big[@add _/zero]_(i : T | P) F%num) : num_scope.
Notation "\sum_ ( i : T ) F" := (\big[@add _/zero]_(i : T) F%num) : num_scope.
Notation "\sum_ i F" := (\big[@add _/zero]_i F%num) : num_scope.
Notation "\sum_ i F" := (\big[Rplus/0%R]_i F%R) : R_scope.
Notation "\prod_ i F" := (\big[Rmult/1%R]_i F%R) : R_scope.

(** ** The layer of the paper *)
Section Layer.
Variable S : numbers.
Local Open Scope num_scope.

(** Eqs. (1), (4), (6), (11): heads [h] with attention probabilities [P h q k]; [W_val] of head [h]
    maps channel [c] to component [e] of the head, rows [(h, e)] of [W_out] map the concatenated
    heads to output channel [o]. *)
Definition mhsa (Q K H D Cin Cout : finType) (P : H -> Q -> K -> S) (Wval : H -> Cin -> D -> S)
    (Wout : H -> D -> Cout -> S) (b : Cout -> S) (X : K -> Cin -> S) (q : Q) (o : Cout) : S :=
  \sum_h \sum_e (\sum_c (\sum_k P h q k * X k c) * Wval h c e) * Wout h e o + b o.

(** Entry [(c, o)] of the matrix [W_val W_out] of head [h], called [W^(h)] in Eq. (11). *)
Definition merged (H D Cin Cout : finType) (Wval : H -> Cin -> D -> S)
  (Wout : H -> D -> Cout -> S) h c o : S :=
  \sum_e Wval h c e * Wout h e o.

(** Eq. (8): the score of a query token [xq] and a key token [xk] whose displacement has the
    encoding [r]. *)
Definition score (Cin D Dp : finType) (Wqry Wkey : Cin -> D -> S) (Wpos : Dp -> D -> S)
  (u v : D -> S)
    (xq xk : Cin -> S) (r : Dp -> S) : S :=
  \sum_e (\sum_c xq c * Wqry c e) * (\sum_c xk c * Wkey c e)
  + \sum_e (\sum_c xq c * Wqry c e) * (\sum_p r p * Wpos p e)
  + \sum_e u e * (\sum_c xk c * Wkey c e)
  + \sum_e v e * (\sum_p r p * Wpos p e).

(** Lemma 2: [D_p = n + 1] components, [None] the first one; [r = (|delta|^2, delta)], [v = - alpha
    (1, - 2 Delta)], [W_qry = W_key = 0] and the identity for the weights of the encoding. *)
Section Quadratic.
Variable n : nat.
Implicit Types delta offset : 'I_n -> S.
Definition squared_norm delta : S := \sum_a delta a * delta a.
Definition encoding delta (p : option 'I_n) : S :=
  if p is Some a then delta a else squared_norm delta.
Definition direction (alpha : S) offset (p : option 'I_n) : S :=
  if p is Some a then alpha * ((1 + 1) * offset a) else - alpha.
Definition identity (D : finType) (p e : D) : S := if p == e then 1 else 0.
Definition quadratic_score (Cin : finType) alpha offset (xq xk : Cin -> S) delta : S :=
  score (fun _ _ => 0) (fun _ _ => 0) (@identity _) (fun _ => 0) (direction alpha offset) xq xk
    (encoding delta).
End Quadratic.
End Layer.
Arguments identity {S D}.

(** ** The convolution as PyTorch computes it, Conv1d, Conv2d, Conv3d and beyond *)
Record geometry (n : nat) :=
  Geometry { side : 'I_n -> nat; kernel : 'I_n -> nat; stride : 'I_n -> nat;
  dilation : 'I_n -> nat; before : 'I_n -> nat; after : 'I_n -> nat }.
Definition box n (size : 'I_n -> nat) := {dffun forall a, 'I_(size a)}.

Section Geometry.
Variables (n : nat) (g : geometry n).
Definition padded a := before g a + side g a + after g a.
Definition out_side a := (padded a - dilation g a * (kernel g a - 1) - 1) %/ stride g a + 1.
Definition fits := forall a,
  [/\ 0 < stride g a, 0 < dilation g a, 0 < kernel g a & dilation g a * (kernel g a - 1)
    < padded a].
Definition pixels := box (side g).
Definition keys := box padded.
Definition queries := box out_side.
Definition taps := box (kernel g).

(** Tap [t] of output [q] reads this key of the padded grid. *)
Definition reads (q : queries) (t : taps) (k : keys) :=
  [forall a, k a == q a * stride g a + t a * dilation g a :> nat].
(** The same key, where it is a pixel of the image. *)
Definition sees (q : queries) (t : taps) (i : pixels) :=
  [forall a, before g a + i a == q a * stride g a + t a * dilation g a :> nat].

(** offset = key - query: output [q] asks from [site q], tap [t] looks [offset t] away. *)
Definition centre a : nat := dilation g a * ((kernel g a - 1) %/ 2).
Definition site (q : queries) a : Z := Z.of_nat (q a * stride g a + centre a).
Definition offset (t : taps) a : Z := (Z.of_nat (t a * dilation g a) - Z.of_nat (centre a))%Z.
Definition position (k : keys) a : Z := Z.of_nat (k a).

Variable S : numbers.
Local Open Scope num_scope.

(** Zero padding, the explicit linear map in front of the keys. *)
Definition zero_pad (Cin : finType) (X : pixels -> Cin -> S) (k : keys) (c : Cin) : S :=
  \sum_(i : pixels | [forall a, k a == (before g a + i a)%N :> nat]) X i c.

(** PyTorch: [weight] has shape (out channels, in channels / groups, *kernel); outside the image [X]
    counts as zero; output channel [o] reads the [ci] input channels of its group [o %/ co]. *)
Variables (G ci co : nat) (weight : 'I_(G * co) -> nat -> taps -> S) (bias : 'I_(G * co) -> S).
Definition torch_conv (X : pixels -> 'I_(G * ci) -> S) (q : queries) (o : 'I_(G * co)) : S :=
  \sum_(t : taps) \sum_(c : 'I_(G * ci) | c %/ ci == o %/ co)
    (\sum_(i | sees q t i) X i c) * weight o (c %% ci) t + bias o.
(** The matrix of tap [t], block-diagonal in the groups; [W_(delta, :, :)] of Eq. (5). *)
Definition tap (t : taps) (c : 'I_(G * ci)) (o : 'I_(G * co)) : S :=
  if c %/ ci == o %/ co then weight o (c %% ci) t else 0.
End Geometry.

(** The convolution without padding of any tokens [Z] on the padded grid: what PyTorch computes of
    an image that was padded in whichever mode, cropped, or stuffed with zeros beforehand. *)
Definition conv_of_keys n (g : geometry n) (S : numbers) (G ci co : nat)
  (weight : 'I_(G * co) -> nat -> taps g -> S)
    (bias : 'I_(G * co) -> S) (Z : keys g -> 'I_(G * ci) -> S) (q : queries g) (o : 'I_(G * co)) : S
      :=
  (\sum_(t : taps g) \sum_(c : 'I_(G * ci) | c %/ ci == o %/ co)
     (\big[@add S/zero]_(k | reads q t k) Z k c) * weight o (c %% ci)%N t + bias o)%num.
(** Eq. (10): head [h] puts all its attention on the key that tap [f h] reads. *)
Definition hard n (g : geometry n) (S : numbers) (H : finType) (f : H -> taps g)
  (P : H -> queries g -> keys g -> S) :=
  forall h q k, P h q k = if reads q (f h) k then one else zero.

(** ** The softmax, over the real numbers *)
Definition softmax (K : finType) (s : K -> R) (k : K) : R := (exp (s k) / \sum_j exp (s j))%R.
Definition one_hot (K : finType) (target k : K) : R := (if k == target then 1 else 0)%R.
Definition point n := 'I_n -> Z.
Definition distance n (x y : point n) : Z := \big[Z.add/0%Z]_a ((x a - y a) * (x a - y a))%Z.
(** Keys at distinct points of the integer lattice: any finite grid, with holes if need be. *)
Definition grid (K : finType) n (pos : K -> point n) := forall k k', pos k =1 pos k' -> k = k'.
(** The attention of a head that looks at [target]; by L2a, that of the quadratic encoding. *)
Definition quadratic_head (K : finType) n (pos : K -> point n) (alpha : R) (target : point n) : K ->
  R :=
  softmax (fun k => - alpha * IZR (distance (pos k) target))%R.
(** A softmax whose scores may be minus infinity, [None]: a mask. *)
Definition masked_weight (s : option R) : R := if s is Some x then exp x else 0%R.
Definition masked_softmax (K : finType) (s : K -> option R) (k : K) : R :=
  (masked_weight (s k) / \sum_j masked_weight (s j))%R.
Definition leaky (slope : R) (s : option R) : option R :=
  omap (fun x => if Rle_dec 0 x then x else slope * x)%R s.
Definition rectified (s : option R) : option R := Some (if s is Some x then Rmax 0 x else 0%R).
(** The bound [1 + 2 / (e^alpha - 1)] on the theta series of [e^-alpha]. *)
Definition theta_bound (alpha : R) : R := (1 + 2 / (exp alpha - 1))%R.

(** * L1: hard heads are a convolution *)
(** Heads in bijection with the taps: that of tap [t] attends to the key of tap [looks t]. *)
Definition convolves (looks : forall n (g : geometry n), taps g -> taps g) :=
  forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard (fun h => looks n g (f h)) P ->
  (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall X q o, mhsa P Wval Wout b (zero_pad X) q o = torch_conv weight b X q o.
Definition L1 := convolves (fun n g t => t).
(** Zero padding was one map in front of the keys; Lemma 1 holds for any other, so for tokens [Z] of
    any origin ... *)
Definition L1_any := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard f P -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall Z q o, mhsa P Wval Wout b Z q o = conv_of_keys weight b Z q o.
(** ... of which zero padding is one. *)
Definition L1_zero_pad := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S)
    (X : pixels g -> 'I_(G * ci) -> S) q o,
  conv_of_keys weight b (zero_pad X) q o = torch_conv weight b X q o.

(** PyTorch's other modes of padding: which coordinate of an image of side [s] stands at [z], by how
    much each may pad, and the map that this makes in front of the keys. *)
Definition replicated (s z : Z) : Z := Z.max 0 (Z.min (s - 1) z).
Definition reflected (s z : Z) : Z :=
  (if z <? 0 then - z else if s - 1 <? z then 2 * (s - 1) - z else z)%Z.
Definition wrapped (s z : Z) : Z := (if z <? 0 then z + s else if s - 1 <? z then z - s else z)%Z.
Definition may_pad (mode : Z -> Z -> Z) (side before after : nat) :=
  0 < side /\ (mode = replicated \/ (mode = reflected /\ before < side /\ after < side) \/
    (mode = wrapped /\ before <= side /\ after <= side)).
Definition source n (g : geometry n) (mode : Z -> Z -> Z) (k : keys g) (i : pixels g) :=
  [forall a, Z.eqb (Z.of_nat (i a))
    (mode (Z.of_nat (side g a)) (Z.of_nat (k a) - Z.of_nat (before g a))%Z)].
(** Each key shows exactly one pixel, so hard heads behind such a map give the convolution of the
    image padded in that mode. *)
Definition L1_modes := forall (S : numbers) n (g : geometry n) mode, fits g ->
  (forall a, may_pad mode (side g a) (before g a) (after g a)) ->
  (forall k, exists! i, source mode (g := g) k i) /\
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard f P -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall X q o, let padded k c := \big[@add S/zero]_(i | source mode k i) X i c in
    mhsa P Wval Wout b padded q o = conv_of_keys weight b padded q o.

(** PyTorch's transposed convolution: pixel [i] adds its value times [weight] of shape (in channels,
    out channels / groups, kernel) to output [i * stride + t * dilation - padding], for each tap
    [t]; outputs outside are cut off. [side] is that of the image and [out] that of the output, so
    that [output_padding] and [output_size] are covered, and a padding that crops. *)
Section Transposed.
Variables (n : nat) (side out kernel stride dilation padding : 'I_n -> nat).
Definition adds (i : box side) (t : box kernel) (q : box out) :=
  [forall a, i a * stride a + t a * dilation a == q a + padding a :> nat].
Definition torch_conv_transpose (S : numbers) (G ci co : nat)
  (weight : 'I_(G * ci) -> nat -> box kernel -> S)
    (b : 'I_(G * co) -> S) (X : box side -> 'I_(G * ci) -> S) (q : box out) (o : 'I_(G * co)) : S :=
  (\sum_(t : box kernel) \sum_(c : 'I_(G * ci) | c %/ ci == o %/ co)
     (\big[@add S/zero]_(i | adds i t q) X i c) * weight c (o %% co)%N t + b o)%num.
(** The keys: as many as a convolution without padding needs for [out] outputs, and the image in
    them, stuffed with zeros. *)
Definition stuffed_grid : geometry n :=
  Geometry (fun a => out a + dilation a * (kernel a - 1)) kernel (fun _ => 1) dilation (fun _ => 0)
  (fun _ => 0).
Definition stuffs (i : box side) (k : keys stuffed_grid) :=
  [forall a, i a * stride a + dilation a * (kernel a - 1) == k a + padding a :> nat].
Definition stuff (S : numbers) (Cin : finType) (X : box side -> Cin -> S) (k : keys stuffed_grid)
  (c : Cin) : S :=
  \big[@add S/zero]_(i : box side | stuffs i k) X i c.
Definition flipped (t : box kernel) : box kernel := [ffun a => rev_ord (t a)].
End Transposed.
(** The transposed convolution is a convolution of the stuffed image with the taps flipped, at the
    same outputs; so (by L1_any) hard heads in bijection with the taps, that of tap [t] reading as
    tap [flipped t], give it. *)
Definition L1_transposed := forall (S : numbers) n
  (side out kernel stride dilation padding : 'I_n -> nat),
  (forall a, [/\ 0 < out a, 0 < kernel a & 0 < dilation a]) -> let g :=
    stuffed_grid out kernel dilation in
  fits g /\ exists same : queries g -> box out,
    [/\ bijective same, forall q a, same q a = q a :> nat &
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * ci) -> nat -> box kernel -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard f P ->
  (forall h c o, merged Wval Wout h c o = if c %/ ci == o %/ co then weight c (o %% co)
    (flipped (f h)) else zero) ->
  forall X q o, mhsa P Wval Wout b (@stuff n side out kernel stride dilation padding S _ X) q o
    = torch_conv_transpose stride dilation padding weight b X (same q) o].
(** Every tap of every output reads exactly one key of the padded grid ... *)
Definition L1_total := forall n (g : geometry n), fits g -> forall (q : queries g) (t : taps g),
  exists! k, reads q t k.
(** ... the one at the tap's offset from the query's site: key - query. *)
Definition offset_is (from_key_and_query : Z -> Z -> Z) :=
  forall n (g : geometry n) (q : queries g) (t : taps g) (k : keys g),
  reads q t k <-> forall a, from_key_and_query (position k a) (site q a) = offset t a.
Definition L1_offset := offset_is Z.sub.

(** * STR: a stride is a selection of queries *)
Definition STR := forall (S : numbers) (Q Q' K H D Cin Cout : finType) (select : Q' -> Q)
  (P : H -> Q -> K -> S)
    (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q' o,
  mhsa (fun h q => P h (select q)) Wval Wout b X q' o = mhsa P Wval Wout b X (select q') o.
(** Any linear pooling of the queries whose weights sum to 1 is a layer with pooled attention. *)
Definition pools (allowed : forall (S : numbers) (Q Q' : finType), (Q' -> Q -> S) -> Q' -> Prop) :=
  forall (S : numbers) (Q Q' K H D Cin Cout : finType) (w : Q' -> Q -> S) (P : H -> Q -> K -> S)
    (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q' o, allowed S Q Q' w q' ->
  (\sum_q w q' q * mhsa P Wval Wout b X q o
    = mhsa (fun h q' k => \sum_q w q' q * P h q k) Wval Wout b X q' o)%num.
Definition STR_pooling := pools (fun S Q Q' w q' => (\sum_q w q' q = 1)%num).
Definition unstrided n (g : geometry n) :=
  Geometry (side g) (kernel g) (fun _ => 1) (dilation g) (before g) (after g).
(** The strided convolution at [q] is the convolution with stride 1 at [q * stride], which
    exists. *)
Definition STR_conv := forall (S : numbers) n (g : geometry n), fits g ->
  forall (q : queries g), exists q1 : queries (unstrided g),
    (forall a, q1 a = q a * stride g a :> nat) /\
  forall G ci co (weight : 'I_(G * co) -> nat -> taps g -> S) b
    (X : pixels g -> 'I_(G * ci) -> S) o,
    torch_conv weight b X q o = @torch_conv n (unstrided g) S G ci co weight b X q1 o.

(** * L2: the quadratic encoding *)
(** L2a, Eq. (14): [quadratic_score], which is the score with this [v], for every [X]; and the
    encoding has [D_p = n + 1] dimensions. *)
Definition scores_as (v : forall (S : numbers) n, S -> ('I_n -> S) -> option 'I_n -> S)
    (expected : forall (S : numbers) n, S -> ('I_n -> S) -> ('I_n -> S) -> S) :=
  forall (S : numbers) n (Cin : finType) (alpha : S) (offset delta : 'I_n -> S) (xq xk : Cin -> S),
  score (fun _ _ => zero) (fun _ _ => zero) (@identity _ _) (fun _ => zero) (v S n alpha offset)
    xq xk (encoding delta) = expected S n alpha offset delta.
Definition centred_square (S : numbers) n (alpha : S) (offset delta : 'I_n -> S) : S :=
  (- alpha * (squared_norm (fun a => delta a - offset a) - squared_norm offset))%num.
Definition L2a := scores_as direction centred_square /\ forall n, #|{: option 'I_n}| = n.+1.

(** The key space may be wider than the encoding: its weights put component [p] at [place p], and
    [v] is anything elsewhere. *)
Definition L2a_wide := forall (S : numbers) n (Cin D : finType) (place : option 'I_n -> D),
  injective place ->
  forall (alpha : S) (offset delta : 'I_n -> S) (v : D -> S),
    (forall p, v (place p) = direction alpha offset p) ->
  forall xq xk : Cin -> S,
  score (fun _ _ => zero) (fun _ _ => zero) (fun p e => identity (place p) e)
    (fun _ => zero) v xq xk (encoding delta) = centred_square alpha offset delta.

(** L2b: the limit, uniformly over all finite grids that contain the target ... *)
Definition L2b := forall n (eps : R), (0 < eps)%R -> exists alpha0 : R, forall alpha,
  (alpha0 < alpha)%R ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target k,
  (Rabs (quadratic_head pos alpha (pos target) k - one_hot target k) <= eps)%R.
(** ... and for any scores with a strict, hence unique, maximum. *)
Definition maximum (below : R -> R -> Prop) (K : finType) (s : K -> R) (target : K) :=
  forall k, k != target -> below (s k) (s target).
Definition near_one_hot (K : finType) (s : K -> R) (target : K) (alpha eps : R) :=
  forall k, (Rabs (softmax (fun j => alpha * s j) k - one_hot target k) <= eps)%R.
Definition sharpens_if (below : R -> R -> Prop) :=
  forall (K : finType) (s : K -> R) (target : K), maximum below s target ->
  forall eps : R, (0 < eps)%R -> exists alpha0 : R, forall alpha, (alpha0 < alpha)%R ->
  near_one_hot s target alpha eps.
Definition L2b_scores := sharpens_if Rlt.

(** The rate: this alpha leaves at most [eps] off the target, whatever the size of the grid. *)
Definition rate_is (exp_alpha : nat -> R -> R) :=
  forall n (eps alpha : R), (0 < eps)%R -> (0 < alpha)%R -> (ln (exp_alpha n eps) <= alpha)%R ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target,
  (1 - quadratic_head pos alpha (pos target) target <= eps)%R.
Definition L2b_rate := rate_is (fun n eps => 1 + 2 * INR n / eps)%R.

(** L2c: the target's share at a finite alpha, and that its inverse is at most this. *)
Definition shares (allowed : forall (K : finType) n, (K -> point n) -> Prop)
    (at_most : R -> R -> Prop) (inverse : nat -> R -> R) :=
  forall n (alpha : R), (0 < alpha)%R ->
  forall (K : finType) (pos : K -> point n), allowed K n pos -> forall target,
  at_most (/ inverse n alpha)%R (quadratic_head pos alpha (pos target) target).
Definition L2c := shares grid Rle (fun n alpha => theta_bound alpha ^ n)%R.

(** The nearest point of the box [lo, hi], axis by axis. *)
Definition clamp n (lo hi x : point n) : point n := fun a => Z.max (lo a) (Z.min (hi a) (x a)).
Definition inside n (lo hi x : point n) := forall a, (lo a <= x a <= hi a)%Z.
(** The same bound for a target outside a box of keys: the share of its clamp. *)
Definition L2c_clamp := forall n (alpha : R), (0 < alpha)%R ->
  forall (lo hi : point n) (K : finType) (pos : K -> point n), grid pos ->
    (forall k, inside lo hi (pos k)) ->
  forall (target : point n) nearest, pos nearest =1 clamp lo hi target ->
  (/ theta_bound alpha ^ n <= quadratic_head pos alpha target nearest)%R.

(** So the rate of L2b holds for the clamp, too. *)
Definition L2b_clamp := forall n (eps alpha : R), (0 < eps)%R -> (0 < alpha)%R ->
  (ln (1 + 2 * INR n / eps) <= alpha)%R ->
  forall (lo hi : point n) (K : finType) (pos : K -> point n), grid pos ->
    (forall k, inside lo hi (pos k)) ->
  forall (target : point n) nearest, pos nearest =1 clamp lo hi target ->
  (1 - quadratic_head pos alpha target nearest <= eps)%R.

(** The sum of [e^(s z)] over all integers [z], as a limit. *)
Definition over_integers (s : Z -> R) (total : R) := exists right left,
  infinite_sum (fun m => exp (s (Z.of_nat m))) right /\
    infinite_sum (fun m => exp (s (- Z.of_nat m - 1)%Z)) left /\
  total = (right + left)%R.
(** The theta series of [e^-alpha] has a sum, and [theta_bound] is not less. *)
Definition L2c_theta := forall alpha : R, (0 < alpha)%R ->
  exists theta, over_integers (fun z => - alpha * IZR (z * z))%R theta /\
    (1 <= theta <= theta_bound alpha)%R.
(** So with it, for any scores that are a sum over the axes: one alpha for each axis, real centres,
    whatever has a sum; with [s a z = - alpha z^2] the share is [theta^-n]. *)
Definition L2c_axes := forall n (s : 'I_n -> Z -> R) (total : 'I_n -> R),
  (forall a, over_integers (s a) (total a)) ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target,
  (\prod_a (exp (s a 0%Z) / total a) <= softmax (fun k => \sum_a s a (pos k a - pos target a)%Z)
    target)%R.

(** For a quadratic score with its centre at [f] such a sum exists. *)
Definition centred (alpha f : R) (z : Z) : R := (- alpha * (IZR (z * z) - 2 * IZR z * f))%R.
Definition L2c_series := forall alpha f : R, (0 < alpha)%R -> exists total,
  over_integers (centred alpha f) total.
(** One alpha for each axis and a real centre, between keys or off the grid, for any keys of a box:
    the share of the key nearest to it, where [m] is the lattice point nearest to the centre and [f]
    goes from there to it. *)
Definition L2c_centre := forall n (alpha centre total : 'I_n -> R) (m : point n),
  (forall a,
    [/\ 0 < alpha a, Rabs (centre a - IZR (m a)) <= / 2 &
    over_integers (centred (alpha a) (centre a - IZR (m a))) (total a)])%R ->
  forall (lo hi : point n) (K : finType) (pos : K -> point n), grid pos ->
    (forall k, inside lo hi (pos k)) ->
  forall nearest, pos nearest =1 clamp lo hi m ->
  (\prod_a / total a
    <= softmax
    (fun k => \sum_a - alpha a * ((IZR (pos k a) - centre a) * (IZR (pos k a) - centre a)))
    nearest)%R.

Section Gate.
Local Open Scope R_scope.
(** A gated head attends by position with the share [g] and by content with the rest: what it leaks
    is at most the rest, and [g] times the leak. *)
Definition gate_leaks (most : R -> R -> R) := forall n (g alpha : R), 0 <= g <= 1 -> 0 < alpha ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target (content : K -> R),
  (forall k, 0 <= content k) ->
  1 - ((1 - g) * content target + g * quadratic_head pos alpha (pos target) target)
    <= most g (1 - / theta_bound alpha ^ n).
Definition L2c_gate := gate_leaks (fun g leak => (1 - g) + g * leak).
End Gate.

(** L2d: over a box, the softmax of a sum over the axes is the product of the softmaxes of the axes,
    for real centres, one sharpness an axis, and whatever else a sum over the axes may be. *)
Definition L2d := forall n (size : 'I_n -> nat) (s : forall a, 'I_(size a) -> R) (k : box size),
  softmax (fun j : box size => \sum_a s a (j a))%R k = (\prod_a softmax (s a) (k a))%R.

(** Mixing by it is mixing axis after axis: [K1] holds the axes before, [K2] the next one. *)
Definition mixes_apart (joined : R -> R -> R) (weigh : forall K : finType, (K -> R) -> K -> R) :=
  forall (K1 K2 : finType) (s1 : K1 -> R) (s2 : K2 -> R) (X : K1 * K2 -> R),
  (\sum_k softmax (fun k => joined (s1 k.1) (s2 k.2)) k * X k
    = \sum_k2 softmax s2 k2 * (\sum_k1 weigh K1 s1 k1 * X (k1, k2)))%R.
Definition L2d_mixing := mixes_apart Rplus softmax.
(** Over a box: [y a.+1] is [y a] mixed along axis [a], by the weights of that axis for the keys on
    the line through [q]. After all axes each pixel is the mean by the softmax over the box. *)
Definition along n (size : 'I_n -> nat) (a : 'I_n) (w : 'I_(size a) -> R) (q k : box size) : R :=
  (if [forall b, (b == a) || (k b == q b)] then w (k a) else 0)%R.
Definition mixes_along (weigh : forall K : finType, (K -> R) -> K -> R) :=
  forall n (size : 'I_n -> nat) (s : forall a, 'I_(size a) -> R) (X : box size -> R)
    (y : nat -> box size -> R),
  (forall q, y 0 q = X q) ->
  (forall (a : 'I_n) q, y a.+1 q = \sum_k along (weigh _ (s a)) q k * y a k)%R ->
  forall q, (y n q = \sum_k softmax (fun j : box size => \sum_a s a (j a)) k * X k)%R.
Definition L2d_axes := mixes_along softmax.

(** L2e: the same attention from inner products of absolute features [(2 alpha (q + Delta), -
    alpha)], [(k, |k|^2)]. *)
Section Absolute.
Local Open Scope R_scope.
Definition dot n (x y : 'I_n -> R) : R := \sum_a x a * y a.
Definition query_feature n (alpha : R) (q offset : 'I_n -> R) (p : option 'I_n) : R :=
  if p is Some a then 2 * alpha * (q a + offset a) else - alpha.
Definition key_feature n (k : 'I_n -> R) (p : option 'I_n) : R :=
  if p is Some a then k a else dot k k.
Definition features_give (attend : forall K : finType, (K -> R) -> K -> R)
    (query : forall n, R -> ('I_n -> R) -> ('I_n -> R) -> option 'I_n -> R)
    (expected : forall n, R -> ('I_n -> R) -> ('I_n -> R) -> ('I_n -> R) -> R) :=
  forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R) (q offset : 'I_n -> R),
  attend K (fun k => \sum_p query n alpha q offset p * key_feature (pos k) p)
  =1 attend K (fun k => expected n alpha q offset (pos k)).
Definition square_score n (alpha : R) (q offset k : 'I_n -> R) : R :=
  - alpha * dot (fun a => k a - q a - offset a) (fun a => k a - q a - offset a).
Definition L2e := features_give softmax query_feature square_score.
(** Centring the coordinates at any [m] changes nothing. *)
Definition centring (of_queries : R -> R) :=
  forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R) (q offset m : 'I_n -> R),
  softmax (fun k => \sum_p query_feature alpha (fun a => q a - of_queries (m a)) offset p
    * key_feature (fun a => pos k a - m a) p)
  =1 softmax (fun k => \sum_p query_feature alpha q offset p * key_feature (pos k) p).
Definition L2e_centred := centring id.
End Absolute.

(** * GQ: the generalised quadratic encoding *)
Section Generalised.
Local Open Scope R_scope.
(** The precision of a head, symmetric, and its score at the displacement [delta], for a centre
    [offset]. *)
Definition bilinear n (M : 'I_n -> 'I_n -> R) (x y : 'I_n -> R) : R :=
  \sum_i \sum_j M i j * (x i * y j).
Definition symmetric n (M : 'I_n -> 'I_n -> R) := forall i j, M i j = M j i.
Definition generalised_score n (M : 'I_n -> 'I_n -> R) (offset delta : 'I_n -> R) : R :=
  - (/ 2 * bilinear M (fun a => delta a - offset a) (fun a => delta a - offset a)).
(** It is an inner product of the numbers [delta_i] and [delta_i delta_j], [i <= j], but for a
    constant of the head. *)
Definition generalised_as
    (expected : forall n, ('I_n -> 'I_n -> R) -> ('I_n -> R) -> ('I_n -> R) -> R) :=
  forall n (M : 'I_n -> 'I_n -> R), symmetric M -> forall offset delta,
  generalised_score M offset delta = expected n M offset delta.
Definition linear_part n (M : 'I_n -> 'I_n -> R) (offset delta : 'I_n -> R) : R :=
  \sum_i (\sum_j M i j * offset j) * delta i.
Definition pairs_part (diagonal : R) n (M : 'I_n -> 'I_n -> R) (delta : 'I_n -> R) : R :=
  \big[Rplus/0]_(i : 'I_n) \big[Rplus/0]_(j : 'I_n | (i <= j)%N)
    ((if i == j then - (diagonal * M i i) else - M i j) * (delta i * delta j)).
Definition GQ := generalised_as (fun n M offset delta =>
  linear_part M offset delta + pairs_part (/ 2) M delta - / 2 * bilinear M offset offset).
Definition definite n (M : 'I_n -> 'I_n -> R) (lambda : R) := 0 < lambda /\ forall x,
  lambda * (\sum_i x i * x i) <= bilinear M x x.
(** If it is at least [lambda] times the identity and the centre is a key, that key is the only
    peak, with the share of an isotropic head of alpha = [lambda / 2]. *)
Definition GQ_peak := forall n (M : 'I_n -> 'I_n -> R) lambda, definite M lambda ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target,
  let s k := generalised_score M (fun a => IZR (pos target a)) (fun a => IZR (pos k a)) in
  (forall k, k != target -> s k < s target) /\
  forall theta, over_integers (fun z => - (lambda / 2) * IZR (z * z)) theta ->
    / theta ^ n <= softmax s target.
End Generalised.

(** * EQV: attention without positions *)
(** Scores of the two tokens alone: shuffled tokens give the outputs shuffled alike. *)
Section Equivariance.
Local Open Scope R_scope.
Definition token_attention (H K Cin : finType) (s : H -> (Cin -> R) -> (Cin -> R) -> R)
  (X : K -> Cin -> R) (h : H) (q k : K) : reals :=
  softmax (fun k => s h (X q) (X k)) k.
Definition attention_moves (allowed : forall K : finType, (K -> K) -> Prop)
    (query key : forall K : finType, (K -> K) -> K -> K) :=
  forall (H K Cin : finType) (s : H -> (Cin -> R) -> (Cin -> R) -> R) (shuffle : K -> K),
  allowed K shuffle -> forall (X : K -> Cin -> R) h q k,
  token_attention s (fun k => X (shuffle k)) h q k
    = token_attention s X h (query K shuffle q) (key K shuffle k).
Definition EQV_attention :=
  attention_moves (fun K => @bijective K K) (fun K shuffle => shuffle) (fun K shuffle => shuffle).
Definition outputs_move (query : forall K : finType, (K -> K) -> K -> K) :=
  forall (H K D Cin Cout : finType) (s : H -> (Cin -> R) -> (Cin -> R) -> R)
    (Wval : H -> Cin -> D -> reals) (Wout : H -> D -> Cout -> reals) b (shuffle : K -> K),
  bijective shuffle -> forall (X : K -> Cin -> reals) q o, let Y k := X (shuffle k) in
  mhsa (token_attention s Y) Wval Wout b Y q o
    = mhsa (token_attention s X) Wval Wout b X (query K shuffle q) o.
Definition EQV := outputs_move (fun K shuffle => shuffle).
(** Which is not to give the same output: E16. *)
Definition EQV_not_invariant := exists (s : unit -> (unit -> R) -> (unit -> R) -> R)
  (X : bool -> unit -> reals) (shuffle : bool -> bool),
  bijective shuffle /\ let one_head _ _ _ : reals := 1 in let Y k := X (shuffle k) in
  mhsa (D := [finType of unit]) (token_attention s Y) one_head one_head
    (fun _ : unit => 0) Y true tt
  <> mhsa (D := [finType of unit]) (token_attention s X) one_head one_head
    (fun _ : unit => 0) X true tt.
End Equivariance.

(** * POS: absolute positions of full row rank *)
Section Positions.
Local Open Scope R_scope.
(** The tokens of a stock transformer: a position, and content in a space of its own. *)
Definition linearly_independent (I D : finType) (v : I -> D -> R) :=
  forall a : I -> R, (forall d, \sum_i a i * v i d = 0) -> forall i, a i = 0.
Definition either (K I D : finType) (position : K -> D -> R) (content : I -> D -> R) (x : K + I)
  : D -> R :=
  match x with inl k => position k | inr i => content i end.
Definition token (K I D : finType) (position : K -> D -> R) (content : I -> D -> R)
  (a : K -> I -> R) (k : K) (d : D) : R :=
  position k d + \sum_i a k i * content i d.
(** Its scores: queries and keys of width [E], divided by [scale]. *)
Definition stock_score (K D E : finType) (Wqry Wkey : D -> E -> R) (scale : R) (x : K -> D -> R)
  (q k : K) : R :=
  (\sum_e (\sum_d x q d * Wqry d e) * (\sum_d x k d * Wkey d e)) / scale.
(** If positions and content are linearly independent, weights of any width [E] give any queries [f]
    and keys [g], whatever the content; ... *)
Definition gives_features (K I D : finType) (position : K -> D -> R) (content : I -> D -> R)
  (scale : R) :=
  forall (E : finType) (f g : K -> E -> R), exists Wqry Wkey : D -> E -> R,
    forall (a : K -> I -> R) q k,
  stock_score Wqry Wkey scale (token position content a) q k = \sum_e f q e * g k e.
Definition features_if
    (allowed : forall K I D : finType, (K -> D -> R) -> (I -> D -> R) -> R -> Prop) :=
  forall (K I D : finType) (position : K -> D -> R) (content : I -> D -> R) scale,
  allowed K I D position content scale -> gives_features position content scale.
Definition POS_features := features_if (fun K I D position content scale =>
  linearly_independent (either position content) /\ scale <> 0).
(** ... so weights of width [n + 1] give a quadratic head with any centre and sharpness, exactly, at
    all tokens. *)
Definition POS := forall n (K I D : finType) (position : K -> D -> R) (content : I -> D -> R),
  linearly_independent (either position content) ->
  forall (place : K -> 'I_n -> R) (alpha scale : R) (offset : 'I_n -> R), scale <> 0 ->
  exists Wqry Wkey : D -> option 'I_n -> R, forall (a : K -> I -> R) q,
  let away k b := place k b - place q b - offset b in
  softmax (stock_score Wqry Wkey scale (token position content a) q) =1 softmax
    (fun k => - alpha * dot (away k) (away k)).
(** Scores that content moves by at most [e] leak at most [exp (2 e)] times as much. *)
Definition leaks_at_most (factor : R -> R) := forall (K : finType) (s moved : K -> R)
  (e : R) target,
  (forall k, Rabs (moved k) <= e) -> 1 - softmax (fun k => s k + moved k) target
    <= factor e * (1 - softmax s target).
Definition POS_content := leaks_at_most (fun e => exp (2 * e)).
End Positions.

(** * T1: Theorem 1 *)
Section Theorem1.
Local Open Scope R_scope.
(** The attention of the converted layer: softmax of Eq. (8) with the encoding of Lemma 2, over the
    padded grid. *)
Definition converted n (g : geometry n) (alpha : R) (H Cin : finType) (f : H -> taps g)
    (Xq : queries g -> Cin -> R) (X : keys g -> Cin -> R) (h : H) (q : queries g) : keys g -> R :=
  softmax (fun k => @quadratic_score reals n Cin alpha (fun a => IZR (offset (f h) a)) (Xq q) (X k)
                      (fun a => IZR (position k a - site q a))).
(** The difference at a finite alpha: at most [leak] of the weights times the channels' ranges. *)
Definition ranges := forall n (g : geometry n) (Cin : finType),
  (pixels g -> Cin -> reals) -> (Cin -> R) -> Prop.
Definition outputs_within (within : ranges) (leak : R -> nat -> R) := forall n (g : geometry n),
  fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (Wval : H -> 'I_(G * ci) -> D -> reals)
    (Wout : H -> D -> 'I_(G * co) -> reals) (weight : 'I_(G * co) -> nat -> taps g -> reals)
      (b : 'I_(G * co) -> reals),
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall alpha, 0 < alpha ->
  forall (Xq : queries g -> 'I_(G * ci) -> R) (X : pixels g -> 'I_(G * ci) -> reals)
    (range : 'I_(G * ci) -> R), within n g _ X range -> forall q o,
  Rabs (mhsa (converted alpha f Xq (zero_pad X) : H -> _ -> _ -> reals) Wval Wout b (zero_pad X) q o
        - torch_conv weight b X q o)
  <= leak alpha n * \sum_t \sum_c range c * Rabs (tap weight t c o).
(** [range c] bounds the spread of channel [c] over the padded grid: zeros count. *)
Definition padded_within n (g : geometry n) (Cin : finType) (X : pixels g -> Cin -> reals)
  (range : Cin -> R) := forall c k k', Rabs (zero_pad X k c - zero_pad X k' c) <= range c.
Definition T1_bound := outputs_within padded_within (fun alpha n => 1 - / theta_bound alpha ^ n).
(** The same for any tokens [Z] on the keys: images padded in any mode, cropped, or stuffed with
    zeros, as a transposed convolution needs. [T1_bound] is the instance of zero padding. *)
Definition tokens_within (leak : R -> nat -> R) := forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (Wval : H -> 'I_(G * ci) -> D -> reals)
    (Wout : H -> D -> 'I_(G * co) -> reals) (weight : 'I_(G * co) -> nat -> taps g -> reals)
      (b : 'I_(G * co) -> reals),
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall alpha, 0 < alpha ->
  forall (Xq : queries g -> 'I_(G * ci) -> R) (Z : keys g -> 'I_(G * ci) -> reals)
    (range : 'I_(G * ci) -> R), (forall c k k', Rabs (Z k c - Z k' c) <= range c) -> forall q o,
  Rabs (mhsa (converted alpha f Xq Z : H -> _ -> _ -> reals) Wval Wout b Z q o
        - conv_of_keys weight b Z q o)
  <= leak alpha n * \sum_t \sum_c range c * Rabs (tap weight t c o).
Definition T1_any := tokens_within (fun alpha n => 1 - / theta_bound alpha ^ n).
(** Heads of two encoding dimensions (D2), for any integer number of the keys that is injective on
    the padded grid: the leak is that of one dimension, whatever n. *)
Definition enumerated_within (leak : R -> R) := forall n (g : geometry n), fits g ->
  forall (number : keys g -> Z), injective number ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> reals)
    (Wval : H -> 'I_(G * ci) -> D -> reals) (Wout : H -> D -> 'I_(G * co) -> reals)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals) alpha,
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) -> 0 < alpha ->
  (forall h q target, reads q (f h) target -> P h q =1 softmax (fun k =>
    alpha * (2 * IZR (number target)) * IZR (number k)
    - alpha * (IZR (number k) * IZR (number k)))) ->
  forall (Z : keys g -> 'I_(G * ci) -> reals) (range : 'I_(G * ci) -> R),
  (forall c k k', Rabs (Z k c - Z k' c) <= range c) -> forall q o,
  Rabs (mhsa P Wval Wout b Z q o - conv_of_keys weight b Z q o)
  <= leak alpha * \sum_t \sum_c range c * Rabs (tap weight t c o).
Definition T1_enumerated := enumerated_within (fun alpha => 1 - / theta_bound alpha).
(** As the paper has it: one head a tap, of dimension at least min(D_in, D_out), expresses any
    convolution. *)
Definition T1 := forall n (g : geometry n), fits g ->
  forall (G ci co d : nat), (minn (G * ci) (G * co) <= d)%N ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals),
  exists (Wval : taps g -> 'I_(G * ci) -> 'I_d -> reals)
    (Wout : taps g -> 'I_d -> 'I_(G * co) -> reals),
  forall (X : pixels g -> 'I_(G * ci) -> reals) (eps : R), 0 < eps ->
  exists alpha0 : R, forall alpha, alpha0 < alpha -> forall Xq q o,
  Rabs (mhsa (converted alpha id Xq (zero_pad X) : taps g -> _ -> _ -> reals) Wval Wout b
    (zero_pad X) q o
        - torch_conv weight b X q o) <= eps.
(** One alpha serves all images that are bounded by the same number. *)
Definition uniformly (wide : nat -> nat -> nat -> bool) := forall n (g : geometry n), fits g ->
  forall (G ci co d : nat), wide (G * ci)%N (G * co)%N d ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals),
  exists (Wval : taps g -> 'I_(G * ci) -> 'I_d -> reals)
    (Wout : taps g -> 'I_d -> 'I_(G * co) -> reals),
  forall range eps : R, 0 < eps -> exists alpha0 : R, forall alpha, alpha0 < alpha ->
  forall X : pixels g -> 'I_(G * ci) -> reals, (forall i c, Rabs (X i c) <= range) ->
  forall Xq q o,
  Rabs (mhsa (converted alpha id Xq (zero_pad X) : taps g -> _ -> _ -> reals) Wval Wout b
    (zero_pad X) q o - torch_conv weight b X q o) <= eps.
Definition T1_uniform := uniformly (fun c o d => minn c o <= d)%N.
End Theorem1.

(** * L3: Lemma 3 *)
Section Lemma3.
Variables (S : numbers) (n : nat) (g : geometry n) (H : finType)
  (P : H -> queries g -> pixels g -> S).
Local Open Scope num_scope.
(** [W_val], [W_out] of heads of dimension [d] and a bias give every convolution of kernel [g] from
    [P]; dense taps, which include grouped ones. Keys are the pixels of the image, so [before g]
    only moves the kernel. *)
Definition expresses_all (ci co d : nat) :=
  forall (weight : 'I_(1 * co) -> nat -> taps g -> S) (b : 'I_(1 * co) -> S),
  exists (Wval : H -> 'I_(1 * ci) -> 'I_d -> S) (Wout : H -> 'I_d -> 'I_(1 * co) -> S)
    (b' : 'I_(1 * co) -> S),
  forall X q o, mhsa P Wval Wout b' X q o = torch_conv weight b X q o.
(** [e_(q + Delta)]: 1 at the pixel that tap [t] of output [q] sees, 0 everywhere if it lies
    outside. *)
Definition shift (t : taps g) (q : queries g) (i : pixels g) : S := if sees q t i then 1 else 0.
(** The printed condition: at each query the shifts are in the span of the heads' attention. *)
Definition spans_at (q : queries g) :=
  exists Phi : taps g -> H -> S, forall t i, shift t q i = \sum_h Phi t h * P h q i.
(** The joint condition: one [Phi] for all queries. *)
Definition spans_jointly :=
  exists Phi : taps g -> H -> S, forall t q i, shift t q i = \sum_h Phi t h * P h q i.
End Lemma3.
Arguments shift {S n g}.

Definition expresses_iff (wide : nat -> nat -> nat -> bool) (spans : forall (S : numbers) n
    (g : geometry n) (H : finType), (H -> queries g -> pixels g -> S) -> Prop) :=
  forall (S : numbers) n (g : geometry n) (H : finType) (P : H -> queries g -> pixels g -> S)
    (ci co d : nat),
  0 < ci -> 0 < co -> wide ci co d -> expresses_all P ci co d <-> spans S n g H P.
Definition L3 := expresses_iff (fun ci co d => minn ci co <= d) spans_jointly.
(** What remains of the printed lemma: its "only if". *)
Definition L3_only_if := forall (S : numbers) n (g : geometry n) (H : finType)
  (P : H -> queries g -> pixels g -> S)
    (ci co d : nat),
  0 < ci -> 0 < co -> expresses_all P ci co d -> forall q, spans_at P q.
(** Near is as hard as exact: what [phi] leaves of the shift of tap [t], summed over the keys ... *)
Definition leaves n (g : geometry n) (H : finType) (P : H -> queries g -> pixels g -> reals)
    (t : taps g) (phi : H -> R) (q : queries g) : R :=
  (\sum_i Rabs (shift (S := reals) t q i - \big[Rplus/0]_h (phi h * P h q i)))%R.
(** ... exceeds [eps] at some query for every [phi], if a dual vector [y] that meets no head meets
    the shift in more than [eps] times its peaks; ... *)
Definition L3_dual := forall n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> reals) (t : taps g) (eps : R)
    (y : queries g -> pixels g -> R) (peak : queries g -> R),
  (forall h, \sum_q \big[Rplus/0]_i (y q i * P h q i) = 0)%R ->
  (forall q, 0 <= peak q /\ forall i, Rabs (y q i) <= peak q)%R ->
  (eps * (\sum_q peak q) < \sum_q \big[Rplus/0]_i (y q i * shift (S := reals) t q i))%R ->
  forall phi, exists q, (eps < leaves P t phi q)%R.
(** ... and then every layer of these heads is farther than [eps] from the convolution that is this
    shift, at an image of ones and minus ones; or every one of [some] weights, at a query of
    [asked], if these weights leave more there. *)
Definition one_tap n (g : geometry n) (t : taps g) (o : 'I_(1 * 1)) (c : nat) (t' : taps g)
  : reals := if t' == t then one else zero.
Definition L3_far := forall n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> reals) (t : taps g) (eps : R)
    (some : (H -> R) -> Prop) (asked : queries g -> Prop),
  (forall phi : H -> R, some phi -> exists2 q, asked q & (eps < leaves P t phi q)%R) ->
  forall (d : nat) (Wval : H -> 'I_(1 * 1) -> 'I_d -> reals)
    (Wout : H -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals),
  some (fun h => merged Wval Wout h ord0 ord0) ->
  exists (X : pixels g -> 'I_(1 * 1) -> reals) q o, [/\ asked q, forall i c, Rabs (X i c) = 1%R &
  (eps < Rabs (mhsa P Wval Wout b' X q o - torch_conv (one_tap t) b X q o))%R].
(** The converse: weights [Phi] give every convolution up to [eps] times its weights at each query
    where they leave at most [eps t] of the shift of tap [t], for heads at least as wide as T1 asks.
    *)
Definition near_enough (cost : R -> R) := forall n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> reals) (ci co d : nat), minn ci co <= d ->
  forall (Phi : taps g -> H -> R) (weight : 'I_(1 * co) -> nat -> taps g -> reals)
    (b : 'I_(1 * co) -> reals),
  exists (Wval : H -> 'I_(1 * ci) -> 'I_d -> reals) (Wout : H -> 'I_d -> 'I_(1 * co) -> reals),
  (forall h c o, merged Wval Wout h c o
    = \big[Rplus/0%R]_t (Phi t h * @tap n g reals 1 ci co weight t c o)%R) /\
  forall (q : queries g) (eps : taps g -> R), (forall t, leaves P t (Phi t) q <= eps t)%R ->
  forall (X : pixels g -> 'I_(1 * ci) -> reals) range, (0 <= range)%R ->
  (forall i c, Rabs (X i c) <= range)%R ->
  forall o, (Rabs (mhsa P Wval Wout b X q o - torch_conv weight b X q o)
    <= range * \big[Rplus/0]_t (cost (eps t)
      * \big[Rplus/0]_c Rabs (@tap n g reals 1 ci co weight t c o)))%R.
Definition L3_near := near_enough id.
(** With fewer heads than taps are asked for, all of which some output sees, there is a tap among
    them whose shift every layer of these heads misses there by more than any [eps] below 1, at an
    image of ones and minus ones: the layer that is 0 is no worse. *)
Definition far_with (few : nat -> nat -> bool) := forall n (g : geometry n), fits g ->
  forall (A : {set taps g}) (q : queries g), (forall t, t \in A -> exists i, sees q t i) ->
  forall (H : finType) (P : H -> queries g -> pixels g -> reals), few #|H| #|A| ->
  exists2 t, t \in A & forall (d : nat) (Wval : H -> 'I_(1 * 1) -> 'I_d -> reals)
    (Wout : H -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals) (eps : R),
  (eps < 1)%R ->
  exists (X : pixels g -> 'I_(1 * 1) -> reals) o, (forall i c, Rabs (X i c) = 1%R) /\
  (eps < Rabs (mhsa P Wval Wout b' X q o - torch_conv (one_tap t) b X q o))%R.
Definition TAPS_far := far_with ltn.
(** The lemma as printed: an image of two axes, an odd K x K kernel, SAME zero padding, stride 1, at
    least K^2 heads with the softmax of any scores that do not depend on X, of dimension at least
    D_out (E17). [L3p] is its negation. *)
Definition same_padding (W H K : nat) : geometry 2 :=
  Geometry (fun a => if a == ord0 then W else H) (fun _ => K)
  (fun _ => 1) (fun _ => 1) (fun _ => K./2) (fun _ => K./2).
Definition L3_printed := forall W H K : nat, odd K -> let g := same_padding W H K in
  forall (Nh : nat) (A : 'I_Nh -> queries g -> pixels g -> R) (Din Dout Dh : nat),
  let P h q : pixels g -> reals := softmax (A h q) in
  0 < Din -> 0 < Dout -> K * K <= Nh -> Dout <= Dh -> expresses_all P Din Dout Dh <-> forall q,
    spans_at P q.
Definition L3p := ~ L3_printed.

(** The counterexamples of E2: at each query the shifts are in the span of the heads, jointly they
    are not. *)
Definition only_each (S : numbers) (Q K H T : finType) (P : H -> Q -> K -> S) (E : T -> Q -> K -> S)
  :=
  (forall q, exists Phi : T -> H -> S, forall t k, E t q k = (\sum_h Phi t h * P h q k)%num) /\
  ~ exists Phi : T -> H -> S, forall t q k, E t q k = (\sum_h Phi t h * P h q k)%num.
(** (a) Two pixels, K = 1, quadratic heads at 0 and 1, alpha = ln 2. *)
Definition pixel (k : bool) : point 1 := fun _ => if k then 1%Z else 0%Z.
Definition pair_head (h q : bool) : bool -> reals :=
  quadratic_head pixel (ln 2) (fun a => (pixel q a + pixel h a)%Z).
Definition own (K : finType) (t : unit) (q k : K) : reals := one_hot q k.
Definition L3p_a := only_each pair_head (@own _).
(** (b) One hard head a tap, unpadded: it reads the pixel nearest to where the tap looks (PAD). Any
    kernel and image with an output all of whose taps see pixels, and an output with a tap that sees
    none. *)
Definition replicate n (g : geometry n) (S : numbers) (t : taps g) (q : queries g) (i : pixels g)
  : S :=
  if [forall a, Z.eqb (Z.of_nat (i a)) (clamp (fun _ => 0%Z) (fun a => (Z.of_nat (side g a) - 1)%Z)
        (fun a => (Z.of_nat (q a * stride g a + t a * dilation g a) - Z.of_nat (before g a))%Z) a)]
          then one else zero.
Definition L3p_b := forall (S : numbers) n (g : geometry n), fits g -> (one : S) <> zero ->
  (exists q : queries g, forall t, exists i, sees q t i) ->
    (exists (q : queries g) t, forall i, ~~ sees q t i) ->
  only_each (@replicate n g S) (@shift S n g).
(** (b) for soft heads: nine quadratic ones at the taps of a 3 x 3 kernel, unpadded, on an image of
    3 x 3, alpha = ln 2. *)
Definition on_line (k : 'I_3) : point 1 := fun _ => Z.of_nat k.
Definition line_head (h q : 'I_3) : 'I_3 -> R := quadratic_head on_line (ln 2)
  (fun _ => Z.of_nat q + Z.of_nat h - 1)%Z.
Definition line_shift (t q k : 'I_3) : R := if (k.+1 == q + t :> nat) then 1%R else 0%R.
Definition on_square (k : 'I_3 * 'I_3) : point 2 :=
  fun a => Z.of_nat (if a == ord0 then k.1 else k.2).
Definition square_head (h q : 'I_3 * 'I_3) : 'I_3 * 'I_3 -> reals :=
  quadratic_head on_square (ln 2)
    (fun a => Z.of_nat (if a == ord0 then q.1 else q.2) + Z.of_nat (if a == ord0 then h.1 else h.2)
    - 1)%Z.
Definition square_shift (t q k : 'I_3 * 'I_3) : reals :=
  (line_shift t.1 q.1 k.1 * line_shift t.2 q.2 k.2)%R.
Definition L3p_b_soft := only_each square_head square_shift.
(** (c) Six tokens, K = 1, heads uniform on [{q-1, q, q+1}] and on [{q-1, q+1}], cut at the
    border. *)
Definition uniform (K : finType) (A : pred K) (k : K) : reals :=
  ((if A k then 1 else 0) / \sum_j (if A j then 1 else 0))%R.
Definition box_head (h : bool) (q : 'I_6) : 'I_6 -> reals :=
  uniform (fun k => ((k == q) && h) || (k == q.+1 :> nat) || (k.+1 == q :> nat)).
Definition L3p_c := only_each box_head (@own _).
(** (d) Six tokens in a circle, two hard heads that swap the shifts 0 and 1 from query to query. *)
Definition swap_head (h : bool) (q k : 'I_6) : reals :=
  one_hot (inord ((q + (odd q (+) h)) %% 6)) k.
Definition circle_shift (t : bool) (q k : 'I_6) : reals := one_hot (inord ((q + t) %% 6)) k.
Definition L3p_d := only_each swap_head circle_shift.
(** E12: scores that depend on [X]. Two pixels, K = 1, a head with scores [ln 2 * x_q * x_k] and a
    uniform head: for each of two images one [Phi] serves both queries, the joint condition of L3,
    but no weights serve both images. *)
Definition content_head (X : bool -> R) (h q : bool) : bool -> R :=
  softmax (fun k => if h then ln 2 * (X q * X k) else 0)%R.
Definition image (x y : R) (k : bool) : R := if k then y else x.
Definition content_spans (X : bool -> R) :=
  exists a b : R, forall q k,
    (a * content_head X true q k + b * content_head X false q k = one_hot q k)%R.
Definition L3p_content := content_spans (image 1 (-1)) /\ content_spans (image 2 (-2)) /\
  ~ exists a b : R, forall X, (X = image 1 (-1) \/ X = image 2 (-2)) -> forall q,
    (a * (\sum_k content_head X true q k * X k) + b * (\sum_k content_head X false q k * X k)
      = X q)%R.

(** * LIT: Lemma 2 and Theorem 1 read as exact equalities (E14) *)
(** No finite scores over two keys give Eq. (10): the target's share is below 1 ... *)
Definition every_weight_below (share : R) := forall (K : finType) (s : K -> R) (target other : K),
  other != target -> (softmax s target < share)%R.
Definition LIT := every_weight_below 1%R.
(** ... and one head on two pixels is never the 1 x 1 identity convolution, whatever its scores,
    content included. *)
Definition no_identity_on (K : finType) := forall (score : (K -> R) -> K -> K -> R) (w : R),
  ~ forall X q, ((\sum_k softmax (score X q) k * X k) * w = X q)%R.
Definition LIT_identity := no_identity_on bool_finType.

(** So no finite alpha gives Eq. (10) on a grid of two keys or more; and no layer of one head is the
    identity on two pixels. *)
Definition LIT_hard := forall n (g : geometry n), fits g -> (1 < #|{: keys g}|)%N ->
  forall (alpha : R) (H Cin : finType) (h : H) (f : H -> taps g) (Xq : queries g -> Cin -> R)
    (X : keys g -> Cin -> R),
  ~ hard (S := reals) f (converted alpha f Xq X).
Definition LIT_layer := forall (score : (bool -> R) -> bool -> bool -> R) (D : finType)
    (Wval : unit -> unit -> D -> reals) (Wout : unit -> D -> unit -> reals) (b : unit -> reals),
  ~ forall (X : bool -> R) q, let attention (_ : unit) q : bool -> reals := softmax (score X q) in
    mhsa attention Wval Wout b (fun k _ => X k) q tt = X q.

(** * AND, its softmax: Andreoli's Eq. (11) and masks; the rest of AND speaks of matrices, below *)
(** What does not depend on the input cancels ... *)
Definition cancels_in (attend : forall K : finType, (K -> R) -> K -> R) (with_it : R -> R -> R) :=
  forall (K : finType) (s : K -> R) (xi : R), attend K (fun k => with_it (s k) xi) =1 attend K s.
Definition AND11 := cancels_in softmax Rplus.
(** ... but not before a leaky ReLU. *)
Definition AND11_leaky := exists (s : bool -> R) (xi : R),
  masked_softmax (fun k => leaky (/ 2) (Some (s k + xi)%R)) true <> masked_softmax
    (fun k => leaky (/ 2) (Some (s k))) true.
(** A masked input weighs nothing, and the others are the softmax without it; after a leaky ReLU
    too, not after a plain one. *)
Definition AND_masks := forall (K : finType) (s : K -> option R) slope,
  (forall k, s k = None -> masked_softmax s k = 0%R /\ masked_softmax (fun k => leaky slope (s k)) k
    = 0%R) /\
  forall k, s k = None -> masked_softmax (fun k => rectified (s k)) k <> 0%R.

(** * HEADS, its layers; how many heads are needed is a matter of matrices, below *)
Section OnTaps.
Local Open Scope num_scope.
(** Head [h] weighs the key that tap [t] reads by [B h t], at every output. *)
Definition on_taps (S : numbers) n (g : geometry n) (H : finType) (B : H -> taps g -> S)
  (P : H -> queries g -> keys g -> S) :=
  forall h q k, P h q k = \sum_(t : taps g | reads q t k) B h t.
(** Such heads are a given convolution if and only if its taps are these combinations of their
    matrices. *)
Definition HEADS_layer := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (B : H -> taps g -> S) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b b' : 'I_(G * co) -> S), on_taps B P ->
  (forall Z q o, mhsa P Wval Wout b' Z q o = conv_of_keys weight b Z q o) <->
  (forall t c o, tap weight t c o = \sum_h B h t * merged Wval Wout h c o) /\ b' =1 b.
End OnTaps.

(** * PAD: hard heads without padding *)
Section Padding.
Local Open Scope Z_scope.
(** The key of a box nearest to any lattice point is its clamp, which is in the box; every other is
    farther. *)
Definition not_empty n (lo hi : point n) := forall a, lo a <= hi a.
Definition clamps_inside (boxes : forall n, point n -> point n -> Prop) :=
  forall n (lo hi : point n), boxes n lo hi -> forall x, inside lo hi (clamp lo hi x).
Definition clamp_is_nearest (keys : forall n, point n -> point n -> point n -> Prop)
    (at_most : Z -> Z -> Prop) :=
  forall n (lo hi : point n), not_empty lo hi -> forall x y, keys n lo hi y ->
  at_most (distance (clamp lo hi x) x) (distance y x).
Definition PAD := [/\ clamps_inside not_empty, clamp_is_nearest inside Z.le
  & forall n (lo hi : point n), not_empty lo hi -> forall x y, inside lo hi y ->
    distance y x <= distance (clamp lo hi x) x -> y =1 clamp lo hi x].
(** The same with a positive weight for each axis: what "axis-aligned" says. *)
Definition weighted n (w : 'I_n -> R) (x y : point n) : R :=
  (\sum_a w a * IZR ((x a - y a) * (x a - y a)))%R.
Definition clamps_axes (weights : R -> Prop) := forall n (w : 'I_n -> R) (lo hi : point n),
  (forall a, weights (w a)) -> not_empty lo hi ->
  forall x y, inside lo hi y -> (weighted w (clamp lo hi x) x <= weighted w y x)%R /\
    ((weighted w y x <= weighted w (clamp lo hi x) x)%R -> y =1 clamp lo hi x).
Definition PAD_axes := clamps_axes (Rlt 0).
(** So the layer: unpadded hard heads, each of which reads the pixel nearest to where its tap looks,
    are the convolution of the replicate-padded image. *)
Definition pixel_place n (g : geometry n) (i : pixels g) : point n := fun a => Z.of_nat (i a).
Definition looked_at n (g : geometry n) (q : queries g) (t : taps g) : point n :=
  fun a => (Z.of_nat (q a * stride g a + t a * dilation g a) - Z.of_nat (before g a))%Z.
Definition read_nearest n (g : geometry n) (S : numbers) (H : finType) (f : H -> taps g)
    (P : H -> queries g -> pixels g -> S) := forall h q i, P h q i =
  if [forall j : pixels g, distance (pixel_place i) (looked_at q (f h))
    <=? distance (pixel_place j) (looked_at q (f h))] then one else zero.
Definition replicate_pad n (g : geometry n) (S : numbers) (C : finType) (X : pixels g -> C -> S)
  (k : keys g) (c : C) : S :=
  \big[@add S/zero]_(i : pixels g |
    [forall a, Z.eqb (Z.of_nat (i a)) (clamp (fun _ => 0) (fun a => Z.of_nat (side g a) - 1)
    (fun a => Z.of_nat (k a) - Z.of_nat (before g a)) a)]) X i c.
Definition PAD_layer := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> pixels g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> read_nearest f P ->
  (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall X q o, mhsa P Wval Wout b X q o = conv_of_keys weight b (replicate_pad X) q o.
(** Not so for a full covariance: a positive definite form, a box, a target, and a key nearer than
    the clamp. *)
Definition form (A B C : Z) (u v : Z) : Z := A * u * u + B * u * v + C * v * v.
Definition PAD_covariance := exists A B C lo1 hi1 lo2 hi2 x1 x2 y1 y2,
  0 < A /\ 0 < 4 * A * C - B * B /\ lo1 <= y1 <= hi1 /\ lo2 <= y2 <= hi2 /\
  form A B C (y1 - x1) (y2 - x2)
    < form A B C (Z.max lo1 (Z.min hi1 x1) - x1) (Z.max lo2 (Z.min hi2 x2) - x2).
(** Nor for the enumerated encoding of D2, whose distance is that of row-major numbers. *)
Definition PAD_enumerated := exists M lo1 hi1 lo2 hi2 x1 x2 y1 y2,
  2 * (hi2 - lo2) + 1 <= M /\ lo1 <= y1 <= hi1 /\ lo2 <= y2 <= hi2 /\
  Z.abs (M * (y1 - x1) + (y2 - x2))
    < Z.abs (M * (Z.max lo1 (Z.min hi1 x1) - x1) + (Z.max lo2 (Z.min hi2 x2) - x2)).
(** More zeros, and the outputs that were asked for: the same convolution. With [before g = 0] and
    [front = behind = K / 2] this is to pad by floor(K/2) and crop. *)
Definition more_padding n (g : geometry n) (front behind : 'I_n -> nat) :=
  Geometry (side g) (kernel g) (fun _ => 1%N) (dilation g) (fun a => (before g a + front a)%N)
    (fun a => (after g a + behind a)%N).
Definition PAD_crop := forall (S : numbers) n (g : geometry n), fits g ->
  (forall a, stride g a = 1%N) ->
  forall front behind (q : queries g), exists q1 : queries (more_padding g front behind),
  (forall a, q1 a = (q a + front a)%N :> nat) /\
  forall G ci co (weight : 'I_(G * co) -> nat -> taps g -> S) b
    (X : pixels g -> 'I_(G * ci) -> S) o,
    torch_conv weight b X q o = @torch_conv n (more_padding g front behind) S G ci co weight b X q1
      o.
End Padding.
Section FiniteAlpha.
Local Open Scope R_scope.
(** Unpadded quadratic heads of a finite alpha look at a pixel of the lattice, on the image or
    beyond it: they are within the leak of the convolution of the replicate-padded image. *)
Definition border_within (leak : R -> nat -> R) := forall n (g : geometry n), fits g ->
  (forall a, (0 < side g a)%N) ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (Wval : H -> 'I_(G * ci) -> D -> reals)
    (Wout : H -> D -> 'I_(G * co) -> reals) (weight : 'I_(G * co) -> nat -> taps g -> reals)
    (b : 'I_(G * co) -> reals),
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall alpha, 0 < alpha ->
  forall (X : pixels g -> 'I_(G * ci) -> reals) (range : 'I_(G * ci) -> R),
  (forall c i j, Rabs (X i c - X j c) <= range c) -> forall q o,
  Rabs (mhsa (fun h q => quadratic_head (@pixel_place n g) alpha (looked_at q (f h)) : _ -> reals)
      Wval Wout b X q o - conv_of_keys weight b (replicate_pad X) q o)
  <= leak alpha n * \sum_t \sum_c range c * Rabs (tap weight t c o).
Definition T1_border := border_within (fun alpha n => 1 - / theta_bound alpha ^ n).
(** Networks of attention, maps of each token alone, sums of branches, and one behind the other, on
    the same tokens. What a head mixes at a query are weights that sum to 1; its scores may read the
    tokens and where they stand in any way. No token stands beside those of the image, and a bias is
    one for all of them. *)
Inductive stack_of (mixes : forall K : finType, (K -> R) -> Prop) (K : finType) :
  forall C C' : finType, ((K -> C -> reals) -> K -> C' -> reals) -> Prop :=
| Tokenwise (C C' : finType) (f : (C -> reals) -> C' -> reals) :
    @stack_of mixes K C C' (fun X k => f (X k))
| Attention (C C' H D : finType) (P : (K -> C -> reals) -> H -> K -> K -> reals)
    (Wval : H -> C -> D -> reals) (Wout : H -> D -> C' -> reals) (b : C' -> reals) :
    (forall X h q, mixes K (P X h q)) -> @stack_of mixes K C C' (fun X => mhsa (P X) Wval Wout b X)
| Beside (C C' : finType) F G : @stack_of mixes K C C' F -> @stack_of mixes K C C' G ->
    @stack_of mixes K C C' (fun X k c => F X k c + G X k c)
| Behind (C C' C'' : finType) F G : @stack_of mixes K C C' F -> @stack_of mixes K C' C'' G ->
    @stack_of mixes K C C'' (fun X => G (F X)).
Definition softmax_weights (K : finType) (p : K -> R) := exists s, p = softmax s.
(** Equal tokens stay equal through any such network, so without explicit zeros none is a
    zero-padded shift that sees a pixel at one output and none at another (Luo et al. 2022). *)
Definition no_shift (mixes : forall K : finType, (K -> R) -> Prop) :=
  (forall (K C C' : finType) (F : (K -> C -> reals) -> K -> C' -> reals), stack_of mixes F ->
    forall X, (forall k k', X k = X k') -> forall k k', F X k = F X k') /\
  forall n (g : geometry n) (t : taps g) (q q' : queries g) i, sees q t i ->
    (forall j, ~~ sees q' t j) ->
  forall F : (pixels g -> 'I_(1 * 1) -> reals) -> pixels g -> 'I_(1 * 1) -> reals,
    stack_of mixes F ->
  forall (at_pixel : queries g -> pixels g) (b : 'I_(1 * 1) -> reals),
  ~ forall X q o, F X (at_pixel q) o = torch_conv (one_tap t) b X q o.
Definition PAD_stack := no_shift softmax_weights.
End FiniteAlpha.

(** * PATCH: convolutions on tokens that are patches of pixels *)
Section Patches.
Variables (n : nat) (sides patch radius : 'I_n -> nat).
(** An image of whole patches and a kernel of odd side [2 radius + 1], stride 1, padded with zeros
  by
    the radius; and the grid of its tokens, with a tap for each displacement up to [reach]. *)
Definition patched_image : geometry n :=
  Geometry (fun a => sides a * patch a) (fun a => (radius a).*2.+1) (fun _ => 1) (fun _ => 1) radius
  radius.
Definition token_grid (reach : 'I_n -> nat) : geometry n :=
  Geometry sides (fun a => (reach a).*2.+1) (fun _ => 1) (fun _ => 1) reach reach.
(** A token holds the channels of all pixels of its patch. *)
Definition in_patch (k : box sides) (u : box patch) (i : pixels patched_image) :=
  [forall a, i a == k a * patch a + u a :> nat].
Definition patches (S : numbers) (C : finType) (X : pixels patched_image -> C -> S) (k : box sides)
  (c : box patch * C) : S := \big[@add S/zero]_(i | in_patch k c.1 i) X i c.2.
End Patches.
(** The radius over the side of a patch, rounded up: as far as a pixel reads. *)
Definition patch_reach (radius patch : nat) := (radius + patch.-1) %/ patch.
(** One hard head for each displacement of tokens up to [reach] serves every convolution, pixel by
    pixel: output [(u, o)] of token [k] is channel [o] of the pixel at [u] of its patch. *)
Definition patch_heads (reach : nat -> nat -> nat) := forall (S : numbers) n
    (sides patch radius : 'I_n -> nat), (forall a, 0 < sides a /\ 0 < patch a) ->
  let g := patched_image sides patch radius in
  let tokens := token_grid sides (fun a => reach (radius a) (patch a)) in
  forall (G ci co : nat) (H : finType) (f : H -> taps tokens)
    (P : H -> queries tokens -> keys tokens -> S), bijective f -> hard f P ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  exists (Wval : H -> box patch * 'I_(G * ci) -> box patch * 'I_(G * ci) -> S)
    (Wout : H -> box patch * 'I_(G * ci) -> box patch * 'I_(G * co) -> S)
    (b' : box patch * 'I_(G * co) -> S),
  forall X (k : queries tokens) (u : box patch) (q : queries g) o,
  (forall a, q a = k a * patch a + u a :> nat) ->
  mhsa P Wval Wout b' (zero_pad (patches X)) k (u, o) = torch_conv weight b X q o.
Definition PATCH := patch_heads patch_reach.

(** * D2: two dimensions of the encoding are enough, one is not *)
Section D2.
Local Open Scope R_scope.
(** The score [v . r] of the number [t] of a displacement: [r = (t, t^2)], [v = alpha (2 t(Delta),
    -1)]. *)
Definition enumerated_score (alpha t_target t : R) := alpha * (2 * t_target) * t - alpha * (t * t).
(** For any injective number [t] of the displacement, it has its strict maximum at [Delta]. *)
Definition peaks_if (numbers : forall D : eqType, (D -> R) -> Prop) (sharp : R -> Prop)
    (centre : R -> R) (less : R -> R -> Prop) :=
  forall (D : eqType) (t : D -> R), numbers D t -> forall alpha, sharp alpha ->
  forall target d, d != target -> let s d := enumerated_score alpha (centre (t target)) (t d) in
  less (s d) (s target).
Definition D2 := peaks_if (fun D t => injective t) (Rlt 0) id Rlt.
(** So two numbers [r] of each displacement are enough: each is the strict maximum of some head
    [v]. *)
Definition peaks_in (d : nat) := forall D : finType, exists r v : D -> 'I_d -> R,
  forall target k, k != target -> \sum_p v target p * r k p < \sum_p v target p * r target p.
Definition D2_two := peaks_in 2.
(** The score is [- alpha (t - t_Delta)^2] up to a constant. *)
Definition D2_score := forall alpha t_target t,
  enumerated_score alpha t_target t = - alpha * ((t - t_target) * (t - t_target))
    + alpha * (t_target * t_target).
(** Such a number exists: [M d_1 + d_2] for displacements on a grid of width [W], if [M >= 2 W -
    1]. *)
Definition D2_number := forall W M : Z, (2 * W - 1 <= M)%Z -> forall d1 d2 d1' d2',
  (Z.abs d2 < W)%Z -> (Z.abs d2' < W)%Z -> (M * d1 + d2 = M * d1' + d2')%Z -> d1 = d1' /\ d2 = d2'.
(** In any number of axes, each with [|d a| < W a]: the number of mixed radix, axis after axis. *)
Fixpoint mixed_radix (M : nat -> Z) (d : nat -> Z) (n : nat) : Z :=
  if n is n.+1 then (mixed_radix M d n * M n + d n)%Z else 0%Z.
Definition numbers_apart (least : Z -> Z) :=
  forall (W M : nat -> Z) n, (forall a, (least (W a) <= M a)%Z) -> forall d d' : nat -> Z,
  (forall a, (Z.abs (d a) < W a /\ Z.abs (d' a) < W a)%Z) ->
    mixed_radix M d n = mixed_radix M d' n ->
  forall a, (a < n)%N -> d a = d' a.
Definition D2_axes := numbers_apart (fun W => 2 * W - 1)%Z.
(** One dimension cannot serve three displacements that are keys at one query, each to be the strict
    maximum of a head. *)
Definition D2_minimum := forall r v : 'I_3 -> R, ~ forall h k, k != h -> v h * r k < v h * r h.
(** It serves the two extreme ones. *)
Definition D2_extremes := forall (D : eqType) (r : D -> R) high low,
  (forall d, d != high -> r d < r high) -> (forall d, d != low -> r low < r d) ->
  exists v v' : R, (forall d, d != high -> v * r d < v * r high) /\ forall d, d != low ->
    v' * r d < v' * r low.
End D2.

(** * A46: from which alpha a float softmax is exactly one-hot *)
Section Floats.
Local Open Scope R_scope.
(** Correctly rounded to nearest, ties to even, gradual underflow: [p] bits, smallest subnormal
    [2^emin]. *)
Definition rounded (emin p : Z) : R -> R :=
  Flocq.Core.Generic_fmt.round Flocq.Core.Zaux.radix2
    (Flocq.Core.FLT.FLT_exp emin p) Flocq.Core.Round_NE.ZnearestE.
Definition float64 := rounded (-1074) 53.
Definition float32 := rounded (-149) 24.
Definition bfloat16 := rounded (-133) 8.
Definition float16 := rounded (-24) 11.
(** The weight [e^-alpha] of a neighbour is zero from [k ln 2] on, the tie included, and not
    before. *)
Definition zero_from (rounding : R -> R) (k : R) :=
  forall alpha, rounding (exp (- alpha)) = 0 <-> k * ln 2 <= alpha.
Definition A46 := [/\ zero_from float64 1075, zero_from float32 150, zero_from bfloat16 134
  & zero_from float16 25].
(** So E1: e^-46 is far above the smallest positive float32, 2^-149; the integers around each
    threshold. *)
Definition A46_remark := 1 < exp (-46) * IZR (2 ^ 149) /\ float32 (exp (-46)) <> 0.
Definition A46_integers :=
  (exp (-746) * IZR (2 ^ 1075) < 1 < exp (-745) * IZR (2 ^ 1075)) /\
    (exp (-104) * IZR (2 ^ 150) < 1 < exp (-103) * IZR (2 ^ 150)) /\
  (exp (-93) * IZR (2 ^ 134) < 1 < exp (-92) * IZR (2 ^ 134)) /\
    (exp (-18) * IZR (2 ^ 25) < 1 < exp (-17) * IZR (2 ^ 25)).
(** A softmax in floats: rounded weights, sums rounded in any order (here a list's), rounded
    quotients. If all other scores are lower by at least [k ln 2], it is exactly one-hot; stated for
    float32. *)
Definition float_sum (weights : seq R) : R := foldr (fun w total => float32 (w + total)) 0 weights.
Definition float_softmax (K : finType) (s : K -> R) (order : seq K) (k : K) : R :=
  float32 (float32 (exp (s k)) / float_sum [seq float32 (exp (s j)) | j <- order]).
Definition A46_softmax := forall (K : finType) (s : K -> R) (target : K) (order : seq K),
  perm_eq order (enum K) ->
  s target = 0 -> (forall k, k != target -> s k <= - (150 * ln 2)) ->
  forall k, float_softmax s order k = one_hot target k.
End Floats.

(** * FLOAT: computed attention against computed convolution *)
Section Computed.
Local Open Scope R_scope.
(** ** Arithmetics *)
(** The numbers of a format, the rounding to them, and what it does to a result [z]: it changes it
    by at most [roundoff |z| + loss], where the loss, below the normal numbers, is smaller for a sum
    of two numbers of the format. Without overflow. *)
Record arithmetic := Arithmetic { representable : R -> Prop; fl : R -> R; roundoff : R;
  sum_loss : R; loss : R }.
Definition sound (A : arithmetic) := [/\ 0 <= roundoff A, 0 <= sum_loss A & 0 <= loss A] /\
  [/\ representable A 0, (forall z, representable A (fl A z)),
    (forall x, representable A x -> fl A x = x),
      (forall x y, representable A x -> representable A y ->
         Rabs (fl A (x + y) - (x + y)) <= roundoff A * Rabs (x + y) + sum_loss A)
    & (forall z, Rabs (fl A z - z) <= roundoff A * Rabs z + loss A)].
Definition power (e : Z) : R := Flocq.Core.Raux.bpow Flocq.Core.Zaux.radix2 e.
Definition in_format (emin p : Z) : R -> Prop :=
  Flocq.Core.Generic_fmt.generic_format Flocq.Core.Zaux.radix2 (Flocq.Core.FLT.FLT_exp emin p).
(** Round to nearest even with gradual underflow, [p] bits, smallest subnormal [2^emin]: u = 2^-p,
    and sums lose nothing. *)
Definition gradual (emin p : Z) := Arithmetic (in_format emin p) (rounded emin p) (power (- p)) 0
  (power (emin - 1)).
(** The same, with each result below the smallest normal number replaced by 0. *)
Definition normal (emin p : Z) (x : R) := x = 0 \/ power (emin + p - 1) <= Rabs x.
Definition flush (emin p : Z) (z : R) : R := if Flocq.Core.Raux.Rlt_bool (Rabs (rounded emin p z))
  (power (emin + p - 1)) then 0 else rounded emin p z.
Definition flushing (emin p : Z) := Arithmetic (fun x => in_format emin p x /\ normal emin p x)
  (flush emin p) (power (- p))
  (power (emin + p - 1)) (power (emin + p - 1)).
(** Truncating, as the sums of tensor cores are: u = 2^(1-p). *)
Definition truncating (emin p : Z) := Arithmetic (in_format emin p)
  (Flocq.Core.Generic_fmt.round Flocq.Core.Zaux.radix2
    (Flocq.Core.FLT.FLT_exp emin p) Flocq.Core.Raux.Ztrunc) (power (1 - p)) 0 (power emin).
(** The three are what they say, in any format. *)
Definition FLOAT_arithmetics := forall emin p : Z, (1 < p)%Z ->
  [/\ sound (gradual emin p), sound (flushing emin p) & sound (truncating emin p)].

(** ** A sum of products in any order *)
(** [b + sum_i w_i x_i] as it may be evaluated: products added one by one or in blocks, from zero or
    not, fused multiply-adds, partial sums that are stored. *)
Inductive order (I : Type) :=
  Zero | Bias | Product (i : I) | Plus (s t : order I) | Fused (i : I) (t : order I) | Stored
    (t : order I).
Arguments Zero {I}. Arguments Bias {I}.
(** [A] is the arithmetic of products and sums, [T] that of what is stored; [cut] is what is done to
    the operands before they are multiplied: nothing, or as in TensorFloat-32. *)
Fixpoint evaluate (A T : arithmetic) (cut : R -> R) (I : Type) (w x : I -> R) (b : R) (t : order I)
  : R :=
  match t with
  | Zero => 0
  | Bias => b
  | Product i => fl A (cut (w i) * cut (x i))
  | Plus s t => fl A (evaluate A T cut w x b s + evaluate A T cut w x b t)
  | Fused i t => fl A (cut (w i) * cut (x i) + evaluate A T cut w x b t)
  | Stored t => fl T (evaluate A T cut w x b t)
  end.
(** The summands in it, [None] the bias; how often the way of a summand is stored, and how often
    anything is. *)
Fixpoint summands (I : Type) (t : order I) : seq (option I) :=
  match t with
  | Zero => [::] | Bias => [:: None] | Product i => [:: Some i] | Plus s t =>
    summands s ++ summands t
  | Fused i t => Some i :: summands t | Stored t => summands t
  end.
Fixpoint stored_on_a_way (I : Type) (t : order I) : nat :=
  match t with
  | Zero | Bias | Product _ => 0 | Plus s t => maxn (stored_on_a_way s) (stored_on_a_way t)
  | Fused _ t => stored_on_a_way t | Stored t => (stored_on_a_way t).+1
  end.
Fixpoint stored_in_all (I : Type) (t : order I) : nat :=
  match t with
  | Zero | Bias | Product _ => 0 | Plus s t => (stored_in_all s + stored_in_all t)%nat
  | Fused _ t => stored_in_all t | Stored t => (stored_in_all t).+1
  end.
(** Each summand is taken once; those that are zero may be left out (padding that is skipped). *)
Definition summand (I : Type) (w x : I -> R) (b : R) (i : option I) : R :=
  if i is Some i then w i * x i else b.
Definition each_once (I : finType) (w x : I -> R) (b : R) (t : order I) :=
  uniq (summands t) /\ forall i, i \notin summands t -> summand w x b i = 0.
(** gamma_n, n roundings in a row. *)
Definition gamma (n : nat) (u : R) : R := INR n * u / (1 - INR n * u).
(** What multiplies [sum |w_i x_i| + |b|] and what is lost besides: for an order of [n] summands,
    [k] of them products, of which each is stored at most [c] times and which stores [m] partial
    sums, with operands cut by a fraction of at most [kappa]. *)
Definition growth (A T : arithmetic) (kappa : R) (n c : nat) : R :=
  (1 + kappa) ^ 2 * (1 + gamma n (roundoff A)) * (1 + roundoff T) ^ c.
Definition underflow (A T : arithmetic) (k n m : nat) : R := INR k * loss A + INR n * sum_loss A
  + INR m * loss T.
(** An order within these limits, on numbers that are representable. *)
Definition evaluation (A T : arithmetic) (cut : R -> R) (kappa : R) (k n c m : nat) (I : finType)
  (w x : I -> R) (b : R)
    (t : order I) :=
  [/\ representable A b, each_once w x b t, (size (summands t) <= n)%nat,
    (stored_on_a_way t <= c)%nat & (stored_in_all t <= m)%nat]
  /\ (count isSome (summands t) <= k)%nat /\ forall i, Rabs (cut (w i) - w i)
    <= kappa * Rabs (w i) /\ Rabs (cut (x i) - x i) <= kappa * Rabs (x i).
Definition limits (A T : arithmetic) (kappa : R) (n : nat) :=
  [/\ sound A, sound T, (forall z, representable T z -> representable A z), 0 <= kappa &
    INR n * roundoff A < 1].
Definition magnitude (I : finType) (w x : I -> R) (b : R) : R :=
  \sum_i Rabs (w i) * Rabs (x i) + Rabs b.
Definition sums_lose (lose : arithmetic -> arithmetic -> nat -> nat -> nat -> R) :=
  forall A T kappa k n c m, limits A T kappa n ->
  forall cut (I : finType) (w x : I -> R) b t, evaluation A T cut kappa k n c m w x b t ->
  Rabs (evaluate A T cut w x b t - (\sum_i w i * x i + b))
  <= (growth A T kappa n c - 1) * magnitude w x b + growth A T kappa n c * lose A T k n m.
Definition FLOAT_sum := sums_lose underflow.

(** ** Heads that are exactly one-hot *)
(** A softmax as computed: weights [e k] of an exponential, their sum in any order, the quotient or
    the product with the reciprocal, stored. *)
Definition quotient (A T : arithmetic) (reciprocal : bool) (e total : R) : R :=
  fl T (if reciprocal then fl A (e * fl A (1 / total)) else fl A (e / total)).
Definition computed_softmax (A T : arithmetic) (reciprocal : bool) (K : finType) (e : K -> R)
  (t : order K) (k : K) : R :=
  quotient A T reciprocal (e k) (evaluate A A id (fun _ => 1) e 0 t).
(** In a format [A] of [p] bits, stored in [T] of smallest subnormal [2^emin']: the target's
    exponential is 1, the others are at most half of [2^emin'] and all in all too small to move a
    sum of 1, then the weights are exactly one-hot. *)
Definition one_hot_if (small : Z -> R -> Prop) := forall emin p emin' p' : Z, (1 < p' <= p)%Z ->
  (emin <= emin' <= - p')%Z -> (emin <= - p)%Z ->
  forall (K : finType) (e : K -> R) (target : K) (t : order K) reciprocal,
  each_once (fun _ => 1) e 0 t -> (forall k, in_format emin p (e k)) ->
  e target = 1 -> (forall k, k != target -> 0 <= e k /\ small emin' (e k)) ->
  INR #|K| * power (- p) <= / 2 -> 2 * \big[Rplus/0]_(k | k != target) e k <= power (- p) ->
  forall k, computed_softmax (gradual emin p) (gradual emin' p') reciprocal e t k
    = one_hot target k.
Definition FLOAT_one_hot := one_hot_if (fun emin' x => x <= power (emin' - 1)).
(** The scores: [- alpha] times an integer [d >= 1] rounds to at most [- alpha], in any sound
    arithmetic that rounds monotonically; here the three above. *)
Definition scores_fall (sharp : R -> Prop) (first : Z) (most : R -> R) :=
  forall emin p : Z, (1 < p)%Z -> (emin <= 0)%Z -> forall alpha, in_format emin p alpha ->
  sharp alpha -> forall d : Z, (first <= d)%Z ->
  rounded emin p (- alpha * rounded emin p (IZR d)) <= most alpha.
Definition FLOAT_scores := scores_fall (Rle 0) 1 Ropp.
(** The mean with one-hot weights, in any order and stored, is the target's value, exactly; cut once
    where operands are. *)
Definition FLOAT_mixing := forall A T cut, sound A -> sound T -> cut 0 = 0 -> cut 1 = 1 ->
  forall (K : finType) (x : K -> R) (target : K) (t : order K), each_once (one_hot target) x 0 t ->
  representable A (cut (x target)) -> representable T (cut (x target)) ->
  evaluate A T cut (one_hot target) x 0 t = cut (x target).

(** ** The layers *)
(** If the tokens that the heads read are within [err] of those that their taps read, the layer and
    the convolution, each computed in any order, differ by at most this; [w] are the weights of one
    output channel, tap by tap and channel by channel. The two may be computed in different
    arithmetics. *)
Definition FLOAT_difference := forall A T kappa k n c m A' T' kappa' k' n' c' m',
  limits A T kappa n -> limits A' T' kappa' n' ->
  forall cut cut' (I : finType) (w x z : I -> R) b t t' (err : I -> R),
  evaluation A T cut kappa k n c m w x b t -> evaluation A' T' cut' kappa' k' n' c' m' w z b t' ->
  (forall i, Rabs (z i - x i) <= err i) ->
  Rabs (evaluate A' T' cut' w z b t' - evaluate A T cut w x b t)
  <= (growth A T kappa n c - 1) * magnitude w x b + growth A T kappa n c * underflow A T k n m
     + \sum_i Rabs (w i) * err i
     + (growth A' T' kappa' n' c' - 1) * (magnitude w x b + \sum_i Rabs (w i) * err i)
       + growth A' T' kappa' n' c' * underflow A' T' k' n' m'.
(** What tap [t] of output [q] reads of channel [c]: a pixel, or zero. *)
Definition seen n (g : geometry n) (C : finType) (X : pixels g -> C -> R) (q : queries g)
  (t : taps g) (c : C) : R :=
  \big[Rplus/0]_(j | sees q t j) X j c.
(** Lemma 1 as computed. Heads [h] in bijection with the taps, the exponentials of head [h] at
    output [q] as FLOAT_one_hot asks for the key that its tap reads; tokens mixed in one order,
    channels and heads summed in another; the convolution in a third and in arithmetics of its own.
    For every image that is representable, the two differ by at most the sum of their roundings.
    [float16], [bfloat16], [float32] and [float64] are (emin', p') = (-24, 11), (-133, 8), (-149,
    24), (-1074, 53), computed in (emin, p) = (-149, 24) but for the last. *)
Definition FLOAT := forall n (g : geometry n), fits g -> forall emin p emin' p' : Z,
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
  evaluation A' T' cut' kappa' k' n' c' m' (fun i => tap weight i.1 i.2 o)
    (fun i => seen X q i.1 i.2) (b o) t' ->
  let size := (\sum_t \sum_c Rabs (tap weight t c o) * Rabs (seen X q t c) + Rabs (b o))%R in
  Rabs (evaluate A T id (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t
        - evaluate A' T' cut' (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t')
  <= (growth A T 0 N C - 1 + (growth A' T' kappa' n' c' - 1)) * size
     + growth A T 0 N C * underflow A T k N M
       + growth A' T' kappa' n' c' * underflow A' T' k' n' m'.

(** * SOFT: heads that are not exactly one-hot, as computed *)
(** ** Two more laws of the arithmetics *)
Definition monotone (A : arithmetic) := forall x y, x <= y -> fl A x <= fl A y.
(** A number of the format is itself a candidate: adding [y] to it is off by at most [y]. *)
Definition nearest (A : arithmetic) := sum_loss A <= loss A /\
  forall x y, representable A x -> Rabs (fl A (x + y) - (x + y)) <= Rabs y + sum_loss A.
Definition SOFT_arithmetics := forall emin p : Z, (1 < p)%Z ->
  [/\ monotone (gradual emin p), monotone (flushing emin p), nearest (gradual emin p) &
    nearest (flushing emin p)].

(** ** How a sum of products is computed, and what that costs

    The bound is [cost s] times the sum of absolute values, and [lost s] *)
Record setting := Setting { sums : arithmetic; stores : arithmetic; cutting : R -> R; cut_by : R;
  products : nat; terms : nat; casts : nat; stored_sums : nat }.
Definition computed (s : setting) (I : Type) (w x : I -> R) (b : R) (t : order I) : R :=
  evaluate (sums s) (stores s) (cutting s) w x b t.
Definition as_set (s : setting) (I : finType) (w x : I -> R) b (t : order I) :=
  limits (sums s) (stores s) (cut_by s) (terms s) /\
  evaluation (sums s) (stores s) (cutting s) (cut_by s) (products s) (terms s) (casts s)
    (stored_sums s) w x b t.
Definition growth_of (s : setting) : R := growth (sums s) (stores s) (cut_by s) (terms s) (casts s).
Definition cost (s : setting) : R := growth_of s - 1.
Definition lost (s : setting) : R := growth_of s * underflow (sums s) (stores s) (products s)
  (terms s) (stored_sums s).
(** The same, counting [N] of the summands alone. *)
Definition among (s : setting) (N : nat) : setting :=
  Setting (sums s) (stores s) (cutting s) (cut_by s) (products s) N (casts s) (stored_sums s).
(** A sum may be counted on few of its summands if it rounds to nearest: then each other one moves
  it
    by little more than it weighs. Where sums truncate, as those of tensor cores, the smallest
      number
    may move them by a unit in the last place; there the others must have the weight 0. *)
Definition may_count (s : setting) (I : Type) (few : pred I) (w : I -> R) :=
  nearest (sums s) \/ (cutting s 0 = 0 /\ forall i, ~~ few i -> w i = 0).
(** A sum in any order, counted on few of its summands: the others are rounded, and moved, by no
    more than twice what they weigh, however many they are. *)
Definition few_bound (s : setting) (N : nat) (near far : R) : R :=
  cost (among s N) * near + growth_of (among s N) * (2 * (growth_of s * far + lost s)).
Definition counted_if (may : setting -> forall I : Type, pred I -> (I -> R) -> Prop) :=
  forall s (I : finType) (few : pred I) (w x : I -> R) t N,
  as_set s w x 0 t -> may s I few w -> (#|few| <= N <= terms s)%N ->
  Rabs (computed s w x 0 t - \big[Rplus/0]_(i | few i) (w i * x i))
  <= few_bound s N (\big[Rplus/0]_(i | few i) (Rabs (w i) * Rabs (x i)))
       (\big[Rplus/0]_(i | ~~ few i) (Rabs (w i) * Rabs (x i))).
Definition SOFT_few := counted_if may_count.

(** ** The softmax *)
(** What the weights of [N] keys are off by in all: exponentials off by a fraction [D] of their sum,
    their sum within [g] and [lambda], each quotient within [v] and [mu]. *)
Definition softmax_bound (N D g lambda v mu : R) : R :=
  ((v + g) * (1 + D) + 2 * D + lambda) / ((1 - g) * (1 - D) - lambda) + N * mu.
(** For scores of which one is at least 0 (the largest was subtracted), among the few keys that
    count; all others weigh [far'] as exponentials, and [far] as computed. *)
Definition SOFT_softmax := forall (K : finType) (few : pred K) (s e w : K -> R)
  (total D g lambda v mu far far' : R),
  [/\ 0 <= D <= 1, 0 <= g <= 1, 0 <= lambda, 0 <= v & 0 < (1 - g) * (1 - D) - lambda] ->
  (exists2 k, few k & 0 <= s k) -> (forall k, 0 <= e k) ->
  \big[Rplus/0]_(k | few k) Rabs (e k - exp (s k)) <= D * \big[Rplus/0]_(k | few k) exp (s k) ->
  Rabs (total - \big[Rplus/0]_(k | few k) e k) <= g * \big[Rplus/0]_(k | few k) e k + lambda ->
  (forall k, few k -> Rabs (w k - e k / total) <= v * (e k / total) + mu) ->
  \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far -> \big[Rplus/0]_(k | ~~ few k) exp (s k)
    <= far' ->
  \sum_k Rabs (w k - softmax s k) <= softmax_bound (INR #|few|) D g lambda v mu + far + 2 * far'.
(** Exponentials as a device may give them: 1 at a largest score, off by a fraction [D] of the sum
    of those that count; the others weigh [far] as computed. *)
Definition exponentials (A : arithmetic) (K : finType) (few : pred K) (s e : K -> R)
  (D far far' : R) :=
  [/\ exists2 k, few k & 0 <= s k /\ e k = 1, forall k, representable A (e k) /\ 0 <= e k <= 2,
      \big[Rplus/0]_(k | few k) Rabs (e k - exp (s k)) <= D * \big[Rplus/0]_(k | few k) exp (s k),
      \big[Rplus/0]_(k | ~~ few k) e k <= far & \big[Rplus/0]_(k | ~~ few k) exp (s k) <= far'].
(** Their sum, in an order that stores nothing. *)
Definition summed (K : finType) (e : K -> R) (t : order K) :=
  [/\ each_once (fun _ => 1) e 0 t, None \notin summands t & stored_in_all t = 0%N].
(** Summed and divided in [A], or multiplied with the reciprocal, and stored in [T], for [n] keys of
    which [N] count. *)
Definition total_lost (A : arithmetic) (N n : nat) (far : R) : R :=
  (1 + gamma N (roundoff A)) *
    (2 * ((1 + gamma n (roundoff A)) * (far + (INR n * loss A + INR n * sum_loss A)))).
Definition far_weights (T : arithmetic) (n : nat) (far : R) : R := 2 * far + INR n * sum_loss T.
Definition computed_bound (A T : arithmetic) (N n : nat) (D far far' : R) : R :=
  softmax_bound (INR N) D (gamma N (roundoff A)) (total_lost A N n far)
    ((1 + roundoff A) ^ 2 * (1 + roundoff T) - 1)
      ((1 + roundoff T) * (3 + 2 * roundoff A) * loss A + loss T)
  + far_weights T n far + 2 * far'.
Definition small_enough (A : arithmetic) (N n : nat) (D far : R) :=
  [/\ 0 <= D <= 1, 0 <= far, INR n * roundoff A < 1,
    gamma N (roundoff A) <= 1 & 0 < (1 - gamma N (roundoff A)) * (1 - D) - total_lost A N n far].
(** Arithmetics that round to nearest, or flush. *)
Definition rounds_to_nearest (A : arithmetic) := [/\ sound A, monotone A & nearest A].
Definition SOFT_computed := forall A T reciprocal, rounds_to_nearest A -> rounds_to_nearest T ->
  representable A 1 ->
  forall (K : finType) (few : pred K) (s e : K -> R) (t : order K) N D far far',
    (#|few| <= N <= #|K|)%N ->
  small_enough A N #|K| D far -> exponentials A few s e D far far' -> summed e t ->
  let w := computed_softmax A T reciprocal e t in
  \sum_k Rabs (w k - softmax s k) <= computed_bound A T N #|K| D far far' /\
  \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far_weights T #|K| far.

(** ** The error of exponentials, key by key *)
(** A score of one axis falls on either side of 0: that of a quadratic head does, of the place
    beside the nearest key. *)
Definition falls (s : Z -> R) := s 0%Z = 0 /\
  forall x y, (0 <= x <= y)%Z -> s y <= s x /\ s (- y)%Z <= s (- x)%Z.
(** On one side, half of the nearest key with it, smaller scores weigh [rho] times as much, over all
    integers. *)
Definition side_ratio (s : Z -> R) (c rho : R) (side : Z) := exists T T',
  [/\ infinite_sum (fun m => exp (s (side * (Z.of_nat m + 1))%Z)) T,
      infinite_sum (fun m => exp ((1 - c) * s (side * (Z.of_nat m + 1))%Z)) T' &
        / 2 + T' <= rho * (/ 2 + T)].
Definition axis_ratio (s : Z -> R) (c rho : R) :=
  [/\ falls s, side_ratio s c rho 1 & side_ratio s c rho (-1)].
(** The score of key [k] in a box: a sum over the axes. *)
Definition around n (size : 'I_n -> nat) (s : 'I_n -> Z -> R) (near k : box size) : R :=
  \sum_a s a (Z.of_nat (k a) - Z.of_nat (near a))%Z.
(** A far key has no weight: the mean of [exp (c |score|)] over the keys of a box is at most the
    product of these ratios, whatever the box. *)
Definition SOFT_moment := forall n (size : 'I_n -> nat) (near : box size) (s : 'I_n -> Z -> R)
  (c : R) (rho : 'I_n -> R),
  0 <= c <= 1 -> (forall a, axis_ratio (s a) c (rho a)) ->
  \sum_k softmax (around s near) k * exp (c * Rabs (around s near k)) <= \prod_a rho a.
(** For the squared distance to a key it is a ratio of theta series. *)
Definition SOFT_theta := forall alpha c theta theta', 0 < alpha -> 0 <= c < 1 ->
  over_integers (fun z => - alpha * IZR (z * z)) theta ->
  over_integers (fun z => - ((1 - c) * alpha) * IZR (z * z)) theta' ->
  axis_ratio (fun z => - alpha * IZR (z * z)) c (theta' / theta).
(** Exponentials off by a fraction [d], but at the nearest key, and by [eta], of scores off by [c
    |score| + c0] ... *)
Definition off_by_key (K : finType) (near : K) (s e : K -> R) (c c0 d eta : R) := forall k,
  Rabs (e k - exp (s k)) <= ((1 + (if k == near then 0 else d)) * exp (c * Rabs (s k) + c0) - 1) *
    exp (s k) + eta.
(** ... are off by this fraction of their sum over [N] keys; [M] is the mean above, and the others
    weigh [far']. *)
Definition key_error (N c0 d eta M leak far' : R) : R :=
  ((1 + d) * (exp c0 * M - 1) + d * leak) * (1 + far') + N * eta.
Definition off_by_keys (cost : R -> R) := forall (K : finType) (few : pred K) near
  (s e : K -> R) c c0 d eta M leak far',
  [/\ 0 <= c, 0 <= c0, 0 <= d & 0 <= eta] -> few near -> s near = 0 -> (forall k, s k <= 0) ->
  off_by_key near s e c c0 d eta ->
  \sum_k softmax s k * exp (c * Rabs (s k)) <= M -> 1 - softmax s near <= leak ->
  \big[Rplus/0]_(k | ~~ few k) exp (s k) <= far' ->
  \big[Rplus/0]_(k | few k) Rabs (e k - exp (s k))
    <= key_error (INR #|few|) (cost c0) d eta M leak far' * \big[Rplus/0]_(k | few k) exp (s k) /\
  \big[Rplus/0]_(k | ~~ few k) e k
    <= (1 + d) * exp c0 * \big[Rplus/0]_(k | ~~ few k) exp ((1 - c) * s k) + INR #|K| * eta.
Definition SOFT_by_key := off_by_keys id.
(** The keys within [r] of the nearest along each axis, how many they are, and what the others
    weigh. *)
Definition cube n (size : 'I_n -> nat) (near : box size) (r : nat) : pred (box size) := fun k =>
  [forall a, (Z.abs (Z.of_nat (k a) - Z.of_nat (near a)) <=? Z.of_nat r)%Z].
Definition beyond (s : Z -> R) (total : R) (r : nat) : R :=
  total - \big[Rplus/0]_(m < (r + r).+1) exp (s (Z.of_nat m - Z.of_nat r)%Z).
Definition SOFT_cube := forall n (size : 'I_n -> nat) (near : box size) (r : nat),
  (#|cube near r| <= (r + r).+1 ^ n)%N /\
  forall (s : 'I_n -> Z -> R) (total : 'I_n -> R), (forall a, over_integers (s a) (total a)) ->
  \big[Rplus/0]_(k | ~~ cube near r k) exp (around s near k)
  <= \sum_a beyond (s a) (total a) r * \big[Rmult/1]_(b | b != a) total b.

(** ** A mean *)
(** With weights [w] that are, in all, within [off] of probabilities [p], and weigh [far] beside the
    few that count. *)
Definition mixing_bound (s : setting) (N : nat) (off far range : R) : R :=
  (off + far) * range + few_bound s N ((1 + off) * range) (far * range).
Definition SOFT_mixing := forall s (K : finType) (few : pred K) (p w x : K -> R) t N off far range,
  as_set s w x 0 t -> may_count s few w -> (#|few| <= N <= terms s)%N ->
  (forall i, 0 <= p i) -> \sum_i p i = 1 -> \sum_i Rabs (w i - p i) <= off ->
    \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far ->
  (forall i, Rabs (x i) <= range) ->
  Rabs (computed s w x 0 t - \sum_i p i * x i) <= mixing_bound s N off far range.

(** Of computed scores [s'], off by [c |s| + c0], and their exponentials as a device gives them:
    that is what is off, key by key. *)
Definition SOFT_exponentials := forall (K : finType) (near : K) (s s' e : K -> R) c c0 d eta,
  0 <= d ->
  (forall k, Rabs (s' k - s k) <= c * Rabs (s k) + c0) ->
  (forall k, Rabs (e k - exp (s' k)) <= (if k == near then 0 else d) * exp (s' k) + eta) ->
    off_by_key near s e c c0 d eta.
(** The score of a quadratic head falls along each axis, at least as that of a head on a key with a
    smaller alpha. *)
Definition SOFT_falls := forall alpha f, 0 <= alpha -> Rabs f <= / 2 ->
  falls (centred alpha f) /\ forall z, centred alpha f z <= - (alpha * (1 - 2 * Rabs f)) * IZR
    (z * z).

(** ** Scores as computed *)
(** The part of one axis in the score of a key [z] pixels away, for a centre [f]; the distance is a
    number of the format. *)
Definition axis_score (A : arithmetic) (alpha f z : R) : R := let y :=
  fl A (z - f) in fl A (- alpha * fl A (y * y)).
(** Where sums do not underflow the score, over [n] axes in any order, is off by four roundings for
    each axis and [n] more; ... *)
Definition score_error (n : nat) (u : R) : R := (1 + u) ^ 4 * (1 + gamma n u) - 1.
Definition score_lost (n : nat) (u alpha lost : R) : R :=
  (1 + gamma n u) * (INR n * ((1 + u) * alpha * lost + 2 * lost)).
Definition SOFT_scores := forall A n (t : order 'I_n) (alpha : R) (f z : 'I_n -> R), sound A ->
  sum_loss A = 0 -> 0 <= alpha ->
  (forall a, representable A (z a) /\ representable A (- f a)) -> INR n * roundoff A < 1 ->
  let term a := axis_score A alpha (f a) (z a) in
  each_once (fun _ => 1) term 0 t -> stored_in_all t = 0%N -> None \notin summands t ->
  let distance := \sum_a (z a - f a) * (z a - f a) in
  Rabs (evaluate A A id (fun _ => 1) term 0 t - - alpha * distance)
  <= score_error n (roundoff A) * (alpha * distance) + score_lost n (roundoff A) alpha (loss A).
(** ... by one for each axis where the squares of integers are numbers of the format: up to
    [2^p]. *)
Definition integer_error (n : nat) (u : R) : R := (1 + u) * (1 + gamma n u) - 1.
Definition SOFT_integer_scores := forall emin p : Z, (1 < p)%Z -> (emin <= 0)%Z -> let A :=
  gradual emin p in
  forall n (t : order 'I_n) (alpha : R) (f z : 'I_n -> Z), in_format emin p alpha -> 0 <= alpha ->
  (forall a, Z.abs (z a - f a) * Z.abs (z a - f a) <= 2 ^ p)%Z -> INR n * roundoff A < 1 ->
  let term a := axis_score A alpha (IZR (f a)) (IZR (z a)) in
  each_once (fun _ => 1) term 0 t -> stored_in_all t = 0%N -> None \notin summands t ->
  let d := IZR (\big[Z.add/0%Z]_a ((z a - f a) * (z a - f a))%Z) in
  Rabs (evaluate A A id (fun _ => 1) term 0 t - - alpha * d)
  <= integer_error n (roundoff A) * (alpha * d) + (1 + gamma n (roundoff A)) * (INR n * loss A).
(** The largest subtracted: scores [s <= 0] of which the largest is that of [top]. *)
Definition subtracted_within (off : R -> R -> R -> R) := forall A, sound A ->
  forall (K : finType) (s s' : K -> R) c c0 top first,
  0 <= c <= 1 -> 0 <= c0 -> (forall k, s k <= s top <= 0) -> (forall k, s' k <= s' first) ->
  (forall k, Rabs (s' k - s k) <= c * Rabs (s k) + c0) -> forall k,
  Rabs (fl A (s' k - s' first) - (s k - s top))
  <= ((1 + roundoff A) * (1 + c) - 1) * Rabs (s k - s top)
    + (1 + roundoff A) * off c c0 (Rabs (s top)) + loss A.
Definition SOFT_subtracted := subtracted_within (fun c c0 top => 2 * c * top + 2 * c0).
(** Absolute features (L2e), each off by a fraction [phi], multiplied and added up in any order. *)
Definition SOFT_features := forall s (I : finType) (x y x' y' : I -> R) (t : order I) phi,
  0 <= phi ->
  (forall i, Rabs (x' i - x i) <= phi * Rabs (x i) /\ Rabs (y' i - y i) <= phi * Rabs (y i)) ->
  as_set s x' y' 0 t ->
  Rabs (computed s x' y' 0 t - \sum_i x i * y i)
  <= (growth_of s * (1 + phi) ^ 2 - 1) * (\sum_i Rabs (x i) * Rabs (y i)) + lost s.
Definition SOFT_features_size := forall n (alpha L : R) (q offset k : 'I_n -> R), 0 <= alpha ->
  0 <= L ->
  (forall a, Rabs (k a) <= L /\ Rabs (q a + offset a) <= L) ->
  \sum_p Rabs (query_feature alpha q offset p) * Rabs (key_feature k p)
    <= 3 * INR n * alpha * L ^ 2.

(** ** Mixing axis after axis *)
(** What [m] means in a row add up to, each with the bound [b] for tokens of a given range. *)
Fixpoint axes_error (b : nat -> R -> R) (range : R) (m : nat) : R :=
  if m is m.+1 then let e := axes_error b range m in e + b m (range + e) else 0.
(** Image [y a.+1] is image [y a] mixed along axis [a], in an order and a setting of its own, bands
    and stored sums included: keys without weight may be left out. After all axes each pixel is the
    mean by the softmax over the box. *)
Definition SOFT_axes := forall n (size : 'I_n -> nat) (s w : forall a, 'I_(size a) -> R)
  (few : forall a, pred 'I_(size a))
    (X : box size -> R) (y : nat -> box size -> R) (way : nat -> setting)
      (over : 'I_n -> box size -> order (box size))
    (N : nat -> nat) (off far : nat -> R) range,
  (forall k, Rabs (X k) <= range) -> y 0%N =1 X ->
  (forall a : 'I_n, [/\ may_count (way a) (few a) (w a), (#|few a| <= N a <= terms (way a))%N,
     \sum_j Rabs (w a j - softmax (s a) j) <= off a & \big[Rplus/0]_(j | ~~ few a j) Rabs (w a j)
       <= far a]) ->
  (forall (a : 'I_n) q, as_set (way a) (along (w a) q) (y a) 0 (over a q) /\
     y a.+1 q = computed (way a) (along (w a) q) (y a) 0 (over a q)) -> forall q,
  Rabs (y n q - \big[Rplus/0]_(k : box size)
    (softmax (fun j : box size => \sum_a s a (j a)) k * X k))
  <= axes_error (fun a => mixing_bound (way a) (N a) (off a) (far a)) range n.

(** ** Heads that are almost one-hot *)
(** If the target's exponential is 1, no weight is larger than its exponential as it is stored:
    dividing by the sum, which is at least 1, enlarges nothing. *)
Definition SOFT_leak := forall A T reciprocal, sound A -> monotone A -> monotone T -> sound T ->
  representable A 1 ->
  forall (K : finType) (e : K -> R) (target : K) (t : order K), summed e t ->
    (forall k, representable A (e k) /\ 0 <= e k) ->
  e target = 1 -> forall k, 0 <= computed_softmax A T reciprocal e t k <= fl T (e k).
(** So what leaks in all is at most this, for at most [N] weights that are not 0. *)
Definition SOFT_leak_in_all := forall A T reciprocal, sound A -> monotone A -> monotone T ->
  sound T -> representable A 1 ->
  forall (K : finType) (s e : K -> R) (target : K) (t : order K) (few : pred K) (N : nat) d eta,
  summed e t -> (forall k, representable A (e k) /\ 0 <= e k <= (1 + d) * exp (s k) + eta) ->
    e target = 1 -> 0 <= d -> 0 <= eta ->
  (forall k, k \notin few -> computed_softmax A T reciprocal e t k = 0) ->
    (#|[pred k in few | k != target]| <= N)%N ->
  \big[Rplus/0]_(k | k != target) computed_softmax A T reciprocal e t k
  <= (1 + roundoff T) * (1 + d) * \big[Rplus/0]_(k | k != target) exp (s k)
    + INR N * ((1 + roundoff T) * eta + loss T).
(** The mean with weights of which the target's is 1, uncut: off by what the others weigh, twice,
    and twice more for each cast on the way, and not by a fraction of the target. *)
Definition SOFT_hard_mixing := forall s (K : finType) (w x : K -> R) target t, as_set s w x 0 t ->
  (forall z, cutting s z = z) ->
  nearest (sums s) -> nearest (stores s) -> w target = 1 -> representable (sums s) (x target) ->
    representable (stores s) (x target) ->
  Rabs (computed s w x 0 t - x target)
  <= 2 ^ (casts s).+1 * (growth_of s * \big[Rplus/0]_(k | k != target) (Rabs (w k) * Rabs (x k))
    + lost s).
(** On the lattice: with scores of [- alpha] times squared distances what leaks weighs at most
    [theta^n - 1] of the target, theta the series of L2c, and at most [(2 r + 1)^n - 1] keys are
    within [r]. *)
Definition counts (allowed : forall (K : finType) n, (K -> point n) -> Prop)
    (counted : forall K : finType, K -> pred K) (side : nat -> nat) :=
  forall n (K : finType) (pos : K -> point n), allowed K n pos -> forall target (r : nat),
  (#|[pred k | counted K target k && (distance (pos k) (pos target) <=? Z.of_nat (r * r))%Z]| <=
    side r ^ n - 1)%N.
Definition another (K : finType) (target : K) : pred K := fun k => k != target.
Definition SOFT_lattice :=
  (forall n (K : finType) (pos : K -> point n), grid pos -> forall target alpha theta,
   over_integers (fun z => - alpha * IZR (z * z)) theta ->
   \big[Rplus/0]_(k | k != target) exp (- alpha * IZR (distance (pos k) (pos target)))
     <= theta ^ n - 1) /\
  counts grid another (fun r => (r + r).+1).
(** The target's weight is exactly 1, in any order of summation, where the others, of which at most
    [N] are not 0, do not move a sum of 1; and also where the quotient rounds to 1 as it is
    stored. *)
Definition SOFT_one := forall emin p emin' p' : Z, (1 < p' <= p)%Z -> (emin <= emin' <= - p')%Z ->
  (emin <= - p)%Z ->
  forall (K : finType) (e : K -> R) (target : K) (t : order K) reciprocal (few : pred K) (N : nat),
    summed e t ->
  (forall k, in_format emin p (e k) /\ 0 <= e k) -> e target = 1 ->
    (forall k, k \notin few -> e k = 0) ->
  (#|[pred k in few | k != target]| <= N)%N -> INR N.+1 * power (- p) < 1 ->
  let rest := \big[Rplus/0]_(k | k != target) e k in
  (1 + gamma N (power (- p))) * rest <= power (- p) \/
  (1 - power (- p' - 1)) * ((1 + gamma N.+1 (power (- p))) * (1 + rest)) <= 1 - power (- p) ->
  computed_softmax (gradual emin p) (gradual emin' p') reciprocal e t target = 1.

(** ** Fused attention *)
(** A running maximum of the scores, and relative to it the sums of exponentials and of the tokens
    that they weigh. *)
Record running := Running { highest : R; weight_sum : R; token_sum : R }.
(** A block of keys: both sums are rescaled to the new maximum, by [c], and added to. Exponentials
    are off by a fraction [d] of themselves, sums by a fraction [r] of the absolute values that they
    add up. *)
Definition fused_step (rescale : R -> R -> R) (K : finType) (s x : K -> R) (d r : R)
  (before : running) (block : seq K) (after : running) := exists (c : R) (e : K -> R),
  let factor := rescale (highest before) (highest after) in
  [/\ Rabs (c - factor) <= d * factor,
    forall k, Rabs (e k - exp (s k - highest after)) <= d * exp (s k - highest after),
    let added := weight_sum before * c + \big[Rplus/0]_(k <- block) e k in
      Rabs (weight_sum after - added) <= r * added
  & Rabs (token_sum after - (token_sum before * c + \big[Rplus/0]_(k <- block) (e k * x k)))
      <= r * (Rabs (token_sum before) * c + \big[Rplus/0]_(k <- block) (e k * Rabs (x k)))].
Inductive fused (rescale : R -> R -> R) (K : finType) (s x : K -> R) (d r : R)
  : seq K -> nat -> running -> Prop :=
  | No_block m : fused rescale s x d r [::] 0 (Running m 0 0)
  | Another_block keys n before block after : fused rescale s x d r keys n before ->
      fused_step rescale s x d r before block after ->
      fused rescale s x d r (keys ++ block) n.+1 after.
(** After all keys, in [n] blocks, the quotient of the two sums is the mean up to this share of the
    range of the tokens; maxima may be any numbers. *)
Definition fused_within (rescale : R -> R -> R) (share : R -> R) :=
  forall (K : finType) (s x : K -> R) d r range keys n state,
  0 <= d <= 1 -> 0 <= r -> (forall k, Rabs (x k) <= range) -> (0 < #|K|)%N ->
  perm_eq keys (enum K) -> fused rescale s x d r keys n state ->
  let g := ((1 + r) * (1 + d)) ^ n - 1 in g < 1 ->
  Rabs (token_sum state / weight_sum state - \sum_k softmax s k * x k) <= share g * range.
Definition SOFT_fused := fused_within (fun m m' => exp (m - m')) (fun g => 2 * g / (1 - g)).

(** ** The layers *)
(** The bound on the difference: [S] the sum of the weights of an output channel, [b] its bias,
    tokens of at most [range], read with an error of [e]. *)
Definition difference (S b range e : R) (first second : setting) : R :=
  S * e + (cost first * (S * range + b) + lost first)
    + (cost second * (S * range + b + S * e) + lost second).
(** If each head reads within [e] of what its tap reads, however it is mixed, the layer and the
    convolution as computed, each in its own order and arithmetic, differ by at most that. *)
Definition SOFT_tokens := forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals)
    (X : pixels g -> 'I_(G * ci) -> reals), bijective f ->
  forall range e, (forall k c, Rabs (zero_pad X k c) <= range) ->
  forall (token : H -> queries g -> 'I_(G * ci) -> R),
    (forall h q c, Rabs (token h q c - seen X q (f h) c) <= e) ->
  forall first second q o (t : order (taps g * 'I_(G * ci))) (t' : order (H * 'I_(G * ci))),
  as_set first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t ->
  as_set second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t' ->
  Rabs (computed second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t'
        - computed first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t)
  <= difference (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs (tap weight t c o))
    (Rabs (b o)) range e first second.
(** So the layer of FLOAT for every arithmetic and operands that are cut: weights that are one-hot
    as computed, in sums that round to nearest, flush or truncate; each token is read cut once, by a
    fraction of at most [kappa]. *)
Definition layers_within (error : R -> R -> R) := forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals)
    (X : pixels g -> 'I_(G * ci) -> reals), bijective f ->
  forall range, (forall k c, Rabs (zero_pad X k c) <= range) ->
  forall A T cut kappa, sound A -> sound T -> cut 0 = 0 -> cut 1 = 1 -> 0 <= kappa ->
  (forall x, Rabs (cut x - x) <= kappa * Rabs x) ->
  (forall k c, representable A (cut (zero_pad X k c)) /\ representable T (cut (zero_pad X k c))) ->
  forall attention : H -> queries g -> keys g -> R,
  (forall h q k, attention h q k = if reads q (f h) k then 1 else 0) ->
  forall mix : H -> queries g -> 'I_(G * ci) -> order (keys g),
  (forall h q c, each_once (attention h q) (fun k => zero_pad X k c) 0 (mix h q c)) ->
  let token h q c := evaluate A T cut (attention h q) (fun k => zero_pad X k c) 0 (mix h q c) in
  forall first second q o (t : order (taps g * 'I_(G * ci))) (t' : order (H * 'I_(G * ci))),
  as_set first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t ->
  as_set second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t' ->
  Rabs (computed second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t'
        - computed first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t)
  <= difference (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs (tap weight t c o))
    (Rabs (b o)) range (error kappa range) first second.
Definition SOFT_cut := layers_within Rmult.
(** A layer of soft heads: exponentials of given error, of few keys each, their sum and quotients,
    the leak in real arithmetic, the mixing, the products, the bias. The number of keys beside the
    few multiplies only what these weigh. *)
Definition SOFT := forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g)
    (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals)
    (X : pixels g -> 'I_(G * ci) -> reals), bijective f ->
  forall range, (forall k c, Rabs (zero_pad X k c) <= range) ->
  forall A T reciprocal, rounds_to_nearest A -> rounds_to_nearest T -> representable A 1 ->
  forall (few : H -> queries g -> pred (keys g)) (s e : H -> queries g -> keys g -> R)
    (over : H -> queries g -> order (keys g)) N D far far' leak,
  (forall h q, #|few h q| <= N)%N -> (N <= #|{: keys g}|)%N ->
    small_enough A N #|{: keys g}| D far ->
  (forall h q, exponentials A (few h q) (s h q) (e h q) D far far' /\ summed (e h q) (over h q)) ->
  (forall h q k, reads q (f h) k -> 1 - softmax (s h q) k <= leak) ->
  let attention h q := computed_softmax A T reciprocal (e h q) (over h q) in
  forall mixing (mix : H -> queries g -> 'I_(G * ci) -> order (keys g)),
  (forall h q, may_count mixing (few h q) (attention h q)) -> (N <= terms mixing)%N ->
  (forall h q c, as_set mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c)) ->
  let token h q c := computed mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c) in
  forall first second q o (t : order (taps g * 'I_(G * ci))) (t' : order (H * 'I_(G * ci))),
  as_set first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t ->
  as_set second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t' ->
  Rabs (computed second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t'
        - computed first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t)
  <= difference (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs (tap weight t c o)) (Rabs (b o)) range
       (2 * leak * range + mixing_bound mixing N (computed_bound A T N #|{: keys g}| D far far')
                             (far_weights T #|{: keys g}| far) range) first second.
End Computed.

(** * ROW: an executable bound on the difference of two layers in one output channel *)
Section Rows.
Local Open Scope R_scope.
(** An integer of [Rows] stands for this number. *)
Definition dyadic (x : Z) : R := IZR x / IZR Rows.one.
(** A setting of FLOAT costs no more than one of [Rows], whose first [N] terms are counted. *)
Definition setting_within (s : setting) (z : Rows.setting) :=
  [/\ roundoff (sums s) <= dyadic (Rows.roundoff z), cut_by s <= dyadic (Rows.cut z) &
    roundoff (stores s) <= dyadic (Rows.cast z)] /\
  [/\ loss (sums s) <= dyadic (Rows.loss z), sum_loss (sums s) <= dyadic (Rows.sum_loss z) &
    loss (stores s) <= dyadic (Rows.cast_loss z)] /\
  [/\ Z.of_nat (products s) <= Rows.products z, Z.of_nat (terms s) <= Rows.terms z,
      Z.of_nat (casts s) <= Rows.casts z & Z.of_nat (stored_sums s) <= Rows.stored z]%Z.
(** A convolution [first] and heads [second] of which head [h] reads [token h], each in any order
    and arithmetic that costs no more than the row says, for weights and a bias within it, differ by
    at most [Rows.bound]. *)
Definition differ_if (within : setting -> setting -> R -> R -> Prop) (z : Rows.row) n
  (g : geometry n) (G ci co : nat)
    (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals)
      (token : H -> queries g -> 'I_(G * ci) -> R) :=
  forall (weight : 'I_(G * co) -> nat -> taps g -> reals)
    (b : 'I_(G * co) -> reals) first second q o
    (t : order (taps g * 'I_(G * ci))) (t' : order (H * 'I_(G * ci))),
  within first second (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs (tap weight t c o))
    (Rabs (b o)) ->
  as_set first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t ->
  as_set second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t' ->
  Rabs (computed second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t'
        - computed first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t)
          <= dyadic (Rows.bound z).
Definition within_row (z : Rows.row) first second S b := [/\ setting_within first (Rows.first z),
  setting_within second (Rows.second z), S <= dyadic (Rows.weights z) & b <= dyadic (Rows.bias z)].
Definition differ_by z n g G ci co H f X token :=
  @differ_if (within_row z) z n g G ci co H f X token.
(** Heads that read exactly what their taps read, as one-hot ones do (FLOAT). *)
Definition read_exactly (within : Rows.row -> setting -> setting -> R -> R -> Prop)
  (reads_taps : R -> R -> Prop) :=
  forall (z : Rows.row) n (g : geometry n), fits g -> Rows.fits z = true -> Rows.soft z = None ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals),
    bijective f ->
  (forall k c, Rabs (zero_pad X k c) <= dyadic (Rows.radius z)) ->
  forall token, (forall h q c, reads_taps (token h q c) (seen X q (f h) c)) ->
    @differ_if (within z) z n g G ci co H f X token.
Definition ROW_hard := read_exactly within_row eq.
(** What a device makes of scores [s]: exponentials, their sum and quotients, as the row has
    them. *)
Definition device (z : Rows.heads) (A T : arithmetic) :=
  [/\ rounds_to_nearest A, rounds_to_nearest T & representable A 1] /\
  [/\ roundoff A <= dyadic (Rows.roundoff (Rows.softmax z)),
    loss A <= dyadic (Rows.loss (Rows.softmax z)) &
      sum_loss A <= dyadic (Rows.sum_loss (Rows.softmax z))] /\
  [/\ roundoff T <= dyadic (Rows.cast (Rows.softmax z)),
    loss T <= dyadic (Rows.cast_loss (Rows.softmax z)) &
      sum_loss T <= dyadic (Rows.weight_loss z)].
Definition device_exponentials (z : Rows.heads) (A : arithmetic) (K : finType) (target : K)
  (s e : K -> R) :=
  [/\ e target = 1, forall k, representable A (e k) /\ 0 <= e k <= 2 &
      off_by_key target s e (dyadic (Rows.score z)) (dyadic (Rows.score_lost z))
        (dyadic (Rows.ulps z))
        (dyadic (Rows.exp_lost z))].
(** Scores that fall at least like [- alpha z^2] on either side of the target, as those of a
    quadratic head of this sharpness do. *)
Definition sharp (z : Rows.heads) (s : Z -> R) := falls s /\ forall x,
  s x <= - dyadic (Rows.alpha z) * IZR (x * x).
(** What both ways of mixing presuppose: a row that fits and has heads [hd], [apart] or not, for as
    many axes; heads in bijection with the taps; an image within the radius; scores that fall along
    each axis; and the arithmetic of the device. *)
Record soft_premises (fit : Rows.row -> bool) (z : Rows.row) (hd : Rows.heads) (apart : bool) n
    (g : geometry n) (C : finType) (H : finType) (f : H -> taps g) (X : pixels g -> C -> reals)
    (A T : arithmetic) (s : H -> queries g -> 'I_n -> Z -> R) : Prop := SoftPremises {
  row_fits : fit z = true; row_has_heads : Rows.soft z = Some hd;
  mixed_apart : Rows.apart hd = apart; axes_agree : Z.of_nat n = Rows.axes hd;
  one_head_a_tap : bijective f;
  within_radius : forall k c, Rabs (zero_pad X k c) <= dyadic (Rows.radius z);
  scores_are_sharp : forall h q a, sharp hd (s h q a); as_the_device : device hd A T }.
(** Heads whose scores are a sum over the axes, mixed over all keys at once. *)
Definition whole_if (made : forall (hd : Rows.heads) (A : arithmetic) n (size : 'I_n -> nat),
    box size -> ('I_n -> Z -> R) -> (box size -> R) -> Prop) (fit : Rows.row -> bool) :=
  forall (z : Rows.row) (hd : Rows.heads) n
    (g : geometry n), fits g -> (Z.of_nat #|{: keys g}| <= Rows.keys hd)%Z ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals)
    A T reciprocal (s : H -> queries g -> 'I_n -> Z -> R) (e : H -> queries g -> keys g -> R)
    (over : H -> queries g -> order (keys g)),
  soft_premises fit z hd false f X A T s ->
  (forall h q target, reads q (f h) target -> made hd A _ _ target (s h q) (e h q)) ->
  (forall h q, summed (e h q) (over h q)) ->
  let attention h q := computed_softmax A T reciprocal (e h q) (over h q) in
  forall mixing (mix : H -> queries g -> 'I_(G * ci) -> order (keys g)),
  setting_within mixing (Rows.mean hd) ->
  (forall h q target, reads q (f h) target ->
    may_count mixing (cube target (Z.to_nat (Rows.reach hd))) (attention h q)) ->
  (forall h q c, as_set mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c)) ->
  let token h q c := computed mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c) in
  @differ_by z n g G ci co H f X token.
Definition whole_with := whole_if (fun hd A n size target s e =>
  device_exponentials hd A target (around s target) e).
Definition ROW_whole := whole_with Rows.fits.
(** The keys that a row counts along one axis. *)
Definition axis_near (hd : Rows.heads) (N : nat) (target j : 'I_N) : bool :=
  (Z.abs (Z.of_nat j - Z.of_nat target) <=? Z.of_nat (Z.to_nat (Rows.reach hd)))%Z.
(** Axis after axis: a softmax of its own for each, and image [y h q c a.+1] is image [y h q c a]
    mixed along axis [a]. *)
Definition apart_if (made : forall (hd : Rows.heads) (A : arithmetic) (N : nat), 'I_N ->
    ('I_N -> R) -> ('I_N -> R) -> Prop) (fit : Rows.row -> bool) :=
  forall (z : Rows.row) (hd : Rows.heads) n
    (g : geometry n), fits g -> (forall a, Z.of_nat (padded g a) <= Rows.keys hd)%Z ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals)
    A T reciprocal (s : H -> queries g -> 'I_n -> Z -> R)
    (e : H -> queries g -> forall a, 'I_(padded g a) -> R)
    (over : H -> queries g -> forall a, order 'I_(padded g a)),
  soft_premises fit z hd true f X A T s ->
  (forall h q target a, reads q (f h) target -> made hd A _ (target a)
     (fun j : 'I_(padded g a) => s h q a (Z.of_nat j - Z.of_nat (target a))%Z) (e h q a)) ->
  (forall h q a, summed (e h q a) (over h q a)) ->
  let attention h q a := computed_softmax A T reciprocal (e h q a) (over h q a) in
  forall (y : H -> queries g -> 'I_(G * ci) -> nat -> keys g -> R) (way : nat -> setting)
    (mix : H -> queries g -> 'I_(G * ci) -> 'I_n -> keys g -> order (keys g)),
  (forall a : 'I_n, setting_within (way a) (Rows.mean hd)) ->
  (forall h q target (a : 'I_n), reads q (f h) target ->
    may_count (way a) (axis_near hd (target a)) (attention h q a)) ->
  (forall h q c k, y h q c 0%N k = zero_pad X k c) ->
  (forall h q c (a : 'I_n) k, as_set (way a) (along (attention h q a) k) (y h q c a) 0
    (mix h q c a k) /\
     y h q c a.+1 k = computed (way a) (along (attention h q a) k) (y h q c a) 0 (mix h q c a k)) ->
  forall (token : H -> queries g -> 'I_(G * ci) -> R),
    (forall h q c, exists k, token h q c = y h q c n k) ->
  @differ_by z n g G ci co H f X token.
Definition apart_with := apart_if (fun hd A N target s e => device_exponentials hd A target s e).
Definition ROW_apart := apart_with Rows.fits.
(** The program answers with the bounds of the rows that stand in the integers of a file, and with
    nothing for a row that does not fit. *)
Definition ROW_read := forall n x answers, Rows.answers n x = Some answers -> exists rows,
  x = List.concat (List.map Rows.written rows) /\ answers = List.map Rows.answer rows /\
  forall r b, Rows.answer r = Some b -> Rows.fits r = true /\ b = Rows.bound r.
End Rows.

(** * LEFT: keys that are left out *)
Section LeftOut.
Local Open Scope R_scope.
(** The softmax of the keys that are kept. Leaving out any set of keys but the target's only takes
    from what leaks: the mean is as near to the target's number as that of all keys. *)
Definition share_of (K : finType) (kept : pred K) (s : K -> R) (k : K) : R :=
  if kept k then exp (s k) / \big[Rplus/0]_(j | kept j) exp (s j) else 0.
Definition left_out_if (may_keep : forall K : finType, pred K -> K -> Prop) :=
  forall s (K : finType) (few kept : pred K) (scores w x : K -> R) t target N off far range leak,
  may_keep K kept target -> as_set s w x 0 t -> may_count s few w -> (#|few| <= N <= terms s)%N ->
  \sum_i Rabs (w i - share_of kept scores i) <= off ->
  \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far -> (forall i, Rabs (x i) <= range) ->
  1 - softmax scores target <= leak ->
  Rabs (computed s w x 0 t - x target) <= 2 * leak * range + mixing_bound s N off far range.
Definition LEFT := left_out_if (fun K kept target => kept target).
(** In rows: the keys beyond an interval of each axis, which holds the target, have the exponential
    0. However much they weigh, the bound is the same, if the row allows an exponential any loss. *)
Definition ends_left_out (hd : Rows.heads) (A : arithmetic) (N : nat) (target : 'I_N)
  (s e : 'I_N -> R) := (0 < Rows.exp_lost hd)%Z /\
  exists (first last : nat) (kept : _ -> R), [/\ (first <= target < last)%N,
    device_exponentials hd A target s kept &
    forall j, e j = if (first <= j < last)%N then kept j else 0].
Definition apart_left_out := apart_if ends_left_out.
Definition LEFT_apart := apart_left_out Rows.fits.
Definition box_kept (hd : Rows.heads) (A : arithmetic) n (size : 'I_n -> nat)
  (target : box size) (s : 'I_n -> Z -> R) (e : box size -> R) := (0 < Rows.exp_lost hd)%Z /\
  exists (first last : 'I_n -> nat) (kept : _ -> R),
    [/\ forall a, (first a <= target a < last a)%N,
    device_exponentials hd A target (around s target) kept &
    forall k, e k = if [forall a, first a <= k a < last a]%N then kept k else 0].
Definition whole_left_out := whole_if box_kept.
Definition LEFT_whole := whole_left_out Rows.fits.
End LeftOut.

(** * GRAD: gradients *)
Section Gradients.
Local Open Scope R_scope.
(** Hard heads whose positions are frozen have the convolution's derivative along every curve of
    images, weights and biases. *)
Definition derivatives_if (attends : forall n (g : geometry n) (H : finType),
    (H -> taps g) -> (H -> queries g -> keys g -> reals) -> Prop) :=
  forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> reals)
    (Wval : R -> H -> 'I_(G * ci) -> D -> reals) (Wout : R -> H -> D -> 'I_(G * co) -> reals)
    (weight : R -> 'I_(G * co) -> nat -> taps g -> reals) (b : R -> 'I_(G * co) -> reals)
    (X : R -> pixels g -> 'I_(G * ci) -> reals),
  bijective f -> attends n g H f P ->
  (forall t h c o, merged (Wval t) (Wout t) h c o = tap (weight t) (f h) c o) ->
  forall q o t slope,
  derivable_pt_lim (fun t => mhsa P (Wval t) (Wout t) (b t) (zero_pad (X t)) q o) t slope <->
  derivable_pt_lim (fun t => torch_conv (weight t) (b t) (X t) q o) t slope.
Definition GRAD := derivatives_if (fun n g H f P => hard f P).
(** The mean that a quadratic head reads of any numbers [y] of the keys moves with its centre by
    twice alpha times their covariance with the coordinate. *)
Definition moved_mean (K : finType) n (pos : K -> 'I_n -> R) (alpha : R) (centre : 'I_n -> R)
    (y : K -> R) (a : 'I_n) (t : R) : R :=
  \sum_k softmax (fun j => - alpha * \sum_b ((pos j b - (centre b + if b == a then t else 0))
    * (pos j b - (centre b + if b == a then t else 0)))) k * y k.
Definition covariance (K : finType) (p x y : K -> R) : R :=
  \sum_k p k * (x k * y k) - (\sum_k p k * x k) * (\sum_k p k * y k).
Definition moves_by (slope : R -> R -> R) :=
  forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R) (centre : 'I_n -> R) (y : K -> R)
    (a : 'I_n) (k0 : K),
  derivable_pt_lim (moved_mean pos alpha centre y a) 0
    (slope alpha (covariance (softmax (fun j => - alpha
      * \sum_b ((pos j b - centre b) * (pos j b - centre b)))) (fun k => pos k a) y)).
Definition GRAD_centre := moves_by (fun alpha covariance => 2 * alpha * covariance).
(** By no more than twice alpha times what leaks, the spread of the coordinate, and that of [y]:
    sharp heads do not move. *)
Definition moves_at_most (bound : R -> R -> R) :=
  forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R) (centre : 'I_n -> R) (y : K -> R)
    (a : 'I_n) (target : K) leak reach range, 0 <= alpha ->
  1 - softmax (fun j => - alpha * \sum_b ((pos j b - centre b) * (pos j b - centre b))) target
    <= leak ->
  (forall i j, Rabs (pos i a - pos j a) <= reach) -> (forall i j, Rabs (y i - y j) <= range) ->
  exists2 slope, derivable_pt_lim (moved_mean pos alpha centre y a) 0 slope &
    Rabs slope <= bound alpha leak * reach * range.
Definition GRAD_bounded := moves_at_most (fun alpha leak => 2 * alpha * leak).
End Gradients.

(** * DEFORM: heads whose centre moves with the content *)
Section MovingCentres.
Local Open Scope R_scope.
(** Eq. (8) with its second and fourth terms: the query's channels weigh the displacement, by
    [Wqry], and not its square. *)
Definition moving_score n (Cin : finType) (alpha : R) (offset : 'I_n -> R)
    (Wqry : Cin -> 'I_n -> R) (xq xk : Cin -> R) (delta : 'I_n -> R) : R :=
  @score reals Cin _ _ (fun c p => if p is Some a then Wqry c a else 0) (fun _ _ => 0) identity
    (fun _ => 0) (@direction reals n alpha offset) xq xk (@encoding reals n delta).
Definition pushed n (Cin : finType) (Wqry : Cin -> 'I_n -> R) (xq : Cin -> R) (a : 'I_n) : R :=
  \sum_c xq c * Wqry c a.
(** That is the score of a quadratic head whose centre is this function of alpha, the offset and
    what the query pushes, axis by axis. *)
Definition scores_around (centre : R -> R -> R -> R)
    (expected : forall n, R -> ('I_n -> R) -> ('I_n -> R) -> R) :=
  forall n (Cin : finType) (alpha : R) offset (Wqry : Cin -> 'I_n -> R) xq xk delta, 0 < alpha ->
  moving_score alpha offset Wqry xq xk delta
    = expected n alpha (fun a => centre alpha (offset a) (pushed Wqry xq a)) delta.
Definition moved_by alpha offset push := offset + push / (2 * alpha).
Definition DEFORM := scores_around moved_by (@centred_square reals).
(** So its attention is a Gaussian of the keys around the moved centre, at whole pixels or not. *)
Definition moving_head n (K Cin : finType) (pos : K -> point n) alpha offset
    (Wqry : Cin -> 'I_n -> R) xq (X : K -> Cin -> R) (query : point n) : K -> R :=
  softmax (fun k => moving_score alpha offset Wqry xq (X k) (fun a => IZR (pos k a - query a))).
Definition attends_as (shape : forall (K : finType) n, (K -> point n) -> R -> ('I_n -> R) -> K -> R)
  := forall n (K Cin : finType) (pos : K -> point n) alpha offset (Wqry : Cin -> 'I_n -> R) xq X
    (query : point n) k, 0 < alpha ->
  moving_head pos alpha offset Wqry xq X query k = shape K n pos alpha
    (fun a => IZR (query a) + moved_by alpha (offset a) (pushed Wqry xq a)) k.
Definition gaussian (K : finType) n (pos : K -> point n) alpha (centre : 'I_n -> R) : K -> R :=
  softmax (fun k => - alpha * \sum_a (IZR (pos k a) - centre a) * (IZR (pos k a) - centre a)).
Definition DEFORM_gaussian := attends_as gaussian.
(** If the moved centre is a whole pixel, the key there has the share of L2c; beyond a box of keys,
    its clamp. *)
Definition share_around (at_pixel : R -> Z -> Prop) (inverse : nat -> R -> R) :=
  forall n (alpha : R), 0 < alpha ->
  forall (lo hi : point n) (K : finType) (pos : K -> point n), grid pos ->
    (forall k, inside lo hi (pos k)) ->
  forall (Cin : finType) offset (Wqry : Cin -> 'I_n -> R) xq X (query m : point n) nearest,
  (forall a, at_pixel (IZR (query a) + moved_by alpha (offset a) (pushed Wqry xq a)) (m a)) ->
  pos nearest =1 clamp lo hi m ->
  / inverse n alpha <= moving_head pos alpha offset Wqry xq X query nearest.
Definition DEFORM_leak :=
  share_around (fun centre m => centre = IZR m) (fun n alpha => theta_bound alpha ^ n).
(** The deformable convolution at output [q], where tap [t] reads the key [moved t] away from its
    own, or the nearest one of the padded grid: with a border of zeros, zero beyond the image. *)
Definition last_key n (g : geometry n) : point n := fun a => (Z.of_nat (padded g a) - 1)%Z.
Definition reads_moved n (g : geometry n) (q : queries g) (t : taps g) (moved : point n)
    (k : keys g) :=
  [forall a, Z.eqb (position k a)
    (clamp (fun _ => 0%Z) (last_key g) (fun a => site q a + offset t a + moved a)%Z a)].
Definition deformable_conv n (g : geometry n) (G ci co : nat)
    (weight : 'I_(G * co) -> nat -> taps g -> R) (b : 'I_(G * co) -> R)
    (Z : keys g -> 'I_(G * ci) -> R) (moved : taps g -> point n) (q : queries g) (o : 'I_(G * co))
    : R :=
  \sum_t \sum_c (\big[Rplus/0]_(k | reads_moved q t (moved t) k) Z k c)
    * @tap n g reals G ci co weight t c o + b o.
(** One head for each tap, whose query weights are [2 alpha] times an offset field [Wmove], linear
    in the query's channels: where that field is whole, the layer is within the leak of the
    deformable convolution that it moves. *)
Definition moving_heads n (g : geometry n) (alpha : R) (H Cin : finType) (f : H -> taps g)
    (Wmove : taps g -> Cin -> 'I_n -> R) (Xq : queries g -> Cin -> R) (X : keys g -> Cin -> R)
    (h : H) (q : queries g) : keys g -> R :=
  moving_head (@position n g) alpha (fun a => IZR (offset (f h) a))
    (fun c a => 2 * alpha * Wmove (f h) c a) (Xq q) X (site q).
Definition deforms_within (leak : R -> nat -> R) := forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (Wval : H -> 'I_(G * ci) -> D -> reals)
    (Wout : H -> D -> 'I_(G * co) -> reals) (weight : 'I_(G * co) -> nat -> taps g -> reals)
    (b : 'I_(G * co) -> reals),
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall alpha, 0 < alpha ->
  forall (Wmove : taps g -> 'I_(G * ci) -> 'I_n -> R) (Xq : queries g -> 'I_(G * ci) -> R)
    (Z : keys g -> 'I_(G * ci) -> reals) (range : 'I_(G * ci) -> R),
  (forall c k k', Rabs (Z k c - Z k' c) <= range c) ->
  forall q o moved, (forall t a, pushed (Wmove t) (Xq q) a = IZR (moved t a)) ->
  Rabs (mhsa (moving_heads alpha f Wmove Xq Z : H -> _ -> _ -> reals) Wval Wout b Z q o
        - deformable_conv weight b Z moved q o)
  <= leak alpha n * \sum_t \sum_c range c * Rabs (tap weight t c o).
Definition DEFORM_layer := deforms_within (fun alpha n => 1 - / theta_bound alpha ^ n).
End MovingCentres.

(** * SPAN: certificates that the checker confirms *)
Section Span.
Local Open Scope R_scope.
(** A certificate of [Checker] holds the rows of some attention, and the row asked for, at some
    queries, over [scale]. Weights [phi] leave this of one query, summed over the keys. *)
Variable c : Checker.certificate.
Definition span_entry (x : list Z) (k : nat) : R := IZR (List.nth k x 0%Z) / IZR (Checker.scale c).
Definition span_left (phi : 'I_(Checker.heads c) -> R) (q : Checker.query) : R :=
  \big[Rplus/0]_(k < Checker.keys c)
    Rabs (span_entry (Checker.target q) k - \sum_h phi h * span_entry
      (List.nth h (Checker.rows q) nil) k).
Definition span_norm (phi : 'I_(Checker.heads c) -> R) : R := \sum_h Rabs (phi h).
(** Some weights, of norm at most [bound] if there is a bound, leave at most [eps + per_norm
    |phi|_1] at each query. *)
Definition spanned := exists phi : 'I_(Checker.heads c) -> R,
  ((0 <= Checker.bound c)%Z -> span_norm phi <= IZR (Checker.bound c) / IZR (Checker.limit_scale c))
    /\
  forall q, List.In q (Checker.queries c) ->
  span_left phi q <= (IZR (Checker.eps c) + IZR (Checker.per_norm c) * span_norm phi) / IZR
    (Checker.limit_scale c).
End Span.
(** A certificate that the checker confirms is right: refuted, no weights serve; else some do. *)
Definition SPAN := forall c, Checker.check c = true ->
  if Checker.refutes c then ~ spanned c else spanned c.
Section SpanLayers.
Local Open Scope R_scope.
(** A certificate is of attention [P] and the shift of tap [t] if its rows are theirs, at the
    queries [asked] and no others, up to the order of the keys. *)
Definition speaks_of n (g : geometry n) (P : nat -> queries g -> pixels g -> R) (t : taps g)
    (asked : queries g -> Prop) (c : Checker.certificate) :=
  exists2 number : pixels g -> 'I_(Checker.keys c), bijective number &
  let same r q := forall i, span_entry c (Checker.target r) (number i) = shift (S := reals) t q i /\
    forall h, span_entry c (List.nth h (Checker.rows r) nil) (number i) = P h q i in
  (forall q, asked q -> exists2 r, List.In r (Checker.queries c) & same r q) /\
  (forall r, List.In r (Checker.queries c) -> exists2 q, asked q & same r q).
(** One confirmed certificate for each tap gives a layer of these heads for each convolution, near
    it at the queries asked for (L3_near); a confirmed refutation keeps every layer of these heads,
    of norm at most [bound] if there is one, away from the shift (L3_far). *)
Definition span_near_with (cost : R -> R) := forall n (g : geometry n) (ci co d N : nat)
    (P : nat -> queries g -> pixels g -> R) (asked : queries g -> Prop)
    (c : taps g -> Checker.certificate), (minn ci co <= d)%N ->
  (forall t, [/\ Checker.check (c t) = true, Checker.refutes (c t) = false,
    Checker.heads (c t) = N & speaks_of P t asked (c t)]) ->
  exists Phi : taps g -> 'I_N -> R,
  forall (weight : 'I_(1 * co) -> nat -> taps g -> reals) (b : 'I_(1 * co) -> reals),
  exists (Wval : 'I_N -> 'I_(1 * ci) -> 'I_d -> reals)
    (Wout : 'I_N -> 'I_d -> 'I_(1 * co) -> reals),
  forall q, asked q -> forall (X : pixels g -> 'I_(1 * ci) -> reals) range, 0 <= range ->
  (forall i c, Rabs (X i c) <= range) -> forall o,
  Rabs (mhsa (fun h : 'I_N => P h : _ -> _ -> reals) Wval Wout b X q o - torch_conv weight b X q o)
    <= range * \sum_t cost ((IZR (Checker.eps (c t)) + IZR (Checker.per_norm (c t))
        * \sum_h Rabs (Phi t h)) / IZR (Checker.limit_scale (c t)))
      * \big[Rplus/0]_k Rabs (@tap n g reals 1 ci co weight t k o).
Definition SPAN_near := span_near_with id.
Definition SPAN_far := forall n (g : geometry n) (P : nat -> queries g -> pixels g -> R)
    (t : taps g) (asked : queries g -> Prop) (c : Checker.certificate),
  Checker.check c = true -> Checker.refutes c = true -> speaks_of P t asked c ->
  forall (d : nat) (Wval : 'I_(Checker.heads c) -> 'I_(1 * 1) -> 'I_d -> reals)
    (Wout : 'I_(Checker.heads c) -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals),
  let phi h : R := merged Wval Wout h ord0 ord0 in
  ((0 <= Checker.bound c)%Z ->
    span_norm phi <= IZR (Checker.bound c) / IZR (Checker.limit_scale c)) ->
  exists (X : pixels g -> 'I_(1 * 1) -> reals) q o, [/\ asked q, forall i k, Rabs (X i k) = 1 &
  (IZR (Checker.eps c) + IZR (Checker.per_norm c) * span_norm phi) / IZR (Checker.limit_scale c)
    < Rabs (mhsa (fun h : 'I_(Checker.heads c) => P h : _ -> _ -> reals) Wval Wout b' X q o
      - torch_conv (one_tap t) b X q o)].
End SpanLayers.
(** What was read is what stands in the file, one certificate after the other, and each is
    checked. *)
Definition SPAN_read := forall n x answers, Checker.answers n x = Some answers ->
  exists cs, x = List.concat (List.map Checker.written cs) /\ answers = List.map Checker.check cs.

(** * Matrices: T1p, AND, HEADS *)
Module Matrices.
Import ssralg ssrint ssrnum rat poly finalg matrix mxalgebra.
Import GRing.Theory.
Local Open Scope ring_scope.

(** The numbers of a commutative ring of MathComp, so of a field. *)
Definition of_ring (F : comRingType) : numbers :=
  @Numbers F 0 1 +%R *%R (fun x y => x - y) -%R
    (mk_rt 0 1 +%R *%R (fun x y => x - y) -%R eq (@GRing.add0r F)
    (@GRing.addrC F) (@GRing.addrA F) (@GRing.mul1r F) (@GRing.mulrC F) (@GRing.mulrA F)
      (@GRing.mulrDl F)
    (fun x y => erefl) (@GRing.subrr F)).

(** ** TAPS: how many heads a layer needs that expresses every convolution *)
(** Over a field: as many as taps, if each tap sees a pixel at some output; so K^2 for a K x K
    kernel, as in Theorem 1. *)
Definition as_many_heads (seen : forall n, geometry n -> Prop) (enough : nat -> nat -> bool) :=
  forall (F : fieldType) n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> of_ring F) (ci co d : nat),
  fits g -> seen n g -> (0 < ci)%N -> (0 < co)%N ->
  expresses_all P ci co d -> enough #|{: taps g}| #|H|.
Definition TAPS := as_many_heads (fun n g => forall t, exists q i, sees (g := g) q t i) leq.

(** ** PATCH: as many heads as displacements of tokens *)
(** If each displacement of tokens is seen by some token, position-only attention that expresses
    every convolution of pixels has at least as many heads. *)
Definition patches_need (seen : forall n, geometry n -> Prop) := forall (F : fieldType) n
    (sides patch radius : 'I_n -> nat), (forall a, (0 < sides a)%N /\ (0 < patch a)%N) ->
  let g := patched_image sides patch radius in
  let tokens := token_grid sides (fun a => patch_reach (radius a) (patch a)) in seen n tokens ->
  forall (H D : finType) (P : H -> queries tokens -> pixels tokens -> of_ring F),
  (forall weight : 'I_(1 * 1) -> nat -> taps g -> of_ring F,
    exists (Wval : H -> box patch * 'I_(1 * 1) -> D -> of_ring F)
      (Wout : H -> D -> box patch * 'I_(1 * 1) -> of_ring F) (b : box patch * 'I_(1 * 1) -> of_ring
        F),
    forall X (k : queries tokens) (u : box patch) (q : queries g) o,
    (forall a, q a = (k a * patch a + u a)%N :> nat) ->
    mhsa P Wval Wout b (patches X) k (u, o) = torch_conv weight (fun _ => zero) X q o) ->
  (#|{: taps tokens}| <= #|H|)%N.
Definition PATCH_lower := patches_need (fun n g => forall t, exists q i, sees (g := g) q t i).

(** ** T1p: how wide a head must be *)
Definition independent (F : fieldType) (Q K H : finType) (P : H -> Q -> K -> F) :=
  forall a : H -> F, (forall q k, \sum_h a h * P h q k = 0) -> forall h, a h = 0.
(** For linearly independent attention maps, one head a tap matrix [W h]. *)
Definition gives_taps_iff (wide : nat -> nat -> bool) :=
  forall (F : fieldType) (Q K H : finType) (P : H -> Q -> K -> of_ring F), independent P ->
  forall (m n d : nat) (W : H -> 'M[F]_(m, n)) (b : 'I_n -> F),
  (exists (Wval : H -> 'I_m -> 'I_d -> of_ring F) (Wout : H -> 'I_d -> 'I_n -> of_ring F)
    (b' : 'I_n -> of_ring F),
     forall (X : K -> 'I_m -> of_ring F) q o,
     mhsa P Wval Wout b' X q o = \sum_h \sum_c (\sum_k P h q k * X k c) * W h c o + b o)
  <-> (forall h, wide (\rank (W h)) d).
Definition T1p := gives_taps_iff leq.
(** Lemma 1 and Theorem 1's clause in one: hard heads of dimension [d] give PyTorch's convolution if
    and only if [d] is at least the rank of every tap; where each tap sees a pixel of the image at
    some output. *)
Definition T1p_convolution := forall (F : fieldType) n (g : geometry n), fits g ->
  forall (G ci co d : nat) (H : finType) (f : H -> taps g)
    (P : H -> queries g -> keys g -> of_ring F)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b : 'I_(G * co) -> of_ring F),
  bijective f -> hard f P -> (forall t, exists q i, sees (g := g) q t i) ->
  (exists (Wval : H -> 'I_(G * ci) -> 'I_d -> of_ring F)
    (Wout : H -> 'I_d -> 'I_(G * co) -> of_ring F)
     (b' : 'I_(G * co) -> of_ring F),
     forall X q o, mhsa P Wval Wout b' (zero_pad X) q o = torch_conv weight b X q o)
  <-> (forall t, \rank (\matrix_(c < G * ci, o < G * co) (tap weight t c o : F)) <= d)%N.
(** Lemma 1's matrices exist for heads that wide, whether or not each tap sees a pixel. *)
Definition exist_if (wide : nat -> nat -> bool) := forall (F : fieldType) n (g : geometry n),
  fits g ->
  forall (G ci co d : nat) (H : finType) (f : H -> taps g)
    (P : H -> queries g -> keys g -> of_ring F)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b : 'I_(G * co) -> of_ring F),
  bijective f -> hard f P ->
  (forall t, wide (\rank (\matrix_(c < G * ci, o < G * co) (tap weight t c o : F))) d) ->
  exists (Wval : H -> 'I_(G * ci) -> 'I_d -> of_ring F)
    (Wout : H -> 'I_d -> 'I_(G * co) -> of_ring F),
  forall X q o, mhsa P Wval Wout b (zero_pad X) q o = torch_conv weight b X q o.
Definition T1p_exists := exist_if leq.
(** min(D_in, D_out) always serves; and heads of dimension [d] give any [min(d, n)] of the [n]
    output channels. *)
Definition T1p_channels := forall (F : fieldType) (m n d : nat),
  (forall W : 'M[F]_(m, n), \rank W <= minn m n)%N /\
  forall (kept : 'I_(minn d n) -> 'I_n), injective kept -> forall W : 'M[F]_(m, minn d n),
  exists (V : 'M[F]_(m, d)) (U : 'M[F]_(d, n)), forall c o, (V *m U) c (kept o) = W c o.
(** E3: the rank of a head is at most [D_h], and is not [D_out - D_h] as printed. *)
Definition T1p_rank :=
  (forall (F : fieldType) (m n d : nat) (V : 'M[F]_(m, d)) (U : 'M[F]_(d, n)),
  \rank (V *m U) <= d)%N /\
  ~ forall (F : fieldType) (m n d : nat), (d <= n)%N ->
    exists (V : 'M[F]_(m, d)) (U : 'M[F]_(d, n)), \rank (V *m U) = (n - d)%N.
(** E7: not so for soft heads, which are no shifts, though independent: two taps of rank 2, and two
    soft heads of dimension 1 that give both. (Their own matrices, the [W h] of T1p, have rank
    1.) *)
Definition T1p_soft := exists (W : bool -> 'M[rat]_2) (p : bool -> bool -> rat)
  (V : bool -> 'M[rat]_(2, 1)) (U : bool -> 'M[rat]_(1, 2)),
  independent (fun h (_ : unit) k => p h k) /\
  (forall t, \rank (W t) = 2%N) /\ (forall h k, 0 < p h k) /\
    (forall h, p h true + p h false = 1) /\
  forall X : bool -> 'rV[rat]_2,
  (p true true *: X true + p true false *: X false) *m V true *m U true
  + (p false true *: X true + p false false *: X false) *m V false *m U false
  = X true *m W true + X false *m W false.

(** ** AND: Andreoli 2019 *)
(** Proposition 1: over a basis (the rows of [a], free and spanning, entries of S flattened) every
    tensor has exactly one decomposition. *)
Definition AND1 := forall (F : fieldType) (s t k : nat) (a : 'M[F]_(k, s)), row_free a ->
  row_full a ->
  forall Phi : 'M[F]_(s, t), exists! Theta : 'M[F]_(k, t), Phi = a^T *m Theta.
(** Eq. (8): a convolution of basis [A] and parameter [Theta]. *)
Definition basis_conv (R : comRingType) (K : finType) (m n p q : nat) (A : K -> 'M[R]_(m, n))
  (Theta : K -> 'M[R]_(p, q))
    (x : 'M[R]_(m, p)) : 'M[R]_(n, q) := \sum_k (A k)^T *m x *m Theta k.
(** Proposition 2: Eq. (6) with [Phi = sum_k A_k (x) Theta_k], Eq. (7), is Eq. (8). *)
Definition AND2 := forall (R : comRingType) (K : finType) (m n p q : nat) (A : K -> 'M[R]_(m, n))
  (Theta : K -> 'M[R]_(p, q))
    (x : 'M[R]_(m, p)) i j,
  \sum_a \sum_b x a b * (\sum_k A k a i * Theta k b j) = basis_conv A Theta x i j.
(** Proposition 3: composing two convolutions multiplies their bases and their parameters. *)
Definition AND := forall (R : comRingType) (K1 K2 : finType) (m n n' p q q' : nat)
  (A1 : K1 -> 'M[R]_(m, n)) (Theta1 : K1 -> 'M[R]_(p, q)) (A2 : K2 -> 'M[R]_(n, n'))
    (Theta2 : K2 -> 'M[R]_(q, q')) x,
  basis_conv A2 Theta2 (basis_conv A1 Theta1 x)
  = basis_conv (fun k : K1 * K2 => A1 k.1 *m A2 k.2) (fun k => Theta1 k.1 *m Theta2 k.2) x.
(** ... the first layer's bias [b], the same at each of its outputs, becoming a field: a row for
    each output. *)
Definition AND_bias := forall (R : comRingType) (K1 K2 : finType) (m n n' p q q' : nat)
  (A1 : K1 -> 'M[R]_(m, n)) (Theta1 : K1 -> 'M[R]_(p, q)) (A2 : K2 -> 'M[R]_(n, n'))
    (Theta2 : K2 -> 'M[R]_(q, q'))
  (b : 'rV[R]_q) x,
  basis_conv A2 Theta2 (basis_conv A1 Theta1 x + \matrix_(_, c) b ord0 c)
  = basis_conv (fun k : K1 * K2 => A1 k.1 *m A2 k.2) (fun k => Theta1 k.1 *m Theta2 k.2) x
    + \matrix_(j, o) (\sum_l (\sum_i A2 l i j) * (b *m Theta2 l) ord0 o).
(** Eq. (13): heads concatenated, block (k) of the columns, and multiplied by an output matrix of
    blocks [U k], are the convolution with parameters [V k *m U k]. *)
Definition AND13 := forall (R : comRingType) (K : finType) (m n p d q : nat) (A : K -> 'M[R]_(m, n))
  (V : K -> 'M[R]_(p, d))
    (U : K -> 'M[R]_(d, q)) x,
  \matrix_(i, j) (\sum_(c : K * 'I_d) ((A c.1)^T *m x *m V c.1) i c.2 * U c.1 c.2 j)
    = basis_conv A (fun k => V k *m U k) x.

(** Eq. (9): parameters that are combinations of [C h] add up the basis elements first. *)
Definition AND9 := forall (R : comRingType) (K H : finType) (m n p q : nat) (A : K -> 'M[R]_(m, n))
  (theta : K -> H -> R)
    (C : H -> 'M[R]_(p, q)) x,
  basis_conv A (fun k => \sum_h theta k h *: C h) x = basis_conv
    (fun h => \sum_k theta k h *: A k) C x.
(** Eq. (12): a bi-linear score is an inner product of keys and queries. *)
Definition AND12 := forall (R : comRingType) (m n p q d : nat) (x : 'M[R]_(m, p)) (z : 'M[R]_(n, q))
  (key : 'M[R]_(p, d)) (query : 'M[R]_(q, d)),
  x *m (key *m query^T) *m z^T = (x *m key) *m (z *m query)^T.
(** Eqs. (1) to (4) of the paper, and with hard heads (L1) the grid convolution, are Eq. (8): the
    bases are the heads' attention. *)
Definition AND_attention := forall (R : comRingType) (Q K H D Cin Cout : finType)
  (P : H -> Q -> K -> of_ring R)
    (Wval : H -> Cin -> D -> of_ring R) (Wout : H -> D -> Cout -> of_ring R)
      (X : K -> Cin -> of_ring R) q o,
  mhsa P Wval Wout (fun _ => 0) X q o
  = basis_conv (fun h => \matrix_(k < #|K|, j < #|Q|) (P h (enum_val j) (enum_val k) : R))
      (fun h => \matrix_(c < #|Cin|, e < #|Cout|)
        (merged Wval Wout h (enum_val c) (enum_val e) : R))
      (\matrix_(k < #|K|, c < #|Cin|) (X (enum_val k) (enum_val c) : R)) (enum_rank q)
        (enum_rank o).

(** ** HEADS: how many position-only heads one convolution needs *)
(** Rows of [B] are the heads' attention on the [t] taps of the neighbourhood, rows of [W] the
    taps. *)
Definition attends (F : realFieldType) (h t : nat) (B : 'M[F]_(h, t)) := (forall i j, 0 <= B i j) /\
  forall i, \sum_j B i j = 1.
Definition rank_is (at_most : nat -> nat -> bool) :=
  forall (F : fieldType) (h t p : nat) (B : 'M[F]_(h, t)) (M : 'M[F]_(h, p)) (W : 'M[F]_(t, p)),
  W = B^T *m M -> at_most (\rank W) h.
Definition HEADS_lower := rank_is leq.
(** One more than the rank always serves, with heads positive everywhere, so softmaxes. *)
Definition HEADS_upper := forall (F : realFieldType) (t p : nat) (W : 'M[F]_(t.+1, p)),
  exists B : 'M[F]_(1 + \rank W, t.+1), attends B /\ (forall i j, 0 < B i j) /\ exists M,
    W = B^T *m M.
(** As many as the rank serve if and only if the tap patterns hold one that is positive on every tap
    that is not zero. *)
Definition rank_serves_iff (pattern : forall (F : realFieldType) t p, 'M[F]_(t, p) -> Prop) :=
  forall (F : realFieldType) (t p : nat) (W : 'M[F]_(t, p)),
  (exists B : 'M[F]_(\rank W, t), attends B /\ exists M, W = B^T *m M) <-> pattern F t p W.
Definition one_pattern (positive : forall F : realFieldType, F -> bool) (F : realFieldType) t p
    (W : 'M[F]_(t, p)) :=
  exists x : 'cV[F]_p, forall i, row i W != 0 -> positive F ((W *m x) i ord0).
Definition HEADS_iff := rank_serves_iff (one_pattern (fun F y => 0 < y)).
(** And may be needed: [-1, 0, 1] has rank 1, and one head never gives it. *)
Definition edge : 'M[rat]_(3, 1) := \col_i (i%:R - 1).
Definition HEADS_edge := \rank edge = 1%N /\ forall (B : 'M[rat]_(1, 3)) M, attends B ->
  edge <> B^T *m M.
(** So the layers: rows of the matrix are the taps of a convolution. Heads on the taps that are the
    convolution are at least as many as its rank ... *)
Definition tap_matrix (F : fieldType) n (g : geometry n) (G ci co : nat)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) :=
  \matrix_(t < #|{: taps g}|, p < #|{: 'I_(G * ci) * 'I_(G * co)}|)
    (tap weight (enum_val t) (enum_val p).1 (enum_val p).2 : F).
Definition layers_need (enough : nat -> nat -> bool) :=
  forall (F : fieldType) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (B : H -> taps g -> of_ring F)
    (P : H -> queries g -> keys g -> of_ring F) (Wval : H -> 'I_(G * ci) -> D -> of_ring F)
    (Wout : H -> D -> 'I_(G * co) -> of_ring F)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b b' : 'I_(G * co) -> of_ring F),
  on_taps B P -> (forall Z q o, mhsa P Wval Wout b' Z q o = conv_of_keys weight b Z q o) ->
  enough (\rank (tap_matrix ci weight)) #|H|.
Definition HEADS_need := layers_need leq.
(** ... and one more, positive on every tap, as wide as [min (D_in, D_out)], are the convolution. *)
Definition layers_serve (heads : nat -> nat) :=
  forall (F : realFieldType) n (g : geometry n), fits g ->
  forall (G ci co d : nat), (minn (G * ci) (G * co) <= d)%N ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b : 'I_(G * co) -> of_ring F),
  let H := 'I_(heads (\rank (tap_matrix ci weight))) in
  exists (B : H -> taps g -> F) (Wval : H -> 'I_(G * ci) -> 'I_d -> of_ring F)
    (Wout : H -> 'I_d -> 'I_(G * co) -> of_ring F),
  (forall h, (forall t, 0 < B h t) /\ \sum_t B h t = 1) /\
  forall P : H -> queries g -> keys g -> of_ring F, on_taps (S := of_ring F) B P ->
  forall Z q o, mhsa P Wval Wout b Z q o = conv_of_keys weight b Z q o.
Definition HEADS_serve := layers_serve S.

(** ** FINGERPRINT: Schwartz and Zippel over a finite field *)
(** Polynomials in [n] variables, each a polynomial of the first with such in the others as its
    coefficients; the value at a point, and the total degree. *)
Section Polynomials.
Variable F : finFieldType.
Fixpoint polynomials (n : nat) : idomainType :=
  if n is n.+1 then [idomainType of {poly polynomials n}] else F.
Fixpoint value n : polynomials n -> seq F -> F :=
  if n is n.+1 then fun p x => (map_poly (fun c => value c (behead x)) p).[head 0 x]
  else fun p x => p.
Fixpoint degree n : polynomials n -> nat :=
  if n is n.+1 then fun p => \max_(i < size p) (i + degree p`_i)%N else fun p => 0%N.
End Polynomials.
(** One that is not 0 vanishes at no more than its degree over the size of the field of all
    points. *)
Definition vanishes_if (allowed : forall (F : finFieldType) n, polynomials F n -> bool)
    (most : nat -> nat) := forall (F : finFieldType) n (p : polynomials F n), allowed F n p ->
  (#|[set x : n.-tuple F | value p x == 0%R]| * #|F| <= most (degree p) * #|F| ^ n)%N.
Definition FINGERPRINT_zeros := vanishes_if (fun F n p => p != 0) id.
End Matrices.
