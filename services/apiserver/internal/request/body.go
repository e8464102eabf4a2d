package request

import (
	"io"
	"net/http"
)

const (
	// MaxBody is the maximum size of a request body, in bytes, for requests about objects.
	MaxBody = 3 << 20
	// InitialBuffer is the size in bytes of the buffer that a body gets before it arrives.
	InitialBuffer = 64 << 10
	// bufferGrowth is the factor by which a full buffer grows.
	bufferGrowth = 4
)

// ReadBody reads the whole body, or MaxBody+1 bytes of a longer one. It returns the errors of the
// connection.
func ReadBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if b, ok := r.Body.(*receivedBody); ok {
		return b.bytes, b.err
	}
	return readGrowing(r, func(int) error { return nil })
}

// readGrowing reads a body into a buffer that grows as the body arrives, so that a client that only
// announces a body occupies little memory. It calls grow with the new size before each growth
// beyond InitialBuffer. An error of grow stops the read.
func readGrowing(r *http.Request, grow func(size int) error) ([]byte, error) {
	limit, sized := MaxBody+1, r.ContentLength > 0 && r.ContentLength <= MaxBody
	if sized {
		limit = int(r.ContentLength)
	}
	data := make([]byte, 0, min(InitialBuffer, limit))
	for {
		n, err := io.ReadFull(r.Body, data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case !sized && (err == io.EOF || err == io.ErrUnexpectedEOF):
			return data, nil
		case err == io.EOF:
			return data, io.ErrUnexpectedEOF
		case err != nil || len(data) == limit:
			return data, err
		}
		size := min(bufferGrowth*len(data), limit)
		if err := grow(size); err != nil {
			return data, err
		}
		grown := make([]byte, len(data), size)
		copy(grown, data)
		data = grown
	}
}

// ReceiveBody reads the body as ReadBody does, so that a later reader does not wait for the client.
// It returns the bytes, which must not be changed. It calls grow with the new size before the body
// occupies more than InitialBuffer bytes, and returns an error of grow. The later reader gets any
// other error.
func ReceiveBody(r *http.Request, grow func(size int) error) ([]byte, error) {
	var rejected error
	received := &receivedBody{Closer: r.Body, more: r.Body}
	received.bytes, received.err = readGrowing(r, func(size int) error {
		rejected = grow(size)
		return rejected
	})
	received.unread = received.bytes
	if int64(len(received.bytes)) == r.ContentLength {
		received.more = http.NoBody // the body is complete
	}
	r.Body = received
	return received.bytes, rejected
}

// receivedBody is a body whose first MaxBody+1 bytes, or all of a shorter one, have been read.
type receivedBody struct {
	io.Closer
	// bytes holds what was read, unread its rest for Read.
	bytes, unread []byte
	err           error // the read error after bytes
	more          io.Reader
}

// Read implements io.Reader for readers that do not use ReadBody.
func (b *receivedBody) Read(p []byte) (int, error) {
	if len(b.unread) > 0 {
		n := copy(p, b.unread)
		b.unread = b.unread[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.more.Read(p)
}
