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

// TestDataThatAreCut are no body: nobody takes what came of them for whole.
func TestDataThatAreCut(t *testing.T) {
	for name, sent := range map[string]string{
		"before the length of padding": "\x00\x00\x0f\x00\x09\x00\x00\x00\x01",
		"within padding":               "\x00\x00\x0f\x00\x09\x00\x00\x00\x01\x0atext123",
		"within data":                  "\x00\x00\x0f\x00\x01\x00\x00\x00\x01text",
		"within padded data":           "\x00\x00\x0f\x00\x09\x00\x00\x00\x01\x0ate",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan error, 1)
				c := dialUnread(t, func(_ http.ResponseWriter, r *http.Request) {
					_, err := io.ReadAll(r.Body)
					got <- err
				})
				go c.drain()
				c.raw(http2.FrameHeaders, endsHeaders, 1, aList)
				for _, part := range []string{sent[:len(sent)-1], sent[len(sent)-1:]} {
					synctest.Wait() // until what came is read
					_, err := io.WriteString(c.Conn, part)
					c.must(err)
				}
				_ = c.Conn.Close()
				if err := <-got; err == nil {
					t.Error("the body is whole")
				}
			})
		})
	}
}

// TestDataOfWhatIsOver are thrown away where the server has ended it, and their room is given back.
func TestDataOfWhatIsOver(t *testing.T) {
	const size, all = 60_000, 20 << 20 // more than a connection has room for
	o := dialObedient(t, func(http.ResponseWriter, *http.Request) {})
	for sent := 0; sent < all; sent += size {
		id := o.open("/", size)
		o.await(func() bool { return o.ended[id] })
		for left := size; left > 0; {
			o.await(func() bool { return o.may(id, left) > 0 })
			n := o.now(id, left)
			left -= n
			o.send(id, false, make([]byte, n), nil)
		}
	}
	c := dialUnread(t, func(http.ResponseWriter, *http.Request) {})
	c.raw(http2.FrameHeaders, endsHeaders, 1, aList)
	c.until("reset 1 NO_ERROR")
	c.raw(http2.FrameData, 0, 1, strings.Repeat("x", 100))
	c.lives()
}

// TestWhatIsWholeIsNotReset, whichever of both ends comes first.
func TestWhatIsWholeIsNotReset(t *testing.T) {
	answers := func(w http.ResponseWriter, _ *http.Request, end chan struct{}) {
		w.Header().Set("Content-Length", "20000")
		_, _ = w.Write(make([]byte, 20_000)) // and with it the end
		<-end
	}
	handledInTime(t, true, answers, func(c *timed, end chan struct{}) {
		c.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, post)
		c.hears(event{0, "answer"})
		c.must(c.WriteData(1, true, []byte("text")))
		synctest.Wait()
		close(end)
		time.Sleep(time.Second)
		if len(c.heard) > 0 {
			t.Errorf("then comes %v", <-c.heard)
		}
	})
}
