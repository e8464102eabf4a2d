package watchcache

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"unsafe"

	"binnacle/services/apiserver/internal/storage"
)

// Entry is one version of one object. It is immutable, and its exported fields must not be changed.
type Entry struct {
	compact
	// Revision is the revision of the change that created this version. An entry that carries the
	// last state of a deleted object (see Event) has the revision of the deletion.
	Revision int64
	// CreateRevision is the revision at which the key was created.
	CreateRevision int64

	id        uint64  // the highest bit is packed
	stored    string  // see kept.go; a slice would take one word more
	damage    *damage // nil for a readable value
	encodings atomic.Pointer[encoding]
	places    atomic.Uint64
	kept      *kept // nil: not encoded with a dictionary, and no encodings are kept
}

// damage describes a value that cannot be used.
type damage struct {
	why *storage.UnreadableError
	// readable is the last readable version before this one, if it is known.
	readable *Entry
	// neverReadable means that the object has had no readable version since its creation.
	neverReadable bool
}

// entryOverhead is the memory of an entry beside its key and value.
const entryOverhead = int64(unsafe.Sizeof(Entry{}))

// Apart returns the entry of an object that is in no cache. It is reported to watchers like other
// entries, and nothing of it is kept.
func Apart(key string, stored []byte) *Entry {
	return &Entry{compact: ofKey(key), stored: asText(stored)}
}

// ID identifies this version of the object among all versions that this process has seen. It stays
// unique when a replaced store assigns the same revisions again. It is 0 for an entry that is not
// part of the cache.
func (e *Entry) ID() uint64 { return e.id &^ packed }

// Sum returns a hash of the stored value. It distinguishes the values of one key, even if a
// restored store assigns a revision again with another value.
func (e *Entry) Sum(seed maphash.Seed) uint64 {
	if e.dict() != nil { // the packed form of a value can change
		l := e.Lend()
		defer l.Back()
		return maphash.Bytes(seed, l.Value)
	}
	return maphash.String(seed, e.stored)
}

// Places returns a word in which readers of the stored value cache positions in it. It is initially
// 0.
func (e *Entry) Places() *atomic.Uint64 { return &e.places }

// Unreadable returns why the value cannot be read: *storage.UnreadableError, or nil.
func (e *Entry) Unreadable() error {
	if e.damage == nil {
		return nil
	}
	return e.damage.why
}

// LastReadable returns the entry itself or, if it is unreadable, the last readable version before
// it. It returns nil if that version is not known.
func (e *Entry) LastReadable() *Entry {
	if e == nil || e.damage == nil {
		return e
	}
	return e.damage.readable
}

// follows records the previous version, which may be nil.
func (e *Entry) follows(old *Entry) {
	if e.damage == nil {
		return
	}
	e.damage.readable = old.LastReadable()
	e.damage.neverReadable = !e.damage.why.Passing && (old == nil || old.neverReadable())
}

// neverReadable reports whether the object never had a readable version.
func (e *Entry) neverReadable() bool { return e.damage != nil && e.damage.neverReadable }

// keyValue returns the stored form from which the entry was made.
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

// retired reports whether the entry has left the cache.
func (e *Entry) retired() bool { return e.ring() != nil && e.encodings.Load() == e.ring().retired }

// sizeBeside returns the memory of the entry in bytes, without encodings and without the parts that
// it shares with the next version, which may be nil.
func (e *Entry) sizeBeside(next *Entry) int64 {
	n := entryOverhead + int64(len(e.stored))
	if next == nil || unsafe.StringData(e.text) != unsafe.StringData(next.text) {
		n += int64(len(e.text))
	}
	return n
}

// outline returns the outline of a value.
func (r *Resource) outline(value []byte) []byte {
	if r.Outline == nil {
		return value
	}
	return r.Outline(value)
}

// newEntry returns the entry of a stored value with its outline. If the outline cannot be read, the
// attributes come from the key.
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

// attributesOfKey parses namespace and name from "[namespace/]name".
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
