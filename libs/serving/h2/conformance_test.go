package h2_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// TestShortGoAwayIsRejected checks that a GOAWAY must have eight bytes.
func TestShortGoAwayIsRejected(t *testing.T) {
	testOutcomes(t, map[string]frameOutcomes{
		"none":  frameOutcome(http2.FrameGoAway, 0, 0, "", goAwayFrameSize),
		"seven": frameOutcome(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00", goAwayFrameSize),
	})
}

// TestHeadEndsWithHeaders checks that a response to HEAD is a single HEADERS frame, whatever the
// handler writes, flushes and declares, and that the handler gets no error.
func TestHeadEndsWithHeaders(t *testing.T) {
	for name, handler := range map[string]func(w http.ResponseWriter) error{
		"nothing": func(http.ResponseWriter) error { return nil },
		"trailers": func(w http.ResponseWriter) error {
			w.Header().Set("Trailer", "X-Sum")
			_, err := w.Write([]byte("body"))
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"X-More", "1")
			return err
		},
		"flushed": func(w http.ResponseWriter) error {
			w.(http.Flusher).Flush()
			_, err := w.Write(bytes.Repeat([]byte("x"), 100_000))
			w.(http.Flusher).Flush()
			return err
		},
		"large": func(w http.ResponseWriter) error {
			_, err := w.Write(bytes.Repeat([]byte("x"), 100_000))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 1)
			rawClient := dialRaw(t, func(w http.ResponseWriter, _ *http.Request) { failed <- handler(w) })
			rawClient.sendHeaders(1, endsStream, fields(":method: HEAD", ":scheme: https", ":authority: a", ":path: /"))
			rawClient.writeFrame(http2.FramePing, 0, 0, "12345678")
			for headers, acked := false, false; !headers || !acked; {
				f, err := rawClient.ReadFrame()
				rawClient.requireNoError(err)
				frameHeader := f.Header()
				switch {
				case frameHeader.StreamID == 1 && (headers || frameHeader.Type != http2.FrameHeaders || !frameHeader.Flags.Has(http2.FlagHeadersEndStream)):
					t.Errorf("unexpected frame %v", frameHeader)
				case frameHeader.StreamID == 1:
					headers = true
				case frameHeader.Type == http2.FramePing:
					acked = true
				}
			}
			if err := <-failed; err != nil {
				t.Error(err)
			}
			rawClient.ping()
		})
	}
}

// TestLateTrailersAreIgnored checks that trailers on a stream that the server reset long ago are
// ignored.
func TestLateTrailersAreIgnored(t *testing.T) {
	rawClient := dialServer(t, h2.NewServer(config()), dialWire, func(http.ResponseWriter, *http.Request) {})
	const streams = 300
	for range streams {
		id := rawClient.openPost("/", false) // reset after the response, because the body is not read
		for reset := false; !reset; {
			f, err := rawClient.ReadFrame()
			rawClient.requireNoError(err)
			reset = f.Header().Type == http2.FrameRSTStream && f.Header().StreamID == id
		}
	}
	rawClient.writeFrame(http2.FrameHeaders, endsHeaders|endsStream, 1, customField)
	rawClient.ping()
}

// TestWritesAfterTheHandlerFail checks that a goroutine of a handler gets an error once the handler
// has returned, and that its data is dropped.
func TestWritesAfterTheHandlerFail(t *testing.T) {
	failed := make(chan error, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/leaves" {
			returned := make(chan struct{})
			go func() {
				for writes := 0; ; writes++ {
					if _, err := w.Write([]byte("late")); err != nil {
						w.Header().Set("X-Late", "1")
						w.(http.Flusher).Flush()
						w.WriteHeader(http.StatusTeapot)
						failed <- err
						return
					}
					if writes == 0 {
						close(returned)
					}
				}
			}()
			<-returned
			return
		}
		_, _ = io.WriteString(w, "own")
	}, nil)
	client := server.client(t)
	for range 50 {
		_, body := get(t, client, "/leaves")
		if len(bytes.ReplaceAll([]byte(body), []byte("late"), nil)) > 0 {
			t.Errorf("got body %q, want only repetitions of late", body)
		}
		if _, body := get(t, client, "/other"); body != "own" {
			t.Errorf("another response has the body %q, want \"own\"", body)
		}
		if err := <-failed; err == nil {
			t.Error("a late write succeeded")
		}
	}
}

// frameCountingWire counts the client's control frames and the server's DATA frames.
type frameCountingWire struct {
	fakeWire
	control, frames atomic.Int64
}

func (w *frameCountingWire) FramesReceived(_, control int) { w.control.Add(int64(control)) }
func (w *frameCountingWire) FramesSent(_, frames, _ int)   { w.frames.Add(int64(frames)) }

// TestTinyWindowsComplete checks that a client with windows of a few bytes gets its responses, and
// that its WINDOW_UPDATEs are covered by the DATA frames.
func TestTinyWindowsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wire *frameCountingWire
		rawClient := dialServer(t, h2.NewServer(config()), func(conn net.Conn) h2.Wire {
			wire = &frameCountingWire{fakeWire: newFakeWire(conn)}
			return wire
		}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5000)) })
		rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
		rawClient.openPost("/", true)
		for {
			f, err := rawClient.ReadFrame()
			rawClient.requireNoError(err)
			dataFrame, ok := f.(*http2.DataFrame)
			if !ok {
				continue
			}
			if dataFrame.StreamEnded() {
				break
			}
			rawClient.openWindows(dataFrame)
		}
		if owed := wire.control.Load() - 2*wire.frames.Load(); owed > 10 {
			t.Errorf("%d control frames exceed those allowed for %d DATA frames, want at most 10", owed, wire.frames.Load())
		}
	})
}
