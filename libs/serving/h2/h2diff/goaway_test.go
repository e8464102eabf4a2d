package h2diff_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestGoAwayLosesNoRequest ends the connection with a response while another request arrives. A
// request that the GOAWAY accepts gets a response, however long that takes.
func TestGoAwayLosesNoRequest(t *testing.T) {
	t.Parallel()
	seed0, runs := firstSeed(t, 500)
	for _, server := range implementations {
		accepted, lost := 0, 0
		for seed := seed0; seed < seed0+uint64(runs); seed++ {
			wasAccepted, wasComplete := goAwayRace(t, server, seed)
			if wasAccepted {
				accepted++
			}
			if wasAccepted && !wasComplete {
				lost++
			}
		}
		t.Logf("%s: GOAWAY accepted %d of %d requests that raced with it", server.name, accepted, runs)
		if lost > 0 {
			t.Errorf("%s: %d of %d accepted requests got no response, want 0", server.name, lost, accepted)
		}
	}
}

// goAwayRace reports whether the GOAWAY accepted the concurrent request, and whether that request
// got a complete response.
func goAwayRace(t *testing.T, server implementation, seed uint64) (accepted, complete bool) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 3))
		near, far := newLink(0)
		_, stop := server.serve(far, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/last" {
				w.Header().Set("Connection", "close")
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(5 * time.Second) // in synctest time
			_, _ = io.WriteString(w, "whole")
		}))
		racing := client{t: t, ledger: newLedger()}
		racing.framer = http2.NewFramer(&racing.buffered, nil)
		racing.hpack = hpack.NewEncoder(&racing.block)
		racing.buffered.WriteString(http2.ClientPreface)
		racing.settings()
		racing.request(1, "GET", "/last", true)
		before := bytes.Clone(racing.buffered.Bytes())
		racing.buffered.Reset()
		fields := make([]string, random.IntN(60)) // more fields take longer to read
		for n := range fields {
			fields[n] = fmt.Sprintf("x-field-%d: %d", n, random.Uint64())
		}
		racing.request(3, "POST", "/slow", true, fields...)
		var sender sync.WaitGroup
		sender.Go(func() {
			_, _ = near.Write(before)
			for range random.IntN(200) {
				runtime.Gosched() // varies the point of the race
			}
			_, _ = near.Write(racing.buffered.Bytes()) // the server may have closed the connection
		})
		sender.Wait()
		time.Sleep(lastWait)
		p, _ := near.received.takeAll()
		accepted, complete = goAwayOutcome(t, p)
		_ = near.Close()
		stop()
		time.Sleep(2 * idleTimeout)
	})
	return accepted, complete
}

// goAwayOutcome reads what a server has sent.
func goAwayOutcome(t *testing.T, p []byte) (accepted, complete bool) {
	f := http2.NewFramer(nil, bytes.NewReader(p))
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return accepted, complete
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				t.Errorf("GOAWAY %s, want %v", frame.ErrCode, http2.ErrCodeNo)
			}
			accepted = frame.LastStreamID >= 3
		case *http2.DataFrame:
			complete = complete || frame.StreamID == 3 && frame.StreamEnded()
		}
	}
}
