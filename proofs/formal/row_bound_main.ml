(* Prints the proved bound of each row of a file, times 2^256, or that there is none.
   Exit code: 0 all have one, 1 some have none, 2 not a file of rows, 3 nothing in it. *)

let () =
  match Integers.ask Row_bound.answers with
  | None -> print_endline "not a file of rows"; exit 2
  | Some [] -> print_endline "no row"; exit 3
  | Some answers ->
    List.iter (function Some bound -> print_endline (Z.to_string bound) | None -> print_endline "none") answers;
    exit (if List.for_all Option.is_some answers then 0 else 1)
