package crdinformer

import (
	"bytes"
	"context"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/json/jsontext"
)

// servingPeriod is the period in which a definition does not change in a way that affects how its
// resource is served. Cached encodings of objects are valid only within a period, and watches end
// with it.
type servingPeriod struct {
	entry *objects.Entry // the definition at the start of the period
	// slot is the slot of the first version's cached encodings in an entry. The other versions have
	// the following slots; see apiset.MaxSlots.
	slot   int
	ctx    context.Context // canceled at the end of the period
	cancel context.CancelFunc
}

// periodFor returns the current period of a definition if the resource is served by entry as it was
// served before. Otherwise it returns a new period with a slot for each of versionCount versions.
// After the last slot it uses the first ones again; see apiset.MaxSlots for why that is safe.
func (s *Syncer) periodFor(key string, entry *objects.Entry, versionCount int) *servingPeriod {
	if current := s.defined[key]; current != nil && servesSame(current.period.entry, entry) {
		return current.period
	}
	p := &servingPeriod{entry: entry, slot: s.nextSlot}
	if p.slot > apiset.MaxSlots-versionCount {
		p.slot = 0
	}
	s.nextSlot = p.slot + versionCount
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// servedFields selects the parts of a definition that affect how its objects are served.
var servedFields = jsontext.Compile(jsontext.Fields("spec"), jsontext.Fields("status", "acceptedNames"))

// servesSame reports whether two entries are versions of the same definition (not of a recreated
// one) and describe its resource in the same way.
func servesSame(before, after *objects.Entry) bool {
	if before.CreateRevision != after.CreateRevision {
		return false
	}
	x, err := servedFields.Find(before.Stored(), nil)
	if err != nil {
		return false
	}
	y, err := servedFields.Find(after.Stored(), nil)
	return err == nil && bytes.Equal(x[0], y[0]) && bytes.Equal(x[1], y[1])
}

// endedPeriods returns the cancel functions of the periods that end with the pending changes. It
// omits deleted definitions: their watches still report the deletion of the last objects, and end
// with the store.
func (s *Syncer) endedPeriods() (cancels []context.CancelFunc) {
	for key, before := range s.pending {
		current := s.defined[key]
		if before == nil || current != nil && current.period == before.period {
			continue
		}
		if deleted := current == nil && before.Versions[0].Store.Gone(); !deleted {
			cancels = append(cancels, before.period.cancel)
		}
	}
	return cancels
}
