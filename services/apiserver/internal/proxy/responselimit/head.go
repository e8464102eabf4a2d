package responselimit

import (
	"errors"
	"io"
	"net/http"
	"slices"
)

// MaxHead is the maximum size of the head of a response in bytes. A field of four bytes on the wire
// takes some hundred bytes of memory and some hundred nanoseconds. No permit limits how many heads
// are decoded at a time.
const MaxHead = 16 << 10

// ErrHead reports that the head of a response exceeds the limits.
var ErrHead = errors.New("the response headers are too long")

// ownHeaders lists the header fields of a response that only this server may set, in canonical
// form.
var ownHeaders = []string{"Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"}

// IsOwn reports whether only this server may set a header field of a response.
func IsOwn(name string) bool { return slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)) }

// DropOwn removes the header fields that only this server may set.
func DropOwn(h http.Header) {
	for _, name := range ownHeaders {
		h.Del(name)
	}
}

// trailerFilter is a response body that also removes trailers that only this server may set.
type trailerFilter struct {
	io.ReadCloser
	response *http.Response
}

// Read implements io.Reader.
func (f *trailerFilter) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	if err != nil {
		DropOwn(f.response.Trailer)
	}
	return n, err
}
