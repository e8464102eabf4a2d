package responsewriters

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/security/audit"
)

// WriteList writes a list. Its memory use does not grow with the list: in every form, chunks are
// sent while they are encoded.
func (f *Encoder) WriteList(w http.ResponseWriter, r *http.Request, list *List) error {
	if f.err != nil {
		return f.err
	}
	// 1. Convert the objects, and record the list in the audit event.
	defer f.ReleaseConverted()
	if err := f.convertList(r.Context(), list); err != nil {
		return err
	}
	defer audit.FromContext(r.Context()).StartTimer(audit.Serializing).Stop()
	w, done := f.startSpan(w, r)
	defer done()
	defer f.startMemo().Done()
	f.keepsItems = list.length() <= maxKeptItems
	zipped := f.compressesList(r, list)
	if f.Media != api.MediaJSON || f.Pretty || zipped {
		if err := f.recordList(r, list); err != nil {
			return err
		}
	}
	// 2. Write other forms than plain JSON.
	switch {
	case f.isCBOR():
		return f.writeCBORList(w, r, list)
	case f.isProtobuf():
		return f.writeProtoList(w, r, list)
	case f.Media == api.MediaYAML || f.Pretty:
		return f.writeReadableList(w, r, list)
	case zipped:
		appendItem := func(b []byte, e *objects.Entry) ([]byte, error) { return f.appendItem(b, f.EncodableOf(e)) }
		return f.writeCompressed(w, r, f.appendListHead(nil, list.Meta), list, appendItem, codec.ListTail, true /* comma */)
	}
	// 3. Write plain JSON, which is recorded while it is written.
	p := newChunkWriter(w, r, f.Media, f.writers.Limiter)
	defer p.releaseLimiter()
	p.audited = audit.FromContext(r.Context()).Copy()
	p.buf = f.appendListHead(p.buf, list.Meta)
	first := true
	err := p.eachItem(list, func(e *objects.Entry) error {
		if !first {
			p.buf = append(p.buf, ',')
		}
		first = false
		return f.addItem(p, f.EncodableOf(e))
	})
	if err != nil {
		return p.fail(err)
	}
	return f.writeListEnd(p, first)
}

// startMemo starts a memo of data that the objects have in common. The caller calls Done on the
// result.
func (f *Encoder) startMemo() *codec.Memo {
	f.memo = &codec.Memo{}
	return f.memo
}

// writeReadableList writes a list in a human-readable form. Each object is formatted separately,
// with the same result as in the whole list.
func (f *Encoder) writeReadableList(w http.ResponseWriter, r *http.Request, list *List) error {
	layout := formats.NewLayout(f.elementsField(), f.Media == api.MediaYAML)
	p := newChunkWriter(w, r, f.Media, f.writers.limiterFor(r))
	defer p.releaseLimiter()
	p.slow = true
	var err error
	head := f.appendListHead(nil, list.Meta)
	if list.length() == 0 {
		head = append(head[:len(head)-1], f.emptyElements()+"}"...)
	} else {
		head = append(head, "]}"...)
	}
	if p.buf, err = layout.AppendHead(p.buf, head, list.length() == 0); err != nil {
		return p.fail(err)
	}
	err = p.eachItem(list, func(e *objects.Entry) error {
		item, err := f.appendItem(nil, f.EncodableOf(e))
		if err == nil {
			p.buf, err = layout.AppendItem(p.buf, item)
		}
		return p.flushItem(err)
	})
	if err != nil {
		return p.fail(err)
	}
	p.buf = layout.AppendTail(p.buf)
	return p.finish()
}

// writeProtoList writes a list in protobuf. It computes the size of all items first, because the
// envelope contains it.
func (f *Encoder) writeProtoList(w http.ResponseWriter, r *http.Request, list *List) error {
	// 1. Compute the size.
	size := 0
	items := f.res.Coder.ProtoItems(f.hasOnlyMetadata())
	err := list.Each(func(e *objects.Entry) error {
		n, err := f.protoSize(items, e)
		size += n
		return err
	})
	if err != nil {
		return err
	}
	// 2. Write the list.
	kind, version := f.listKind()
	head, err := codec.AppendProtoListHead(nil, kind, version, list.Meta, size)
	if err != nil {
		return err
	}
	if f.compressesList(r, list) {
		appendItem := func(dst []byte, e *objects.Entry) ([]byte, error) { return f.appendProto(items, dst, e) }
		return f.writeCompressed(w, r, head, list, appendItem, string(codec.ProtoListTail()), false /* comma */)
	}
	p := newChunkWriter(w, r, f.Media, f.writers.Limiter)
	defer p.releaseLimiter()
	p.buf = append(p.buf, head...)
	err = p.eachItem(list, func(e *objects.Entry) (err error) {
		p.buf, err = f.appendProto(items, p.buf, e)
		return p.flushItem(err)
	})
	if err != nil {
		return p.fail(err)
	}
	p.buf = append(p.buf, codec.ProtoListTail()...)
	return p.finish()
}

// protoSize returns the size of an object, or of its metadata, as an item of a protobuf list.
func (f *Encoder) protoSize(items *codec.ProtoItems, e *objects.Entry) (int, error) {
	if f.res.Coder.AsStored() {
		if n, ok := items.CachedSize(e.Size(), e.Positions(), e.Revision); ok {
			return n, nil
		}
		item, borrowed := FromEntry(e).openItem()
		defer borrowed.Release()
		return items.Size(item)
	}
	message, err := f.keptMessage(e)
	return codec.ProtoMessageSize(len(message)), err
}

