package answers

import (
	"errors"
	"io"
	"net/http"
	"slices"
)

const (
	// MaxHead is the longest head of an answer, in bytes.
	MaxHead = 1 << 20
	// MaxFields is how many header fields it has at most: each takes some hundred bytes here,
	// and as little as four there.
	MaxFields = 10_000
)

// ErrHead refuses an answer whose head is beyond that.
var ErrHead = errors.New("the headers of the answer are too long")

// own are the header fields that only this server says of an answer, in canonical form.
var own = []string{"Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"}

// IsOwn tells whether only this server says such a field of an answer.
func IsOwn(name string) bool { return slices.Contains(own, http.CanonicalHeaderKey(name)) }

// DropOwn takes away what only this server says of an answer.
func DropOwn(h http.Header) {
	for _, name := range own {
		h.Del(name)
	}
}

// fields is how many there are in a head.
func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// stranger is the body of an answer whose trailers do not say either what only this
// server says.
type stranger struct {
	io.ReadCloser
	of *http.Response
}

// Read implements io.Reader.
func (s *stranger) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if err != nil {
		DropOwn(s.of.Trailer)
	}
	return n, err
}
