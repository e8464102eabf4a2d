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
func (e *Encoder) StreamType() string {
	switch {
	case e.isProtobuf():
		return api.MediaProtobuf + ";stream=watch"
	case e.isCBOR():
		return api.MediaCBORSequence
	}
	return e.Media
}

// AppendEvent appends the frame of a watch event. first is set for the first event of the
// stream, which includes the columns of a table.
func (e *Encoder) AppendEvent(dst []byte, eventType codec.EventType, encodable Encodable, first bool) ([]byte, error) {
	switch {
	case e.isCBOR():
		return e.appendCBOREvent(dst, eventType, encodable, first)
	case e.isProtobuf():
		item, borrowed := encodable.openItem()
		defer borrowed.Release()
		if e.hasOnlyMetadata() {
			return e.res.Coder.AppendPartialProtoFrame(dst, eventType, e.MetaVersion, item)
		}
		return e.res.Coder.AppendProtoFrame(dst, eventType, item)
	case e.Representation == negotiation.Table:
		dst = appendTypeHead(dst, eventType.String())
		dst = e.res.Coder.AppendTableHead(dst, e.MetaVersion, metav1.ListMeta{ResourceVersion: fmt.Sprint(encodable.Revision)}, first)
		dst, err := e.appendRow(dst, encodable, codec.NewAgeFormatter(e.writers.Now()), true /* keep */)
		if err != nil {
			return nil, err
		}
		return append(dst, "]}}\n"...), nil
	}
	frame, from, err := e.encodeFrame(encodable, eventType == codec.Deleted, e.hasOnlyMetadata())
	if err != nil {
		return nil, err
	}
	return frame.AppendWithEventType(dst, from, eventType), nil
}

// SharedEvent returns the kept frame of an event if it can be written unchanged, without a copy.
func (e *Encoder) SharedEvent(eventType codec.EventType, encodable Encodable) ([]byte, bool) {
	isPlainJSON := !e.isProtobuf() && !e.isCBOR() && e.Representation != negotiation.Table
	if !isPlainJSON || encodable.Entry == nil {
		return nil, false
	}
	frame, from, err := e.encodeFrame(encodable, eventType == codec.Deleted, e.hasOnlyMetadata())
	if err != nil || from != eventType {
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
func (e *Encoder) Bookmark(revision int64, initialEnd bool) ([]byte, error) {
	meta := metav1.ObjectMeta{ResourceVersion: fmt.Sprint(revision)}
	if initialEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	if e.Representation == negotiation.Table {
		frame := appendTypeHead(nil, "BOOKMARK")
		frame = e.res.Coder.AppendTableHead(frame, e.MetaVersion, metav1.ListMeta{ResourceVersion: fmt.Sprint(revision)}, false /* columns */)
		frame = append(frame, "]}}\n"...)
		if e.isCBOR() {
			return formats.JSONToCBOR(frame)
		}
		return frame, nil
	}
	if e.hasOnlyMetadata() {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: meta}
		return e.wrapEvent("BOOKMARK", obj, metav1.SchemeGroupVersion.WithKind(codec.PartialKind))
	}
	obj := e.res.New()
	metaObject, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", obj)
	}
	metaObject.SetResourceVersion(meta.ResourceVersion)
	metaObject.SetAnnotations(meta.Annotations)
	return e.wrapEvent("BOOKMARK", obj, e.res.GVK())
}

// ErrorFrame returns the frame of an error event, which ends a stream.
func (e *Encoder) ErrorFrame(err error) ([]byte, error) {
	return e.wrapEvent("ERROR", status.FromError(err), codec.StatusGVK)
}

// wrapEvent returns the frame of an event whose object is not a stored one.
func (e *Encoder) wrapEvent(typ string, obj runtime.Object, gvk schema.GroupVersionKind) ([]byte, error) {
	encoded, err := e.writers.Codec.Encode(obj, gvk, e.Media, false)
	if err != nil {
		return nil, err
	}
	switch {
	case e.isProtobuf():
		return codec.WrapProtoFrame(typ, encoded), nil
	case e.isCBOR():
		return formats.AppendCBOREvent(nil, typ, encoded), nil
	}
	out := appendTypeHead(nil, typ)
	out = append(out, bytes.TrimRight(encoded, "\n")...)
	return append(out, "}\n"...), nil
}

// appendCBOREvent appends a watch event, which is converted from the JSON event.
func (e *Encoder) appendCBOREvent(dst []byte, eventType codec.EventType, encodable Encodable, first bool) ([]byte, error) {
	jsonEncoder := *e
	jsonEncoder.Media = api.MediaJSON
	b, err := jsonEncoder.AppendEvent(nil, eventType, encodable, first)
	if err != nil {
		return nil, err
	}
	event, err := formats.JSONToCBOR(b)
	return append(dst, event...), err
}
