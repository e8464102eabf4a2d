package codec

import (
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
)

// Memo caches the common parts of the objects of one response (package transcode).
type Memo = transcode.Memo

// newProgram returns a function that compiles, on first use, the program that writes the JSON of a
// kind's objects from their stored form. The function returns nil for kinds that are stored as
// another type and for kinds with defaults that no rule describes.
func newProgram(kind *registry.Kind, servedAsStored bool, stored reflect.Type) func() *transcode.Program {
	if !servedAsStored || kind.Stored.JSON || kind.Default != nil && kind.DefaultedRules == nil {
		return func() *transcode.Program { return nil }
	}
	return sync.OnceValue(func() *transcode.Program {
		var rules []transcode.Rule
		if kind.DefaultedRules != nil {
			rules = kind.DefaultedRules()
		}
		program, err := transcode.Compile(stored, rules...)
		if err != nil {
			return nil // the objects are decoded instead
		}
		return program
	})
}

// newMetadataProgram returns the program that writes the JSON of any object's metadata.
func newMetadataProgram() *transcode.Program {
	program, err := transcode.Compile(reflect.TypeFor[metav1.PartialObjectMetadata]())
	if err != nil {
		return nil
	}
	return program
}

// Transcodes reports whether the JSON of objects is written from their stored form. Frames of such
// objects need not be cached, because writing them again costs little.
func (k *KindCodec) Transcodes() bool { return k.program != nil && k.program() != nil }

// appendTranscoded appends the object of a stored value, without kind and apiVersion. It returns
// false if the value has to be decoded.
func appendTranscoded(program *transcode.Program, dst []byte, item Item, memo *Memo) ([]byte, bool) {
	if program == nil || !wire.IsEnvelope(item.Stored) {
		return dst, false
	}
	raw, err := wire.Find(item.Stored[len(wire.EnvelopePrefix):], wire.UnknownRaw)
	if err != nil {
		return dst, false
	}
	start := len(dst)
	out, ok := program.Append(dst, raw, item.Revision, memo)
	if !ok {
		return dst[:start], false
	}
	return out, true
}

// appendWithHead appends a head that ends with a comma, followed by an object. The comma replaces
// the object's opening brace.
func appendWithHead(program *transcode.Program, dst, head []byte, item Item, memo *Memo) ([]byte, bool) {
	start := len(dst)
	dst = append(dst, head[:len(head)-1]...)
	brace := len(dst)
	out, ok := appendTranscoded(program, dst, item, memo)
	if !ok {
		return dst[:start], false
	}
	out[brace] = ','
	return out, true
}

// AppendStoredItem appends a stored object as a list item. It returns false if the object has to be
// decoded.
func (k *KindCodec) AppendStoredItem(dst []byte, item Item, memo *Memo) ([]byte, bool) {
	if k.program == nil {
		return dst, false
	}
	return appendTranscoded(k.program(), dst, item, memo)
}

// AppendStored appends a stored object with its kind and apiVersion. It returns false if the object
// has to be decoded.
func (k *KindCodec) AppendStored(dst []byte, item Item, memo *Memo) ([]byte, bool) {
	if k.program == nil {
		return dst, false
	}
	// The head of an ADDED event ends with the head of its object, which holds kind and apiVersion.
	objectHead := k.heads[Added][objectAt(Added):]
	return appendWithHead(k.program(), dst, objectHead, item, memo)
}

// AppendPartial appends an object's metadata. It returns false if the object has to be decoded.
func (k *KindCodec) AppendPartial(dst []byte, version string, item Item, memo *Memo) ([]byte, bool) {
	if k.Kind.Document != nil || version != "v1" {
		return dst, false
	}
	return appendWithHead(k.codec.metadataProgram(), dst, k.codec.metadataFrameHead, item, memo)
}

// transcodedFrame returns the frame of a watch event.
func (k *KindCodec) transcodedFrame(program *transcode.Program, head []byte, item Item) (Frame, bool) {
	capacity := len(head) + len(item.Stored)*3/2 // the JSON is seldom larger
	frame, ok := appendWithHead(program, make([]byte, 0, capacity), head, item, nil)
	if !ok {
		return nil, false
	}
	return append(frame, '}', '\n'), true
}

// checkServable returns an error for a stored protobuf message that decodes, but that no list in
// JSON can contain. Another server, or damage, may leave such a value in the store. The watch cache
// checks each value that arrives, so that one such object is reported like an object that cannot be
// decrypted, and reads of other objects continue. Text that is not UTF-8 passes: JSON has U+FFFD in
// its place.
func (k *KindCodec) checkServable(raw []byte) error { return k.stored().Check(raw) }
