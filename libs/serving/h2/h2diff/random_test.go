package h2diff_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// long reports whether the long test variants run.
func long() bool { return os.Getenv("BINNACLE_H2DIFF") == "long" }

// firstSeed returns the seed of BINNACLE_H2DIFF_SEED, and how many runs follow from it. Without
// the variable the short form uses the same seeds each time, and the long form new ones.
func firstSeed(t *testing.T, runs int) (first uint64, n int) {
	t.Helper()
	if text := os.Getenv("BINNACLE_H2DIFF_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("BINNACLE_H2DIFF_SEED: %v", err)
		}
		return seed, 1
	}
	if !long() {
		return 1, runs
	}
	first = uint64(time.Now().UnixNano())
	t.Logf("seeds from %d", first)
	return first, 100 * runs
}

// randomClient sends random frames. Its choices do not depend on the server.
type randomClient struct {
	*client
	random *rand.Rand
	next   uint32             // stream
	open   map[uint32]*upload // streams on which the client has not sent END_STREAM
	began  []uint32           // all streams
	log    []string           // what was sent, one line for each step
}

// upload is a body that the client sends.
type upload struct {
	left   int // remaining bytes of the declared length; -1 without one
	window int // bytes that the client may send
}

func (w *randomClient) stream() uint32 {
	if len(w.began) == 0 || w.random.IntN(20) == 0 {
		return w.next
	}
	recent := w.began[max(0, len(w.began)-8):]
	return recent[w.random.IntN(len(recent))]
}

// paths are handlers whose responses do not depend on the server.
var paths = []string{"/hello", "/empty", "/wait", "/wait", "/begun", "/begun", "/trailers?n=7", "/status?code=404",
	"/hints", "/panicked", "/panic"}

func (w *randomClient) get() string {
	path := paths[w.random.IntN(len(paths))]
	if w.random.IntN(3) == 0 {
		path = fmt.Sprintf("/large?n=%d", w.random.IntN(100_000))
	}
	w.request(w.next, "GET", path, true)
	w.began = append(w.began, w.next)
	w.next += 2 + 2*uint32(w.random.IntN(5)/4)
	return "GET " + path
}

func (w *randomClient) openPost() string {
	path := []string{"/read", "/echo", "/wait", "/begun", "/hello", "/some?n=10", "/close"}[w.random.IntN(7)]
	u := &upload{left: -1, window: streamWindow}
	var fields []string
	if w.random.IntN(2) == 0 {
		u.left = 1 + w.random.IntN(streamWindow/2)
		fields = append(fields, fmt.Sprintf("content-length: %d", u.left))
	}
	if w.random.IntN(5) == 0 {
		fields = append(fields, "expect: 100-continue")
	}
	w.request(w.next, "POST", path, false, fields...)
	w.open[w.next] = u
	w.began = append(w.began, w.next)
	w.next += 2
	return "POST " + path + " " + strings.Join(fields, " ")
}

// body sends a part of a body, and its end at random.
func (w *randomClient) body() string {
	id := w.stream()
	upload := w.open[id]
	if upload == nil {
		return w.get()
	}
	padding := w.random.IntN(2) * w.random.IntN(256)
	n := min(w.random.IntN(16<<10), upload.window-padding-1)
	if upload.left >= 0 {
		n = min(n, upload.left)
	}
	if n < 0 {
		return w.abandon(id)
	}
	upload.window -= n + 1 + padding
	end := w.random.IntN(4) == 0
	if upload.left >= 0 {
		upload.left -= n
		end = upload.left == 0
	}
	if padding > 0 {
		w.requireNoError(w.framer.WriteDataPadded(id, end, pattern(n, 0), make([]byte, padding)))
	} else {
		w.data(id, end, pattern(n, 0))
	}
	if end {
		delete(w.open, id)
	}
	return fmt.Sprintf("DATA of %d bytes, padding %d, on %d, end %t", n, padding, id, end)
}

func (w *randomClient) end() string {
	id := w.stream()
	if u := w.open[id]; u == nil || u.left > 0 {
		return w.body()
	}
	w.headers(id, true, "x-trailer: 1")
	delete(w.open, id)
	return fmt.Sprintf("trailers on %d", id)
}

func (w *randomClient) abandon(id uint32) string {
	if id == w.next {
		return w.openPost()
	}
	w.reset(id, http2.ErrCodeCancel)
	delete(w.open, id)
	return fmt.Sprintf("RST_STREAM on %d", id)
}

func (w *randomClient) enlarge() string {
	id, n := w.stream(), 1+uint32(w.random.IntN(80_000))
	if id == w.next || w.random.IntN(2) == 0 {
		id = 0
	}
	w.window(id, n)
	return fmt.Sprintf("WINDOW_UPDATE of %d on %d", n, id)
}

func (w *randomClient) setting() string {
	s := http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(w.random.IntN(70_000))}
	w.settings(s)
	return fmt.Sprint(s)
}

// illegal sends a frame of the scripts, which may end the connection.
func (w *randomClient) illegal() string {
	id, frame := w.stream(), frames[w.random.IntN(len(frames))]
	frame.send(w.client, id)
	if id == w.next {
		w.next += 2
	}
	return fmt.Sprintf("%s on %d", frame.name, id)
}

// step takes a random action and waits until the server has handled it.
func (w *randomClient) step() {
	var text string
	n := w.random.IntN(100)
	switch {
	case n < 20:
		text = w.get()
	case n < 35:
		text = w.openPost()
	case n < 60:
		text = w.body()
	case n < 65:
		text = w.end()
	case n < 70:
		text = w.abandon(w.stream())
	case n < 85:
		text = w.enlarge()
	case n < 89:
		text = w.setting()
	case n < 91:
		w.ping(7)
		text = "PING"
	case n < 97:
		w.observer.release()
		text = "release"
	default:
		text = w.illegal()
	}
	w.log = append(w.log, text)
	w.settle()
}

// numberSteps formats the frames of each step with the step numbers of compare.
func numberSteps(log []string) string {
	var b strings.Builder
	for i, text := range log {
		fmt.Fprintf(&b, "    %d %s\n", i+2, text)
	}
	return b.String()
}

// TestServersAgreeOnRandomFrames sends the same random frames to both servers and compares each
// step.
func TestServersAgreeOnRandomFrames(t *testing.T) {
	t.Parallel()
	const length = 80
	first, runs := firstSeed(t, 30)
	for seed := first; seed < first+uint64(runs); seed++ {
		known := newDifferences()
		var both [2][]step
		var log []string
		for n, i := range implementations {
			both[n] = exchange(t, i, func(c *client) {
				w := &randomClient{client: c, random: rand.New(rand.NewPCG(seed, 0)), next: 1, open: map[uint32]*upload{}}
				c.greet()
				c.window(0, 1<<30) // servers may share the connection window differently
				c.settle()
				for range length {
					w.step()
				}
				log = w.log
			})
		}
		if text := known.compare("random", both[0], both[1]); text != "" {
			t.Fatalf("seed %d:\n%s  frames:\n%s", seed, text, numberSteps(log))
		}
	}
}
