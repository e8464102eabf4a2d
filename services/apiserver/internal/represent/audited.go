package represent

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/audit"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/watchcache"
)

// The audit log has answers in JSON, whatever the client asked for. What is written in
// it is told as it is written; what is not is made once more, for the log alone.

// tellAnswer tells the audit log of an answer of any type, which body has.
func tellAnswer(c *codec.Codec, r *http.Request, obj runtime.Object, gvk schema.GroupVersionKind, choice negotiate.Choice, body []byte) {
	rec := audit.From(r.Context())
	if rec == nil {
		return
	}
	if st, ok := obj.(*metav1.Status); ok {
		rec.Answered(st)
	}
	if !rec.Wants(audit.RequestResponse) {
		return
	}
	if choice.Media != api.MediaJSON {
		var err error
		if body, err = c.Encode(obj, gvk, api.MediaJSON, false); err != nil {
			return // nor is it answered
		}
	}
	rec.Shown(body)
}

// untold is a request of which the audit log is not told what is answered.
func untold(r *http.Request) *http.Request {
	if audit.From(r.Context()) == nil {
		return r
	}
	return r.WithContext(audit.With(r.Context(), nil))
}

// tellObject tells the audit log of an object that is not written as plain JSON.
func (f *Form) tellObject(r *http.Request, s Shown) {
	rec := audit.From(r.Context())
	if !rec.Wants(audit.RequestResponse) {
		return
	}
	if b, err := f.appendJSON(nil, s); err == nil {
		rec.Shown(b)
	}
}

// tellList tells the audit log of a list that is not written as plain JSON.
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
