package represent

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/watchcache"
)

// List is what a list shows.
type List struct {
	Meta  metav1.ListMeta
	Items []*watchcache.Entry
	// Walk goes through the objects, instead of Items, as often as it is called:
	// those that are too large to be held until a client has read them. Count
	// tells how many there are.
	Walk  func(visit func(*watchcache.Entry) error) error
	Count int
}

// Each goes through the objects until visit returns an error, which it returns.
func (l *List) Each(visit func(*watchcache.Entry) error) error {
	if l.Walk != nil {
		return l.Walk(visit)
	}
	next := ahead{visit: visit}
	for _, e := range l.Items {
		if err := next.add(e); err != nil {
			return err
		}
	}
	return next.flush()
}

// size is the number of objects.
func (l *List) size() int {
	if l.Walk != nil {
		return l.Count
	}
	return len(l.Items)
}

func (f *Form) appendListHead(dst []byte, meta metav1.ListMeta) []byte {
	if f.As == negotiate.Table {
		return f.res.Coder.AppendTableHead(dst, f.MetaVersion, meta, true)
	}
	kind, version := f.kindOfList()
	if !f.partial() {
		return f.res.Coder.AppendHead(dst, kind, version, meta)
	}
	return codec.AppendListHead(dst, kind, version, meta)
}

// elements is the field of a list that has its objects.
func (f *Form) elements() string {
	if f.As == negotiate.Table {
		return "rows"
	}
	return "items"
}
