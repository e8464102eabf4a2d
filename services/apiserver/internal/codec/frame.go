package codec

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
)

// EventType is the type of a watch event that carries an object.
type EventType uint8

// The types (specification: "Events").
const (
	Added EventType = iota
	Modified
	Deleted
)

var eventNames = [...]string{"ADDED", "MODIFIED", "DELETED"}

func (t EventType) String() string { return eventNames[t] }

// An Item is one stored object to encode.
type Item struct {
	Stored   []byte
	Revision int64
	// Served is true if Stored is already the document of the served version.
	Served bool
	// Positions, if not nil, caches the positions of parts of Stored; see wire.Splice.Positions.
	Positions *atomic.Uint64
}

// FormatRevision returns the resourceVersion of a revision, which is empty for 0.
func FormatRevision(r int64) string {
	if r == 0 {
		return ""
	}
	return string(transcode.AppendVersion(nil, r))
}

// ParseVersion returns the Revision of an Item with a resourceVersion. It returns an error if the
// resourceVersion is not an unsigned integer.
func ParseVersion(resourceVersion string) (int64, error) {
	if resourceVersion == "" {
		return 0, nil
	}
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	switch {
	case err != nil:
		return 0, err
	case revision == 0:
		return transcode.VersionZero, nil
	}
	return int64(min(revision, math.MaxInt64)), nil
}

// frameHead returns `{"type":"…","object":{"kind":"…","apiVersion":"…",`.
func frameHead(t EventType, kind, apiVersion string) []byte {
	return []byte(fmt.Sprintf(`{"type":%q,"object":{"kind":%q,"apiVersion":%q,`, eventNames[t], kind, apiVersion))
}

// objectAt returns the offset of the object in a frame.
func objectAt(t EventType) int { return len(`{"type":"","object":`) + len(eventNames[t]) }

// A Frame is the JSON of a watch event, including its newline. The JSON of the object and that of a
// list item are slices of it, so that one encoding serves all three.
type Frame []byte

// JSONFrame encodes a stored object as the frame of an event.
func (k *KindCodec) JSONFrame(eventType EventType, item Item) (Frame, error) {
	if k.Kind.Document != nil {
		return k.documentFrame(eventType, item)
	}
	if k.program != nil {
		if f, ok := k.transcodedFrame(k.program(), k.heads[eventType], item); ok {
			return f, nil
		}
	}
	if lazy := k.Kind.Stored.LazyField; lazy != nil && !wire.IsEnvelope(item.Stored) {
		body, ok := lazy.ToServed(item.Stored, func(stored []byte) ([]byte, error) {
			obj, err := k.DecodeItem(context.Background(), Item{Stored: stored, Revision: item.Revision})
			if err != nil {
				return nil, err
			}
			return json.Marshal(obj)
		})
		if ok {
			return joinFrame(k.heads[eventType], body), nil
		}
	}
	obj, err := k.DecodeItem(context.Background(), item)
	if err != nil {
		return nil, err
	}
	return k.FrameOf(eventType, obj)
}

// FrameOf encodes a decoded served object as the frame of an event.
func (k *KindCodec) FrameOf(eventType EventType, obj registry.Object) (Frame, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return k.frameOfDocument(eventType, u)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.Kind.Kind, err)
	}
	return joinFrame(k.heads[eventType], body), nil
}

// joinFrame joins a head and an object's JSON. The head replaces the opening brace.
func joinFrame(head, body []byte) Frame {
	f := make([]byte, 0, len(head)+len(body)-len("{")+len("}\n"))
	f = append(f, head...)
	f = append(f, body[1:]...)
	return append(f, '}', '\n')
}

// Object returns the object's JSON in a frame of the given type.
func (f Frame) Object(t EventType) []byte { return f[objectAt(t) : len(f)-2] }

// AppendWithEventType appends the frame with another event type.
func (f Frame) AppendWithEventType(dst []byte, from, to EventType) []byte {
	if from == to {
		return append(dst, f...)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, eventNames[to]...)
	dst = append(dst, `","object":`...)
	return append(dst, f[objectAt(from):]...)
}

// AppendItem appends the object as a list item. Items omit kind and apiVersion unless the kind has
// no Go type.
func (k *KindCodec) AppendItem(dst []byte, f Frame, t EventType) []byte {
	head, rest := k.Item(f, t)
	return append(append(dst, head...), rest...)
}

// Item returns the bytes that AppendItem appends. rest is a slice of the frame.
func (k *KindCodec) Item(f Frame, eventType EventType) (head string, rest []byte) {
	if k.Kind.Document != nil {
		return "", f.Object(eventType)
	}
	return "{", f[len(k.heads[eventType]) : len(f)-2]
}

