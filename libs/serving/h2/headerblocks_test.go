package h2_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving/h2"
)

// sendBlock sends a header block in frames whose sizes are given by size.
func (c *rawClient) sendBlock(list []byte, size func() int) uint32 {
	c.t.Helper()
	c.id += 2
	id := c.id - 1
	for first := true; first || len(list) > 0; first = false {
		n := min(len(list), size())
		if first {
			c.requireNoError(c.WriteHeaders(http2.HeadersFrameParam{
				StreamID:      id,
				BlockFragment: list[:n],
				EndStream:     true,
				EndHeaders:    n == len(list),
			}))
		} else {
			c.requireNoError(c.WriteContinuation(id, n == len(list), list[:n]))
		}
		list = list[n:]
	}
	return id
}

func encodeRequest(encoder *hpack.Encoder, into *bytes.Buffer, more ...hpack.HeaderField) []byte {
	into.Reset()
	for _, headerField := range append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "a"},
		{Name: ":path", Value: "/"},
	}, more...) {
		_ = encoder.WriteField(headerField) // into memory
	}
	return slices.Clone(into.Bytes())
}

// TestLargeHeaderMemoryIsReleased checks that idle connections keep no memory of large header
// blocks.
func TestLargeHeaderMemoryIsReleased(t *testing.T) {
	const size, conns = 1_000_000, 12
	c := config()
	c.MaxHeaderBytes = 1 << 20
	server := h2.NewServer(c)
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, test := range map[string]struct {
		more []hpack.HeaderField
		most int // bytes per connection
	}{
		"one field": {
			more: []hpack.HeaderField{{Name: "x", Value: strings.Repeat("~", size), Sensitive: true}},
			most: size / 4,
		},
		"many fields": {more: slices.Repeat([]hpack.HeaderField{{Name: "x", Value: "y"}}, 9_000), most: 9_000 * 20},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			list := encodeRequest(hpack.NewEncoder(&b), &b, test.more...)
			before := heap()
			for range conns {
				client := dialServer(t, server, func(c net.Conn) h2.Wire { return newFakeWire(c) },
					func(http.ResponseWriter, *http.Request) {})
				go client.sendBlock(list, func() int { return 16 << 10 })
				if got := client.readStatuses(1); !slices.Equal(got, []string{"200"}) {
					t.Fatal(got)
				}
			}
			if more := heap() - before; more > conns*test.most {
				t.Errorf("%d bytes are retained by %d connections, want at most %v", more, conns, conns*test.most)
			}
		})
	}
}

// TestHeaderBlocksInFragments checks that the fragmentation of a header block does not matter.
func TestHeaderBlocksInFragments(t *testing.T) {
	permitRequests := make(chan string, 1)
	client := dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire { return newFakeWire(c) },
		func(_ http.ResponseWriter, r *http.Request) {
			permitRequests <- fmt.Sprint(r.Header)
		})
	rnd := rand.New(rand.NewPCG(1, 2))
	var buf bytes.Buffer
	encoder := hpack.NewEncoder(&buf)
	for i := range 300 {
		var more []hpack.HeaderField
		want := http.Header{}
		for range rnd.IntN(12) {
			headerField := hpack.HeaderField{
				Name:      fmt.Sprint("x-", rnd.IntN(20)),
				Value:     strings.Repeat(string(rune('0'+rnd.IntN(70))), rnd.IntN(2)*rnd.IntN(300)),
				Sensitive: rnd.IntN(3) == 0,
			}
			more = append(more, headerField)
			want.Add(headerField.Name, headerField.Value)
		}
		if i%10 == 0 {
			encoder.SetMaxDynamicTableSize(uint32(rnd.IntN(4096)))
		}
		list := encodeRequest(encoder, &buf, more...)
		most := 1 + rnd.IntN(40)
		id := make(chan uint32, 1)
		go func() { id <- client.sendBlock(list, func() int { return 1 + rnd.IntN(most) }) }()
		if got := <-permitRequests; got != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if got := client.readStatuses(<-id); !slices.Equal(got, []string{"200"}) {
			t.Fatal(got)
		}
	}
}

// TestInvalidHeaderBlockClosesConnection checks that an invalid header block ends the connection
// with a compression error, however it is fragmented.
func TestInvalidHeaderBlockClosesConnection(t *testing.T) {
	many := bytes.Repeat([]byte{0xff}, 11)
	for name, data := range map[string][]byte{
		"an index of too many bytes":        append([]byte{0xff}, many...),
		"a length of too many bytes":        append([]byte{0x40, 0x7f}, many...),
		"an index of nothing":               {0xc0},
		"no index":                          {0x80},
		"a text that is too long":           {0x00, 0x7f, 0xff, 0xff, 0xff, 0x7f},
		"a list that ends in a number":      {0xff},
		"a list that ends in a name":        {0x00, 0x03, 'a'},
		"a list that ends before the value": {0x00, 0x01, 'a'},
		"a size amid fields":                {0x40, 1, 'a', 1, 'b', 0x20},
	} {
		for _, size := range []int{1, 100} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				client := dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire { return newFakeWire(c) },
					func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
				go client.trySendBlock(data, size)
				for {
					f, err := client.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					if away, ok := f.(*http2.GoAwayFrame); ok {
						if away.ErrCode != http2.ErrCodeCompression {
							t.Errorf("GOAWAY code = %v, want COMPRESSION_ERROR", away.ErrCode)
						}
						return
					}
				}
			})
		}
	}
}

// trySendBlock is sendBlock to a server that may have closed the connection.
func (c *rawClient) trySendBlock(list []byte, size int) {
	n := min(len(list), size)
	err := c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      1,
		BlockFragment: list[:n],
		EndStream:     true,
		EndHeaders:    n == len(list),
	})
	for list = list[n:]; len(list) > 0 && err == nil; list = list[n:] {
		n = min(len(list), size)
		err = c.WriteContinuation(1, n == len(list), list[:n])
	}
}
