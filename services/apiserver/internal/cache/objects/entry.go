package objects

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"strings"
	"sync/atomic"
	"unique"
	"unsafe"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/encodings"
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

	entryID    uint64      // the highest bit is compressedFlag
	stored     string      // see value.go; a slice would take one word more
	corruption *corruption // nil for a readable value
	encodings  encodings.List
	positions  atomic.Uint64
	encoding   *ValueEncoding // nil: not encoded with a dictionary, and no encodings are kept
}

// corruption describes a value that cannot be used.
type corruption struct {
	err *storage.CorruptObjectError
	// lastReadable is the last readable version before this one, if it is known.
	lastReadable *Entry
	// neverReadable means that the object has had no readable version since its creation.
	neverReadable bool
}

// entryOverhead is the memory of an entry beside its key and value.
const entryOverhead = int64(unsafe.Sizeof(Entry{}))

// Uncached returns the entry of an object that is in no cache. It is reported to
// watchers like other entries, and nothing of it is kept.
func Uncached(key string, stored []byte) *Entry {
	return &Entry{compact: searchKey(key), stored: asText(stored)}
}

// ID identifies this version of the object among all versions that this process has seen. It stays
// unique when a replaced store assigns the same revisions again. It is 0 for an entry that is not
// part of the cache.
func (e *Entry) ID() uint64 { return e.entryID &^ compressedFlag }

// Sum returns a hash of the stored value. It distinguishes the values of one key, even if a
// restored store assigns a revision again with another value.
func (e *Entry) Sum(seed maphash.Seed) uint64 {
	if e.Dictionary() != nil { // the packed form of a value can change
		l := e.Borrow()
		defer l.Release()
		return maphash.Bytes(seed, l.Value)
	}
	return maphash.String(seed, e.stored)
}

// Positions returns a word in which readers of the stored value cache positions in it. It is
// initially 0.
func (e *Entry) Positions() *atomic.Uint64 { return &e.positions }

// Corrupt returns why the value cannot be read: *storage.CorruptObjectError, or nil.
func (e *Entry) Corrupt() error {
	if e.corruption == nil {
		return nil
	}
	return e.corruption.err
}

// LastReadable returns the entry itself or, if it is corrupt, the last readable version before
// it. It returns nil if that version is not known.
func (e *Entry) LastReadable() *Entry {
	if e == nil || e.corruption == nil {
		return e
	}
	return e.corruption.lastReadable
}

// IsCorrupt reports whether the value cannot be read.
func (e *Entry) IsCorrupt() bool { return e.corruption != nil }

// Undecodable reports whether the value was read from the store, but is no object.
func (e *Entry) Undecodable() bool { return e.corruption != nil && e.corruption.err.Undecodable }

// RecordPrevious records the previous version, which may be nil. The entry must not be published
// yet.
func (e *Entry) RecordPrevious(previous *Entry) {
	if e.corruption == nil {
		return
	}
	e.RecordReadable(previous.LastReadable(), !e.corruption.err.Transient && (previous == nil || previous.NeverReadable()))
}

// RecordReadable records the last readable version of a corrupt entry, if it is known, and
// whether there never was one.
func (e *Entry) RecordReadable(last *Entry, never bool) {
	e.corruption.lastReadable = last
	e.corruption.neverReadable = never
}

// AssignID assigns the ID. The entry must not be published yet.
func (e *Entry) AssignID(id uint64) { e.entryID |= id }

// NeverReadable reports whether the object never had a readable version.
func (e *Entry) NeverReadable() bool { return e.corruption != nil && e.corruption.neverReadable }

// KeyValue returns the stored form from which the entry was made.
func (e *Entry) KeyValue() storage.KeyValue {
	kv := storage.KeyValue{Key: e.Key(), Value: e.Stored(), ModRevision: e.Revision, CreateRevision: e.CreateRevision}
	switch {
	case e.corruption != nil && !e.corruption.err.Undecodable:
		kv.Seal = &storage.Seal{Err: e.corruption.err}
	case e.encoding != nil && e.encoding.sealed:
		kv.Seal = &storage.Seal{}
	}
	return kv
}

// UnsharedSize returns the memory of the entry in bytes, without encodings and without the parts
// that it shares with the next version, which may be nil.
func (e *Entry) UnsharedSize(next *Entry) int64 {
	n := entryOverhead + int64(len(e.stored))
	if next == nil || unsafe.StringData(e.text) != unsafe.StringData(next.text) {
		n += int64(len(e.text))
	}
	return n
}

