From Coq Require Import Reals ZArith Lra Lia.
From Flocq Require Import Core.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L2c L2d FLOAT SOFT.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Local Open Scope R_scope.

(** ** Scores *)
Lemma computed_sum_le A (I : finType) (x : I -> R) (t : order I) : sound A ->
  INR #|I| * roundoff A < 1 ->
  each_once (fun _ => 1) x 0 t -> stored_in_all t = 0%N -> None \notin summands t ->
  Rabs (evaluate A A id (fun _ => 1) x 0 t - \sum_i x i)
  <= gamma #|I| (roundoff A) * (\sum_i Rabs (x i))
     + (1 + gamma #|I| (roundoff A)) * (INR #|I| * loss A + INR #|I| * sum_loss A).
Proof.
move=> sA small once stored none; have sz : (size (summands t) <= #|I|)%N
  by apply: (@summed_size_le I x).
have ok : limits A A 0 #|I| by split=> //; exact: Rle_refl.
have ev : evaluation A A id 0 #|I| #|I| 0 0 (fun _ => 1) x 0 t.
  split; last first.
    split=> [|i]; first by apply: leq_trans (count_size _ _) sz.
    by rewrite !Rminus_eq_0 Rabs_R0 !Rmult_0_l; lra.
  split=> //; [by have [_ []] := sA | | by rewrite stored].
  by rewrite -stored; exact: stored_le.
have := sum_error_in_any_order ok ev; rewrite /magnitude /growth /underflow Rabs_R0 /=.
have -> : \sum_i 1 * x i = \sum_i x i by apply: eq_bigr => i _; ring.
have -> : \sum_i Rabs 1 * Rabs (x i) = \sum_i Rabs (x i) by apply: eq_bigr => i _; rewrite Rabs_R1;
  ring.
by move=> le; apply: Rle_trans (Rle_trans _ _ _ _ le) _; [|right; ring]; rewrite Rplus_0_r;
  exact: Rle_refl.
Qed.
(** One axis: the difference is off by a fraction [u], so its square by [(1 + u)^2 - 1], and two
    products come on top. *)
Lemma axis_score_error_le A alpha f z : sound A -> sum_loss A = 0 -> 0 <= alpha ->
  representable A z ->
  representable A (- f) ->
  Rabs (axis_score A alpha f z - - alpha * ((z - f) * (z - f)))
  <= ((1 + roundoff A) ^ 4 - 1) * (alpha * ((z - f) * (z - f)))
    + ((1 + roundoff A) * alpha * loss A + loss A).
Proof.
move=> sA sl a0 fz ff; have [[u0 _ l0] [_ _ _ sums any]] := sA.
rewrite /axis_score; set u := roundoff A in u0 sums any *; set l := loss A in l0 any *.
set d := z - f; set y := fl A d.
have ny : Rabs (y - d) <= u * Rabs d by have := sums _ _ fz ff; rewrite sl Rplus_0_r.
have d2 : 0 <= d * d by nra.
have nyy : Rabs (y * y - d * d) <= ((1 + u) ^ 2 - 1) * (d * d).
  have -> : y * y - d * d = (y - d) * (y - d) + 2 * (d * (y - d)) by ring.
  apply: Rle_trans (Rabs_triang _ _) _; rewrite !Rabs_mult (Rabs_pos_eq 2); last lra.
  have D : Rabs d * Rabs d = d * d by rewrite -Rabs_mult Rabs_pos_eq.
  have := Rmult_le_compat _ _ _ _ (Rabs_pos _) (Rabs_pos _) ny ny;
    have := Rmult_le_compat_l _ _ _ (Rabs_pos d) ny.
  have -> : u * Rabs d * (u * Rabs d) = u * u * (Rabs d * Rabs d) by ring.
  have -> : Rabs d * (u * Rabs d) = u * (Rabs d * Rabs d) by ring.
  by rewrite D /=; lra.
set q := fl A (y * y); have nq : Rabs (q - d * d) <= ((1 + u) ^ 3 - 1) * (d * d) + l.
  have yy : Rabs (y * y) <= (1 + u) ^ 2 * (d * d).
    have := Rabs_triang (y * y - d * d) (d * d); have -> : y * y - d * d + d * d = y * y by ring.
    by rewrite (Rabs_pos_eq (d * d)) //; lra.
  have := Rabs_triang (q - y * y) (y * y - d * d); have -> : q - y * y + (y * y - d * d) = q - d * d
    by ring.
  by have := any (y * y); have := Rmult_le_compat_l _ _ _ u0 yy; rewrite /= -/q; lra.
set r := fl A (- alpha * q).
have aq : Rabs (- alpha * q - - alpha * (d * d)) <= alpha * (((1 + u) ^ 3 - 1) * (d * d) + l).
  have -> : - alpha * q - - alpha * (d * d) = - (alpha * (q - d * d)) by ring.
  by rewrite Rabs_Ropp Rabs_mult (Rabs_pos_eq alpha) //; apply: Rmult_le_compat_l.
have aq' : Rabs (- alpha * q) <= (1 + u) ^ 3 * (alpha * (d * d)) + alpha * l.
  have := Rabs_triang (- alpha * q - - alpha * (d * d)) (- alpha * (d * d)).
  have -> : - alpha * q - - alpha * (d * d) + - alpha * (d * d) = - alpha * q by ring.
  have -> : Rabs (- alpha * (d * d)) = alpha * (d * d).
    by rewrite -[X in _ = X]Rabs_pos_eq ?Rabs_mult ?Rabs_Ropp //; nra.
  lra.
have := Rabs_triang (r - - alpha * q) (- alpha * q - - alpha * (d * d)).
have -> : r - - alpha * q + (- alpha * q - - alpha * (d * d)) = r - - alpha * (d * d) by ring.
by have := any (- alpha * q); have := Rmult_le_compat_l _ _ _ u0 aq'; rewrite -/r /=; lra.
Qed.
(** Each axis is off by [axis_score_error]; the sum over the axes adds what these are off by, and
    its own rounding, a fraction [gamma] of the sum of their sizes. *)
Theorem scores : SOFT_scores.
Proof.
move=> A n t alpha f z sA sl a0 reps small term once stored none distance.
have [[u0 _ l0] _] := sA; set u := roundoff A in u0 small *; set l := loss A in l0 *.
pose d a := (z a - f a) * (z a - f a); have d0 a : 0 <= d a by exact: Rle_0_sqr.
have near a : Rabs (term a - - alpha * d a) <= ((1 + u) ^ 4 - 1) * (alpha * d a)
  + ((1 + u) * alpha * l + l).
  by have [fz ff] := reps a; exact: axis_score_error_le.
have D0 : 0 <= alpha * distance by apply: Rmult_le_pos => //; apply: rsum_ge0 => a _; exact: d0.
have cn : #|'I_n| = n by exact: card_ord.
have S := @computed_sum_le A _ term t sA; rewrite cn sl Rmult_0_r Rplus_0_r -/u -/l in S.
have {}S := S small once stored none.
set C := (1 + u) * alpha * l + l in near; set K := (1 + u) ^ 4 in near.
have K1 : 1 <= K by apply: pow_R1_Rle; lra.
have sumd : \sum_a alpha * d a = alpha * distance by rewrite /distance big_distrr.
have constE : \big[Rplus/0]_(a < n) C = INR n * C by rewrite rsum_constE cn.
have moved : Rabs (\sum_a term a - - alpha * distance) <= (K - 1) * (alpha * distance) + INR n * C.
  have -> : - alpha * distance = \sum_a - alpha * d a by rewrite /distance big_distrr.
  rewrite rsum_minus; apply: Rle_trans (rsum_abs_le _ _ _) _.
  apply: Rle_trans (_ : \sum_a ((K - 1) * (alpha * d a) + C) <= _); first by apply: rsum_le => a _;
    exact: near.
  by rewrite big_split /= -big_distrr /= sumd constE; exact: Rle_refl.
have sizes : \sum_a Rabs (term a) <= K * (alpha * distance) + INR n * C.
  apply: Rle_trans (_ : \sum_a (K * (alpha * d a) + C) <= _).
    apply: rsum_le => a _; have := Rabs_triang (term a - - alpha * d a) (- alpha * d a).
    have -> : term a - - alpha * d a + - alpha * d a = term a by ring.
    have -> : Rabs (- alpha * d a) = alpha * d a.
      by rewrite Rabs_mult Rabs_Ropp !Rabs_pos_eq.
    by have := near a; lra.
  by rewrite big_split /= -big_distrr /= sumd constE; exact: Rle_refl.
have g0 : 0 <= gamma n u.
  apply: Rmult_le_pos; first by apply: Rmult_le_pos => //; exact: pos_INR.
  by apply/Rlt_le/Rinv_0_lt_compat; lra.
have := Rmult_le_compat_l _ _ _ g0 sizes; set y := evaluate _ _ _ _ _ _ _ in S *.
have := Rabs_triang (y - \sum_a term a) (\sum_a term a - - alpha * distance).
have -> : y - \sum_a term a + (\sum_a term a - - alpha * distance) = y - - alpha * distance by ring.
rewrite /score_error /score_lost -/K -/u -/l.
have -> : (1 + gamma n u) * (INR n * ((1 + u) * alpha * l + 2 * l)) = (1 + gamma n u) * (INR n * C)
  + (1 + gamma n u) * (INR n * l).
  by rewrite /C; ring.
by move=> le le'; apply: Rle_trans le _; move: S moved le'; lra.
Qed.
Section Integers.
Variables emin p : Z.
Hypotheses (p1 : (1 < p)%Z) (e0 : (emin <= 0)%Z).
Instance prec_gt_0 : Prec_gt_0 p. Proof. by rewrite /Prec_gt_0; lia. Qed.
Lemma integer_format m : (Z.abs m <= 2 ^ p)%Z -> in_format emin p (IZR m).
Proof.
move=> le; case: (Z_le_lt_eq_dec _ _ le) => [lt|eq].
  apply: generic_format_FLT; exists (Float radix2 m 0) => //; by rewrite /F2R /= Rmult_1_r.
have P : in_format emin p (IZR (2 ^ p)).
  rewrite (IZR_Zpower radix2 p); last lia.
  by apply: generic_format_bpow; rewrite /FLT_exp; lia.
case: (Z.abs_spec m) => -[_ E]; first by rewrite -E eq.
have -> : m = (- 2 ^ p)%Z by lia.
by rewrite opp_IZR; exact: generic_format_opp.
Qed.
(** A number of the format times an integer is rounded as a normal number, or not at all. *)
Lemma product_error_le alpha m : in_format emin p alpha ->
  Rabs (rounded emin p (alpha * IZR m) - alpha * IZR m) <= power (- p) * Rabs (alpha * IZR m).
Proof.
move=> fa; case: (Rle_or_lt (power (emin + p - 1)) (Rabs (alpha * IZR m))) => [|small];
  first exact: normal_error_le.
rewrite rounded_idE; first by rewrite Rminus_eq_0 Rabs_R0; apply: Rmult_le_pos;
  [exact: Rlt_le (power_gt0 _) | exact: Rabs_pos].
apply: generic_format_FLT_FIX; first by apply: Rle_trans (Rlt_le _ _ small) _; apply: bpow_le; lia.
have [[ma ea] E Ee] := FIX_format_generic _ _ _ (generic_format_FIX_FLT _ _ _ _ fa).
apply: generic_format_FIX; exists (Float radix2 (ma * m) emin) => //.
move: Ee => /= Ee; rewrite E /F2R Ee mult_IZR; move: (bpow radix2 emin) => b; rewrite [Fnum _]/=;
  ring.
Qed.
End Integers.
(** Differences and squares of such integers are numbers of the format, so of each axis only the
    last product is rounded ([product_error]); then as for [scores]. *)
Theorem integer_scores : SOFT_integer_scores.
Proof.
move=> emin p p1 e0 A n t alpha f z fa a0 small few term once stored none d.
have sA := gradual_sound emin p1; have [[u0 _ l0] _] := sA; set u := roundoff A in u0 few *.
pose m a := (z a - f a)%Z; have m0 a : 0 <= IZR (m a * m a) by apply: (IZR_le 0); nia.
have termE a : term a = rounded emin p (- alpha * IZR (m a * m a)).
  have sq : (Z.abs (m a) * Z.abs (m a) <= 2 ^ p)%Z := small a.
  have one : (Z.abs (m a) <= 2 ^ p)%Z by nia.
  have ex : fl A (IZR (z a) - IZR (f a)) = IZR (m a).
    by rewrite -minus_IZR /A /= rounded_idE //; exact: integer_format.
  rewrite /term /axis_score ex /A /= -mult_IZR (rounded_idE (x := IZR (m a * m a))) //.
  by apply: integer_format => //; rewrite Z.abs_mul.
have near a : Rabs (term a - - alpha * IZR (m a * m a)) <= u * (alpha * IZR (m a * m a)).
  rewrite termE; have fo : in_format emin p (- alpha) by exact: generic_format_opp.
  have := @product_error_le emin p p1 (- alpha) (m a * m a)%Z fo.
  by rewrite Rabs_mult Rabs_Ropp (Rabs_pos_eq alpha) // (Rabs_pos_eq (IZR _)).
have cn : #|'I_n| = n by exact: card_ord.
have S := @computed_sum_le A _ term t sA; rewrite cn Rmult_0_r Rplus_0_r -/u in S.
have {}S := S few once stored none.
have dE : d = \sum_a IZR (m a * m a) by rewrite /d IZR_sum.
have D0 : 0 <= alpha * d by apply: Rmult_le_pos => //; rewrite dE; apply: rsum_ge0 => a _;
  exact: m0.
have sumd : \sum_a alpha * IZR (m a * m a) = alpha * d by rewrite dE big_distrr.
have moved : Rabs (\sum_a term a - - alpha * d) <= u * (alpha * d).
  have -> : - alpha * d = \sum_a - alpha * IZR (m a * m a) by rewrite dE big_distrr.
  rewrite rsum_minus; apply: Rle_trans (rsum_abs_le _ _ _) _; rewrite -sumd big_distrr /=.
  by apply: rsum_le => a _; exact: near.
have sizes : \sum_a Rabs (term a) <= (1 + u) * (alpha * d).
  rewrite -sumd big_distrr /=; apply: rsum_le => a _.
  have := Rabs_triang (term a - - alpha * IZR (m a * m a)) (- alpha * IZR (m a * m a)).
  have -> : term a - - alpha * IZR (m a * m a) + - alpha * IZR (m a * m a) = term a by ring.
  have -> : Rabs (- alpha * IZR (m a * m a)) = alpha * IZR (m a * m a).
    by rewrite Rabs_mult Rabs_Ropp !Rabs_pos_eq.
  by have := near a; lra.
have g0 : 0 <= gamma n u.
  apply: Rmult_le_pos; first by apply: Rmult_le_pos => //; exact: pos_INR.
  by apply/Rlt_le/Rinv_0_lt_compat; lra.
have := Rmult_le_compat_l _ _ _ g0 sizes; set y := evaluate _ _ _ _ _ _ _ in S *.
have := Rabs_triang (y - \sum_a term a) (\sum_a term a - - alpha * d).
have -> : y - \sum_a term a + (\sum_a term a - - alpha * d) = y - - alpha * d by ring.
rewrite /integer_error -/u => le le'; apply: Rle_trans le _; move: S moved le'; lra.
Qed.
Theorem subtracted : SOFT_subtracted.
Proof.
move=> A sA K s s' c c0 top first [c_0 c_1] c00 low most near k;
  have [[u0 _ l0] [_ _ _ _ any]] := sA.
set u := roundoff A in u0 any *; set l := loss A in l0 any *.
have [sk st] := low k; set r := s k - s top; set m := s top in sk st r *.
have r0 : r <= 0 by rewrite /r; lra.
have [sf _] := low first; have mt := most top.
have absr : Rabs r = - r by rewrite Rabs_left1.
have absm : Rabs m = - m by rewrite Rabs_left1.
have nk := near k; have nt := near top; have nf := near first.
rewrite (Rabs_left1 (s k)) in nk; last lra.
rewrite -/m absm in nt; rewrite (Rabs_left1 (s first)) in nf; last by rewrite -/m in sf; lra.
have close : Rabs (s' first - m) <= c * - m + c0.
  rewrite -/m in sf; have [lo _] := Rabs_le_inv _ _ nt; have [_ hi] := Rabs_le_inv _ _ nf.
  by apply: Rabs_le; split; nra.
have d : Rabs (s' k - s' first - r) <= c * - r + 2 * c * - m + 2 * c0.
  have -> : s' k - s' first - r = (s' k - s k) - (s' first - m) by rewrite /r; ring.
  have := Rabs_triang (s' k - s k) (- (s' first - m)); rewrite Rabs_Ropp.
  have -> : s' k - s k + - (s' first - m) = s' k - s k - (s' first - m) by ring.
  by rewrite /r; nra.
