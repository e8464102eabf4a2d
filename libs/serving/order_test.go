package serving_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving"
)

// pattern is n bytes in which none is like its neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> (i % 3))
	}
	return b
}

// sized answers with as many bytes as the path says, in as many parts as the query does.
func sized(*serving.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[1:])
		parts, _ := strconv.Atoi(r.URL.Query().Get("parts"))
		all := pattern(n)
		for i := range parts {
			_, _ = w.Write(all[i*n/parts : (i+1)*n/parts])
		}
	})
}

// TestAnswersInManyFrames: answers of all sizes come whole, many on one connection, also
// when they end with a frame or with a part of the handler's.
func TestAnswersInManyFrames(t *testing.T) {
	r := start(t, testOptions(t), nil, sized)
	var wg sync.WaitGroup
	for _, n := range []int{0, 1, 4096, 16383, 16384, 16385, 32768, 65535, 65536, 65537, 1 << 20, 3 << 20, 5<<20 + 1} {
		for _, parts := range []int{1, 2, 3, 64} {
			wg.Go(func() {
				resp, err := r.client.Get(fmt.Sprintf("%s/%d?parts=%d", r.url, n, parts))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil || !bytes.Equal(got, pattern(n)) {
					t.Errorf("%d bytes in %d parts: %d came, %v", n, parts, len(got), err)
				}
			})
		}
	}
	wg.Wait()
}

// TestWindowsOfWholeFrames: a client takes just as much as whole frames have, and no more
// before it got that.
func TestWindowsOfWholeFrames(t *testing.T) {
	const window, size = 2 * 16384, 1 << 20
	r := start(t, testOptions(t), nil, sized)
	c := dialHTTP2(t, r, window)
	c.ask(1, fmt.Sprintf("/%d?parts=4", size))
	var got []byte
	for since := 0; len(got) < size; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		data, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		got = append(got, data.Data()...)
		if since += len(data.Data()); since == window {
			since = 0
			for _, id := range []uint32{0, 1} {
				if err := c.WriteWindowUpdate(id, window); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if !bytes.Equal(got, pattern(size)) {
		t.Error("it is not what was sent")
	}
}

// TestStreamsTakeTurns: an answer that its client does not read, and one that is long,
// keep no other of the connection.
func TestStreamsTakeTurns(t *testing.T) {
	const large = 8 << 20
	r := start(t, testOptions(t), nil, sized)
	c := dialHTTP2(t, r, 1<<16)
	if err := c.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	c.ask(1, fmt.Sprintf("/%d?parts=1", large)) // whose window is never opened
	c.ask(3, fmt.Sprintf("/%d?parts=1", large))
	if err := c.WriteWindowUpdate(3, 1<<30); err != nil {
		t.Fatal(err)
	}
	came := map[uint32]int{}
	for asked, ended := false, 0; ended < 2; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("after %v: %v", came, err)
		}
		data, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		came[data.StreamID] += len(data.Data())
		if came[3] > 0 && !asked { // while the long one goes on
			asked = true
			c.ask(5, "/1000?parts=1")
		}
		if data.StreamEnded() {
			ended++
		}
	}
	if want := map[uint32]int{1: 1<<16 - 1, 3: large, 5: 1000}; came[3] != want[3] || came[5] != want[5] || came[1] > 1<<16 {
		t.Errorf("came %v", came)
	}
}

// TestResetsPassByData: a stream for whose data there is no window is reset when its
// time is over.
func TestResetsPassByData(t *testing.T) {
	r := start(t, testOptions(t), nil, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			if err := errors.Join(c.Flush(), c.SetWriteDeadline(time.Now().Add(50*time.Millisecond))); err != nil {
				t.Error(err)
			}
			for { // as long as it may
				if _, err := w.Write(pattern(1 << 20)); err != nil {
					return
				}
			}
		})
	})
	c := dialHTTP2(t, r, 1<<16)
	c.ask(1, "/")
	if how := c.ended(1); how != "reset" {
		t.Errorf("it ended by %s", how)
	}
}
