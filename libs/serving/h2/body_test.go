package h2_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
)

// stopReadingHeader asks the handler of TestBodiesArriveComplete to return before the end of the
// body.
const stopReadingHeader = "X-Stop-Reading"

// TestBodiesArriveComplete checks that bodies arrive complete, even if they exceed the connection's
// window several times and the handlers of other requests stop reading early.
func TestBodiesArriveComplete(t *testing.T) {
	const (
		connWindow   = 1 << 20 // bytes
		clients      = 8
		maxReadSize  = 1 << 20
		maxStopAfter = 300_000
	)
	s := serve(t, hashBody(t, maxReadSize, maxStopAfter), nil)
	httpClient := s.client(t)
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), 2))
			sent := 0
			for i := 0; sent < 4*connWindow; i++ {
				// 1. Generate a body: every third of unknown length, every fifth not read to its end.
				// A random power of two as the limit makes small bodies as frequent as large ones.
				body := make([]byte, rng.IntN(1<<(8+rng.IntN(14))))
				for j := range body {
					body[j] = byte(rng.Uint32())
				}
				sent += len(body)
				var reader io.Reader = bytes.NewReader(body)
				if i%3 == 0 {
					// It has a generator of its own, because the transport may still read it while the
					// next body is generated.
					reader = &partReader{body, rand.New(rand.NewPCG(rng.Uint64(), 3))}
				}
				stopsEarly := i%5 == 4
				// 2. Send it.
				req, err := http.NewRequest(http.MethodPost, "https://example.com/", reader)
				if err != nil {
					t.Error(err)
					return
				}
				if stopsEarly {
					req.Header.Set(stopReadingHeader, "true")
				}
				resp, err := httpClient.Do(req)
				if err != nil {
					t.Errorf("client %d, request %d with %d bytes: got error %v, want a response", client, i, len(body), err)
					return
				}
				// 3. Compare the hash. The handler has none if it stopped early.
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				hash := fnv.New64a()
				hash.Write(body)
				want := fmt.Sprint(hash.Sum64())
				if err != nil {
					t.Errorf("client %d, request %d with %d bytes: got error %v, want its hash", client, i, len(body), err)
				} else if !stopsEarly && string(got) != want {
					t.Errorf("client %d, request %d with %d bytes: got hash %q, want %q", client, i, len(body), got, want)
				}
			}
		})
	}
	running.Wait()
}

// hashBody returns a handler that responds with the hash of the request body. It reads at most
// maxReadSize bytes at once. With stopReadingHeader it returns after at most about maxStopAfter
// bytes.
func hashBody(t *testing.T, maxReadSize, maxStopAfter int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rng := rand.New(rand.NewPCG(uint64(r.ContentLength), 1))
		stopsEarly, stopAfter := r.Header.Get(stopReadingHeader) != "", rng.IntN(maxStopAfter)
		hash := fnv.New64a()
		buffer := make([]byte, maxReadSize)
		for received := 0; ; {
			// A random power of two as the limit makes small reads as frequent as large ones.
			n, err := r.Body.Read(buffer[:1+rng.IntN(1<<rng.IntN(bits.Len(uint(maxReadSize))))])
			hash.Write(buffer[:n])
			received += n
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("Read() after %d bytes = %v, want nil or EOF", received, err)
				return
			}
			if stopsEarly && received > stopAfter {
				return
			}
			if rng.IntN(50) == 0 {
				clear(buffer) // the server must not depend on the buffer after Read has returned
			}
		}
		fmt.Fprint(w, hash.Sum64())
	}
}

// partReader is a body of unknown length that is sent in parts.
type partReader struct {
	unread []byte
	rng    *rand.Rand
}

// Read implements io.Reader. It returns between 1 and 20,000 bytes.
func (p *partReader) Read(b []byte) (int, error) {
	if len(p.unread) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.unread[:min(len(p.unread), 1+p.rng.IntN(20_000))])
	p.unread = p.unread[n:]
	return n, nil
}
