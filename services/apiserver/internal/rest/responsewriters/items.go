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
func (list *List) Each(visit func(*objects.Entry) error) error {
	if list.Iterate != nil {
		return list.Iterate(visit)
	}
	for _, e := range list.Items {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// length returns the number of objects.
func (list *List) length() int {
	if list.Iterate != nil {
		return list.Count
	}
	return len(list.Items)
}

// appendListHead appends the beginning of a JSON list, up to the name of the field with its
// objects.
func (e *Encoder) appendListHead(dst []byte, meta metav1.ListMeta) []byte {
	if e.Representation == negotiation.Table {
		return e.res.Coder.AppendTableHead(dst, e.MetaVersion, meta, true)
	}
	kind, version := e.listKind()
	if !e.hasOnlyMetadata() {
		return e.res.Coder.AppendHead(dst, kind, version, meta)
	}
	return codec.AppendListHead(dst, kind, version, meta)
}

// elementsField returns the name of the list's field with its objects.
func (e *Encoder) elementsField() string {
	if e.Representation == negotiation.Table {
		return "rows"
	}
	return "items"
}

// eachItem visits the objects of a list. The limiter is not held while an object is read from the
// store, because that may take long.
func (out *chunkWriter) eachItem(list *List, visit func(*objects.Entry) error) error {
	if list.Iterate == nil {
		if out.slow {
			out.acquireLimiter()
		}
		if out.abandoned {
			return errAbandoned
		}
		return list.Each(visit)
	}
	return list.Iterate(func(entry *objects.Entry) error {
		if out.started || out.slow {
			out.acquireLimiter()
		}
		defer out.releaseLimiter()
		if out.abandoned {
			return errAbandoned
		}
		return visit(entry)
	})
}

// listKind returns the kind and apiVersion of a list in this form.
func (e *Encoder) listKind() (kind, apiVersion string) {
	if e.hasOnlyMetadata() {
		return codec.PartialListKind, codec.MetaVersion(e.MetaVersion)
	}
	return e.res.ListKind(), e.res.GroupVersion().String()
}

// addItem sends an item of a list in JSON, or a row of a table. The encoding of a large item is
// kept and not copied. Otherwise each response that waits for its client would hold a copy.
func (e *Encoder) addItem(out *chunkWriter, encodable Encodable) (err error) {
	if e.Representation == negotiation.Table || encodable.storedSize() < largeItem {
		out.buf, err = e.appendItem(out.buf, encodable)
		return out.flushItem(err)
	}
	frame, t, err := e.encodeFrame(encodable, false /* deleted */, e.hasOnlyMetadata())
	if err != nil {
		return err
	}
	head := ""
	rest := frame.Object(t)
	if !e.hasOnlyMetadata() {
		head, rest = e.res.Coder.Item(frame, t)
	}
	out.buf = append(out.buf, head...)
	return out.writeShared(rest)
}

// maxKeptItems is the maximum number of objects of a list whose encodings are kept, as those of
// single objects are. The objects of a node, for example, are listed repeatedly.
const maxKeptItems = 128

// appendItem appends an item of a list in JSON, or a row of a table. Lists of more than
// maxKeptItems objects are encoded from the stored values where possible, and their encodings are
// not kept. They would displace the other kept encodings, and most would be used only once.
func (e *Encoder) appendItem(dst []byte, encodable Encodable) ([]byte, error) {
	switch {
	case e.Representation == negotiation.Table:
		return e.appendRow(dst, encodable, e.ageFormatter(), e.keepsItems)
	case e.hasOnlyMetadata():
		return e.appendObject(dst, encodable, onlyMetadata, e.keepsItems)
	}
	if frame, ok := e.cachedFrame(encodable, wholeObject); ok {
		return e.res.Coder.AppendItem(dst, frame, keptType(encodable)), nil
	}
	if !e.keepsItems || !mayKeep(encodable) {
		item, borrowed := encodable.openItem()
		var ok bool
		dst, ok = e.res.Coder.AppendStoredItem(dst, item, e.memo)
		borrowed.Release()
		if ok {
			return dst, nil
		}
	}
	frame, t, err := e.encodeFrame(encodable, false /* deleted */, wholeObject)
	if err != nil {
		return nil, err
	}
	return e.res.Coder.AppendItem(dst, frame, t), nil
}
