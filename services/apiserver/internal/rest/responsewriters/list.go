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
func (e *Encoder) WriteList(w http.ResponseWriter, r *http.Request, list *List) error {
	if e.err != nil {
		return e.err
	}
	// 1. Convert the objects, and record the list in the audit event.
	defer e.ReleaseConverted()
	if err := e.convertList(r.Context(), list); err != nil {
		return err
	}
	defer audit.FromContext(r.Context()).StartTimer(audit.Serializing).Stop()
	w, done := e.startSpan(w, r)
	defer done()
	defer e.startMemo().Done()
	e.keepsItems = list.length() <= maxKeptItems
	zipped := e.compressesList(r, list)
	if e.Media != api.MediaJSON || e.Pretty || zipped {
		if err := e.recordList(r, list); err != nil {
			return err
		}
	}
	// 2. Write other forms than plain JSON.
	switch {
	case e.isCBOR():
		return e.writeCBORList(w, r, list)
	case e.isProtobuf():
		return e.writeProtoList(w, r, list)
	case e.Media == api.MediaYAML || e.Pretty:
		return e.writeReadableList(w, r, list)
	case zipped:
		appendItem := func(b []byte, entry *objects.Entry) ([]byte, error) { return e.appendItem(b, e.EncodableOf(entry)) }
		return e.writeCompressed(w, r, e.appendListHead(nil, list.Meta), list, appendItem, codec.ListTail, true /* comma */)
	}
	// 3. Write plain JSON, which is recorded while it is written.
	out := newChunkWriter(w, r, e.Media, e.writers.Limiter)
	defer out.releaseLimiter()
	out.audited = audit.FromContext(r.Context()).Copy()
	out.buf = e.appendListHead(out.buf, list.Meta)
	first := true
	err := out.eachItem(list, func(entry *objects.Entry) error {
		if !first {
			out.buf = append(out.buf, ',')
		}
		first = false
		return e.addItem(out, e.EncodableOf(entry))
	})
	if err != nil {
		return out.fail(err)
	}
	return e.writeListEnd(out, first)
}

// startMemo starts a memo of data that the objects have in common. The caller calls Done on the
// result.
func (e *Encoder) startMemo() *codec.Memo {
	e.memo = &codec.Memo{}
	return e.memo
}

// writeReadableList writes a list in a human-readable form. Each object is formatted separately,
// with the same result as in the whole list.
func (e *Encoder) writeReadableList(w http.ResponseWriter, r *http.Request, list *List) error {
	layout := formats.NewLayout(e.elementsField(), e.Media == api.MediaYAML)
	out := newChunkWriter(w, r, e.Media, e.writers.limiterFor(r))
	defer out.releaseLimiter()
	out.slow = true
	var err error
	head := e.appendListHead(nil, list.Meta)
	if list.length() == 0 {
		head = append(head[:len(head)-1], e.emptyElements()+"}"...)
	} else {
		head = append(head, "]}"...)
	}
	if out.buf, err = layout.AppendHead(out.buf, head, list.length() == 0); err != nil {
		return out.fail(err)
	}
	err = out.eachItem(list, func(entry *objects.Entry) error {
		item, err := e.appendItem(nil, e.EncodableOf(entry))
		if err == nil {
			out.buf, err = layout.AppendItem(out.buf, item)
		}
		return out.flushItem(err)
	})
	if err != nil {
		return out.fail(err)
	}
	out.buf = layout.AppendTail(out.buf)
	return out.finish()
}

// writeProtoList writes a list in protobuf. It computes the size of all items first, because the
// envelope contains it.
func (e *Encoder) writeProtoList(w http.ResponseWriter, r *http.Request, list *List) error {
	// 1. Compute the size.
	size := 0
	items := e.res.Coder.ProtoItems(e.hasOnlyMetadata())
	err := list.Each(func(entry *objects.Entry) error {
		n, err := e.protoSize(items, entry)
		size += n
		return err
	})
	if err != nil {
		return err
	}
	// 2. Write the list.
	kind, version := e.listKind()
	head, err := codec.AppendProtoListHead(nil, kind, version, list.Meta, size)
	if err != nil {
		return err
	}
	if e.compressesList(r, list) {
		appendItem := func(dst []byte, entry *objects.Entry) ([]byte, error) { return e.appendProto(items, dst, entry) }
		return e.writeCompressed(w, r, head, list, appendItem, string(codec.ProtoListTail()), false /* comma */)
	}
	out := newChunkWriter(w, r, e.Media, e.writers.Limiter)
	defer out.releaseLimiter()
	out.buf = append(out.buf, head...)
	err = out.eachItem(list, func(entry *objects.Entry) (err error) {
		out.buf, err = e.appendProto(items, out.buf, entry)
		return out.flushItem(err)
	})
	if err != nil {
		return out.fail(err)
	}
	out.buf = append(out.buf, codec.ProtoListTail()...)
	return out.finish()
}

// protoSize returns the size of an object, or of its metadata, as an item of a protobuf list.
func (e *Encoder) protoSize(items *codec.ProtoItems, entry *objects.Entry) (int, error) {
	if e.res.Coder.AsStored() {
		if n, ok := items.CachedSize(entry.Size(), entry.Positions(), entry.Revision); ok {
			return n, nil
		}
		item, borrowed := FromEntry(entry).openItem()
		defer borrowed.Release()
		return items.Size(item)
	}
	message, err := e.keptMessage(entry)
	return codec.ProtoMessageSize(len(message)), err
}

