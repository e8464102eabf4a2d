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
			go func() {
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
				server.Shutdown()
			}()
			var writing sync.WaitGroup
			writing.Go(func() {
				for range requests {
					block := []byte("\x83\x87\x84\x41\x01a")
					rawClient.id += 2
					if rawClient.WriteHeaders(http2.HeadersFrameParam{
						StreamID:      rawClient.id - 1,
						BlockFragment: block,
						EndHeaders:    true,
						EndStream:     true,
					}) != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
			grants := http2.NewFramer(rawClient.Conn, nil) // a second framer, because the first one writes requests
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
						writing.Go(func() { _ = grants.WriteWindowUpdate(0, n) })
						writing.Wait()
					}
				}
			}
			writing.Wait()
			for id := uint32(1); id <= last; id += 2 {
				accepted++
				if !ended[id] {
					t.Errorf("stream %d of %d: got it accepted without a complete response, want one", id, last)
				}
			}
		})
	}
	if away != conns || accepted < conns {
		t.Errorf("got %d accepted requests, %d GOAWAYs, want at least %d, and %d", accepted, away, conns, conns)
	}
}

// TestOnCloseIsCalledOnceSent checks that OnClose calls its function when the end of the response
// was written or the stream was reset, and not earlier.
func TestOnCloseIsCalledOnceSent(t *testing.T) {
	for name, end := range map[string]func(client *rawClient, id uint32) error{
		"sent":   func(client *rawClient, id uint32) error { return client.WriteWindowUpdate(id, 100) },
		"reset":  func(client *rawClient, id uint32) error { return client.WriteRSTStream(id, http2.ErrCodeCancel) },
		"closed": func(client *rawClient, _ uint32) error { return client.Conn.Close() },
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
					t.Error("OnClose: got it called while a response was unsent, want it called after the end")
				default:
				}
				client.requireNoError(end(client, id))
				<-closed
			})
		})
	}
}
