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
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if value == "" || label.GetValue() == value {
					sum += metric.GetCounter().GetValue()
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
// more slowly and still gets responses, and that other clients are not delayed.
func TestFrameFloodIsDelayed(t *testing.T) {
	ping := [8]byte{1}
	for _, test := range []struct {
		name, kind string
		flood      func(flooder *rawHTTP2, id uint32) error
	}{
		{name: "resets", kind: "resets", flood: func(flooder *rawHTTP2, id uint32) error {
			flooder.request(id, "GET", true)
			return flooder.WriteRSTStream(id, http2.ErrCodeCancel)
		}},
		{name: "requests reset by the server", kind: "resets", flood: func(flooder *rawHTTP2, id uint32) error {
			flooder.request(id, "GET", false)
			return flooder.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		}},
		{name: "pings", kind: "control", flood: func(flooder *rawHTTP2, _ uint32) error { return flooder.WritePing(false, [8]byte{}) }},
		{name: "settings", kind: "control", flood: func(flooder *rawHTTP2, _ uint32) error { return flooder.WriteSettings() }},
		{name: "windows", kind: "control", flood: func(flooder *rawHTTP2, _ uint32) error { return flooder.WriteWindowUpdate(0, 1) }},
		{
			name: "priorities",
			kind: "control",
			flood: func(flooder *rawHTTP2, id uint32) error {
				return flooder.WritePriority(id, http2.PriorityParam{Weight: 1})
			},
		},
		{
			name:  "unknown frames",
			kind:  "control",
			flood: func(flooder *rawHTTP2, id uint32) error { return flooder.WriteRawFrame(99, 0, 0, nil) },
		},
		{name: "empty data", kind: "control", flood: func(flooder *rawHTTP2, id uint32) error {
			if id == 1 {
				flooder.request(id, "POST", false)
			}
			return flooder.WriteData(1, false, nil)
		}},
	} {
		readBody := func(_ http.ResponseWriter, server *http.Request) {
			_, _ = io.Copy(io.Discard, server.Body)
		} // reads as long as the client sends
		t.Run(test.name, func(t *testing.T) {
			testInMemory(t, readBody, func(t *testing.T, server *testServer) {
				flooder := dialHTTP2(t, server, 1<<16)
				_, pings := flooder.readResponses()
				id := uint32(1)
				for server.count(t, delayMetric, test.kind) == 0 {
					for range 50 {
						if err := test.flood(flooder, id); err != nil {
							t.Fatal(err)
						}
						id += 2
					}
				}
				if resp, _ := server.get(t, "/x"); resp.StatusCode != http.StatusOK {
					t.Errorf("another request got %s, want 200", resp.Status)
				}
				if err := flooder.WritePing(false, ping); err != nil {
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

// TestUsualTrafficIsNotDelayed checks that usual cancellations and large uploads and downloads are
// not delayed.
func TestUsualTrafficIsNotDelayed(t *testing.T) {
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
	for _, test := range []struct {
		name    string
		traffic func(t *testing.T)
	}{
		{name: "many requests", traffic: func(t *testing.T) {
			for range 3000 {
				testServer.get(t, "/x")
			}
		}},
		{name: "upload", traffic: func(t *testing.T) {
			resp, err := testServer.client.Post(testServer.url+"/x", "text/plain", bytes.NewReader(make([]byte, 64<<20)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}},
		{name: "cancellations", traffic: func(t *testing.T) {
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
		{name: "download", traffic: func(t *testing.T) { // with WINDOW_UPDATEs for small parts
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
		t.Run(test.name, func(t *testing.T) {
			test.traffic(t)
			if delay := testServer.count(t, delayMetric, ""); delay > 0 {
				t.Errorf("delayed by %v s, want 0", delay)
			}
		})
	}
}
