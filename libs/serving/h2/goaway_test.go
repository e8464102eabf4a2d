package h2_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// TestAcceptedRequestsComplete sends 20 requests on each of 100 connections while the server shuts
// down or a response has Connection: close. All streams up to the last stream of the GOAWAY get
// complete responses.
func TestAcceptedRequestsComplete(t *testing.T) {
	const conns, requests = 100, 20
	accepted, away := 0, 0
	for i := range conns {
		synctest.Test(t, func(t *testing.T) {
			server := h2.NewServer(config())
			rawClient := dialServer(t, server, dialWire, func(w http.ResponseWriter, r *http.Request) {
				if i%2 == 0 && rand.IntN(requests) == 0 {
					w.Header().Set("Connection", "close")
				}
				w.(http.Flusher).Flush()
				sleep(r, time.Duration(rand.IntN(3000))*time.Millisecond) // longer than linger
				_, _ = w.Write(make([]byte, 20_000))
			})
			// The shutdown begins while requests are still sent.
			go func() {
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
				server.Shutdown()
			}()
			// POST / on https with the authority a, in HPACK. The block refers only to the static table,
			// so each stream can send the same bytes.
			requestBlock := []byte("\x83\x87\x84\x41\x01a")
			var writing sync.WaitGroup
			writing.Go(func() {
				for range requests {
					rawClient.id += 2
					if rawClient.WriteHeaders(http2.HeadersFrameParam{
						StreamID:      rawClient.id - 1,
						BlockFragment: requestBlock,
						EndHeaders:    true,
						EndStream:     true,
					}) != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
			// A second framer, because the first one writes requests in another goroutine.
			windowUpdates := http2.NewFramer(rawClient.Conn, nil)
			last, ended := uint32(0), map[uint32]bool{}
			for {
				f, err := rawClient.ReadFrame()
				if err != nil {
					break
				}
				switch f := f.(type) {
				case *http2.GoAwayFrame:
					last = f.LastStreamID
					away++
				case *http2.RSTStreamFrame:
					t.Errorf("stream %d: got a reset with %v, want a response", f.StreamID, f.ErrCode)
				case *http2.DataFrame:
					ended[f.StreamID] = f.StreamEnded()
					if n := uint32(len(f.Data())); n > 0 {
						_ = windowUpdates.WriteWindowUpdate(0, n) // fails only after the server has closed
					}
				}
			}
			writing.Wait()
			for id := uint32(1); id <= last; id += 2 {
				accepted++
				if !ended[id] {
					t.Errorf("stream %d of %d: got no complete response, want one, because GOAWAY reports the stream as accepted", id, last)
				}
			}
		})
	}
	if away != conns || accepted < conns {
		t.Errorf("got %d accepted requests, %d GOAWAYs, want at least %d, and %d", accepted, away, conns, conns)
	}
}

// TestOnCloseCallsFunctionAfterResponse checks that OnClose calls its function when the end of the response
// was written or the stream was reset, and not earlier.
func TestOnCloseCallsFunctionAfterResponse(t *testing.T) {
	for name, end := range map[string]func(client *rawClient, id uint32) error{
		"response sent":     func(client *rawClient, id uint32) error { return client.WriteWindowUpdate(id, 100) },
		"stream reset":      func(client *rawClient, id uint32) error { return client.WriteRSTStream(id, http2.ErrCodeCancel) },
		"connection closed": func(client *rawClient, _ uint32) error { return client.Conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := make(chan struct{})
				client := dialRaw(t, func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write(make([]byte, 100))
					w.(interface{ OnClose(func()) }).OnClose(func() { close(closed) })
				})
				go client.readAll()
				client.requireNoError(client.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 50}))
				id := client.openPost("/", true)
				synctest.Wait()
				select {
				case <-closed:
					t.Error("OnClose called its function before the response was sent")
				default:
				}
				client.requireNoError(end(client, id))
				<-closed
			})
		})
	}
}
