(* Prints what the proved checker says of each certificate of a file.
   Exit code: 0 all confirmed, 1 some are not, 2 not a file of certificates, 3 nothing in it. *)

let () =
  match Integers.ask Span_checker.answers with
  | None -> print_endline "not a file of certificates"; exit 2
  | Some [] -> print_endline "no certificate"; exit 3
  | Some answers ->
    List.iter (fun answer -> print_endline (if answer then "confirmed" else "not confirmed")) answers;
    exit (if List.for_all Fun.id answers then 0 else 1)
