(** * Extract: the checker of certificates as an OCaml program, over Zarith's integers

    No claim: [Checker.answers] becomes span_checker.ml, which span_checker_main.ml reads files for. *)
From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlNatInt ExtrOcamlZBigInt.
From C2A Require Checker.
Extraction "span_checker.ml" Checker.answers.
