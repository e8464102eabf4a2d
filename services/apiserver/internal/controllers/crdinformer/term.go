package crdinformer

import (
	"bytes"
	"context"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/json/jsontext"
)

// term is the period in which a definition describes its resource in the same way.
type term struct {
	entry  *objects.Entry // the first entry of the period
	slot   int            // the first slot for cached encodings
	ctx    context.Context
	cancel context.CancelFunc
}

// term returns the current term of a definition if the entry e describes its resource in the same
// way. Otherwise it returns a new term with a slot for each version.
func (s *Syncer) term(key string, e *objects.Entry, versions int) *term {
	if current := s.defined[key]; current != nil && equivalent(current.term.entry, e) {
		return current.term
	}
	t := &term{entry: e, slot: s.nextSlot}
	if t.slot > apiset.MaxSlots-versions {
		t.slot = 0
	}
	s.nextSlot = t.slot + versions
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// servedFields selects the parts of a definition that affect how its objects are served.
var servedFields = jsontext.Compile(jsontext.Fields("spec"), jsontext.Fields("status", "acceptedNames"))

// equivalent reports whether two entries are the same definition and describe its resource in the
// same way.
func equivalent(a, b *objects.Entry) bool {
	if a.CreateRevision != b.CreateRevision {
		return false
	}
	x, err := servedFields.Find(a.Stored(), nil)
	if err != nil {
		return false
	}
	y, err := servedFields.Find(b.Stored(), nil)
	return err == nil && bytes.Equal(x[0], y[0]) && bytes.Equal(x[1], y[1])
}

// endedTerms returns the functions that cancel the terms that are no longer served. It omits terms
// of deleted definitions, because watches still report the deletion of their last objects. They end
// with the store.
func (s *Syncer) endedTerms() (ends []context.CancelFunc) {
	for key, before := range s.pending {
		current := s.defined[key]
		switch {
		case before == nil, current != nil && current.term == before.term:
		case current == nil && before.Versions[0].Store.Gone():
		default:
			ends = append(ends, before.term.cancel)
		}
	}
	return ends
}
