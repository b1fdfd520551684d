(** * SPAN: What the checker of certificates confirms is true

    Claim: If the checker confirms a certificate that some weights leave nothing that counts, they
    leave at most eps + rate |phi|_1 of the row asked for, summed over keys, at each query listed.
    If it confirms a refutation, by a dual vector y of integers at some queries, no weights (of norm
    at most B, or any, where there is no bound) do. So one confirmed certificate for each tap gives
    a layer of these heads for every convolution, within max |X| sum_t (eps + rate |phi_t|_1) sum_c
    |w_tco| of it at the queries listed, and a confirmed refutation keeps every layer of these
    heads, of norm at most B, farther than eps + rate |phi|_1 from the shift, at some image of ones
    and minus ones (L3). From the integers of a file it reads exactly the certificates that stand
    there.
    Source: this project; the refutation is weak duality of a linear programme.
    Does not show: That the rows in a certificate are those of a model, and all that a verdict of
    `check_span` needs; counting (`confirms_counting`). The twin in Python is not proved; the proved
    program trusts Coq's extraction, Zarith and the reading of digits. *)
From Coq Require Import Reals ZArith List Lra Lia.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums Checker.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.
Local Open Scope list_scope.

Local Notation "x @@ y" := (app x y) (at level 60, right associativity).

(** ** Lists of integers as vectors *)
Local Notation "x '`' k" := (IZR (List.nth k x 0%Z)) (at level 2, k at level 1, format "x '`' k").
Lemma dotE n x y : length x = n -> length y = n -> IZR (list_dot x y)
  = \big[Rplus/0]_(k < n) (x`k * y`k).
Proof.
elim: n x y => [|n IH] [|a x] [|b y] //=; first by rewrite big_ord0.
by move=> [lx] [ly]; rewrite plus_IZR mult_IZR (IH x y lx ly) big_ord_recl.
Qed.
Lemma size1E n x : length x = n -> IZR (size1 x) = \big[Rplus/0]_(k < n) Rabs x`k.
Proof.
elim: n x => [|n IH] [|a x] //=; first by rewrite big_ord0.
by move=> [lx]; rewrite /size1 /= plus_IZR abs_IZR -/(size1 x) (IH x lx) big_ord_recl.
Qed.
Lemma largest_ge0 x : (0 <= largest x)%Z. Proof. by elim: x => [|a x IH] //=; lia. Qed.
Lemma largest_ge x k : Rabs x`k <= IZR (largest x).
Proof.
elim: x k => [|a x IH] [|k] /=; rewrite ?Rabs_R0; try exact: Rle_refl.
- by rewrite -abs_IZR; apply: IZR_le; lia.
- by apply: Rle_trans (IH k) _; apply: IZR_le; lia.
Qed.
Lemma length_lessE p a x : length a = length x -> length (less p a x) = length x.
Proof. by elim: a x => [|b a IH] [|c x] //= [/IH ->]. Qed.
Lemma nth_lessE p a x k : length a = length x -> (less p a x)`k = x`k - IZR p * a`k.
Proof.
elim: a x k => [|b a IH] [|c x] [|k] //=; try by move=> _; ring.
- by move=> _; rewrite minus_IZR mult_IZR.
- by move=> [l]; exact: IH.
Qed.
Lemma residualE n p a x : length p = length a -> length x = n ->
  (forall row, In row a -> length row = n) ->
  length (residual p a x) = n /\ forall k, (residual p a x)`k = x`k
    - \big[Rplus/0]_(h < length p) (p`h * (List.nth h a nil)`k).
Proof.
elim: p a x => [|q p IH] [|b a] x //=; first by move=> _ lx _; split=> // k; rewrite big_ord0; ring.
move=> [la] lx lr; have lb : length b = length x by rewrite lx; apply: lr; left.
have [||l E] := IH a (less q b x) la; first by rewrite length_lessE.
  by move=> row inr; apply: lr; right.
by split=> // k; rewrite E nth_lessE // big_ord_recl /=; ring.
Qed.
Lemma nth_plusE x y k : length x = length y -> (plus x y)`k = x`k + y`k.
Proof.
elim: x y k => [|a x IH] [|b y] [|k] //=; try by move=> _; ring.
- by move=> _; rewrite plus_IZR.
- by move=> [l]; exact: IH.
Qed.
Lemma length_plusE x y : length x = length y -> length (plus x y) = length x.
Proof. by elim: x y => [|a x IH] [|b y] //= [/IH ->]. Qed.
Lemma nth_scaledE p x k : (List.map (Z.mul p) x)`k = IZR p * x`k.
Proof. by elim: x k => [|a x IH] [|k] //=; rewrite ?mult_IZR ?Rmult_0_r. Qed.

Section Check.
Variable c : certificate.
Hypothesis sane : sensible c = true.
Let D := IZR (scale c). Let L := IZR (limit_scale c).
Lemma shapes_gt0 : [/\ 0 < D, 0 < L & 0 <= IZR (per_norm c)].
Proof.
move: sane; rewrite /sensible => /andP
  [/andP [/andP [/andP [/Z.ltb_lt s0 /Z.ltb_lt l0] /Z.leb_le p0] _] _].
by split; [exact: IZR_lt | exact: IZR_lt | exact: IZR_le].
Qed.
Lemma shape q : In q (queries c) -> [/\ length (target q) = keys c, length (rows q) = heads c,
  forall row, In row (rows q) -> length row = keys c & refutes c = true ->
    length (dual q) = keys c].
Proof.
move: sane; rewrite /sensible => /andP [/andP [_ all] _] inq.
have /andP [/andP [/andP [/Nat.eqb_eq lt /Nat.eqb_eq lr] rs] du] :=
  proj1 (forallb_forall _ _) all q inq.
split=> // [row inr|r].
  exact: (proj1 (Nat.eqb_eq _ _) (proj1 (forallb_forall _ _) rs row inr)).
by move: du; rewrite r /= => /Nat.eqb_eq.
Qed.

(** ** Weights that serve *)
(** The integers are those of the file over common denominators: what the weights leave is the
    residual that the program computes, divided by both, so its test is the inequality, cleared of
    fractions. *)
Lemma holds_sound : refutes c = false -> check_holds c = true -> spanned c.
Proof.
have [D0 L0 R0] := shapes_gt0 => kind /andP [small left].
have [P0 lw] : 0 < IZR (weight_scale c) /\ length (weights c) = heads c.
  move: sane; rewrite /sensible kind /= => /andP [_ /andP [/Z.ltb_lt w0 /Nat.eqb_eq lw]].
  by split=> //; exact: IZR_lt.
set P := IZR (weight_scale c) in P0; pose phi (h : 'I_(heads c)) := (weights c)`h / P.
have normE : span_norm phi = IZR (size1 (weights c)) / P.
  rewrite (size1E lw) /span_norm /Rdiv big_distrl /=; apply: eq_bigr => h _.
  by rewrite /phi /Rdiv Rabs_mult (Rabs_pos_eq (/ P)) //; apply/Rlt_le/Rinv_0_lt_compat.
exists phi; rewrite normE; split=> [b0|q inq].
  move: small => /orP [/Z.ltb_lt|/Z.leb_le /IZR_le]; first lia.
  rewrite !mult_IZR -/L -/P => le; apply: (Rmult_le_reg_r (P * L)); first exact: Rmult_lt_0_compat.
  have -> : IZR (size1 (weights c)) / P * (P * L) = IZR (size1 (weights c)) * L by field; lra.
  have -> : IZR (bound c) / L * (P * L) = IZR (bound c) * P by field; lra.
  exact: le.
have [lt lr ln _] := shape inq.
have lx : length (List.map (Z.mul (weight_scale c)) (target q)) = keys c by rewrite map_length.
have [lres res] := residualE (etrans lw (esym lr)) lx ln.
have leftE : span_left phi q
  = IZR (size1 (residual (weights c) (rows q) (List.map (Z.mul (weight_scale c)) (target q)))) /
  (P * D).
  rewrite (size1E lres) /span_left /Rdiv big_distrl /=; apply: eq_bigr => k _;
    rewrite res nth_scaledE.
  have -> : \sum_h phi h * span_entry c (List.nth h (rows q) nil) k
    = (\big[Rplus/0]_(h < length (weights c)) ((weights c)`h * (List.nth h (rows q) nil)`k)) * /
      (P * D).
    rewrite lw big_distrl /=; apply: eq_bigr => h _; rewrite /phi /span_entry -/D; field; lra.
  set s := bigop _ _ _; have -> : span_entry c (target q) k - s * / (P * D)
    = (P * (target q)`k - s) * / (P * D).
    by rewrite /span_entry -/D; field; lra.
  by rewrite Rabs_mult (Rabs_pos_eq (/ _)) //; apply/Rlt_le/Rinv_0_lt_compat/Rmult_lt_0_compat.
have /Z.leb_le /IZR_le := proj1 (forallb_forall _ _) left q inq; rewrite leftE.
set z := IZR (size1 _); rewrite !mult_IZR plus_IZR !mult_IZR -/L -/D -/P -/z => le.
apply: (Rmult_le_reg_r (P * D * L)); first by apply: Rmult_lt_0_compat => //;
  exact: Rmult_lt_0_compat.
have -> : z / (P * D) * (P * D * L) = z * L by field; lra.
set N := IZR (size1 (weights c)) in le *.
by have -> : (IZR (eps c) + IZR (per_norm c) * (N / P)) / L * (P * D * L)
  = D * (IZR (eps c) * P + IZR (per_norm c) * N) by field; lra.
Qed.

(** ** Integers [y] that refute *)
Section Dual.
Variables (phi : 'I_(heads c) -> R) (T : R).
Let sums (qs : list query) :=
  fold_right (fun q s => plus (List.map (fun row => list_dot row (dual q)) (rows q)) s)
  (repeat 0%Z (heads c)) qs.
Lemma length_sumsE qs : (forall q, In q qs -> length (rows q) = heads c) ->
  length (sums qs) = heads c.
Proof.
elim: qs => [|q qs IH] lr /=; first exact: repeat_length.
have l : length (sums qs) = heads c by apply: IH => q' inq; apply: lr; right.
by rewrite length_plusE map_length ?l; apply: lr; left.
Qed.
Lemma one_query_le q : In q (queries c) -> refutes c = true -> span_left phi q <= T ->
  IZR (list_dot (target q) (dual q)) / D
  <= IZR (largest (dual q)) * T + \sum_h phi h *
    (IZR (List.nth h (List.map (fun row => list_dot row (dual q)) (rows q)) 0%Z) / D).
Proof.
have [D0 _ _] := shapes_gt0 => inq ref le; have [lt lr ln /(_ ref) ld] := shape inq.
pose r (k : nat) := span_entry c (target q) k - \sum_h phi h * span_entry c
  (List.nth h (rows q) nil) k.
have dotR (h : 'I_(heads c)) : IZR
  (List.nth h (List.map (fun row => list_dot row (dual q)) (rows q)) 0%Z)
    = \big[Rplus/0]_(k < keys c) ((List.nth h (rows q) nil)`k * (dual q)`k).
  have lh : (h < length (rows q))%coq_nat by rewrite lr; apply/ltP.
  rewrite (nth_indep _ 0%Z (list_dot nil (dual q))) ?map_length // map_nth.
  by rewrite (@dotE (keys c)) //; apply: ln; exact: nth_In.
have E : IZR (list_dot (target q) (dual q)) / D = \big[Rplus/0]_(k < keys c) (r k * (dual q)`k)
    + \sum_h phi h * (IZR (List.nth h (List.map (fun row => list_dot row (dual q)) (rows q)) 0%Z) /
      D).
  rewrite (dotE lt ld) /Rdiv big_distrl /=.
  under [X in _ = _ + X]eq_bigr do rewrite dotR big_distrl big_distrr /=.
  rewrite [X in _ = _ + X]exchange_big /= -big_split /=; apply: eq_bigr => k _; rewrite /r.
  have -> : \big[Rplus/0]_h (phi h * ((List.nth h (rows q) nil)`k * (dual q)`k * / D))
    = (\sum_h phi h * span_entry c (List.nth h (rows q) nil) k) * (dual q)`k.
    by rewrite big_distrl /=; apply: eq_bigr => h _; rewrite /span_entry -/D /Rdiv; ring.
  by rewrite /span_entry -/D /Rdiv; ring.
rewrite E; apply: Rplus_le_compat_r.
have m0 : 0 <= IZR (largest (dual q)) by apply: IZR_le; exact: largest_ge0.
apply: Rle_trans (_ : IZR (largest (dual q)) * span_left phi q <= _); last exact: Rmult_le_compat_l.
rewrite /span_left big_distrr /=; apply: rsum_le => k _; apply: Rle_trans (Rle_abs _) _.
by rewrite Rabs_mult Rmult_comm; apply: Rmult_le_compat_r; [exact: Rabs_pos | exact: largest_ge].
Qed.
Lemma all_queries_le qs : (forall q, In q qs -> In q (queries c)) -> refutes c = true ->
  (forall q, In q qs -> span_left phi q <= T) ->
  IZR (sum_of (List.map (fun q => list_dot (target q) (dual q)) qs)) / D
  <= IZR (sum_of (List.map (fun q => largest (dual q)) qs)) * T + \sum_h phi h * ((sums qs)`h / D).
Proof.
move=> + ref; elim: qs => [|q qs IH] inq left /=.
  rewrite big1 => [|h _]; first by rewrite /Rdiv !Rmult_0_l; lra.
  have -> : List.nth h (repeat 0%Z (heads c)) 0%Z = 0%Z; last by rewrite /Rdiv; ring.
  by elim: (heads c) (nat_of_ord h) => [|n IH] [|m] //=.
have {}IH := IH (fun q' i => inq q' (or_intror i)) (fun q' i => left q' (or_intror i)).
have one := one_query_le (inq q (or_introl erefl)) ref (left q (or_introl erefl)).
have lr q' : In q' (q :: qs) -> length (rows q') = heads c by move=> i; have [] := shape (inq q' i).
have lens : length (List.map (fun row => list_dot row (dual q)) (rows q)) = length (sums qs).
  by rewrite map_length length_sumsE => [|q' i]; apply: lr; [left | right].
rewrite !plus_IZR -/(sums qs).
have -> : \sum_h phi h * ((plus (List.map (fun row => list_dot row (dual q)) (rows q)) (sums qs))`h
  / D)
  = \sum_h phi h * (IZR (List.nth h (List.map (fun row => list_dot row (dual q)) (rows q)) 0%Z) / D)
    + \sum_h phi h * ((sums qs)`h / D).
  by rewrite -big_split /=; apply: eq_bigr => h _; rewrite nth_plusE // /Rdiv; ring.
by move: one IH; rewrite /Rdiv; lra.
Qed.
End Dual.
(** Weak duality: by [all_queries] the dual vector meets the row asked for in at most what is left,
    times its peaks, and what the weights make of its meeting with the heads. Cleared of fractions
    this contradicts the program's test, with a bound on the norm or without. *)
Lemma refuted_sound : refutes c = true -> check_refuted c = true -> ~ spanned c.
Proof.
have [D0 L0 R0] := shapes_gt0 => ref ok [phi [small left]].
set n := span_norm phi in small left.
have n0 : 0 <= n by apply: rsum_ge0 => h _; exact: Rabs_pos.
have := all_queries_le (fun q i => i) ref left; rewrite -/(gain c) -/(peak c) -/(met c).
set T := _ / IZR (limit_scale c); set S := \sum_h _ => le.
have reach : S <= n * (IZR (largest (met c)) / D).
  rewrite /S /n /span_norm big_distrl /=; apply: rsum_le => h _; apply: Rle_trans (Rle_abs _) _;
    rewrite Rabs_mult.
  apply: Rmult_le_compat_l; first exact: Rabs_pos.
  rewrite /Rdiv Rabs_mult (Rabs_pos_eq (/ D)); last exact/Rlt_le/Rinv_0_lt_compat.
  by apply: Rmult_le_compat_r; [exact/Rlt_le/Rinv_0_lt_compat | exact: largest_ge].
have p0 : 0 <= IZR (peak c).
  by apply: IZR_le; rewrite /peak; elim: (queries c) => [|q qs IH] //=;
    have := @largest_ge0 (dual q); lia.
have m0 : 0 <= IZR (largest (met c)) by apply: IZR_le; exact: largest_ge0.
have {le reach} : IZR (gain c) * L <= D * IZR (peak c) * (IZR (eps c) + IZR (per_norm c) * n)
  + n * IZR (largest (met c)) * L.
  have : IZR (gain c) / D <= IZR (peak c) * T + n * (IZR (largest (met c)) / D) by lra.
  move/(Rmult_le_compat_r (D * L) _ _ (Rlt_le _ _ (Rmult_lt_0_compat _ _ D0 L0))).
  have -> : IZR (gain c) / D * (D * L) = IZR (gain c) * L by field; lra.
  have -> : (IZR (peak c) * T + n * (IZR (largest (met c)) / D)) * (D * L)
    = D * IZR (peak c) * (IZR (eps c) + IZR (per_norm c) * n) + n * IZR (largest (met c)) * L
      by rewrite /T -/L; field; lra.
  by [].
move: ok; rewrite /check_refuted; case: Z.ltb_spec => [_|b0].
  move=> /andP [/andP [/Z.eqb_eq -> /Z.eqb_eq ->] /Z.ltb_lt /IZR_lt]; rewrite !mult_IZR -/D -/L.
  by move=> lt le; lra.
move/Z.ltb_lt/IZR_lt; rewrite minus_IZR !mult_IZR plus_IZR !mult_IZR -/D -/L.
have := small b0; rewrite -/L; set B := IZR (bound c); set M := IZR (largest (met c)) in m0 *;
  set R := IZR (per_norm c) in R0 *.
move=> nB lt le; have nLB : n * L <= B.
  by have := Rmult_le_compat_r L _ _ (Rlt_le _ _ L0) nB; have -> : B / L * L = B; [field; lra | ].
have := Rmult_le_compat_r L _ _ (Rlt_le _ _ L0) le.
have A1 : (n * L) * (M * L) <= B * (M * L) by apply: Rmult_le_compat_r => //; apply: Rmult_le_pos;
  lra.
have A2 : (n * L) * (D * IZR (peak c) * R) <= B * (D * IZR (peak c) * R).
  by apply: Rmult_le_compat_r => //; apply: Rmult_le_pos => //; apply: Rmult_le_pos; lra.
by lra.
Qed.
End Check.

Theorem confirmed : SPAN.
Proof.
move=> c /andP [sane]; case kind: (refutes c); first exact: refuted_sound.
exact: holds_sound.
Qed.

(** ** Reading *)
Lemma split_app n x y z : split n x = Some (y, z) -> x = y @@ z /\ length y = n.
Proof.
elim: n x y z => [|n IH] [|a x] y z //=; [by case=> <- <- | by case=> <- <- |].
by case E: (split n x) => [[u v]|] // [<- <-]; have [-> <-] := IH _ _ _ E.
Qed.
Lemma many_app (A : Type) (one : list Z -> option (A * list Z)) (w : A -> list Z) :
  (forall x a r, one x = Some (a, r) -> x = w a @@ r) ->
  forall n x ys r, many one n x = Some (ys, r) -> x = concat (List.map w ys) @@ r /\ length ys = n.
Proof.
move=> H; elim=> [|n IH] x ys r /=; first by case=> <- <-.
case E: (one x) => [[a x']|] //; case E': (many one n x') => [[u v]|] // [<- <-].
by have [E2 <-] := IH _ _ _ E'; rewrite (H _ _ _ E) E2 /= -app_assoc.
Qed.
Lemma parse_query_app f h k x q r : parse_query f h k x = Some (q, r) ->
  x = (target q @@ concat (rows q) @@ (if f then dual q else nil)) @@ r.
Proof.
rewrite /parse_query; case E1: (split k x) => [[t x1]|] //;
  case E2: (many (split k) h x1) => [[a x2]|] //.
have [-> _] := split_app E1.
have [-> _] := @many_app _ (split k) id (fun x a r E => proj1 (split_app E)) _ _ _ _ E2.
rewrite List.map_id; case: f => [|[<- <-]] /=; last by rewrite app_nil_r -app_assoc.
by case E3: (split k x2) => [[y x3]|] // [<- <-] /=; have [-> _] := split_app E3;
  rewrite -!app_assoc.
Qed.
Lemma parse_app x c r : parse x = Some (c, r) -> x = written c @@ r.
Proof.
case: x => [|[|[p|p|]|p] [|kind [|h [|n [|k [|s [|e [|pn [|b [|l x]]]]]]]]]] //=.
case: ifP => // /andP [/andP []]; rewrite /at_most_length.
move=> /andP [/andP [/Z.leb_le h0 _]] /andP [/andP [/Z.leb_le n0 _]] /andP
  [/andP [/Z.leb_le k0 _]] _ _ K.
set f := (kind =? 1)%Z; case E1: (if f then _ else _) => [[[|q w] x1]|] //.
case E2: (many _ _ _) => [[qs x2]|] // [<- <-]; rewrite /written /=.
have [Ex ln] := @many_app _ _ (fun q => target q @@ concat (rows q) @@ (if f then dual q else nil))
  (fun x a r => @parse_query_app f _ _ x a r) _ _ _ _ E2.
have -> : kind = (if f then 1 else 0)%Z.
  by move: K; rewrite /f; case: Z.eqb_spec => [->|_] //; case: Z.eqb_spec.
rewrite ln !Z2Nat.id //; do 10 congr (_ :: _).
rewrite /written_query /=; have -> : x = (if f then nil else q :: w) @@ x1.
  move: E1; rewrite /f; case: (kind =? 1)%Z => [[_ _ ->] //|E1];
    by have [-> _] := @split_app (Z.to_nat h).+1 _ _ _ E1.
by rewrite Ex app_assoc.
Qed.
Lemma answers_app n x bs : answers n x = Some bs -> exists cs, x = concat (List.map written cs) /\
  bs = List.map check cs.
Proof.
elim: n x bs => [|n IH] [|a y] bs; [by case=> <-; exists nil | by [] | by case=> <-; exists nil |].
change (answers n.+1 (a :: y)) with (match parse (a :: y) with
  | Some (c, r) => match answers n r with Some bs => Some (check c :: bs) | None => None end |
    None => None end).
case E: (parse (a :: y)) => [[c r]|] //; case E': (answers n r) => [bs'|] // [<-].
by have [cs [Er ->]] := IH _ _ E'; exists (c :: cs); rewrite (parse_app E) Er.
Qed.
Theorem reading : SPAN_read. Proof. exact: answers_app. Qed.

(** ** Instance

    The two heads of L3p (a), over 9. Weights (2, -1) serve the first query alone; [y = (5, -1; -9,
    0)] shows that none serve both; and a corrupted [y] is not confirmed *)
Definition heads_0 := [:: [:: 6; 3]; [:: 3; 6]]%Z.
Definition heads_1 := [:: [:: 3; 6]; [:: 1; 8]]%Z.
Definition first_alone := Certificate false 2 2 9 0 0 (-1) 1 1 [:: 2; -1]%Z
  [:: Query [:: 9; 0]%Z heads_0 nil].
Definition both (y : Z) := Certificate true 2 2 9 0 0 (-1) 1 0 nil
  [:: Query [:: 9; 0]%Z heads_0 [:: 5; -1]%Z; Query [:: 0; 9]%Z heads_1 [:: y; 0]%Z].
Theorem instance : [/\ spanned first_alone, ~ spanned (both (-9)) &
  answers 3 (written first_alone @@ written (both (-9)) @@ written (both 9)) = Some
    [:: true; true; false]].
Proof.
by split; [exact: (@confirmed first_alone) | exact: (@confirmed (both (-9))) | vm_compute].
Qed.

(** ** Mutants

    Denominators of any sign; weights that leave nothing but exceed their bound; and refutations, by
    a dual that meets no head, of whatever counts as nothing, with an inequality that is not strict,
    with no regard to the rate, and by a dual that meets a head. One query, one head, one key *)
Ltac on_span := rewrite /span_left /span_entry /span_norm /= !big_ord_recl !big_ord0 /=.
Definition mutant := forall c, (if refutes c then check_refuted c else check_holds c) = true ->
  if refutes c then ~ spanned c else spanned c.
Definition blind (f : bool) (p : Z) := Certificate f 1 1 1 0 0 (-1) 1 p [:: 1]%Z
  [:: Query [:: 1]%Z [:: [:: 0]%Z] [:: 1]%Z].
Theorem mutant_refuted : ~ mutant.
Proof.
move=> /(_ (blind false 0) erefl) [phi [_ /(_ _ (or_introl erefl))]]; on_span.
have -> : 1 / 1 - (phi ord0 * (0 / 1) + 0) = 1 by field.
by rewrite Rabs_R1; lra.
Qed.
Definition mutant_no_bound := forall c, sensible c = true -> refutes c = false ->
  List.forallb (leaves_nothing c (size1 (weights c))) (queries c) = true -> spanned c.
Definition too_large := Certificate false 1 1 1 0 0 1 1 1 [:: 2]%Z
  [:: Query [:: 2]%Z [:: [:: 1]%Z] nil].
Theorem mutant_no_bound_refuted : ~ mutant_no_bound.
Proof.
move=> /(_ too_large erefl erefl erefl) [phi [small /(_ _ (or_introl erefl))]].
have := small (Z.le_0_1); on_span.
have -> : 2 / 1 - (phi ord0 * (1 / 1) + 0) = 2 - phi ord0 by field.
by have := Rle_abs (phi ord0); have := Rle_abs (2 - phi ord0); lra.
Qed.
Definition refuted_if (enough : certificate -> Prop) := forall c, sensible c = true ->
  refutes c = true -> (bound c < 0)%Z -> enough c -> ~ spanned c.
Definition single (eps rate row : Z) := Certificate true 1 1 1 eps rate (-1) 1 0 nil
  [:: Query [:: 1]%Z [:: [:: row]%Z] [:: 1]%Z].
Definition exceeds (less : Z -> Z -> Prop) c :=
  less (scale c * (eps c * peak c))%Z (gain c * limit_scale c)%Z.
(** Weight [phi] of the head leaves [1 - phi row]. *)
Lemma not_refuted enough eps rate row (phi : R) : refuted_if enough ->
  enough (single eps rate row) -> sensible (single eps rate row) = true ->
  Rabs (1 - phi * IZR row) <= IZR eps + IZR rate * Rabs phi -> False.
Proof.
move=> H ok sane le; apply: (H _ sane erefl erefl ok); exists (fun _ => phi).
split=> // q [<-|//]; on_span.
have -> : 1 / 1 - (phi * (IZR row / 1) + 0) = 1 - phi * IZR row by field.
by rewrite /Rdiv Rinv_1 !Rplus_0_r Rmult_1_r.
Qed.
Definition mutant_eps := refuted_if (fun c => largest (met c) = 0 /\ 0 < gain c)%Z.
Theorem mutant_eps_refuted : ~ mutant_eps.
Proof.
move=> H; apply: (@not_refuted _ 1 0 0 0 H) => //.
by rewrite Rmult_0_l Rminus_0_r Rabs_R1 Rabs_R0; lra.
Qed.
Definition mutant_not_strict :=
  refuted_if (fun c => [/\ largest (met c) = 0, per_norm c = 0 & exceeds Z.le c])%Z.
Theorem mutant_not_strict_refuted : ~ mutant_not_strict.
Proof.
move=> H; apply: (@not_refuted _ 1 0 0 0 H) => //.
by rewrite Rmult_0_l Rminus_0_r Rabs_R1 Rabs_R0; lra.
Qed.
Definition mutant_no_rate := refuted_if (fun c => largest (met c) = 0 /\ exceeds Z.lt c)%Z.
Theorem mutant_no_rate_refuted : ~ mutant_no_rate.
Proof.
move=> H; apply: (@not_refuted _ 0 1 0 1 H) => //.
by rewrite Rmult_0_r Rminus_0_r Rabs_R1; lra.
Qed.
Definition mutant_no_reach := refuted_if (fun c => per_norm c = 0 /\ exceeds Z.lt c)%Z.
Theorem mutant_no_reach_refuted : ~ mutant_no_reach.
Proof.
move=> H; apply: (@not_refuted _ 0 0 1 1 H) => //.
by rewrite Rmult_1_l Rminus_eq_0 Rabs_R0 Rmult_0_l; lra.
Qed.