// NewEntry returns the entry of a stored value with its summary. read reads the attributes from
// the summary. If it fails, the attributes come from the key, which starts with prefix.
func NewEntry(
	keyValue storage.KeyValue,
	prefix string,
	summary []byte,
	read func(key string, summary []byte) (attributes.Attributes, error),
	encoding *ValueEncoding,
) *Entry {
	var attrs attributes.Attributes
	var corruptErr *storage.CorruptObjectError
	if keyValue.Seal != nil {
		corruptErr = keyValue.Seal.Err
	}
	if corruptErr == nil {
		var err error
		if attrs, err = read(keyValue.Key, summary); err != nil {
			corruptErr = &storage.CorruptObjectError{Key: keyValue.Key, Revision: keyValue.ModRevision, Undecodable: true, Err: err}
		}
	}
	if corruptErr != nil {
		attrs = attributesFromKey(strings.TrimPrefix(keyValue.Key, prefix))
	}
	e := &Entry{
		compact:        newCompact(keyValue.Key, attrs),
		Revision:       keyValue.ModRevision,
		CreateRevision: keyValue.CreateRevision,
		stored:         asText(keyValue.Value),
		encoding:       encoding,
	}
	if corruptErr != nil {
		e.corruption = &corruption{err: corruptErr}
	}
	return e
}

// attributesFromKey parses namespace and name from "[namespace/]name".
func attributesFromKey(path string) attributes.Attributes {
	if ns, name, ok := strings.Cut(path, "/"); ok {
		return attributes.Attributes{Namespace: ns, Name: name}
	}
	return attributes.Attributes{Name: path}
}

// CopyAt returns a copy of the entry, without encodings, at another revision.
func (e *Entry) CopyAt(revision int64) *Entry {
	out := &Entry{
		compact:        e.compact,
		Revision:       revision,
		CreateRevision: e.CreateRevision,
		entryID:        e.entryID & compressedFlag,
		stored:         e.stored,
		encoding:       e.encoding,
	}
	if e.corruption != nil {
		d := *e.corruption
		out.corruption = &d
	}
	return out
}

// UncachedCopyAt returns a copy like CopyAt, but one that keeps no encodings.
func (e *Entry) UncachedCopyAt(revision int64) *Entry {
	out := e.CopyAt(revision)
	out.encoding = out.encoding.withoutRing()
	return out
}

// Verbatim returns an equal entry, with the same ID, whose value is as it is stored.
func (e *Entry) Verbatim(encoding *ValueEncoding) *Entry {
	out := e.CopyAt(e.Revision)
	out.entryID = e.entryID
	out.stored = asText(e.Stored())
	out.encoding = encoding
	out.positions.Store(e.positions.Load())
	return out
}

const (
	// compressedFlag marks entries whose value is compressed.
	compressedFlag = 1 << 63 // a bit of an entry's id
	// minCompressedSize is the minimum size of a value that is compressed, in bytes.
	minCompressedSize = 4 << 10
	// trailerSize is the size of the summary's length, which follows the compressed value and the
	// summary.
	trailerSize = 4
)

// Summary returns the summary of the value if it is stored, and the value otherwise. It must not be
// changed.
func (e *Entry) Summary() []byte {
	if e.entryID&compressedFlag != 0 {
		packedValue := e.bytes()
		if at, end := summaryStart(packedValue), len(packedValue)-trailerSize; at < end {
			return packedValue[at:end:end]
		}
	}
	return e.Stored()
}

// compact holds the key and the attributes of an object in one text. The list of label and field
// names is shared with all objects that have the same names. The text has these parts:
//
//	key             ends at keyEnd, usually with "namespace/name" or "name"
//	label values    end at labelsEnd, in the layout of attributes.Set
//	field values    in the same layout
//	namespace, name and their lengths: only if the key does not end with namespace and name
//
// In the last case, name is irregularName. Otherwise namespace and name are the lengths of those
// parts of the key.
type compact struct {
	text              string
	keyEnd, labelsEnd uint32
	namespace, name   uint16 // lengths in bytes
	names             unique.Handle[attributeKeys]
}

// attributeKeys holds the label keys and the field names of an object.
type attributeKeys struct{ labels, fields *attributes.Keys }

const (
	irregularName = math.MaxUint16
	// irregularEnd is the size of the two lengths in bytes.
	irregularEnd = 8
)

// searchKey returns a compact with a key only.
func searchKey(key string) compact {
	return compact{text: key, keyEnd: uint32(len(key)), labelsEnd: uint32(len(key))}
}

