package watchcache

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"unsafe"

	"binnacle/services/apiserver/internal/storage"
)

// Entry is one version of one object. It is immutable; its exported fields
// must not be changed.
type Entry struct {
	compact
	// Revision is that of the change that made this version. An entry that
	// carries the last state of something deleted (see Event) has the
	// revision of the deletion.
	Revision int64
	// CreateRevision is the revision at which the key came to be.
	CreateRevision int64

	id        uint64  // its highest bit is packed
	stored    string  // see kept.go; a slice would take a word more
	damage    *damage // nil for what can be read
	encodings atomic.Pointer[encoding]
	places    atomic.Uint64
	kept      *kept // nil: neither packed in a book, nor are encodings kept
}

// damage is what is wrong with a value that nobody can use.
type damage struct {
	why *storage.UnreadableError
	// readable is the last version before this one that could be read, if it is known.
	readable *Entry
	// untold: there is none since the object came to be.
	untold bool
}

// entryOverhead is what an entry takes beside its key and value.
const entryOverhead = int64(unsafe.Sizeof(Entry{}))

// Apart is the entry of an object that no cache has: it is told as others are,
// and nothing of it is kept.
func Apart(key string, stored []byte) *Entry {
	return &Entry{compact: ofKey(key), stored: asText(stored)}
}

// ID names this version of the object among all that this process has seen, also
// where the store was replaced and tells revisions again. It is 0 for an entry
// that is not part of the cache.
func (e *Entry) ID() uint64 { return e.id &^ packed }

// Sum tells what is stored by one key apart, also where a store that was restored tells a
// revision again with another value.
func (e *Entry) Sum(seed maphash.Seed) uint64 {
	if e.book() != nil { // which is not one text for ever
		l := e.Lend()
		defer l.Back()
		return maphash.Bytes(seed, l.Value)
	}
	return maphash.String(seed, e.stored)
}

// Touch reads a little of the beginning of the stored value, so that it is near when it is
// needed. What it returns means nothing.
func (e *Entry) Touch() (sum byte) {
	b := e.stored[:min(len(e.stored), touched)]
	for i := 0; i < len(b); i += cacheLine {
		sum ^= b[i]
	}
	return sum
}

const (
	cacheLine = 64
	touched   = 4 * cacheLine
)

// Places is a word for whoever reads the stored value, to find things in it again.
// It is 0 at first.
func (e *Entry) Places() *atomic.Uint64 { return &e.places }

// Unreadable is why the value cannot be read: *storage.UnreadableError, or nil.
func (e *Entry) Unreadable() error {
	if e.damage == nil {
		return nil
	}
	return e.damage.why
}

// LastReadable is the version itself or, if it cannot be read, the last one before it
// that could; nil when that is not known.
func (e *Entry) LastReadable() *Entry {
	if e == nil || e.damage == nil {
		return e
	}
	return e.damage.readable
}

// follows notes what the version before was, which may be nil.
func (e *Entry) follows(old *Entry) {
	if e.damage == nil {
		return
	}
	e.damage.readable = old.LastReadable()
	e.damage.untold = !e.damage.why.Passing && (old == nil || old.untold())
}

// untold: the object was never one that could be read.
func (e *Entry) untold() bool { return e.damage != nil && e.damage.untold }

// keyValue is what the entry was made of.
func (e *Entry) keyValue() storage.KeyValue {
	kv := storage.KeyValue{Key: e.Key(), Value: e.Stored(), ModRevision: e.Revision, CreateRevision: e.CreateRevision}
	switch {
	case e.damage != nil && !e.damage.why.Undecodable:
		kv.Seal = &storage.Seal{Err: e.damage.why}
	case e.kept != nil && e.kept.sealed:
		kv.Seal = &storage.Seal{}
	}
	return kv
}

// retired tells that the entry has left the cache.
func (e *Entry) retired() bool { return e.ring() != nil && e.encodings.Load() == e.ring().retired }

// sizeBeside is the memory that the entry holds, without encodings, beside what
// it shares with the version after it, which may be nil.
func (e *Entry) sizeBeside(next *Entry) int64 {
	n := entryOverhead + int64(len(e.stored))
	if next == nil || unsafe.StringData(e.text) != unsafe.StringData(next.text) {
		n += int64(len(e.text))
	}
	return n
}

// outline is what is read of a value.
func (r *Resource) outline(value []byte) []byte {
	if r.Outline == nil {
		return value
	}
	return r.Outline(value)
}

// newEntry makes the entry of a stored value, with its outline. When that cannot be read, the entry has
// what its key tells.
func newEntry(r *Resource, plain *kept, kv storage.KeyValue, outline []byte) *Entry {
	var attrs Attributes
	var unreadable *storage.UnreadableError
	if kv.Seal != nil {
		unreadable = kv.Seal.Err
	}
	if unreadable == nil {
		var err error
		if attrs, err = r.Attributes(kv.Key, outline); err != nil {
			unreadable = &storage.UnreadableError{Key: kv.Key, Revision: kv.ModRevision, Undecodable: true, Err: err}
		}
	}
	if unreadable != nil {
		attrs = attributesOfKey(strings.TrimPrefix(kv.Key, r.Prefix))
	}
	e := &Entry{
		compact:        newCompact(kv.Key, attrs),
		Revision:       kv.ModRevision,
		CreateRevision: kv.CreateRevision,
		stored:         asText(kv.Value),
		kept:           plain,
	}
	if unreadable != nil {
		e.damage = &damage{why: unreadable}
	}
	return e
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
	out := &Entry{
		compact:        e.compact,
		Revision:       revision,
		CreateRevision: e.CreateRevision,
		id:             e.id & packed,
		stored:         e.stored,
		kept:           e.kept,
	}
	if e.damage != nil {
		d := *e.damage
		out.damage = &d
	}
	return out
}
