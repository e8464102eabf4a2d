package codec

import (
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
)

// Memo caches the common parts of the objects of one response (package transcode).
type Memo = transcode.Memo

// programOf returns a function that compiles, on first use, the program that writes the JSON of a
// kind's objects from their stored form. The function returns nil for kinds that are stored as
// another type and for kinds with defaults that no rule describes.
func programOf(k *registry.Kind, sameForm bool, stored reflect.Type) func() *transcode.Program {
	if !sameForm || k.Stored.JSON || k.Default != nil && k.Filled == nil {
		return func() *transcode.Program { return nil }
	}
	return sync.OnceValue(func() *transcode.Program {
		var rules []transcode.Rule
		if k.Filled != nil {
			rules = k.Filled()
		}
		p, err := transcode.Compile(stored, rules...)
		if err != nil {
			return nil // a test knows every kind that has a program
		}
		return p
	})
}

// partialProgram returns the program that writes the JSON of any object's metadata.
func partialProgram() *transcode.Program {
	p, err := transcode.Compile(reflect.TypeFor[metav1.PartialObjectMetadata]())
	if err != nil {
		return nil
	}
	return p
}

// Transcodes reports whether objects are written from their stored form. That is so cheap that
// frames need not be cached.
func (k *Coder) Transcodes() bool { return k.program != nil && k.program() != nil }

// transcoded appends the object of a stored value, without kind and apiVersion. It returns false if
// the value has to be decoded.
func transcoded(p *transcode.Program, dst []byte, it Item, memo *Memo) ([]byte, bool) {
	if p == nil || !isEnvelope(it.Stored) {
		return dst, false
	}
	raw, err := find(it.Stored[len(envelopePrefix):], unknownRaw)
	if err != nil {
		return dst, false
	}
	at := len(dst)
	out, ok := p.Append(dst, raw, it.Revision, memo)
	if !ok {
		return dst[:at], false
	}
	return out, true
}

// joined appends a head that ends with a comma, followed by an object. The comma replaces the
// object's opening brace.
func joined(p *transcode.Program, dst, head []byte, it Item, memo *Memo) ([]byte, bool) {
	at := len(dst)
	dst = append(dst, head[:len(head)-1]...)
	brace := len(dst)
	out, ok := transcoded(p, dst, it, memo)
	if !ok {
		return dst[:at], false
	}
	out[brace] = ','
	return out, true
}

// AppendStoredItem appends a stored object as a list item. It returns false if the object has to be
// decoded.
func (k *Coder) AppendStoredItem(dst []byte, it Item, memo *Memo) ([]byte, bool) {
	if k.program == nil {
		return dst, false
	}
	return transcoded(k.program(), dst, it, memo)
}

// AppendStored appends a stored object with its kind and apiVersion. It returns false if the object
// has to be decoded.
func (k *Coder) AppendStored(dst []byte, it Item, memo *Memo) ([]byte, bool) {
	if k.program == nil {
		return dst, false
	}
	return joined(k.program(), dst, k.heads[Added][objectAt(Added):], it, memo)
}

// AppendPartial appends an object's metadata. It returns false if the object has to be decoded.
func (k *Coder) AppendPartial(dst []byte, version string, it Item, memo *Memo) ([]byte, bool) {
	if k.Decl.Document != nil || version != "v1" {
		return dst, false
	}
	return joined(k.codec.partial(), dst, k.codec.partialHead, it, memo)
}

// transcodedFrame returns the frame of a watch event.
func (k *Coder) transcodedFrame(p *transcode.Program, head []byte, it Item) (Frame, bool) {
	const mostly = 3 // twice the approximate maximum ratio of JSON size to stored size
	f, ok := joined(p, make([]byte, 0, len(head)+mostly*len(it.Stored)/2), head, it, nil)
	if !ok {
		return nil, false
	}
	return append(f, '}', '\n'), true
}
