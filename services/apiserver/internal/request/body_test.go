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

// A body comes whole, whatever it says of its length and in however many parts it comes; one
// that ends too soon comes with an error.
func TestBodiesComeWhole(t *testing.T) {
	for _, size := range []int{1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 128 << 10, 256 << 10, 300_000, 1 << 20, request.MaxBody - 1, request.MaxBody} {
		text := make([]byte, size)
		random := rand.New(rand.NewPCG(uint64(size), 0))
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		for name, said := range map[string]int64{"known": int64(size), "unknown": -1} {
			for parts, reader := range map[string]io.Reader{"one": bytes.NewReader(text), "half": iotest.HalfReader(bytes.NewReader(text)), "last with its end": iotest.DataErrReader(bytes.NewReader(text))} {
				r := httptest.NewRequest("POST", "/", reader)
				r.ContentLength = said
				if got, err := request.ReadBody(r); !bytes.Equal(got, text) || err != nil {
					t.Errorf("%d of %s length in parts: %s: %d came, %v", size, name, parts, len(got), err)
				}
			}
		}
		r := httptest.NewRequest("POST", "/", bytes.NewReader(text[:size/2]))
		r.ContentLength = int64(size)
		if got, err := request.ReadBody(r); !bytes.Equal(got, text[:size/2]) || size > 1 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("half of %d: %d came, %v", size, len(got), err)
		}
	}
}
