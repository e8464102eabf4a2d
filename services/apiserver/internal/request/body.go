package request

import (
	"io"
	"net/http"
)

const (
	// MaxBody bounds bodies of requests about objects, in bytes.
	MaxBody = 3 << 20
	// announced is how much memory a body gets before it arrives.
	announced = 64 << 10
	// growth is how many times as much it gets when that is full.
	growth = 4
)

// ReadBody reads a body: all of it, or one byte more than MaxBody of a longer one.
// Errors are those of the connection.
func ReadBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if b, ok := r.Body.(*receivedBody); ok {
		return b.bytes, b.err
	}
	if r.ContentLength > 0 && r.ContentLength <= announced {
		b := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, b)
		return b[:n], err
	}
	if r.ContentLength > 0 && r.ContentLength <= MaxBody {
		return readSized(r.Body, int(r.ContentLength))
	}
	return io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
}

// readSized reads a body that says how long it is. Memory for it grows as it comes, so that
// who only announces has little, and by so much at a time that few copies are left behind.
func readSized(body io.Reader, size int) ([]byte, error) {
	b := make([]byte, 0, announced)
	for {
		n, err := io.ReadFull(body, b[len(b):min(cap(b), size)])
		b = b[:len(b)+n]
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || len(b) == size {
			return b, err
		}
		more := make([]byte, len(b), min(growth*len(b), size))
		copy(more, b)
		b = more
	}
}

// ReceiveBody has the body arrive now, as ReadBody does, so that who reads it later
// does not wait for the client, and returns what came, which must not be changed. An
// error is told then, too.
func ReceiveBody(r *http.Request) []byte {
	b := &receivedBody{Closer: r.Body, more: r.Body}
	b.bytes, b.err = ReadBody(r)
	b.left = b.bytes
	if int64(len(b.bytes)) == r.ContentLength {
		b.more = http.NoBody // nobody waits for the client to say so
	}
	r.Body = b
	return b.bytes
}

// receivedBody is a body that has arrived, but for what is beyond MaxBody.
type receivedBody struct {
	io.Closer
	bytes, left []byte
	err         error // that came after bytes
	more        io.Reader
}

// Read is for those who do not know ReadBody.
func (b *receivedBody) Read(p []byte) (int, error) {
	if len(b.left) > 0 {
		n := copy(p, b.left)
		b.left = b.left[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.more.Read(p)
}
