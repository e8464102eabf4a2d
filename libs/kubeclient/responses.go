package kubeclient

import (
	"bytes"
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

	"google.golang.org/protobuf/encoding/protowire"

	"binnacle/libs/api"
	"binnacle/libs/limit"
)

const (
	// maxResponse is the maximum size of a response in bytes. The function EachPage requests
	// smaller pages of lists that exceed it.
	maxResponse = 16 << 20
	// maxValues is the maximum number of values in a response or an event. "{}," takes three bytes
	// of a list, but hundreds in memory.
	maxValues = 512 << 10
	// maxEvent is the maximum size of an event of a watch in bytes, which is more than an API
	// server accepts in a request. The decoder of a watch keeps a buffer of the size of its largest
	// event.
	maxEvent = 4 << 20
	// largeResponse is the size in bytes from which a response needs a slot. maxLarge is the number
	// of slots. The caller must read a response that holds a slot to its end within largeTimeout.
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

// newBoundedTransports returns a function that wraps transports with a boundedTransport. All
// wrapped transports share their slots.
func newBoundedTransports() func(http.RoundTripper) http.RoundTripper {
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
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	w := r.URL.Query().Get("watch")
	watches := (w == "true" || w == "1") && resp.StatusCode == http.StatusOK
	switch {
	case watches && media == api.MediaJSON:
		resp.Body = &scannedBody{resp.Body, (&jsonScanner{maxBytes: maxEvent}).scan}
		return resp, nil
	case watches && media == api.MediaProtobuf:
		resp.Body = &scannedBody{resp.Body, new(protobufEventScanner).scan}
		return resp, nil
	}
	body := &boundedBody{
		ReadCloser: resp.Body,
		ctx:        r.Context(),
		slots:      t.slots,
		claim:      limit.Claim[string]{Key: groupOf(r.URL.Path)},
	}
	resp.Body = body
	switch media {
	case api.MediaJSON:
		resp.Body = &scannedBody{body, (&jsonScanner{maxBytes: maxResponse}).scan}
	case api.MediaProtobuf:
		resp.Body = &bufferedProtobufBody{ReadCloser: body}
	}
	return resp, nil
}

// groupOf returns the API group of a path, or "" for the core group and other paths.
func groupOf(path string) string {
	_, after, _ := strings.Cut(path, "/apis/")
	group, _, _ := strings.Cut(after, "/")
	return group
}

// boundedBody is a body that ends with an error after maxResponse bytes.
type boundedBody struct {
	io.ReadCloser
	ctx   context.Context
	slots *limit.Queue[string]
	claim limit.Claim[string]
	size  int
	timer *time.Timer
	held  atomic.Bool // the body holds a slot
}

// Read implements io.Reader.
func (b *boundedBody) Read(data []byte) (int, error) {
	if b.size >= largeResponse && b.timer == nil {
		if err := b.slots.Acquire(b.ctx, b.claim); err != nil {
			return 0, fmt.Errorf("wait for other large responses: %w", err)
		}
		b.held.Store(true)
		b.timer = time.AfterFunc(largeTimeout, func() { _ = b.ReadCloser.Close() }) // makes a blocked Read fail
	}
	n, err := b.ReadCloser.Read(data)
	if b.size += n; b.size > maxResponse {
		err = fmt.Errorf("%w: more than %d bytes", ErrResponseTooLarge, maxResponse)
	}
	if err != nil {
		b.release()
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}

// release releases the slot of the body if it holds one.
func (b *boundedBody) release() {
	if b.held.CompareAndSwap(true, false) {
		b.slots.Release(b.claim)
	}
}

// errTooManyValues reports more than maxValues values.
var errTooManyValues = fmt.Errorf("%w: more than %d values", ErrResponseTooLarge, maxValues)

// scannedBody is a body that ends with the error of scan, which is called with each part of it.
type scannedBody struct {
	io.ReadCloser
	scan func(p []byte) error
}

// Read implements io.Reader.
func (b *scannedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err := b.scan(p[:n]); err != nil {
		return 0, err
	}
	return n, err
}

// jsonScanner limits the size and the number of values of JSON objects that follow each other, such
// as the events of a watch. It counts commas and opening brackets outside of strings.
type jsonScanner struct {
	maxBytes            int // of an object
	size, values, depth int // of the current object
	inString            bool
	escape              bool // the previous byte was a backslash in a string
}

// scan counts the values in the next part of a body. The size and the number of values of each
// top-level object or array are limited.
func (s *jsonScanner) scan(p []byte) error {
	for _, char := range p {
		s.size++
		switch {
		case s.escape:
			s.escape = false
		case s.inString:
			s.escape = char == '\\'
			s.inString = char != '"'
		case char == '"':
			s.inString = true
		case char == ',':
			s.values++
		case char == '{' || char == '[':
			s.values++
			s.depth++
		case char == '}' || char == ']':
			if s.depth--; s.depth == 0 {
				s.size = 0
				s.values = 0
			}
		}
		if s.size > s.maxBytes {
			return fmt.Errorf("%w: an object has more than %d bytes", ErrResponseTooLarge, s.maxBytes)
		}
		if s.values > maxValues {
			return errTooManyValues
		}
	}
	return nil
}

// protobufEventScanner limits the size of the messages of a watch. Each message follows its length,
// as a big-endian number of 4 bytes.
type protobufEventScanner struct {
	length    [4]byte
	known     int // bytes of length that have arrived
	remaining int // bytes of the current message that have not arrived
}

// scan reads the lengths of messages in the next part of a body. A length or a message may be split
// between parts.
func (e *protobufEventScanner) scan(data []byte) error {
	for len(data) > 0 {
		n := min(e.remaining, len(data))
		e.remaining -= n
		data = data[n:]
		n = copy(e.length[e.known:], data)
		e.known += n
		data = data[n:]
		if e.known < len(e.length) {
			break
		}
		e.known = 0
		if e.remaining = int(binary.BigEndian.Uint32(e.length[:])); e.remaining > maxEvent {
			return fmt.Errorf("%w: an event has more than %d bytes", ErrResponseTooLarge, maxEvent)
		}
	}
	return nil
}

// bufferedProtobufBody is a body that is read completely before its values are counted.
type bufferedProtobufBody struct {
	io.ReadCloser
	text *bytes.Reader // nil before the first Read
}

// Read implements io.Reader.
func (b *bufferedProtobufBody) Read(data []byte) (int, error) {
	if b.text == nil {
		text, err := io.ReadAll(b.ReadCloser)
		if err != nil {
			return 0, err
		}
		if err := checkValues(text); err != nil {
			return 0, err
		}
		b.text = bytes.NewReader(text)
	}
	return b.text.Read(data)
}

// Protobuf field numbers: raw of runtime.Unknown, items of lists, and metadata of objects and
// lists.
const (
	rawField, itemsField, metadataField = 2, 2, 1
)

// checkValues returns an error if a response has too many values: objects and fields of their
// metadata. In a PartialObjectMetadata, all repeated fields belong to the metadata.
func checkValues(text []byte) error {
	message, _ := bytes.CutPrefix(text, []byte("k8s\x00"))
	for _, path := range [][]int32{{rawField, metadataField}, {rawField, itemsField, metadataField}} {
		if countFields(message, path) > maxValues {
			return errTooManyValues
		}
	}
	return nil
}

// countFields returns the number of fields in a message and in the messages at a path below it. It
// stops at the first invalid field, as the decoder does. In other kinds of objects, a field with the
// same number may be a text. countFields then counts what looks like fields in the text.
func countFields(message []byte, path []int32) (count int) {
	for ; len(message) > 0; count++ {
		tag, size := protowire.ConsumeVarint(message)
		if size < 0 {
			return count
		}
		message = message[size:]
		number, kind := int32(tag>>3), protowire.Type(tag&7) // the decoder ignores the same bits
		size = protowire.ConsumeFieldValue(protowire.Number(number), kind, message)
		if size < 0 {
			return count
		}
		if kind == protowire.BytesType && len(path) > 0 && number == path[0] {
			value, _ := protowire.ConsumeBytes(message)
			count += countFields(value, path[1:])
		}
		message = message[size:]
	}
	return count
}
