package watchcache

import (
	"strings"
	"sync/atomic"
	"unique"
	"unsafe"

	"binnacle/services/apiserver/internal/storage"
)

// Entry is one version of one object. It is immutable; its exported fields
// must not be changed.
type Entry struct {
	Key string
	// Revision is that of the change that made this version. An entry that
	// carries the last state of something deleted (see Event) has the
	// revision of the deletion.
	Revision int64
	// CreateRevision is the revision at which the key came to be.
	CreateRevision int64
	Attributes

	stored    []byte
	encodings atomic.Pointer[encoding]
	budget    *budget // nil: encodings are not kept
}

// entryOverhead is what an entry takes beside its key and value.
const entryOverhead = int64(unsafe.Sizeof(Entry{}))

// Stored returns the value as it is stored. It must not be changed.
func (e *Entry) Stored() []byte { return e.stored }

// size is the memory that the entry holds, without encodings.
func (e *Entry) size() int64 {
	return entryOverhead + int64(len(e.Key)) + int64(cap(e.stored))
}

// newEntry makes the entry of a stored value. When the value's attributes
// cannot be read, the entry has what its key tells, and the error is returned
// beside it.
func newEntry(r *Resource, b *budget, kv storage.KeyValue) (*Entry, error) {
	attrs, err := r.Attributes(kv.Key, kv.Value)
	if err != nil {
		attrs = attributesOfKey(strings.TrimPrefix(kv.Key, r.Prefix))
	}
	if strings.HasSuffix(kv.Key, attrs.Name) {
		attrs.Name = kv.Key[len(kv.Key)-len(attrs.Name):]
	}
	attrs.Namespace = unique.Make(attrs.Namespace).Value()
	return &Entry{
		Key:            kv.Key,
		Revision:       kv.ModRevision,
		CreateRevision: kv.CreateRevision,
		Attributes:     attrs,
		stored:         kv.Value,
		budget:         b,
	}, err
}

// attributesOfKey reads namespace and name from "[namespace/]name".
func attributesOfKey(rest string) Attributes {
	if ns, name, ok := strings.Cut(rest, "/"); ok {
		return Attributes{Namespace: ns, Name: name}
	}
	return Attributes{Name: rest}
}

// at returns a copy of the entry, without encodings, at another revision.
func (e *Entry) at(revision int64) *Entry {
	return &Entry{
		Key:            e.Key,
		Revision:       revision,
		CreateRevision: e.CreateRevision,
		Attributes:     e.Attributes,
		stored:         e.stored,
		budget:         e.budget,
	}
}
