package responsewriters

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
)

// List is the content of a list.
type List struct {
	Meta  metav1.ListMeta
	Items []*objects.Entry
	// Iterate, if set, replaces Items. Each call visits the objects again. It is for objects that
	// are too large to hold until the client has read them. Count is their number.
	Iterate func(visit func(*objects.Entry) error) error
	Count   int
}

// Each visits the objects until visit returns an error, which it returns.
func (l *List) Each(visit func(*objects.Entry) error) error {
	if l.Iterate != nil {
		return l.Iterate(visit)
	}
	for _, e := range l.Items {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// length returns the number of objects.
func (l *List) length() int {
	if l.Iterate != nil {
		return l.Count
	}
	return len(l.Items)
}

// appendListHead appends the beginning of a JSON list, up to the name of the field with its
// objects.
func (f *Encoder) appendListHead(dst []byte, meta metav1.ListMeta) []byte {
	if f.Representation == negotiation.Table {
		return f.res.Coder.AppendTableHead(dst, f.MetaVersion, meta, true)
	}
	kind, version := f.listKind()
	if !f.hasOnlyMetadata() {
		return f.res.Coder.AppendHead(dst, kind, version, meta)
	}
	return codec.AppendListHead(dst, kind, version, meta)
}

// elementsField returns the name of the list's field with its objects.
func (f *Encoder) elementsField() string {
	if f.Representation == negotiation.Table {
		return "rows"
	}
	return "items"
}

// eachItem visits the objects of a list. The limiter is not held while an object is read from the
// store, because that may take long.
func (p *chunkWriter) eachItem(l *List, visit func(*objects.Entry) error) error {
	if l.Iterate == nil {
		if p.slow {
			p.acquireLimiter()
		}
		if p.abandoned {
			return errAbandoned
		}
		return l.Each(visit)
	}
	return l.Iterate(func(e *objects.Entry) error {
		if p.started || p.slow {
			p.acquireLimiter()
		}
		defer p.releaseLimiter()
		if p.abandoned {
			return errAbandoned
		}
		return visit(e)
	})
}

// listKind returns the kind and apiVersion of a list in this form.
func (f *Encoder) listKind() (kind, apiVersion string) {
	if f.hasOnlyMetadata() {
		return codec.PartialListKind, codec.MetaVersion(f.MetaVersion)
	}
	return f.res.ListKind(), f.res.GroupVersion().String()
}

// addItem sends an item of a list in JSON, or a row of a table. The encoding of a large item is
// kept and not copied. Otherwise each response that waits for its client would hold a copy.
func (f *Encoder) addItem(p *chunkWriter, s Encodable) (err error) {
	if f.Representation == negotiation.Table || s.storedSize() < largeItem {
		p.buf, err = f.appendItem(p.buf, s)
		return p.flushItem(err)
	}
	frame, t, err := f.encodeFrame(s, false /* deleted */, f.hasOnlyMetadata())
	if err != nil {
		return err
	}
	head := ""
	rest := frame.Object(t)
	if !f.hasOnlyMetadata() {
		head, rest = f.res.Coder.Item(frame, t)
	}
	p.buf = append(p.buf, head...)
	return p.writeShared(rest)
}

// maxKeptItems is the maximum number of objects of a list whose encodings are kept, as those of
// single objects are. The objects of a node, for example, are listed repeatedly.
const maxKeptItems = 128

// appendItem appends an item of a list in JSON, or a row of a table. Lists of more than
// maxKeptItems objects are encoded from the stored values where possible, and their encodings are
// not kept. They would displace the other kept encodings, and most would be used only once.
func (f *Encoder) appendItem(dst []byte, encodable Encodable) ([]byte, error) {
	switch {
	case f.Representation == negotiation.Table:
		return f.appendRow(dst, encodable, f.ageFormatter(), f.keepsItems)
	case f.hasOnlyMetadata():
		return f.appendObject(dst, encodable, onlyMetadata, f.keepsItems)
	}
	if frame, ok := f.cachedFrame(encodable, wholeObject); ok {
		return f.res.Coder.AppendItem(dst, frame, keptType(encodable)), nil
	}
	if !f.keepsItems || !mayKeep(encodable) {
		item, borrowed := encodable.openItem()
		var ok bool
		dst, ok = f.res.Coder.AppendStoredItem(dst, item, f.memo)
		borrowed.Release()
		if ok {
			return dst, nil
		}
	}
	frame, t, err := f.encodeFrame(encodable, false /* deleted */, wholeObject)
	if err != nil {
		return nil, err
	}
	return f.res.Coder.AppendItem(dst, frame, t), nil
}