have size : Rabs (s' k - s' first) <= - r + (c * - r + 2 * c * - m + 2 * c0).
  have := Rabs_triang (s' k - s' first - r) r; have -> : s' k - s' first - r + r = s' k - s' first
    by ring.
  lra.
rewrite absr absm; have := Rabs_triang (fl A (s' k - s' first) - (s' k - s' first))
  (s' k - s' first - r).
have -> : fl A (s' k - s' first) - (s' k - s' first) + (s' k - s' first - r)
  = fl A (s' k - s' first) - r by ring.
by have := any (s' k - s' first); have := Rmult_le_compat_l _ _ _ u0 size; lra.
Qed.
(** The computed sum is near that of the features as computed (FLOAT); a product of two of these is
    off by a fraction [(1 + phi)^2 - 1], which is summed over the features. *)
Theorem features : SOFT_features.
Proof.
move=> s I x y x' y' t phi p0 near [ok ev]; have G := growth_ge1 (casts s) ok.
have := sum_error_in_any_order ok ev;
  rewrite /magnitude Rabs_R0 !Rplus_0_r /computed /lost /growth_of.
set g := growth _ _ _ _ _ in G *; set U := underflow _ _ _ _ _;
  set v := evaluate _ _ _ _ _ _ _ => E.
pose M := \sum_i Rabs (x i) * Rabs (y i); have M0 : 0 <= M by apply: rsum_ge0 => i _;
  apply: Rmult_le_pos; exact: Rabs_pos.
