(** * Rows

    The program that bounds the difference of two layers in one output channel, over integers  No
    claim of the paper: definitions only. [ROW] states and proves what [bound] says; Extract.v makes
    OCaml of it, and conv2attn/theory/bounds/row.py is its twin in Python. An integer [x] stands for
    the number [x / 2^256]; every step rounds up. The formulas are those of FLOAT and SOFT, written
    with sums, products and [1 / (1 - x)] alone. *)
From Coq Require Import ZArith List Bool.
Import ListNotations.
Set Implicit Arguments. Unset Strict Implicit.
Local Open Scope Z_scope.

(** How products are formed and summed: their roundoff, how much operands are cut, the roundoff of
    what is stored, what a product, a sum and a store lose; then counts: products, summands, casts
    on a way, and stores in all. *)
Record setting := Setting { roundoff : Z; cut : Z; cast : Z; loss : Z; sum_loss : Z; cast_loss : Z;
  products : Z; terms : Z; casts : Z; stored : Z }.
(** [axes] of the heads, mixed one after the other if [apart]; their sharpness: scores fall at least
    like [- alpha m^2] along each axis, [m] places away from the nearest key; keys within [reach] of
    the target count, of at most [keys]; relative and absolute error of scores and exponentials; the
    arithmetic of the softmax, and what a weight near 0 may gain as it is stored; the arithmetic of
    the mean. *)
Record heads := Heads { axes : Z; apart : bool; alpha : Z; reach : Z; keys : Z; score : Z;
  score_lost : Z;
  ulps : Z; exp_lost : Z; softmax : setting; weight_loss : Z; mean : setting }.
(** One output channel: the sum of its weights, its bias, the radius of the inputs; the layers, the
    first without heads; the heads of the second, none if they are exactly one-hot. *)
Record row := Row { weights : Z; bias : Z; radius : Z; first : setting; second : setting;
  soft : option heads }.

(** ** Arithmetic that rounds up *)
Definition one : Z := 2 ^ 256.
Definition up (a b : Z) : Z := - (- a / b).
Definition mul (x y : Z) : Z := up (x * y) one.
Definition geom (x : Z) : Z := up (one * one) (one - x).
(** [(1 + x) (1 + y) - 1], and [(1 + x)^n - 1]. *)
Definition both (x y : Z) : Z := x + y + mul x y.
Fixpoint power (x : Z) (n : nat) : Z := match n with O => 0 | S n => both x (power x n) end.
Definition gamma (n u : Z) : Z := mul (n * u) (geom (n * u)).

(** ** Sums of products *)
Definition cost (s : setting) (n : Z) : Z :=
  both (both (power (cut s) 2) (gamma n (roundoff s))) (power (cast s) (Z.to_nat (casts s))).
Definition lost (s : setting) : Z :=
  mul (one + cost s (terms s))
    (products s * loss s + terms s * sum_loss s + stored s * cast_loss s).
Definition few (s : setting) (n near far : Z) : Z :=
  mul (cost s n) near + mul (one + cost s n) (2 * (mul (one + cost s (terms s)) far + lost s)).

(** ** Theta series of [q = e^- ((1 - c) alpha)] *)
Fixpoint squared (t : Z) (k : nat) : Z := match k with O => t | S k => squared (t * t / one) k end.
Definition exp_down (a : Z) : Z := squared (one + a / 2 ^ 64) 64.
Definition ratio (h : heads) : Z :=
  up (one * one) (exp_down (Z.min (alpha h - mul (score h) (alpha h)) (2048 * one))).
(** What a score of [- x], [x >= alpha m^2], may mean for its exponential if it is off by a fraction
    of itself: at most [x q^(x / alpha)], which falls from [1 / (1 - c)] on, and is never more than
    [1 / (e (1 - c))], [1 / e < 3 / 8]. *)
Definition inverse_e : Z := up (one * 3) 8.
Definition square (h : heads) (m : Z) : Z := m * m * alpha h.
Definition falling (h : heads) (m : Z) : bool := one <=? square h m - mul (score h) (square h m).
Definition moved (h : heads) (m p : Z) : Z := if falling h m then mul
  (square h m) p else mul inverse_e (geom (score h)).
(** The sums of [q^(m^2)] and of that over [k] places from [m] on, and the next power with its ratio
    to the one after. *)
Fixpoint series (h : heads) (q2 m p f : Z) (k : nat) : Z * Z * Z * Z :=
  match k with
  | O => (0, 0, p, f)
  | S k => let '(a, b, p', f') := series h q2 (m + 1) (mul p f) (mul f q2) k
    in (p + a, moved h m p + b, p', f')
  end.
