package serving_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"golang.org/x/net/http2"

	"binnacle/libs/serving"
)

// count returns the sum of a counter over samples with a label of the given value, or over all
// samples if value is empty.
func (r *testServer) count(t *testing.T, name, value string) (sum float64) {
	t.Helper()
	families, err := r.counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if value == "" || l.GetValue() == value {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

const delayMetric = "binnacle_http2_delayed_seconds_total"

// readResponses reads what the server sends, and returns channels of the streams that ended and the
// pings that were acknowledged. It ends with the connection.
func (c *rawHTTP2) readResponses() (streams chan uint32, pings chan [8]byte) {
	streams, pings = make(chan uint32, 1<<20), make(chan [8]byte, 1<<20)
	go func() {
		defer close(streams)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.PingFrame:
				if f.IsAck() {
					pings <- f.Data
				}
			case *http2.DataFrame:
				if f.StreamEnded() {
					streams <- f.StreamID
				}
			case *http2.HeadersFrame:
				if f.StreamEnded() {
					streams <- f.StreamID
				}
			}
		}
	}()
	return streams, pings
}

// TestFrameFloodIsDelayed checks that a client that floods the server with control frames is read
// more slowly and still get responses, and that other clients are not delayed.
func TestFrameFloodIsDelayed(t *testing.T) {
	ping := [8]byte{1}
	for _, tc := range []struct {
		name, kind string
		flood      func(c *rawHTTP2, id uint32) error
	}{
		{name: "resets", kind: "resets", flood: func(c *rawHTTP2, id uint32) error {
			c.request(id, "GET", true)
			return c.WriteRSTStream(id, http2.ErrCodeCancel)
		}},
		{name: "requests reset by the server", kind: "resets", flood: func(c *rawHTTP2, id uint32) error {
			c.request(id, "GET", false)
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		}},
		{name: "pings", kind: "control", flood: func(c *rawHTTP2, _ uint32) error { return c.WritePing(false, [8]byte{}) }},
		{name: "settings", kind: "control", flood: func(c *rawHTTP2, _ uint32) error { return c.WriteSettings() }},
		{name: "windows", kind: "control", flood: func(c *rawHTTP2, _ uint32) error { return c.WriteWindowUpdate(0, 1) }},
		{
			name:  "priorities",
			kind:  "control",
			flood: func(c *rawHTTP2, id uint32) error { return c.WritePriority(id, http2.PriorityParam{Weight: 1}) },
		},
		{
			name:  "unknown frames",
			kind:  "control",
			flood: func(c *rawHTTP2, id uint32) error { return c.WriteRawFrame(99, 0, 0, nil) },
		},
		{name: "empty data", kind: "control", flood: func(c *rawHTTP2, id uint32) error {
			if id == 1 {
				c.request(id, "POST", false)
			}
			return c.WriteData(1, false, nil)
		}},
	} {
		readBody := func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		} // reads as long as the client sends
		t.Run(tc.name, func(t *testing.T) {
			testInMemory(t, readBody, func(t *testing.T, r *testServer) {
				c := dialHTTP2(t, r, 1<<16)
				_, pings := c.readResponses()
				id := uint32(1)
				for r.count(t, delayMetric, tc.kind) == 0 {
					for range 50 {
						if err := tc.flood(c, id); err != nil {
							t.Fatal(err)
						}
						id += 2
					}
				}
				if resp, _ := r.get(t, "/x"); resp.StatusCode != http.StatusOK {
					t.Errorf("another request got %s, want 200", resp.Status)
				}
				if err := c.WritePing(false, ping); err != nil {
					t.Fatal(err)
				}
				for got := range pings {
					if got == ping {
						return
					}
				}
			})
		})
	}
}

// TestGoodClientIsNotDelayed checks that usual cancellations and large uploads and downloads are
// not delayed.
func TestGoodClientIsNotDelayed(t *testing.T) {
	const response = 4 << 20
	testServer := startServer(t, testOptions(t), nil, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if r.Method == "PUT" {
				_, _ = w.Write(make([]byte, response))
			}
		})
	})
	for _, tc := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{name: "many requests", do: func(t *testing.T) {
			for range 3000 {
				testServer.get(t, "/x")
			}
		}},
		{name: "upload", do: func(t *testing.T) {
			resp, err := testServer.client.Post(testServer.url+"/x", "text/plain", bytes.NewReader(make([]byte, 64<<20)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}},
		{name: "cancellations", do: func(t *testing.T) {
			rawHTTP2 := dialHTTP2(t, testServer, 1<<16)
			streams, _ := rawHTTP2.readResponses()
			for id := uint32(1); id < 200; id += 2 {
				rawHTTP2.request(id, "GET", true)
				if err := rawHTTP2.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
					t.Fatal(err)
				}
			}
			rawHTTP2.request(1001, "GET", true)
			for id := range streams {
				if id == 1001 {
					return
				}
			}
			t.Error("connection closed before the response of stream 1001, want the response")
		}},
		{name: "download", do: func(t *testing.T) { // with WINDOW_UPDATEs for small parts
			rawHTTP2 := dialHTTP2(t, testServer, response)
			if err := rawHTTP2.WriteWindowUpdate(0, response); err != nil {
				t.Fatal(err)
			}
			rawHTTP2.request(1, "PUT", true)
			if got := rawHTTP2.readUntilEnd(1); got != "end" {
				t.Fatal(got)
			}
			for range response / 300 {
				if err := rawHTTP2.WriteWindowUpdate(0, 300); err != nil {
					t.Fatal(err)
				}
			}
			_, pings := rawHTTP2.readResponses()
			if err := rawHTTP2.WritePing(false, [8]byte{2}); err != nil {
				t.Fatal(err)
			}
			<-pings
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.do(t)
			if n := testServer.count(t, delayMetric, ""); n > 0 {
				t.Errorf("delayed by %v s, want 0", n)
			}
		})
	}
}
