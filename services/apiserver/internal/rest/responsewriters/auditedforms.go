package responsewriters

import (
	"net/http"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/security/audit"
)

// The audit log records responses as JSON, independent of their media type. A response written as
// plain JSON is recorded while it is written. Any other response is encoded a second time, for the
// audit log only.

// tellObject records an object that is not written as plain JSON in the audit event.
func (f *Form) tellObject(r *http.Request, s Encodable) {
	rec := audit.From(r.Context())
	if !rec.Wants(audit.RequestResponse) {
		return
	}
	if b, err := f.appendJSON(nil, s); err == nil {
		rec.SetResponseObject(b)
	}
}

// tellList records a list that is not written as plain JSON in the audit event.
func (f *Form) tellList(r *http.Request, l *List) error {
	c := audit.From(r.Context()).Copy()
	if c == nil {
		return nil
	}
	defer c.Close()
	c.Write(f.appendListHead(nil, l.Meta))
	var b []byte
	err := l.Each(func(e *watchcache.Entry) (err error) {
		if b != nil {
			c.Write([]byte(","))
		}
		if b, err = f.appendItem(b[:0], f.Entry(e)); err != nil {
			return err
		}
		if c.Write(b); c.Full() {
			return errGone
		}
		return nil
	})
	if err != nil && !c.Full() {
		return err
	}
	c.Write([]byte(codec.ListTail))
	return nil
}
