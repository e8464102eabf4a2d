package webhookclient

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

// bodyPartsKey is the context key of the parts of a body.
type bodyPartsKey struct{}

// WithBodyParts returns a context whose requests, sent with a client of NewClient, have parts
// appended to their bodies. Several requests can share parts without copies. The parts must not be
// changed.
func WithBodyParts(ctx context.Context, parts ...[]byte) context.Context {
	return context.WithValue(ctx, bodyPartsKey{}, parts)
}

// withBodyParts returns a request whose body includes the parts of its context.
func withBodyParts(r *http.Request) *http.Request {
	parts, _ := r.Context().Value(bodyPartsKey{}).([][]byte)
	if len(parts) == 0 || r.Body == nil || r.Body == http.NoBody || r.GetBody == nil {
		return r
	}
	getOriginal, length := r.GetBody, r.ContentLength
	for _, p := range parts {
		length += int64(len(p))
	}
	out := r.WithContext(r.Context())
	out.ContentLength = length
	out.Body = &joinedBody{ReadCloser: r.Body, parts: parts}
	out.GetBody = func() (io.ReadCloser, error) {
		original, err := getOriginal()
		if err != nil {
			return nil, err
		}
		return &joinedBody{ReadCloser: original, parts: parts}, nil
	}
	return out
}

// joinedBody is a body reloaded by parts.
type joinedBody struct {
	io.ReadCloser
	originalDone bool         // the original body was read
	current      bytes.Reader // the part that is read now
	parts        [][]byte     // the parts after it
}

// Read implements io.Reader.
func (j *joinedBody) Read(p []byte) (int, error) {
	for {
		from := io.Reader(j.ReadCloser)
		if j.originalDone {
			from = &j.current
		}
		n, err := from.Read(p)
		if err != io.EOF || len(j.parts) == 0 {
			return n, err
		}
		j.originalDone = true
		j.current.Reset(j.parts[0])
		j.parts = j.parts[1:]
		if n > 0 {
			return n, nil
		}
	}
}
