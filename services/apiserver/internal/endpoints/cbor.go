package endpoints

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/watchcache"
)

// writeCBORList answers with a list; its elements go out as they are made.
func (f *form) writeCBORList(c *call, meta metav1.ListMeta, items []*watchcache.Entry) error {
	elements := "items"
	if f.As == negotiate.Table {
		elements = "rows"
	}
	p := newPieces(c, f.Media)
	var err error
	if p.buf, err = codec.AppendCBORListHead(p.buf, append(f.appendListHead(nil, meta), "]}"...), elements, len(items)); err != nil {
		return p.abort(err)
	}
	for _, e := range items {
		item, err := f.cborItem(shownEntry(e))
		if err != nil {
			return p.abort(err)
		}
		p.buf = append(p.buf, item...)
		if !p.flush(false) {
			return p.end()
		}
	}
	return p.end()
}

// cborItem returns an element of a list; that of an object or of its metadata
// is kept.
func (f *form) cborItem(s shown) ([]byte, error) {
	encode := func(*watchcache.Entry) ([]byte, error) {
		b, err := f.appendItem(nil, s)
		if err != nil {
			return nil, err
		}
		return codec.CBORItem(b)
	}
	what := keepCBOR
	switch {
	case f.As == negotiate.Table, f.partial() && f.MetaVersion != "v1":
		return encode(s.entry)
	case f.partial():
		what = keepPartialCBOR
	}
	return s.entry.Encoding(f.keep(what), encode)
}

// appendCBOREvent appends a watch event, which is made from the JSON one.
func (f *form) appendCBOREvent(dst []byte, t codec.EventType, s shown, first bool) ([]byte, error) {
	plain := *f
	plain.Media = api.MediaJSON
	b, err := plain.appendEvent(nil, t, s, first)
	if err != nil {
		return nil, err
	}
	event, err := codec.JSONToCBOR(b)
	return append(dst, event...), err
}
