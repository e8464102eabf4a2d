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

// TestBodiesComeWhole: however much is sent and read at a time, by as many as there are, on one
// connection, whose windows many of them need again and again; also beside those that nobody reads
// to the end.
func TestBodiesComeWhole(t *testing.T) {
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
			if read += n; err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("after %d bytes: %v", read, err)
				return
			}
			if until >= 0 && read > until {
				return // and nobody reads the rest
			}
			if draw.IntN(50) == 0 {
				clear(p) // what was read is the reader's
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
					// Sent by the transport, still while the next is drawn when nobody reads the rest.
					from = &parts{body, rand.New(rand.NewPCG(draw.Uint64(), 3))}
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
				if whole := string(got) == fmt.Sprint(hash.Sum64()); err != nil || !whole && !leaves {
					t.Errorf("%d bytes: whole %t, %v", len(body), whole, err)
				}
			}
		})
	}
	all.Wait()
}

// parts is a body of unknown length that is sent in parts.
type parts struct {
	left []byte
	draw *rand.Rand
}

func (p *parts) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[:min(len(p.left), 1+p.draw.IntN(20_000))])
	p.left = p.left[n:]
	return n, nil
}
