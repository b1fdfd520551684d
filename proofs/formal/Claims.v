(** * The claims, in the order of the paper

    Every theorem here is written out over the definitions of [Statements]: the layer of the paper,
    PyTorch's convolution, the softmax, arithmetics. A lemma by reflexivity ties each to the name
    that its proof, its instance and its mutants use, so that nothing else is claimed. Read with
    Cordonnier, Loukas, Jaggi, ICLR 2020; its equations are cited by number. *)
From Coq Require Import ZArith Reals.
From mathcomp Require Import all_ssreflect.
From mathcomp Require ssralg ssrnum finalg matrix mxalgebra.
From C2A Require Checker Rows.
From C2A Require Import Statements.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(** * Where the sentences of the paper stand

    | The paper says | here |
    | --- | --- |
    | 2.1: attention is equivariant, it "gives the same output" | [Equivariance], [Not_invariant] |
    | Theorem 1 | [Theorem1], [Theorem1_uniform] |
    | Any size of kernel, 1D and dilated (Section 3) | [Theorem1], [Theorem1_bound] |
    | Theorem 1: min(D_h, D_out) output channels | [Channels_of_narrow_heads] |
    | D_p = 3 is enough, 2 in 1D | [Lemma2_score], [Two_dimensions], [One_dimension] |
    | Padding: pad by K / 2 zeros and crop | [Lemma1], [Cropped_padding] |
    | The same without zeros | false: [Border], [Border_soft], [Equal_tokens] |
    | Stride: a pooling layer after the attention | [Strides], [Pooling] |
    | Lemma 1 | [Lemma1]; that its matrices exist [Matrices_exist]; D_h [Width_of_a_head] |
    | Remark on D_h and D_out | [Rank_of_a_head], [Channels_of_narrow_heads] |
    | Lemma 2 | [Lemma2_score], [Lemma2_limit]; as an equality, [Lemma2_literally] |
    | Remark on alpha: convergence is exponential; 46 suffices | [Lemma2_share], [Thresholds] |
    | Lemma 3 | [Lemma3]; as printed, [Lemma3_printed] |
    | Appendix E: the score as an inner product | [Full_covariance] |
    | Appendix E: pruned heads cannot express 3 x 3 kernels | [As_many_heads_as_taps] |
    | Conclusion: like deformable convolutions | [Moved_centre], [Deformable_convolution] |

    What trained layers attend to, how accurate they are and what they cost (Section 4, Appendices A
    to F) are experiments, not theorems; that transformers are Turing-complete is cited, not
    claimed. What is stated below and not in this table goes beyond the paper. *)

(** * Lemma 1

    Heads in bijection with the taps of a convolution, each of which reads the key of its tap and no
    other (Eq. (10)), with [W_val W_out] the matrix of the tap: the layer is the convolution, for
    every image. Any number of axes, strides, dilations, paddings with zeros, groups; numbers of any
    commutative ring. Always offset = key - query (E4). Which heads are wide enough for such
    matrices is a theorem of its own ([Matrices_exist], [Width_of_a_head]). *)
Definition Lemma1 := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard (fun h => f h) P ->
  (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall X q o, mhsa P Wval Wout b (zero_pad X) q o = torch_conv weight b X q o.
Lemma Lemma1E : Lemma1 = L1. Proof. reflexivity. Qed.
(** Zero padding was one map in front of the keys. The lemma holds for any other: reflecting,
    cropping, stuffing with zeros. *)
Definition Lemma1_any_tokens := forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard f P -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall Z q o, mhsa P Wval Wout b Z q o = conv_of_keys weight b Z q o.
Lemma Lemma1_any_tokensE : Lemma1_any_tokens = L1_any. Proof. reflexivity. Qed.
(** Each key shows one pixel where padding repeats, reflects or wraps around, so hard heads behind
    it are the convolution of the image padded in that mode. *)
Definition Padding_modes := forall (S : numbers) n (g : geometry n) mode, fits g ->
  (forall a, may_pad mode (side g a) (before g a) (after g a)) ->
  (forall k, exists! i, source mode (g := g) k i) /\
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> hard f P -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall X q o, let padded k c := \big[@add S/zero]_(i | source mode k i) X i c in
    mhsa P Wval Wout b padded q o = conv_of_keys weight b padded q o.
Lemma Padding_modesE : Padding_modes = L1_modes. Proof. reflexivity. Qed.
(** A transposed convolution is a convolution of the image stuffed with zeros, its taps flipped. *)
Definition Transposed_convolution := forall (S : numbers) n
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
Lemma Transposed_convolutionE : Transposed_convolution = L1_transposed. Proof. reflexivity. Qed.

(** * Lemma 2

    The encoding [r = (|delta|^2, delta)] of [D_p = n + 1] numbers and [v = - alpha (1, - 2 Delta)]
    give the score [- alpha (|delta - Delta|^2 - |Delta|^2)], Eq. (14), whatever the tokens are.
    This is the order of Eq. (9); the code has [(delta, |delta|^2)]. Here the numbers have names. *)
Definition Lemma2_score := (forall (S : numbers) n (Cin : finType) (alpha : S)
  (offset delta : 'I_n -> S) (xq xk : Cin -> S),
  score (fun _ _ => zero) (fun _ _ => zero) (@identity _ _) (fun _ => zero) (direction alpha offset)
    xq xk (encoding delta) = (- alpha * (squared_norm (fun a => delta a - offset a) - squared_norm
    offset))%num) /\ forall n, #|{: option 'I_n}| = n.+1.
Lemma Lemma2_scoreE : Lemma2_score = L2a. Proof. reflexivity. Qed.
(** Its softmax is one-hot at the target in the limit of alpha, uniformly over all finite grids. *)
Definition Lemma2_limit := forall n (eps : R), (0 < eps)%R -> exists alpha0 : R, forall alpha,
  (alpha0 < alpha)%R ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target k,
  (Rabs (quadratic_head pos alpha (pos target) k - one_hot target k) <= eps)%R.
Lemma Lemma2_limitE : Lemma2_limit = L2b. Proof. reflexivity. Qed.
(** And at a finite alpha the target's share is at least [theta^-n], [theta = 1 + 2 / (e^alpha -
    1)]. *)
Definition Lemma2_share := forall n (alpha : R), (0 < alpha)%R ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target,
  (/ (theta_bound alpha ^ n)%R <= quadratic_head pos alpha (pos target) target)%R.
