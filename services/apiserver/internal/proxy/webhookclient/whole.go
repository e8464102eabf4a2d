package webhookclient

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

type partsKey struct{}

// WithParts has what is sent with a context, to a client of Direct, end in more than its body
// says: parts that several questions share are sent from where they are, and no question has a
// copy of them. They must not be changed.
func WithParts(ctx context.Context, parts ...[]byte) context.Context {
	return context.WithValue(ctx, partsKey{}, parts)
}

// whole is a request with all of its body.
func whole(r *http.Request) *http.Request {
	parts, _ := r.Context().Value(partsKey{}).([][]byte)
	if len(parts) == 0 || r.Body == nil || r.Body == http.NoBody || r.GetBody == nil {
		return r
	}
	head, length := r.GetBody, r.ContentLength
	for _, p := range parts {
		length += int64(len(p))
	}
	out := r.WithContext(r.Context())
	out.ContentLength = length
	out.Body = &joined{ReadCloser: r.Body, parts: parts}
	out.GetBody = func() (io.ReadCloser, error) {
		h, err := head()
		if err != nil {
			return nil, err
		}
		return &joined{ReadCloser: h, parts: parts}, nil
	}
	return out
}

// joined is a body and what follows it.
type joined struct {
	io.ReadCloser
	over  bool // what is before the parts has been read
	at    bytes.Reader
	parts [][]byte
}

// Read implements io.Reader.
func (j *joined) Read(p []byte) (int, error) {
	for {
		from := io.Reader(j.ReadCloser)
		if j.over {
			from = &j.at
		}
		n, err := from.Read(p)
		if err != io.EOF || len(j.parts) == 0 {
			return n, err
		}
		j.over = true
		j.at.Reset(j.parts[0])
		if j.parts = j.parts[1:]; n > 0 {
			return n, nil
		}
	}
}