have size (a a' : R) : Rabs (a' - a) <= phi * Rabs a -> Rabs a' <= (1 + phi) * Rabs a.
  have := Rabs_triang (a' - a) a; have -> : a' - a + a = a' by ring.
  by lra.
have mag : \sum_i Rabs (x' i) * Rabs (y' i) <= (1 + phi) ^ 2 * M.
  rewrite /M big_distrr /=; apply: rsum_le => i _; have [nx ny] := near i.
  have := Rmult_le_compat _ _ _ _ (Rabs_pos _) (Rabs_pos _) (size _ _ nx) (size _ _ ny); lra.
have moved : Rabs (\sum_i x' i * y' i - \sum_i x i * y i) <= ((1 + phi) ^ 2 - 1) * M.
  rewrite rsum_minus; apply: Rle_trans (rsum_abs_le _ _ _) _; rewrite /M big_distrr /=;
    apply: rsum_le => i _.
  have [nx ny] := near i.
  have -> : x' i * y' i - x i * y i = (x' i - x i) * (y' i - y i)
    + ((x' i - x i) * y i + x i * (y' i - y i)) by ring.
  apply: Rle_trans (Rabs_triang _ _) _;
    apply: Rle_trans (Rplus_le_compat_l _ _ _ (Rabs_triang _ _)) _; rewrite !Rabs_mult.
  have := Rmult_le_compat _ _ _ _ (Rabs_pos _) (Rabs_pos _) nx ny.
  have := Rmult_le_compat_r _ _ _ (Rabs_pos (y i)) nx;
    have := Rmult_le_compat_l _ _ _ (Rabs_pos (x i)) ny.
  by rewrite /=; lra.
have g1 : 0 <= g - 1 by lra.
have := Rmult_le_compat_l _ _ _ g1 mag.
have := Rabs_triang (v - \sum_i x' i * y' i) (\sum_i x' i * y' i - \sum_i x i * y i).
have -> : v - \sum_i x' i * y' i + (\sum_i x' i * y' i - \sum_i x i * y i) = v - \sum_i x i * y i
  by ring.
by rewrite -/M; move: E moved; lra.
Qed.
Theorem features_size : SOFT_features_size.
Proof.
move=> n alpha L q offset k a0 L0 within.
rewrite (@sum_optionE reals _
  (fun p => Rabs (query_feature alpha q offset p) * Rabs (key_feature k p))) /=.
have kk : Rabs (dot k k) <= INR n * L ^ 2.
  rewrite /dot; apply: Rle_trans (rsum_abs_le _ _ _) _.
  apply: Rle_trans (_ : \big[Rplus/0]_(a < n) (L ^ 2) <= _); last by rewrite rsum_constE card_ord;
    exact: Rle_refl.
  apply: rsum_le => a _; have [ka _] := within a; rewrite Rabs_mult /= Rmult_1_r.
  by apply: Rmult_le_compat => //; exact: Rabs_pos.
rewrite Rabs_Ropp (Rabs_pos_eq alpha) //; have := Rmult_le_compat_l _ _ _ a0 kk.
have rest : \sum_a Rabs (2 * alpha * (q a + offset a)) * Rabs (k a) <= INR n * (2 * alpha * L ^ 2).
  apply: Rle_trans (_ : \big[Rplus/0]_(a < n) (2 * alpha * L ^ 2) <= _);
    last by rewrite rsum_constE card_ord; exact: Rle_refl.
  apply: rsum_le => a _; have [ka qa] := within a;
    rewrite !Rabs_mult (Rabs_pos_eq 2) ?(Rabs_pos_eq alpha) //; last lra.
  have := Rmult_le_compat _ _ _ _ (Rabs_pos _) (Rabs_pos _) qa ka => le.
  have := Rmult_le_compat_l (2 * alpha) _ _ ltac:(lra) le; rewrite /= Rmult_1_r; lra.
by move=> le; apply: Rle_trans (Rplus_le_compat _ _ _ _ le rest) _; right; ring.
Qed.

(** ** Mixing axis after axis *)
(** The keys on a line are those of its axis. *)
Section Line.
Variables (n : nat) (size : 'I_n -> nat) (a : 'I_n) (q : box size).
Let line (k : box size) := [forall b, (b == a) || (k b == q b)].
Definition put (j : 'I_(size a)) : box size :=
  [ffun b => if b == a then odflt (q b) (insub (val j)) else q b].
Lemma put_sameE j : put j a = j.
Proof. by rewrite ffunE eqxx valK. Qed.
Lemma put_line j : line (put j).
Proof. by apply/forallP => b; rewrite ffunE; case: (b =P a) => //= _; exact: eqxx. Qed.
Lemma lineK k : line k -> put (k a) = k.
Proof.
move=> /forallP on; apply/ffunP => b; rewrite ffunE; case: (b =P a) => [->|/eqP ne];
  first by rewrite valK.
by have := on b; rewrite (negbTE ne) => /eqP ->.
Qed.
Lemma line_sumE (P : pred 'I_(size a)) (F : 'I_(size a) -> R) :
  \big[Rplus/0]_(k | line k && P (k a)) F (k a) = \big[Rplus/0]_(j | P j) F j.
Proof.
rewrite (reindex_onto put (fun k => k a)) /=; last by move=> k /andP [/lineK].
by apply: eq_big => [j|j _]; rewrite ?put_line put_sameE ?eqxx ?andbT.
Qed.
Lemma along_sumE w (g : R -> R) : g 0 = 0 ->
  \big[Rplus/0]_(k : box size) g (along w q k) = \big[Rplus/0]_(j < size a) g (w j).
Proof.
move=> g0; rewrite -(line_sumE xpredT (fun j => g (w j))) [RHS]big_mkcond; apply: eq_bigr => k _.
by rewrite andbT /along -/(line k); case: ifP.
Qed.
End Line.
(** By induction on the axes mixed, with the mean over those in real arithmetic. The next mean is
    taken of tokens that reach [e] further, so it is off by the bound for such tokens ([mixing], for
    the keys on one line); what the tokens are off by it averages. *)
Theorem axes : SOFT_axes.
Proof.
move=> n size s w few X y way over N off far range small y0 ways steps q0.

pose p a := softmax (s a); have pp a j : 0 <= p a j by exact/Rlt_le/softmax_gt0.
have p1 a : \big[Rplus/0]_(j < size a) p a j = 1 by exact: softmax_sum1 (q0 a).
have -> : \big[Rplus/0]_(k : box size) (softmax (fun j : box size => \sum_a s a (j a)) k * X k)
  = mean n size p X n q0.
  by rewrite mean_all; apply: eq_bigr => k _; rewrite (separable s).
pose b a := mixing_bound (way a) (N a) (off a) (far a).
have near : forall i, (i <= n)%N -> forall q, Rabs (y i q - mean n size p X i q)
  <= axes_error b range i; last exact: near.
elim=> [|i IH] lt q; first by rewrite y0 (mean0 n size p X) Rminus_eq_0 Rabs_R0; exact: Rle_refl.
pose a := Ordinal lt; have [as_a yE] := steps a q; have [nearA cnt offa fara] := ways a.
have {}IH := IH (ltnW lt); set e := axes_error b range i in IH *.
have reach k : Rabs (y i k) <= range + e.
  have := Rabs_triang (y i k - mean n size p X i k) (mean n size p X i k).
  have -> : y i k - mean n size p X i k + mean n size p X i k = y i k by ring.
  by have := IH k; have := mean_le _ _ _ _ _ pp p1 small i k; lra.
pose K := box size; pose fw (k : K) := [forall c, (c == a) || (k c == q c)] && few a (k a).
have cntK : (#|fw| <= N i <= terms (way i))%N.
  case/andP: cnt => le ->; rewrite andbT; apply: leq_trans le.
  rewrite -(card_in_imset (f := fun k : K => k a) (D := fw)).
    by apply: subset_leq_card; apply/subsetP => j /imsetP [k];
      rewrite unfold_in /fw => /andP [_ fk] ->.
  by move=> k k'; rewrite !unfold_in /fw => /andP [on _] /andP [on' _] E;
    rewrite -(lineK on) -(lineK on') E.
have one : \big[Rplus/0]_(k : K) along (p a) q k = 1 by rewrite (along_sumE _ _ (g := id)).
have ge0 k : 0 <= along (p a) q k by rewrite /along; case: ifP => _; [exact: pp | exact: Rle_refl].
have offK : \big[Rplus/0]_(k : K) Rabs (along (w a) q k - along (p a) q k) <= off i.
  apply: Rle_trans offa; right; rewrite -(along_sumE q (fun j => w a j - p a j) (g := Rabs)
    Rabs_R0).
  by apply: eq_bigr => k _; rewrite /along; case: ifP => _ //; rewrite Rminus_eq_0.
have farK : \big[Rplus/0]_(k : K | ~~ fw k) Rabs (along (w a) q k) <= far i.
  apply: Rle_trans fara; right; rewrite -(line_sumE q (fun j => ~~ few a j) (fun j => Rabs (w a
    j))).
  rewrite [LHS]big_mkcond [RHS]big_mkcond; apply: eq_bigr => k _; rewrite /fw /along.
  by case: [forall b, _]; [case: (few a (k a)) | rewrite /= Rabs_R0].
have mayK : may_count (way i) fw (along (w a) q).
  case: nearA => [near|[cut0 none]]; [by left | right; split=> // k; rewrite /fw /along].
  by case: [forall b, _] => //= /none.
have M := mixing as_a mayK cntK ge0 one offK farK reach.
have step := mean_stepE n size p X a q; rewrite -/p in step.
have moved : Rabs (\big[Rplus/0]_(k : K) (along (p a) q k * y i k) - mean n size p X i.+1 q) <= e.
  rewrite -step rsum_minus; apply: Rle_trans (rsum_abs_le _ _ _) _.
  apply: Rle_trans (_ : \big[Rplus/0]_(k : K) (along (p a) q k * e) <= _).
    apply: rsum_le => k _; have -> : along (p a) q k * y i k - along (p a) q k * mean n size p X a k
      = along (p a) q k * (y i k - mean n size p X i k) by rewrite /=; ring.
    by rewrite Rabs_mult (Rabs_pos_eq (along _ _ _)) //; apply: Rmult_le_compat_l.
  by rewrite -big_distrl /= one; lra.
rewrite [axes_error _ _ _]/= -/e yE; move: M; set v := computed _ _ _ _ _;
  set z := \big[Rplus/0]_k _ in moved *.
move=> M; have {}M : Rabs (v - z) <= b i (range + e) by exact: M.
have := Rabs_triang (v - z) (z - mean n size p X i.+1 q).
have -> : v - z + (z - mean n size p X i.+1 q) = v - mean n size p X i.+1 q by ring.
lra.
Qed.

(** ** Mutant: the largest score may be off by a fraction of itself, and nothing follows *)
Definition mutant := subtracted_within (fun c c0 top => 2 * c0).
Theorem mutant_refuted : ~ mutant.
Proof.
have s32 : sound (gradual (-149) 24) by exact: gradual_sound.
move=> /(_ _ s32 _ (fun _ : bool => -1) (fun k : bool => if k then -1 else -2) 1 0 true true).
have c : 0 <= 1 <= 1 by lra. have low (k : bool) : -1 <= -1 <= 0 by lra.
have most (k : bool) : (if k then -1 else -2) <= -1 by case: k; lra.
have near (k : bool) : Rabs ((if k then -1 else -2) - -1) <= 1 * Rabs (-1) + 0.
  have one : Rabs (-1) = 1 by rewrite Rabs_Ropp Rabs_R1.
  by case: k; rewrite one; [have -> : -1 - -1 = 0 by ring | have -> : -2 - -1 = -1 by ring];
    rewrite ?Rabs_R0 ?one; lra.
move=> /(_ c (Rle_refl 0) low most near false).
have -> : -2 - -1 = - (1) :> R by ring. have -> : -1 - -1 = 0 :> R by ring.
have f1 : in_format (-149) 24 (- (1)).
  by apply: generic_format_opp; have -> : 1 = power 0 by []; apply: format_power.
rewrite [fl _ _]rounded_idE // Rabs_R0 Rminus_0_r Rabs_Ropp Rabs_R1 /=.
have : power (-150) <= / 2 by have -> : / 2 = power (-1) by []; apply: bpow_le.
by rewrite /power /=; lra.
Qed.
