package responsewriters

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/status"
)

// StreamType returns the Content-Type of a watch.
func (f *Encoder) StreamType() string {
	switch {
	case f.isProtobuf():
		return api.MediaProtobuf + ";stream=watch"
	case f.isCBOR():
		return api.MediaCBORSequence
	}
	return f.Media
}

// AppendEvent appends the frame of a watch event. first is set for the first event of the
// stream, which includes the columns of a table.
func (f *Encoder) AppendEvent(dst []byte, eventType codec.EventType, encodable Encodable, first bool) ([]byte, error) {
	switch {
	case f.isCBOR():
		return f.appendCBOREvent(dst, eventType, encodable, first)
	case f.isProtobuf():
		item, borrowed := encodable.openItem()
		defer borrowed.Release()
		if f.hasOnlyMetadata() {
			return f.res.Coder.AppendPartialProtoFrame(dst, eventType, f.MetaVersion, item)
		}
		return f.res.Coder.AppendProtoFrame(dst, eventType, item)
	case f.Representation == negotiation.Table:
		dst = appendTypeHead(dst, eventType.String())
		dst = f.res.Coder.AppendTableHead(dst, f.MetaVersion, metav1.ListMeta{ResourceVersion: fmt.Sprint(encodable.Revision)}, first)
		dst, err := f.appendRow(dst, encodable, codec.NewAgeFormatter(f.writers.Now()), true /* keep */)
		if err != nil {
			return nil, err
		}
		return append(dst, "]}}\n"...), nil
	}
	frame, from, err := f.encodeFrame(encodable, eventType == codec.Deleted, f.hasOnlyMetadata())
	if err != nil {
		return nil, err
	}
	return frame.AppendWithEventType(dst, from, eventType), nil
}

// SharedEvent returns the kept frame of an event if it can be written unchanged, without a copy.
func (f *Encoder) SharedEvent(t codec.EventType, s Encodable) ([]byte, bool) {
	isPlainJSON := !f.isProtobuf() && !f.isCBOR() && f.Representation != negotiation.Table
	if !isPlainJSON || s.Entry == nil {
		return nil, false
	}
	frame, from, err := f.encodeFrame(s, t == codec.Deleted, f.hasOnlyMetadata())
	if err != nil || from != t {
		return nil, false
	}
	return frame, true
}

// appendTypeHead appends the beginning of a JSON event, up to its object.
func appendTypeHead(dst []byte, typ string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, typ...)
	return append(dst, `","object":`...)
}

// Bookmark returns the frame of a bookmark event. initialEnd is set for the bookmark that ends the
// initial state.
func (f *Encoder) Bookmark(revision int64, initialEnd bool) ([]byte, error) {
	meta := metav1.ObjectMeta{ResourceVersion: fmt.Sprint(revision)}
	if initialEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	if f.Representation == negotiation.Table {
		b := appendTypeHead(nil, "BOOKMARK")
		b = f.res.Coder.AppendTableHead(b, f.MetaVersion, metav1.ListMeta{ResourceVersion: fmt.Sprint(revision)}, false /* columns */)
		b = append(b, "]}}\n"...)
		if f.isCBOR() {
			return formats.JSONToCBOR(b)
		}
		return b, nil
	}
	if f.hasOnlyMetadata() {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: meta}
		return f.wrapEvent("BOOKMARK", obj, metav1.SchemeGroupVersion.WithKind(codec.PartialKind))
	}
	obj := f.res.New()
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", obj)
	}
	o.SetResourceVersion(meta.ResourceVersion)
	o.SetAnnotations(meta.Annotations)
	return f.wrapEvent("BOOKMARK", obj, f.res.GVK())
}

// ErrorFrame returns the frame of an error event, which ends a stream.
func (f *Encoder) ErrorFrame(err error) ([]byte, error) {
	return f.wrapEvent("ERROR", status.FromError(err), codec.StatusGVK)
}

// wrapEvent returns the frame of an event whose object is not a stored one.
func (f *Encoder) wrapEvent(typ string, obj runtime.Object, gvk schema.GroupVersionKind) ([]byte, error) {
	b, err := f.writers.Codec.Encode(obj, gvk, f.Media, false)
	if err != nil {
		return nil, err
	}
	switch {
	case f.isProtobuf():
		return codec.WrapProtoFrame(typ, b), nil
	case f.isCBOR():
		return formats.AppendCBOREvent(nil, typ, b), nil
	}
	out := appendTypeHead(nil, typ)
	out = append(out, bytes.TrimRight(b, "\n")...)
	return append(out, "}\n"...), nil
}

// appendCBOREvent appends a watch event, which is converted from the JSON event.
func (f *Encoder) appendCBOREvent(dst []byte, t codec.EventType, s Encodable, first bool) ([]byte, error) {
	jsonEncoder := *f
	jsonEncoder.Media = api.MediaJSON
	b, err := jsonEncoder.AppendEvent(nil, t, s, first)
	if err != nil {
		return nil, err
	}
	event, err := formats.JSONToCBOR(b)
	return append(dst, event...), err
}
