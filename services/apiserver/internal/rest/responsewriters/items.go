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
