(** * Checker: the program that confirms a certificate of a span, over integers

    No claim of the paper: definitions only. [SPAN] states and proves what [check] says; Extract.v
    makes OCaml of [answers]. The format that it reads is described in proofs/certificates.py. *)
From Coq Require Import ZArith List Bool.
Import ListNotations.
Set Implicit Arguments. Unset Strict Implicit.
Local Open Scope Z_scope.

(** One query: the row asked for, a row of each head, and of the certificate where it refutes; all
    over [scale]. *)
Record query := Query { target : list Z; rows : list (list Z); dual : list Z }.
(** [refutes]: no weights serve; else [weights / weight_scale] do. [eps], [per_norm] and [bound],
    over [limit_scale], say what counts as nothing left, [eps + per_norm |weights|_1], and how large
    weights may be: any, if [bound] is negative. *)
Record certificate := Certificate {
  refutes : bool; heads : nat; keys : nat; scale : Z; eps : Z; per_norm : Z; bound : Z;
    limit_scale : Z;
  weight_scale : Z; weights : list Z; queries : list query }.

(** ** Arithmetic on rows *)
Definition sum_of (x : list Z) : Z := fold_right Z.add 0 x.
Definition size1 (x : list Z) : Z := sum_of (map Z.abs x).
Definition largest (x : list Z) : Z := fold_right (fun a m => Z.max (Z.abs a) m) 0 x.
Fixpoint list_dot (x y : list Z) : Z := match x, y with a :: x, b :: y => a * b + list_dot x y | _,
  _ => 0 end.
Fixpoint less (p : Z) (a x : list Z) : list Z := match a, x with b :: a,
  c :: x => (c - p * b) :: less p a x | _, _ => [] end.
Fixpoint plus (x y : list Z) : list Z := match x, y with a :: x, b :: y => (a + b) :: plus x y | _,
  _ => [] end.

(** ** The checks *)
Definition shaped (n : nat) (x : list Z) : bool := Nat.eqb (length x) n.
Definition shaped_query (c : certificate) (q : query) : bool :=
  shaped (keys c) (target q) && Nat.eqb (length (rows q)) (heads c) &&
    forallb (shaped (keys c)) (rows q)
  && (negb (refutes c) || shaped (keys c) (dual q)).
Definition sensible (c : certificate) : bool :=
  (0 <? scale c) && (0 <? limit_scale c) && (0 <=? per_norm c) &&
    forallb (shaped_query c) (queries c)
  && (refutes c || (0 <? weight_scale c) && shaped (heads c) (weights c)).
(** [weight_scale * target - sum_h weights_h rows_h], over [weight_scale * scale]. *)
Fixpoint residual (p : list Z) (a : list (list Z)) (x : list Z) : list Z :=
  match p, a with q :: p, b :: a => residual p a (less q b x) | _, _ => x end.
Definition leaves_nothing (c : certificate) (norm : Z) (q : query) : bool :=
  size1 (residual (weights c) (rows q) (map (Z.mul (weight_scale c)) (target q))) * limit_scale c
    <=? scale c * (eps c * weight_scale c + per_norm c * norm).
Definition check_holds (c : certificate) : bool :=
  let norm := size1 (weights c) in
  ((bound c <? 0) || (norm * limit_scale c <=? bound c * weight_scale c)) &&
    forallb (leaves_nothing c norm) (queries c).
Definition gain (c : certificate) : Z := sum_of (map (fun q => list_dot (target q) (dual q))
  (queries c)).
Definition peak (c : certificate) : Z := sum_of (map (fun q => largest (dual q)) (queries c)).
Definition met (c : certificate) : list Z :=
  fold_right (fun q sums => plus (map (fun row => list_dot row (dual q)) (rows q)) sums)
    (repeat 0 (heads c)) (queries c).
Definition check_refuted (c : certificate) : bool :=
  let reach := largest (met c) in
  if bound c <? 0 then (reach =? 0) && (per_norm c =? 0) &&
    (scale c * (eps c * peak c) <? gain c * limit_scale c)
  else scale c * ((eps c * limit_scale c + per_norm c * bound c) * peak c)
       <? gain c * (limit_scale c * limit_scale c) - bound c * limit_scale c * reach.
Definition check (c : certificate) : bool := sensible c &&
  if refutes c then check_refuted c else check_holds c.

(** ** Reading: a file is a list of integers; [written] is what [parse] reads *)
Definition written_query (c : certificate) (q : query) : list Z :=
  target q ++ concat (rows q) ++ (if refutes c then dual q else []).
Definition written (c : certificate) : list Z :=
  [1; if refutes c then 1 else 0; Z.of_nat (heads c); Z.of_nat (length (queries c));
    Z.of_nat (keys c); scale c;
   eps c; per_norm c; bound c; limit_scale c]
  ++ (if refutes c then [] else weight_scale c :: weights c) ++ concat
    (map (written_query c) (queries c)).
(** The first [n] integers, if there are so many, and the rest. *)
Fixpoint split (n : nat) (x : list Z) : option (list Z * list Z) :=
  match n, x with
  | O, _ => Some ([], x)
  | S n, a :: x => match split n x with Some (y, z) => Some (a :: y, z) | None => None end
  | S _, [] => None
  end.
Fixpoint many (A : Type) (one : list Z -> option (A * list Z)) (n : nat) (x : list Z) : option
  (list A * list Z) :=
  match n with
  | O => Some ([], x)
  | S n => match one x with
           | Some (a, x) => match many one n x with Some (y, z) => Some (a :: y, z) | None =>
             None end
           | None => None end
  end.
Definition parse_query (refutes : bool) (h k : nat) (x : list Z) : option (query * list Z) :=
  match split k x with
  | Some (t, x) => match many (split k) h x with
    | Some (a, x) => if refutes then match split k x with Some (y, x) => Some (Query t a y, x) |
      None => None end
                     else Some (Query t a [], x)
    | None => None end
  | None => None end.
(** No count exceeds the length of what follows: as a program, [nat] is a machine integer. *)
Definition at_most_length (x : list Z) (z : Z) : bool := (0 <=? z) && (z <=? Z.of_nat (length x)).
Definition parse (x : list Z) : option (certificate * list Z) :=
  match x with
  | 1 :: kind :: h :: n :: k :: s :: e :: r :: b :: l :: x =>
    if forallb (at_most_length x) [h; n; k] && (1 <=? k) && ((kind =? 0) || (kind =? 1)) then
      let refutes := kind =? 1 in let h := Z.to_nat h in let k := Z.to_nat k in
      match (if refutes then Some ([0], x) else split (S h) x) with
      | Some (p :: w, x) => match many (parse_query refutes h k) (Z.to_nat n) x with
        | Some (qs, x) => Some (Certificate refutes h k s e r b l p w qs, x)
        | None => None end
      | _ => None end
    else None
  | _ => None end.
(** Every certificate of a file, each confirmed or not; nothing if the file is not made of
    certificates, or of more than [fuel] ones. *)
Fixpoint answers (fuel : nat) (x : list Z) : option (list bool) :=
  match x, fuel with
  | [], _ => Some []
  | _, S fuel => match parse x with
    | Some (c, x) => match answers fuel x with Some bs => Some (check c :: bs) | None => None end
    | None => None end
  | _, O => None
  end.
