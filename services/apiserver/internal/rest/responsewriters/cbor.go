package responsewriters

import (
	"net/http"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
)

// writeCBORList writes a list and sends its elements while they are encoded.
func (f *Form) writeCBORList(w http.ResponseWriter, r *http.Request, l *List) error {
	p := newPieces(w, r, f.Media, f.answers.slow(r))
	defer p.releaseLimiter()
	p.slow = true
	var err error
	if p.buf, err = codec.AppendCBORListHead(p.buf, append(f.appendListHead(nil, l.Meta), "]}"...), f.elements(), l.size()); err != nil {
		return p.abort(err)
	}
	err = p.each(l, func(e *watchcache.Entry) error {
		item, err := f.cborItem(f.Entry(e))
		p.buf = append(p.buf, item...)
		return p.sent(err)
	})
	if err != nil {
		return p.abort(err)
	}
	return p.end()
}

// cborItem returns an element of a list. The encodings of objects and of v1 metadata are kept on
// the entry.
func (f *Form) cborItem(s Encodable) ([]byte, error) {
	encode := func(*watchcache.Entry) ([]byte, error) {
		b, err := f.appendItem(nil, s)
		if err != nil {
			return nil, err
		}
		return codec.CBORItem(b)
	}
	what := keepCBOR
	switch {
	case f.As == negotiation.Table, f.partial() && f.MetaVersion != "v1":
		return encode(s.Entry)
	case f.partial():
		what = keepPartialCBOR
	}
	return s.Entry.Encoding(f.keep(what), encode)
}
