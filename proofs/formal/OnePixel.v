(** * OnePixel: layers and convolutions of one pixel, on which instances and mutants are computed

    No claim of its own: no axes, so one tap, one query, one key, one pixel; one channel. *)
From Coq Require Import Ring_theory Ring Reals.
From mathcomp Require Import all_ssreflect.
From C2A Require Import Statements Sums L1.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Definition one_pixel : geometry 0 := Geometry (fun _ => 0) (fun _ => 0) (fun _ => 0) (fun _ => 0)
  (fun _ => 0) (fun _ => 0).
Lemma one_pixel_fits : fits one_pixel. Proof. by case. Qed.
Definition here (size : 'I_0 -> nat) : box size :=
  [ffun a : 'I_0 => False_rect _ (notF (ltn_ord a))].
Lemma hereE (size : 'I_0 -> nat) (x : box size) : x = here size. Proof. by apply/ffunP; case. Qed.
Lemma all_read (q : queries one_pixel) t k : reads q t k. Proof. by apply/forallP; case. Qed.
Lemma all_see (q : queries one_pixel) t i : sees q t i. Proof. by apply/forallP; case. Qed.
Lemma same_bijective (T : Type) : bijective (@id T). Proof. by exists id. Qed.
Section Layers.
Variable S : numbers.
Add Ring numbers_ring : (laws S).
Local Open Scope num_scope.
Lemma sum_here (size : 'I_0 -> nat) (F : box size -> S) : \sum_i F i = F (here size).
Proof. by rewrite (big_pred1 (here size)) // => i; rewrite (hereE i) /= eqxx. Qed.
Lemma sum_one_channel (F : 'I_(1 * 1) -> S) : \sum_c F c = F ord0.
Proof. by rewrite big_ord_recl big_ord0 add0r. Qed.
Lemma padE (X : pixels one_pixel -> 'I_(1 * 1) -> S) k : zero_pad X k ord0 = X (here _) ord0.
Proof.
rewrite /zero_pad -(sum_here (fun i => X i ord0)); apply: eq_bigl => i.
by apply/forallP; case.
Qed.
Lemma conv_of_keysE (weight : 'I_(1 * 1) -> nat -> taps one_pixel -> S) b
  (Z : keys one_pixel -> 'I_(1 * 1) -> S) q : conv_of_keys weight b Z q ord0
  = Z (here _) ord0 * weight ord0 0%N (here _) + b ord0.
Proof.
rewrite /conv_of_keys (sum_here (size := kernel one_pixel)) big_mkcond sum_one_channel /=.
rewrite -(sum_here (fun k => Z k ord0)); congr (_ * _ + _); apply: eq_bigl => k.
exact: all_read.
Qed.
Lemma convE (weight : 'I_(1 * 1) -> nat -> taps one_pixel -> S) b
  (X : pixels one_pixel -> 'I_(1 * 1) -> S) q : torch_conv weight b X q ord0
  = X (here _) ord0 * weight ord0 0%N (here _) + b ord0.
Proof.
by rewrite -(zero_padding one_pixel_fits weight b X q ord0) conv_of_keysE padE.
Qed.
(** One head for the one tap, of dimension one. *)
Definition times (w : S) (h : taps one_pixel) (c : 'I_(1 * 1)) (e : unit) : S := w.
Definition output (h : taps one_pixel) (e : unit) (o : 'I_(1 * 1)) : S := 1.
Definition weighs (w : S) (o : 'I_(1 * 1)) (c : nat) (t : taps one_pixel) : S := w.
Definition bias (b : S) (o : 'I_(1 * 1)) : S := b.
Lemma merged_times w h c o : merged (times w) output h c o = tap (weighs w) h c o.
Proof. by rewrite /merged sum_unitE /tap (ord1 c) (ord1 o) /times /output /weighs /=; ring. Qed.
Lemma layerE (P : taps one_pixel -> queries one_pixel -> keys one_pixel -> S) w b
  (Z : keys one_pixel -> 'I_(1 * 1) -> S) q :
  mhsa P (times w) output b Z q ord0 = P (here _) q (here _) * Z (here _) ord0 * w + b ord0.
Proof.
rewrite mhsaE (sum_here (size := kernel one_pixel)) sum_one_channel merged_times.
by rewrite (sum_here (size := padded one_pixel)) /tap /=.
Qed.
(** The attention that reads the one key; scaled, where it should not. *)
Definition full_attention (p : S) (h : taps one_pixel) (q : queries one_pixel) (k : keys one_pixel)
  : S
  := p.
Lemma attention_hard : hard id (full_attention 1).
Proof. by move=> h q k; rewrite all_read. Qed.
End Layers.
