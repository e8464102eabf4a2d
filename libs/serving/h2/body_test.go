package h2_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
)

// TestBodiesArriveComplete sends bodies of random sizes on one connection, which need the
// connection's window many times. Some handlers return without reading the whole body.
func TestBodiesArriveComplete(t *testing.T) {
	const window = 1 << 20 // of the connection
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		draw := rand.New(rand.NewPCG(uint64(r.ContentLength), 1))
		hash, until := fnv.New64a(), -1
		if r.Header.Get("Leave") != "" {
			until = draw.IntN(300_000)
		}
		p := make([]byte, 1<<20)
		for read := 0; ; {
			n, err := r.Body.Read(p[:1+draw.IntN(1<<draw.IntN(21))])
			hash.Write(p[:n])
			read += n
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("after %d bytes: %v", read, err)
				return
			}
			if until >= 0 && read > until {
				return // without reading the rest
			}
			if draw.IntN(50) == 0 {
				clear(p) // the buffer belongs to the handler
			}
		}
		fmt.Fprint(w, hash.Sum64())
	}, nil)
	c := s.client(t)
	var all sync.WaitGroup
	for client := range 8 {
		all.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(client), 2))
			sent := 0
			for i := 0; sent < 4*window; i++ {
				body := make([]byte, draw.IntN(1<<(8+draw.IntN(14))))
				for j := range body {
					body[j] = byte(draw.Uint32())
				}
				sent += len(body)
				hash := fnv.New64a()
				hash.Write(body)
				var from io.Reader = bytes.NewReader(body)
				if i%3 == 0 {
					// The transport may still send it while the next body is generated.
					from = &partReader{body, rand.New(rand.NewPCG(draw.Uint64(), 3))}
				}
				req, err := http.NewRequest(http.MethodPost, "https://example.com/", from)
				if err != nil {
					t.Error(err)
					return
				}
				leaves := i%5 == 4
				if leaves {
					req.Header.Set("Leave", "1")
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Errorf("%d bytes: %v", len(body), err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if complete := string(got) == fmt.Sprint(hash.Sum64()); err != nil || !complete && !leaves {
					t.Errorf("%d bytes: complete = %t, error: %v", len(body), complete, err)
				}
			}
		})
	}
	all.Wait()
}

// partReader is a body of unknown length that is sent in parts.
type partReader struct {
	left []byte
	draw *rand.Rand
}

func (p *partReader) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[:min(len(p.left), 1+p.draw.IntN(20_000))])
	p.left = p.left[n:]
	return n, nil
}