// newCompact returns the compact form of a key and attributes.
func newCompact(key string, parsed attributes.Attributes) compact {
	packed := compact{
		keyEnd:    uint32(len(key)),
		labelsEnd: uint32(len(key) + len(parsed.Labels.Text())),
		names:     unique.Make(attributeKeys{parsed.Labels.Keys(), parsed.Fields.Keys()}),
	}
	irregular := 0
	packed.namespace = uint16(len(parsed.Namespace))
	packed.name = uint16(len(parsed.Name))
	if !endsWithName(key, &parsed) {
		packed.name = irregularName
		irregular = len(parsed.Namespace) + len(parsed.Name) + irregularEnd
	}
	var texts strings.Builder
	texts.Grow(int(packed.labelsEnd) + len(parsed.Fields.Text()) + irregular)
	texts.WriteString(key)
	texts.WriteString(parsed.Labels.Text())
	texts.WriteString(parsed.Fields.Text())
	if irregular > 0 {
		texts.WriteString(parsed.Namespace)
		texts.WriteString(parsed.Name)
		var lengths [irregularEnd]byte
		binary.LittleEndian.PutUint32(lengths[:], uint32(len(parsed.Namespace)))
		binary.LittleEndian.PutUint32(lengths[4:], uint32(len(parsed.Name)))
		texts.Write(lengths[:])
	}
	packed.text = texts.String()
	return packed
}

// endsWithName reports whether a key ends with the namespace and name of an object.
func endsWithName(key string, attrs *attributes.Attributes) bool {
	beforeName, ok := strings.CutSuffix(key, attrs.Name)
	if !ok || len(attrs.Name) >= irregularName {
		return false
	}
	return attrs.Namespace == "" ||
		len(attrs.Namespace) < irregularName && strings.HasSuffix(beforeName, "/") && strings.HasSuffix(beforeName[:len(beforeName)-1], attrs.Namespace)
}

// Key returns the key in the store.
func (c *compact) Key() string { return c.text[:c.keyEnd] }

// Name returns metadata.name.
func (c *compact) Name() string {
	if c.name == irregularName {
		_, name, _ := c.splitIrregular()
		return name
	}
	return c.text[c.keyEnd-uint32(c.name) : c.keyEnd]
}

// Namespace returns metadata.namespace, or "" if there is none.
func (c *compact) Namespace() string {
	if c.name == irregularName {
		namespace, _, _ := c.splitIrregular()
		return namespace
	}
	if c.namespace == 0 {
		return ""
	}
	end := c.keyEnd - uint32(c.name) - 1
	return c.text[end-uint32(c.namespace) : end]
}

// splitIrregular returns the namespace and the name at the end of the text, and where they start.
func (c *compact) splitIrregular() (namespace, name string, start int) {
	end := len(c.text) - irregularEnd
	lengths := c.text[end:]
	length := func(b string) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24 }
	middle := end - length(lengths[4:])
	start = middle - length(lengths)
	return c.text[start:middle], c.text[middle:end], start
}

// Labels returns metadata.labels.
func (c *compact) Labels() attributes.Set {
	if c.labelsEnd == c.keyEnd {
		return attributes.Set{}
	}
	return attributes.SetFromEncoded(c.names.Value().labels, c.text[c.keyEnd:c.labelsEnd])
}

// Fields returns the fields that selectors may use, without metadata.name and metadata.namespace.
func (c *compact) Fields() attributes.Set {
	end := len(c.text)
	if c.name == irregularName {
		_, _, end = c.splitIrregular()
	}
	if int(c.labelsEnd) == end {
		return attributes.Set{}
	}
	return attributes.SetFromEncoded(c.names.Value().fields, c.text[c.labelsEnd:end])
}

// ShareText reuses the text of the previous version if it is equal. The entry must not be published
// yet.
func (e *Entry) ShareText(old *Entry) {
	if e.text == old.text && e.keyEnd == old.keyEnd && e.labelsEnd == old.labelsEnd {
		e.text = old.text
	}
}

// HasValue reports whether the entry has its value. Only entries that exist in history alone can
// lose their value, and only those keep no encodings.
func (e *Entry) HasValue() bool { return e.stored != "" || e.ring() != nil }

// WithoutValue returns a copy of the entry for history, without its value.
func (e *Entry) WithoutValue() *Entry {
	return &Entry{compact: e.compact, Revision: e.Revision, CreateRevision: e.CreateRevision}
}

// WithValue returns a copy of the entry for history, with the given value.
func (e *Entry) WithValue(value []byte) *Entry {
	out := e.WithoutValue()
	out.stored = asText(value)
	return out
}

// ValueMemory returns the memory of the value in bytes.
func (e *Entry) ValueMemory() int { return len(e.stored) }
