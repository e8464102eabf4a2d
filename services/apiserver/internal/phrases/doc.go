// Package phrases keeps values that have much in common by what they differ in: pods of one
// template, with the same probes and the same fields owned, are a few hundred bytes each beside
// one text.
//
// A Shelf is for values of one sort. It finds what is in several of them, its phrases, and writes
// them into a Book. A value is packed as what is its own and places in the book, and unpacked by
// copying both, which costs little more than reading it: the book is in the processor's caches,
// and of the value there is a fraction to wait for.
//
// # How phrases are found
//
// What of a value is not in the book is looked for among what others had of their own lately, and
// what is there, too, becomes a phrase (learn.go). Looking costs as much as packing, so the longer
// nothing is found the fewer values are looked at. A book only grows, so that what was packed with
// it stays good; one that is full is followed by a larger one that begins with the same text, as large
// as values are worth, and then by an empty one, while no more than a few are in use.
//
// # The form
//
// A packed value is its size, then in turn what is its own (length and bytes) and a phrase (length,
// and place as the distance from the end of the phrase before). Numbers are varints, as in
// encoding/binary. It is for this process alone, and only with its book.
package phrases
