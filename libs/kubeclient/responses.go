package kubeclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"binnacle/libs/api"
	"binnacle/libs/limit"
)

const (
	// maxResponse is the maximum size of a response in bytes. EachPage requests smaller pages of lists
	// that exceed it.
	maxResponse = 16 << 20
	// maxEvent is the maximum size of an event of a watch in bytes, which is more than an API server
	// accepts in a request. The decoder of a watch keeps a buffer of the size of its largest event.
	maxEvent = 4 << 20
	// largeResponse is the size in bytes from which a response needs a slot. maxLarge is the number
	// of slots. A response that holds one must end within largeTimeout.
	largeResponse = 1 << 20
	maxLarge      = 4
	largeTimeout  = 30 * time.Second
)

// ErrResponseTooLarge is wrapped by errors about responses and events that exceed their limit.
var ErrResponseTooLarge = errors.New("the response of the API server is too large")

// boundedTransport bounds the memory that responses take. The API server forwards requests to
// extension servers, which may respond with anything, and namespaces contain objects of any size.
type boundedTransport struct {
	http.RoundTripper
	slots *limit.Queue[string] // by API group, because a group has one server
}

// bounded returns a function that bounds the responses of transports. They share their slots.
func bounded() func(http.RoundTripper) http.RoundTripper {
	slots := limit.New[string](limit.Options{Size: maxLarge, FairShare: true})
	return func(below http.RoundTripper) http.RoundTripper { return &boundedTransport{below, slots} }
}

// WrappedRoundTripper lets client-go find the transport.
func (t *boundedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if newSize := eventSizer(r, resp); newSize != nil {
		resp.Body = &eventBody{resp.Body, newSize}
	} else {
		resp.Body = &responseBody{ReadCloser: resp.Body, ctx: r.Context(), slots: t.slots, claim: limit.Claim[string]{Key: groupOf(r.URL.Path)}}
	}
	return resp, nil
}

// groupOf returns the API group of a path, or "" for the core group and other paths.
func groupOf(path string) string {
	_, after, _ := strings.Cut(path, "/apis/")
	group, _, _ := strings.Cut(after, "/")
	return group
}

// responseBody is a body that ends with an error after maxResponse bytes.
type responseBody struct {
	io.ReadCloser
	ctx   context.Context
	slots *limit.Queue[string]
	claim limit.Claim[string]
	size  int
	timer *time.Timer
	held  atomic.Bool // the body holds a slot
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.size >= largeResponse && b.timer == nil {
		if err := b.slots.Acquire(b.ctx, b.claim); err != nil {
			return 0, fmt.Errorf("wait for other large responses: %w", err)
		}
		b.held.Store(true)
		b.timer = time.AfterFunc(largeTimeout, func() { _ = b.ReadCloser.Close() }) // the read returns the error
	}
	n, err := b.ReadCloser.Read(p)
	if b.size += n; b.size > maxResponse {
		err = fmt.Errorf("%w: more than %d bytes", ErrResponseTooLarge, maxResponse)
	}
	if err != nil {
		b.release()
	}
	return n, err
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}

// release releases the slot of the body if it holds one.
func (b *responseBody) release() {
	if b.held.CompareAndSwap(true, false) {
		b.slots.Release(b.claim)
	}
}

// eventBody is the body of a watch. It ends with an error before an event of more than maxEvent
// bytes is complete.
type eventBody struct {
	io.ReadCloser
	// sizeAfter returns the number of bytes of the current event that are known after reading p.
	sizeAfter func(p []byte) int
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if size := b.sizeAfter(p[:n]); size > maxEvent {
		return 0, fmt.Errorf("%w: an event has more than %d bytes", ErrResponseTooLarge, maxEvent)
	}
	return n, err
}

// eventSizer returns sizeAfter for the response to a watch, or nil if the response has no events.
func eventSizer(r *http.Request, resp *http.Response) func([]byte) int {
	if w := r.URL.Query().Get("watch"); w != "true" && w != "1" || resp.StatusCode != http.StatusOK {
		return nil
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err == nil && media == api.MediaJSON:
		return new(jsonEvents).sizeAfter
	case err == nil && media == api.MediaProtobuf:
		return new(protobufEvents).sizeAfter
	}
	return nil
}

// jsonEvents measures JSON objects that follow each other.
type jsonEvents struct {
	size, depth      int
	inString, escape bool
}

func (e *jsonEvents) sizeAfter(p []byte) int {
	for _, c := range p {
		e.size++
		switch {
		case e.escape:
			e.escape = false
		case e.inString:
			e.escape = c == '\\'
			e.inString = c != '"'
		case c == '"':
			e.inString = true
		case c == '{' || c == '[':
			e.depth++
		case c == '}' || c == ']':
			if e.depth--; e.depth == 0 {
				e.size = 0
			}
		}
		if e.size > maxEvent {
			break
		}
	}
	return e.size
}

// protobufEvents measures messages that follow their lengths, which are big-endian and have four bytes.
type protobufEvents struct {
	length    [4]byte
	known     int // bytes of length
	remaining int // bytes of the message
}

func (e *protobufEvents) sizeAfter(p []byte) int {
	for len(p) > 0 {
		n := min(e.remaining, len(p))
		e.remaining -= n
		p = p[n:]
		if len(p) == 0 {
			break
		}
		n = copy(e.length[e.known:], p)
		e.known += n
		p = p[n:]
		if e.known < len(e.length) {
			break
		}
		e.known = 0
		if e.remaining = int(binary.BigEndian.Uint32(e.length[:])); e.remaining > maxEvent {
			return e.remaining
		}
	}
	return 0
}