// EncodeObject encodes a served object as JSON with kind and apiVersion.
func (k *KindCodec) EncodeObject(obj registry.Object) ([]byte, error) {
	f, err := k.FrameOf(Added, obj)
	if err != nil {
		return nil, err
	}
	return f.Object(Added), nil
}

// AppendListHead appends the start of a list's JSON, up to its items.
func AppendListHead(dst []byte, kind, apiVersion string, meta metav1.ListMeta) []byte {
	dst = append(dst, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":`, kind, apiVersion)...)
	m, _ := json.Marshal(meta) // strings and a number
	dst = append(dst, m...)
	return append(dst, `,"items":[`...)
}

// AppendHead appends the start of a list of the kind's objects. Lists of kinds without a Go
// type contain the continue token even if it is empty.
func (k *KindCodec) AppendHead(dst []byte, kind, apiVersion string, meta metav1.ListMeta) []byte {
	if k.Kind.Document == nil || meta.Continue != "" {
		return AppendListHead(dst, kind, apiVersion, meta)
	}
	dst = append(dst, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"continue":"","resourceVersion":%q},"items":[`,
		kind, apiVersion, meta.ResourceVersion)...)
	return dst
}

// ListTail is the end of the JSON of a list.
const ListTail = "]}\n"

// servedMessage returns the served protobuf message of an item without resourceVersion, and reports
// whether it is the stored message.
func (k *KindCodec) servedMessage(item Item) (message []byte, asStored bool, err error) {
	if k.Kind.Document != nil {
		return nil, false, fmt.Errorf("%s has no protobuf form", k.Kind.Kind)
	}
	var stored []byte
	if k.servedAsStored && wire.IsEnvelope(item.Stored) {
		stored, err = wire.Find(item.Stored[len(wire.EnvelopePrefix):], wire.UnknownRaw)
		if err != nil || k.isDefaulted(item) {
			return stored, true, err
		}
	}
	obj, err := k.DecodeItem(context.Background(), item)
	if err != nil {
		return nil, false, err
	}
	m, ok := obj.(marshaler)
	if !ok {
		return nil, false, fmt.Errorf("%T has no protobuf form", obj)
	}
	obj.SetResourceVersion("")
	message, err = m.Marshal()
	if err == nil && stored != nil && bytes.Equal(message, stored) {
		return stored, true, nil // lets splice cache positions in the stored value
	}
	return message, false, err
}

// isDefaulted reports whether Default and AfterDecode are known to leave a stored value unchanged.
// It does not decode the value. Values that an older server stored may lack defaults.
func (k *KindCodec) isDefaulted(item Item) bool {
	if k.Kind.Default == nil && k.Kind.AfterDecode == nil {
		return true
	}
	_, ok := k.AppendStoredItem(nil, item, nil)
	return ok
}

// prepareSplice sets splice to the served message of an item, with the resourceVersion of its revision.
// For a value that is served as stored, it reads the positions from the item, or records them
// there.
func (k *KindCodec) prepareSplice(splice *wire.Splice, item Item) error {
	cacheable := item.Positions != nil && k.AsStored()
	if cacheable {
		if positions := item.Positions.Load(); positions != 0 {
			splice.Open(item.Stored, positions, item.Revision)
			return nil
		}
		cacheable = wire.IsEnvelope(item.Stored)
	}
	raw, asStored, err := k.servedMessage(item)
	if err == nil {
		err = splice.Init(raw, item.Revision)
	}
	if err == nil && cacheable && asStored {
		item.Positions.Store(splice.Positions(item.Stored))
	}
	return err
}

// AppendProto appends an object in the protobuf envelope.
func (k *KindCodec) AppendProto(dst []byte, it Item) ([]byte, error) {
	var s wire.Splice
	if err := k.prepareSplice(&s, it); err != nil {
		return nil, err
	}
	dst = wire.AppendEnvelope(dst, k.apiVersion, k.Kind.Kind, s.Size)
	return append(s.Append(dst), wire.EnvelopeTail...), nil
}

// AppendProtoFrame appends a length-delimited watch event.
func (k *KindCodec) AppendProtoFrame(dst []byte, eventType EventType, it Item) ([]byte, error) {
	var s wire.Splice
	if err := k.prepareSplice(&s, it); err != nil {
		return nil, err
	}
	dst = appendFrameHead(dst, eventNames[eventType], wire.EnvelopeSize(k.apiVersion, k.Kind.Kind, s.Size))
	dst = wire.AppendEnvelope(dst, k.apiVersion, k.Kind.Kind, s.Size)
	return append(s.Append(dst), wire.EnvelopeTail...), nil
}

// FrameHeader is the size in bytes of the length prefix of a protobuf event.
const FrameHeader = 4

// appendFrameHead appends the length and the start of a WatchEvent {type=1, object=2 {raw=1}}
// with an object of the given size.
func appendFrameHead(dst []byte, typ string, size int) []byte {
	extensionSize := 1 + wire.SizeUvarint(size) + size // of object, a RawExtension
	total := 1 + wire.SizeUvarint(len(typ)) + len(typ) + 1 + wire.SizeUvarint(extensionSize) + extensionSize
	dst = binary.BigEndian.AppendUint32(dst, uint32(total))
	dst = wire.AppendString(dst, 1, typ)
	dst = wire.AppendTag(dst, 2, wire.Bytes)
	dst = binary.AppendUvarint(dst, uint64(extensionSize))
	dst = wire.AppendTag(dst, 1, wire.Bytes)
	return binary.AppendUvarint(dst, uint64(size))
}

// WrapProtoFrame returns the length-delimited event of an encoded object (bookmarks, errors).
func WrapProtoFrame(typ string, object []byte) []byte {
	return append(appendFrameHead(nil, typ, len(object)), object...)
}

// Message encodes an object as a protobuf message without an envelope.
func (k *KindCodec) Message(it Item) ([]byte, error) {
	var s wire.Splice
	if err := k.prepareSplice(&s, it); err != nil {
		return nil, err
	}
	return s.Append(make([]byte, 0, s.Size)), nil
}

// AsStored reports whether objects are served in the protobuf message that is stored, except for
// their resourceVersion and defaults that an older server did not store. Such messages are cheaper
// to build than to cache. Documents are stored as JSON and have no such message.
func (k *KindCodec) AsStored() bool { return k.servedAsStored && k.Kind.Document == nil }

// ProtoItems encodes the items of one protobuf list: objects or their metadata.
type ProtoItems struct {
	codec   *KindCodec
	partial bool        // encode only the metadata
	splice  wire.Splice // of the current item
}

// ProtoItems returns an encoder of items, or of their metadata if partial is set. It is not safe
// for concurrent use.
func (k *KindCodec) ProtoItems(partial bool) *ProtoItems {
	return &ProtoItems{codec: k, partial: partial}
}

// Size returns the encoded size of an item in bytes.
func (p *ProtoItems) Size(it Item) (int, error) {
	if err := p.codec.prepareSplice(&p.splice, it); err != nil {
		return 0, err
	}
	return ProtoMessageSize(p.splice.MessageSize(p.partial)), nil
}

// CachedSize returns the size like Size, for a stored value of size bytes whose positions are
// cached in positions, the Positions of its Item. It does not read the value. It returns false if
// there are no cached positions.
func (p *ProtoItems) CachedSize(size int, positions *atomic.Uint64, revision int64) (int, bool) {
	at := positions.Load()
	if at == 0 || !p.codec.AsStored() {
		return 0, false
	}
	p.splice.ComputeSizes(size, at, revision)
	return ProtoMessageSize(p.splice.MessageSize(p.partial)), true
}

// Append appends an item.
func (p *ProtoItems) Append(dst []byte, it Item) ([]byte, error) {
	if err := p.codec.prepareSplice(&p.splice, it); err != nil {
		return nil, err
	}
	dst = wire.AppendTag(dst, p.codec.itemsField(p.partial), wire.Bytes)
	dst = binary.AppendUvarint(dst, uint64(p.splice.MessageSize(p.partial)))
	if p.partial {
		return p.splice.AppendMeta(dst), nil
	}
	return p.splice.Append(dst), nil
}

// ProtoMessageSize returns the size of a message as an item of a protobuf list.
func ProtoMessageSize(message int) int { return 1 + wire.SizeUvarint(message) + message }

// AppendProtoMessage appends a message, of an object or of its metadata, as an item.
func (k *KindCodec) AppendProtoMessage(dst, message []byte, partial bool) []byte {
	return wire.AppendBytes(dst, k.itemsField(partial), message)
}

// itemsField returns the number of the field that holds a list's items.
func (k *KindCodec) itemsField(partial bool) int {
	if partial {
		return partialItemsField
	}
	return k.listItemsField
}

// AppendProtoListHead appends the start of a list in the protobuf envelope. itemsSize is the
// sum of its items' sizes in bytes. The caller appends the items and ProtoListTail.
func AppendProtoListHead(dst []byte, kind, apiVersion string, meta metav1.ListMeta, itemsSize int) ([]byte, error) {
	m, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	dst = wire.AppendEnvelope(dst, apiVersion, kind, 1+wire.SizeUvarint(len(m))+len(m)+itemsSize)
	return wire.AppendBytes(dst, 1, m), nil
}

// ProtoListTail returns the end of a protobuf list in its envelope.
func ProtoListTail() []byte { return wire.EnvelopeTail }
