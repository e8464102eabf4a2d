package kind

import "iter"

// CRDUpdate is a new set of served definitions.
type CRDUpdate struct {
	// Changed holds the definitions that differ from the previous set.
	Changed []CRDChange
	// All yields the served definitions in the order of their keys. It does not change.
	All iter.Seq[*CRD]
	// Complete reports whether every stored definition could be read. If not, resources may be
	// defined that are missing from All.
	Complete bool
}

// CRDChange is a definition before and after a change, nil where it is not served.
type CRDChange struct{ Old, New *CRD }
