(* Reads the integers of a file of certificates, comments left out, and prints what the proved checker says of each.
   Exit code: 0 all confirmed, 1 some are not, 2 not a file of certificates, 3 nothing in it. *)

let is_integer word =
  let digits = if word <> "" && word.[0] = '-' then String.sub word 1 (String.length word - 1) else word in
  digits <> "" && String.for_all (fun c -> '0' <= c && c <= '9') digits

let add read word =
  let word = String.trim word in
  if word = "" then read else if is_integer word then Z.of_string word :: read else raise Exit

let integers channel =
  let rec lines read =
    match input_line channel with
    | exception End_of_file -> List.rev read
    | line -> lines (List.fold_left add read (String.split_on_char ' ' (List.hd (String.split_on_char '#' line)))) in
  lines []

let () =
  let channel = if Array.length Sys.argv > 1 then open_in Sys.argv.(1) else stdin in
  let answers = try let x = integers channel in Span_checker.answers (List.length x) x with Exit -> None in
  match answers with
  | None -> print_endline "not a file of certificates"; exit 2
  | Some [] -> print_endline "no certificate"; exit 3
  | Some answers ->
    List.iter (fun answer -> print_endline (if answer then "confirmed" else "not confirmed")) answers;
    exit (if List.for_all Fun.id answers then 0 else 1)
