package serving_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"golang.org/x/net/http2"

	"binnacle/libs/serving"
)

// count sums the samples of a metric whose labels have a value; any, if that is empty.
func (r *running) count(t *testing.T, name, value string) (sum float64) {
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

const delayed = "binnacle_http2_delayed_seconds_total"

// answers reads what the server sends, and passes on the ids of streams that end and
// of pings that are answered. It ends with the connection.
func (c *rawHTTP2) answers() (streams chan uint32, pings chan [8]byte) {
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

// TestFloodsAreSlowedDown: who sends frames that ask for nothing is read slower, and
// answered in the end; others are answered all the time.
func TestFloodsAreSlowedDown(t *testing.T) {
	ping := [8]byte{1}
	for _, tc := range []struct {
		name, kind string
		flood      func(c *rawHTTP2, id uint32) error
	}{
		{"resets", "resets", func(c *rawHTTP2, id uint32) error {
			c.request(id, "GET", true)
			return c.WriteRSTStream(id, http2.ErrCodeCancel)
		}},
		{"requests that the server has to reset", "resets", func(c *rawHTTP2, id uint32) error {
			c.request(id, "GET", false)
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		}},
		{"pings", "control", func(c *rawHTTP2, _ uint32) error { return c.WritePing(false, [8]byte{}) }},
		{"settings", "control", func(c *rawHTTP2, _ uint32) error { return c.WriteSettings() }},
		{"windows", "control", func(c *rawHTTP2, _ uint32) error { return c.WriteWindowUpdate(0, 1) }},
		{"priorities", "control", func(c *rawHTTP2, id uint32) error { return c.WritePriority(id, http2.PriorityParam{Weight: 1}) }},
		{"unknown frames", "control", func(c *rawHTTP2, id uint32) error { return c.WriteRawFrame(99, 0, 0, nil) }},
		{"empty data", "control", func(c *rawHTTP2, id uint32) error {
			if id == 1 {
				c.request(id, "POST", false)
			}
			return c.WriteData(1, false, nil)
		}},
	} {
		readBody := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) } // as long as the client likes
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, readBody, func(t *testing.T, r *running) {
				c := dialHTTP2(t, r, 1<<16)
				_, pings := c.answers()
				id := uint32(1)
				for r.count(t, delayed, tc.kind) == 0 {
					for range 50 {
						if err := tc.flood(c, id); err != nil {
							t.Fatal(err)
						}
						id += 2
					}
				}
				if resp, _ := r.get(t, "/x"); resp.StatusCode != http.StatusOK {
					t.Errorf("other requests are answered %s", resp.Status)
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

// TestGoodClientsAreNotSlowedDown: cancelling as many requests as a client of watches
// has, asking much, sending much and reading much are free.
func TestGoodClientsAreNotSlowedDown(t *testing.T) {
	const answer = 4 << 20
	r := start(t, testOptions(t), nil, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if r.Method == "PUT" {
				_, _ = w.Write(make([]byte, answer))
			}
		})
	})
	for _, tc := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"asks", func(t *testing.T) {
			for range 3000 {
				r.get(t, "/x")
			}
		}},
		{"sends", func(t *testing.T) {
			resp, err := r.client.Post(r.url+"/x", "text/plain", bytes.NewReader(make([]byte, 64<<20)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}},
		{"cancels", func(t *testing.T) {
			c := dialHTTP2(t, r, 1<<16)
			streams, _ := c.answers()
			for id := uint32(1); id < 200; id += 2 {
				c.request(id, "GET", true)
				if err := c.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
					t.Fatal(err)
				}
			}
			c.request(1001, "GET", true)
			for id := range streams {
				if id == 1001 {
					return
				}
			}
			t.Error("cut")
		}},
		{"reads", func(t *testing.T) { // and grants what it read in small parts
			c := dialHTTP2(t, r, answer)
			if err := c.WriteWindowUpdate(0, answer); err != nil {
				t.Fatal(err)
			}
			c.request(1, "PUT", true)
			if got := c.ended(1); got != "end" {
				t.Fatal(got)
			}
			for range answer / 300 {
				if err := c.WriteWindowUpdate(0, 300); err != nil {
					t.Fatal(err)
				}
			}
			_, pings := c.answers()
			if err := c.WritePing(false, [8]byte{2}); err != nil {
				t.Fatal(err)
			}
			<-pings
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.do(t)
			if n := r.count(t, delayed, ""); n > 0 {
				t.Errorf("slowed down by %v s", n)
			}
		})
	}
}
