(* The integers of a file, at blanks and ends of lines, comments left out. *)

let is_integer word =
  let digits = if word <> "" && word.[0] = '-' then String.sub word 1 (String.length word - 1) else word in
  digits <> "" && String.for_all (fun c -> '0' <= c && c <= '9') digits

let add read word =
  if word = "" then read else if is_integer word then Z.of_string word :: read else raise Exit

let of_channel channel =
  let rec lines read =
    match input_line channel with
    | exception End_of_file -> List.rev read
    | line -> lines (List.fold_left add read (String.split_on_char ' ' (List.hd (String.split_on_char '#' line)))) in
  lines []

(* What [answers] says of the integers of the first argument's file, or of the input; nothing if they are no such file. *)
let ask answers =
  let channel = if Array.length Sys.argv > 1 then open_in Sys.argv.(1) else stdin in
  try let x = of_channel channel in answers (List.length x) x with Exit -> None