Record sums := Sums { others : Z; spread : Z; tail : Z; step : Z }.
Definition sums_of (h : heads) : sums :=
  let q := ratio h in let q2 := mul q q in let r := reach h in
  let '(a, b, p, f) := series h q2 1 q (mul q2 q) (Z.to_nat r) in
  Sums (2 * (a + mul p (geom f))) (2 * (b + mul (mul (square h (r + 1)) p) (geom (4 * f))))
    (2 * mul p (geom f)) f.

(** ** The softmax over [n] axes *)
Definition share (x : Z) : Z := up (x * one) (one + x).
Definition leak (t : sums) (n : nat) : Z := share (power (others t) n).
Definition far (t : sums) (n : nat) : Z := Z.of_nat n * mul (tail t)
  (one + power (others t) (Nat.pred n)).
Definition count (h : heads) (n : nat) : Z := (2 * reach h + 1) ^ Z.of_nat n.
Definition key_error (h : heads) (t : sums) (n : nat) : Z :=
  let m := power (mul (score h) (spread t)) n in
  let relative := mul (one + ulps h) (mul (geom (score_lost h)) (one + m) - one)
    + mul (ulps h) (leak t n) in
  mul relative (one + far t n) + count h n * exp_lost h.
Definition far_exponentials (h : heads) (t : sums) (n : nat) : Z :=
  mul (mul (one + ulps h) (geom (score_lost h))) (far t n) + keys h * exp_lost h.
Definition total_lost (h : heads) (t : sums) (n : nat) : Z :=
  let s := softmax h in
  mul (one + gamma (count h n) (roundoff s))
    (2 * mul (one + gamma (keys h) (roundoff s))
      (far_exponentials h t n + keys h * loss s + keys h * sum_loss s)).
(** What must be less than 1 for the softmax to say anything. *)
Definition doubt (h : heads) (t : sums) (n : nat) : Z :=
  gamma (count h n) (roundoff (softmax h)) + key_error h t n + total_lost h t n.
Definition far_weights (h : heads) (t : sums) (n : nat) : Z :=
  2 * far_exponentials h t n + keys h * weight_loss h.
Definition off (h : heads) (t : sums) (n : nat) : Z :=
  let s := softmax h in let d := key_error h t n in
  let quotients := both (power (roundoff s) 2) (cast s) + gamma (count h n) (roundoff s) in
  mul (mul quotients (one + d) + 2 * d + total_lost h t n) (geom (doubt h t n))
  + count h n * (mul (mul (one + cast s) (3 * one + 2 * roundoff s)) (loss s) + cast_loss s)
  + far_weights h t n + 2 * far t n.
(** The mean of tokens up to [range]. *)
Definition mean_error (h : heads) (t : sums) (n : nat) (range : Z) : Z :=
  let w := off h t n in let f := far_weights h t n in
  mul (w + f) range + few (mean h) (count h n) (mul (one + w) range) (mul f range).
Fixpoint axes_error (error : Z -> Z) (range : Z) (k : nat) : Z :=
  match k with O => 0 | S k => let e := axes_error error range k in e + error (range + e) end.
(** How far off what a head reads is from its target. *)
Definition reads (h : heads) (range : Z) : Z :=
  let t := sums_of h in let n := Z.to_nat (axes h) in
  2 * mul (leak t n) range
  + if apart h then axes_error (mean_error h t 1) range n else mean_error h t n range.

(** ** The difference of two layers *)
Definition bound (r : row) : Z :=
  let e := match soft r with None => 0 | Some h => reads h (radius r) end in
  let size := mul (weights r) (radius r) + bias r in
  let read := mul (weights r) e in
  read + (mul (cost (first r) (terms (first r))) size + lost (first r))
  + (mul (cost (second r) (terms (second r))) (size + read) + lost (second r)).
(** What must hold of the numbers. *)
Definition natural (x : Z) : bool := 0 <=? x.
Definition setting_fits (s : setting) : bool :=
  forallb natural [roundoff s; cut s; cast s; loss s; sum_loss s; cast_loss s; products s; terms s;
    casts s; stored s]
  && (terms s * roundoff s <? one).
