package h2_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// TestTruncatedDataFailsBody checks that a truncated body ends with an error.
func TestTruncatedDataFailsBody(t *testing.T) {
	for name, sent := range map[string]string{
		"before the length of padding": "\x00\x00\x0f\x00\x09\x00\x00\x00\x01",
		"within padding":               "\x00\x00\x0f\x00\x09\x00\x00\x00\x01\x0atext123",
		"within data":                  "\x00\x00\x0f\x00\x01\x00\x00\x00\x01text",
		"within padded data":           "\x00\x00\x0f\x00\x09\x00\x00\x00\x01\x0ate",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan error, 1)
				rawClient := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
					_, err := io.ReadAll(r.Body)
					got <- err
				})
				go rawClient.readAll()
				rawClient.writeFrame(http2.FrameHeaders, endsHeaders, 1, postBlock)
				for _, part := range []string{sent[:len(sent)-1], sent[len(sent)-1:]} {
					synctest.Wait() // until everything was read
					_, err := io.WriteString(rawClient.Conn, part)
					rawClient.requireNoError(err)
				}
				_ = rawClient.Conn.Close()
				if err := <-got; err == nil {
					t.Error("reading the body succeeded, want an error")
				}
			})
		})
	}
}

// TestDataAfterResetIsRefunded checks that DATA on a stream that the server has reset is discarded
// and returned to the window.
func TestDataAfterResetIsRefunded(t *testing.T) {
	const size, all = 60_000, 20 << 20 // more than the connection window
	flowClient := dialFlow(t, func(http.ResponseWriter, *http.Request) {})
	for sent := 0; sent < all; sent += size {
		id := flowClient.open("/", size)
		flowClient.await(func() bool { return flowClient.ended[id] })
		for remaining := size; remaining > 0; {
			flowClient.await(func() bool { return flowClient.sendable(id, remaining) > 0 })
			n := flowClient.sendableNow(id, remaining)
			remaining -= n
			flowClient.send(id, false, make([]byte, n), nil)
		}
	}
	c := dialRaw(t, func(http.ResponseWriter, *http.Request) {})
	c.writeFrame(http2.FrameHeaders, endsHeaders, 1, postBlock)
	c.waitFor("reset 1 NO_ERROR")
	c.writeFrame(http2.FrameData, 0, 1, strings.Repeat("x", 100))
	c.ping()
}

// TestCompleteStreamIsNotReset checks that a stream is not reset if request and response ended, in
// either order.
func TestCompleteStreamIsNotReset(t *testing.T) {
	responses := func(w http.ResponseWriter, _ *http.Request, end chan struct{}) {
		w.Header().Set("Content-Length", "20000")
		_, _ = w.Write(make([]byte, 20_000)) // with END_STREAM
		<-end
	}
	testTimedHandler(t, true, responses, func(c *timedClient, end chan struct{}) {
		c.writeFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, postRequest)
		c.expect(event{0, "response"})
		c.requireNoError(c.WriteData(1, true, []byte("text")))
		synctest.Wait()
		close(end)
		time.Sleep(time.Second)
		if len(c.events) > 0 {
			t.Errorf("unexpected event %v", <-c.events)
		}
	})
}
