package request_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"binnacle/services/apiserver/internal/request"
)

// TestReadBodyReturnsWholeBody checks that ReadBody returns the whole body for any announced length
// and division into parts. A body that ends too soon is returned with an error.
func TestReadBodyReturnsWholeBody(t *testing.T) {
	for _, size := range []int{
		1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 128 << 10, 256 << 10, 300_000, 1 << 20, request.MaxBody - 1,
		request.MaxBody,
	} {
		text := make([]byte, size)
		random := rand.New(rand.NewPCG(uint64(size), 0))
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		for name, length := range map[string]int64{"known": int64(size), "unknown": -1} {
			for parts, reader := range map[string]io.Reader{
				"one": bytes.NewReader(text), "half": iotest.HalfReader(bytes.NewReader(text)),
				"last with its end": iotest.DataErrReader(bytes.NewReader(text)),
			} {
				r := httptest.NewRequest("POST", "/", reader)
				r.ContentLength = length
				if got, err := request.ReadBody(r); !bytes.Equal(got, text) || err != nil {
					t.Errorf("%d bytes of %s length in parts %s: got %d bytes, error %v, want the whole body", size, name, parts, len(got), err)
				}
			}
		}
		r := httptest.NewRequest("POST", "/", bytes.NewReader(text[:size/2]))
		r.ContentLength = int64(size)
		if got, err := request.ReadBody(r); !bytes.Equal(got, text[:size/2]) || size > 1 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("body that ends after half of %d bytes: got %d bytes, error %v, want %d bytes and ErrUnexpectedEOF",
				size, len(got), err, size/2)
		}
	}
}