// appendProto appends an item of a protobuf list.
func (f *Encoder) appendProto(items *codec.ProtoItems, dst []byte, e *objects.Entry) ([]byte, error) {
	if f.res.Coder.AsStored() {
		item, borrowed := FromEntry(e).openItem()
		defer borrowed.Release()
		return items.Append(dst, item)
	}
	message, err := f.keptMessage(e)
	if err != nil {
		return nil, err
	}
	return f.res.Coder.AppendProtoMessage(dst, message, f.hasOnlyMetadata()), nil
}

// keptMessage returns the kept protobuf message of an object or of its metadata whose stored form
// differs from the served one.
func (f *Encoder) keptMessage(e *objects.Entry) ([]byte, error) {
	encoding, encode := keepMessage, f.res.Coder.Message
	if f.hasOnlyMetadata() {
		encoding = keepPartialMessage
		encode = f.res.Coder.PartialMessage
	}
	return e.Encoding(f.encodingKey(encoding), func(e *objects.Entry) ([]byte, error) {
		item, borrowed := FromEntry(e).openItem()
		defer borrowed.Release()
		return encode(item)
	})
}

// CanStream reports whether a list can be written while it is read. Human-readable forms, protobuf,
// compressed responses and ordered rows need more information first.
func (f *Encoder) CanStream(r *http.Request) bool {
	isPlainJSON := f.Media == api.MediaJSON && !f.Pretty
	needsAllObjects := f.NeedsConversion() || f.hasRowOrder()
	compresses := f.writers.Compress != nil && acceptsGzip(r)
	return f.err == nil && isPlainJSON && !needsAllObjects && !compresses
}

// StreamList writes the selected objects of a snapshot while it reads them. CanStream must be true.
func (f *Encoder) StreamList(
	w http.ResponseWriter,
	r *http.Request,
	snapshot watchcache.Snapshot,
	selection objects.Selection,
) error {
	event := audit.FromContext(r.Context())
	defer event.StartTimer(audit.Serializing).Stop()
	w, done := f.startSpan(w, r)
	defer done()
	defer f.startMemo().Done()
	p := newChunkWriter(w, r, f.Media, f.writers.Limiter)
	defer p.releaseLimiter()
	p.audited = event.Copy()
	p.buf = f.appendListHead(p.buf, metav1.ListMeta{ResourceVersion: fmt.Sprint(snapshot.Revision())})
	var err error
	first := true
	selection.Pause = p.yieldLimiter
	snapshot.Select(selection, "", func(e *objects.Entry) bool {
		if !first {
			p.buf = append(p.buf, ',')
		}
		first = false
		err = f.addItem(p, f.EncodableOf(e))
		return err == nil
	})
	if err == nil && p.abandoned {
		err = errAbandoned
	}
	if err != nil {
		return p.fail(err)
	}
	return f.writeListEnd(p, first)
}

// emptyElements returns the JSON of the elements of an empty list. As in Kubernetes, they are null
// in an empty list of metadata, and in a table of a kind without declared columns.
func (f *Encoder) emptyElements() string {
	switch {
	case f.hasOnlyMetadata():
		return "null"
	case f.Representation == negotiation.Table:
		return f.res.Coder.EmptyRows()
	}
	return "[]"
}

// writeListEnd writes the end of a JSON list.
func (f *Encoder) writeListEnd(p *chunkWriter, isEmpty bool) error {
	if isEmpty { // replace the open bracket of the elements
		p.buf = append(p.buf[:len(p.buf)-1], f.emptyElements()+"}\n"...)
		return p.finish()
	}
	p.buf = append(p.buf, codec.ListTail...)
	return p.finish()
}

// writeCBORList writes a list and sends its elements while they are encoded.
func (f *Encoder) writeCBORList(w http.ResponseWriter, r *http.Request, list *List) error {
	p := newChunkWriter(w, r, f.Media, f.writers.limiterFor(r))
	defer p.releaseLimiter()
	p.slow = true
	var err error
	if p.buf, err = formats.AppendCBORListHead(
		p.buf,
		append(f.appendListHead(nil, list.Meta), "]}"...),
		f.elementsField(),
		list.length(),
	); err != nil {
		return p.fail(err)
	}
	err = p.eachItem(list, func(e *objects.Entry) error {
		item, err := f.cborItem(f.EncodableOf(e))
		p.buf = append(p.buf, item...)
		return p.flushItem(err)
	})
	if err != nil {
		return p.fail(err)
	}
	return p.finish()
}

// cborItem returns an element of a list. The encodings of objects and of v1 metadata are kept on
// the entry.
func (f *Encoder) cborItem(encodable Encodable) ([]byte, error) {
	encode := func(*objects.Entry) ([]byte, error) {
		b, err := f.appendItem(nil, encodable)
		if err != nil {
			return nil, err
		}
		return formats.CBORItem(b)
	}
	encoding := keepCBOR
	switch {
	case f.Representation == negotiation.Table, f.hasOnlyMetadata() && f.MetaVersion != "v1":
		return encode(encodable.Entry)
	case f.hasOnlyMetadata():
		encoding = keepPartialCBOR
	}
	return encodable.Entry.Encoding(f.encodingKey(encoding), encode)
}
