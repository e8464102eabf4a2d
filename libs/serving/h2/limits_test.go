package h2_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving/h2"
)

// TestListsOfManyFields are answered, as any that are too large: each field takes room, however short
// it is.
func TestListsOfManyFields(t *testing.T) {
	for n, want := range map[int]string{10_000 - 4: "200", 10_001 - 4: "431"} {
		c := config()
		c.MaxHeaderBytes = 1 << 20
		client := dialServer(t, h2.NewServer(c), func(c net.Conn) h2.Wire { return newPlain(c) }, func(w http.ResponseWriter, r *http.Request) {
			if len(r.Header["X"]) != 10_000-4 {
				t.Errorf("%d fields come", len(r.Header["X"]))
			}
		})
		list := listOf(client.hpack, &client.block, slices.Repeat([]hpack.HeaderField{{Name: "x", Value: "y"}}, n)...)
		go client.send(list, func() int { return 16 << 10 })
		if got := client.answers(1); !slices.Equal(got, []string{want}) {
			t.Errorf("%d fields are answered %v", n, got)
		}
	}
}

// crowded is a connection that has no room for lists that do not end.
type crowded struct {
	plain
	asked atomic.Int64
}

func (w *crowded) KeepLarge(n int) bool {
	w.asked.Add(int64(n))
	return n == 0
}

// TestListsThatDoNotEnd have to have room, once they are large, in what way ever: bytes that come, or
// what comes of them.
func TestListsThatDoNotEnd(t *testing.T) {
	for name, c := range map[string]struct {
		parts []string
		want  string
	}{
		"small":    {[]string{aList, aField}, stays},
		"large":    {[]string{aList, "\x00\x01x\x7f\xc1\x3d" + strings.Repeat("v", 8_000), aField + aField + aField + strings.Repeat(aField, 40)}, "away ENHANCE_YOUR_CALM"},
		"unpacked": {[]string{aList, "\x40\x01x\x7f\xa1\x0e" + strings.Repeat("v", 1952), "\xbe\xbe\xbe\xbe"}, "away ENHANCE_YOUR_CALM"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &crowded{}
			client := dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire {
				w.plain = newPlain(c)
				return w
			}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			kind := http2.FrameHeaders
			for _, part := range c.parts {
				client.raw(kind, 0, 1, part)
				kind = http2.FrameContinuation
			}
			if c.want == stays {
				client.raw(kind, endsHeaders, 1, aField)
				client.lives()
				if n := w.asked.Load(); n > 0 {
					t.Errorf("room is asked for, %d bytes", n)
				}
			} else if got := client.hears(); got != c.want {
				t.Errorf("the client hears %s, want %s", got, c.want)
			}
		})
	}
}

// TestHandlersAreBounded: who gives up requests whose handlers do not end has no more of them run; what
// is not given up is answered in its turn.
func TestHandlersAreBounded(t *testing.T) {
	const most = 2
	conf := config()
	conf.MaxStreams = most
	end, began := make(chan struct{}), make(chan string, 1000)
	var running atomic.Int64
	client := dialServer(t, h2.NewServer(conf), func(c net.Conn) h2.Wire { return newPlain(c) }, func(_ http.ResponseWriter, r *http.Request) {
		if n := running.Add(1); n > most {
			t.Errorf("%d handlers run", n)
		}
		began <- r.URL.Path
		<-end // whatever the client does
		running.Add(-1)
	})
	for range most {
		client.must(client.WriteRSTStream(client.post("/first", true), http2.ErrCodeCancel))
		<-began
	}
	kept := client.post("/kept", true)
	for range 20 * most {
		client.must(client.WriteRSTStream(client.post("/given-up", true), http2.ErrCodeCancel))
	}
	client.lives()
	if len(began) > 0 {
		t.Errorf("%s begins while others run", <-began)
	}
	close(end)
	if got := client.whole(kept); got != "200; content-length=0" {
		t.Errorf("what waits is answered %s", got)
	}
	client.lives()
	if path := <-began; path != "/kept" || len(began) > 0 {
		t.Errorf("%s begins, and %d more", path, len(began))
	}
}

// TestRequestsOfClosedConnections do not begin.
func TestRequestsOfClosedConnections(t *testing.T) {
	conf := config()
	conf.MaxStreams = 1
	began, end := make(chan struct{}, 10), make(chan struct{})
	client := dialServer(t, h2.NewServer(conf), func(c net.Conn) h2.Wire { return newPlain(c) }, func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-end
	})
	client.must(client.WriteRSTStream(client.post("/", true), http2.ErrCodeCancel))
	<-began
	client.post("/", true)
	client.lives()
	_ = client.Conn.Close()
	over := <-client.ended
	close(end)
	client.ended <- over
	if len(began) > 0 {
		t.Error("it begins")
	}
}