// appendProto appends an item of a protobuf list.
func (e *Encoder) appendProto(items *codec.ProtoItems, dst []byte, entry *objects.Entry) ([]byte, error) {
	if e.res.Coder.AsStored() {
		item, borrowed := FromEntry(entry).openItem()
		defer borrowed.Release()
		return items.Append(dst, item)
	}
	message, err := e.keptMessage(entry)
	if err != nil {
		return nil, err
	}
	return e.res.Coder.AppendProtoMessage(dst, message, e.hasOnlyMetadata()), nil
}

// keptMessage returns the kept protobuf message of an object or of its metadata whose stored form
// differs from the served one.
func (e *Encoder) keptMessage(entry *objects.Entry) ([]byte, error) {
	encoding, encode := keepMessage, e.res.Coder.Message
	if e.hasOnlyMetadata() {
		encoding = keepPartialMessage
		encode = e.res.Coder.PartialMessage
	}
	return entry.Encoding(e.encodingKey(encoding), func(entry *objects.Entry) ([]byte, error) {
		item, borrowed := FromEntry(entry).openItem()
		defer borrowed.Release()
		return encode(item)
	})
}

// CanStream reports whether a list can be written while it is read. Human-readable forms, protobuf,
// compressed responses and ordered rows need more information first.
func (e *Encoder) CanStream(r *http.Request) bool {
	isPlainJSON := e.Media == api.MediaJSON && !e.Pretty
	needsAllObjects := e.NeedsConversion() || e.hasRowOrder()
	compresses := e.writers.Compress != nil && acceptsGzip(r)
	return e.err == nil && isPlainJSON && !needsAllObjects && !compresses
}

// StreamList writes the selected objects of a snapshot while it reads them. CanStream must be true.
func (e *Encoder) StreamList(
	w http.ResponseWriter,
	r *http.Request,
	snapshot watchcache.Snapshot,
	selection objects.Selection,
) error {
	event := audit.FromContext(r.Context())
	defer event.StartTimer(audit.Serializing).Stop()
	w, done := e.startSpan(w, r)
	defer done()
	defer e.startMemo().Done()
	out := newChunkWriter(w, r, e.Media, e.writers.Limiter)
	defer out.releaseLimiter()
	out.audited = event.Copy()
	out.buf = e.appendListHead(out.buf, metav1.ListMeta{ResourceVersion: fmt.Sprint(snapshot.Revision())})
	var err error
	first := true
	selection.Pause = out.yieldLimiter
	snapshot.Select(selection, "", func(entry *objects.Entry) bool {
		if !first {
			out.buf = append(out.buf, ',')
		}
		first = false
		err = e.addItem(out, e.EncodableOf(entry))
		return err == nil
	})
	if err == nil && out.abandoned {
		err = errAbandoned
	}
	if err != nil {
		return out.fail(err)
	}
	return e.writeListEnd(out, first)
}

// emptyElements returns the JSON of the elements of an empty list. As in Kubernetes, they are null
// in an empty list of metadata, and in a table of a kind without declared columns.
func (e *Encoder) emptyElements() string {
	switch {
	case e.hasOnlyMetadata():
		return "null"
	case e.Representation == negotiation.Table:
		return e.res.Coder.EmptyRows()
	}
	return "[]"
}

// writeListEnd writes the end of a JSON list.
func (e *Encoder) writeListEnd(out *chunkWriter, isEmpty bool) error {
	if isEmpty { // replace the open bracket of the elements
		out.buf = append(out.buf[:len(out.buf)-1], e.emptyElements()+"}\n"...)
		return out.finish()
	}
	out.buf = append(out.buf, codec.ListTail...)
	return out.finish()
}

// writeCBORList writes a list and sends its elements while they are encoded.
func (e *Encoder) writeCBORList(w http.ResponseWriter, r *http.Request, list *List) error {
	out := newChunkWriter(w, r, e.Media, e.writers.limiterFor(r))
	defer out.releaseLimiter()
	out.slow = true
	var err error
	if out.buf, err = formats.AppendCBORListHead(
		out.buf,
		append(e.appendListHead(nil, list.Meta), "]}"...),
		e.elementsField(),
		list.length(),
	); err != nil {
		return out.fail(err)
	}
	err = out.eachItem(list, func(entry *objects.Entry) error {
		item, err := e.cborItem(e.EncodableOf(entry))
		out.buf = append(out.buf, item...)
		return out.flushItem(err)
	})
	if err != nil {
		return out.fail(err)
	}
	return out.finish()
}

// cborItem returns an element of a list. The encodings of objects and of v1 metadata are kept on
// the entry.
func (e *Encoder) cborItem(encodable Encodable) ([]byte, error) {
	encode := func(*objects.Entry) ([]byte, error) {
		b, err := e.appendItem(nil, encodable)
		if err != nil {
			return nil, err
		}
		return formats.CBORItem(b)
	}
	encoding := keepCBOR
	switch {
	case e.Representation == negotiation.Table, e.hasOnlyMetadata() && e.MetaVersion != "v1":
		return encode(encodable.Entry)
	case e.hasOnlyMetadata():
		encoding = keepPartialCBOR
	}
	return encodable.Entry.Encoding(e.encodingKey(encoding), encode)
}
