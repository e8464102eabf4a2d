package kind

import "iter"

// Update is a new set of served definitions.
type Update struct {
	// Changed holds the definitions that differ from the previous set.
	Changed []Change
	// All yields the served definitions in the order of their keys. It does not change.
	All iter.Seq[*Definition]
	// Complete reports whether every stored definition could be read. If not, resources may be
	// defined that are missing from All.
	Complete bool
}

// Change is a definition before and after a change, nil where it is not served.
type Change struct{ Before, Now *Definition }