Lemma Lemma2_shareE : Lemma2_share = L2c. Proof. reflexivity. Qed.
(** The share of the key nearest to a real centre, with one alpha for each axis, in any box. *)
Definition Lemma2_centre := forall n (alpha centre total : 'I_n -> R) (m : point n),
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
Lemma Lemma2_centreE : Lemma2_centre = L2c_centre. Proof. reflexivity. Qed.
(** A gated head, as ConViT has them, leaks at most the share [1 - g] of content and [g] times
    that. *)
Definition Gated_head := (forall n (g alpha : R), 0 <= g <= 1 -> 0 < alpha ->
  forall (K : finType) (pos : K -> point n), grid pos -> forall target (content : K -> R),
  (forall k, 0 <= content k) ->
  1 - ((1 - g) * content target + g * quadratic_head pos alpha (pos target) target)
    <= ((1 - g) + g * (1 - / theta_bound alpha ^ n)))%R.
Lemma Gated_headE : Gated_head = L2c_gate. Proof. reflexivity. Qed.
(** Read as an equality it is false: on two keys no finite scores give Eq. (10) (E14). *)
Definition Lemma2_literally := forall (K : finType) (s : K -> R) (target other : K),
  other != target -> (softmax s target < 1%R)%R.
Lemma Lemma2_literallyE : Lemma2_literally = LIT. Proof. reflexivity. Qed.
(** And no layer of one head is the identity on two pixels, whatever its scores. *)
Definition No_layer_literally := forall (score : (bool -> R) -> bool -> bool -> R) (D : finType)
    (Wval : unit -> unit -> D -> reals) (Wout : unit -> D -> unit -> reals) (b : unit -> reals),
  ~ forall (X : bool -> R) q, let attention (_ : unit) q : bool -> reals := softmax (score X q) in
    mhsa attention Wval Wout b (fun k _ => X k) q tt = X q.
Lemma No_layer_literallyE : No_layer_literally = LIT_layer. Proof. reflexivity. Qed.

(** * Theorem 1

    Quadratic heads of dimension at least [min (D_in, D_out)], one a tap, express any convolution in
    the limit: values and outputs exist with which, for each image [X], the layer comes within any
    [eps] of it from some alpha on. This limit is pointwise in [X]: alpha may depend on it ... *)
Definition Theorem1 := (forall n (g : geometry n), fits g ->
  forall (G ci co d : nat), (minn (G * ci) (G * co) <= d)%N ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals),
  exists (Wval : taps g -> 'I_(G * ci) -> 'I_d -> reals)
    (Wout : taps g -> 'I_d -> 'I_(G * co) -> reals),
  forall (X : pixels g -> 'I_(G * ci) -> reals) (eps : R), 0 < eps ->
  exists alpha0 : R, forall alpha, alpha0 < alpha -> forall Xq q o,
  Rabs (mhsa (converted alpha id Xq (zero_pad X) : taps g -> _ -> _ -> reals) Wval Wout b
    (zero_pad X) q o
        - torch_conv weight b X q o) <= eps)%R.
Lemma Theorem1E : Theorem1 = T1. Proof. reflexivity. Qed.
(** ... but one alpha serves all images that are bounded by the same number. *)
Definition Theorem1_uniform := (forall n (g : geometry n), fits g ->
  forall (G ci co d : nat), (minn (G * ci)%N (G * co)%N <= d)%N ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> reals) (b : 'I_(G * co) -> reals),
  exists (Wval : taps g -> 'I_(G * ci) -> 'I_d -> reals)
    (Wout : taps g -> 'I_d -> 'I_(G * co) -> reals),
  forall range eps : R, 0 < eps -> exists alpha0 : R, forall alpha, alpha0 < alpha ->
  forall X : pixels g -> 'I_(G * ci) -> reals, (forall i c, Rabs (X i c) <= range) ->
  forall Xq q o,
  Rabs (mhsa (converted alpha id Xq (zero_pad X) : taps g -> _ -> _ -> reals) Wval Wout b
    (zero_pad X) q o - torch_conv weight b X q o) <= eps)%R.
Lemma Theorem1_uniformE : Theorem1_uniform = T1_uniform. Proof. reflexivity. Qed.
(** At a finite alpha the two differ by at most the leak times the weights and the spread of each
    channel: uniformly over all images of a given spread, for any tokens on the keys. *)
Definition Theorem1_bound := (forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (Wval : H -> 'I_(G * ci) -> D -> reals)
    (Wout : H -> D -> 'I_(G * co) -> reals) (weight : 'I_(G * co) -> nat -> taps g -> reals)
      (b : 'I_(G * co) -> reals),
  bijective f -> (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall alpha, 0 < alpha ->
  forall (Xq : queries g -> 'I_(G * ci) -> R) (Z : keys g -> 'I_(G * ci) -> reals)
    (range : 'I_(G * ci) -> R), (forall c k k', Rabs (Z k c - Z k' c) <= range c) -> forall q o,
  Rabs (mhsa (converted alpha f Xq Z : H -> _ -> _ -> reals) Wval Wout b Z q o
        - conv_of_keys weight b Z q o)
  <= (1 - / theta_bound alpha ^ n) * \sum_t \sum_c range c * Rabs (tap weight t c o))%R.
Lemma Theorem1_boundE : Theorem1_bound = T1_any. Proof. reflexivity. Qed.
(** Heads of two encoding dimensions, for any injective number of the keys: the leak is that of one
    axis. *)
Definition Theorem1_enumerated := (forall n (g : geometry n), fits g ->
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
  <= (1 - / theta_bound alpha) * \sum_t \sum_c range c * Rabs (tap weight t c o))%R.
Lemma Theorem1_enumeratedE : Theorem1_enumerated = T1_enumerated. Proof. reflexivity. Qed.

(** * Lemma 3, corrected

    Heads whose attention does not depend on [X], as wide as [min (D_in, D_out)], express every
    convolution if and only if the shifts of its taps are combinations of their attention with one
    [Phi] for all queries. *)
Definition Lemma3 := forall (S : numbers) n (g : geometry n) (H : finType)
  (P : H -> queries g -> pixels g -> S)
    (ci co d : nat),
  0 < ci -> 0 < co -> minn ci co <= d -> (forall (weight : 'I_(1 * co) -> nat -> taps g -> S)
  (b : 'I_(1 * co) -> S),
  exists (Wval : H -> 'I_(1 * ci) -> 'I_d -> S) (Wout : H -> 'I_d -> 'I_(1 * co) -> S)
    (b' : 'I_(1 * co) -> S),
  forall X q o, mhsa P Wval Wout b' X q o = torch_conv weight b X q o)%num <->
  (exists Phi : taps g -> H -> S, forall t q i, shift t q i = \sum_h Phi t h * P h q i)%num.
Lemma Lemma3E : Lemma3 = L3. Proof. reflexivity. Qed.
(** As printed, with a [Phi] of its own for each query, it is false (E2), under all its hypotheses:
    an odd kernel padded by half of it, at least [K^2] heads, [D_h >= D_out] (E17). *)
Definition Lemma3_printed := ~ forall W H K : nat, odd K -> let g := same_padding W H K in
  forall (Nh : nat) (A : 'I_Nh -> queries g -> pixels g -> R) (Din Dout Dh : nat),
  let P h q : pixels g -> reals := softmax (A h q) in
  0 < Din -> 0 < Dout -> K * K <= Nh -> Dout <= Dh -> expresses_all P Din Dout Dh <-> forall q,
    spans_at P q.
Lemma Lemma3_printedE : Lemma3_printed = L3p. Proof. reflexivity. Qed.
(** Robustly. Near: [Phi] gives a layer that differs at each query from each convolution by at most
    what it leaves of the shifts, times the weights. *)
Definition Lemma3_near := forall n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> reals) (ci co d : nat), minn ci co <= d ->
  forall (Phi : taps g -> H -> R) (weight : 'I_(1 * co) -> nat -> taps g -> reals)
    (b : 'I_(1 * co) -> reals),
  exists (Wval : H -> 'I_(1 * ci) -> 'I_d -> reals) (Wout : H -> 'I_d -> 'I_(1 * co) -> reals),
  (forall h c o, merged Wval Wout h c o
    = \big[Rplus/0%R]_t (Phi t h * @tap n g reals 1 ci co weight t c o)%R) /\
  forall (q : queries g) (eps : taps g -> R), (forall t,
  (\sum_i Rabs (shift (S := reals) t q i - \big[Rplus/0]_h ((Phi t) h * P h q i)))%R <= eps t)%R ->
  forall (X : pixels g -> 'I_(1 * ci) -> reals) range, (0 <= range)%R ->
  (forall i c, Rabs (X i c) <= range)%R ->
  forall o, (Rabs (mhsa P Wval Wout b X q o - torch_conv weight b X q o)
    <= range * \big[Rplus/0]_t (eps t
      * \big[Rplus/0]_c Rabs (@tap n g reals 1 ci co weight t c o)))%R.
Lemma Lemma3_nearE : Lemma3_near = L3_near. Proof. reflexivity. Qed.
(** Far: where all coefficients leave more than [eps] of a shift, every layer of these heads misses
    the convolution that is this shift by more than [eps], at an image of ones and minus ones. *)
Definition Lemma3_far := forall n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> reals) (t : taps g) (eps : R)
    (some : (H -> R) -> Prop) (asked : queries g -> Prop),
  (forall phi : H -> R, some phi -> exists2 q, asked q &
  (eps < (\sum_i Rabs (shift (S := reals) t q i - \big[Rplus/0]_h (phi h * P h q i)))%R)%R) ->
  forall (d : nat) (Wval : H -> 'I_(1 * 1) -> 'I_d -> reals)
    (Wout : H -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals),
  some (fun h => merged Wval Wout h ord0 ord0) ->
  exists (X : pixels g -> 'I_(1 * 1) -> reals) q o, [/\ asked q, forall i c, Rabs (X i c) = 1%R &
  (eps < Rabs (mhsa P Wval Wout b' X q o - torch_conv (one_tap t) b X q o))%R].
Lemma Lemma3_farE : Lemma3_far = L3_far. Proof. reflexivity. Qed.

(** * Fewer heads than taps

    Nothing comes near: of the taps [A] that one output sees, more than heads, every layer misses
    some tap's shift there by more than any [eps < 1], as the layer 0 does. *)
Definition Fewer_heads_come_no_nearer := forall n (g : geometry n), fits g ->
  forall (A : {set taps g}) (q : queries g), (forall t, t \in A -> exists i, sees q t i) ->
  forall (H : finType) (P : H -> queries g -> pixels g -> reals), (#|H| < #|A|)%N ->
  exists2 t, t \in A & forall (d : nat) (Wval : H -> 'I_(1 * 1) -> 'I_d -> reals)
    (Wout : H -> 'I_d -> 'I_(1 * 1) -> reals) (b b' : 'I_(1 * 1) -> reals) (eps : R),
  (eps < 1)%R ->
  exists (X : pixels g -> 'I_(1 * 1) -> reals) o, (forall i c, Rabs (X i c) = 1%R) /\
  (eps < Rabs (mhsa P Wval Wout b' X q o - torch_conv (one_tap t) b X q o))%R.
Lemma Fewer_heads_come_no_nearerE : Fewer_heads_come_no_nearer = TAPS_far. Proof. reflexivity. Qed.
(** * The border, strides, encodings

    Without padding hard heads read the pixel nearest to their target: the convolution of the
    replicate-padded image, not of the zero-padded one (E8). *)
Definition Border := (forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> pixels g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  bijective f -> (forall h q i, P h q i =
  if [forall j : pixels g, distance (pixel_place i) (looked_at q (f h))
    <=? distance (pixel_place j) (looked_at q (f h))] then one else zero)%Z ->
  (forall h c o, merged Wval Wout h c o = tap weight (f h) c o) ->
  forall X q o, mhsa P Wval Wout b X q o = conv_of_keys weight b (replicate_pad X) q o)%Z.
Lemma BorderE : Border = PAD_layer. Proof. reflexivity. Qed.
(** Replicate padding shows the clamp, and that is why: the key of a box nearest to any lattice
    point is its clamp, and every other is farther. *)
Definition Nearest_key := ([/\ (forall n (lo hi : point n), not_empty lo hi -> forall x,
  inside lo hi (clamp lo hi x)), (forall n (lo hi : point n), not_empty lo hi -> forall x y,
  inside lo hi y ->
  (distance (clamp lo hi x) x <= distance y x)%Z)
  & forall n (lo hi : point n), not_empty lo hi -> forall x y, inside lo hi y ->
    distance y x <= distance (clamp lo hi x) x -> y =1 clamp lo hi x])%Z.
Lemma Nearest_keyE : Nearest_key = PAD. Proof. reflexivity. Qed.
(** So unpadded quadratic heads of a finite alpha are within the leak of that convolution. *)
Definition Border_soft := (forall n (g : geometry n), fits g ->
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
  <= (1 - / theta_bound alpha ^ n) * \sum_t \sum_c range c * Rabs (tap weight t c o))%R.
Lemma Border_softE : Border_soft = T1_border. Proof. reflexivity. Qed.
(** Nor is any network of such layers a zero-padded convolution: equal tokens stay equal through
    softmax attention whose scores read tokens and places in any way, maps of each token alone, sums
    of branches, and one behind the other. So none is a zero-padded shift that sees a pixel at one
    output and none at another (Luo et al. 2022): zeros must be explicit, or a token stand beside
    those of the image. *)
Definition Equal_tokens := ((forall (K C C' : finType) (F : (K -> C -> reals) -> K -> C' -> reals),
  stack_of softmax_weights F ->
    forall X, (forall k k', X k = X k') -> forall k k', F X k = F X k') /\
  forall n (g : geometry n) (t : taps g) (q q' : queries g) i, sees q t i ->
    (forall j, ~~ sees q' t j) ->
  forall F : (pixels g -> 'I_(1 * 1) -> reals) -> pixels g -> 'I_(1 * 1) -> reals,
    stack_of softmax_weights F ->
  forall (at_pixel : queries g -> pixels g) (b : 'I_(1 * 1) -> reals),
  ~ forall X q o, F X (at_pixel q) o = torch_conv (one_tap t) b X q o)%R.
Lemma Equal_tokensE : Equal_tokens = PAD_stack. Proof. reflexivity. Qed.
(** To pad by more zeros and to crop the outputs is the same convolution: with no padding before and
    [K / 2] more, the paper's. *)
Definition Cropped_padding := (forall (S : numbers) n (g : geometry n), fits g ->
  (forall a, stride g a = 1%N) ->
  forall front behind (q : queries g), exists q1 : queries (more_padding g front behind),
  (forall a, q1 a = (q a + front a)%N :> nat) /\
  forall G ci co (weight : 'I_(G * co) -> nat -> taps g -> S) b
    (X : pixels g -> 'I_(G * ci) -> S) o,
    torch_conv weight b X q o = @torch_conv n (more_padding g front behind) S G ci co weight b X q1
      o)%Z.
Lemma Cropped_paddingE : Cropped_padding = PAD_crop. Proof. reflexivity. Qed.
(** A stride selects queries, as a pooling layer after the attention does: the strided convolution
    at [q] is the convolution of stride 1 at [q * stride], which exists ... *)
Definition Strides := forall (S : numbers) n (g : geometry n), fits g ->
  forall (q : queries g), exists q1 : queries (unstrided g),
    (forall a, q1 a = q a * stride g a :> nat) /\
  forall G ci co (weight : 'I_(G * co) -> nat -> taps g -> S) b
    (X : pixels g -> 'I_(G * ci) -> S) o,
    torch_conv weight b X q o = @torch_conv n (unstrided g) S G ci co weight b X q1 o.
Lemma StridesE : Strides = STR_conv. Proof. reflexivity. Qed.
(** ... as it does any pooling whose weights sum to 1. *)
Definition Pooling := forall (S : numbers) (Q Q' K H D Cin Cout : finType) (w : Q' -> Q -> S)
  (P : H -> Q -> K -> S)
    (Wval : H -> Cin -> D -> S) (Wout : H -> D -> Cout -> S) b X q' o, (\sum_q w q' q = 1)%num ->
  (\sum_q w q' q * mhsa P Wval Wout b X q o
    = mhsa (fun h q' k => \sum_q w q' q * P h q k) Wval Wout b X q' o)%num.
Lemma PoolingE : Pooling = STR_pooling. Proof. reflexivity. Qed.
(** Over a box the softmax of a sum over the axes is the product of the softmaxes of the axes ... *)
Definition Product_of_axes := forall n (size : 'I_n -> nat) (s : forall a, 'I_(size a) -> R)
  (k : box size),
  softmax (fun j : box size => \sum_a s a (j a))%R k = (\prod_a softmax (s a) (k a))%R.
Lemma Product_of_axesE : Product_of_axes = L2d. Proof. reflexivity. Qed.
(** ... so mixing by it is mixing axis after axis: rows, then columns. The image [y a.+1] is [y a]
    mixed by the softmax of axis [a] along the lines of that axis. *)
Definition Axis_after_axis := forall n (size : 'I_n -> nat) (s : forall a, 'I_(size a) -> R)
  (X : box size -> R)
    (y : nat -> box size -> R),
  (forall q, y 0 q = X q) ->
  (forall (a : 'I_n) q, y a.+1 q = \sum_k along (softmax (s a)) q k * y a k)%R ->
  forall q, (y n q = \sum_k softmax (fun j : box size => \sum_a s a (j a)) k * X k)%R.
Lemma Axis_after_axisE : Axis_after_axis = L2d_axes. Proof. reflexivity. Qed.
(** The same attention from inner products of absolute features [(2 alpha (q + Delta), - alpha)] and
    [(k, |k|^2)]. *)
Definition Absolute_features := (forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (q offset : 'I_n -> R),
  softmax (fun k => \sum_p query_feature alpha q offset p * key_feature (pos k) p)
  =1 softmax (fun k => square_score alpha q offset (pos k)))%R.
Lemma Absolute_featuresE : Absolute_features = L2e. Proof. reflexivity. Qed.
(** With a full covariance (Appendix E of the paper) the score is an inner product of the numbers
    [delta_i] and [delta_i delta_j], [i <= j], up to a constant of the head. *)
Definition Full_covariance := (forall n (M : 'I_n -> 'I_n -> R), symmetric M -> forall offset delta,
  generalised_score M offset delta = (linear_part M offset delta + pairs_part (/ 2) M delta - / 2 *
  bilinear M offset offset))%R.
Lemma Full_covarianceE : Full_covariance = GQ. Proof. reflexivity. Qed.
(** Two dimensions of the encoding are enough, as [Theorem1_enumerated] says of the layer: any
    finite set of displacements has two numbers [r] each, so that each displacement alone is the
    largest of the head [v] that targets it ... *)
Definition Two_dimensions := (forall D : finType, exists r v : D -> 'I_2 -> R,
  forall target k, k != target -> \sum_p v target p * r k p < \sum_p v target p * r target p)%R.
Lemma Two_dimensionsE : Two_dimensions = D2_two. Proof. reflexivity. Qed.
(** ... namely [r = (t, t^2)], for any injective number [t] of the displacement. *)
Definition Enumerated_score := (forall (D : eqType) (t : D -> R), injective t -> forall alpha,
  (0 < alpha)%R ->
  forall target d, d != target -> let s d := enumerated_score alpha (t target) (t d) in
  (s d < s target)%R)%R.
Lemma Enumerated_scoreE : Enumerated_score = D2. Proof. reflexivity. Qed.
(** One is not: three displacements cannot each be the largest of a head. *)
Definition One_dimension := (forall r v : 'I_3 -> R, ~ forall h k, k != h ->
  v h * r k < v h * r h)%R.
Lemma One_dimensionE : One_dimension = D2_minimum. Proof. reflexivity. Qed.
(** On tokens that are patches of pixels, one hard head for each displacement of tokens up to the
    radius of the kernel over the side of a patch, rounded up, serves every convolution of stride 1:
    channel [(u, o)] of token [k] is channel [o] of the pixel at [u] of its patch. *)
Definition Patch_tokens := forall (S : numbers) n
    (sides patch radius : 'I_n -> nat), (forall a, 0 < sides a /\ 0 < patch a) ->
  let g := patched_image sides patch radius in
  let tokens := token_grid sides (fun a => patch_reach (radius a) (patch a)) in
  forall (G ci co : nat) (H : finType) (f : H -> taps tokens)
    (P : H -> queries tokens -> keys tokens -> S), bijective f -> hard f P ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> S) (b : 'I_(G * co) -> S),
  exists (Wval : H -> box patch * 'I_(G * ci) -> box patch * 'I_(G * ci) -> S)
    (Wout : H -> box patch * 'I_(G * ci) -> box patch * 'I_(G * co) -> S)
    (b' : box patch * 'I_(G * co) -> S),
  forall X (k : queries tokens) (u : box patch) (q : queries g) o,
  (forall a, q a = k a * patch a + u a :> nat) ->
  mhsa P Wval Wout b' (zero_pad (patches X)) k (u, o) = torch_conv weight b X q o.
Lemma Patch_tokensE : Patch_tokens = PATCH. Proof. reflexivity. Qed.
(** Attention without positions is equivariant under shuffling ... *)
Definition Equivariance := (forall (H K D Cin Cout : finType)
  (s : H -> (Cin -> R) -> (Cin -> R) -> R)
    (Wval : H -> Cin -> D -> reals) (Wout : H -> D -> Cout -> reals) b (shuffle : K -> K),
  bijective shuffle -> forall (X : K -> Cin -> reals) q o, let Y k := X (shuffle k) in
  mhsa (token_attention s Y) Wval Wout b Y q o
    = mhsa (token_attention s X) Wval Wout b X (shuffle q) o)%R.
Lemma EquivarianceE : Equivariance = EQV. Proof. reflexivity. Qed.
(** ... which is not to give the same output however the tokens are shuffled (E16). *)
Definition Not_invariant := (exists (s : unit -> (unit -> R) -> (unit -> R) -> R)
  (X : bool -> unit -> reals) (shuffle : bool -> bool),
  bijective shuffle /\ let one_head _ _ _ : reals := 1 in let Y k := X (shuffle k) in
  mhsa (D := [finType of unit]) (token_attention s Y) one_head one_head
    (fun _ : unit => 0) Y true tt
  <> mhsa (D := [finType of unit]) (token_attention s X) one_head one_head
    (fun _ : unit => 0) X true tt)%R.
Lemma Not_invariantE : Not_invariant = EQV_not_invariant. Proof. reflexivity. Qed.
(** Absolute positions of full row rank give every quadratic head at all tokens, whatever content
    stands in a space independent of them. *)
Definition Absolute_positions := (forall n (K I D : finType) (position : K -> D -> R)
  (content : I -> D -> R),
  linearly_independent (either position content) ->
  forall (place : K -> 'I_n -> R) (alpha scale : R) (offset : 'I_n -> R), scale <> 0 ->
  exists Wqry Wkey : D -> option 'I_n -> R, forall (a : K -> I -> R) q,
  let away k b := place k b - place q b - offset b in
  softmax (stock_score Wqry Wkey scale (token position content a) q) =1 softmax
    (fun k => - alpha * dot (away k) (away k)))%R.
Lemma Absolute_positionsE : Absolute_positions = POS. Proof. reflexivity. Qed.

(** * Gradients

    Hard heads whose positions are frozen have the convolution's derivative along every curve. *)
Definition Gradients := (forall n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (f : H -> taps g) (P : H -> queries g -> keys g -> reals)
    (Wval : R -> H -> 'I_(G * ci) -> D -> reals) (Wout : R -> H -> D -> 'I_(G * co) -> reals)
    (weight : R -> 'I_(G * co) -> nat -> taps g -> reals) (b : R -> 'I_(G * co) -> reals)
    (X : R -> pixels g -> 'I_(G * ci) -> reals),
  bijective f -> hard f P ->
  (forall t h c o, merged (Wval t) (Wout t) h c o = tap (weight t) (f h) c o) ->
  forall q o t slope,
  derivable_pt_lim (fun t => mhsa P (Wval t) (Wout t) (b t) (zero_pad (X t)) q o) t slope <->
  derivable_pt_lim (fun t => torch_conv (weight t) (b t) (X t) q o) t slope)%R.
Lemma GradientsE : Gradients = GRAD. Proof. reflexivity. Qed.
(** The mean that a quadratic head reads of any numbers [y] of the keys moves with a coordinate of
    its centre by [2 alpha] times the covariance of [y] with that coordinate ... *)
Definition Moving_centres := (forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (centre : 'I_n -> R) (y : K -> R)
    (a : 'I_n) (k0 : K),
  derivable_pt_lim (moved_mean pos alpha centre y a) 0
    (2 * alpha * (covariance (softmax (fun j => - alpha
      * \sum_b ((pos j b - centre b) * (pos j b - centre b)))) (fun k => pos k a) y)))%R.
Lemma Moving_centresE : Moving_centres = GRAD_centre. Proof. reflexivity. Qed.
(** ... which is at most the leak times both spreads: sharp heads hardly move. *)
Definition Sharp_heads_stay := (forall n (K : finType) (pos : K -> 'I_n -> R) (alpha : R)
  (centre : 'I_n -> R) (y : K -> R)
    (a : 'I_n) (target : K) leak reach range, 0 <= alpha ->
  1 - softmax (fun j => - alpha * \sum_b ((pos j b - centre b) * (pos j b - centre b))) target
    <= leak ->
  (forall i j, Rabs (pos i a - pos j a) <= reach) -> (forall i j, Rabs (y i - y j) <= range) ->
  exists2 slope, derivable_pt_lim (moved_mean pos alpha centre y a) 0 slope &
    Rabs slope <= (2 * alpha * leak) * reach * range)%R.
Lemma Sharp_heads_stayE : Sharp_heads_stay = GRAD_bounded. Proof. reflexivity. Qed.

(** * Centres that move with the content

    With the second and fourth terms of Eq. (8), q.r + v.r, where the query weighs the displacement
    and not its square, a quadratic head has the centre [Delta + W q / (2 alpha)]: up to what the
    softmax drops, the score is [- alpha] times the squared distance to it. *)
Definition Moved_centre := (forall n (Cin : finType) (alpha : R) offset (Wqry : Cin -> 'I_n -> R) xq
  xk delta, 0 < alpha ->
  (@score reals Cin _ _ (fun c p => if p is Some a then Wqry c a else 0) (fun _ _ => 0) identity
    (fun _ => 0) (@direction reals n alpha offset) xq xk (@encoding reals n delta))%R
    = (@centred_square reals) n alpha (fun a => (offset a + (\sum_c xq c * Wqry c a)%R /
    (2 * alpha))%R) delta)%R.
Lemma Moved_centreE : Moved_centre = DEFORM. Proof. reflexivity. Qed.
(** One head for each tap, moved by an offset field [Wmove] that is linear in the query's channels:
    where the field is whole, the layer is a deformable convolution with nearest sampling, up to the
    leak of Lemma 2. Beyond the padded grid the key nearest to the moved centre is read. *)
Definition Deformable_convolution := (forall n (g : geometry n), fits g ->
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
  <= (1 - / theta_bound alpha ^ n) * \sum_t \sum_c range c * Rabs (tap weight t c o))%R.
Lemma Deformable_convolutionE : Deformable_convolution = DEFORM_layer. Proof. reflexivity. Qed.

(** * As computed

    The weight [e^-alpha] of a neighbour is 0 from these multiples of [ln 2] on, and not before: not
    46 (E1). *)
Definition Thresholds := ([/\ (forall alpha, float64 (exp (- alpha)) = 0 <-> 1075 * ln 2 <= alpha),
  (forall alpha, float32 (exp (- alpha)) = 0 <-> 150 * ln 2 <= alpha),
  (forall alpha, bfloat16 (exp (- alpha)) = 0 <-> 134 * ln 2 <= alpha)
  & (forall alpha, float16 (exp (- alpha)) = 0 <-> 25 * ln 2 <= alpha)])%R.
Lemma ThresholdsE : Thresholds = A46. Proof. reflexivity. Qed.
(** A sum of products in any order, in any sound arithmetic (rounding to nearest, flushing,
    truncating), with operands cut or not: off by [growth - 1] of the absolute values and a loss. *)
Definition Sums_of_products := (forall A T kappa k n c m, limits A T kappa n ->
  forall cut (I : finType) (w x : I -> R) b t, evaluation A T cut kappa k n c m w x b t ->
  Rabs (evaluate A T cut w x b t - (\sum_i w i * x i + b))
  <= (growth A T kappa n c - 1) * magnitude w x b + growth A T kappa n c * underflow A T k n m)%R.
Lemma Sums_of_productsE : Sums_of_products = FLOAT_sum. Proof. reflexivity. Qed.
(** No weight exceeds its own exponential as stored, if the target's is 1: a key whose exponential
    is stored as 0 weighs 0 ... *)
Definition Weights_of_far_keys := (forall A T reciprocal, sound A -> monotone A -> monotone T ->
  sound T ->
  representable A 1 ->
  forall (K : finType) (e : K -> R) (target : K) (t : order K), summed e t ->
    (forall k, representable A (e k) /\ 0 <= e k) ->
  e target = 1 -> forall k, 0 <= computed_softmax A T reciprocal e t k <= fl T (e k))%R.
Lemma Weights_of_far_keysE : Weights_of_far_keys = SOFT_leak. Proof. reflexivity. Qed.
(** ... and where the others are too small to move the sum as well, heads are exactly one-hot: in a
    format of [p] bits, stored in one of smallest subnormal [2^emin']. *)
Definition One_hot_heads := (forall emin p emin' p' : Z, (1 < p' <= p)%Z ->
  (emin <= emin' <= - p')%Z -> (emin <= - p)%Z ->
  forall (K : finType) (e : K -> R) (target : K) (t : order K) reciprocal,
  each_once (fun _ => 1) e 0 t -> (forall k, in_format emin p (e k)) ->
  e target = 1 -> (forall k, k != target -> 0 <= e k /\ (e k <= power (emin' - 1))) ->
  INR #|K| * power (- p) <= / 2 -> 2 * \big[Rplus/0]_(k | k != target) e k <= power (- p) ->
  forall k, computed_softmax (gradual emin p) (gradual emin' p') reciprocal e t k
    = one_hot target k)%R.
Lemma One_hot_headsE : One_hot_heads = FLOAT_one_hot. Proof. reflexivity. Qed.
(** Two layers, each in its own order and arithmetic: heads in bijection with the taps, each of
    which reads, however it is mixed, within [e] of what its tap reads. *)
Definition Two_layers := (forall n (g : geometry n), fits g ->
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
    (Rabs (b o)) range e first second)%R.
Lemma Two_layersE : Two_layers = SOFT_tokens. Proof. reflexivity. Qed.
(** Lemma 1 as computed: a layer of heads that are one-hot as computed, and the convolution, in
    sums of their own orders and arithmetics, differ by at most the sum of their roundings. *)
Definition Layer_of_one_hot_heads := (forall n (g : geometry n), fits g ->
  forall emin p emin' p' : Z,
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
       + growth A' T' kappa' n' c' * underflow A' T' k' n' m')%R.
Lemma Layer_of_one_hot_headsE : Layer_of_one_hot_heads = FLOAT. Proof. reflexivity. Qed.
(** The same in any sound arithmetic, with operands that are cut by a fraction of at most [kappa].
    *)
Definition Layer_of_cut_operands := (forall n (g : geometry n), fits g ->
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
    (Rabs (b o)) range (kappa * range)%R first second)%R.
Lemma Layer_of_cut_operandsE : Layer_of_cut_operands = SOFT_cut. Proof. reflexivity. Qed.
(** A layer of soft heads: exponentials, their sum and quotients, the leak, the mixing, the
    products and the bias, each as computed. *)
Definition Layer_of_soft_heads := (forall n (g : geometry n), fits g ->
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
                             (far_weights T #|{: keys g}| far) range) first second)%R.
Lemma Layer_of_soft_headsE : Layer_of_soft_heads = SOFT. Proof. reflexivity. Qed.
(** Keys that are left out, any set but the target's, only take from what leaks: the mean of the
    others is as near to the target's number as the mean of all. *)
Definition Left_out_keys := (forall s (K : finType) (few kept : pred K) (scores w x : K -> R) t
  target N off far range leak,
  kept target -> as_set s w x 0 t -> may_count s few w -> (#|few| <= N <= terms s)%N ->
  \sum_i Rabs (w i - (if kept i then exp (scores i) / \big[Rplus/0]_(j | kept j) exp (scores j) else
  0)%R) <= off ->
  \big[Rplus/0]_(k | ~~ few k) Rabs (w k) <= far -> (forall i, Rabs (x i) <= range) ->
  1 - softmax scores target <= leak ->
  Rabs (computed s w x 0 t - x target) <= 2 * leak * range + mixing_bound s N off far range)%R.
Lemma Left_out_keysE : Left_out_keys = LEFT. Proof. reflexivity. Qed.

(** * Programs

    The checker of certificates of spans: what it confirms is so. *)
Definition Certificates := forall c, Checker.check c = true ->
  if Checker.refutes c then ~ spanned c else spanned c.
Lemma CertificatesE : Certificates = SPAN. Proof. reflexivity. Qed.
(** Of a layer: one confirmed certificate for each tap gives a layer near each convolution ... *)
Definition Certificates_near := (forall n (g : geometry n) (ci co d N : nat)
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
    <= range * \sum_t ((IZR (Checker.eps (c t)) + IZR (Checker.per_norm (c t))
        * \sum_h Rabs (Phi t h)) / IZR (Checker.limit_scale (c t)))
      * \big[Rplus/0]_k Rabs (@tap n g reals 1 ci co weight t k o))%R.
Lemma Certificates_nearE : Certificates_near = SPAN_near. Proof. reflexivity. Qed.
(** ... and a confirmed refutation keeps every layer of these heads away from the shift. *)
Definition Certificates_far := (forall n (g : geometry n) (P : nat -> queries g -> pixels g -> R)
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
      - torch_conv (one_tap t) b X q o)])%R.
Lemma Certificates_farE : Certificates_far = SPAN_far. Proof. reflexivity. Qed.
(** The bound on rows, where heads read exactly what their taps read: for every row that fits,
    weights and a bias within it, and arithmetics that cost no more than it says, no difference of
    the two layers as computed exceeds [Rows.bound]. *)
Definition Bound_of_exact_heads := (forall (z : Rows.row) n (g : geometry n), fits g ->
  Rows.fits z = true -> Rows.soft z = None ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals),
    bijective f ->
  (forall k c, Rabs (zero_pad X k c) <= dyadic (Rows.radius z)) ->
  forall token, (forall h q c, (token h q c = seen X q (f h) c)) ->
    (forall (weight : 'I_(G * co) -> nat -> taps g -> reals)
    (b : 'I_(G * co) -> reals) first second q o
    (t : order (taps g * 'I_(G * ci))) (t' : order (H * 'I_(G * ci))),
  [/\ setting_within first (Rows.first z),
  setting_within second (Rows.second z), (\sum_t \big[Rplus/0]_(c : 'I_(G * ci)) Rabs
  (tap weight t c o)) <= dyadic (Rows.weights z) & (Rabs (b o)) <= dyadic (Rows.bias z)] ->
  as_set first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t ->
  as_set second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t' ->
  Rabs (computed second (fun i => tap weight (f i.1) i.2 o) (fun i => token i.1 q i.2) (b o) t'
        - computed first (fun i => tap weight i.1 i.2 o) (fun i => seen X q i.1 i.2) (b o) t)
          <= dyadic (Rows.bound z))%R)%R.
Lemma Bound_of_exact_headsE : Bound_of_exact_heads = ROW_hard. Proof. reflexivity. Qed.
(** The same conclusion, [differ_by], for soft heads that are mixed over all keys at once ... *)
Definition Bound_of_soft_heads := (forall (z : Rows.row) (hd : Rows.heads) n
    (g : geometry n), fits g -> (Z.of_nat #|{: keys g}| <= Rows.keys hd)%Z ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals)
    A T reciprocal (s : H -> queries g -> 'I_n -> Z -> R) (e : H -> queries g -> keys g -> R)
    (over : H -> queries g -> order (keys g)),
  soft_premises Rows.fits z hd false f X A T s ->
  (forall h q target, reads q (f h) target -> device_exponentials hd A target
  (around (s h q) target) (e h q)) ->
  (forall h q, summed (e h q) (over h q)) ->
  let attention h q := computed_softmax A T reciprocal (e h q) (over h q) in
  forall mixing (mix : H -> queries g -> 'I_(G * ci) -> order (keys g)),
  setting_within mixing (Rows.mean hd) ->
  (forall h q target, reads q (f h) target ->
    may_count mixing (cube target (Z.to_nat (Rows.reach hd))) (attention h q)) ->
  (forall h q c, as_set mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c)) ->
  let token h q c := computed mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c) in
  @differ_by z n g G ci co H f X token)%R.
Lemma Bound_of_soft_headsE : Bound_of_soft_heads = ROW_whole. Proof. reflexivity. Qed.
(** ... and axis after axis. *)
Definition Bound_axis_after_axis := (forall (z : Rows.row) (hd : Rows.heads) n
    (g : geometry n), fits g -> (forall a, Z.of_nat (padded g a) <= Rows.keys hd)%Z ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals)
    A T reciprocal (s : H -> queries g -> 'I_n -> Z -> R)
    (e : H -> queries g -> forall a, 'I_(padded g a) -> R)
    (over : H -> queries g -> forall a, order 'I_(padded g a)),
  soft_premises Rows.fits z hd true f X A T s ->
  (forall h q target a, reads q (f h) target -> (device_exponentials hd A (target a)
  (fun j : 'I_(padded g a) => s h q a (Z.of_nat j - Z.of_nat (target a))%Z) (e h q a))) ->
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
  @differ_by z n g G ci co H f X token)%R.
Lemma Bound_axis_after_axisE : Bound_axis_after_axis = ROW_apart. Proof. reflexivity. Qed.
(** ... and so it is where the keys beyond an interval of each axis are left out, as frozen heads
    leave them out: their exponentials are 0, however much they weigh. *)
Definition Bound_with_ends_left_out := (forall (z : Rows.row) (hd : Rows.heads) n
    (g : geometry n), fits g -> (forall a, Z.of_nat (padded g a) <= Rows.keys hd)%Z ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals)
    A T reciprocal (s : H -> queries g -> 'I_n -> Z -> R)
    (e : H -> queries g -> forall a, 'I_(padded g a) -> R)
    (over : H -> queries g -> forall a, order 'I_(padded g a)),
  soft_premises Rows.fits z hd true f X A T s ->
  (forall h q target a, reads q (f h) target -> ((0 < Rows.exp_lost hd)%Z /\
  exists (first last : nat) (kept : _ -> R), [/\ (first <= target a < last)%N,
    device_exponentials hd A (target a) (fun j : 'I_(padded g a) => s h q a
    (Z.of_nat j - Z.of_nat (target a))%Z) kept &
    forall j, (e h q a) j = if (first <= j < last)%N then kept j else 0])%R) ->
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
  @differ_by z n g G ci co H f X token)%R.
Lemma Bound_with_ends_left_outE : Bound_with_ends_left_out = LEFT_apart. Proof. reflexivity. Qed.
(** So with the keys beyond a box left out, in a mean over all keys at once. *)
Definition Bound_with_a_box_kept := (forall (z : Rows.row) (hd : Rows.heads) n
    (g : geometry n), fits g -> (Z.of_nat #|{: keys g}| <= Rows.keys hd)%Z ->
  forall (G ci co : nat) (H : finType) (f : H -> taps g) (X : pixels g -> 'I_(G * ci) -> reals)
    A T reciprocal (s : H -> queries g -> 'I_n -> Z -> R) (e : H -> queries g -> keys g -> R)
    (over : H -> queries g -> order (keys g)),
  soft_premises Rows.fits z hd false f X A T s ->
  (forall h q target, reads q (f h) target -> ((0 < Rows.exp_lost hd)%Z /\
  exists (first last : 'I_n -> nat) (kept : _ -> R),
    [/\ forall a, (first a <= target a < last a)%N,
    device_exponentials hd A target (around (s h q) target) kept &
    forall k, (e h q) k = if [forall a, first a <= k a < last a]%N then kept k else 0])%R) ->
  (forall h q, summed (e h q) (over h q)) ->
  let attention h q := computed_softmax A T reciprocal (e h q) (over h q) in
  forall mixing (mix : H -> queries g -> 'I_(G * ci) -> order (keys g)),
  setting_within mixing (Rows.mean hd) ->
  (forall h q target, reads q (f h) target ->
    may_count mixing (cube target (Z.to_nat (Rows.reach hd))) (attention h q)) ->
  (forall h q c, as_set mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c)) ->
  let token h q c := computed mixing (attention h q) (fun k => zero_pad X k c) 0 (mix h q c) in
  @differ_by z n g G ci co H f X token)%R.
Lemma Bound_with_a_box_keptE : Bound_with_a_box_kept = LEFT_whole. Proof. reflexivity. Qed.
(** The program reads rows from the integers of a file, and answers with [Rows.bound] for each that
    fits. That this number is a bound is what the five theorems above say. *)
Definition Reader_of_rows := (forall n x answers, Rows.answers n x = Some answers -> exists rows,
  x = List.concat (List.map Rows.written rows) /\ answers = List.map Rows.answer rows /\
  forall r b, Rows.answer r = Some b -> Rows.fits r = true /\ b = Rows.bound r)%R.
Lemma Reader_of_rowsE : Reader_of_rows = ROW_read. Proof. reflexivity. Qed.

(** Heads whose attention is spread over the taps by matrices [B] are a given convolution if and
    only if its taps are these combinations of their matrices. *)
Definition Heads_on_taps := (forall (S : numbers) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (B : H -> taps g -> S) (P : H -> queries g -> keys g -> S)
    (Wval : H -> 'I_(G * ci) -> D -> S) (Wout : H -> D -> 'I_(G * co) -> S)
    (weight : 'I_(G * co) -> nat -> taps g -> S) (b b' : 'I_(G * co) -> S), on_taps B P ->
  (forall Z q o, mhsa P Wval Wout b' Z q o = conv_of_keys weight b Z q o) <->
  (forall t c o, tap weight t c o = \sum_h B h t * merged Wval Wout h c o) /\ b' =1 b)%num.
Lemma Heads_on_tapsE : Heads_on_taps = HEADS_layer. Proof. reflexivity. Qed.
Module Fields.
Import ssralg ssrnum finalg matrix mxalgebra Matrices.
(** * Over any field: how many heads, and how wide

    As many heads as taps, whatever the layer, if each tap sees a pixel: a layer that is left with
    fewer than nine heads cannot express all kernels of 3 x 3 (Appendix E). *)
Definition As_many_heads_as_taps := (forall (F : fieldType) n (g : geometry n) (H : finType)
    (P : H -> queries g -> pixels g -> of_ring F) (ci co d : nat),
  fits g -> (forall t, exists q i, sees (g := g) q t i) -> (0 < ci)%N -> (0 < co)%N ->
  expresses_all P ci co d -> (#|{: taps g}| <= #|H|)%N)%R.
Lemma As_many_heads_as_tapsE : As_many_heads_as_taps = Matrices.TAPS. Proof. reflexivity. Qed.
(** As many heads as displacements of tokens that are patches, so [Patch_tokens] has no head too
    many: if each displacement is seen by some token, attention that expresses every convolution of
    stride 1, pixel by pixel, has at least one head for each. *)
Definition Patch_tokens_need := (forall (F : fieldType) n
    (sides patch radius : 'I_n -> nat), (forall a, (0 < sides a)%N /\ (0 < patch a)%N) ->
  let g := patched_image sides patch radius in
  let tokens := token_grid sides (fun a => patch_reach (radius a) (patch a)) in
  (forall t, exists q i, sees (g := tokens) q t i) ->
  forall (H D : finType) (P : H -> queries tokens -> pixels tokens -> of_ring F),
  (forall weight : 'I_(1 * 1) -> nat -> taps g -> of_ring F,
    exists (Wval : H -> box patch * 'I_(1 * 1) -> D -> of_ring F)
      (Wout : H -> D -> box patch * 'I_(1 * 1) -> of_ring F) (b : box patch * 'I_(1 * 1) -> of_ring
        F),
    forall X (k : queries tokens) (u : box patch) (q : queries g) o,
    (forall a, q a = (k a * patch a + u a)%N :> nat) ->
    mhsa P Wval Wout b (patches X) k (u, o) = torch_conv weight (fun _ => zero) X q o) ->
  (#|{: taps tokens}| <= #|H|)%N)%R.
Lemma Patch_tokens_needE : Patch_tokens_need = Matrices.PATCH_lower. Proof. reflexivity. Qed.
(** Of one given convolution fewer may do. Heads on its taps that are the convolution, at any
    tokens, are at least as many as the rank of its matrix, whose rows are the taps ... *)
Definition Heads_of_one_convolution := (forall (F : fieldType) n (g : geometry n), fits g ->
  forall (G ci co : nat) (H D : finType) (B : H -> taps g -> of_ring F)
    (P : H -> queries g -> keys g -> of_ring F) (Wval : H -> 'I_(G * ci) -> D -> of_ring F)
    (Wout : H -> D -> 'I_(G * co) -> of_ring F)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b b' : 'I_(G * co) -> of_ring F),
  on_taps B P -> (forall Z q o, mhsa P Wval Wout b' Z q o = conv_of_keys weight b Z q o) ->
  (\rank (tap_matrix ci weight) <= #|H|)%N)%R.
Lemma Heads_of_one_convolutionE : Heads_of_one_convolution = Matrices.HEADS_need. Proof.
  reflexivity. Qed.
(** ... and one more than that always serve: positive on every tap, so softmaxes over the taps, and
    as wide as [min (D_in, D_out)]. *)
Definition One_head_more := (forall (F : realFieldType) n (g : geometry n), fits g ->
  forall (G ci co d : nat), (minn (G * ci) (G * co) <= d)%N ->
  forall (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b : 'I_(G * co) -> of_ring F),
  let H := 'I_(S (\rank (tap_matrix ci weight))) in
  exists (B : H -> taps g -> F) (Wval : H -> 'I_(G * ci) -> 'I_d -> of_ring F)
    (Wout : H -> 'I_d -> 'I_(G * co) -> of_ring F),
  (forall h, (forall t, 0 < B h t) /\ \sum_t B h t = 1) /\
  forall P : H -> queries g -> keys g -> of_ring F, on_taps (S := of_ring F) B P ->
  forall Z q o, mhsa P Wval Wout b Z q o = conv_of_keys weight b Z q o)%R.
Lemma One_head_moreE : One_head_more = Matrices.HEADS_serve. Proof. reflexivity. Qed.
(** Lemma 1's matrices exist for heads as wide as the rank of each tap ... *)
Definition Matrices_exist := (forall (F : fieldType) n (g : geometry n),
  fits g ->
  forall (G ci co d : nat) (H : finType) (f : H -> taps g)
    (P : H -> queries g -> keys g -> of_ring F)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b : 'I_(G * co) -> of_ring F),
  bijective f -> hard f P ->
  (forall t, ((\rank (\matrix_(c < G * ci, o < G * co) (tap weight t c o : F))) <= d)%N) ->
  exists (Wval : H -> 'I_(G * ci) -> 'I_d -> of_ring F)
    (Wout : H -> 'I_d -> 'I_(G * co) -> of_ring F),
  forall X q o, mhsa P Wval Wout b (zero_pad X) q o = torch_conv weight b X q o)%R.
Lemma Matrices_existE : Matrices_exist = Matrices.T1p_exists. Proof. reflexivity. Qed.
(** ... and no smaller [D_h] will do, where each tap sees a pixel at some output. *)
Definition Width_of_a_head := (forall (F : fieldType) n (g : geometry n), fits g ->
  forall (G ci co d : nat) (H : finType) (f : H -> taps g)
    (P : H -> queries g -> keys g -> of_ring F)
    (weight : 'I_(G * co) -> nat -> taps g -> of_ring F) (b : 'I_(G * co) -> of_ring F),
  bijective f -> hard f P -> (forall t, exists q i, sees (g := g) q t i) ->
  (exists (Wval : H -> 'I_(G * ci) -> 'I_d -> of_ring F)
    (Wout : H -> 'I_d -> 'I_(G * co) -> of_ring F)
     (b' : 'I_(G * co) -> of_ring F),
     forall X q o, mhsa P Wval Wout b' (zero_pad X) q o = torch_conv weight b X q o)
  <-> (forall t, \rank (\matrix_(c < G * ci, o < G * co) (tap weight t c o : F)) <= d)%N)%R.
Lemma Width_of_a_headE : Width_of_a_head = Matrices.T1p_convolution. Proof. reflexivity. Qed.
(** The rank of a head is at most [D_h], and is not [D_out - D_h] as printed (E3). *)
Definition Rank_of_a_head := ((forall (F : fieldType) (m n d : nat) (V : 'M[F]_(m, d))
  (U : 'M[F]_(d, n)),
  \rank (V *m U) <= d)%N /\
  ~ forall (F : fieldType) (m n d : nat), (d <= n)%N ->
    exists (V : 'M[F]_(m, d)) (U : 'M[F]_(d, n)), \rank (V *m U) = (n - d)%N)%R.
Lemma Rank_of_a_headE : Rank_of_a_head = Matrices.T1p_rank. Proof. reflexivity. Qed.
(** No tap has a larger rank than [min (D_in, D_out)]; and heads of dimension [d] give any [min (d,
    n)] of the [n] output channels. *)
Definition Channels_of_narrow_heads := (forall (F : fieldType) (m n d : nat),
  (forall W : 'M[F]_(m, n), \rank W <= minn m n)%N /\
  forall (kept : 'I_(minn d n) -> 'I_n), injective kept -> forall W : 'M[F]_(m, minn d n),
  exists (V : 'M[F]_(m, d)) (U : 'M[F]_(d, n)), forall c o, (V *m U) c (kept o) = W c o)%R.
Lemma Channels_of_narrow_headsE : Channels_of_narrow_heads = Matrices.T1p_channels. Proof.
  reflexivity. Qed.
(** Andreoli's Proposition 3: composing two basis convolutions multiplies their bases and their
    parameters. *)
Definition Composition := (forall (R : comRingType) (K1 K2 : finType) (m n n' p q q' : nat)
  (A1 : K1 -> 'M[R]_(m, n)) (Theta1 : K1 -> 'M[R]_(p, q)) (A2 : K2 -> 'M[R]_(n, n'))
    (Theta2 : K2 -> 'M[R]_(q, q')) x,
  basis_conv A2 Theta2 (basis_conv A1 Theta1 x)
  = basis_conv (fun k : K1 * K2 => A1 k.1 *m A2 k.2) (fun k => Theta1 k.1 *m Theta2 k.2) x)%R.
Lemma CompositionE : Composition = Matrices.AND. Proof. reflexivity. Qed.
(** The first step of the chance that different formulas have one fingerprint: a polynomial in [n]
    variables that is not 0 vanishes, at a point drawn from a finite field, with a chance of at most
    its degree over the size of the field (Schwartz 1980, Zippel 1979). *)
Definition Zeros_of_a_polynomial := (forall (F : finFieldType) n (p : polynomials F n), p != 0 ->
  (#|[set x : n.-tuple F | value p x == 0%R]| * #|F| <= degree p * #|F| ^ n)%N)%R.
Lemma Zeros_of_a_polynomialE : Zeros_of_a_polynomial = Matrices.FINGERPRINT_zeros. Proof.
  reflexivity. Qed.
End Fields.