Definition heads_fit (h : heads) : bool :=
  let t := sums_of h in let n := if apart h then 1%nat else Z.to_nat (axes h) in
  forallb natural [axes h; alpha h; reach h; keys h; score h; score_lost h; ulps h; exp_lost h;
    weight_loss h]
  && setting_fits (softmax h) && setting_fits (mean h)
  && (mul (score h) (alpha h) <=? alpha h) && (score h <? one) && (score_lost h <? one) &&
    (0 <? alpha h) && (4 * step t <? one)
  && (0 <? axes h) && falling h (reach h + 1)
  && (keys h * roundoff (softmax h) <? one) && (count h n * roundoff (softmax h) <? one) &&
    (count h n <=? terms (mean h))
  && (doubt h t n <? one).
Definition fits (r : row) : bool :=
  forallb natural [weights r; bias r; radius r] && setting_fits (first r) && setting_fits (second r)
  && match soft r with None => true | Some h => heads_fit h end.
(** What is asked first, so that no number of the program is long and no loop of it: [nat] is a
    machine integer there. Numbers of a float format times [one] are below [2 ^ 1281]; squares of a
    negative sharpness, or of scores off by more than themselves, would double their digits 64
    times; and casts multiply to at most [e ^ 4096]. *)
Definition short (x : Z) : bool := (0 <=? x) && (x <=? 2 ^ 2048).
Definition modest_setting (s : setting) : bool :=
  forallb short [roundoff s; cut s; cast s; loss s; sum_loss s; cast_loss s; products s; terms s;
    casts s; stored s]
  && (casts s <=? 2 ^ 16) && (cast s * casts s <=? 4096 * one).
Definition modest_heads (h : heads) : bool :=
  forallb short [axes h; alpha h; reach h; keys h; score h; score_lost h; ulps h; exp_lost h;
    weight_loss h]
  && (axes h <=? 16) && (reach h <=? 2 ^ 16) && (score h <=? one)
  && modest_setting (softmax h) && modest_setting (mean h).
Definition modest (r : row) : bool :=
  forallb short [weights r; bias r; radius r]
  && modest_setting (first r) && modest_setting (second r)
  && match soft r with None => true | Some h => modest_heads h end.
Definition answer (r : row) : option Z := if modest r && fits r then Some (bound r) else None.

(** ** Reading: a file is a list of integers; [written] is what [parse] reads *)
Definition written_setting (s : setting) : list Z :=
  [roundoff s; cut s; cast s; loss s; sum_loss s; cast_loss s; products s; terms s; casts s;
    stored s].
Definition written_heads (h : heads) : list Z :=
  [axes h; (if apart h then 1 else 0); alpha h; reach h; keys h; score h; score_lost h; ulps h;
    exp_lost h; weight_loss h]
  ++ written_setting (softmax h) ++ written_setting (mean h).
Definition written (r : row) : list Z :=
  [1; weights r; bias r; radius r] ++ written_setting (first r) ++ written_setting (second r)
  ++ match soft r with None => [0] | Some h => 1 :: written_heads h end.
Definition parse_setting (x : list Z) : option (setting * list Z) :=
  match x with
  | u :: k :: v :: l :: a :: m :: p :: t :: c :: s :: x => Some (Setting u k v l a m p t c s, x)
  | _ => None
  end.
Definition parse_heads (x : list Z) : option (heads * list Z) :=
  match x with
  | n :: a :: s :: r :: k :: c :: d :: u :: e :: w :: x =>
    if (a =? 0) || (a =? 1) then
      match parse_setting x with
      | Some (f, x) => match parse_setting x with
        | Some (g, x) => Some (Heads n (a =? 1) s r k c d u e f w g, x)
        | None => None end
      | None => None end
    else None
  | _ => None
  end.
Definition parse (x : list Z) : option (row * list Z) :=
  match x with
  | 1 :: w :: b :: r :: x =>
    match parse_setting x with
    | Some (f, x) => match parse_setting x with
      | Some (g, 0 :: x) => Some (Row w b r f g None, x)
      | Some (g, 1 :: x) => match parse_heads x with Some (h, x) => Some
        (Row w b r f g (Some h), x) | None => None end
      | _ => None end
    | None => None end
  | _ => None
  end.
(** The bound of each row of a file, if it fits; nothing if the file is not made of rows, or of more
    than [fuel] ones. *)
Fixpoint answers (fuel : nat) (x : list Z) : option (list (option Z)) :=
  match x, fuel with
  | [], _ => Some []
  | _, S fuel => match parse x with
    | Some (r, x) => match answers fuel x with Some bs => Some (answer r :: bs) | None => None end
    | None => None end
  | _, O => None
  end.
