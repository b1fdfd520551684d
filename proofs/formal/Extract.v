(** * Extract: the checker of certificates and the bound of rows as OCaml programs

    No claim: [Checker.answers] becomes span_checker.ml and [Rows.answers] row_bound.ml, which
    span_checker_main.ml and row_bound_main.ml read files for. *)
From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlNatInt ExtrOcamlZBigInt.
From C2A Require Checker Rows.
Extraction "span_checker.ml" Checker.answers.
Extraction "row_bound.ml" Rows.answers.
